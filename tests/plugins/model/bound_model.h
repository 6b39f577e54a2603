#pragma once
// A model under test with memory of its own, as a strategy would give it, and what its tests
// compare with. Legend: B sequences, T tokens, V vocabulary.

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>

#include "zerolab/model.h"
#include "zerolab/random.h"

#include "load_plugin.h"

namespace model_test {

using zerolab::OptionValues;

/// `options` with `more` put over them.
inline OptionValues with(OptionValues options, const OptionValues& more) {
  for (const auto& [name, value] : more) options.insert_or_assign(name, value);
  return options;
}

struct BoundModel {
  BoundModel(const std::string& id, const OptionValues& options, int64_t V = 11, int64_t T = 6,
             uint64_t seed = 1, at::ScalarType dtype = at::kFloat)
      : vocab_size(V), sequence_length(T), model(load_plugin<zerolab::Model>(id, options)) {
    model->declare(parameters, {.vocab_size = V, .sequence_length = T});
    flat = at::zeros({parameters.total_numel()}, dtype);
    int64_t offset = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters.bind(i, flat, offset);
      parameters.initialize(i, seed);
      offset += parameters.info(i).numel;
    }
    batch.tokens = at::randint(V, {3, T}, zerolab::make_generator(5), at::kLong);
    batch.targets = at::randint(V, {3, T}, zerolab::make_generator(6), at::kLong);
    batch.num_targets = 3 * T;
    units.begin(/*training=*/false, 0);
  }
  const at::Tensor& tensor(const std::string& name) const {
    const int64_t index = parameters.find(name);
    if (index < 0) throw std::runtime_error("no parameter " + name);
    return parameters.tensor(static_cast<size_t>(index));
  }
  at::Tensor logits() { return model->logits(batch.tokens, units); }
  at::Tensor loss() { return model->loss(batch, units); }
  at::Tensor loss(uint64_t key) {
    units.begin(/*training=*/true, key);
    return model->loss(batch, units);
  }
  void forget_gradients() {
    for (size_t i = 0; i < parameters.size(); ++i) parameters.tensor(i).mutable_grad().reset();
  }
  std::vector<at::Tensor> current_gradients() const {
    std::vector<at::Tensor> all;
    for (size_t i = 0; i < parameters.size(); ++i) all.push_back(parameters.tensor(i).grad());
    return all;
  }
  /// All gradients after a backward of the loss, in order of declaration.
  std::vector<at::Tensor> gradients() {
    forget_gradients();
    loss().backward();
    return current_gradients();
  }

  int64_t vocab_size, sequence_length;
  std::unique_ptr<zerolab::Model> model;
  zerolab::Parameters parameters;
  zerolab::Units units;
  zerolab::Batch batch;
  at::Tensor flat;
};

/// Sum over counted targets of -log softmax, from logits.
inline at::Tensor cross_entropy_sum(const at::Tensor& logits_BTV, const at::Tensor& targets_BT) {
  const at::Tensor counted = targets_BT.ne(zerolab::kIgnoredTarget);
  const at::Tensor safe = targets_BT.clamp_min(0).unsqueeze(-1);
  const at::Tensor log_p = at::log_softmax(logits_BTV, -1).gather(-1, safe).squeeze(-1);
  return -(log_p * counted).sum();
}

inline double largest(const at::Tensor& x) {
  return x.abs().max().item<double>();
}

/// Moves norms and biases away from one and zero, so that a test sees them.
inline void disturb(BoundModel& bound) {
  const at::NoGradGuard no_grad;
  bound.flat.add_(at::randint(-100, 100, bound.flat.sizes(), zerolab::make_generator(3), at::kLong)
                      .to(at::kFloat) *
                  2e-3);
}

}  // namespace model_test
