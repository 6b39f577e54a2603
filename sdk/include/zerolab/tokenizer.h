#pragma once
// Text to tokens and back.
//
// Order: made by one of the functions below; then everything, from any thread.
// Ranks: local.
// Errors: ConfigError for text that has no tokens, and for a vocabulary file that is missing or
// damaged.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zerolab/export.h"

namespace zerolab {

class ZEROLAB_API Tokenizer {
 public:
  virtual ~Tokenizer();
  virtual std::string name() const = 0;  ///< "byte", "char", "gpt2"
  virtual int64_t vocab_size() const = 0;
  /// The token that ends a document; -1 if there is none.
  virtual int64_t end_of_text() const { return -1; }
  /// Appends the tokens of a text, on up to `threads` threads: the same tokens with any number.
  virtual void encode(std::string_view text, std::vector<int32_t>& tokens,
                      int threads = 1) const = 0;
  /// Bytes of tokens; a token outside of the vocabulary has none.
  virtual std::string decode(std::span<const int64_t> tokens) const = 0;
  /// For text that comes in parts: how much of `text` can be encoded now, so that its tokens and
  /// those of the rest are the tokens of the whole, whatever follows. 0: more text is needed.
  virtual size_t last_cut(std::string_view text) const = 0;
};

/// Token = byte, 256 of them, for any bytes.
ZEROLAB_API std::unique_ptr<Tokenizer> make_byte_tokenizer();
/// One token for each different Unicode code point of `text` (UTF-8), in ascending order. `where`
/// names the text in errors.
ZEROLAB_API std::unique_ptr<Tokenizer> make_char_tokenizer(std::string_view text,
                                                           const std::string& where);
/// GPT-2's byte-level BPE: 50,256 ranks from a file of lines "base64-of-bytes rank", and 50256,
/// which ends a document ("<|endoftext|>" in a text becomes it where `special_tokens`). Any bytes
/// have tokens; what is no UTF-8 comes back as it was.
/// Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), 2.2.
ZEROLAB_API std::unique_ptr<Tokenizer> make_gpt2_tokenizer(const std::string& ranks_file,
                                                           bool special_tokens = true);

}  // namespace zerolab
