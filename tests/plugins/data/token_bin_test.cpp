#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "zerolab/model.h"

#include "token_bin_files.h"
#include "unit/store/scratch.h"

using namespace token_bin_test;
using zerolab::kIgnoredTarget;
using zerolab::ScratchFolder;

TEST_CASE("data/token_bin gives windows side by side, each with the token after it") {
  const ScratchFolder scratch;
  const auto data = training_on({counting("t.bin", 13)});
  REQUIRE(data->size(Split::kTrain) == 3);  // 13 tokens: the last is a target alone
  CHECK(get(*data, 0) == Sample{{0, 1, 2, 3}, {1, 2, 3, 4}});
  CHECK(get(*data, 1) == Sample{{4, 5, 6, 7}, {5, 6, 7, 8}});
  CHECK(get(*data, 2) == Sample{{8, 9, 10, 11}, {9, 10, 11, 12}});
  CHECK(training_on({counting("t.bin", 12)})->size(Split::kTrain) == 2);
}

TEST_CASE("data/token_bin begins a window every stride tokens") {
  const ScratchFolder scratch;
  for (const int64_t stride : {1, 3, 7}) {
    CAPTURE(stride);
    const auto data = training_on({counting("t.bin", 20)}, {{"stride", stride}});
    REQUIRE(data->size(Split::kTrain) == (20 - kT - 1) / stride + 1);
    for (int64_t i = 0; i < data->size(Split::kTrain); ++i)
      CHECK(get(*data, i).tokens.front() == i * stride);
  }
}

TEST_CASE("data/token_bin draws random windows from seed and index alone, from all places") {
  const ScratchFolder scratch;
  const std::string file = counting("t.bin", 20);
  const zerolab::OptionValues random = {{"windows", std::string("random")}};
  const auto a = training_on({file}, random), b = training_on({file}, random),
             other = training_on({file}, random, 2);
  REQUIRE(a->size(Split::kTrain) == 16);
  std::vector<Sample> of_a, of_b, of_other;
  for (int64_t i = 0; i < 16; ++i) {
    of_a.push_back(get(*a, i));
    of_b.push_back(get(*b, 15 - i));  // in another order
    of_other.push_back(get(*other, i));
    CHECK(of_a.back().targets[0] == of_a.back().tokens[0] + 1);
  }
  std::reverse(of_b.begin(), of_b.end());
  CHECK(of_a == of_b);
  CHECK(of_a != of_other);

  // Statistical: 2000 draws of 2000 places miss a share of 1 / e; the seed is fixed.
  const auto many = training_on({counting("many.bin", 2000 + kT)}, random);
  std::set<int64_t> places;
  for (int64_t i = 0; i < 2000; ++i) places.insert(get(*many, i).tokens[0]);
  CHECK(places.size() > 1200);
  CHECK(places.size() < 1330);
  CHECK(*places.begin() < 20);
  CHECK(*places.rbegin() > 1980);
}

TEST_CASE("data/token_bin trains on the first part of each file and validates on the rest") {
  const ScratchFolder scratch;
  const auto data = open({{"path", Strings{counting("a.bin", 20), counting("b.bin", 40, 100)}},
                          {"train_fraction", 0.5}});
  std::set<int64_t> trained, validated;
  for (int64_t i = 0; i < data->size(Split::kTrain); ++i) {
    const Sample s = get(*data, i);
    trained.insert(s.tokens.begin(), s.tokens.end());
    trained.insert(s.targets.begin(), s.targets.end());
  }
  for (int64_t i = 0; i < data->size(Split::kValidation); ++i) {
    const Sample s = get(*data, i, Split::kValidation);
    validated.insert(s.tokens.begin(), s.tokens.end());
    validated.insert(s.targets.begin(), s.targets.end());
  }
  for (const int64_t token : trained) CHECK((token < 10 || (token >= 100 && token < 120)));
  CHECK(trained.size() == 9 + 17);
  for (const int64_t token : validated)
    CHECK(((token >= 10 && token < 20) || (token >= 120 && token < 140)));
  CHECK(validated.size() == 9 + 17);
}

TEST_CASE("data/token_bin validates on files of their own, side by side whatever trains") {
  const ScratchFolder scratch;
  const auto data =
      open({{"path", Strings{counting("t.bin", 30)}},
            {"validation_path", Strings{counting("v.bin", 9, 50), counting("w.bin", 4, 90)}},
            {"windows", std::string("random")}});
  REQUIRE(data->size(Split::kValidation) == 2);  // w.bin is too short for a window
  CHECK(get(*data, 0, Split::kValidation).tokens == Tokens{50, 51, 52, 53});
  CHECK(get(*data, 1, Split::kValidation).targets == Tokens{55, 56, 57, 58});
}

TEST_CASE("data/token_bin mixes files by weight: the shares of an epoch are exact") {
  const ScratchFolder scratch;
  const Strings files = {counting("a.bin", 401), counting("b.bin", 41, 1000),
                         counting("c.bin", 81, 2000)};  // 100, 10 and 20 windows
  const auto shares = [&](const zerolab::Data& data) {
    std::map<int64_t, int64_t> of_file;
    std::set<int64_t> windows;
    for (int64_t i = 0; i < data.size(Split::kTrain); ++i) {
      const int64_t first = get(data, i).tokens[0];
      ++of_file[first / 1000];
      windows.insert(first);
    }
    CHECK(windows.size() == 130);  // each comes at least once
    return Tokens{of_file[0], of_file[1], of_file[2]};
  };
  CHECK(shares(*training_on(files)) == Tokens{100, 10, 20});
  CHECK(shares(*training_on(files, {{"weights", std::vector<double>{1, 1, 1}}})) ==
        Tokens{100, 100, 100});
  CHECK(shares(*training_on(files, {{"weights", std::vector<double>{0.5, 0.25, 0.25}}})) ==
        Tokens{100, 50, 50});
  CHECK(shares(*training_on(files, {{"weights", std::vector<double>{3, 1, 0.5}}})) ==
        Tokens{120, 40, 20});
}

TEST_CASE("data/token_bin comes back to a window of a small file only after all others") {
  const ScratchFolder scratch;
  const auto data = training_on({counting("a.bin", 401), counting("b.bin", 41, 1000)},
                                {{"weights", std::vector<double>{2, 1}}});
  std::map<int64_t, int64_t> times;
  for (int64_t i = 0; i < data->size(Split::kTrain); ++i) ++times[get(*data, i).tokens[0]];
  for (const auto& [first, count] : times) CHECK(count == (first < 1000 ? 1 : 5));
}

TEST_CASE("data/token_bin reads every layout to the same tokens") {
  const ScratchFolder scratch;
  Tokens tokens(50);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int64_t>(i * i % 97);
  std::ofstream shard("shard.bin", std::ios::binary);
  const int32_t header[256] = {20240520, 1, 50};
  shard.write(reinterpret_cast<const char*>(header), sizeof header);
  for (const int64_t token : tokens) shard.put(static_cast<char>(token)).put(0);
  shard.close();
  const auto of_raw = training_on({raw("raw.bin", tokens)});
  const auto of_own = training_on({packed("own.bin", tokens, 50257)});
  const auto of_wide = training_on({packed("wide.bin", tokens, 70000)});
  const auto of_shard = training_on(
      {"shard.bin"}, {{"validation_path", Strings{"shard.bin"}}, {"layout", std::string("llmc")}});
  CHECK(of_wide->vocab_size() == 70000);
  for (const auto* data : {&of_own, &of_wide, &of_shard}) {
    REQUIRE((*data)->size(Split::kTrain) == of_raw->size(Split::kTrain));
    for (int64_t i = 0; i < of_raw->size(Split::kTrain); ++i)
      CHECK(get(**data, i) == get(*of_raw, i));
  }
}

TEST_CASE("data/token_bin takes its vocabulary from options, headers, or else from GPT-2") {
  const ScratchFolder scratch;
  const std::string file = counting("raw.bin", 20);
  const auto plain = training_on({file});
  CHECK(plain->vocab_size() == 50257);
  CHECK(plain->end_of_text() == 50256);
  const auto given = training_on({file}, {{"vocab_size", int64_t{100}}});
  CHECK(given->vocab_size() == 100);
  CHECK(given->end_of_text() == -1);
  const Tokens tokens(20, 3);
  const auto stated = training_on({packed("own.bin", tokens, 80, "other", 7), file});
  CHECK(stated->vocab_size() == 80);
  CHECK(stated->end_of_text() == 7);
  const auto both =
      training_on({"own.bin"}, {{"vocab_size", int64_t{128}}, {"end_of_text", int64_t{9}}});
  CHECK(both->vocab_size() == 128);
  CHECK(both->end_of_text() == 9);
}

TEST_CASE("data/token_bin takes what a header says where it leaves out the vocabulary") {
  const ScratchFolder scratch;
  const Tokens tokens(20, 3);
  const auto data = training_on({unsized("own.bin", tokens, "byte", 10)});
  CHECK(data->vocab_size() == 50257);
  CHECK(data->end_of_text() == 10);
  CHECK(data->encode("Hi") == Tokens{'H', 'i'});
  const auto silent = training_on({unsized("silent.bin", tokens, "", -1)});
  CHECK(silent->end_of_text() == 50256);
  check_has(refusal([&] { training_on({unsized("far.bin", tokens, "", 60000)}); }),
            {"data.end_of_text", "50257", "60000"});
}

TEST_CASE("data/token_bin does not count the first token of a document when they are separate") {
  const ScratchFolder scratch;
  const std::string file = packed("t.bin", {1, 2, 9, 3, 4, 9, 9, 5, 6}, 10, "", 9);
  const std::string separate = "separate";
  const auto data = training_on({file}, {{"documents", separate}});
  const auto i = kIgnoredTarget;
  CHECK(get(*data, 0) == Sample{{1, 2, 9, 3}, {2, 9, i, 4}});
  CHECK(get(*data, 1) == Sample{{4, 9, 9, 5}, {9, i, i, 6}});
  CHECK(get(*training_on({file}), 0).targets == Tokens{2, 9, 3, 4});
  check_has(refusal([&] {
              training_on({packed("none.bin", {1, 2, 3, 4, 5}, 10)}, {{"documents", separate}});
            }),
            {"data.documents", "data.end_of_text"});
}

TEST_CASE("data/token_bin never counts padding") {
  const ScratchFolder scratch;
  const auto data = training_on({raw("t.bin", {1, 2, 0, 0, 5})}, {{"padding_token", int64_t{0}}});
  CHECK(get(*data, 0) == Sample{{1, 2, 0, 0}, {2, kIgnoredTarget, kIgnoredTarget, 5}});
}

TEST_CASE("data/token_bin refuses tokens beyond the vocabulary, with file, place and token") {
  const ScratchFolder scratch;
  Tokens tokens(200'000, 1);
  tokens[150'000] = 300;
  raw("t.bin", tokens);
  const zerolab::OptionValues small = {{"vocab_size", int64_t{256}}};
  check_has(refusal([&] { training_on({"t.bin"}, small); }),
            {"data.path: 't.bin' has the token 300 at position 150000", "256", "data.vocab_size"});
  check_has(refusal([&] { training_on({counting("u.bin", 9)}, small)->validate_on("t.bin"); }),
            {"'t.bin' has the token 300 at position 150000"});
}

TEST_CASE("data/token_bin refuses them in a large file when their window is read") {
  const ScratchFolder scratch;
  raw("large.bin", {0});
  std::filesystem::resize_file("large.bin", 70'000'000);  // above what is checked at open
  std::fstream file("large.bin", std::ios::binary | std::ios::in | std::ios::out);
  for (const int64_t position : {402, 500}) {
    file.seekp(2 * position);
    file.put('\x2c').put('\x01');
  }
  file.close();
  const auto data = training_on({"large.bin"}, {{"vocab_size", int64_t{256}}});
  get(*data, 99);
  check_has(refusal([&] { get(*data, 100); }), {"'large.bin' has the token 300 at position 402"});
  check_has(refusal([&] { get(*data, 124); }), {"position 500"});  // a target alone
  check_has(refusal([&] { get(*data, 125); }), {"position 500"});  // a token
  get(*data, 126);
}

TEST_CASE("data/token_bin refuses files that do not belong together") {
  const ScratchFolder scratch;
  const Tokens tokens(20, 3);
  const std::string a = packed("a.bin", tokens, 80, "one", 7);
  const auto with = [&](const std::string& other) {
    return refusal([&] { training_on({a, other}); });
  };
  check_has(with(packed("b.bin", tokens, 90, "one", 7)),
            {"'b.bin' has a vocabulary of 90", "'a.bin' one of 80", "data.vocab_size"});
  check_has(with(packed("c.bin", tokens, 80, "two", 7)),
            {"'c.bin' was made by the tokenizer \"two\"", "'a.bin' by \"one\""});
  check_has(with(packed("d.bin", tokens, 80, "one", 8)),
            {"'d.bin' ends documents with 8", "data.end_of_text"});
  check_has(refusal([&] {
              training_on({a}, {{"vocab_size", int64_t{79}}});
            }),
            {"'a.bin' has a vocabulary of 80", "data.vocab_size 79"});
  CHECK(training_on({a, "b.bin"}, {{"vocab_size", int64_t{96}}})->vocab_size() == 96);
}

TEST_CASE("data/token_bin names the option and the file that is missing, cut or too short") {
  const ScratchFolder scratch;
  const std::string good = counting("good.bin", 100);
  check_has(refusal([] { training_on({"none.bin"}); }), {"data.path: 'none.bin' does not exist"});
  check_has(refusal([&] {
              open({{"path", Strings{good}}, {"validation_path", Strings{"none.bin"}}});
            }),
            {"data.validation_path: 'none.bin' does not exist"});
  check_has(refusal([] { training_on({counting("short.bin", kT)}); }),
            {"'short.bin' has 4 tokens, of which 4 train", "at least 5"});
  check_has(refusal([] {
              open({{"path", Strings{counting("short.bin", 40)}}});
            }),
            {"data.path: a validation window takes at least 5 tokens", "validation_path"});
  check_has(refusal([&] {
              open({{"path", Strings{good}},
                    {"validation_path", Strings{"short.bin"}},
                    {"layout", std::string("zerolab")}});
            }),
            {"'good.bin' has the layout \"raw\"", "not \"zerolab\""});
  check_has(
      refusal([&] {
        open({{"path", Strings{good}}, {"validation_path", Strings{counting("short.bin", kT)}}});
      }),
      {"data.validation_path: a window takes at least 5 tokens"});
}

TEST_CASE("data/token_bin validates on another file when told to, in the same vocabulary") {
  const ScratchFolder scratch;
  const Tokens tokens(20, 3);
  const auto data = training_on({packed("a.bin", tokens, 80, "one", 7)});
  data->validate_on(counting("other.bin", 14, 40));
  REQUIRE(data->size(Split::kValidation) == 3);
  CHECK(get(*data, 2, Split::kValidation) == Sample{{48, 49, 50, 51}, {49, 50, 51, 52}});
  CHECK(get(*data, 0).tokens == Tokens(kT, 3));  // training is as before
  const auto told = [&](const std::string& path) {
    return refusal([&] { data->validate_on(path); });
  };
  check_has(told("none.bin"), {"'none.bin' does not exist"});
  check_has(told(counting("short.bin", kT)), {"'short.bin' has 4 tokens", "5"});
  check_has(told(packed("b.bin", tokens, 90)), {"'b.bin' has a vocabulary of 90"});
  check_has(told(packed("c.bin", tokens, 80, "two")), {"tokenizer \"two\""});
  check_has(told(words("other.txt")), {"'other.txt' looks like text", "zerolab tokenize"});
  CHECK(data->size(Split::kValidation) == 3);
}

TEST_CASE("data/token_bin refuses text that is not packed, unless told that it is raw tokens") {
  const ScratchFolder scratch;
  const std::string text = words("a.txt");
  check_has(refusal([&] { training_on({text}); }), {"data.path: 'a.txt' looks like text"});
  check_has(refusal([&] {
              open({{"path", Strings{counting("t.bin", 13)}}, {"validation_path", Strings{text}}});
            }),
            {"data.validation_path: 'a.txt' looks like text"});
  const auto data = open({{"path", Strings{text}}, {"layout", std::string("raw")}});
  CHECK(get(*data, 0).tokens[0] == 't' + 256 * 'o');
  CHECK_NOTHROW(data->validate_on(words("b.txt")));  // raw tokens, too
}

TEST_CASE("data/token_bin turns text into tokens and back by the tokenizer that made the file") {
  const ScratchFolder scratch;
  const Tokens tokens(20, 3);
  const auto data = training_on({packed("a.bin", tokens, 256, "byte")});
  CHECK(data->encode("Hi") == Tokens{'H', 'i'});
  CHECK(data->decode(Tokens{'H', 'i'}) == "Hi");
  const auto told = training_on({raw("r.bin", tokens)}, by_byte(256));
  CHECK(told->encode("Hi") == Tokens{'H', 'i'});
  for (const auto& silent : {training_on({packed("b.bin", tokens, 80, "char")}),
                             training_on({"a.bin"}, {{"tokenizer", std::string("none")}})}) {
    CHECK(silent->decode(Tokens{3}).empty());
    check_has(refusal([&] { silent->encode("Hi"); }), {"data.tokenizer", "data.bpe_ranks"});
  }
}

TEST_CASE("data/token_bin says that GPT-2's tokens want the file of their ranks") {
  const ScratchFolder scratch;
  const Tokens tokens(20, 3);
  for (const auto& silent : {training_on({packed("g.bin", tokens, 50257, "gpt2", 50256)}),
                             training_on({raw("r.bin", tokens)})}) {
    CHECK(silent->decode(Tokens{3}).empty());
    const std::string said = refusal([&] { silent->encode("Hi"); });
    check_has(said, {"GPT-2's", "data.bpe_ranks=FILE", "data/gpt2.tiktoken", "tools/setup"});
    CHECK(said.find("data.tokenizer") == std::string::npos);
  }
}

TEST_CASE("data/token_bin refuses a tokenizer whose tokens cannot be the file's") {
  const ScratchFolder scratch;
  const Tokens tokens(20, 3);
  raw("r.bin", tokens);
  for (const int64_t size : {0, 100, 257, 50257}) {
    CAPTURE(size);
    check_has(refusal([&] { training_on({"r.bin"}, by_byte(size)); }),
              {"data.tokenizer: \"byte\" has 256 tokens", "data.vocab_size",
               size > 0 ? std::to_string(size).c_str() : "50257"});
  }
  check_has(
      refusal([&] { training_on({packed("g.bin", tokens, 50257, "gpt2", 50256)}, by_byte(0)); }),
      {"data.tokenizer", "256", "50257"});
  // A vocabulary that its user pads: the header still says whose tokens they are.
  packed("b.bin", tokens, 256, "byte");
  CHECK(training_on({"b.bin"}, {{"vocab_size", int64_t{320}}})->decode(Tokens{'H'}) == "H");
  CHECK(training_on({"b.bin"}, by_byte(320))->decode(Tokens{'H'}) == "H");
}

TEST_CASE("data/token_bin may be read from several threads") {
  const ScratchFolder scratch;
  const auto data = training_on({counting("t.bin", 4001)});
  std::vector<Sample> serial, parallel(1000);
  for (int64_t i = 0; i < 1000; ++i) serial.push_back(get(*data, i));
  std::vector<std::thread> threads;
  for (size_t first : {0, 1}) {
    threads.emplace_back([&, first] {
      for (size_t i = first; i < 1000; i += 2) parallel[i] = get(*data, static_cast<int64_t>(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(serial == parallel);
}

TEST_CASE("data/token_bin refuses options that contradict each other") {
  CHECK(problem({}).empty());
  CHECK(problem({{"weights", std::vector<double>{2}}}).empty());
  check_has(problem({{"weights", std::vector<double>{2, 1}}}), {"weights", "one entry", "has 2"});
  check_has(problem({{"weights", std::vector<double>{0}}}), {"weights", "above 0"});
  check_has(problem({{"path", Strings{}}}), {"path", "at least one"});
  check_has(problem({{"windows", std::string("random")}, {"stride", int64_t{2}}}), {"stride"});
  check_has(problem({{"tokenizer", std::string("gpt2")}}), {"tokenizer", "bpe_ranks"});
  check_has(problem({{"vocab_size", int64_t{9}}, {"end_of_text", int64_t{9}}}), {"end_of_text"});
  check_has(problem({{"vocab_size", int64_t{9}}, {"padding_token", int64_t{9}}}), {"padding"});
}
