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

/// betas and eps, which every Adam has.
void translate_moments(DeepSpeedConfig& config, ExperimentDraft& draft) {
  const auto betas = config.numbers(kParams + "betas", "optimizer.betas", 2,
                                    {.low = 0, .high = 1, .below_high = true});
  if (betas) {
    draft.set("optimizer", "betas", *betas, "from " + kParams + "betas");
    config.honoured(kParams + "betas", "optimizer.betas");
  }
  const auto eps = config.number(kParams + "eps", "optimizer.eps", {.low = 0, .above_low = true});
  if (eps) {
    draft.set("optimizer", "eps", *eps, "from " + kParams + "eps");
    config.honoured(kParams + "eps", "optimizer.eps");
  }
}

void translate_decay(DeepSpeedConfig& config, ExperimentDraft& draft, bool is_adamw) {
  const std::string path = kParams + "weight_decay";
  const auto torch_adam = config.flag(kParams + "torch_adam", "nothing");
  if (torch_adam) {
    config.without_effect(kParams + "torch_adam", "chooses between codes of the same update rule");
  }
  const auto w_mode = config.flag(kParams + "adam_w_mode", "nothing");
  const bool decoupled = is_adamw || w_mode.value_or(true);
  const auto decay = config.number(path, "optimizer.weight_decay", {.low = 0});
  if (decay) {
    draft.set("optimizer", "weight_decay", *decay, "from " + path);
    config.honoured(path, "optimizer.weight_decay",
                    *decay > 0 ? "decays parameters of two dimensions or more; DeepSpeed decays "
                                 "what the training script's parameter groups say"
                               : "");
  } else if (!config.has(path)) {
    // torch.optim.AdamW has a default of its own; DeepSpeed's Adams do not decay.
    draft.set("optimizer", "weight_decay", torch_adam.value_or(false) && decoupled ? 0.01 : 0.0,
              "DeepSpeed's default");
  }
  if (!w_mode) return;
  if (decoupled) {
    config.honoured(kParams + "adam_w_mode", "optimizer.plugin");
  } else if (decay.value_or(0) == 0) {
    config.without_effect(kParams + "adam_w_mode", "without weight decay it makes no difference");
  } else {
    config.not_honoured(kParams + "adam_w_mode",
                        "the decay is decoupled here (AdamW); false adds it to the gradient (L2)");
  }
}

}  // namespace

void translate_optimizer(DeepSpeedConfig& config, ExperimentDraft& draft) {
  const auto type = config.word(kType, "optimizer.plugin");
  if (!type) {
    draft.set("optimizer", "plugin", std::string("adamw"), "chosen here");
    return;
  }
  const std::string name = lower(*type);
  draft.set("optimizer", "plugin", std::string("adamw"), "from " + kType);
  if (name == "adam" || name == "adamw") {
    config.honoured(kType, "optimizer.plugin");
  } else if (name == "onebitadam" || name == "zerooneadam") {
    config.honoured(kType, "optimizer.plugin",
                    "the same update rule, but nothing is compressed to one bit; "
                    "sharding.wire_dtype = \"int8\" compresses to eight");
  } else {
    config.not_honoured(kType, "adamw stands in; zerolab plugins list shows which are installed");
    for (const std::string& key : config.open_keys("optimizer.params")) {
      if (key != kParams + "lr") config.not_honoured(key, "belongs to the optimizer of that type");
    }
    return;
  }
  translate_moments(config, draft);
  translate_decay(config, draft, name == "adamw");
}

}  // namespace zerolab
