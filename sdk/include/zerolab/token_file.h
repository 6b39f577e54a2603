#pragma once
// Packed tokens in a file: little-endian unsigned integers of 2 or 4 bytes, one after the other.
//
//   zerolab  a header of 256 bytes (plugins/README.md has it byte by byte), then tokens
//   raw      tokens of 2 bytes and nothing else (nanoGPT's train.bin and val.bin)
//   llmc     256 int32 (magic 20240520 for 2 bytes or 20240801 for 4, version, number of tokens),
//            then tokens (llm.c's shards)
//
// Ranks: local. A file is mapped, not read: opening takes no time and no memory of its size, nor
// does reading all of it. It must not shrink while it is open: reading what is gone ends the
// process (SIGBUS).
// Errors: ConfigError that names the file for one that is missing, empty, cut, of odd size, of
// another layout than asked for, or text where no layout is asked for.

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "zerolab/export.h"

namespace zerolab {

enum class TokenLayout { kAuto, kZerolab, kRaw, kLlmc };

/// What the header of our own layout says beside the tokens; empty or 0 where a layout has none.
struct TokenFileInfo {
  int64_t num_tokens = 0;
  int64_t vocab_size = 0;    ///< 0: not said
  int64_t end_of_text = -1;  ///< -1: not said
  int bytes_per_token = 2;   ///< 2 or 4
  std::string tokenizer;     ///< "gpt2", "byte" ...; empty: not said
  TokenLayout layout = TokenLayout::kRaw;
};

class ZEROLAB_API TokenFile {
 public:
  /// Maps a file. kAuto recognises a layout by its magic and takes any other file as raw, but
  /// refuses one that begins as text: 4 KiB of printable characters (UTF-8) and white space.
  static TokenFile open(const std::string& path, TokenLayout layout = TokenLayout::kAuto);
  TokenFile(TokenFile&&) noexcept;
  TokenFile& operator=(TokenFile&&) noexcept;
  ~TokenFile();

  const TokenFileInfo& info() const { return info_; }
  const std::string& path() const { return path_; }
  /// [hot] Tokens [first, first + out.size()), which are there. From any thread.
  void read(int64_t first, std::span<int64_t> out) const;
  /// Largest token in the whole file: reads all of it.
  int64_t largest_token() const;

 private:
  TokenFile() = default;
  void give_back(int64_t bytes_read) const;

  std::string path_;
  TokenFileInfo info_;
  const unsigned char* mapping_ = nullptr;
  int64_t mapped_bytes_ = 0, start_ = 0;
  mutable std::atomic<int64_t> touched_bytes_ = 0;  // since pages were given back
};

/// Writes our own layout: beside the file under another name, published by rename in finish().
class ZEROLAB_API TokenFileWriter {
 public:
  /// `info`: vocab_size, end_of_text and tokenizer count; bytes_per_token follows from vocab_size.
  TokenFileWriter(const std::string& path, const TokenFileInfo& info);
  ~TokenFileWriter();  ///< without finish(): nothing is left
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;
  /// Errors: StoreError where the disk refuses; PluginError for a token outside of the vocabulary.
  void append(std::span<const int32_t> tokens);
  void finish();
  int64_t num_tokens() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace zerolab
