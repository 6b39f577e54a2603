#pragma once
// Trains the awkward model for a few steps on ranks that are threads of this process, and collects
// everything that two strategies must agree on.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/footprint.h"
#include "zerolab/model.h"
#include "zerolab/options.h"
#include "zerolab/state.h"

#include "built_plugins.h"
#include "experiment/experiment.h"

struct Setting {
  std::string sharding = "ddp", precision = "fp32", reduce_every = "micro_batch";
  int ranks = 1;
  int64_t accumulation = 1;
  double clipping = 0.5;
  int64_t bucket = 128;
  int64_t micro_batch_size = 2;
  int64_t steps = 4;
  int64_t num_samples = 0;  ///< of the validation split; 0: all
  double poison_from = -1;  ///< step from which rank 0's loss is not finite
  bool overlap = true, checkpointing = false;
  bool over_gloo = false;                                    ///< instead of through memory
  std::map<std::string, zerolab::OptionValue> options = {};  ///< of the strategy, further ones
  std::map<std::string, zerolab::OptionValue> precision_options = {};
  /// Makes each rank's model; the awkward one (poisoned on rank 0) if there is none.
  std::unique_ptr<zerolab::Model> (*model)(int rank) = nullptr;
};
std::string title(const Setting& s);
zerolab::Experiment experiment_of(const Setting& s);

using Tensors = std::map<std::string, at::Tensor>;

struct Outcome {
  std::vector<double> losses, norms, val_losses;
  std::vector<bool> skipped;
  int64_t bytes_moved = 0;
  Tensors state;       ///< "parameter/state" assembled from all ranks' pieces
  Tensors parameters;  ///< what the last rank's model computes with; none if units free them
  std::vector<double> parameter_sums;    ///< by rank, of what its model computes with
  std::vector<zerolab::HeldBytes> held;  ///< by rank
  zerolab::Footprint predicted;
  std::array<zerolab::CollectiveTraffic, zerolab::kNumCollectiveKinds> moved{};  ///< last step's
};

/// Adds one rank's pieces to whole tensors.
void collect_state(const std::vector<zerolab::StatePiece>& pieces, Tensors& whole);

/// Errors: what a rank throws first.
Outcome run(const Setting& s);

void check_same_tensors(const Tensors& a, const Tensors& b);
/// Losses, norms, validation losses, parameters and states, to the last bit.
void check_bit_identical(const Outcome& a, const Outcome& b);
/// Held and moved bytes are what footprint() said.
void check_prediction(const Outcome& outcome);
