#include "zerolab/units.h"

#include <ATen/ops/empty_like.h>

#include "zerolab/random.h"

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
}

at::Tensor Units::run(int unit, at::TensorList inputs, const UnitFunction& function) {
  if (listener_ != nullptr) listener_->before_forward(unit);
  UnitScope scope(training_, mix_key({key_, runs_++}));
  at::Tensor output = function(inputs, scope);
  if (listener_ != nullptr) listener_->after_forward(unit);
  return output;
}

}  // namespace zerolab
