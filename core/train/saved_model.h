#pragma once
// A model whose parameters are those of a checkpoint, found without its data.
// Ranks: local.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "zerolab/model.h"
#include "zerolab/parameters.h"

#include "experiment/experiment.h"
#include "store/tensor_source.h"

namespace zerolab {

/// A model as a checkpoint has it.
struct SavedModel {
  std::unique_ptr<Model> model;
  std::unique_ptr<Parameters> parameters;
  int64_t vocab_size = 0;  ///< with which it was declared
};

/// Declares a model so that its parameters are those of a checkpoint, without its data: the size of
/// the vocabulary is the one that gives their shapes. `make` gives a new model at each call.
/// Errors: ConfigError that lists what does not fit if no size does.
SavedModel declare_as_saved(const std::function<std::unique_ptr<Model>()>& make,
                            const Experiment& experiment, const TensorSource& saved,
                            const std::string& title);

}  // namespace zerolab
