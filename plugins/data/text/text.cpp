// Tokens of one text file. The first part of the file trains, the rest validates.
//
//   tokenizer "char": one token for each different Unicode code point of the file, in ascending
//   order (the file is UTF-8). "byte": token = byte, 256 of them, for any file. "gpt2": GPT-2's
//   byte-level BPE, 50257 of them, for any file.
//
// windows "sliding": training samples start at every `stride`-th token. "random": as many
// samples, each at a place drawn from (seed, index), the same place in every epoch; `stride` then
// says no more than how many samples an epoch has. Validation windows do not overlap (stride T), so
// that every validation token is predicted once. A sample is T tokens and the T that follow each.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <ATen/Parallel.h>

#include "zerolab/data.h"
#include "zerolab/error.h"
#include "zerolab/plugin.h"
#include "zerolab/random.h"
#include "zerolab/tokenizer.h"

namespace {

using zerolab::ConfigError;
using zerolab::Split;

std::string read_file(const std::string& option, const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(status)) {
    throw ConfigError(option + ": '" + path + "' does not exist; give a text file.");
  }
  if (std::filesystem::is_directory(status)) {
    throw ConfigError(option + ": '" + path + "' is a folder; give one text file in it.");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw ConfigError(option + ": '" + path + "' cannot be read; check its permissions.");
  }
  std::ostringstream content;
  content << file.rdbuf();
  std::string text = std::move(content).str();
  if (text.empty()) throw ConfigError(option + ": '" + path + "' is empty; give a text file.");
  return text;
}

/// Tokens in the fewest bytes that hold the vocabulary.
class StoredTokens {
 public:
  StoredTokens() = default;
  explicit StoredTokens(int64_t vocab_size) {
    if (vocab_size > 65536) {
      tokens_ = std::vector<uint32_t>();
    } else if (vocab_size > 256) {
      tokens_ = std::vector<uint16_t>();
    }
  }
  void append(const std::vector<int32_t>& tokens) {
    std::visit([&](auto& stored) { stored.insert(stored.end(), tokens.begin(), tokens.end()); },
               tokens_);
  }
  int64_t size() const {
    return std::visit([](const auto& stored) { return static_cast<int64_t>(stored.size()); },
                      tokens_);
  }
  void read(int64_t first, std::span<int64_t> out) const {
    std::visit(
        [&](const auto& stored) { std::copy_n(stored.begin() + first, out.size(), out.begin()); },
        tokens_);
  }

 private:
  std::variant<std::vector<uint8_t>, std::vector<uint16_t>, std::vector<uint32_t>> tokens_;
};

class Text : public zerolab::Data {
 public:
  struct Options {
    std::string path;
    std::string tokenizer = "char";
    std::string bpe_ranks;
    double train_fraction = 0.9;
    std::string windows = "sliding";
    int64_t stride = 1;
    std::string document_separator;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("path", &Options::path, "the text file").required().path();
      d.field("tokenizer", &Options::tokenizer,
              "char: the file's own UTF-8 characters; byte: any file; gpt2: BPE, any file")
          .one_of({"char", "byte", "gpt2"});
      d.field("bpe_ranks", &Options::bpe_ranks,
              "the ranks of gpt2; tools/setup makes data/gpt2.tiktoken")
          .path();
      d.field("train_fraction", &Options::train_fraction,
              "this first part trains, the rest validates")
          .at_least(1e-6)
          .at_most(1 - 1e-6);
      d.field("windows", &Options::windows,
              "where training samples start: sliding, every stride tokens; random, at drawn places")
          .one_of({"sliding", "random"});
      d.field("stride", &Options::stride, "an epoch has one training sample for so many tokens")
          .unit("tokens")
          .at_least(1);
      d.field("document_separator", &Options::document_separator,
              "text between documents; gpt2 takes it as the end-of-text token");
    }
    void check(zerolab::Problems& problems) const {
      if (tokenizer == "gpt2" && bpe_ranks.empty()) {
        problems.add("bpe_ranks",
                     "tokenizer \"gpt2\" needs the file of its ranks: run tools/setup, which puts "
                     "it into data/gpt2.tiktoken, and give its path");
      }
      if (tokenizer != "gpt2" && !document_separator.empty()) {
        problems.add("document_separator", "tokenizer \"" + tokenizer +
                                               "\" has no end-of-text token; leave it out, or take "
                                               "tokenizer \"gpt2\"");
      }
    }
  };
  explicit Text(const Options& options) : options_(options) {}

  void open(const zerolab::DataContext& context) override {
    context_ = context;
    const std::string text = read_file("data.path", options_.path);
    const std::string where = "data.path: '" + options_.path + "'";
    if (options_.tokenizer == "byte") {
      tokenizer_ = zerolab::make_byte_tokenizer();
    } else if (options_.tokenizer == "gpt2") {
      tokenizer_ = zerolab::make_gpt2_tokenizer(options_.bpe_ranks);
    } else {
      tokenizer_ = zerolab::make_char_tokenizer(text, where);
    }
    tokens_ = tokens_of(text);
    train_length_ = train_part(tokens_.size());
    validation_first_ = train_length_;
    check_length();
  }

  int64_t vocab_size() const override { return tokenizer_->vocab_size(); }
  int64_t size(Split split) const override {
    if (split == Split::kTrain) return (num_starts() - 1) / options_.stride + 1;
    return (validation().size() - validation_first_ - 1) / context_.sequence_length;
  }
  void sample(Split split, int64_t index, std::span<int64_t> tokens,
              std::span<int64_t> targets) const override {
    const bool train = split == Split::kTrain;
    const StoredTokens& stored = train ? tokens_ : validation();
    const int64_t start =
        train ? train_start(index) : validation_first_ + index * context_.sequence_length;
    stored.read(start, tokens);
    stored.read(start + 1, targets);
  }
  std::string decode(std::span<const int64_t> tokens) const override {
    return tokenizer_->decode(tokens);
  }
  std::vector<int64_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens;
    tokenizer_->encode(text, tokens);
    return {tokens.begin(), tokens.end()};
  }
  int64_t end_of_text() const override { return tokenizer_->end_of_text(); }

  void validate_on(const std::string& path) override {
    StoredTokens other;
    try {
      other = tokens_of(read_file("validation file", path));
    } catch (ConfigError& error) {
      if (std::string_view(error.what()).find(path) == std::string_view::npos) {
        error.in("validation file '" + path + "'");
      }
      throw;
    }
    const int64_t window = context_.sequence_length + 1;
    if (other.size() < window) {
      throw ConfigError("validation file: '" + path + "' has " + std::to_string(other.size()) +
                        " tokens, but with batch.sequence_length " +
                        std::to_string(context_.sequence_length) + " at least " +
                        std::to_string(window) + " are needed; give a longer text.");
    }
    other_ = std::make_unique<StoredTokens>(std::move(other));
    validation_first_ = 0;
  }

 private:
  StoredTokens tokens_of(std::string_view text) const {
    StoredTokens stored(vocab_size());
    const std::string& separator = options_.document_separator;
    while (!text.empty()) {
      const size_t end = separator.empty() ? text.npos : text.find(separator);
      append_document(text.substr(0, end), stored);
      if (end == text.npos) break;
      text.remove_prefix(end + separator.size());
      if (end > 0) stored.append({static_cast<int32_t>(end_of_text())});
    }
    return stored;
  }

  /// In parts, so that the wide tokens of a large file are never there all at once.
  void append_document(std::string_view text, StoredTokens& stored) const {
    std::vector<int32_t> tokens;
    while (!text.empty()) {
      const size_t length = next_part(text);
      tokens.clear();
      tokenizer_->encode(text.substr(0, length), tokens, at::get_num_threads());
      stored.append(tokens);
      text.remove_prefix(length);
    }
  }

  size_t next_part(std::string_view text) const {
    if (options_.tokenizer == "char") return text.size();  // its errors count lines
    for (size_t part = 64 << 20; part < text.size(); part *= 2) {
      const size_t length = tokenizer_->last_cut(text.substr(0, part));
      if (length > 0) return length;
    }
    return text.size();
  }

  const StoredTokens& validation() const { return other_ ? *other_ : tokens_; }
  int64_t num_starts() const { return train_length_ - context_.sequence_length; }
  int64_t train_start(int64_t index) const {
    if (options_.windows == "sliding") return index * options_.stride;
    const uint64_t key = zerolab::mix_key(
        {context_.seed, zerolab::name_key("data/text windows"), static_cast<uint64_t>(index)});
    return static_cast<int64_t>(key % static_cast<uint64_t>(num_starts()));
  }
  int64_t train_part(int64_t length) const {
    return static_cast<int64_t>(static_cast<double>(length) * options_.train_fraction);
  }

  void check_length() const {
    const int64_t length = tokens_.size(), window = context_.sequence_length + 1;
    const auto fits = [&](int64_t n) {
      return train_part(n) >= window && n - train_part(n) >= window;
    };
    if (fits(length)) return;
    const double smaller = std::min(options_.train_fraction, 1 - options_.train_fraction);
    // Just below the answer: a part of n tokens is its share of n, rounded up or down.
    int64_t needed =
        static_cast<int64_t>(static_cast<double>(context_.sequence_length) / smaller) - 1;
    while (!fits(needed)) ++needed;
    throw ConfigError("data.path: '" + options_.path + "' has " + std::to_string(length) +
                      " tokens, but with batch.sequence_length " +
                      std::to_string(context_.sequence_length) + " and data.train_fraction " +
                      zerolab::to_toml(options_.train_fraction) + " at least " +
                      std::to_string(needed) + " are needed (" + std::to_string(window) +
                      " in each of the training and the validation part); give a longer text or a "
                      "shorter sequence_length.");
  }

  const Options options_;
  zerolab::DataContext context_;
  std::unique_ptr<zerolab::Tokenizer> tokenizer_;
  StoredTokens tokens_;
  std::unique_ptr<StoredTokens> other_;  // what validate_on() read
  int64_t train_length_ = 0, validation_first_ = 0;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Text>("data/text", "1.1.0",
                                    "one text file, by character, by byte or by GPT-2's BPE"));
