// Tokens of one text file, by character or by byte. The first part of the file trains, the rest
// validates.
//
//   tokenizer "char": one token for each different Unicode code point of the file, in ascending
//   order (the file is UTF-8). tokenizer "byte": token = byte, 256 of them, for any file.
//
// Training samples start at every token (stride 1); validation windows do not overlap (stride
// T), so that every validation token is predicted once. A sample is T tokens and the T that
// follow each.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "zerolab/data.h"
#include "zerolab/error.h"
#include "zerolab/plugin.h"

namespace {

using zerolab::ConfigError;
using zerolab::Split;

/// Bytes of the character that begins with `lead`; 0 if none does.
size_t utf8_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xc2) return 0;
  if (lead < 0xe0) return 2;
  if (lead < 0xf0) return 3;
  return lead < 0xf5 ? 4 : 0;
}

/// The code points of UTF-8 text. Errors: ConfigError with the offset of the first byte that is not
/// UTF-8 (overlong forms, surrogates and values above U+10FFFF included).
std::u32string decode_utf8(std::string_view text, const std::string& path) {
  std::u32string points;
  points.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
    const unsigned char lead = byte(i);
    const size_t length = utf8_length(lead);
    bool valid = length > 0 && i + length <= text.size();
    char32_t point = length < 2 ? lead : lead & (0x7f >> length);
    for (size_t j = 1; valid && j < length; ++j) {
      valid = (byte(i + j) & 0xc0) == 0x80;
      point = (point << 6) | (byte(i + j) & 0x3f);
    }
    constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    valid = valid && point >= kSmallest[length] && point <= 0x10ffff &&
            !(point >= 0xd800 && point <= 0xdfff);
    if (!valid) {
      throw ConfigError(
          "data.path: '" + path + "' is not UTF-8 at byte " + std::to_string(i) +
          "; convert the file, or set data.tokenizer = \"byte\", which takes any file.");
    }
    points.push_back(point);
    i += length;
  }
  return points;
}

std::string encode_utf8(char32_t p) {
  const auto tail = [p](int shift) { return static_cast<char>(0x80 | ((p >> shift) & 0x3f)); };
  if (p < 0x80) return {static_cast<char>(p)};
  if (p < 0x800) return {static_cast<char>(0xc0 | (p >> 6)), tail(0)};
  if (p < 0x10000) return {static_cast<char>(0xe0 | (p >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | (p >> 18)), tail(12), tail(6), tail(0)};
}

std::string read_file(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(status)) {
    throw ConfigError("data.path: '" + path + "' does not exist; give a text file.");
  }
  if (std::filesystem::is_directory(status)) {
    throw ConfigError("data.path: '" + path + "' is a folder; give one text file in it.");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw ConfigError("data.path: '" + path + "' cannot be read; check its permissions.");
  }
  std::ostringstream content;
  content << file.rdbuf();
  std::string text = std::move(content).str();
  if (text.empty()) throw ConfigError("data.path: '" + path + "' is empty; give a text file.");
  return text;
}

class Text : public zerolab::Data {
 public:
  struct Options {
    std::string path;
    std::string tokenizer = "char";
    double train_fraction = 0.9;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("path", &Options::path, "the text file").required().path();
      d.field("tokenizer", &Options::tokenizer,
              "char: the file's own UTF-8 characters; byte: any file")
          .one_of({"char", "byte"});
      d.field("train_fraction", &Options::train_fraction,
              "this first part trains, the rest validates")
          .at_least(1e-6)
          .at_most(1 - 1e-6);
    }
  };
  explicit Text(const Options& options) : options_(options) {}

  void open(const zerolab::DataContext& context) override {
    const std::string text = read_file(options_.path);
    if (options_.tokenizer == "byte") {
      tokens_ = std::vector<uint8_t>(text.begin(), text.end());
      length_ = static_cast<int64_t>(text.size());
    } else {
      index_characters(decode_utf8(text, options_.path));
    }
    sequence_length_ = context.sequence_length;
    train_length_ = train_part(length_);
    check_length();
  }

  int64_t vocab_size() const override {
    return options_.tokenizer == "byte" ? 256 : static_cast<int64_t>(characters_.size());
  }
  int64_t size(Split split) const override {
    if (split == Split::kTrain) return train_length_ - sequence_length_;
    return (length_ - train_length_ - 1) / sequence_length_;
  }
  void sample(Split split, int64_t index, std::span<int64_t> tokens,
              std::span<int64_t> targets) const override {
    const int64_t start = split == Split::kTrain ? index : train_length_ + index * sequence_length_;
    std::visit(
        [&](const auto& stored) {
          const auto first = stored.begin() + start;
          std::copy_n(first, tokens.size(), tokens.begin());
          std::copy_n(first + 1, targets.size(), targets.begin());
        },
        tokens_);
  }
  std::string decode(std::span<const int64_t> tokens) const override {
    std::string text;
    for (int64_t token : tokens) {
      if (token < 0 || token >= vocab_size()) continue;
      if (options_.tokenizer == "byte") {
        text += static_cast<char>(token);
      } else {
        text += encode_utf8(characters_[static_cast<size_t>(token)]);
      }
    }
    return text;
  }

 private:
  int64_t train_part(int64_t length) const {
    return static_cast<int64_t>(static_cast<double>(length) * options_.train_fraction);
  }

  void index_characters(const std::u32string& points) {
    characters_ = points;
    std::sort(characters_.begin(), characters_.end());
    characters_.erase(std::unique(characters_.begin(), characters_.end()), characters_.end());
    length_ = static_cast<int64_t>(points.size());
    if (characters_.size() <= 256) {
      store<uint8_t>(points);
    } else if (characters_.size() <= 65536) {
      store<uint16_t>(points);
    } else {
      store<uint32_t>(points);
    }
  }

  template <class Token>
  void store(const std::u32string& points) {
    std::vector<Token> tokens(points.size());
    std::vector<Token> token_of(static_cast<size_t>(characters_.back()) + 1);
    for (size_t i = 0; i < characters_.size(); ++i)
      token_of[characters_[i]] = static_cast<Token>(i);
    std::transform(points.begin(), points.end(), tokens.begin(),
                   [&](char32_t p) { return token_of[p]; });
    tokens_ = std::move(tokens);
  }

  void check_length() const {
    const int64_t window = sequence_length_ + 1;
    const auto fits = [&](int64_t n) {
      return train_part(n) >= window && n - train_part(n) >= window;
    };
    if (fits(length_)) return;
    const double smaller = std::min(options_.train_fraction, 1 - options_.train_fraction);
    // Just below the answer: a part of n tokens is its share of n, rounded up or down.
    int64_t needed = static_cast<int64_t>(static_cast<double>(sequence_length_) / smaller) - 1;
    while (!fits(needed)) ++needed;
    throw ConfigError("data.path: '" + options_.path + "' has " + std::to_string(length_) +
                      " tokens, but with batch.sequence_length " +
                      std::to_string(sequence_length_) + " and data.train_fraction " +
                      zerolab::to_toml(options_.train_fraction) + " at least " +
                      std::to_string(needed) + " are needed (" + std::to_string(window) +
                      " in each of the training and the validation part); give a longer text or a "
                      "shorter sequence_length.");
  }

  Options options_;
  std::u32string characters_;  // by token
  std::variant<std::vector<uint8_t>, std::vector<uint16_t>, std::vector<uint32_t>> tokens_;
  int64_t length_ = 0, train_length_ = 0, sequence_length_ = 0;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Text>("data/text", "1.0.0",
                                    "one text file, by character or by byte"));
