#include "train/resumption.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string_view>

#include <nlohmann/json.hpp>

#include "zerolab/error.h"

#include "experiment/result_changes.h"
#include "store/checkpoint_folder.h"
#include "store/checkpoint_reader.h"
#include "store/mirror.h"
#include "store/run_folder.h"
#include "train/exchange.h"

namespace zerolab {
namespace {

namespace fs = std::filesystem;

constexpr const char *kMicro = "batch.micro_batch_size",
                     *kAccumulation = "batch.gradient_accumulation_steps",
                     *kTotal = "batch.total_batch_size";

constexpr std::string_view kStepPrefix = "step-";

bool is_run(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kConfigName, error);
}

/// The manifest of a step, or nothing if it cannot be read.
std::optional<CheckpointManifest> readable_manifest(const CheckpointFolder& folder,
                                                    int64_t step) try {
  return folder.manifest(step);
} catch (const StoreError&) {
  return std::nullopt;
}

std::string steps_text(const std::vector<int64_t>& steps) {
  std::string text;
  for (const int64_t step : steps) text += (text.empty() ? "" : ", ") + std::to_string(step);
  return text;
}

int64_t best_step(const CheckpointFolder& folder, const std::vector<int64_t>& steps) {
  int64_t best = -1;
  double lowest = std::numeric_limits<double>::infinity();
  for (const int64_t step : steps) {
    const auto manifest = readable_manifest(folder, step);
    if (!manifest || !(manifest->point.val_loss < lowest)) continue;
    lowest = manifest->point.val_loss;
    best = step;
  }
  return best;
}

/// The whole number that an override gives to a key; 0 if none does.
int64_t overridden(const std::vector<std::string>& overrides, const std::string& key) {
  int64_t value = 0;
  for (const std::string& text : overrides) {
    if (!text.starts_with(key + "=")) continue;
    try {
      value = std::stoll(text.substr(key.size() + 1));
    } catch (const std::exception&) {
      value = 0;  // the experiment's check says what is wrong with it
    }
  }
  return value;
}

std::string override_of(const char* key, int64_t value) {
  return std::string(key) + "=" + std::to_string(value);
}

/// Without a checkpoint: the configuration and the environment of the start.
SavedRun recorded_run(const fs::path& run) {
  std::ifstream file(run / "environment.json");
  const auto environment = nlohmann::json::parse(file, nullptr, false);
  SavedRun saved;
  if (!environment.is_object()) return saved;
  const auto ranks = environment.find("ranks");
  if (ranks != environment.end() && ranks->is_string()) {
    saved.ranks = std::max(1, std::atoi(ranks->get<std::string>().c_str()));
  }
  return saved;
}

CheckpointName split_name(const std::string& text) {
  CheckpointName name;
  const size_t at = text.rfind('@');
  name.run = text;
  // The folder of a checkpoint stands for itself.
  const fs::path folder =
      fs::path(text).has_filename() ? fs::path(text) : fs::path(text).parent_path();
  const fs::path run = folder.parent_path().parent_path();
  const std::string last = folder.filename().string();
  if (folder.parent_path().filename() == "checkpoints" && last.starts_with(kStepPrefix)) {
    return split_name((run.empty() ? "." : run.string()) + "@" +
                      std::to_string(std::atoll(last.c_str() + kStepPrefix.size())));
  }
  if (is_run(text) || at == std::string::npos) return name;
  name.run = text.substr(0, at);
  const std::string which = text.substr(at + 1);
  const bool digits = !which.empty() && which.size() < 18 &&
                      which.find_first_not_of("0123456789") == std::string::npos;
  if (digits) {
    name.step = std::stoll(which);
  } else if (which == "best") {
    name.best = true;
  } else if (which != "newest") {
    throw ConfigError("'" + text + "': what follows '@' must be a step, 'best' or 'newest', is '" +
                      which + "'.");
  }
  return name;
}

}  // namespace

CheckpointName parse_checkpoint_name(const std::string& text) {
  CheckpointName name = split_name(text);
  if (!is_run(name.run)) {
    throw ConfigError(name.run.string() +
                      ": is no run's folder (it has no config.resolved.toml); name a folder that "
                      "`zerolab run` made, such as runs/NAME-1.");
  }
  name.run = whole_path(name.run);
  return name;
}

std::string fetch_missing(const std::string& text, const std::string& remote) {
  const CheckpointName name = split_name(text);
  Mirror::check(remote, "--mirror");
  if (is_run(name.run)) {
    const std::vector<int64_t> steps = CheckpointFolder(name.run).steps();
    const bool there = name.step < 0
                           ? !steps.empty()
                           : std::find(steps.begin(), steps.end(), name.step) != steps.end();
    if (there) return {};
  }
  if (name.best) {
    throw ConfigError("--mirror: '" + text +
                      "' cannot be fetched, because which checkpoint of a mirror is the best is "
                      "not known before all of them are here; name its step, or the run alone for "
                      "the newest.");
  }
  if (const auto step = Mirror::fetch(remote, name.run, name.step)) {
    return "fetched the checkpoint of step " + std::to_string(*step) + " from " + remote;
  }
  throw StoreError(remote + ": has no complete checkpoint of a run called " +
                   fs::absolute(name.run).lexically_normal().filename().string() +
                   (name.step < 0 ? "" : " after step " + std::to_string(name.step)) + ".");
}

std::vector<int64_t> candidate_steps(const CheckpointName& name) {
  const CheckpointFolder folder(name.run);
  std::vector<int64_t> steps = folder.steps();
  if (name.newest()) {
    std::reverse(steps.begin(), steps.end());
    return steps;
  }
  const int64_t wanted = name.best ? best_step(folder, steps) : name.step;
  if (std::find(steps.begin(), steps.end(), wanted) != steps.end()) return {wanted};
  const std::string what = name.best ? "no checkpoint with a validation loss"
                                     : "no checkpoint of step " + std::to_string(wanted);
  throw ConfigError(name.run.string() + ": has " + what + "; it has " +
                    (steps.empty() ? "none at all" : "those of steps " + steps_text(steps)) + ".");
}

int64_t readable_step(const CheckpointName& name) {
  const CheckpointFolder folder(name.run);
  std::optional<StoreError> first;
  for (const int64_t step : candidate_steps(name)) {
    try {
      folder.text(step, kConfigName);
      return step;
    } catch (const StoreError& error) {
      if (!first) first = error;
    }
  }
  if (first) throw *first;
  return -1;
}

SavedRun saved_run(const CheckpointName& name) {
  const CheckpointFolder folder(name.run);
  for (const int64_t step : candidate_steps(name)) {
    if (const auto manifest = readable_manifest(folder, step)) return manifest->run;
  }
  return recorded_run(name.run);
}

std::vector<std::string> batch_overrides(const SavedRun& saved, int num_ranks,
                                         const std::vector<std::string>& given) {
  int64_t micro = overridden(given, kMicro), accumulation = overridden(given, kAccumulation);
  const int64_t other_total = overridden(given, kTotal);
  const int64_t total = other_total != 0 ? other_total : saved.total_batch_size;
  if (total == 0 || (micro != 0 && accumulation != 0)) return {};
  if (total % num_ranks != 0) {
    throw ConfigError("the run's total_batch_size " + std::to_string(total) +
                      " does not divide over " + std::to_string(num_ranks) +
                      " ranks; choose a number of ranks that divides it, or fork the run with "
                      "another batch.total_batch_size.");
  }
  const int64_t per_rank = total / num_ranks;
  if (accumulation != 0) {
    if (per_rank % accumulation != 0) return {};  // the experiment's check says why not
    return {override_of(kMicro, per_rank / accumulation)};
  }
  if (micro == 0) {
    micro = std::min(std::max<int64_t>(1, saved.micro_batch_size), per_rank);
    while (per_rank % micro != 0) --micro;
  } else if (per_rank % micro != 0) {
    return {};
  }
  return {override_of(kMicro, micro), override_of(kAccumulation, per_rank / micro)};
}

std::vector<std::string> check_unchanged(const Experiment& before, const Experiment& after,
                                         PluginCatalogue& catalogue, const std::string& title) {
  const ExperimentChanges changes = compare_experiments(before, after, catalogue);
  if (!changes.results.empty()) {
    std::string list;
    for (const std::string& change : changes.results) list += (list.empty() ? "" : "; ") + change;
    throw ConfigError(title + " cannot go on with values that change its results: " + list +
                      "; leave them as they were, or use `zerolab fork` to start another run from "
                      "its checkpoint.");
  }
  std::vector<std::string> notes;
  for (const std::string& change : changes.paths) {
    notes.push_back(change + ": it must hold the same data");
  }
  return notes;
}

std::optional<int64_t> choose_whole(
    const fs::path& run, const std::vector<int64_t>& candidates, Communicator& ranks,
    const std::function<void(int64_t step, const std::string& damage)>& damaged,
    const std::function<void()>& alive) {
  const CheckpointFolder folder(run);
  const auto lists = gather_lists(ranks, candidates);
  const auto size = static_cast<size_t>(ranks.size()), me = static_cast<size_t>(ranks.rank());
  for (const int64_t step : lists.front()) {
    std::string mine;
    try {
      const CheckpointReader reader(folder.path(step));
      for (size_t f = me; f < reader.num_files() && mine.empty(); f += size) {
        alive();
        mine = reader.find_damage(f);
      }
    } catch (const StoreError& error) {
      mine = error.what();
    }
    std::string damage;
    for (const std::string& text : gather_texts(ranks, mine)) {
      if (damage.empty()) damage = text;
    }
    if (damage.empty()) return step;
    damaged(step, damage);
  }
  return std::nullopt;
}

}  // namespace zerolab
