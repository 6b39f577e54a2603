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
#include "store/checkpoint_reader.h"
#include "store/run_folder.h"

namespace zerolab {
namespace {

constexpr int64_t kAlignment = 16;  // elements; one vector of the widest registers

int usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const int cores = sched_getaffinity(0, sizeof mask, &mask) == 0
                        ? CPU_COUNT(&mask)
                        : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores);
}

at::ScalarType scalar_type(TensorDtype dtype) {
  switch (dtype) {
    case TensorDtype::kFloat32:
      return at::kFloat;
    case TensorDtype::kFloat64:
      return at::kDouble;
    case TensorDtype::kFloat16:
      return at::kHalf;
    case TensorDtype::kBFloat16:
      return at::kBFloat16;
    case TensorDtype::kInt64:
      return at::kLong;
    case TensorDtype::kInt32:
      return at::kInt;
    case TensorDtype::kUInt8:
      return at::kByte;
  }
  throw StoreError("a checkpoint holds a tensor of an unknown dtype");
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

/// The first parameter that a checkpoint does not hold as it is declared, and how many there are.
struct Misfit {
  size_t count = 0;
  std::string first;                 ///< as a phrase
  std::vector<int64_t> saved_shape;  ///< empty if it is not there
};

Misfit find_misfit(const Parameters& parameters, const CheckpointReader& checkpoint) {
  Misfit misfit;
  size_t matched = 0;
  const auto note = [&](const std::string& phrase, const std::vector<int64_t>& saved) {
    if (misfit.count++ > 0) return;
    misfit.first = phrase;
    misfit.saved_shape = saved;
  };
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterInfo& info = parameters.info(i);
    if (info.numel == 0) continue;  // no checkpoint holds tensors without elements
    const PieceInfo* tensor = checkpoint.find(info.name, kParameterState);
    if (tensor == nullptr) {
      note("'" + info.name + "' is not in it", {});
    } else if (++matched; tensor->shape != info.shape) {
      note("'" + info.name + "' is " + shape_text(tensor->shape) + " there and " +
               shape_text(info.shape) + " in the model",
           tensor->shape);
    }
  }
  for (const PieceInfo& tensor : checkpoint.tensors()) {
    const bool known = tensor.state != kParameterState || parameters.find(tensor.parameter) >= 0;
    if (!known) note("'" + tensor.parameter + "' is not in the model", {});
  }
  return misfit;
}

/// Whether the model would fit with a vocabulary of another size.
bool fits_vocabulary(int64_t vocab_size, const Experiment& experiment,
                     const CheckpointReader& checkpoint, PluginHost& host) {
  try {
    Parameters parameters;
    host.create<Model>(experiment)
        ->declare(parameters, {vocab_size, experiment.batch.sequence_length});
    return find_misfit(parameters, checkpoint).count == 0;
  } catch (const Error&) {
    return false;
  }
}

void check_fit(const TrainedModel& trained, const CheckpointReader& checkpoint, PluginHost& host) {
  const Misfit misfit = find_misfit(trained.parameters, checkpoint);
  if (misfit.count == 0) return;
  const std::string title = "the checkpoint of step " + std::to_string(trained.manifest.point.step);
  for (const int64_t size : misfit.saved_shape) {
    if (!fits_vocabulary(size, trained.experiment, checkpoint, host)) continue;
    throw ConfigError("the data's vocabulary has " + std::to_string(trained.data->vocab_size()) +
                      " tokens, but the model in " + title + " was made for " +
                      std::to_string(size) +
                      "; give it data of the vocabulary that it was trained with.");
  }
  throw ConfigError(
      title + " is of another model: " + misfit.first +
      (misfit.count > 1 ? ", and " + std::to_string(misfit.count - 1) + " more" : "") +
      "; leave the model and batch.sequence_length as they were saved.");
}

/// Gives each parameter its memory and what the checkpoint has of it, one after the other.
void read_parameters(TrainedModel& trained, const CheckpointReader& checkpoint) {
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
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int64_t numel = parameters.info(i).numel;
    parameters.bind(i, trained.memory, offsets[i]);
    if (numel == 0) continue;
    const PieceInfo& saved = *checkpoint.find(parameters.info(i).name, kParameterState);
    at::Tensor memory = trained.memory.narrow(0, offsets[i], numel);
    at::Tensor values = memory;
    const at::ScalarType saved_dtype = scalar_type(saved.dtype);
    if (saved_dtype != dtype) values = at::empty({numel}, at::TensorOptions().dtype(saved_dtype));
    checkpoint.read(saved, 0, numel, values.mutable_data_ptr());
    if (saved_dtype != dtype) memory.copy_(values);
  }
}

std::unique_ptr<TrainedModel> load_step(const TrainedModelRequest& request, int64_t step) {
  const CheckpointFolder folder(request.from.run);
  folder.text(step, kConfigName);  // as it was saved, or an error
  const CheckpointReader checkpoint(folder.path(step));
  const ExperimentFile file =
      ExperimentFile::load(folder.path(step) / kConfigName, request.overrides);
  PluginSearch search = request.search;
  search.from_experiment = file.plugin_path();
  PluginHost host(search);

  auto trained = std::make_unique<TrainedModel>();
  trained->manifest = checkpoint.manifest();
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
  check_fit(*trained, checkpoint, host);
  read_parameters(*trained, checkpoint);
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

bool has_text(const Data& data) {
  constexpr int64_t kEnough = 512;
  std::vector<int64_t> tokens(static_cast<size_t>(std::min(kEnough, data.vocab_size())));
  std::iota(tokens.begin(), tokens.end(), 0);
  return !data.decode(tokens).empty();
}

}  // namespace zerolab
