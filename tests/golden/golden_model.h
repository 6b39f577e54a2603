#pragma once
// A model plugin with memory of its own, whose weights are set by name.
//
// Errors: std::runtime_error for a name that the model does not have, or a weight left over.

#include <functional>
#include <map>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "zerolab/model.h"
#include "zerolab/options.h"

#include "golden_file.h"

/// By name, as a file has them.
using Weights = std::map<std::string, at::Tensor>;

/// All datasets of a group.
Weights read_weights(const GoldenFile& golden, const std::string& group);

class GoldenModel {
 public:
  GoldenModel(const std::string& plugin, const zerolab::OptionValues& options,
              zerolab::ModelContext context);

  /// Sets every parameter from weights named as `layout` names them; "": as the plugin does.
  void set(const Weights& weights, const std::string& layout);
  /// Something of every parameter (its gradient), named and shaped as `layout` has it.
  Weights of_each(const std::function<at::Tensor(const at::Tensor& parameter)>& take,
                  const std::string& layout) const;

  zerolab::Model& model() { return *model_; }
  zerolab::Units& units() { return units_; }
  zerolab::Parameters& parameters() { return parameters_; }
  const zerolab::Parameters& parameters() const { return parameters_; }

 private:
  zerolab::WeightLayout layout_named(const std::string& name) const;

  std::unique_ptr<zerolab::Model> model_;
  zerolab::Parameters parameters_;
  zerolab::Units units_;
};
