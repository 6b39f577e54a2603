#pragma once
// A file of packed tokens, and what all files of an experiment have to agree on.
// Errors: ConfigError that names the file, without the option's name.

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "zerolab/token_file.h"

namespace token_bin {

/// What the files' headers say, and the options where they say more. GPT-2's where nobody does.
class Vocabulary {
 public:
  /// 0 and -1: not said by the options.
  Vocabulary(int64_t vocab_size, int64_t end_of_text);
  /// Reads one more header. Errors: it contradicts the options or another file.
  void agree(const zerolab::TokenFile& file);
  int64_t size() const;
  int64_t end_of_text() const;
  std::string tokenizer() const;  ///< empty: not said

 private:
  bool is_gpt2_by_default() const;

  int64_t given_size_, given_end_;
  int64_t stated_size_ = 0, stated_end_ = -1;
  std::string stated_tokenizer_, size_from_, tokenizer_from_;
};

class TokenSource {
 public:
  explicit TokenSource(zerolab::TokenFile file) : file_(std::move(file)) {}
  const zerolab::TokenFile& file() const { return file_; }
  int64_t num_tokens() const { return file_.info().num_tokens; }
  int64_t num_bytes() const { return num_tokens() * file_.info().bytes_per_token; }
  /// [setup] Reads the whole file. Errors: a token beyond the vocabulary.
  void check_all(int64_t vocab_size);
  /// [hot] Tokens from `first` on, and those that follow each. From any thread.
  /// Errors: a token beyond the vocabulary.
  void read(int64_t first, int64_t vocab_size, std::span<int64_t> tokens,
            std::span<int64_t> targets) const;

 private:
  [[noreturn]] void refuse(int64_t position, int64_t token, int64_t vocab_size) const;

  zerolab::TokenFile file_;
  bool checked_ = false;
};

}  // namespace token_bin
