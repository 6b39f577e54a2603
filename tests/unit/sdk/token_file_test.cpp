#include "zerolab/token_file.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "zerolab/error.h"

#include "catch.h"
#include "unit/store/scratch.h"

namespace {

using zerolab::TokenFile;
using zerolab::TokenFileInfo;
using zerolab::TokenFileWriter;
using zerolab::TokenLayout;

/// Bytes of a file, little-endian number by number.
struct Bytes {
  std::string text;
  template <class T>
  Bytes& put(T number) {
    for (size_t i = 0; i < sizeof number; ++i)
      text += static_cast<char>(static_cast<uint64_t>(number) >> (8 * i));
    return *this;
  }
  Bytes& fill(size_t size) { return text.resize(size), *this; }
  std::string save(const std::string& name) const {
    std::ofstream(name, std::ios::binary) << text;
    return name;
  }
};

uint64_t fnv1a(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

/// The documented header, written without the writer.
Bytes zerolab_header(uint64_t num_tokens, uint32_t bytes_per_token = 2, uint32_t version = 1,
                     int64_t end_of_text = 9) {
  Bytes bytes{"ZLTOKENS"};
  bytes.put(version).put(bytes_per_token).put(num_tokens).put(uint64_t{10}).put(end_of_text);
  bytes.text += "byte";
  bytes.fill(248);
  return bytes.put(fnv1a(bytes.text));
}

Bytes llmc_header(int32_t magic, int32_t version, int32_t num_tokens) {
  return Bytes{}.put(magic).put(version).put(num_tokens).fill(1024);
}

std::vector<int64_t> tokens_of(const TokenFile& file) {
  std::vector<int64_t> tokens(static_cast<size_t>(file.info().num_tokens));
  file.read(0, tokens);
  return tokens;
}

/// What opening says; empty if it opens.
std::string refusal(const std::string& path, TokenLayout layout = TokenLayout::kAuto) {
  try {
    TokenFile::open(path, layout);
  } catch (const zerolab::ConfigError& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, std::initializer_list<const char*> words) {
  INFO(text);
  const auto inside = [&](const char* word) { return text.find(word) != std::string::npos; };
  const bool all = std::all_of(words.begin(), words.end(), inside);
  CHECK(all);
  return all;
}

void write_token(const std::string& path, int64_t index, uint16_t token) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(256 + 2 * index).write(reinterpret_cast<const char*>(&token), sizeof token);
}

size_t num_entries() {
  using Entries = std::filesystem::directory_iterator;
  return static_cast<size_t>(std::distance(Entries("."), Entries()));
}

/// Memory that is this process's now, by the kernel's count: mapped pages included.
int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

TEST_CASE("a raw file is its tokens of two bytes") {
  const zerolab::ScratchFolder scratch;
  const auto path = Bytes{}.put<uint16_t>(7).put<uint16_t>(65535).put<uint16_t>(0).save("raw.bin");
  for (const auto layout : {TokenLayout::kAuto, TokenLayout::kRaw}) {
    const TokenFile file = TokenFile::open(path, layout);
    CHECK(tokens_of(file) == std::vector<int64_t>{7, 65535, 0});
    CHECK(file.info().layout == TokenLayout::kRaw);
    CHECK(file.info().vocab_size == 0);
    CHECK(file.info().end_of_text == -1);
    CHECK(file.largest_token() == 65535);
    CHECK(file.path() == path);
  }
}

TEST_CASE("an llm.c shard of GPT-2 has a header of 1024 bytes and tokens of two") {
  const zerolab::ScratchFolder scratch;
  const auto path =
      llmc_header(20240520, 1, 2).put<uint16_t>(50256).put<uint16_t>(3).save("shard.bin");
  for (const auto layout : {TokenLayout::kAuto, TokenLayout::kLlmc}) {
    const TokenFile file = TokenFile::open(path, layout);
    CHECK(tokens_of(file) == std::vector<int64_t>{50256, 3});
    CHECK(file.info().layout == TokenLayout::kLlmc);
    CHECK(file.info().tokenizer == "gpt2");
    CHECK(file.info().vocab_size == 50257);
    CHECK(file.info().end_of_text == 50256);
  }
}

TEST_CASE("an llm.c shard of Llama 3 has tokens of four bytes") {
  const zerolab::ScratchFolder scratch;
  const auto path =
      llmc_header(20240801, 7, 2).put<uint32_t>(128000).put<uint32_t>(3).save("shard.bin");
  const TokenFile file = TokenFile::open(path);
  CHECK(tokens_of(file) == std::vector<int64_t>{128000, 3});
  CHECK(file.info().bytes_per_token == 4);
  CHECK(file.info().vocab_size == 128256);
}

TEST_CASE("our own layout is as documented, byte by byte") {
  const zerolab::ScratchFolder scratch;
  const Bytes by_hand = zerolab_header(3).put<uint16_t>(1).put<uint16_t>(9).put<uint16_t>(4);
  const TokenFile file = TokenFile::open(by_hand.save("hand.bin"));
  CHECK(tokens_of(file) == std::vector<int64_t>{1, 9, 4});
  CHECK(file.info().layout == TokenLayout::kZerolab);
  CHECK(file.info().vocab_size == 10);
  CHECK(file.info().end_of_text == 9);
  CHECK(file.info().tokenizer == "byte");

  TokenFileInfo info;
  info.vocab_size = 10;
  info.end_of_text = 9;
  info.tokenizer = "byte";
  TokenFileWriter writer("written.bin", info);
  writer.append(std::vector<int32_t>{1, 9});
  writer.append(std::vector<int32_t>{4});
  CHECK(writer.num_tokens() == 3);
  writer.finish();
  std::ifstream in("written.bin", std::ios::binary);
  CHECK(std::string(std::istreambuf_iterator<char>(in), {}) == by_hand.text);
}

TEST_CASE("a writer's tokens come back, however they were cut, in two bytes or four") {
  const zerolab::ScratchFolder scratch;
  for (const int64_t vocabulary : {65536, 65537, 1 << 30}) {
    CAPTURE(vocabulary);
    std::vector<int32_t> tokens(1'500'000);  // more than a buffer of either width
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<int32_t>(static_cast<int64_t>(i) * 48271 % vocabulary);
    TokenFileInfo info;
    info.vocab_size = vocabulary;
    TokenFileWriter writer("t.bin", info);
    const std::span<const int32_t> all = tokens;
    writer.append(all.first(1));
    writer.append(all.subspan(1, 700'001));
    writer.append({});
    writer.append(all.subspan(700'002));
    writer.finish();
    const TokenFile file = TokenFile::open("t.bin");
    CHECK(file.info().bytes_per_token == (vocabulary > 65536 ? 4 : 2));
    CHECK(file.info().end_of_text == -1);
    CHECK(tokens_of(file) == std::vector<int64_t>(tokens.begin(), tokens.end()));
    CHECK(file.largest_token() == *std::max_element(tokens.begin(), tokens.end()));
    CHECK(num_entries() == 1);
  }
}

TEST_CASE("a writer that did not finish leaves nothing, and what was there stays") {
  const zerolab::ScratchFolder scratch;
  Bytes{"before"}.save("t.bin");
  TokenFileInfo info;
  info.vocab_size = 10;
  {
    TokenFileWriter writer("t.bin", info), other("t.bin", info);  // each under its own name
    writer.append(std::vector<int32_t>{1});
    CHECK(num_entries() == 3);
  }
  CHECK(num_entries() == 1);
  CHECK(std::filesystem::file_size("t.bin") == 6);
}

TEST_CASE("a writer refuses tokens outside of the vocabulary, and places that are none") {
  const zerolab::ScratchFolder scratch;
  TokenFileInfo info;
  info.vocab_size = 10;
  TokenFileWriter writer("t.bin", info);
  CHECK_THROWS_AS(writer.append(std::vector<int32_t>{9, 10}), zerolab::PluginError);
  CHECK_THROWS_AS(writer.append(std::vector<int32_t>{-1}), zerolab::PluginError);
  CHECK_THROWS_AS(TokenFileWriter("no/such/folder/t.bin", info), zerolab::StoreError);
  CHECK_THROWS_AS(TokenFileWriter(".", info), zerolab::StoreError);
  CHECK_THROWS_AS(TokenFileWriter("/dev/full", info), zerolab::StoreError);
  info.end_of_text = 10;
  CHECK_THROWS_AS(TokenFileWriter("u.bin", info), zerolab::PluginError);
}

TEST_CASE("a writer says so when the disk refuses") {
  const zerolab::ScratchFolder scratch;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  TokenFileInfo info;
  info.vocab_size = 10;
  std::string said;
  {
    TokenFileWriter writer("t.bin", info);
    writer.append(std::vector<int32_t>(100));
    const rlimit small{300, before.rlim_max};  // the header and a part of the tokens
    ::setrlimit(RLIMIT_FSIZE, &small);
    try {
      writer.finish();
    } catch (const zerolab::StoreError& error) {
      said = error.what();
    }
    ::setrlimit(RLIMIT_FSIZE, &before);
  }
  ::signal(SIGXFSZ, handler);
  has(said, {"'t.bin' cannot be written", "File too large"});
  CHECK(num_entries() == 0);
}

TEST_CASE("a file that cannot hold tokens is refused in a sentence that names it") {
  const zerolab::ScratchFolder scratch;
  has(refusal("none.bin"), {"'none.bin' does not exist; give a file"});
  has(refusal("."), {"'.' is a folder; give a file"});
  has(refusal("/dev/null"), {"'/dev/null' is no regular file"});
  has(refusal(Bytes{}.save("empty.bin")), {"'empty.bin' is empty"});
  has(refusal(Bytes{}.put<uint16_t>(7).put<uint8_t>(8).save("odd.bin")),
      {"'odd.bin' has 3 bytes, an odd size"});
}

TEST_CASE("text is not taken for raw tokens, unless they are asked for") {
  const zerolab::ScratchFolder scratch;
  std::string of_4097_bytes(4095, 'a');  // a character lies across the end of what is looked at
  of_4097_bytes += "\u00e9";
  for (const std::string& text :
       {std::string("to be or not to be\n"), std::string("odd"), std::string("\ttab\r\n\f\v"),
        std::string("\xef\xbb\xbfZoë, 日本語 and 🙂"), of_4097_bytes,
        std::string(10'000, 'x') + '\0'}) {
    CAPTURE(text.substr(0, 40));
    const std::string path = Bytes{text}.save("a.txt");
    has(refusal(path), {"'a.txt' looks like text", "`zerolab tokenize FILE -o FILE.bin`",
                        "data.layout = \"raw\""});
    if (text.size() % 2 == 0) CHECK(refusal(path, TokenLayout::kRaw).empty());
  }
}

TEST_CASE("raw tokens are not taken for text: of characters, of bytes, of GPT-2, of any few") {
  const zerolab::ScratchFolder scratch;
  const auto opens = [](const std::vector<uint16_t>& tokens) {
    Bytes bytes;
    for (const uint16_t token : tokens) bytes.put(token);
    const TokenFile file = TokenFile::open(bytes.save("t.bin"));
    CHECK(file.info().layout == TokenLayout::kRaw);
    CHECK(tokens_of(file) == std::vector<int64_t>(tokens.begin(), tokens.end()));
  };
  std::vector<uint16_t> characters(3000), bytes(3000), spread(3000);
  for (size_t i = 0; i < characters.size(); ++i) {
    characters[i] = static_cast<uint16_t>(i * 31 % 65);    // nanoGPT's train.bin of Shakespeare
    bytes[i] = static_cast<uint16_t>("to be or "[i % 9]);  // each below 256
    spread[i] = static_cast<uint16_t>(i * 48271 % 50257);
  }
  opens(characters);
  opens(bytes);
  opens(spread);
  opens({1544, 318, 257, 1049, 582, 13, 198});  // "He is a great man.\n" in GPT-2's tokens
  opens({0x4241, 0x4443, 0x0841});              // one control character
  opens({0x4241, 0x4443, 0x7f41});              // DEL
  opens({0x4241, 0x85c2});                      // a control character of two bytes
  opens({0x4241, 0xc344});                      // a character that the file's end cuts
}

TEST_CASE("a header that is cut, damaged or of another version is refused") {
  const zerolab::ScratchFolder scratch;
  const Bytes whole = zerolab_header(1).put<uint16_t>(1);
  for (const size_t size : {4, 8, 100, 255}) {
    CAPTURE(size);
    has(refusal(Bytes(whole).fill(size).save("cut.bin")),
        {"'cut.bin' is cut", (std::to_string(size) + " bytes").c_str(), "256"});
  }
  for (const size_t at : {8, 12, 16, 24, 32, 40, 200, 248, 255}) {
    CAPTURE(at);
    Bytes damaged = whole;
    damaged.text[at] ^= 64;
    has(refusal(damaged.save("bad.bin")), {"'bad.bin' is damaged", "checksum"});
  }
  has(refusal(zerolab_header(1, 2, 77).put<uint16_t>(1).save("new.bin")),
      {"'new.bin' has version 77", "version 1", "zerolab tokenize"});
  has(refusal(zerolab_header(1, 3).put<uint16_t>(1).save("odd.bin")), {"tokens of 3 bytes"});
  has(refusal(zerolab_header(1, 2, 1, 10).put<uint16_t>(1).save("odd.bin")), {"contradicts"});
  has(refusal(llmc_header(20240520, 1, 1).fill(1000).save("cut.bin")), {"is cut", "1024"});
  has(refusal(llmc_header(20240520, 2, 1).put<uint16_t>(1).save("new.bin")),
      {"version 2", "version 1 is known"});
  has(refusal(llmc_header(20240801, 1, 1).put<uint32_t>(1).save("new.bin")),
      {"version 1", "version 7 is known"});
}

TEST_CASE("a file that is shorter or longer than its header says is refused") {
  const zerolab::ScratchFolder scratch;
  const std::function<Bytes(int64_t)> headers[] = {
      [](int64_t n) { return zerolab_header(static_cast<uint64_t>(n)); },
      [](int64_t n) { return llmc_header(20240520, 1, static_cast<int32_t>(n)); }};
  for (const auto& header : headers) {
    has(refusal(header(3).put<uint16_t>(1).put<uint16_t>(2).save("t.bin")),
        {"'t.bin' is cut", "3 tokens of 2 bytes", "2 are there"});
    has(refusal(header(3).put<uint32_t>(1).put<uint8_t>(2).save("t.bin")),
        {"is cut", "2 are there"});
    has(refusal(header(1).put<uint32_t>(1).save("t.bin")), {"is too long", "4 bytes follow"});
    has(refusal(header(1).put<uint16_t>(1).put<uint8_t>(1).save("t.bin")), {"is too long"});
    has(refusal(header(0).save("t.bin")), {"holds no tokens"});
    has(refusal(header(-1).put<uint16_t>(1).save("t.bin")), {"negative number"});
  }
  has(refusal(zerolab_header(uint64_t{1} << 62, 4).put<uint32_t>(1).save("t.bin")),
      {"is cut", "4611686018427387904 tokens"});
}

TEST_CASE("another layout than asked for is refused with the one that was found") {
  const zerolab::ScratchFolder scratch;
  const auto own = zerolab_header(1).put<uint16_t>(1).save("own.bin");
  const auto shard = llmc_header(20240520, 1, 1).put<uint16_t>(1).save("shard.bin");
  const auto raw = Bytes{}.put<uint16_t>(1).save("raw.bin");
  has(refusal(own, TokenLayout::kRaw), {"'own.bin' has the layout \"zerolab\"", "not \"raw\""});
  has(refusal(own, TokenLayout::kLlmc), {"\"zerolab\"", "not \"llmc\""});
  has(refusal(shard, TokenLayout::kRaw), {"\"llmc\"", "not \"raw\""});
  has(refusal(raw, TokenLayout::kZerolab), {"\"raw\" (no magic begins it)", "not \"zerolab\""});
  has(refusal(raw, TokenLayout::kLlmc), {"\"raw\"", "not \"llmc\"", "layout = \"auto\""});
}

TEST_CASE("an opened file can be moved and outlives its name") {
  const zerolab::ScratchFolder scratch;
  TokenFile one = TokenFile::open(Bytes{}.put<uint16_t>(5).save("one.bin"));
  TokenFile other = TokenFile::open(Bytes{}.put<uint16_t>(6).save("other.bin"));
  std::filesystem::remove("one.bin");
  other = std::move(one);
  const TokenFile last(std::move(other));
  CHECK(tokens_of(last) == std::vector<int64_t>{5});
}

TEST_CASE("a file of 1 GB opens without memory of its size") {
  const zerolab::ScratchFolder scratch;
  constexpr int64_t kTokens = 512'000'000;
  zerolab_header(kTokens).save("large.bin");
  std::filesystem::resize_file("large.bin", 256 + 2 * kTokens);  // a hole takes no disk
  write_token("large.bin", kTokens - 1, 7);
  const int64_t before = resident_bytes();
  const TokenFile file = TokenFile::open("large.bin");
  CHECK(resident_bytes() - before < 10'000'000);
  std::vector<int64_t> window(1025);
  file.read(kTokens - 1025, window);
  CHECK(window.back() == 7);
  CHECK(std::accumulate(window.begin(), window.end(), int64_t{0}) == 7);
  CHECK(resident_bytes() - before < 10'000'000);
}

TEST_CASE("reading all of a file, window by window, takes no memory of its size") {
  const zerolab::ScratchFolder scratch;
  constexpr int64_t kTokens = 150'000'000, kWindow = 1000;
  zerolab_header(kTokens).save("large.bin");
  std::filesystem::resize_file("large.bin", 256 + 2 * kTokens);
  const TokenFile file = TokenFile::open("large.bin");
  const int64_t before = resident_bytes();
  std::vector<int64_t> window(kWindow);
  int64_t most = 0;
  for (int64_t at = 0; at < kTokens; at += kWindow) {
    file.read(at, window);
    if (at % (1000 * kWindow) == 0) most = std::max(most, resident_bytes() - before);
  }
  CHECK(most < 100'000'000);
}

TEST_CASE("the largest token of a large file is found, and no piece of it stays in memory") {
  const zerolab::ScratchFolder scratch;
  constexpr int64_t kTokens = 50'000'001;
  zerolab_header(kTokens).save("large.bin");
  std::filesystem::resize_file("large.bin", 256 + 2 * kTokens);
  for (const int64_t at : {int64_t{0}, int64_t{8'388'480}, kTokens - 1}) {
    write_token("large.bin", at, 7);
    const int64_t before = resident_bytes();
    CHECK(TokenFile::open("large.bin").largest_token() == 7);
    CHECK(resident_bytes() - before < 10'000'000);
    write_token("large.bin", at, 0);
  }
  CHECK(TokenFile::open("large.bin").largest_token() == 0);
}
