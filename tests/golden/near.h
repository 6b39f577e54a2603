#pragma once
// How far two tensors are apart, relative to all of what is expected: rounding errors of a sum go
// with its terms, not with a result that happens to be near zero.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include "catch.h"

inline double largest_magnitude(const at::Tensor& x) {
  return x.numel() == 0 ? 0.0 : x.to(at::kDouble).abs().max().item<double>();
}

/// max |got - expected| / max |expected|; the plain difference where all of `expected` is zero.
inline double relative_distance(const at::Tensor& got, const at::Tensor& expected) {
  REQUIRE(got.sizes() == expected.sizes());
  const double scale = largest_magnitude(expected);
  const double difference = largest_magnitude(got.to(at::kDouble) - expected.to(at::kDouble));
  return scale == 0 ? difference : difference / scale;
}

/// |got - expected| / |expected| as vectors: for sums of many terms, whose worst element differs
/// from one processor to another.
inline double relative_norm(const at::Tensor& got, const at::Tensor& expected) {
  REQUIRE(got.sizes() == expected.sizes());
  const at::Tensor exact = expected.to(at::kDouble);
  return ((got.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}
