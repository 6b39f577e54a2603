#include "scaled_precision.h"

using namespace precision_test;

TEST_CASE("precision/amp_fp16 keeps float32 parameters and gradients and autocasts to float16") {
  const zerolab::PrecisionPolicy policy = policy_of("precision/amp_fp16");
  CHECK(policy.parameter_dtype == at::kFloat);
  CHECK(policy.gradient_dtype == at::kFloat);
  REQUIRE(policy.autocast_dtype.has_value());
  CHECK(*policy.autocast_dtype == at::kHalf);
}

TEST_CASE(
    "precision/amp_fp16 keeps gradients in bfloat16 or float16 if told to, and changes nothing "
    "else") {
  CHECK(with_gradients("precision/amp_fp16", "bf16").gradient_dtype == at::kBFloat16);
  CHECK(with_gradients("precision/amp_fp16", "bf16").parameter_dtype == at::kFloat);
  CHECK(with_gradients("precision/amp_fp16", "fp16").gradient_dtype == at::kHalf);
  CHECK_FALSE(
      option_problems("precision/amp_fp16", {{"gradient_dtype", std::string("fp64")}}).empty());
}

TEST_CASE("precision/amp_fp16 scales the loss dynamically") {
  check_loss_scale("precision/amp_fp16");
}
