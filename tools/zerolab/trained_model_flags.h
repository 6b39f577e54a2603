#pragma once
// Flags of the verbs that use a trained model: generate and evaluate.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "train/trained_model.h"
#include "verbs.h"

namespace zerolab {

struct TrainedModelFlags {
  PluginFlags plugins;
  std::string run, dtype = "run";
  std::vector<std::string> overrides;
  bool trust_plugin_path = false;
};

void add_trained_model_flags(CLI::App& verb, TrainedModelFlags& flags);
/// Errors: as load_trained_model().
std::unique_ptr<TrainedModel> load_trained_model(const TrainedModelFlags& flags);

/// "runs/experiment-1, step 500"
std::string title_of(const TrainedModelFlags& flags, const TrainedModel& trained);

/// Runs `body`; what LibTorch throws in it becomes a sentence.
void with_plain_errors(const std::function<void()>& body);

}  // namespace zerolab
