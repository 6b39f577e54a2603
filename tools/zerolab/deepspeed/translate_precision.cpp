#include <array>
#include <optional>

#include "zerolab/error.h"

#include "translation.h"

namespace zerolab {
namespace {

constexpr const char* kAs = "precision.plugin";

/// One table that turns a precision on.
struct Mode {
  const char* table;
  const char* enabled_remark;  ///< what is otherwise; empty if nothing is
};

constexpr const char* kBf16Remark =
    "amp_bf16 stands in: matrix products in bfloat16, but parameters, gradients and what travels "
    "stay float32; sharding.wire_dtype = \"bf16\" halves what travels";
constexpr const char* kFp16Remark =
    "amp_bf16 stands in for float16: it needs no loss scaling; parameters, gradients and what "
    "travels stay float32";

constexpr std::array<Mode, 5> kModes = {{{"bf16", kBf16Remark},
                                         {"bfloat16", kBf16Remark},
                                         {"fp16", kFp16Remark},
                                         {"torch_autocast", ""},
                                         {"amp", kFp16Remark}}};

/// "bfloat16" unless the table says otherwise.
void translate_autocast_dtype(DeepSpeedConfig& config) {
  const std::string path = "torch_autocast.dtype";
  const auto dtype = config.word(path, kAs);
  if (!dtype) return;
  if (*dtype == "bfloat16" || *dtype == "bf16" || *dtype == "torch.bfloat16") {
    config.honoured(path, kAs);
  } else {
    config.not_honoured(path, "bfloat16 stands in: it has float32's range, so it needs no scaling");
  }
}

/// The keys of a table that is off have no effect in DeepSpeed either.
void close_table(DeepSpeedConfig& config, const std::string& table) {
  for (const std::string& key : config.open_keys(table)) {
    config.without_effect(key, table + " is not enabled");
  }
}

}  // namespace

void translate_precision(DeepSpeedConfig& config, ExperimentDraft& draft) {
  const Mode* chosen = nullptr;
  bool left_to_trainer = false;
  for (const Mode& mode : kModes) {
    const std::string enabled = std::string(mode.table) + ".enabled";
    left_to_trainer = left_to_trainer || config.is_auto(enabled);
    const auto on = config.flag(enabled, kAs);
    if (on) config.honoured(enabled, kAs, *on ? mode.enabled_remark : "");
    if (!on.value_or(false)) {
      if (!config.is_auto(enabled)) close_table(config, mode.table);
      continue;
    }
    const bool is_fp16 = std::string(mode.table) == "fp16";
    if (chosen != nullptr && is_fp16) {
      throw ConfigError(config.source().where(enabled) + ": is true, as is " + chosen->table +
                        ".enabled; enable one of them, as DeepSpeed demands.");
    }
    if (std::string(mode.table) == "torch_autocast") translate_autocast_dtype(config);
    if (chosen == nullptr) chosen = &mode;
  }
  if (chosen != nullptr) {
    draft.set("precision", "plugin", std::string("amp_bf16"),
              "from " + std::string(chosen->table) + ".enabled");
  } else {
    draft.set("precision", "plugin", std::string("fp32"),
              left_to_trainer ? "chosen here" : "no lower precision is enabled");
  }
}

}  // namespace zerolab
