#include "train/declared_model.h"

#include "zerolab/error.h"

#include "catch.h"
#include "weights.h"

namespace {

/// Which of the small model's parameters are trained after freezing, by name.
std::vector<std::string> trained(const std::vector<std::string>& patterns) {
  zerolab::Parameters parameters;
  declare_small(parameters);
  zerolab::freeze_parameters(patterns, parameters);
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters.size(); ++i) {
    CHECK(parameters.tensor(i).requires_grad() == parameters.info(i).requires_grad);
    if (parameters.info(i).requires_grad) names.push_back(parameters.info(i).name);
  }
  return names;
}

std::string refusal(const std::vector<std::string>& patterns) {
  try {
    trained(patterns);
  } catch (const zerolab::ConfigError& error) {
    return error.what();
  }
  return "it freezes";
}

bool has(const std::string& text, const std::string& part) {
  CAPTURE(text, part);
  return text.find(part) != std::string::npos;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("without a pattern everything is trained") {
  CHECK(trained({}) == Names{"words", "square", "wide", "norm"});
}

TEST_CASE("patterns freeze what they are like") {
  CHECK(trained({"square"}) == Names{"words", "wide", "norm"});
  CHECK(trained({"w*"}) == Names{"square", "norm"});
  CHECK(trained({"?ide", "norm"}) == Names{"words", "square"});
}

TEST_CASE("a tied weight is frozen by either name") {
  CHECK(trained({"words"}) == Names{"square", "wide", "norm"});
  CHECK(trained({"hea?"}) == Names{"square", "wide", "norm"});
}

TEST_CASE("a pattern that is like no name is refused, with the nearest") {
  CHECK(has(refusal({"norm", "squares"}), "no parameter's name is like 'squares'"));
  CHECK(has(refusal({"squares"}), "the nearest is 'square'"));
  CHECK(has(refusal({"blocks.*"}), "the model's are 'words', 'head', 'square', 'wide' and 1 more"));
}

TEST_CASE("something has to be left to train") {
  CHECK(has(refusal({"*"}), "nothing is left to train"));
}
