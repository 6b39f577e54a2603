#include <array>
#include <cmath>
#include <optional>
#include <string>

#include "zerolab/error.h"

#include "translation.h"

namespace zerolab {
namespace {

constexpr const char* kAs = "precision.plugin";
constexpr const char* kScaleTable = "precision.fp16";

/// One table that turns a precision on.
struct Mode {
  const char* table;
  const char* plugin;
  const char* enabled_remark;  ///< what is otherwise; empty if nothing is
};

constexpr const char* kWireRemark =
    "gradients travel as float32 unless sharding.wire_dtype = \"bf16\"";

constexpr std::array<Mode, 5> kModes = {
    {{"bf16", "bf16", kWireRemark},
     {"bfloat16", "bf16", kWireRemark},
     {"fp16", "fp16", kWireRemark},
     {"torch_autocast", "amp_bf16", ""},
     {"amp", "amp_fp16", "autocast to float16 with a dynamic loss scale, as Apex's level O1"}}};

/// The plugin of torch_autocast.dtype: bfloat16 unless the table says otherwise.
std::string translate_autocast_dtype(DeepSpeedConfig& config) {
  const std::string path = "torch_autocast.dtype";
  const auto dtype = config.word(path, kAs);
  if (!dtype) return "amp_bf16";
  for (const char* name : {"float16", "fp16", "half", "torch.float16"}) {
    if (*dtype != name) continue;
    config.honoured(path, kAs, "with a dynamic loss scale");
    return "amp_fp16";
  }
  if (*dtype == "bfloat16" || *dtype == "bf16" || *dtype == "torch.bfloat16") {
    config.honoured(path, kAs);
  } else {
    config.not_honoured(path, "autocast is to bfloat16 or to float16; bfloat16 stands in");
  }
  return "amp_bf16";
}

/// A scale that never changes, if fp16.loss_scale is one; true if there is nothing more to say.
bool translate_static_scale(DeepSpeedConfig& config, ExperimentDraft& draft) {
  const std::string path = "fp16.loss_scale", as = "precision.fp16.init_scale";
  const auto scale = config.number(path, as, {.low = 0});
  if (!scale) return false;
  int exponent = 0;
  if (*scale == 0) {
    config.without_effect(path, "0 is a dynamic scale, as here");
    return false;
  }
  if (std::frexp(*scale, &exponent) != 0.5) {
    config.not_honoured(path, "a scale is a power of two here; a dynamic one stands in");
    return false;
  }
  constexpr int64_t kNever = int64_t{1} << 40;
  draft.set(kScaleTable, "init_scale", *scale, "from " + path);
  draft.set(kScaleTable, "min_scale", *scale, "it never falls");
  draft.set(kScaleTable, "growth_interval", kNever, "it never grows");
  config.honoured(path, as);
  for (const std::string& key : config.open_keys("fp16")) {
    config.without_effect(key, "loss_scale is static");
  }
  return true;
}

/// DeepSpeed's dynamic scale, with its defaults where they are not this program's.
void translate_loss_scale(DeepSpeedConfig& config, ExperimentDraft& draft) {
  if (translate_static_scale(config, draft)) return;
  constexpr int64_t kLargestPower = 127;
  const std::string power_path = "fp16.initial_scale_power";
  const auto power = config.count(power_path, "precision.fp16.init_scale", 0, kLargestPower);
  if (power) {
    draft.set(kScaleTable, "init_scale", std::ldexp(1.0, static_cast<int>(*power)),
              "2 to the power of " + power_path);
    config.honoured(power_path, "precision.fp16.init_scale");
  }
  const auto count = [&](const char* key, const char* name, int64_t absent) {
    const std::string path = std::string("fp16.") + key, as = "precision.fp16." + std::string(name);
    const auto given = config.count(path, as, 1);
    if (given) config.honoured(path, as);
    if (given || !config.has(path)) {
      draft.set(kScaleTable, name, given.value_or(absent),
                given ? "from " + path : "DeepSpeed's default");
    }
  };
  count("loss_scale_window", "growth_interval", 1000);
  count("hysteresis", "hysteresis", 2);
  const std::string minimum_path = "fp16.min_loss_scale", as = "precision.fp16.min_scale";
  const auto minimum = config.number(minimum_path, as, {.low = 0, .above_low = true});
  if (!minimum) return;
  int exponent = 0;
  if (std::frexp(*minimum, &exponent) == 0.5) {
    draft.set(kScaleTable, "min_scale", *minimum, "from " + minimum_path);
    config.honoured(minimum_path, as, "reaching it is no error");
  } else {
    config.not_honoured(minimum_path, "a scale is a power of two here");
  }
}

void translate_gradient_dtype(DeepSpeedConfig& config, ExperimentDraft& draft,
                              const std::string& plugin) {
  const std::string path = "data_types.grad_accum_dtype", as = "precision.gradient_dtype";
  const auto dtype = config.word(path, as);
  if (!dtype) return;
  const bool takes_fp16 = plugin == "fp16" || plugin == "amp_fp16";
  if (*dtype == "fp32") {
    config.without_effect(path, "gradients are accumulated in float32 anyway");
  } else if (*dtype == "bf16" || (*dtype == "fp16" && takes_fp16)) {
    draft.set("precision", "gradient_dtype", *dtype, "from " + path);
    config.honoured(path, as);
  } else {
    config.not_honoured(path,
                        "gradients are accumulated in \"fp32\", \"bf16\" or, with a loss "
                        "scale, \"fp16\"");
  }
}

/// The keys of a table that is off have no effect in DeepSpeed either.
void close_table(DeepSpeedConfig& config, const std::string& table) {
  for (const std::string& key : config.open_keys(table)) {
    config.without_effect(key, table + " is not enabled");
  }
}

/// What a table says beside its switch, which Hugging Face's Trainer sets.
void leave_to_trainer(DeepSpeedConfig& config, const std::string& table) {
  for (const std::string& key : config.open_keys(table)) {
    config.not_honoured(key, table + ".enabled is \"auto\"; give precision.plugin yourself");
  }
}

}  // namespace

void translate_precision(DeepSpeedConfig& config, ExperimentDraft& draft) {
  std::string chosen, plugin = "fp32";  // table and plugin
  bool left_to_trainer = false;
  for (const Mode& mode : kModes) {
    const std::string table = mode.table, enabled = table + ".enabled";
    const auto on = config.flag(enabled, kAs);
    if (on) config.honoured(enabled, kAs, *on ? mode.enabled_remark : "");
    if (config.is_auto(enabled)) {
      left_to_trainer = true;
      leave_to_trainer(config, table);
    } else if (!on.value_or(false)) {
      close_table(config, table);
    }
    if (!on.value_or(false)) continue;
    if (!chosen.empty() && table == "fp16") {
      throw ConfigError(config.source().where(enabled) + ": is true, as is " + chosen +
                        ".enabled; enable one of them, as DeepSpeed demands.");
    }
    const std::string name =
        table == "torch_autocast" ? translate_autocast_dtype(config) : mode.plugin;
    if (table == "fp16") translate_loss_scale(config, draft);
    if (!chosen.empty()) continue;
    chosen = table;
    plugin = name;
  }
  draft.set("precision", "plugin", plugin,
            !chosen.empty()   ? "from " + chosen + ".enabled"
            : left_to_trainer ? "chosen here"
                              : "no lower precision is enabled");
  translate_gradient_dtype(config, draft, plugin);
}

}  // namespace zerolab
