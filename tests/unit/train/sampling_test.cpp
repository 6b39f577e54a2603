#include "train/sampling.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "zerolab/error.h"

#include "catch.h"

using zerolab::choose_token;
using zerolab::next_token_probabilities;
using zerolab::SamplingOptions;

namespace {

/// Logits of these probabilities, which need not add up to one.
std::vector<float> logits_of(const std::vector<double>& weights) {
  std::vector<float> logits;
  for (const double weight : weights) logits.push_back(static_cast<float>(std::log(weight)));
  return logits;
}

void check_near(const std::vector<double>& actual, const std::vector<double>& expected) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    INFO("token " << i);
    CHECK(actual[i] == Approx(expected[i]).margin(1e-7));  // logits are float32
  }
}

std::string refusal(const SamplingOptions& options) {
  try {
    options.check();
  } catch (const zerolab::ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("temperature raises probabilities to its inverse") {
  const auto logits = logits_of({1, 2, 4});
  check_near(next_token_probabilities(logits, {}), {1.0 / 7, 2.0 / 7, 4.0 / 7});
  check_near(next_token_probabilities(logits, {0.5}), {1.0 / 21, 4.0 / 21, 16.0 / 21});
  const double root = std::sqrt(2.0), sum = 3 + root;
  check_near(next_token_probabilities(logits, {2.0}), {1 / sum, root / sum, 2 / sum});
}

TEST_CASE("temperature 0 takes the likeliest token, of several the one of the lowest id") {
  CHECK(next_token_probabilities(std::vector<float>{1, 3, 2, 3}, {0.0}) ==
        std::vector<double>{0, 1, 0, 0});
}

TEST_CASE("a tiny temperature and huge logits stay numbers") {
  CHECK(next_token_probabilities(std::vector<float>{1e30F, 2e30F, -1e30F}, {1e-9}) ==
        std::vector<double>{0, 1, 0});
}

TEST_CASE("top-k keeps the k likeliest tokens and those that equal the k-th") {
  const auto logits = logits_of({1, 3, 2, 2});
  check_near(next_token_probabilities(logits, {1, 1}), {0, 1, 0, 0});
  check_near(next_token_probabilities(logits, {1, 2}), {0, 3.0 / 7, 2.0 / 7, 2.0 / 7});
  check_near(next_token_probabilities(logits, {1, 3}), {0, 3.0 / 7, 2.0 / 7, 2.0 / 7});
  for (const int64_t all : {0, 4, 5, 1000}) {
    INFO("top_k " << all);
    check_near(next_token_probabilities(logits, {1, all}), {0.125, 0.375, 0.25, 0.25});
  }
}

TEST_CASE("top-p keeps the likeliest tokens until they make it up") {
  const auto logits = logits_of({0.2, 0.5, 0.3});
  check_near(next_token_probabilities(logits, {1, 0, 0.001}), {0, 1, 0});
  check_near(next_token_probabilities(logits, {1, 0, 0.49}), {0, 1, 0});
  check_near(next_token_probabilities(logits, {1, 0, 0.51}), {0, 0.625, 0.375});
  check_near(next_token_probabilities(logits, {1, 0, 0.79}), {0, 0.625, 0.375});
  check_near(next_token_probabilities(logits, {1, 0, 0.81}), {0.2, 0.5, 0.3});
  check_near(next_token_probabilities(logits, {1, 0, 1.0}), {0.2, 0.5, 0.3});
}

TEST_CASE("of equal tokens at the edge of top-p those of lower ids stay") {
  const std::vector<float> logits(4, 1.5F);
  check_near(next_token_probabilities(logits, {1, 0, 0.5}), {0.5, 0.5, 0, 0});
  check_near(next_token_probabilities(logits, {1, 0, 0.51}), {1.0 / 3, 1.0 / 3, 1.0 / 3, 0});
}

TEST_CASE("top-p counts what temperature and top-k have left") {
  const auto logits = logits_of({0.4, 0.3, 0.2, 0.1});
  check_near(next_token_probabilities(logits, {1, 0, 0.5}), {4.0 / 7, 3.0 / 7, 0, 0});
  check_near(next_token_probabilities(logits, {1, 2, 0.5}), {1, 0, 0, 0});    // 4/7 of what is left
  check_near(next_token_probabilities(logits, {0.5, 0, 0.5}), {1, 0, 0, 0});  // 16/30
}

TEST_CASE("tokens that a model rules out are never chosen") {
  const float never = -std::numeric_limits<float>::infinity();
  check_near(next_token_probabilities(std::vector<float>{never, 0, never, 0}, {}),
             {0, 0.5, 0, 0.5});
}

TEST_CASE("logits that are not finite are an error") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& logits :
       {std::vector<float>{0, nan}, {nan, 0}, {0, inf}, {-inf, -inf}, {}}) {
    for (const double temperature : {0.0, 1.0}) {
      CHECK_THROWS_AS(next_token_probabilities(logits, {temperature}), zerolab::Error);
    }
  }
}

TEST_CASE("the inverse of the distribution is exact at its edges") {
  const std::vector<double> probabilities = {0.25, 0, 0.5, 0.25};
  CHECK(choose_token(probabilities, 0) == 0);
  CHECK(choose_token(probabilities, std::nextafter(0.25, 0)) == 0);
  CHECK(choose_token(probabilities, 0.25) == 2);
  CHECK(choose_token(probabilities, std::nextafter(0.75, 0)) == 2);
  CHECK(choose_token(probabilities, 0.75) == 3);
  CHECK(choose_token(probabilities, std::nextafter(1, 0)) == 3);
  CHECK(choose_token(std::vector<double>{0, 1, 0}, 0) == 1);
  CHECK(choose_token(std::vector<double>{0.5, 0.4999999, 0}, std::nextafter(1, 0)) == 1);
}

TEST_CASE("evenly spread numbers choose tokens as often as they are likely") {
  const std::vector<double> probabilities = {0.25, 0, 0.5, 0.125, 0.125};
  std::vector<int> counts(5);
  for (int i = 0; i < 1024; ++i)
    ++counts[static_cast<size_t>(choose_token(probabilities, i / 1024.0))];
  CHECK(counts == std::vector<int>{256, 0, 512, 128, 128});
}

TEST_CASE("each seed, sample and position has a number of its own, always the same") {
  std::set<double> seen;
  for (const uint64_t seed : {0, 1, 1337}) {
    for (int64_t sample = 0; sample < 10; ++sample) {
      for (int64_t position = 0; position < 100; ++position) {
        const double number = zerolab::sampling_number(seed, sample, position);
        CHECK(number == zerolab::sampling_number(seed, sample, position));
        CHECK((number >= 0 && number < 1));
        seen.insert(number);
      }
    }
  }
  CHECK(seen.size() == 3000);
}

TEST_CASE("numbers out of range are refused with what is allowed") {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  CHECK(refusal({}) == "accepted");
  CHECK(refusal({0, 5, 1e-6}) == "accepted");
  for (const double bad : {-0.5, nan, inf}) {
    CHECK_THAT(refusal({bad}), Catch::Matchers::Contains("--temperature must be 0"));
  }
  CHECK_THAT(refusal({1, -1}), Catch::Matchers::Contains("--top-k must be 0"));
  for (const double bad : {0.0, -0.1, 1.5, nan}) {
    CHECK_THAT(refusal({1, 0, bad}), Catch::Matchers::Contains("--top-p must be above 0"));
  }
}
