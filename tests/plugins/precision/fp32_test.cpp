#include "scaled_precision.h"

using namespace precision_test;

TEST_CASE("precision/fp32 keeps everything in float32 and does not autocast") {
  const zerolab::PrecisionPolicy policy = policy_of("precision/fp32");
  CHECK(policy.parameter_dtype == at::kFloat);
  CHECK(policy.gradient_dtype == at::kFloat);
  CHECK_FALSE(policy.autocast_dtype.has_value());
}

TEST_CASE("precision/fp32 keeps gradients in bfloat16 if told to, and changes nothing else") {
  CHECK(with_gradients("precision/fp32", "bf16").gradient_dtype == at::kBFloat16);
  CHECK(with_gradients("precision/fp32", "bf16").parameter_dtype == at::kFloat);
  CHECK_FALSE(option_problems("precision/fp32", {{"gradient_dtype", std::string("fp16")}}).empty());
}

TEST_CASE("precision/fp32 never scales the loss, whatever it observes") {
  check_no_loss_scale("precision/fp32");
}
