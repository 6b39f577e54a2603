#include <algorithm>
#include <set>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>

#include "zerolab/flat.h"
#include "zerolab/flat_parameters.h"
#include "zerolab/model.h"
#include "zerolab/random.h"

#include "catch.h"
#include "installed.h"

namespace {

constexpr int64_t kVocabulary = 17, kTokens = 8;

zerolab::Batch random_batch(int64_t sequences, uint64_t key) {
  const auto generator = zerolab::make_generator(key);
  const auto options = at::TensorOptions().dtype(at::kLong);
  zerolab::Batch batch;
  batch.tokens = at::randint(kVocabulary, {sequences, kTokens}, generator, options);
  batch.targets = at::randint(kVocabulary, {sequences, kTokens}, generator, options);
  batch.num_targets = sequences * kTokens;
  return batch;
}

/// has_cache() says that next_logits() gives what logits() gives, however the text is cut.
void check_cache(zerolab::Model& model, zerolab::Units& units, const at::Tensor& tokens_BT) {
  if (!model.has_cache()) return;
  const at::Tensor whole = model.logits(tokens_BT, units).to(at::kFloat);
  const double size = whole.abs().max().item<double>();
  for (const std::vector<int64_t>& chunks : {std::vector<int64_t>{kTokens}, {5, 1, 2}, {1, 7}}) {
    zerolab::KeyValueCache cache;
    cache.capacity = kTokens;
    for (const int64_t tokens : chunks) {
      INFO("cache: " << tokens << " tokens after " << cache.length);
      units.begin(false, 0);
      const at::Tensor piece = tokens_BT.narrow(1, cache.length, tokens);
      const at::Tensor next = model.next_logits(piece, units, cache).to(at::kFloat);
      units.end();
      const at::Tensor difference = next.sub(whole.select(1, cache.length - 1));
      CHECK(difference.abs().max().item<double>() <= 1e-5 * size);
    }
    CHECK(cache.length == kTokens);
  }
}

/// A layout names each parameter once, further names of it beside, and nothing unknown.
void check_layouts(const zerolab::Model& model, const zerolab::Parameters& parameters) {
  std::set<std::string> layouts;
  for (const zerolab::WeightLayout& layout : model.weight_layouts()) {
    INFO("layout " << layout.name);
    CHECK(layouts.insert(layout.name).second);
    CHECK_FALSE(layout.name.empty());
    std::set<std::string> theirs, ours;
    std::vector<bool> named(parameters.size());
    for (const zerolab::ForeignWeight& weight : layout.weights) {
      INFO(weight.name << " is " << weight.parameter);
      CHECK(theirs.insert(weight.name).second);
      CHECK(ours.insert(weight.parameter).second);
      const int64_t index = parameters.find(weight.parameter);
      REQUIRE(index >= 0);
      const auto i = static_cast<size_t>(index);
      // The first is where the file's numbers go; an alias before it could not be compared.
      CHECK((named[i] || parameters.info(i).name == weight.parameter));
      named[i] = true;
      if (weight.transposed) CHECK(parameters.info(i).shape.size() == 2);
    }
    for (size_t i = 0; i < named.size(); ++i) {
      INFO(parameters.info(i).name);
      CHECK(named[i]);
    }
    for (const std::string& suffix : layout.ignored_suffixes) {
      INFO("ignored " << suffix);
      CHECK(std::none_of(theirs.begin(), theirs.end(),
                         [&](const std::string& name) { return name.ends_with(suffix); }));
    }
  }
}

}  // namespace

void check_model(const std::string& name, zerolab::Model& model) {
  INFO("model " << name);
  zerolab::Parameters parameters;
  model.declare(parameters, {kVocabulary, kTokens});
  REQUIRE(parameters.size() > 0);
  const zerolab::FlatLayout layout(parameters, {.num_ranks = 2, .bucket_elements = 4096});
  zerolab::FlatParameters flat;
  flat.allocate(parameters, layout, 1);

  zerolab::Units units;
  units.begin(true, 5);
  zerolab::Batch batch = random_batch(3, 1);
  const at::Tensor loss = model.loss(batch, units);
  CHECK(loss.dim() == 0);
  CHECK(loss.scalar_type() == at::kFloat);
  REQUIRE(loss.requires_grad());
  loss.backward();
  for (size_t i = 0; i < parameters.size(); ++i) {
    INFO(parameters.info(i).name);
    if (parameters.info(i).requires_grad) CHECK(parameters.tensor(i).grad().defined());
  }

  const at::NoGradGuard no_grad;
  units.begin(false, 0);
  const double whole = model.loss(batch, units).item<double>();
  CHECK(model.loss(batch, units).item<double>() == whole);  // no state, no dropout in evaluation
  double sum = 0;
  for (int64_t i = 0; i < 3; ++i) {
    sum += model.loss({batch.tokens.narrow(0, i, 1), batch.targets.narrow(0, i, 1), kTokens}, units)
               .item<double>();
  }
  CHECK(sum == Approx(whole).epsilon(1e-4));  // a sum, not a mean; float32 sums in another order
  batch.targets.fill_(zerolab::kIgnoredTarget);
  CHECK(model.loss(batch, units).item<double>() == 0);
  CHECK(model.logits(batch.tokens, units).sizes() == at::IntArrayRef({3, kTokens, kVocabulary}));
  CHECK(model.logits(batch.tokens.narrow(1, 0, 2), units).sizes() ==
        at::IntArrayRef({3, 2, kVocabulary}));
  check_cache(model, units, batch.tokens);
  check_layouts(model, parameters);
}
