#pragma once
// The option `gradient_dtype` of precision plugins: what gradients are kept and summed in.

#include <string>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include "zerolab/options.h"

namespace zerolab {

struct GradientDtypeOptions {
  std::string gradient_dtype = "fp32";

  /// Describes the field above; for the describe() of a struct that derives from this. `words` out
  /// of "fp32", "bf16" and "fp16"; the last needs a loss scale.
  template <class Options>
  static void describe_into(Describe<Options>& d, std::vector<std::string> words) {
    d.field("gradient_dtype",
            static_cast<std::string Options::*>(&GradientDtypeOptions::gradient_dtype),
            "what gradients are kept, sent and summed in; each addition is float32, rounded to it")
        .one_of(std::move(words));
  }
  at::ScalarType dtype() const {
    if (gradient_dtype == "bf16") return at::kBFloat16;
    return gradient_dtype == "fp16" ? at::kHalf : at::kFloat;
  }
};

}  // namespace zerolab
