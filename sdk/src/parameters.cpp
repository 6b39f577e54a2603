#include "zerolab/parameters.h"

#include <utility>

#include <ATen/TensorUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "zerolab/error.h"
#include "zerolab/random.h"

namespace zerolab {

struct Parameters::Callbacks {
  std::function<void(size_t)> ready;
  std::function<void(size_t, const at::Tensor&)> watcher;
};

namespace {

template <class Callbacks>
class GradientHook : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientHook(size_t index, std::shared_ptr<Callbacks> callbacks)
      : index_(index), callbacks_(std::move(callbacks)) {}
  void operator()(const torch::autograd::Variable& parameter) override {
    if (callbacks_->watcher) callbacks_->watcher(index_, parameter.grad());
    callbacks_->ready(index_);
  }

 private:
  size_t index_;
  std::shared_ptr<Callbacks> callbacks_;
};

int64_t count_elements(const std::string& name, const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t d : shape) {
    if (d < 0 || __builtin_mul_overflow(n, d, &n) || n > (int64_t{1} << 60)) {
      throw PluginError("the model declares parameter '" + name +
                        "' with a size that no memory holds or that is negative");
    }
  }
  return n;
}

}  // namespace

Parameters::Parameters() : unit_names_{"root"}, callbacks_(std::make_shared<Callbacks>()) {}
Parameters::~Parameters() = default;

int Parameters::begin_unit(std::string name) {
  unit_names_.push_back(std::move(name));
  current_unit_ = num_units() - 1;
  return current_unit_;
}

void Parameters::end_unit() {
  current_unit_ = 0;
}

at::Tensor Parameters::declare(std::string name, std::vector<int64_t> shape, Init init,
                               ParameterTraits traits) {
  if (find(name) >= 0) throw PluginError("the model declares parameter '" + name + "' twice");
  ParameterInfo info;
  info.name = std::move(name);
  info.numel = count_elements(info.name, shape);
  info.init = init;
  info.decay = traits.decay == ParameterTraits::Decay::kByDimension
                   ? shape.size() >= 2
                   : traits.decay == ParameterTraits::Decay::kYes;
  info.requires_grad = traits.requires_grad;
  info.unit = current_unit_;
  // No memory yet: a tensor of the right shape over an empty storage, which bind() replaces.
  at::Tensor tensor = at::empty({0}, at::TensorOptions().dtype(at::kFloat));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  info.shape = std::move(shape);
  tensor.set_requires_grad(info.requires_grad);
  index_.emplace(info.name, infos_.size());
  infos_.push_back(std::move(info));
  tensors_.push_back(tensor);
  return tensor;
}

void Parameters::alias(std::string_view name, std::string further_name) {
  const int64_t index = find(name);
  if (index < 0)
    throw PluginError("the model ties '" + further_name + "' to '" + std::string(name) +
                      "', which it has not declared");
  if (find(further_name) >= 0)
    throw PluginError("the model declares parameter '" + further_name + "' twice");
  index_.emplace(further_name, static_cast<size_t>(index));
  infos_[static_cast<size_t>(index)].aliases.push_back(std::move(further_name));
}

int64_t Parameters::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? -1 : static_cast<int64_t>(found->second);
}

int64_t Parameters::total_numel(bool trainable_only) const {
  int64_t total = 0;
  for (const ParameterInfo& info : infos_) {
    if (info.requires_grad || !trainable_only) total += info.numel;
  }
  return total;
}

void Parameters::bind(size_t index, const at::Tensor& flat, int64_t offset) {
  const at::NoGradGuard no_grad;
  tensors_[index].set_data(flat.narrow(0, offset, infos_[index].numel).view(infos_[index].shape));
}

void Parameters::freeze(size_t index) {
  infos_[index].requires_grad = false;
  tensors_[index].set_requires_grad(false);
}

// Drawn on the CPU in float32 whatever the device and dtype, so that all of them start from the
// same numbers.
at::Tensor Parameters::initial_values(size_t index, uint64_t seed) const {
  const at::NoGradGuard no_grad;
  const ParameterInfo& info = infos_[index];
  at::Tensor values = at::empty({info.numel}, at::TensorOptions().dtype(at::kFloat));
  if (info.numel == 0) return values;
  at::Generator generator = make_generator(mix_key({seed, name_key(info.name)}));
  switch (info.init.law) {
    case Init::Law::kZeros:
      return values.zero_();
    case Init::Law::kOnes:
      return values.fill_(1);
    case Init::Law::kNormal:
      return values.normal_(info.init.a, info.init.b, generator);
    case Init::Law::kUniform:
      return values.uniform_(info.init.a, info.init.b, generator);
  }
  return values;
}

void Parameters::initialize(size_t index, uint64_t seed) {
  const at::NoGradGuard no_grad;
  if (infos_[index].numel == 0) return;
  tensors_[index].detach().view({-1}).copy_(initial_values(index, seed));
}

void Parameters::on_gradient(std::function<void(size_t)> callback) {
  callbacks_->ready = std::move(callback);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!infos_[i].requires_grad) continue;
    torch::autograd::impl::set_post_acc_grad_hooks(
        tensors_[i], std::make_unique<GradientHook<Callbacks>>(i, callbacks_));
  }
}

void Parameters::watch_gradients(std::function<void(size_t, const at::Tensor&)> watcher) {
  callbacks_->watcher = std::move(watcher);
}

}  // namespace zerolab
