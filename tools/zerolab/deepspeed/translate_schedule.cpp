// Schedules. With W = warmup_num_steps, DeepSpeed's step s (from 0) has the schedule's value at
// s - 1: the warmup is linear or logarithmic in (s - 1) / W. Here it is (s + 1) / W.

#include <optional>
#include <string>

#include "translation.h"

namespace zerolab {
namespace {

const std::string kType = "scheduler.type";
const std::string kParams = "scheduler.params.";
const std::string kOptimizerLr = "optimizer.params.lr";

constexpr int64_t kChosenSteps = 100;
constexpr int64_t kMostSteps = int64_t{1} << 40;

struct LearningRate {
  double value = 0;
  std::string comment;
};

/// DeepSpeed's order: a warmup schedule's own maximum over the optimizer's lr.
LearningRate learning_rate(DeepSpeedConfig& config, const std::string& type) {
  const NumberRange positive = {.low = 0, .above_low = true};
  const bool has_maximum = type == "WarmupLR" || type == "WarmupDecayLR";
  const std::string maximum_path = kParams + "warmup_max_lr";
  std::optional<double> maximum;
  if (has_maximum) maximum = config.number(maximum_path, "scheduler.lr", positive);
  const auto lr = config.number(kOptimizerLr, "scheduler.lr", positive);
  if (maximum) {
    config.honoured(maximum_path, "scheduler.lr");
    if (lr == maximum) {
      config.honoured(kOptimizerLr, "scheduler.lr");
    } else if (lr) {
      config.not_honoured(kOptimizerLr, "DeepSpeed's " + type + " replaces it by warmup_max_lr");
    }
    return {*maximum, "from " + maximum_path};
  }
  if (type == "WarmupDecayLR" && !config.has(maximum_path)) {
    if (lr == 1e-3) config.honoured(kOptimizerLr, "scheduler.lr");
    if (lr && lr != 1e-3) {
      config.not_honoured(kOptimizerLr,
                          "DeepSpeed's WarmupDecayLR replaces it by warmup_max_lr's default");
    }
    return {1e-3, "DeepSpeed's default of warmup_max_lr"};
  }
  if (lr) {
    config.honoured(kOptimizerLr, "scheduler.lr");
    return {*lr, "from " + kOptimizerLr};
  }
  if (config.has("optimizer.type") && !config.has(kOptimizerLr)) {
    return {1e-3, "DeepSpeed's default"};
  }
  return {3e-4, "chosen here"};
}

/// Where the warmup begins, and along which line.
void translate_warmup_shape(DeepSpeedConfig& config) {
  for (const char* name : {"warmup_min_lr", "warmup_min_ratio"}) {
    const auto start = config.number(kParams + name, "scheduler.warmup_steps", {.low = 0});
    if (!start) continue;
    if (*start == 0) {
      config.honoured(kParams + name, "scheduler.warmup_steps");
    } else {
      config.not_honoured(kParams + name, "the warmup begins at lr / warmup_steps");
    }
  }
  const auto shape = config.word(kParams + "warmup_type", "scheduler.warmup_steps");
  if (!shape) return;
  if (*shape == "linear") {
    config.honoured(kParams + "warmup_type", "scheduler.warmup_steps");
  } else {
    config.not_honoured(kParams + "warmup_type", "the warmup is linear");
  }
}

struct Warmup {
  int64_t steps = 0;
  std::string comment;  ///< empty if the experiment is to keep its own default
};

Warmup translate_warmup(DeepSpeedConfig& config) {
  constexpr int64_t kDeepSpeedsDefault = 1000;
  const std::string path = kParams + "warmup_num_steps";
  const auto steps = config.count(path, "scheduler.warmup_steps", 0, kMostSteps);
  if (!steps && config.is_auto(path)) return {};
  if (!steps) return {kDeepSpeedsDefault, "DeepSpeed's default"};
  config.honoured(path, "scheduler.warmup_steps",
                  *steps == 0 ? "" : "lr is reached two steps earlier than in DeepSpeed");
  return {*steps, "from " + path};
}

/// The end of a schedule that decays; false if the warmup leaves nothing to decay.
bool translate_decay(DeepSpeedConfig& config, ExperimentDraft& draft, const std::string& type,
                     double lr, int64_t warmup, std::optional<int64_t> total) {
  const std::string path = kParams + "total_num_steps";
  const bool decays = !total || warmup < *total, is_cosine = type == "WarmupCosineLR";
  const std::string table = is_cosine ? "scheduler.cosine" : "scheduler.linear";
  if (total) {
    config.honoured(path, decays ? "steps, " + table + ".decay_steps" : "steps",
                    decays ? "" : "the warmup takes all steps: nothing decays");
  }
  const std::string ratio_path = kParams + "cos_min_ratio";
  std::optional<double> ratio;
  if (is_cosine) {
    ratio = config.number(ratio_path, "scheduler.cosine.min_lr", {.low = 0, .high = 1});
  }
  constexpr double kDeepSpeedsRatio = 1e-4;
  const double min_lr = is_cosine ? lr * ratio.value_or(kDeepSpeedsRatio) : 0;
  draft.set(table, "min_lr", min_lr,
            ratio       ? "lr times " + ratio_path
            : is_cosine ? "lr times 0.0001, DeepSpeed's default"
                        : "DeepSpeed's " + type + " ends at 0");
  if (ratio) config.honoured(ratio_path, "scheduler.cosine.min_lr", "times lr");
  if (total && decays) draft.set(table, "decay_steps", *total, "from " + path);
  return decays;
}

void translate_warmup_schedule(DeepSpeedConfig& config, ExperimentDraft& draft,
                               const std::string& type) {
  const LearningRate lr = learning_rate(config, type);
  const bool may_decay = type != "WarmupLR";
  const std::string total_path = kParams + "total_num_steps";
  std::optional<int64_t> total;
  if (may_decay) total = config.count(total_path, "steps", 1, kMostSteps);
  const Warmup warmup = translate_warmup(config);
  const bool decays =
      may_decay && translate_decay(config, draft, type, lr.value, warmup.steps, total);
  const char* const falling = type == "WarmupCosineLR" ? "cosine" : "linear";
  draft.set("scheduler", "plugin", std::string(decays ? falling : "constant"), "from " + kType);
  draft.set("scheduler", "lr", lr.value, lr.comment);
  if (!warmup.comment.empty()) {
    draft.set("scheduler", "warmup_steps", warmup.steps, warmup.comment);
  }
  config.honoured(kType, "scheduler.plugin",
                  config.has(kParams + "warmup_type")
                      ? ""
                      : "the warmup is linear, DeepSpeed's is logarithmic unless warmup_type says "
                        "otherwise");
  translate_warmup_shape(config);
  const int64_t chosen = warmup.steps < kChosenSteps ? kChosenSteps : warmup.steps + kChosenSteps;
  draft.set("", "steps", total.value_or(chosen), total ? "from " + total_path : "chosen here");
}

}  // namespace

void translate_schedule(DeepSpeedConfig& config, ExperimentDraft& draft) {
  const std::string type = config.word(kType, "scheduler.plugin").value_or("");
  if (type == "WarmupLR" || type == "WarmupDecayLR" || type == "WarmupCosineLR") {
    translate_warmup_schedule(config, draft, type);
    return;
  }
  const LearningRate lr = learning_rate(config, type);
  draft.set("", "steps", kChosenSteps, "chosen here");
  draft.set("scheduler", "plugin", std::string("constant"),
            type.empty() ? "no scheduler is configured" : "stands in for " + kType);
  draft.set("scheduler", "lr", lr.value, lr.comment);
  if (type.empty()) return;
  config.not_honoured(kType, "constant stands in; zerolab plugins list shows which are installed");
  for (const std::string& key : config.open_keys("scheduler.params")) {
    config.not_honoured(key, "belongs to the schedule of that type");
  }
}

}  // namespace zerolab
