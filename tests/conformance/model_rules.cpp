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
}
