#include "zerolab/options.h"

#include "zerolab/error.h"

#include "catch.h"

namespace {

struct Options {
  bool flag = true;
  int64_t count = 3;
  double rate = 0.5;
  std::string word = "a";
  std::vector<double> pair = {0.9, 0.999};
  int64_t bucket = 1024;
  static void describe(zerolab::Describe<Options>& d) {
    d.field("flag", &Options::flag, "a flag");
    d.field("count", &Options::count, "a count").unit("steps").at_least(0).at_most(10);
    d.field("rate", &Options::rate, "a rate").above(0).below(1);
    d.field("word", &Options::word, "a word").one_of({"a", "b"});
    d.field("pair", &Options::pair, "two numbers").length(2).at_least(0);
    d.field("bucket", &Options::bucket, "a size").size().at_least(1);
  }
  void check(zerolab::Problems& problems) const {
    if (count == 7) problems.add("count", "must not be seven");
  }
};

std::string wrong(const char* name, zerolab::OptionValue value) {
  static const zerolab::OptionSchema schema = zerolab::Describe<Options>::schema();
  return zerolab::OptionSchema::check_value(*schema.find(name), value);
}

}  // namespace

TEST_CASE("a schema carries the struct's own defaults") {
  const auto schema = zerolab::Describe<Options>::schema();
  const auto defaults = schema.defaults();
  CHECK(defaults.size() == 6);
  CHECK(std::get<double>(defaults.at("rate")) == 0.5);
  CHECK(std::get<std::vector<double>>(defaults.at("pair")) == std::vector<double>{0.9, 0.999});
  CHECK(schema.find("nothing") == nullptr);
}

TEST_CASE("a value is checked for type, range, words and length, and says what is allowed") {
  CHECK(wrong("count", int64_t{10}).empty());
  CHECK(wrong("count", int64_t{11}) == "must be at least 0 and at most 10, is 11");
  CHECK(wrong("count", 1.0) == "must be an integer, is a number (1.0)");
  CHECK(wrong("rate", 0.0) == "must be above 0.0 and below 1.0, is 0.0");
  CHECK(wrong("word", std::string("c")) == "must be \"a\" or \"b\", is \"c\"");
  CHECK(wrong("pair", std::vector<double>{1}) == "must have 2 entries, has 1");
  CHECK(wrong("pair", std::vector<double>{1, -1}) == "each entry must be at least 0.0, is -1.0");
  CHECK(wrong("flag", int64_t{1}) == "must be true or false, is an integer (1)");
  CHECK_FALSE(wrong("rate", std::nan("")).empty());
}

TEST_CASE("an integer is accepted where a number is wanted, never the reverse") {
  zerolab::OptionValue value = int64_t{2};
  zerolab::OptionField field;
  field.type = zerolab::OptionType::kFloat;
  CHECK(zerolab::OptionSchema::check_value(field, value).empty());
  CHECK(std::get<double>(value) == 2.0);
}

TEST_CASE("a size is a number of elements or bytes with a unit") {
  zerolab::OptionValue value = std::string("25MB");
  const auto schema = zerolab::Describe<Options>::schema();
  CHECK(zerolab::OptionSchema::check_value(*schema.find("bucket"), value).empty());
  CHECK(std::get<int64_t>(value) == 25 * 1024 * 1024 / 4);
  CHECK(wrong("bucket", std::string("25 parsecs")).find("25 parsecs") != std::string::npos);
  CHECK(zerolab::parse_bytes("1.5 KB") == 1536);
  CHECK_FALSE(zerolab::parse_bytes("-1MB").has_value());
  CHECK_FALSE(zerolab::parse_bytes("MB").has_value());
  CHECK_FALSE(zerolab::parse_bytes("1e300GB").has_value());
}

TEST_CASE("values are written into the struct and its own checks see them") {
  const auto schema = zerolab::Describe<Options>::schema();
  auto values = schema.defaults();
  values["count"] = int64_t{7};
  Options options;
  schema.assign(&options, values);
  CHECK(options.count == 7);
  zerolab::Problems problems;
  schema.check(values, problems);
  REQUIRE(problems.list().size() == 1);
  CHECK(problems.list()[0].option == "count");
  values["count"] = std::string("seven");
  CHECK_THROWS_AS(schema.assign(&options, values), zerolab::ConfigError);
}

TEST_CASE("values are written as TOML that reads back the same") {
  CHECK(zerolab::to_toml(0.1) == "0.1");
  CHECK(zerolab::to_toml(1.0) == "1.0");
  CHECK(zerolab::to_toml(1e-8) == "1e-08");
  CHECK(zerolab::to_toml(std::string("a\"b\\\n")) == "\"a\\\"b\\\\\\u000A\"");
  CHECK(zerolab::to_toml(std::vector<int64_t>{1, 2}) == "[1, 2]");
  CHECK(zerolab::to_toml(true) == "true");
}

TEST_CASE("an error keeps its exit code when context is put before it") {
  try {
    try {
      throw zerolab::ConfigError("too large");
    } catch (zerolab::Error& error) {
      error.in("step 3");
      throw;
    }
  } catch (const zerolab::ConfigError& error) {
    CHECK(std::string(error.what()) == "step 3: too large");
    CHECK(error.exit_code() == zerolab::ExitCode::kConfiguration);
  }
}
