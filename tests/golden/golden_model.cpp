#include "golden_model.h"

#include <set>
#include <stdexcept>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "plugins/load_plugin.h"

Weights read_weights(const GoldenFile& golden, const std::string& group) {
  Weights weights;
  for (const std::string& name : golden.names(group)) {
    weights[name] = golden.tensor(group + "/" + name);
  }
  return weights;
}

GoldenModel::GoldenModel(const std::string& plugin, const zerolab::OptionValues& options,
                         zerolab::ModelContext context)
    : model_(load_plugin<zerolab::Model>("model/" + plugin, options)) {
  model_->declare(parameters_, context);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_.bind(i, at::zeros({parameters_.info(i).numel}), 0);
    parameters_.initialize(i, 1);
  }
  units_.begin(/*training=*/false, 0);
}

/// The plugin's own names are a layout too.
zerolab::WeightLayout GoldenModel::layout_named(const std::string& name) const {
  if (name.empty()) {
    zerolab::WeightLayout own;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      own.weights.push_back({parameters_.info(i).name, parameters_.info(i).name, false});
    }
    return own;
  }
  for (zerolab::WeightLayout& layout : model_->weight_layouts()) {
    if (layout.name == name) return layout;
  }
  throw std::runtime_error("the model has no layout '" + name + "'");
}

void GoldenModel::set(const Weights& weights, const std::string& layout) {
  const at::NoGradGuard no_grad;
  std::set<int64_t> is_set;
  size_t used = 0;
  for (const zerolab::ForeignWeight& weight : layout_named(layout).weights) {
    const int64_t index = parameters_.find(weight.parameter);
    if (index < 0) throw std::runtime_error("no parameter " + weight.parameter);
    const auto found = weights.find(weight.name);
    if (found == weights.end()) continue;
    ++used;
    if (!is_set.insert(index).second) continue;  // a tied weight's second name
    const at::Tensor& parameter = parameters_.tensor(static_cast<size_t>(index));
    const at::Tensor value = weight.transposed ? found->second.t() : found->second;
    if (value.sizes() != parameter.sizes()) {
      throw std::runtime_error("the shape of " + weight.name + " is another");
    }
    parameter.detach().copy_(value);
  }
  if (is_set.size() != parameters_.size()) throw std::runtime_error("a parameter was not set");
  if (used != weights.size()) throw std::runtime_error("a weight was not used");
}

Weights GoldenModel::of_each(const std::function<at::Tensor(const at::Tensor&)>& take,
                             const std::string& layout) const {
  Weights all;
  for (const zerolab::ForeignWeight& weight : layout_named(layout).weights) {
    const auto index = static_cast<size_t>(parameters_.find(weight.parameter));
    const at::Tensor value = take(parameters_.tensor(index));
    all[weight.name] = weight.transposed ? value.t() : value;
  }
  return all;
}
