// zerolab export: a run's weights for other programs, named as they name them.

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "zerolab/error.h"

#include "checkpoint_report.h"
#include "host/plugin_host.h"
#include "output.h"
#include "store/checkpoint_reader.h"
#include "store/run_folder.h"
#include "train/checkpoint_loader.h"
#include "train/weight_export.h"
#include "train/weight_source.h"
#include "verbs.h"

namespace zerolab {
namespace {

namespace fs = std::filesystem;

struct ExportFlags {
  PluginFlags plugins;
  std::string run, target, layout, dtype;
  bool trust_plugin_path = false, force = false, json = false;
};

std::optional<TensorDtype> dtype_from(const std::string& word) {
  if (word.empty()) return std::nullopt;
  constexpr std::array<std::pair<const char*, TensorDtype>, 3> kWords = {
      {{"fp32", TensorDtype::kFloat32},
       {"bf16", TensorDtype::kBFloat16},
       {"fp16", TensorDtype::kFloat16}}};
  for (const auto& [known, dtype] : kWords) {
    if (word == known) return dtype;
  }
  throw ConfigError("--dtype must be fp32, bf16 or fp16, is '" + word + "'.");
}

/// What a target means: one file, or a folder with the file and what goes with it.
struct Target {
  fs::path file, config;  ///< no config beside a file
};

Target target_of(const std::string& text) {
  std::error_code error;
  if (!text.ends_with('/') && !fs::is_directory(text, error)) {
    if (text.ends_with(".safetensors")) return {text, {}};
    throw ConfigError(
        "-o must name a file that ends in .safetensors, or a folder (with a slash at "
        "its end if it is not there yet), is '" +
        text + "'.");
  }
  const fs::path folder = text;
  return {folder / kWeightsName, folder / "config.json"};
}

void check_target(const Target& target, bool force) {
  std::error_code error;
  const fs::path folder = fs::absolute(target.file).parent_path();
  if (target.config.empty() && !fs::is_directory(folder, error)) {
    throw ConfigError("-o " + target.file.string() + ": there is no folder " + folder.string() +
                      "; make it first.");
  }
  for (const fs::path& file : {target.file, target.config}) {
    if (force || file.empty() || !file_exists(file)) continue;
    throw ConfigError(file.string() + ": is there already; choose another place, or use --force.");
  }
}

/// The folder is made if there is none, its parents too.
void make_folder_of(const Target& target) {
  if (target.config.empty()) return;
  std::error_code error;
  fs::create_directories(target.file.parent_path(), error);
  if (error)
    throw StoreError(target.file.parent_path().string() + ": cannot be made: " + error.message() +
                     ".");
}

void export_run(const ExportFlags& flags) {
  const std::optional<TensorDtype> dtype = dtype_from(flags.dtype);
  const Target target = target_of(flags.target);
  check_target(target, flags.force);
  const CheckpointName name = parse_checkpoint_name(flags.run);
  const fs::path folder = find_weights(flags.run, "");
  const int64_t step = CheckpointReader(folder).manifest().point.step;
  PluginSearch search = plugin_search(flags.plugins);
  search.from_experiment = ExperimentFile::load(folder / kConfigName, {}).plugin_path();
  search.trust_experiment = flags.trust_plugin_path;
  PluginHost host(search);
  const Experiment experiment = experiment_before(name, step, host);

  const TensorSource source = open_weights(folder);
  const SavedModel saved = declare_as_saved([&] { return host.create<Model>(experiment); },
                                            experiment, source, folder.string());
  const WeightLayout layout = find_layout(flags.layout, saved);
  make_folder_of(target);
  const ExportedWeights written = export_weights(
      {target.file, flags.layout, dtype, flags.force, {{"step", std::to_string(step)}}}, saved,
      source);
  const bool has_config = !target.config.empty() && !layout.config_json.empty();
  if (has_config) write_file(real_files(), fs::absolute(target.config), layout.config_json);

  if (flags.json) {
    nlohmann::ordered_json json = {{"file", target.file.string()}, {"step", step},
                                   {"layout", flags.layout},       {"tensors", written.tensors},
                                   {"bytes", written.bytes},       {"config", nullptr}};
    if (has_config) json["config"] = target.config.string();
    print(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    return;
  }
  print(target.file.string() + ": step " + std::to_string(step) + ", " +
        std::to_string(written.tensors) + " tensors, " + size_text(written.bytes) +
        (flags.layout.empty() ? "" : ", layout " + flags.layout) + "\n");
  if (has_config) print(target.config.string() + "\n");
}

constexpr const char* kFooter =
    R"(The weights of a checkpoint as one safetensors file, under the model's own names or as one of
its layouts says. Into a folder go model.safetensors and the config.json of the layout, as programs
that know the layout read them. Optimizer states stay behind (`zerolab checkpoint consolidate`
keeps them). What was exported can begin a new run: init_from = "FILE".

RUN is a run's folder, and means its newest complete checkpoint; RUN@500 is that of step 500,
RUN@best that of the lowest validation loss.

Examples:
  zerolab export runs/experiment-1 -o weights.safetensors
  zerolab export runs/experiment-1@best -o gpt2/ --layout huggingface --dtype bf16)";

}  // namespace

void add_export(CLI::App& app, CommandLine&) {
  CLI::App* const verb =
      app.add_subcommand("export", "Write a run's weights for another program to read");
  const auto flags = std::make_shared<ExportFlags>();
  verb->add_option("run", flags->run,
                   "the run's folder; RUN@500 or RUN@best for another checkpoint")
      ->type_name("RUN[@STEP]")
      ->required();
  verb->add_option("-o,--output", flags->target,
                   "a file that ends in .safetensors, or a folder (FOLDER/)")
      ->type_name("FILE|FOLDER/")
      ->required();
  verb->add_option("--layout", flags->layout, "whose names (default: the model's own)")
      ->type_name("NAME");
  verb->add_option("--dtype", flags->dtype, "fp32, bf16 or fp16 (default: as saved)")
      ->type_name("DTYPE");
  verb->add_flag("--force", flags->force, "write over what is there");
  verb->add_flag("--json", flags->json, "print one JSON object");
  verb->add_flag("--trust-plugin-path", flags->trust_plugin_path,
                 "load plugins from the experiment's own plugin_path: they can run any code");
  add_plugin_flags(*verb, flags->plugins);
  verb->footer(kFooter);
  verb->callback([flags] { export_run(*flags); });
}

}  // namespace zerolab
