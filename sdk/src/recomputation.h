#pragma once
// Activation checkpointing of one run of a unit: what autograd saves in it is a number, and the
// first number that backward asks for runs the unit again.
//
// Not installed. Ranks: local.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/units.h"

#include "saved_tensors.h"

namespace zerolab {

/// Autocast on the CPU as it is set on this thread.
struct AutocastState {
  bool enabled = false, cache = false;
  at::ScalarType dtype = at::kFloat;
  static AutocastState current();
  void apply() const;
};

class Recomputation : public SavedTensorRule, public std::enable_shared_from_this<Recomputation> {
 public:
  Recomputation(int unit, at::TensorList inputs, UnitFunction function, uint64_t key);
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override;

  /// A tensor that is saved: its number, or nothing if it is kept as it is (a parameter).
  std::optional<size_t> number_of(const at::Tensor& tensor);
  /// The tensor of a number, which is dropped here.
  at::Tensor take(size_t number);

 private:
  void run_again();

  int unit_;
  std::vector<at::Tensor> inputs_;
  std::vector<bool> inputs_need_grad_;
  std::vector<int64_t> input_versions_;
  std::vector<const void*> identities_;  // of the inputs as the function sees them
  UnitFunction function_;
  uint64_t key_;
  AutocastState autocast_;
  bool again_ = false;  // running again
  size_t saved_ = 0;    // tensors with a number
  std::vector<at::Tensor> tensors_;
};

}  // namespace zerolab
