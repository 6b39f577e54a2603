#include "store/json_text.h"

#include <clocale>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include "catch.h"

namespace zerolab {
namespace {

std::string number(double value) {
  std::string text;
  append_json_number(text, value);
  return text;
}

}  // namespace

TEST_CASE("whole numbers are written as integers, whatever their size") {
  CHECK(number(0) == "0");
  CHECK(number(12) == "12");
  CHECK(number(-3) == "-3");
  CHECK(number(1e15) == "1000000000000000");
  CHECK(number(9007199254740992.0) == "9007199254740992");
}

TEST_CASE("other numbers are written in the fewest digits") {
  CHECK(number(0.1) == "0.1");
  CHECK(number(2.5) == "2.5");
  CHECK(number(1e300) == "1e+300");
  CHECK(number(5e-324) == "5e-324");
  CHECK(number(-0.0) == "-0.0");
}

TEST_CASE("what JSON has no number for is written as text or null") {
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(number(infinity) == "\"Infinity\"");
  CHECK(number(-infinity) == "\"-Infinity\"");
  CHECK(number(std::nan("")) == "null");
}

TEST_CASE("a number reads back to the same bits") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random();
    double value = 0;
    static_assert(sizeof value == sizeof bits);
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    const double back = std::strtod(number(value).c_str(), nullptr);
    if (std::memcmp(&back, &value, sizeof value) != 0) FAIL(number(value) << " is another number");
  }
}

TEST_CASE("a locale with a decimal comma changes nothing") {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  const char* comma = nullptr;
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"}) {
    if (comma == nullptr) comma = std::setlocale(LC_ALL, name);
  }
  if (comma == nullptr) WARN("no locale with a decimal comma is installed");
  CHECK(number(0.25) == "0.25");
  CHECK(number(1234567.5) == "1234567.5");
  std::setlocale(LC_ALL, before.c_str());
}

TEST_CASE("texts are quoted and escaped") {
  CHECK(json_quoted("a \"b\"\n\\") == "\"a \\\"b\\\"\\n\\\\\"");
  CHECK(json_quoted("\xff") == "\"\xef\xbf\xbd\"");
}

TEST_CASE("an object of texts is sorted by key, a line each") {
  CHECK(json_object({{"b", "2"}, {"a", "1"}}) == "{\n  \"a\": \"1\",\n  \"b\": \"2\"\n}\n");
}

}  // namespace zerolab
