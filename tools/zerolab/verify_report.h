#pragma once
// What `zerolab verify` prints about two runs.

#include <string>

#include "train/verdict.h"

namespace zerolab {

/// Tables for people: each step, then the tensors that differ (at most twenty, the worst first; or
/// `all` tensors in their order), then the verdict, if it is a good one.
std::string verification_text(const Verification& result, bool all);
/// One JSON object with every step and tensor.
std::string verification_json(const Verification& result);

}  // namespace zerolab
