#include "token_source.h"

#include <algorithm>
#include <vector>

#include "zerolab/error.h"

namespace token_bin {

using zerolab::ConfigError;

namespace {

constexpr int64_t kGpt2Vocabulary = 50257, kGpt2EndOfText = 50256;

}  // namespace

Vocabulary::Vocabulary(int64_t vocab_size, int64_t end_of_text)
    : given_size_(vocab_size), given_end_(end_of_text) {}

void Vocabulary::agree(const zerolab::TokenFile& file) {
  const zerolab::TokenFileInfo& info = file.info();
  const std::string name = "'" + file.path() + "'";
  if (info.vocab_size > 0) {
    const std::string says = name + " has a vocabulary of " + std::to_string(info.vocab_size);
    if (given_size_ > 0 && info.vocab_size > given_size_)
      throw ConfigError(says + " tokens, more than data.vocab_size " + std::to_string(given_size_) +
                        "; leave data.vocab_size out, or raise it.");
    if (given_size_ == 0 && stated_size_ > 0 && info.vocab_size != stated_size_)
      throw ConfigError(says + " tokens, but '" + size_from_ + "' one of " +
                        std::to_string(stated_size_) +
                        "; give files of one tokenizer, or set data.vocab_size to the larger.");
    stated_size_ = std::max(stated_size_, info.vocab_size);
    if (size_from_.empty()) size_from_ = file.path();
  }
  if (!info.tokenizer.empty()) {
    if (!stated_tokenizer_.empty() && info.tokenizer != stated_tokenizer_)
      throw ConfigError(name + " was made by the tokenizer \"" + info.tokenizer + "\", but '" +
                        tokenizer_from_ + "' by \"" + stated_tokenizer_ +
                        "\"; give files of one tokenizer.");
    stated_tokenizer_ = info.tokenizer;
    if (tokenizer_from_.empty()) tokenizer_from_ = file.path();
  }
  if (info.end_of_text < 0) return;
  if (given_end_ < 0 && stated_end_ >= 0 && info.end_of_text != stated_end_)
    throw ConfigError(name + " ends documents with " + std::to_string(info.end_of_text) +
                      ", but another file with " + std::to_string(stated_end_) +
                      "; give files of one tokenizer, or set data.end_of_text.");
  stated_end_ = info.end_of_text;
}

int64_t Vocabulary::size() const {
  if (given_size_ > 0) return given_size_;
  return stated_size_ > 0 ? stated_size_ : kGpt2Vocabulary;
}

bool Vocabulary::is_gpt2_by_default() const {
  return stated_size_ == 0 && stated_tokenizer_.empty() && size() == kGpt2Vocabulary;
}

int64_t Vocabulary::end_of_text() const {
  if (given_end_ >= 0) return given_end_;
  return stated_end_ < 0 && is_gpt2_by_default() ? kGpt2EndOfText : stated_end_;
}

std::string Vocabulary::tokenizer() const {
  return is_gpt2_by_default() ? "gpt2" : stated_tokenizer_;
}

void TokenSource::check_all(int64_t vocab_size) {
  checked_ = true;
  if (file_.largest_token() < vocab_size) return;
  std::vector<int64_t> piece(size_t{1} << 16);
  for (int64_t at = 0; at < num_tokens(); at += static_cast<int64_t>(piece.size())) {
    piece.resize(std::min(piece.size(), static_cast<size_t>(num_tokens() - at)));
    file_.read(at, piece);
    const auto found = std::find_if(piece.begin(), piece.end(),
                                    [&](int64_t token) { return token >= vocab_size; });
    if (found != piece.end()) refuse(at + (found - piece.begin()), *found, vocab_size);
  }
}

void TokenSource::read(int64_t first, int64_t vocab_size, std::span<int64_t> tokens,
                       std::span<int64_t> targets) const {
  file_.read(first, tokens);
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  file_.read(first + static_cast<int64_t>(tokens.size()), targets.last(1));
  if (checked_) return;
  const auto beyond = [&](int64_t token) { return token >= vocab_size; };
  if (beyond(tokens[0])) refuse(first, tokens[0], vocab_size);
  const auto found = std::find_if(targets.begin(), targets.end(), beyond);
  if (found != targets.end()) refuse(first + 1 + (found - targets.begin()), *found, vocab_size);
}

void TokenSource::refuse(int64_t position, int64_t token, int64_t vocab_size) const {
  throw ConfigError("'" + file_.path() + "' has the token " + std::to_string(token) +
                    " at position " + std::to_string(position) + ", but the vocabulary has " +
                    std::to_string(vocab_size) + " (0 to " + std::to_string(vocab_size - 1) +
                    "); set data.vocab_size if it is larger, else the file is damaged or no file "
                    "of packed tokens.");
}

}  // namespace token_bin
