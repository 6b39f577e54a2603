#pragma once
// Units: the pieces in which a model runs. One mechanism for gathering and freeing parameters,
// recomputing activations, and seeding dropout; written once here so that no model and no
// strategy does it again.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "zerolab/export.h"

namespace zerolab {

/// What a sharding strategy may do around a unit. [hot] All [local], unless the strategy's override
/// is collective.
///
/// Order: begin_pass; before_forward(u), after_forward(u) for each run; in training, as backward
/// reaches it, before_backward(u), then after_backward(u) when the gradients of the run's inputs
/// are there; end_pass. When the last run of a unit is left, the gradients of its parameters are
/// there. Unit 0, the root, lives as long as the pass and gets no backward calls. after_backward
/// does not come for a run none of whose inputs was computed from what needs a gradient: end_pass
/// closes it.
class ZEROLAB_API UnitListener {
 public:
  virtual ~UnitListener();
  virtual void begin_pass(bool /*training*/) {}
  virtual void before_forward(int /*unit*/) {}
  virtual void after_forward(int /*unit*/) {}
  virtual void before_backward(int /*unit*/) {}
  virtual void after_backward(int /*unit*/) {}
  virtual void end_pass() {}
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
/// aside, is an input; the parameters that it reads are the unit's own and the root's. It captures
/// nothing that goes away with its caller, draws from the scope alone and leaves its inputs as they
/// are: with activation checkpointing it runs again during backward.
using UnitFunction = std::function<at::Tensor(at::TensorList inputs, UnitScope& scope)>;

/// What autograd saves in a unit is not always kept. Under autocast, low-precision copies of
/// parameters are cast again when backward needs them: kept, they would outlive parameters that a
/// strategy frees. With activation checkpointing (Chen et al., arXiv 1604.06174) nothing is kept of
/// a unit but its inputs: its function runs again when backward reaches it, with the same draws and
/// under the same autocast. The graph stays the one that forward made, so gradients keep every bit.
class ZEROLAB_API Units {
 public:
  Units();
  ~Units();
  Units(const Units&) = delete;
  Units& operator=(const Units&) = delete;
  /// The strategy that listens; null for none. Not owned.
  void set_listener(UnitListener* listener) { listener_ = listener; }
  /// For all units but the root. Off at first.
  void set_activation_checkpointing(bool on) { checkpointing_ = on; }
  /// Before each forward. `key` mixes seed, step and global micro-batch index.
  void begin(bool training, uint64_t key);
  /// After the backward (or after a forward that has none).
  void end();
  bool training() const { return training_; }
  /// Runs unit number `unit` (Parameters::begin_unit) on `inputs`. Units do not nest. Errors, in
  /// backward: PluginError if a recomputation is not what the forward was.
  at::Tensor run(int unit, at::TensorList inputs, const UnitFunction& function);

 private:
  /// The latest output: where backward leaves the unit that takes it and enters the one that made
  /// it.
  struct Boundary;
  void watch_backward(int unit, at::TensorList inputs, const at::Tensor& output);

  UnitListener* listener_ = nullptr;
  bool checkpointing_ = false;
  bool training_ = false;
  uint64_t key_ = 0;
  uint64_t runs_ = 0;  // in this pass: a unit that runs twice draws twice
  std::shared_ptr<Boundary> boundary_;
};

}  // namespace zerolab
