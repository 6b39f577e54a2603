#pragma once
// A model's parameters: declared first, given memory by the sharding strategy, filled from keyed
// generators.
//
// Order: the model declares (unit by unit, in forward order); the strategy lays them out and
// binds memory; initialize() fills. A declared tensor is the one the model computes with from
// then on: binding changes its storage, not its identity.
// Ranks: local; every rank declares the same.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/export.h"

namespace zerolab {

/// How a parameter is filled, from a generator keyed by (seed, first name): the same at any world
/// size.
struct Init {
  enum class Law { kZeros, kOnes, kNormal, kUniform };
  Law law = Law::kZeros;
  double a = 0, b = 0;  ///< normal: mean, standard deviation; uniform: low, high

  static Init zeros() { return {}; }
  static Init ones() { return {Law::kOnes}; }
  static Init normal(double mean, double stddev) { return {Law::kNormal, mean, stddev}; }
  static Init uniform(double low, double high) { return {Law::kUniform, low, high}; }
};

struct ParameterInfo {
  std::string name;
  std::vector<std::string> aliases;  ///< further names of a tied weight
  std::vector<int64_t> shape;
  int64_t numel = 0;
  Init init;
  bool decay = true;  ///< weight decay applies (unless told otherwise: at least two dimensions)
  bool requires_grad = true;  ///< false: frozen; never reduced, never updated
  int unit = 0;               ///< where it lives; 0 is the root unit
};

struct ParameterTraits {
  enum class Decay { kByDimension, kYes, kNo };
  Decay decay = Decay::kByDimension;
  bool requires_grad = true;
};

class ZEROLAB_API Parameters {
 public:
  Parameters();
  ~Parameters();
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  /// Starts a unit (a block that is gathered, freed and recomputed as one); returns its number.
  /// Until the first call, and for weights that several units use, parameters belong to the root
  /// unit 0.
  int begin_unit(std::string name);
  /// Returns to the root unit.
  void end_unit();

  /// Declares a parameter. `name` is unique in the model ("blocks.3.mlp.fc.weight").
  /// Errors: PluginError on a second declaration of a name. Owns: shares the tensor with the model.
  at::Tensor declare(std::string name, std::vector<int64_t> shape, Init init,
                     ParameterTraits traits = {});
  /// From now on a constant, whatever the model declared. Between declare() and the strategy's
  /// attach().
  void freeze(size_t index);
  /// A further name of a parameter that exists (a tied head).
  void alias(std::string_view name, std::string further_name);

  size_t size() const { return infos_.size(); }
  const ParameterInfo& info(size_t index) const { return infos_[index]; }
  const at::Tensor& tensor(size_t index) const { return tensors_[index]; }
  /// Index of a name or alias; -1 if there is none.
  int64_t find(std::string_view name) const;
  int num_units() const { return static_cast<int>(unit_names_.size()); }
  const std::string& unit_name(int unit) const { return unit_names_[static_cast<size_t>(unit)]; }
  int64_t total_numel(bool trainable_only = false) const;

  /// Lets a parameter live in `flat[offset, offset + numel)`; the tensor that the model holds
  /// becomes a view of it.
  void bind(size_t index, const at::Tensor& flat, int64_t offset);
  /// What a parameter starts with, from its own generator: [numel] float32, in new memory.
  at::Tensor initial_values(size_t index, uint64_t seed) const;
  /// Fills a bound parameter with them, rounded to its dtype.
  void initialize(size_t index, uint64_t seed);
  /// Calls back with a parameter's index when its gradient of this backward is complete (never for
  /// an unused or frozen one), on the thread that called backward. One callback for all; setting
  /// replaces. [hot]
  void on_gradient(std::function<void(size_t index)> callback);
  /// Shows each gradient, before on_gradient's callback takes it, to a function that only looks; an
  /// empty one ends that. For diagnoses: it costs a look at every gradient.
  void watch_gradients(std::function<void(size_t index, const at::Tensor& gradient)> watcher);

 private:
  std::vector<ParameterInfo> infos_;
  std::vector<at::Tensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;  // names and aliases
  std::vector<std::string> unit_names_;
  int current_unit_ = 0;
  struct Callbacks;
  std::shared_ptr<Callbacks> callbacks_;  // shared with the hooks on the tensors
};

}  // namespace zerolab
