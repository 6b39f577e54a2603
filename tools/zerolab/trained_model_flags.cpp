#include "trained_model_flags.h"

#include <filesystem>
#include <new>
#include <optional>

#include <CLI/CLI.hpp>

#include "zerolab/error.h"

#include "train/trainer.h"

namespace zerolab {
namespace {

std::optional<at::ScalarType> dtype_from(const std::string& word) {
  if (word == "fp32") return at::kFloat;
  if (word == "bf16") return at::kBFloat16;
  if (word == "fp16") return at::kHalf;
  return std::nullopt;
}

}  // namespace

void add_trained_model_flags(CLI::App& verb, TrainedModelFlags& flags) {
  verb.add_option("run", flags.run,
                  "the run's folder; RUN@500 or RUN@best for another checkpoint than the newest")
      ->type_name("RUN[@STEP]")
      ->required();
  verb.add_option("overrides", flags.overrides,
                  "dotted.key=VALUE over the run's own configuration, e.g. data.path=other.txt or "
                  "threads=4")
      ->type_name("KEY=VALUE");
  verb.add_option("--dtype", flags.dtype,
                  "dtype of parameters and compute: fp32, bf16, fp16, or run: as the run's "
                  "precision has it")
      ->check(CLI::IsMember({"run", "fp32", "bf16", "fp16"}))
      ->type_name("WORD")
      ->capture_default_str();
  verb.add_flag("--trust-plugin-path", flags.trust_plugin_path,
                "load plugins from the run's own plugin_path: they can run any code");
  add_plugin_flags(verb, flags.plugins);
}

std::unique_ptr<TrainedModel> load_trained_model(const TrainedModelFlags& flags) {
  TrainedModelRequest request;
  request.from = parse_checkpoint_name(flags.run);
  request.overrides = flags.overrides;
  request.search = plugin_search(flags.plugins);
  request.search.trust_experiment = flags.trust_plugin_path;
  request.dtype = dtype_from(flags.dtype);
  return load_trained_model(request);
}

std::string title_of(const TrainedModelFlags& flags, const TrainedModel& trained) {
  return std::filesystem::proximate(parse_checkpoint_name(flags.run).run).string() + ", step " +
         std::to_string(trained.manifest.point.step);
}

void with_plain_errors(const std::function<void()>& body) {
  try {
    body();
  } catch (const c10::Error& error) {
    throw Error(plain_sentence(error));
  } catch (const std::bad_alloc&) {
    throw Error("out of memory; use a smaller batch or a machine with more memory.");
  }
}

}  // namespace zerolab
