#include "saved_tensors.h"

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "zerolab/error.h"

namespace zerolab {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::SavedVariableHooks;

thread_local SavedTensorRule* current_rule = nullptr;

/// LibTorch asks its engine for the hooks of what it saves; this is the only door from C++.
class HookedEngine : public torch::autograd::Engine {
 public:
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return current_rule == nullptr ? nullptr : current_rule->hooks();
  }
};

torch::autograd::Engine& hooked_engine() {
  static auto* const engine = new HookedEngine;  // threads may still use it while the process ends
  return *engine;
}

void install_engine() {
  static std::once_flag once;
  std::call_once(once, [] { torch::autograd::set_default_engine_stub(&hooked_engine); });
}

/// The parameter that `tensor` is a cast of, or a view of such a cast; undefined for anything else.
at::Tensor cast_parameter(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kFloat || !tensor.is_floating_point()) return {};
  const at::Tensor whole = tensor.is_view() ? at::Tensor(tensor._base()) : tensor;
  const auto& made_by = whole.grad_fn();
  if (!made_by || made_by->name() != "ToCopyBackward0" || made_by->num_outputs() != 1) return {};
  const auto* leaf = dynamic_cast<const AccumulateGrad*>(made_by->next_edge(0).function.get());
  if (leaf == nullptr) return {};
  const at::Tensor& parameter = leaf->variable;
  const bool same = parameter.sizes() == whole.sizes() && parameter.is_contiguous() &&
                    whole.is_contiguous() && whole.storage_offset() == 0;
  return same ? parameter.detach() : at::Tensor();
}

class WeightCopyHooks : public SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override {
    parameter_ = cast_parameter(tensor);
    version_ = parameter_.defined() ? parameter_._version() : tensor._version();
    if (!parameter_.defined()) {
      kept_ = tensor.is_leaf() ? tensor : tensor.detach();  // a node must not own its own output
      return;
    }
    dtype_ = tensor.scalar_type();
    sizes_ = tensor.sizes().vec();
    strides_ = tensor.strides().vec();
    offset_ = tensor.storage_offset();
  }
  at::Tensor call_unpack_hook() override {
    check_version(parameter_.defined() ? parameter_ : kept_, version_);
    if (!parameter_.defined()) return kept_;
    const at::NoGradGuard no_grad;
    return parameter_.to(dtype_).as_strided(sizes_, strides_, offset_);
  }

 private:
  at::Tensor kept_;
  at::Tensor parameter_;
  int64_t version_ = 0;
  at::ScalarType dtype_ = at::kFloat;
  std::vector<int64_t> sizes_, strides_;
  int64_t offset_ = 0;
};

}  // namespace

SavedTensorRule::~SavedTensorRule() = default;

void check_version(const at::Tensor& saved, int64_t version) {
  if (static_cast<int64_t>(saved._version()) == version) return;
  throw PluginError("the model writes in place to a tensor of " + std::to_string(saved.numel()) +
                    " elements that its backward needs; compute a new tensor there instead");
}

SavedTensorScope::SavedTensorScope(SavedTensorRule* rule)
    : outer_(std::exchange(current_rule, rule)) {
  install_engine();
}

SavedTensorScope::~SavedTensorScope() {
  current_rule = outer_;
}

std::unique_ptr<SavedVariableHooks> WeightCopies::hooks() {
  return std::make_unique<WeightCopyHooks>();
}

}  // namespace zerolab
