#include "train/trained_model.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <thread>

#include <sched.h>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "zerolab/error.h"
#include "zerolab/log.h"

#include "store/checkpoint_folder.h"
#include "store/run_folder.h"
#include "store/tensor_source.h"
#include "train/saved_model.h"
#include "train/weight_match.h"
#include "train/weight_reader.h"

namespace zerolab {
namespace {

constexpr int64_t kAlignment = 16;  // elements; one vector of the widest registers

/// The vocabulary's size with which the model would fit; 0 if it does with none.
int64_t fitting_vocabulary(const Experiment& experiment, const TensorSource& source,
                           PluginHost& host) {
  try {
    return declare_as_saved([&] { return host.create<Model>(experiment); }, experiment, source, "")
        .vocab_size;
  } catch (const Error&) {
    return 0;
  }
}

/// Which of a checkpoint's tensors is which parameter. Errors: ConfigError that says whether
/// another vocabulary would fit.
WeightMatch match_parameters(const TrainedModel& trained, const TensorSource& source,
                             PluginHost& host) {
  const std::string title = "the checkpoint of step " + std::to_string(trained.manifest.point.step);
  try {
    return match_weights(source, trained.parameters, {}, title);
  } catch (const ConfigError&) {
    const int64_t fitting = fitting_vocabulary(trained.experiment, source, host);
    if (fitting == 0) throw;
    throw ConfigError("the data's vocabulary has " + std::to_string(trained.data->vocab_size()) +
                      " tokens, but the model in " + title + " was made for " +
                      std::to_string(fitting) +
                      "; give it data of the vocabulary that it was trained with.");
  }
}

/// Gives each parameter its memory and what the checkpoint has of it, one after the other.
void read_parameters(TrainedModel& trained, const TensorSource& source, const WeightMatch& match) {
  const at::NoGradGuard no_grad;
  Parameters& parameters = trained.parameters;
  int64_t total = 0;
  std::vector<int64_t> offsets;
  for (size_t i = 0; i < parameters.size(); ++i) {
    offsets.push_back(total);
    total += (parameters.info(i).numel + kAlignment - 1) / kAlignment * kAlignment;
  }
  const at::ScalarType dtype = trained.precision.parameter_dtype;
  trained.memory = at::empty({total}, at::TensorOptions().dtype(dtype));
  WeightReader reader(source);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int64_t numel = parameters.info(i).numel;
    parameters.bind(i, trained.memory, offsets[i]);
    if (numel == 0) continue;
    reader.read(match.origins[i].front(), 0, trained.memory.narrow(0, offsets[i], numel));
  }
}

std::unique_ptr<TrainedModel> load_step(const TrainedModelRequest& request, int64_t step) {
  const CheckpointFolder folder(request.from.run);
  folder.text(step, kConfigName);  // as it was saved, or an error
  const TensorSource source = open_checkpoint_tensors(folder.path(step));
  const ExperimentFile file =
      ExperimentFile::load(folder.path(step) / kConfigName, request.overrides);
  PluginSearch search = request.search;
  search.from_experiment = file.plugin_path();
  PluginHost host(search);

  auto trained = std::make_unique<TrainedModel>();
  trained->manifest = folder.manifest(step);
  trained->experiment = file.resolve(host, trained->manifest.run.ranks);
  const Experiment& experiment = trained->experiment;
  if (experiment.device != "cpu") {
    throw ConfigError("key 'device': a trained model runs on \"cpu\" only, is \"" +
                      experiment.device + "\"; add device=cpu.");
  }
  at::set_num_threads(experiment.threads > 0 ? static_cast<int>(experiment.threads)
                                             : usable_cores());
  trained->precision = host.create<Precision>(experiment)->policy();
  if (request.dtype) trained->precision = {*request.dtype, *request.dtype, std::nullopt};
  trained->data = host.create<Data>(experiment);
  trained->data->open({experiment.batch.sequence_length, experiment.seed});
  trained->model = host.create<Model>(experiment);
  trained->model->declare(trained->parameters,
                          {trained->data->vocab_size(), experiment.batch.sequence_length});
  read_parameters(*trained, source, match_parameters(*trained, source, host));
  return trained;
}

}  // namespace

std::unique_ptr<TrainedModel> load_trained_model(const TrainedModelRequest& request) {
  const std::vector<int64_t> steps = candidate_steps(request.from);
  const std::string run = std::filesystem::proximate(request.from.run).string();
  if (steps.empty()) {
    throw ConfigError(run +
                      ": has no complete checkpoint; a run saves some if its experiment says so "
                      "([checkpoint] every = 500), and one at its end.");
  }
  for (const int64_t step : steps) {
    try {
      return load_step(request, step);
    } catch (const StoreError& error) {
      if (steps.size() == 1) throw;
      log::warning("the checkpoint of step " + std::to_string(step) +
                   " is damaged and not used: " + error.what());
    }
  }
  throw StoreError(run + ": none of its " + std::to_string(steps.size()) +
                   " checkpoints can be read; fetch one from a mirror.");
}

int usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const int cores = sched_getaffinity(0, sizeof mask, &mask) == 0
                        ? CPU_COUNT(&mask)
                        : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores);
}

bool has_text(const Data& data) {
  constexpr int64_t kEnough = 512;
  std::vector<int64_t> tokens(static_cast<size_t>(std::min(kEnough, data.vocab_size())));
  std::iota(tokens.begin(), tokens.end(), 0);
  return !data.decode(tokens).empty();
}

}  // namespace zerolab
