#include "scaled_precision.h"

using namespace precision_test;

TEST_CASE("precision/fp16 keeps parameters in float16 and computes in them, without autocast") {
  const zerolab::PrecisionPolicy policy = policy_of("precision/fp16");
  CHECK(policy.parameter_dtype == at::kHalf);
  CHECK(policy.gradient_dtype == at::kFloat);
  CHECK_FALSE(policy.autocast_dtype.has_value());
}

TEST_CASE(
    "precision/fp16 keeps gradients in bfloat16 or float16 if told to, and changes nothing else") {
  CHECK(with_gradients("precision/fp16", "bf16").gradient_dtype == at::kBFloat16);
  CHECK(with_gradients("precision/fp16", "bf16").parameter_dtype == at::kHalf);
  CHECK(with_gradients("precision/fp16", "fp16").gradient_dtype == at::kHalf);
  CHECK_FALSE(option_problems("precision/fp16", {{"gradient_dtype", std::string("fp64")}}).empty());
}

TEST_CASE("precision/fp16 scales the loss dynamically") {
  check_loss_scale("precision/fp16");
}
