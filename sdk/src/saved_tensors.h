#pragma once
// What autograd keeps between forward and backward, decided by us: LibTorch asks a hook about each
// tensor that a node saves while a SavedTensorScope is open on the thread.
//
// Not installed. Ranks: local.

#include <memory>

#include <torch/csrc/autograd/saved_variable_hooks.h>

namespace zerolab {

/// Makes the hooks of one saved tensor.
class SavedTensorRule {
 public:
  virtual ~SavedTensorRule();
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;
};

/// While it lives, `rule` decides on this thread. Scopes nest; a null rule means autograd's own.
class SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorRule* rule);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

 private:
  SavedTensorRule* outer_;
};

/// Throws if a saved tensor was written to since: what autograd checks itself where no hook is.
void check_version(const at::Tensor& saved, int64_t version);

/// Casts low-precision copies of parameters again instead of keeping them.
class WeightCopies : public SavedTensorRule {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override;
};

}  // namespace zerolab
