#pragma once
// A model as a checkpoint has it, in this process alone: to generate with, or to be evaluated. No
// sharding, no optimizer.
//
// Ranks: local.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/data.h"
#include "zerolab/model.h"
#include "zerolab/parameters.h"
#include "zerolab/precision.h"
#include "zerolab/units.h"

#include "experiment/experiment.h"
#include "host/plugin_host.h"
#include "store/manifest.h"
#include "train/resumption.h"

namespace zerolab {

struct TrainedModelRequest {
  CheckpointName from;
  std::vector<std::string> overrides;  ///< of the configuration that the checkpoint was saved with
  PluginSearch search;                 ///< without the experiment's own entries
  /// Of parameters and compute, without autocast; nothing: as the run's precision has it.
  std::optional<at::ScalarType> dtype;
};

/// Parameters are views of `memory`.
struct TrainedModel {
  Experiment experiment;  ///< resolved for the ranks that the checkpoint was saved on
  CheckpointManifest manifest;
  PrecisionPolicy precision;
  std::unique_ptr<Data> data;  ///< open
  std::unique_ptr<Model> model;
  Parameters parameters;
  at::Tensor memory;
  Units units;
};

/// [setup] The checkpoint that is named; of a run, the newest one that can be read, with a warning
/// for each that is damaged. Sets LibTorch's number of threads: the experiment's, or all cores that
/// this process may use.
///
/// Errors: ConfigError if there is no checkpoint, the data has another vocabulary than the model,
/// or parameters do not fit; PluginError; StoreError that names the file if a checkpoint that was
/// named, or every one, is damaged.
std::unique_ptr<TrainedModel> load_trained_model(const TrainedModelRequest& request);

/// [local] Cores that this process may use.
int usable_cores();

/// Whether tokens of this data stand for text.
bool has_text(const Data& data);

}  // namespace zerolab
