#include "zerolab/units.h"

#include <memory>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/function.h>

#include "zerolab/random.h"

#include "recomputation.h"
#include "saved_tensors.h"

namespace zerolab {

struct Units::Boundary {
  explicit Boundary(const at::Tensor& output)
      : tensor(output.getIntrusivePtr()), made_by(output.grad_fn().get()) {}
  /// The same tensor, and not changed in place since: that makes it the output of something else.
  bool is(const at::Tensor& input) const {
    return tensor._unsafe_get_target() == input.unsafeGetTensorImpl() &&
           made_by == input.grad_fn().get();
  }
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor;  // weak: its address is not used again
  const torch::autograd::Node* made_by;
  std::function<void()> leave;  // of the unit that takes it
};

UnitListener::~UnitListener() = default;
Units::Units() = default;
Units::~Units() = default;

at::Generator& UnitScope::generator() {
  if (!generator_) generator_ = make_generator(key_);
  return *generator_;
}

at::Tensor UnitScope::dropout(const at::Tensor& x, double probability) {
  if (!training_ || probability <= 0) return x;
  const double keep = 1 - probability;
  const at::Tensor mask =
      at::empty_like(x, at::MemoryFormat::Contiguous).bernoulli_(keep, generator());
  return x.mul(mask.mul_(1 / keep));
}

void Units::begin(bool training, uint64_t key) {
  training_ = training;
  key_ = key;
  runs_ = 0;
  boundary_.reset();
  if (listener_ != nullptr) listener_->begin_pass(training);
}

void Units::end() {
  if (listener_ != nullptr) listener_->end_pass();
}

at::Tensor Units::run(int unit, at::TensorList inputs, const UnitFunction& function) {
  const uint64_t key = mix_key({key_, runs_++});
  if (listener_ != nullptr) listener_->before_forward(unit);
  const bool graph = training_ && at::GradMode::is_enabled();
  at::Tensor output;
  {
    std::shared_ptr<SavedTensorRule> rule;
    if (graph && checkpointing_ && unit != 0) {
      rule = std::make_shared<Recomputation>(unit, inputs, function, key);
    } else if (graph && at::autocast::is_autocast_enabled(at::kCPU)) {
      rule = std::make_shared<WeightCopies>();
    }
    const SavedTensorScope saved(rule.get());
    UnitScope scope(training_, key);
    output = function(inputs, scope);
  }
  if (listener_ != nullptr) {
    listener_->after_forward(unit);
    if (graph && unit != 0) watch_backward(unit, inputs, output);
  }
  return output;
}

/// Calls the listener as backward enters the unit (its output's gradient is there) and leaves it
/// (its inputs' are). Where one unit's output is the next one's input, both happen in one hook: the
/// unit that is done goes before the next one comes. Leaves of the graph are no inputs in this
/// sense: a hook on one would stay for ever.
void Units::watch_backward(int unit, at::TensorList inputs, const at::Tensor& output) {
  UnitListener* const listener = listener_;
  const auto open = std::make_shared<int>(0);
  const auto computed = [](const at::Tensor& t) {
    return t.defined() && t.requires_grad() && !t.is_leaf();
  };
  for (const at::Tensor& input : inputs) *open += computed(input) ? 1 : 0;
  const auto leave = [listener, unit, open] {
    if (--*open == 0) listener->after_backward(unit);
  };
  for (const at::Tensor& input : inputs) {
    if (!computed(input)) continue;
    if (boundary_ && boundary_->is(input) && !boundary_->leave) {
      boundary_->leave = leave;
    } else {
      input.register_hook([leave](const at::Tensor&) { leave(); });
    }
  }
  if (!output.requires_grad() || output.is_leaf()) return;
  boundary_ = std::make_shared<Boundary>(output);
  output.register_hook([listener, unit, boundary = boundary_](const at::Tensor&) {
    if (boundary->leave) boundary->leave();
    listener->before_backward(unit);
  });
}

}  // namespace zerolab
