#pragma once
// The header of our own token files, byte by byte; every number is little-endian.
//
//   0    8   "ZLTOKENS"
//   8    4   version, 1
//   12   4   bytes per token, 2 or 4
//   16   8   number of tokens
//   24   8   vocabulary size
//   32   8   token that ends a document, signed; -1: none
//   40   64  name of the tokenizer, padded with zero bytes
//   104  144 zero
//   248  8   FNV-1a (64 bits) of the 248 bytes before: in this place in every version
//
// The tokens follow at byte 256, and nothing follows them.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace zerolab {

static_assert(std::endian::native == std::endian::little, "token files are read as they lie");

struct TokenHeader {
  std::array<char, 8> magic;
  uint32_t version, bytes_per_token;
  uint64_t num_tokens, vocab_size;
  int64_t end_of_text;
  std::array<char, 64> tokenizer;
  std::array<char, 144> zero;
  uint64_t checksum;
};
static_assert(sizeof(TokenHeader) == 256 && offsetof(TokenHeader, checksum) == 248);

inline constexpr std::string_view kTokenMagic = "ZLTOKENS";
inline constexpr uint32_t kTokenVersion = 1;

/// Vocabularies up to this fit two bytes a token.
inline constexpr int64_t kLargestShortVocabulary = 65536;

/// What `checksum` has to be.
uint64_t checksum_of(const TokenHeader& header);

}  // namespace zerolab
