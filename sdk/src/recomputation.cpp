#include "recomputation.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include "zerolab/error.h"

namespace zerolab {
namespace {

class NumberedHooks : public torch::autograd::SavedVariableHooks {
 public:
  explicit NumberedHooks(std::shared_ptr<Recomputation> run) : run_(std::move(run)) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    number_ = run_->number_of(tensor);
    if (number_) return;
    kept_ = tensor;
    version_ = tensor._version();
  }
  at::Tensor call_unpack_hook() override {
    if (number_) return run_->take(*number_);
    check_version(kept_, version_);
    return kept_;
  }

 private:
  std::shared_ptr<Recomputation> run_;
  std::optional<size_t> number_;
  at::Tensor kept_;
  int64_t version_ = 0;
};

/// Sets autocast for a while.
class AutocastGuard {
 public:
  explicit AutocastGuard(const AutocastState& state) : outer_(AutocastState::current()) {
    state.apply();
  }
  ~AutocastGuard() { outer_.apply(); }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  AutocastState outer_;
};

}  // namespace

AutocastState AutocastState::current() {
  AutocastState state;
  state.enabled = at::autocast::is_autocast_enabled(at::kCPU);
  state.cache = at::autocast::is_autocast_cache_enabled();
  state.dtype = at::autocast::get_autocast_dtype(at::kCPU);
  return state;
}

void AutocastState::apply() const {
  at::autocast::set_autocast_enabled(at::kCPU, enabled);
  at::autocast::set_autocast_cache_enabled(cache);
  at::autocast::set_autocast_dtype(at::kCPU, dtype);
}

Recomputation::Recomputation(int unit, at::TensorList inputs, UnitFunction function, uint64_t key)
    : unit_(unit), function_(std::move(function)), key_(key), autocast_(AutocastState::current()) {
  for (const at::Tensor& input : inputs) {
    identities_.push_back(input.unsafeGetTensorImpl());
    inputs_.push_back(input.defined() ? input.detach() : input);
    inputs_need_grad_.push_back(input.defined() && input.requires_grad());
    input_versions_.push_back(input.defined() ? input._version() : 0);
  }
}

std::unique_ptr<torch::autograd::SavedVariableHooks> Recomputation::hooks() {
  return std::make_unique<NumberedHooks>(shared_from_this());
}

std::optional<size_t> Recomputation::number_of(const at::Tensor& tensor) {
  const bool input = std::find(identities_.begin(), identities_.end(),
                               tensor.unsafeGetTensorImpl()) != identities_.end();
  const bool parameter = tensor.is_leaf() && tensor.requires_grad() && !input;
  if (parameter) return std::nullopt;
  if (again_) tensors_.push_back(tensor.detach());
  return again_ ? tensors_.size() - 1 : saved_++;
}

at::Tensor Recomputation::take(size_t number) {
  if (number >= tensors_.size() || !tensors_[number].defined()) run_again();
  return std::move(tensors_[number]);
}

void Recomputation::run_again() {
  tensors_.clear();
  std::vector<at::Tensor> inputs;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].defined()) check_version(inputs_[i], input_versions_[i]);
    inputs.push_back(inputs_[i]);
    if (inputs_need_grad_[i]) inputs.back() = inputs_[i].detach().set_requires_grad(true);
    identities_[i] = inputs.back().unsafeGetTensorImpl();
  }
  again_ = true;
  try {
    const at::AutoGradMode grad(true);
    const AutocastGuard autocast(autocast_);
    const SavedTensorScope scope(this);
    UnitScope unit_scope(/*training=*/true, key_);
    function_(inputs, unit_scope);
  } catch (...) {
    again_ = false;
    throw;
  }
  again_ = false;
  if (tensors_.size() == saved_) return;
  throw PluginError("unit " + std::to_string(unit_) + " of the model saved " +
                    std::to_string(saved_) + " tensors in forward and " +
                    std::to_string(tensors_.size()) +
                    " when it was recomputed: with activation checkpointing a unit's function may "
                    "depend on its inputs, its parameters and its scope alone");
}

}  // namespace zerolab
