#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "zerolab/error.h"
#include "zerolab/tokenizer.h"

#include "catch.h"
#include "tokenizer_ranks.h"
#include "tokenizer_split.h"
#include "utf8.h"

namespace {

namespace fs = std::filesystem;
using zerolab::PieceSplitter;
using zerolab::Tokenizer;

/// GPT-2's pattern, with Unicode's White_Space for \s: PCRE2's takes U+180E as well.
const std::string kSpaces =
    R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
const std::string kPattern = R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^)" + kSpaces +
                             R"(\p{L}\p{N}]+|[)" + kSpaces + "]+(?![^" + kSpaces + "])|[" +
                             kSpaces + "]+";

std::vector<std::string> pieces_of_the_pattern(const std::string& text) {
  int code = 0;
  PCRE2_SIZE offset = 0;
  static pcre2_code* const compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern.c_str()), PCRE2_ZERO_TERMINATED,
                    PCRE2_UTF | PCRE2_UCP, &code, &offset, nullptr);
  REQUIRE(compiled != nullptr);
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(compiled, nullptr), pcre2_match_data_free);
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size();) {
    const int found = pcre2_match(compiled, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                  at, PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    REQUIRE(found > 0);
    const size_t end = pcre2_get_ovector_pointer(match.get())[1];
    pieces.push_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

std::vector<std::string> pieces_of(const PieceSplitter& splitter, const std::string& text) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t end = splitter.piece_end(text, at);
    REQUIRE(end > at);
    pieces.push_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

std::string utf8(const std::u32string& points) {
  std::string text;
  for (const char32_t point : points) zerolab::append_utf8(point, text);
  return text;
}

/// Characters that meet at the borders of the pattern, thrown together.
std::string mixed_text(std::mt19937& draw, size_t length) {
  static const std::u32string kPools[] = {
      U"abcXYZ'sdlvremt ",
      U"0123456789 \u00b2\u2167\u0663",
      U"   \t\n\r\v\f",
      U"\u0085\u00a0\u1680\u180e\u2003\u200b\u2028\u2029\u202f\u205f\u3000\ufeff\x1c\x1d\x1e\x1f",
      U"\u00e9\u00df\u0301\u65e5\u672c\ud55c\u05e9\u0645",
      U"\U0001f600\u200d\ufe0f!?.,;:\"'`~<|>"};
  std::u32string points;
  while (points.size() < length) {
    const std::u32string& pool = kPools[draw() % std::size(kPools)];
    points += pool[draw() % pool.size()];
  }
  return utf8(points);
}

/// A folder that goes when the test ends.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "zerolab_tokenizer_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  std::string file(const std::string& content) const {
    std::ofstream(path_ / "ranks", std::ios::binary) << content;
    return (path_ / "ranks").string();
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

std::string base64(const std::string& bytes) {
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += i + j > bytes.size() ? '=' : letters[bits >> (18 - 6 * j) & 63];
    }
  }
  return text;
}

/// The lines of a vocabulary: single bytes first, then these.
std::vector<std::string> rank_lines(const std::vector<std::string>& merged) {
  std::vector<std::string> lines;
  for (int byte = 0; byte < 256; ++byte) {
    lines.push_back(base64(std::string(1, static_cast<char>(byte))) + " " + std::to_string(byte));
  }
  for (const std::string& bytes : merged) {
    lines.push_back(base64(bytes) + " " + std::to_string(lines.size()));
  }
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

/// What merging means, word by word: all pairs are looked at each time.
std::vector<int32_t> merged_plainly(const zerolab::BpeRanks& ranks, const std::string& piece) {
  std::vector<std::string> parts;
  for (const char byte : piece) parts.emplace_back(1, byte);
  while (true) {
    int32_t best = zerolab::BpeRanks::kNone;
    size_t at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const std::string both = parts[i] + parts[i + 1];
      const int32_t rank = ranks.rank(both.data(), both.size());
      if (rank < best) best = rank, at = i;
    }
    if (best == zerolab::BpeRanks::kNone) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
  std::vector<int32_t> tokens;
  for (const std::string& part : parts) tokens.push_back(ranks.rank(part.data(), part.size()));
  return tokens;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const zerolab::ConfigError& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<int32_t> encoded(const Tokenizer& tokenizer, std::string_view text, int threads = 1) {
  std::vector<int32_t> tokens;
  tokenizer.encode(text, tokens, threads);
  return tokens;
}

std::string decoded(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens) {
  return tokenizer.decode(std::vector<int64_t>(tokens.begin(), tokens.end()));
}

const std::string kData = ZEROLAB_TEST_SOURCE_DIR "/data/";

const Tokenizer& gpt2() {
  static const auto tokenizer = zerolab::make_gpt2_tokenizer(kData + "gpt2.tiktoken");
  return *tokenizer;
}

std::string shakespeare() {
  std::ostringstream text;
  text << std::ifstream(kData + "shakespeare.txt", std::ios::binary).rdbuf();
  REQUIRE(text.str().size() > 5000000);  // tools/setup
  return text.str();
}

}  // namespace

TEST_CASE("text is cut into pieces as GPT-2's pattern cuts it") {
  const PieceSplitter splitter;
  std::mt19937 draw(1);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = mixed_text(draw, 1 + draw() % 40);
    CAPTURE(text);
    REQUIRE(pieces_of(splitter, text) == pieces_of_the_pattern(text));
  }
  const std::string text = shakespeare().substr(0, 1 << 20);
  CHECK(pieces_of(splitter, text) == pieces_of_the_pattern(text));
}

TEST_CASE("every character has the class that the pattern gives it") {
  const PieceSplitter splitter;
  std::u32string points;
  for (char32_t point = 0; point < 0x110000; ++point) {
    if (point < 0xd800 || point > 0xdfff) points += {U'a', point, U'1', point, U' ', point, U'!'};
  }
  CHECK(pieces_of(splitter, utf8(points)) == pieces_of_the_pattern(utf8(points)));
}

TEST_CASE("a cut where one is allowed changes no piece, whatever stands on its sides") {
  const PieceSplitter splitter;
  std::mt19937 draw(2);
  int num_cuts = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string text = mixed_text(draw, 30);
    if (i % 2 == 1) text[draw() % text.size()] = static_cast<char>(draw());  // no UTF-8
    const auto whole = pieces_of(splitter, text);
    for (size_t at = 0; at <= text.size(); ++at) {
      if (!splitter.is_cut(text, at)) continue;
      ++num_cuts;
      auto halves = pieces_of(splitter, text.substr(0, at));
      const auto second = pieces_of(splitter, text.substr(at));
      halves.insert(halves.end(), second.begin(), second.end());
      REQUIRE(halves == whole);
    }
  }
  CHECK(num_cuts > 2000);
}

TEST_CASE("merging takes the pair of lowest rank first, the leftmost of equal ones") {
  const Folder folder;
  const std::vector<std::string> merged = {"bc", "ab", "aa", "abc", "aaa", "aaaa", "ca", "bcbc"};
  const zerolab::BpeRanks ranks(folder.file(joined(rank_lines(merged))), 264);
  const auto tokens = [&](const std::string& piece) {
    std::vector<int32_t> found;
    ranks.merge(piece, found);
    return found;
  };
  CHECK(tokens("abc") == std::vector<int32_t>{259});         // a bc, then abc
  CHECK(tokens("aaa") == std::vector<int32_t>{260});         // aa a, then aaa
  CHECK(tokens("aaaaa") == std::vector<int32_t>{258, 260});  // aa a a a, then aa aa a
  std::mt19937 draw(3);
  // Short pieces and long ones are merged in two ways.
  for (const size_t length : {1, 2, 3, 7, 20, 127, 128, 129, 130, 300, 1000}) {
    for (int i = 0; i < 20; ++i) {
      std::string piece;
      while (piece.size() < length) piece += "abca"[draw() % 4];
      REQUIRE(tokens(piece) == merged_plainly(ranks, piece));
    }
  }
}

TEST_CASE("a vocabulary file that is damaged is refused with the line") {
  const Folder folder;
  const auto error = [&](const std::function<void(std::vector<std::string>&)>& damage) {
    auto lines = rank_lines({"ab", "cd"});
    damage(lines);
    const std::string file = folder.file(joined(lines));
    return error_of([&] { zerolab::BpeRanks(file, 258); });
  };
  CHECK(error([](auto&) {}) == "no error");
  CHECK(contains(error([](auto& lines) { lines[7] = "nothing"; }), "line 8 is not"));
  CHECK(contains(error([](auto& lines) { lines[7] = "Q?== 7"; }),
                 "line 8 does not begin with base64"));
  CHECK(contains(error([](auto& lines) { lines[7] = " 7"; }), "line 8 does not begin with base64"));
  CHECK(contains(error([](auto& lines) { lines[7] = "Bw== 258"; }),
                 "line 8 has no rank from 0 to 257"));
  CHECK(contains(error([](auto& lines) { lines[7] = "Bw== -1"; }), "line 8 has no rank"));
  CHECK(contains(error([](auto& lines) { lines[7] = "Bw== 7x"; }), "line 8 has no rank"));
  CHECK(contains(error([](auto& lines) { lines[7] = "Bw== 6"; }),
                 "line 8 has the rank 6 a second time"));
  CHECK(
      contains(error([](auto& lines) { lines[257] = "YWI= 257"; }), "line 258 has the same bytes"));
  CHECK(contains(error([](auto& lines) { lines[7] = "eHl6 7"; }), "no line has the single byte 7"));
  CHECK(contains(error([](auto& lines) { lines.pop_back(); }), "line 257 is the last, of 258"));
  CHECK(contains(error([](auto& lines) { lines.push_back("eHl6 258"); }), "line 259 has no rank"));
  CHECK(contains(error([](auto& lines) { lines.clear(); }), "is empty"));
  CHECK(contains(error_of([&] { zerolab::make_gpt2_tokenizer(folder.path() + "/none"); }),
                 "does not exist"));
  CHECK(contains(error_of([&] { zerolab::make_gpt2_tokenizer(folder.path()); }), "cannot be read"));
}

TEST_CASE("gpt2 gives any bytes back, and valid text between bad bytes has its usual tokens") {
  std::mt19937 draw(4);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = i % 2 == 0 ? "" : mixed_text(draw, 50);
    while (bytes.size() < 60) bytes += static_cast<char>(draw());
    for (int j = 0; j < 5; ++j) bytes[draw() % bytes.size()] = static_cast<char>(draw());
    REQUIRE(decoded(gpt2(), encoded(gpt2(), bytes)) == bytes);
  }
  auto expected = encoded(gpt2(), "Some words here");
  for (const int32_t token : encoded(gpt2(), "\xff")) expected.push_back(token);
  for (const int32_t token : encoded(gpt2(), " and more, it's fine")) expected.push_back(token);
  CHECK(encoded(gpt2(), "Some words here\xff and more, it's fine") == expected);
}

TEST_CASE("gpt2 gives the same tokens on any number of threads and in parts cut anywhere") {
  const std::string text = shakespeare();
  const auto whole = encoded(gpt2(), text);
  CHECK(decoded(gpt2(), whole) == text);
  for (const int threads : {2, 3, 8, 64}) CHECK(encoded(gpt2(), text, threads) == whole);
  std::mt19937 draw(5);
  for (int i = 0; i < 3; ++i) {
    std::vector<int32_t> tokens;
    std::string pending;
    for (size_t at = 0; at < text.size();) {
      const size_t part = draw() % 30000;
      pending += text.substr(at, part);
      at += part;
      const size_t length = gpt2().last_cut(pending);
      gpt2().encode(std::string_view(pending).substr(0, length), tokens, 1 + i);
      pending.erase(0, length);
    }
    gpt2().encode(pending, tokens);
    CHECK(tokens == whole);
  }
}

TEST_CASE("gpt2 ends documents with 50256, unless these words are plain text") {
  CHECK(gpt2().vocab_size() == 50257);
  CHECK(gpt2().end_of_text() == 50256);
  const std::string text = "one<|endoftext|><|endoftext|> two";
  CHECK(encoded(gpt2(), text) == std::vector<int32_t>{505, 50256, 50256, 734});
  CHECK(decoded(gpt2(), {505, 50256, 734, 50257, -1}) == "one<|endoftext|> two");
  const auto plain = zerolab::make_gpt2_tokenizer(kData + "gpt2.tiktoken", false);
  const auto tokens = encoded(*plain, text);
  CHECK(std::count(tokens.begin(), tokens.end(), 50256) == 0);
  CHECK(decoded(*plain, tokens) == text);
}

TEST_CASE("gpt2 takes one word of a megabyte") {
  const std::string word(1 << 20, 'a');
  const auto tokens = encoded(gpt2(), word, 2);
  CHECK(tokens.size() < word.size() / 3);
  CHECK(decoded(gpt2(), tokens) == word);
}

TEST_CASE("byte tokens are the bytes") {
  const auto bytes = zerolab::make_byte_tokenizer();
  std::string all(256, '\0');
  std::iota(all.begin(), all.end(), '\0');
  std::vector<int32_t> numbers(256);
  std::iota(numbers.begin(), numbers.end(), 0);
  CHECK(encoded(*bytes, all) == numbers);
  CHECK(decoded(*bytes, numbers) == all);
  CHECK(bytes->end_of_text() == -1);
  CHECK(bytes->last_cut("abc") == 3);
}

TEST_CASE("char tokens name what the vocabulary lacks, and its line") {
  const auto tokenizer = zerolab::make_char_tokenizer("ab\n\u00e9", "'vocabulary.txt'");
  CHECK(tokenizer->vocab_size() == 4);
  CHECK(encoded(*tokenizer, "b\u00e9a") == std::vector<int32_t>{2, 3, 1});
  const std::string message = error_of([&] { encoded(*tokenizer, "ab\nab\na\u20acb"); });
  CHECK(contains(message, "line 3 has the character '\u20ac' (U+20AC)"));
  CHECK(contains(message, "the 4 of 'vocabulary.txt'"));
  CHECK(contains(error_of([&] { encoded(*tokenizer, "a\tb"); }), "the character U+0009"));
  CHECK(contains(error_of([&] { encoded(*tokenizer, "ab\xff"); }), "not UTF-8 at byte 2"));
}

TEST_CASE("char text is cut only between characters") {
  const auto tokenizer = zerolab::make_char_tokenizer("a", "text");
  const std::string text = "a\u00e9\u20ac\U0001f600";
  const std::array<size_t, 11> expected = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};
  for (size_t size = 0; size <= text.size(); ++size) {
    CHECK(tokenizer->last_cut(text.substr(0, size)) == expected[size]);
  }
}
