#include "zerolab/precision.h"

#include "catch.h"
#include "load_plugin.h"

TEST_CASE("precision/fp32 keeps everything in float32 and does not autocast") {
  const auto precision = load_plugin<zerolab::Precision>("precision/fp32");
  const zerolab::PrecisionPolicy policy = precision->policy();
  CHECK(policy.parameter_dtype == at::kFloat);
  CHECK(policy.gradient_dtype == at::kFloat);
  CHECK_FALSE(policy.autocast_dtype.has_value());
}

TEST_CASE("precision/fp32 never scales the loss, whatever it observes") {
  const auto precision = load_plugin<zerolab::Precision>("precision/fp32");
  for (bool finite : {true, false, true}) {
    precision->observe(finite);
    CHECK(precision->loss_scale() == 1);
  }
}
