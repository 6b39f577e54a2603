#include <string>

#include "translation.h"

namespace zerolab {
namespace {

const std::string kType = "optimizer.type";
const std::string kParams = "optimizer.params.";

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

/// betas, which every Adam and Lion have.
void translate_betas(DeepSpeedConfig& config, ExperimentDraft& draft) {
  const auto betas = config.numbers(kParams + "betas", "optimizer.betas", 2,
                                    {.low = 0, .high = 1, .below_high = true});
  if (betas) {
    draft.set("optimizer", "betas", *betas, "from " + kParams + "betas");
    config.honoured(kParams + "betas", "optimizer.betas");
  }
}

void translate_eps(DeepSpeedConfig& config, ExperimentDraft& draft) {
  const auto eps = config.number(kParams + "eps", "optimizer.eps", {.low = 0, .above_low = true});
  if (eps) {
    draft.set("optimizer", "eps", *eps, "from " + kParams + "eps");
    config.honoured(kParams + "eps", "optimizer.eps");
  }
}

/// The decay, DeepSpeed's default if none is given.
void translate_decay(DeepSpeedConfig& config, ExperimentDraft& draft, double absent) {
  const std::string path = kParams + "weight_decay";
  const auto decay = config.number(path, "optimizer.weight_decay", {.low = 0});
  if (decay) {
    draft.set("optimizer", "weight_decay", *decay, "from " + path);
    config.honoured(path, "optimizer.weight_decay",
                    *decay > 0 ? "decays parameters of two dimensions or more; DeepSpeed decays "
                                 "what the training script's parameter groups say"
                               : "");
  } else if (!config.has(path)) {
    draft.set("optimizer", "weight_decay", absent, "DeepSpeed's default");
  }
}

/// adamw where the decay is decoupled, else adam.
void translate_adam(DeepSpeedConfig& config, ExperimentDraft& draft, const std::string& name) {
  const auto torch_adam = config.flag(kParams + "torch_adam", "nothing");
  if (torch_adam) {
    config.without_effect(kParams + "torch_adam", "chooses between codes of the same update rule");
  }
  const auto w_mode = config.flag(kParams + "adam_w_mode", "optimizer.plugin");
  if (w_mode) config.honoured(kParams + "adam_w_mode", "optimizer.plugin");
  const bool decoupled = name != "adam" || w_mode.value_or(true);
  draft.set("optimizer", "plugin", std::string(decoupled ? "adamw" : "adam"), "from " + kType);
  config.honoured(kType, "optimizer.plugin",
                  name.ends_with("w") || name == "adam"
                      ? ""
                      : "the same update rule, but nothing is compressed to one bit; "
                        "sharding.wire_dtype = \"int8\" compresses to eight");
  translate_betas(config, draft);
  translate_eps(config, draft);
  // torch.optim.AdamW has a default of its own; DeepSpeed's Adams do not decay.
  translate_decay(config, draft, torch_adam.value_or(false) && decoupled ? 0.01 : 0);
}

void translate_sgd(DeepSpeedConfig& config, ExperimentDraft& draft) {
  draft.set("optimizer", "plugin", std::string("sgd"), "from " + kType);
  config.honoured(kType, "optimizer.plugin");
  const NumberRange ranges[] = {{.low = 0, .high = 1, .below_high = true}, {.low = 0, .high = 1}};
  const char* const names[] = {"momentum", "dampening"};
  for (size_t i = 0; i < 2; ++i) {
    const std::string path = kParams + names[i], as = std::string("optimizer.sgd.") + names[i];
    const auto number = config.number(path, as, ranges[i]);
    if (!number) continue;
    draft.set("optimizer.sgd", names[i], *number, "from " + path);
    config.honoured(path, as);
  }
  const auto nesterov = config.flag(kParams + "nesterov", "optimizer.sgd.nesterov");
  if (nesterov) {
    draft.set("optimizer.sgd", "nesterov", *nesterov, "from " + kParams + "nesterov");
    config.honoured(kParams + "nesterov", "optimizer.sgd.nesterov");
  }
  translate_decay(config, draft, 0);
}

void translate_lion(DeepSpeedConfig& config, ExperimentDraft& draft) {
  draft.set("optimizer", "plugin", std::string("lion"), "from " + kType);
  config.honoured(kType, "optimizer.plugin");
  translate_betas(config, draft);
  translate_decay(config, draft, 0);
}

}  // namespace

void translate_optimizer(DeepSpeedConfig& config, ExperimentDraft& draft) {
  const auto type = config.word(kType, "optimizer.plugin");
  if (!type) {
    draft.set("optimizer", "plugin", std::string("adamw"), "chosen here");
    return;
  }
  const std::string name = lower(*type);
  if (name == "adam" || name == "adamw" || name == "onebitadam" || name == "zerooneadam") {
    return translate_adam(config, draft, name);
  }
  if (name == "sgd") return translate_sgd(config, draft);
  if (name == "lion") return translate_lion(config, draft);
  draft.set("optimizer", "plugin", std::string("adamw"), "stands in for " + kType);
  config.not_honoured(kType, "adamw stands in; zerolab plugins list shows which are installed");
  for (const std::string& key : config.open_keys("optimizer.params")) {
    if (key != kParams + "lr") config.not_honoured(key, "belongs to the optimizer of that type");
  }
}

}  // namespace zerolab
