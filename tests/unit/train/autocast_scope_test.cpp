#include "train/autocast_scope.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>

#include "catch.h"

namespace {

using zerolab::AutocastScope;
using zerolab::WeightCopies;

at::Tensor numbers(double end) {
  // A copy: no view of another tensor, as a parameter is none.
  return at::linspace(-1, end, 12, at::TensorOptions().dtype(at::kFloat)).view({3, 4}).clone();
}

}  // namespace

TEST_CASE("kept copies of weights give the same bits, and go with their scope") {
  const at::NoGradGuard no_grad;
  at::Tensor weight = numbers(1.7);
  weight.set_requires_grad(true);
  const at::Tensor x = numbers(0.3);
  const auto product = [&](WeightCopies copies) {
    const AutocastScope autocast(at::kBFloat16, copies);
    const at::Tensor first = at::linear(x, weight);
    CHECK(first.scalar_type() == at::kBFloat16);
    CHECK(at::linear(x, weight).equal(first));
    return first;
  };
  CHECK(product(WeightCopies::kKept).equal(product(WeightCopies::kEachUse)));
  const at::Tensor before = product(WeightCopies::kKept);
  weight.mul_(-3);
  const at::Tensor after = product(WeightCopies::kKept);
  CHECK_FALSE(after.equal(before));
  CHECK(after.equal(product(WeightCopies::kEachUse)));
}

TEST_CASE("only kept copies outlive a use") {
  const at::NoGradGuard no_grad;
  at::Tensor weight = numbers(1.7);
  weight.set_requires_grad(true);
  const at::Tensor x = numbers(0.3);
  for (const bool kept : {false, true}) {
    CAPTURE(kept);
    const AutocastScope autocast(at::kBFloat16,
                                 kept ? WeightCopies::kKept : WeightCopies::kEachUse);
    const at::Tensor before = at::linear(x, weight);
    weight.mul_(-3);  // which a scope that keeps copies must not meet, and so does not see
    CHECK(at::linear(x, weight).equal(before) == kept);
  }
}

TEST_CASE("without a dtype nothing is cast, and after a scope nothing is") {
  const at::Tensor x = numbers(0.3);
  {
    const AutocastScope none(std::nullopt);
    CHECK(at::linear(x, x).scalar_type() == at::kFloat);
  }
  { const AutocastScope some(at::kBFloat16, WeightCopies::kKept); }
  CHECK(at::linear(x, x).scalar_type() == at::kFloat);
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}
