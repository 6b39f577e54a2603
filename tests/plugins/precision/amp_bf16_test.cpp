#include "zerolab/precision.h"

#include "catch.h"
#include "load_plugin.h"

TEST_CASE("precision/amp_bf16 keeps float32 parameters and gradients and autocasts to bfloat16") {
  const auto precision = load_plugin<zerolab::Precision>("precision/amp_bf16");
  const zerolab::PrecisionPolicy policy = precision->policy();
  CHECK(policy.parameter_dtype == at::kFloat);
  CHECK(policy.gradient_dtype == at::kFloat);
  REQUIRE(policy.autocast_dtype.has_value());
  CHECK(*policy.autocast_dtype == at::kBFloat16);
}

TEST_CASE("precision/amp_bf16 needs no loss scale: bfloat16 has float32's exponent") {
  const auto precision = load_plugin<zerolab::Precision>("precision/amp_bf16");
  for (bool finite : {true, false, true}) {
    precision->observe(finite);
    CHECK(precision->loss_scale() == 1);
  }
}
