#pragma once
// Units: the pieces in which a model runs. One mechanism for gathering and freeing parameters,
// recomputing activations, and seeding dropout; written once here so that no model and no
// strategy does it again.

#include <cstdint>
#include <functional>
#include <optional>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "zerolab/export.h"

namespace zerolab {

/// What a sharding strategy may do around a unit. [hot] All [local], unless the strategy's override
/// is collective.
class ZEROLAB_API UnitListener {
 public:
  virtual ~UnitListener();
  virtual void before_forward(int /*unit*/) {}
  virtual void after_forward(int /*unit*/) {}
};

/// Handed to a unit's function.
class ZEROLAB_API UnitScope {
 public:
  UnitScope(bool training, uint64_t key) : training_(training), key_(key) {}
  bool training() const { return training_; }
  /// The unit's generator, keyed by (seed, step, global micro-batch, how many runs came before):
  /// the same draws on a recomputation, on any number of ranks. Made at its first use.
  at::Generator& generator();
  /// Inverted dropout from generator(); the input itself when not training or `probability` is 0;
  /// below 1.
  at::Tensor dropout(const at::Tensor& x, double probability);

 private:
  bool training_;
  uint64_t key_;
  std::optional<at::Generator> generator_;
};

/// [hot] Computes a unit from its inputs. Every gradient-requiring tensor that it reads, parameters
/// aside, is an input.
using UnitFunction = std::function<at::Tensor(at::TensorList inputs, UnitScope& scope)>;

class ZEROLAB_API Units {
 public:
  Units();
  ~Units();
  /// The strategy that listens; null for none. Not owned.
  void set_listener(UnitListener* listener) { listener_ = listener; }
  /// Before each micro-batch. `key` mixes seed, step and global micro-batch index.
  void begin(bool training, uint64_t key);
  bool training() const { return training_; }
  /// Runs unit number `unit` (Parameters::begin_unit) on `inputs`.
  at::Tensor run(int unit, at::TensorList inputs, const UnitFunction& function);

 private:
  UnitListener* listener_ = nullptr;
  bool training_ = false;
  uint64_t key_ = 0;
  uint64_t runs_ = 0;  // in this micro-batch: a unit that runs twice draws twice
};

}  // namespace zerolab
