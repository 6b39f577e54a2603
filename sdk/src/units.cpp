#include "zerolab/units.h"

#include <memory>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include "zerolab/random.h"

#include "recomputation.h"
#include "saved_tensors.h"

namespace zerolab {

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
  boundary_ = {};
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
/// (its inputs' are). Where one unit's output is the next one's input, both happen at once: the
/// unit that is done goes before the next one comes.
void Units::watch_backward(int unit, at::TensorList inputs, const at::Tensor& output) {
  UnitListener* const listener = listener_;
  const auto open = std::make_shared<int>(0);
  for (const at::Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) ++*open;
  }
  const auto leave = [listener, unit, open] {
    if (--*open == 0) listener->after_backward(unit);
  };
  for (const at::Tensor& input : inputs) {
    if (!input.defined() || !input.requires_grad()) continue;
    if (input.unsafeGetTensorImpl() != boundary_.tensor) {
      input.register_hook([leave](const at::Tensor&) { leave(); });
      continue;
    }
    input.remove_hook(boundary_.hook);
    const int before = boundary_.unit;
    input.register_hook([leave, listener, before](const at::Tensor&) {
      leave();
      listener->before_backward(before);
    });
    boundary_ = {};
  }
  if (!output.requires_grad()) return;
  const unsigned hook = output.register_hook(
      [listener, unit](const at::Tensor&) { listener->before_backward(unit); });
  boundary_ = {output.unsafeGetTensorImpl(), hook, unit};
}

}  // namespace zerolab
