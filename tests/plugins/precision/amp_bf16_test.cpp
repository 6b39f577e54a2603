#include "scaled_precision.h"

using namespace precision_test;

TEST_CASE("precision/amp_bf16 keeps float32 parameters and gradients and autocasts to bfloat16") {
  const zerolab::PrecisionPolicy policy = policy_of("precision/amp_bf16");
  CHECK(policy.parameter_dtype == at::kFloat);
  CHECK(policy.gradient_dtype == at::kFloat);
  REQUIRE(policy.autocast_dtype.has_value());
  CHECK(*policy.autocast_dtype == at::kBFloat16);
}

TEST_CASE("precision/amp_bf16 keeps gradients in bfloat16 if told to, and changes nothing else") {
  CHECK(with_gradients("precision/amp_bf16", "bf16").gradient_dtype == at::kBFloat16);
  CHECK(with_gradients("precision/amp_bf16", "bf16").parameter_dtype == at::kFloat);
  CHECK_FALSE(
      option_problems("precision/amp_bf16", {{"gradient_dtype", std::string("fp16")}}).empty());
}

TEST_CASE("precision/amp_bf16 needs no loss scale: bfloat16 has float32's exponent") {
  check_no_loss_scale("precision/amp_bf16");
}
