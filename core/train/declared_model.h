#pragma once
// A model's parameters as an experiment wants them: declared, and what it freezes frozen.
// Ranks: local.

#include <string>
#include <vector>

#include "zerolab/model.h"

#include "experiment/experiment.h"

namespace zerolab {

/// Declares the experiment's model and freezes what its `freeze` names. Errors: what declare()
/// throws; ConfigError as freeze_parameters().
void declare_model(Model& model, const Experiment& experiment, int64_t vocab_size,
                   Parameters& parameters);

/// Freezes every parameter that has a name or alias like one of `patterns` (* and ?, as a shell has
/// them). Between declare() and the strategy's attach(). Errors: ConfigError for a pattern that no
/// name is like, and if nothing is left to train.
void freeze_parameters(const std::vector<std::string>& patterns, Parameters& parameters);

/// The first few of many, for an error: "'a', 'b', 'c' and 7 more".
std::string first_of(const std::vector<std::string>& words);

}  // namespace zerolab
