#pragma once
// Files of tokens for the tests of data/token_bin, and what the plugin makes of them.

#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "zerolab/data.h"
#include "zerolab/error.h"
#include "zerolab/random.h"
#include "zerolab/token_file.h"

#include "catch.h"
#include "load_plugin.h"

namespace token_bin_test {

using zerolab::Split;
using Strings = std::vector<std::string>;
using Tokens = std::vector<int64_t>;
using Words = std::initializer_list<const char*>;

constexpr int64_t kT = 4;

inline std::string raw(const std::string& name, const Tokens& tokens) {
  std::ofstream out(name, std::ios::binary);
  for (const int64_t token : tokens)
    out.put(static_cast<char>(token)).put(static_cast<char>(token >> 8));
  return name;
}

/// Tokens first, first + 1, ...
inline std::string counting(const std::string& name, int64_t count, int64_t first = 0) {
  Tokens tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return raw(name, tokens);
}

inline std::string packed(const std::string& name, const Tokens& tokens, int64_t vocab_size,
                          const std::string& tokenizer = "", int64_t end_of_text = -1) {
  zerolab::TokenFileInfo info;
  info.vocab_size = vocab_size;
  info.tokenizer = tokenizer;
  info.end_of_text = end_of_text;
  zerolab::TokenFileWriter writer(name, info);
  writer.append(std::vector<int32_t>(tokens.begin(), tokens.end()));
  writer.finish();
  return name;
}

/// Our layout from a stranger's hand: the size of the vocabulary is not said.
inline std::string unsized(const std::string& name, const Tokens& tokens,
                           const std::string& tokenizer, int64_t end_of_text) {
  packed(name, tokens, 65536, tokenizer, end_of_text);
  std::fstream file(name, std::ios::binary | std::ios::in | std::ios::out);
  std::string header(248, '\0');
  file.read(header.data(), 248);
  header.replace(24, 8, 8, '\0');
  const uint64_t checksum = zerolab::name_key(header);
  file.seekp(0).write(header.data(), 248).write(reinterpret_cast<const char*>(&checksum), 8);
  return name;
}

/// A text that nobody has packed.
inline std::string words(const std::string& name) {
  std::ofstream out(name, std::ios::binary);
  for (int i = 0; i < 60; ++i) out << "to be or not to be, that is the question\n\n";
  return name;
}

inline zerolab::OptionValues by_byte(int64_t vocab_size) {
  return {{"tokenizer", std::string("byte")}, {"vocab_size", vocab_size}};
}

inline std::unique_ptr<zerolab::Data> open(zerolab::OptionValues options, uint64_t seed = 1) {
  auto data = load_plugin<zerolab::Data>("data/token_bin", options);
  data->open({.sequence_length = kT, .seed = seed});
  return data;
}

/// All of `path` trains, on its windows side by side; `more` changes that.
inline std::unique_ptr<zerolab::Data> training_on(const Strings& path,
                                                  zerolab::OptionValues more = {},
                                                  uint64_t seed = 1) {
  more.insert({"path", path});
  more.insert({"validation_path", Strings{counting("validation.bin", kT + 1)}});
  return open(more, seed);
}

struct Sample {
  Tokens tokens, targets;
  bool operator==(const Sample&) const = default;
};

inline Sample get(const zerolab::Data& data, int64_t index, Split split = Split::kTrain) {
  Sample s{Tokens(kT), Tokens(kT)};
  data.sample(split, index, s.tokens, s.targets);
  return s;
}

/// What `body` says in a ConfigError; empty if it does not.
template <class Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const zerolab::ConfigError& error) {
    return error.what();
  }
  return "";
}

inline void check_has(const std::string& text, Words words) {
  INFO(text);
  for (const char* word : words) {
    INFO(word);
    CHECK(text.find(word) != std::string::npos);
  }
}

inline std::string problem(zerolab::OptionValues options) {
  options.insert({"path", Strings{"a.bin"}});
  const auto problems = option_problems("data/token_bin", options);
  return problems.empty() ? "" : problems.front();
}

}  // namespace token_bin_test
