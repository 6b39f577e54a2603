#include "train/weight_match.h"

#include "zerolab/error.h"

#include "catch.h"
#include "weights.h"

using zerolab::ForeignWeight;
using zerolab::TensorSource;
using zerolab::WeightLayout;
using zerolab::WeightMatch;
using zerolab::WeightOrigin;

namespace {

/// As another program names them, its matrices turned or not.
WeightLayout other(const std::string& name, bool turned) {
  return {name,
          {{"body.embed", "words"},
           {"body.a", "square", turned},
           {"body.b", "wide", turned},
           {"body.n", "norm"},
           {"lm_head", "head"}},
          {".mask"},
          {}};
}

TensorSource other_weights(bool turned, const std::string& prefix = "body.") {
  TensorSource source;
  add_tensor(source, prefix + "embed", {5, 3});
  add_tensor(source, prefix + "a", {3, 3});
  add_tensor(source, prefix + "b",
             turned ? std::vector<int64_t>{3, 6} : std::vector<int64_t>{6, 3});
  add_tensor(source, prefix + "n", {3});
  return source;
}

WeightMatch match(const TensorSource& source, const std::vector<WeightLayout>& layouts = {}) {
  zerolab::Parameters parameters;
  declare_small(parameters);
  return zerolab::match_weights(source, parameters, layouts, "FILE");
}

std::string refusal(const TensorSource& source, const std::vector<WeightLayout>& layouts = {}) {
  try {
    match(source, layouts);
  } catch (const zerolab::ConfigError& error) {
    return error.what();
  }
  return "it fits";
}

bool has(const std::string& text, const std::string& part) {
  CAPTURE(text, part);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("weights under the model's own names are found in any order") {
  TensorSource source = own_weights();
  std::swap(source.tensors.front(), source.tensors.back());
  const WeightMatch found = match(source, {other("other", true)});
  CHECK(found.layout.empty());
  REQUIRE(found.origins.size() == 4);
  CHECK(found.origins[0] == std::vector<WeightOrigin>{{3, false}});
  CHECK(found.origins[3] == std::vector<WeightOrigin>{{0, false}});
}

TEST_CASE(
    "a layout is judged as a whole: a square matrix alone does not say whether it is turned") {
  const std::vector<WeightLayout> layouts = {other("plain", false), other("turned", true)};
  const WeightMatch turned = match(other_weights(true), layouts);
  CHECK(turned.layout == "turned");
  CHECK(turned.origins[1] == std::vector<WeightOrigin>{{1, true}});
  const WeightMatch plain = match(other_weights(false), layouts);
  CHECK(plain.layout == "plain");
  CHECK(plain.origins[1] == std::vector<WeightOrigin>{{1, false}});
}

TEST_CASE("states of an optimizer are passed over") {
  TensorSource source = own_weights();
  add_tensor(source, "words", {5, 3}, 0, "momentum");
  CHECK(match(source).origins[0].size() == 1);
}

TEST_CASE("a tied weight may be there under either name, or under both") {
  TensorSource source = other_weights(false);
  CHECK(match(source, {other("plain", false)}).origins[0].size() == 1);
  add_tensor(source, "lm_head", {5, 3});
  CHECK(match(source, {other("plain", false)}).origins[0] ==
        std::vector<WeightOrigin>{{0, false}, {4, false}});
  source.tensors.erase(source.tensors.begin());
  CHECK(match(source, {other("plain", false)}).origins[0] == std::vector<WeightOrigin>{{3, false}});
}

TEST_CASE("a file may leave out the first word that a layout's names have in common") {
  const WeightMatch found = match(other_weights(true, ""), {other("turned", true)});
  CHECK(found.layout == "turned");
  CHECK(found.origins[2] == std::vector<WeightOrigin>{{2, true}});
}

TEST_CASE("what a layout ignores is no weight left over, by whole words of its name") {
  TensorSource source = other_weights(false);
  add_tensor(source, "body.0.mask", {7});
  CHECK(match(source, {other("plain", false)}).layout == "plain");
  add_tensor(source, "body.unmask", {7});
  CHECK(has(refusal(source, {other("plain", false)}), "1 weight is left over ('body.unmask')"));
}

TEST_CASE("all differences are told at once, with counts") {
  TensorSource source;
  add_tensor(source, "words", {4, 3});
  add_tensor(source, "norm", {3});
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) add_tensor(source, name, {1});
  const std::string text = refusal(source);
  CHECK(has(text, "FILE: does not fit the model: under the model's own names"));
  CHECK(has(text, "2 weights are missing ('square', 'wide')"));
  CHECK(has(text, "6 weights are left over ('a', 'b', 'c', 'd' and 2 more)"));
  CHECK(has(text, "1 weight is of another kind ('words' is [4, 3] where the model has [5, 3])"));
}

TEST_CASE("differences are those of the layout that comes closest") {
  TensorSource source = other_weights(true);
  source.tensors.pop_back();
  const std::string text = refusal(source, {other("plain", false), other("turned", true)});
  CHECK(has(text, "in the layout 'turned', which comes closest, 1 weight is missing ('body.n')"));
  CHECK(!has(text, "left over"));
}

TEST_CASE("whole numbers are no weights") {
  TensorSource source = own_weights();
  source.tensors[1].info.dtype = zerolab::TensorDtype::kInt64;
  CHECK(has(refusal(source), "'square' is of int64"));
}

TEST_CASE("a file that fits two layouts, which mean different things, is not guessed about") {
  WeightLayout swapped = other("swapped", false);
  swapped.weights[1].transposed = true;  // square: the shapes do not tell
  CHECK(has(refusal(other_weights(false), {other("plain", false), swapped}),
            "fits the model both in the layout 'plain' and in the layout 'swapped'"));
  CHECK(match(other_weights(false), {other("plain", false), other("same", false)}).layout ==
        "plain");
}

TEST_CASE("a layout of parameters that the model does not have is the plugin's mistake") {
  WeightLayout wrong = other("wrong", false);
  wrong.weights.push_back({"body.x", "nothing"});
  CHECK_THROWS_AS(match(own_weights(), {wrong}), zerolab::PluginError);
}
