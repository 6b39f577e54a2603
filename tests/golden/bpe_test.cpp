// Tokens of GPT-2's BPE against tiktoken's, one by one.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "zerolab/random.h"
#include "zerolab/tokenizer.h"

#include "catch.h"
#include "golden_file.h"

namespace {

const std::string kData = ZEROLAB_TEST_SOURCE_DIR "/data/";

struct Example {
  std::string text;
  std::vector<int32_t> tokens;
};

std::vector<Example> examples(const GoldenFile& golden, const std::string& group) {
  const auto bytes = golden.numbers(group + "/bytes");
  const auto tokens = golden.numbers(group + "/tokens");
  const auto bytes_ends = golden.numbers(group + "/bytes_ends");
  const auto tokens_ends = golden.numbers(group + "/tokens_ends");
  std::vector<Example> all;
  size_t byte = 0, token = 0;
  for (size_t i = 0; i < bytes_ends.size(); ++i) {
    Example example;
    for (; byte < static_cast<size_t>(bytes_ends[i]); ++byte) {
      example.text += static_cast<char>(static_cast<unsigned char>(bytes[byte]));
    }
    for (; token < static_cast<size_t>(tokens_ends[i]); ++token) {
      example.tokens.push_back(static_cast<int32_t>(tokens[token]));
    }
    all.push_back(std::move(example));
  }
  return all;
}

/// The file that tools/setup unpacks; empty if it is not there.
std::string data_file(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(kData + name, std::ios::binary).rdbuf();
  return text.str();
}

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

void check(const zerolab::Tokenizer& tokenizer, const std::vector<Example>& all) {
  for (const Example& example : all) {
    CAPTURE(example.text);
    std::vector<int32_t> tokens;
    tokenizer.encode(example.text, tokens);
    CHECK(tokens == example.tokens);
    CHECK(tokenizer.decode(std::vector<int64_t>(tokens.begin(), tokens.end())) == example.text);
  }
}

}  // namespace

TEST_CASE("GPT-2's tokens of hard strings are tiktoken's, and give the strings back") {
  const GoldenFile golden("bpe");
  REQUIRE(std::filesystem::exists(kData + "gpt2.tiktoken"));  // tools/setup
  const auto ordinary = examples(golden, "ordinary");
  REQUIRE(ordinary.size() >= 200);
  check(*zerolab::make_gpt2_tokenizer(kData + "gpt2.tiktoken", false), ordinary);
  check(*zerolab::make_gpt2_tokenizer(kData + "gpt2.tiktoken", true), examples(golden, "special"));
}

TEST_CASE("GPT-2's tokens of all of Shakespeare are tiktoken's, on any number of threads") {
  const GoldenFile golden("bpe");
  const std::string text = data_file("shakespeare.txt");
  REQUIRE(hex(zerolab::name_key(text)) == golden.text("shakespeare", "text_fnv1a"));
  const auto tokenizer = zerolab::make_gpt2_tokenizer(kData + "gpt2.tiktoken");
  for (const int threads : {1, 2, 3, 7}) {
    CAPTURE(threads);
    std::vector<int32_t> tokens;
    tokenizer->encode(text, tokens, threads);
    CHECK(static_cast<double>(tokens.size()) == golden.number("shakespeare", "num_tokens"));
    const std::string_view bytes(reinterpret_cast<const char*>(tokens.data()), 4 * tokens.size());
    CHECK(hex(zerolab::name_key(bytes)) == golden.text("shakespeare", "tokens_fnv1a"));
  }
}
