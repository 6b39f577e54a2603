#include "scaled_precision.h"

using namespace precision_test;

TEST_CASE(
    "precision/bf16_scaled keeps parameters in bfloat16 and computes in them, without autocast") {
  const zerolab::PrecisionPolicy policy = policy_of("precision/bf16_scaled");
  CHECK(policy.parameter_dtype == at::kBFloat16);
  CHECK(policy.gradient_dtype == at::kFloat);
  CHECK_FALSE(policy.autocast_dtype.has_value());
}

TEST_CASE(
    "precision/bf16_scaled keeps gradients in bfloat16 if told to, and changes nothing else") {
  CHECK(with_gradients("precision/bf16_scaled", "bf16").gradient_dtype == at::kBFloat16);
  CHECK(with_gradients("precision/bf16_scaled", "bf16").parameter_dtype == at::kBFloat16);
  CHECK_FALSE(
      option_problems("precision/bf16_scaled", {{"gradient_dtype", std::string("fp16")}}).empty());
}

TEST_CASE("precision/bf16_scaled scales the loss dynamically") {
  check_loss_scale("precision/bf16_scaled");
}
