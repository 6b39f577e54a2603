#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

#include <unistd.h>

#include "zerolab/data.h"
#include "zerolab/error.h"

#include "catch.h"
#include "load_plugin.h"

namespace {

namespace fs = std::filesystem;
using zerolab::Split;

/// A folder that goes when the test ends.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "zerolab_text_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  std::string file(const std::string& content, const std::string& name = "text.txt") const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return (path_ / name).string();
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

std::unique_ptr<zerolab::Data> open_text(const std::string& path, int64_t T,
                                         zerolab::OptionValues options = {}) {
  options["path"] = path;
  auto data = load_plugin<zerolab::Data>("data/text", options);
  data->open({.sequence_length = T, .seed = 1});
  return data;
}

std::string error_of(const std::string& path, int64_t T, zerolab::OptionValues options = {}) {
  try {
    open_text(path, T, std::move(options));
  } catch (const zerolab::ConfigError& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<int64_t> tokens_of(const zerolab::Data& data, Split split, int64_t index, int64_t T) {
  std::vector<int64_t> tokens(static_cast<size_t>(T)), targets(static_cast<size_t>(T));
  data.sample(split, index, tokens, targets);
  for (size_t t = 0; t + 1 < tokens.size(); ++t) REQUIRE(targets[t] == tokens[t + 1]);
  tokens.push_back(targets.back());
  return tokens;
}

std::string repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE("data/text char numbers the file's characters in ascending order") {
  const Folder folder;
  const auto data = open_text(folder.file("banana cab\n" + repeat("-", 19)), 2);
  // \n = 0, space = 1, - = 2, a = 3, b = 4, c = 5, n = 6
  CHECK(data->vocab_size() == 7);
  CHECK(tokens_of(*data, Split::kTrain, 0, 2) == std::vector<int64_t>{4, 3, 6});
  CHECK(tokens_of(*data, Split::kTrain, 5, 2) == std::vector<int64_t>{3, 1, 5});
  CHECK(data->decode(std::vector<int64_t>{5, 3, 4, 0}) == "cab\n");
}

TEST_CASE("data/text char takes every length of UTF-8 character and gives it back") {
  const Folder folder;
  const std::string word =
      "z\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";  // z, e acute, euro sign, a face
  const auto data = open_text(folder.file(repeat(word, 10)), 3);
  CHECK(data->vocab_size() == 4);
  CHECK(tokens_of(*data, Split::kTrain, 0, 3) == std::vector<int64_t>{0, 1, 2, 3});
  CHECK(data->decode(std::vector<int64_t>{0, 1, 2, 3}) == word);
}

TEST_CASE(
    "data/text char refuses what is not UTF-8, names the byte and offers the byte tokenizer") {
  const Folder folder;
  const std::string good = repeat("a\xc3\xa9", 20);
  for (const std::string bad : {"\xff", "\x80", "\xc3(", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                                "\xf4\x90\x80\x80", "\xf5", "\xe2\x82"}) {
    const std::string message =
        error_of(folder.file(good + bad + (bad == "\xe2\x82" ? "" : good)), 2);
    CHECK(contains(message, "not UTF-8 at byte 60"));
    CHECK(contains(message, "data.tokenizer = \"byte\""));
  }
  CHECK(error_of(folder.file(good + "\xff" + good), 2, {{"tokenizer", std::string("byte")}}) ==
        "no error");
}

TEST_CASE("data/text byte has 256 tokens and takes any file") {
  const Folder folder;
  std::string all(256, '\0');
  std::iota(all.begin(), all.end(), '\0');
  const auto data = open_text(folder.file(all), 4, {{"tokenizer", std::string("byte")}});
  CHECK(data->vocab_size() == 256);
  CHECK(tokens_of(*data, Split::kTrain, 0, 4) == std::vector<int64_t>{0, 1, 2, 3, 4});
  CHECK(tokens_of(*data, Split::kTrain, 200, 4) == std::vector<int64_t>{200, 201, 202, 203, 204});
  CHECK(data->decode(std::vector<int64_t>{0, 65, 255}) == std::string("\0A\xff", 3));
}

TEST_CASE("data/text keeps apart more than 256 different characters") {
  const Folder folder;
  std::string text;
  for (int point = 0x400; point < 0x400 + 600; ++point) {
    text += static_cast<char>(0xc0 | (point >> 6));
    text += static_cast<char>(0x80 | (point & 0x3f));
  }
  const auto data = open_text(folder.file(text), 4, {{"train_fraction", 0.5}});
  CHECK(data->vocab_size() == 600);
  CHECK(tokens_of(*data, Split::kValidation, 2, 4) ==
        std::vector<int64_t>{308, 309, 310, 311, 312});
}

TEST_CASE(
    "data/text trains at every offset of the first part and validates in windows of the rest") {
  const Folder folder;
  std::string text(105, '\0');
  std::iota(text.begin(), text.end(), '\0');
  const int64_t T = 3;
  const auto data = open_text(folder.file(text), T,
                              {{"tokenizer", std::string("byte")}, {"train_fraction", 0.8}});
  // 84 tokens train: starts 0 to 80, the last target is token 83. 21 validate: 6 windows of 3 and a
  // target.
  REQUIRE(data->size(Split::kTrain) == 81);
  REQUIRE(data->size(Split::kValidation) == 6);
  for (int64_t i = 0; i < 81; ++i) {
    REQUIRE(tokens_of(*data, Split::kTrain, i, T) == std::vector<int64_t>{i, i + 1, i + 2, i + 3});
  }
  for (int64_t i = 0; i < 6; ++i) {
    const int64_t s = 84 + 3 * i;
    REQUIRE(tokens_of(*data, Split::kValidation, i, T) ==
            std::vector<int64_t>{s, s + 1, s + 2, s + 3});
  }
}

TEST_CASE("data/text says how many tokens are needed, and that many are enough") {
  const Folder folder;
  for (int64_t T : {1, 7, 64}) {
    for (double fraction : {0.9, 0.5, 0.1, 0.3}) {
      CAPTURE(T, fraction);
      const zerolab::OptionValues options = {{"train_fraction", fraction}};
      const std::string message = error_of(folder.file("ab"), T, options);
      CHECK(contains(message, "has 2 tokens"));
      const size_t at = message.find("at least ");
      REQUIRE(at != std::string::npos);
      const size_t needed = std::stoul(message.substr(at + 9));
      CHECK(contains(error_of(folder.file(std::string(needed - 1, 'x')), T, options), "at least"));
      const auto data = open_text(folder.file(std::string(needed, 'x')), T, options);
      CHECK(data->size(Split::kTrain) >= 1);
      CHECK(data->size(Split::kValidation) >= 1);
    }
  }
}

TEST_CASE("data/text refuses a missing file, a folder and an empty file, and names it") {
  const Folder folder;
  const std::string missing = folder.path() + "/nowhere.txt";
  CHECK(contains(error_of(missing, 4), "'" + missing + "' does not exist"));
  CHECK(contains(error_of(folder.path(), 4), "is a folder"));
  CHECK(contains(error_of(folder.file(""), 4), "is empty"));
  CHECK(option_problems("data/text", {}) == std::vector<std::string>{"path: required"});
}

TEST_CASE("data/text refuses a fraction of nothing or everything and an unknown tokenizer") {
  const auto problems = [](const std::string& name, zerolab::OptionValue value) {
    return option_problems("data/text", {{"path", std::string("x")}, {name, value}}).size();
  };
  CHECK(problems("train_fraction", 0.0) == 1);
  CHECK(problems("train_fraction", 1.0) == 1);
  CHECK(problems("train_fraction", 0.5) == 0);
  CHECK(problems("tokenizer", std::string("word")) == 1);
}

namespace {

const std::string kRanks = ZEROLAB_TEST_SOURCE_DIR "/data/gpt2.tiktoken";  // tools/setup

zerolab::OptionValues gpt2_options(zerolab::OptionValues more = {}) {
  more["tokenizer"] = std::string("gpt2");
  more["bpe_ranks"] = kRanks;
  return more;
}

/// The first token of each training sample.
std::vector<int64_t> starts(const zerolab::Data& data, int64_t T) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < data.size(Split::kTrain); ++i) {
    all.push_back(tokens_of(data, Split::kTrain, i, T).front());
  }
  return all;
}

/// A byte file in which each token is its place.
std::string places() {
  std::string text(200, '\0');
  std::iota(text.begin(), text.end(), '\0');
  return text;
}

}  // namespace

TEST_CASE("data/text gpt2 has GPT-2's tokens, and gives text back") {
  const Folder folder;
  const auto data = open_text(folder.file(repeat("Hello world", 20)), 3, gpt2_options());
  CHECK(data->vocab_size() == 50257);
  CHECK(data->end_of_text() == 50256);
  CHECK(tokens_of(*data, Split::kTrain, 0, 3) == std::vector<int64_t>{15496, 995, 15496, 995});
  CHECK(data->encode("Hello world") == std::vector<int64_t>{15496, 995});
  CHECK(data->decode(std::vector<int64_t>{15496, 995}) == "Hello world");
}

TEST_CASE("data/text gpt2 asks for its ranks and says where they come from") {
  const auto problems = option_problems(
      "data/text", {{"path", std::string("x")}, {"tokenizer", std::string("gpt2")}});
  REQUIRE(problems.size() == 1);
  CHECK(contains(problems.front(), "bpe_ranks: "));
  CHECK(contains(problems.front(), "tools/setup"));
  const Folder folder;
  auto options = gpt2_options();
  options["bpe_ranks"] = folder.path() + "/none";
  CHECK(contains(error_of(folder.file("abc"), 2, options), "none' does not exist"));
}

TEST_CASE("data/text puts end of text between documents, and none around empty ones") {
  const Folder folder;
  const auto options = gpt2_options({{"document_separator", std::string("##")}});
  const auto data = open_text(folder.file(repeat("Hello##", 20) + "####Hello##"), 3, options);
  const auto tokens = tokens_of(*data, Split::kTrain, 0, 3);
  CHECK(tokens == std::vector<int64_t>{15496, 50256, 15496, 50256});
  const auto last = tokens_of(*data, Split::kValidation, data->size(Split::kValidation) - 1, 3);
  CHECK(last.back() == (last.front() == 50256 ? 15496 : 50256));
  CHECK(option_problems("data/text",
                        {{"path", std::string("x")}, {"document_separator", std::string("##")}})
            .size() == 1);
}

TEST_CASE("data/text char and byte encode text, and char names what its file lacks") {
  const Folder folder;
  const std::string path = folder.file("banana cab\n" + repeat("-", 19));
  const auto chars = open_text(path, 2);
  CHECK(chars->encode("cab\n") == std::vector<int64_t>{5, 3, 4, 0});
  CHECK(chars->end_of_text() == -1);
  CHECK_THROWS_AS(chars->encode("caz"), zerolab::ConfigError);
  const auto bytes = open_text(path, 2, {{"tokenizer", std::string("byte")}});
  CHECK(bytes->encode("cab") == std::vector<int64_t>{99, 97, 98});
}

TEST_CASE("data/text takes a training sample every `stride` tokens") {
  const Folder folder;
  zerolab::OptionValues options = {{"tokenizer", std::string("byte")}, {"train_fraction", 0.5}};
  const std::string path = folder.file(places());
  for (const int64_t stride : {1, 7, 32, 95, 96, 1000}) {
    CAPTURE(stride);
    options["stride"] = stride;
    const auto data = open_text(path, 4, options);  // starts 0 to 95
    std::vector<int64_t> expected;
    for (int64_t start = 0; start < 96; start += stride) expected.push_back(start);
    CHECK(starts(*data, 4) == expected);
    CHECK(data->size(Split::kValidation) == 24);
  }
}

TEST_CASE("data/text draws random windows from the seed and the index alone") {
  const Folder folder;
  zerolab::OptionValues options = {{"tokenizer", std::string("byte")},
                                   {"train_fraction", 0.5},
                                   {"windows", std::string("random")},
                                   {"stride", int64_t{2}}};
  const std::string path = folder.file(places());
  const auto data = open_text(path, 4, options);
  CHECK(data->size(Split::kTrain) == 48);
  const auto drawn = starts(*data, 4);
  CHECK(drawn == starts(*data, 4));
  CHECK(drawn == starts(*open_text(path, 4, options), 4));
  CHECK(!std::is_sorted(drawn.begin(), drawn.end()));
  CHECK(*std::min_element(drawn.begin(), drawn.end()) < 16);  // in the first sixth
  CHECK(*std::max_element(drawn.begin(), drawn.end()) >= 80);
  CHECK(*std::max_element(drawn.begin(), drawn.end()) < 96);
  auto other = load_plugin<zerolab::Data>("data/text", [&] {
    options["path"] = path;
    return options;
  }());
  other->open({.sequence_length = 4, .seed = 2});
  CHECK(starts(*other, 4) != drawn);
}

TEST_CASE("data/text validates on another file under the vocabulary of its own") {
  const Folder folder;
  const std::string path = folder.file("banana cab\n" + repeat("-", 19));
  const auto data = open_text(path, 2);
  const auto before = starts(*data, 2);
  data->validate_on(folder.file("cabana", "other.txt"));
  CHECK(data->size(Split::kValidation) == 2);
  CHECK(tokens_of(*data, Split::kValidation, 0, 2) == std::vector<int64_t>{5, 3, 4});
  CHECK(tokens_of(*data, Split::kValidation, 1, 2) == std::vector<int64_t>{4, 3, 6});
  CHECK(starts(*data, 2) == before);
  CHECK(data->vocab_size() == 7);
}

TEST_CASE("data/text refuses another file that does not fit, and names what") {
  const Folder folder;
  const auto data = open_text(folder.file("banana cab\n" + repeat("-", 19)), 2);
  const auto error = [&](const std::string& content) -> std::string {
    try {
      data->validate_on(folder.file(content, "other.txt"));
    } catch (const zerolab::ConfigError& thrown) {
      return thrown.what();
    }
    return "no error";
  };
  CHECK(contains(error("cab\ncab\ncxb"), "other.txt': line 3 has the character 'x' (U+0078)"));
  CHECK(contains(error("cab\xff"), "other.txt': the text is not UTF-8 at byte 3"));
  CHECK(contains(error("ab"), "has 2 tokens"));
  CHECK(contains(error("ab"), "at least 3"));
  CHECK(contains(error(""), "is empty"));
  CHECK(error("aba") == "no error");
  CHECK_THROWS_AS(data->validate_on(folder.path() + "/no"), zerolab::ConfigError);
}
