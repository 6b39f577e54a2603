#include "deepspeed_import.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>

#include "zerolab/error.h"

#include "translation.h"

namespace zerolab {
namespace {

/// A heading and the keys below it.
struct Section {
  const char* heading;
  std::function<bool(const KeyVerdict&)> holds;
};

const std::vector<Section>& sections() {
  static const std::vector<Section> all = {
      {"Not honoured:", [](const KeyVerdict& key) { return !key.honoured; }},
      {"Honoured, with a remark:",
       [](const KeyVerdict& key) {
         return key.honoured && !key.as.empty() && !key.remark.empty();
       }},
      {"Asks for nothing that would have to be done here:",
       [](const KeyVerdict& key) { return key.honoured && key.as.empty(); }},
  };
  return all;
}

/// "a, b (c): reason" for each reason, in the order of the first key that has it.
std::vector<std::string> reasons(const std::vector<KeyVerdict>& keys, const Section& section) {
  std::vector<std::pair<std::string, std::string>> groups;  // reason, keys
  for (const KeyVerdict& key : keys) {
    if (!section.holds(key)) continue;
    const std::string reason = (key.as.empty() ? "" : " -> " + key.as) + ": " + key.remark;
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const auto& group) { return group.first == reason; });
    if (same == groups.end()) {
      groups.emplace_back(reason, key.key);
    } else {
      same->second += ", " + key.key;
    }
  }
  std::vector<std::string> lines;
  for (const auto& [reason, names] : groups) lines.push_back(names + reason);
  return lines;
}

std::string heading(const DeepSpeedImport& import, const std::string& name) {
  std::string text =
      comment_lines("From the DeepSpeed configuration " + name + ", by zerolab import deepspeed.");
  text += comment_lines(
      "DeepSpeed leaves model, data, sequence length and often more to the training script: "
      "\"chosen here\" marks the smallest choice that runs, for you to replace.");
  for (const Section& section : sections()) {
    const std::vector<std::string> lines = reasons(import.keys, section);
    if (lines.empty()) continue;
    text += "#\n" + comment_lines(section.heading);
    for (const std::string& line : lines) text += comment_item(line);
  }
  return text;
}

/// A name of the characters that an experiment's may have.
std::string experiment_name(const std::string& file) {
  constexpr size_t kLongest = 100;
  std::string name = std::filesystem::path(file).stem().string().substr(0, kLongest);
  for (char& c : name) {
    const bool suits = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    if (!suits) c = '-';
  }
  return name.find_first_not_of(".-") == std::string::npos ? "deepspeed" : name;
}

/// What is a table in DeepSpeed must be one: every key below it would be missed otherwise.
void check_tables(const DeepSpeedConfig& config) {
  for (const char* table :
       {"optimizer", "optimizer.params", "scheduler", "scheduler.params", "fp16", "bf16",
        "bfloat16", "torch_autocast", "amp", "zero_optimization",
        "zero_optimization.offload_optimizer", "zero_optimization.zeropp_loco_param"}) {
    const Json* const value = config.source().find(table);
    if (value == nullptr || value->is_null() || value->is_object()) continue;
    if (value->is_boolean() && std::string(table) == "zero_optimization") continue;
    throw ConfigError(config.source().where(table) + ": must be an object, is " + shown(*value) +
                      ".");
  }
}

void translate_top_level(DeepSpeedConfig& config, ExperimentDraft& draft, const std::string& name) {
  draft.set("", "name", experiment_name(name));
  translate_schedule(config, draft);  // knows the steps
  const std::string clipping = "gradient_clipping";
  if (const auto norm = config.number(clipping, clipping, {.low = 0})) {
    draft.set("", clipping, *norm, "from " + clipping);
    config.honoured(clipping, clipping);
  }
  draft.set("", "device", std::string("cpu"), "chosen here; \"cuda\" for GPUs");
}

void choose_model_and_data(ExperimentDraft& draft) {
  draft.note("model", "chosen here; zerolab plugins list shows what is installed");
  draft.set("model", "plugin", std::string("gpt"));
  draft.set("model", "num_layers", int64_t{2});
  draft.set("model", "num_heads", int64_t{2});
  draft.set("model", "embedding_dim", int64_t{64});
  draft.note("data", "chosen here");
  draft.set("data", "plugin", std::string("synthetic"));
  draft.set("data", "pattern", std::string("cycle"));
}

}  // namespace

DeepSpeedImport import_deepspeed(std::string_view json, const std::string& name) {
  DeepSpeedConfig config(JsonSource::parse(json, name));
  check_tables(config);
  ExperimentDraft draft;
  translate_top_level(config, draft, name);
  choose_model_and_data(draft);
  translate_batch(config, draft);
  translate_optimizer(config, draft);
  translate_precision(config, draft);
  translate_sharding(config, draft);
  translate_rest(config);
  DeepSpeedImport import;
  import.keys = config.verdicts();
  import.toml = heading(import, shown(Json(std::filesystem::path(name).filename().string()))) +
                "\n" + draft.toml();
  return import;
}

std::string remarks_text(const DeepSpeedImport& import) {
  std::string text;
  for (const Section& section : sections()) {
    const std::vector<std::string> lines = reasons(import.keys, section);
    if (!lines.empty()) text += std::string(section.heading) + "\n";
    for (const std::string& line : lines) text += "  " + line + "\n";
  }
  return text;
}

}  // namespace zerolab
