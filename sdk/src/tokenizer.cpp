// The tokenizers that need no file: bytes, and the characters of a text.

#include "zerolab/tokenizer.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "zerolab/error.h"

#include "utf8.h"

namespace zerolab {

Tokenizer::~Tokenizer() = default;

namespace {

class ByteTokenizer : public Tokenizer {
 public:
  std::string name() const override { return "byte"; }
  int64_t vocab_size() const override { return 256; }
  void encode(std::string_view text, std::vector<int32_t>& tokens, int) const override {
    const size_t before = tokens.size();
    tokens.resize(before + text.size());
    std::transform(text.begin(), text.end(), tokens.begin() + static_cast<ptrdiff_t>(before),
                   [](char byte) { return static_cast<unsigned char>(byte); });
  }
  std::string decode(std::span<const int64_t> tokens) const override {
    std::string text;
    for (const int64_t token : tokens) {
      if (token >= 0 && token < 256) text += static_cast<char>(token);
    }
    return text;
  }
  size_t last_cut(std::string_view text) const override { return text.size(); }
};

std::string shown(char32_t point) {
  char code[16];
  std::snprintf(code, sizeof code, "U+%04X", static_cast<unsigned>(point));
  if (point < 0x20 || point == 0x7f || (point >= 0x80 && point < 0xa0)) return code;
  std::string text = "'";
  append_utf8(point, text);
  return text + "' (" + code + ")";
}

class CharTokenizer : public Tokenizer {
 public:
  CharTokenizer(std::string_view text, std::string where) : where_(std::move(where)) {
    std::vector<bool> present(0x110000);
    char32_t point = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t length = utf8_character(text, at, point);
      if (length == 0) throw ConfigError(where_ + " is " + not_utf8(at));
      present[point] = true;
      at += length;
    }
    for (point = 0; point < present.size(); ++point) {
      if (present[point]) characters_ += point;
    }
    token_of_.assign(characters_.empty() ? 0 : size_t{characters_.back()} + 1, -1);
    for (size_t i = 0; i < characters_.size(); ++i) {
      token_of_[characters_[i]] = static_cast<int32_t>(i);
    }
  }

  std::string name() const override { return "char"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(characters_.size()); }
  void encode(std::string_view text, std::vector<int32_t>& tokens, int) const override {
    tokens.reserve(tokens.size() + text.size());
    char32_t point = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t length = utf8_character(text, at, point);
      if (length == 0) throw ConfigError("the text is " + not_utf8(at));
      const int32_t token = point < token_of_.size() ? token_of_[point] : -1;
      if (token < 0) {
        const auto lines =
            std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
        throw ConfigError("line " + std::to_string(lines + 1) + " has the character " +
                          shown(point) + ", which is not among the " +
                          std::to_string(vocab_size()) + " of " + where_ +
                          "; take it out, or train with a tokenizer that takes any text.");
      }
      tokens.push_back(token);
      at += length;
    }
  }
  std::string decode(std::span<const int64_t> tokens) const override {
    std::string text;
    for (const int64_t token : tokens) {
      if (token < 0 || token >= vocab_size()) continue;
      append_utf8(characters_[static_cast<size_t>(token)], text);
    }
    return text;
  }
  size_t last_cut(std::string_view text) const override { return utf8_unfinished_tail(text); }

 private:
  static std::string not_utf8(size_t at) {
    return "not UTF-8 at byte " + std::to_string(at) +
           "; convert it, or set data.tokenizer = \"byte\", which takes any file.";
  }

  std::string where_;
  std::u32string characters_;      // by token
  std::vector<int32_t> token_of_;  // by code point; -1: not in the text
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

std::unique_ptr<Tokenizer> make_char_tokenizer(std::string_view text, const std::string& where) {
  return std::make_unique<CharTokenizer>(text, where);
}

}  // namespace zerolab
