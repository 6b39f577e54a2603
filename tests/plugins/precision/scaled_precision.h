#pragma once
// What the tests of precisions share: dtypes by word, and that a loss scale is a GradScaler's.

#include <string>

#include "zerolab/precision.h"

#include "catch.h"
#include "load_plugin.h"

namespace precision_test {

inline zerolab::PrecisionPolicy policy_of(const std::string& id,
                                          const zerolab::OptionValues& options = {}) {
  return load_plugin<zerolab::Precision>(id, options)->policy();
}

inline zerolab::PrecisionPolicy with_gradients(const std::string& id, const std::string& dtype) {
  return policy_of(id, {{"gradient_dtype", dtype}});
}

/// The scale starts, falls, stays above its minimum, grows, and goes on where state() left it.
inline void check_loss_scale(const std::string& id) {
  CHECK(load_plugin<zerolab::Precision>(id)->loss_scale() == 65536);
  const zerolab::OptionValues options = {
      {"init_scale", 8.0},        {"growth_factor", 4.0},
      {"backoff_factor", 0.25},   {"growth_interval", int64_t{2}},
      {"hysteresis", int64_t{2}}, {"min_scale", 1.0}};
  const auto precision = load_plugin<zerolab::Precision>(id, options);
  for (const auto& [finite, expected] :
       {std::pair{false, 8}, {false, 2}, {false, 1}, {true, 1}, {true, 4}, {false, 4}, {true, 4}}) {
    precision->observe(finite);
    CHECK(precision->loss_scale() == expected);
  }
  const auto resumed = load_plugin<zerolab::Precision>(id, options);
  resumed->restore(precision->state());
  for (const bool finite : {true, false, false, true, true}) {
    precision->observe(finite);
    resumed->observe(finite);
    CHECK(resumed->loss_scale() == precision->loss_scale());
  }
  CHECK_FALSE(option_problems(id, {{"init_scale", 1000.0}}).empty());
  CHECK_FALSE(option_problems(id, {{"hysteresis", int64_t{0}}}).empty());
  CHECK_FALSE(option_problems(id, {{"growth_interval", int64_t{0}}}).empty());
}

/// The scale is 1, whatever is observed.
inline void check_no_loss_scale(const std::string& id) {
  const auto precision = load_plugin<zerolab::Precision>(id);
  for (bool finite : {true, false, true}) {
    precision->observe(finite);
    CHECK(precision->loss_scale() == 1);
  }
  CHECK(precision->state().empty());
}

}  // namespace precision_test
