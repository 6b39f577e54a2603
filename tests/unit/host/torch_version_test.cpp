#include "host/torch_version.h"

#include <torch/headeronly/version.h>

#include "catch.h"
#include "fixture.h"

using host_test::contains;

TEST_CASE("the LibTorch that the tests run with is the one they were built with") {
  CHECK_NOTHROW(zerolab::require_built_torch());
}

TEST_CASE("another loaded LibTorch is named beside the one that was built with") {
  CHECK(zerolab::torch_mismatch(TORCH_ABI_VERSION).empty());
  CHECK(zerolab::torch_mismatch(TORCH_ABI_VERSION + 5).empty());  // only the tag differs
  const uint64_t later = (2ULL << 56) + (99ULL << 48) + (1ULL << 40);
  const std::string message = zerolab::torch_mismatch(later);
  CHECK(contains(message, "2.99.1"));
  CHECK(contains(message, TORCH_VERSION));
  CHECK(contains(zerolab::torch_mismatch(0), "unknown version"));
}
