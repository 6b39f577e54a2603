#pragma once
// A small model's parameters, and sources of weights that are in memory.

#include <cstring>
#include <string>
#include <vector>

#include "zerolab/parameters.h"

#include "store/tensor_source.h"

/// A tied embedding, a matrix that is square and one that is not, and a vector.
inline void declare_small(zerolab::Parameters& parameters, int64_t vocabulary = 5) {
  using zerolab::Init;
  parameters.declare("words", {vocabulary, 3}, Init::normal(0, 1));
  parameters.alias("words", "head");
  parameters.declare("square", {3, 3}, Init::normal(0, 1));
  parameters.declare("wide", {6, 3}, Init::normal(0, 1));
  parameters.declare("norm", {3}, Init::ones());
}

/// Adds a tensor whose elements count up from `begin`.
inline void add_tensor(zerolab::TensorSource& source, const std::string& name,
                       std::vector<int64_t> shape, float begin = 0,
                       const std::string& state = zerolab::kParameterState) {
  int64_t length = 1;
  for (const int64_t size : shape) length *= size;
  std::vector<float> values(static_cast<size_t>(length));
  for (size_t i = 0; i < values.size(); ++i) values[i] = begin + static_cast<float>(i);
  const zerolab::PieceInfo info{name, state, std::move(shape), zerolab::TensorDtype::kFloat32,
                                0,    length};
  source.tensors.push_back({info, [values](int64_t first, int64_t count, void* out) {
                              std::memcpy(out, values.data() + first,
                                          static_cast<size_t>(count) * sizeof(float));
                            }});
}

/// The small model's weights under its own names.
inline zerolab::TensorSource own_weights() {
  zerolab::TensorSource source;
  add_tensor(source, "words", {5, 3}, 100);
  add_tensor(source, "square", {3, 3}, 200);
  add_tensor(source, "wide", {6, 3}, 300);
  add_tensor(source, "norm", {3}, 400);
  return source;
}
