#include <array>
#include <optional>
#include <string>
#include <vector>

#include "translation.h"

namespace zerolab {
namespace {

const std::string kZero = "zero_optimization";
const std::string kStage = kZero + ".stage";
constexpr int64_t kMostElements = int64_t{1} << 40;

std::string in_zero(const char* key) {
  return kZero + "." + key;
}

/// The stage; 0 where none is given. Before tables there was a truth value.
int64_t translate_stage(DeepSpeedConfig& config, std::string& comment) {
  const Json* const old = config.source().find(kZero);
  if (old != nullptr && old->is_boolean()) {
    config.honoured(kZero, "sharding.plugin", "true is stage 1 in DeepSpeed's old form");
    comment = "from " + kZero;
    return old->get<bool>() ? 1 : 0;
  }
  const auto stage = config.count(kStage, "sharding.plugin", 0, 3);
  if (stage) config.honoured(kStage, "sharding.plugin");
  comment = stage                    ? "from " + kStage
            : config.is_auto(kStage) ? "chosen here"
                                     : "no stage is configured";
  return stage.value_or(0);
}

/// Groups of ranks that hold all parts once.
struct Groups {
  bool wanted = false;
  int64_t size = 0;  ///< 0: left to the strategy
  std::string from;
};

/// MiCS or hpZ. Only stage 3 reads them.
Groups translate_groups(DeepSpeedConfig& config, int64_t stage) {
  Groups groups;
  const std::string mics = in_zero("mics_shard_size");
  for (const std::string& path : {mics, in_zero("zero_hpz_partition_size")}) {
    const auto ranks = config.count(path, "sharding.hsdp.shard_size", -1, 1 << 20);
    if (!ranks) continue;
    if (*ranks <= 1) {
      config.without_effect(path, "no groups of ranks");
    } else if (stage < 3) {
      config.without_effect(path, "DeepSpeed reads it in stage 3 only");
    } else if (groups.wanted) {
      config.not_honoured(path, "mics_shard_size takes its place");
    } else if ((*ranks & (*ranks - 1)) != 0) {
      groups.wanted = true;
      config.not_honoured(path, "hsdp's groups are of a power of two; it chooses their size");
    } else {
      groups = {true, *ranks, path};
      config.honoured(path, "sharding.hsdp.shard_size",
                      path == mics
                          ? "--ranks has to be a multiple of it"
                          : "--ranks has to be a multiple of it; the groups hold gradients "
                            "and optimizer states, too, which DeepSpeed spreads over all "
                            "ranks");
    }
  }
  return groups;
}

void translate_sizes(DeepSpeedConfig& config, ExperimentDraft& draft) {
  for (const char* key : {"reduce_bucket_size", "allgather_bucket_size"}) {
    const std::string as = std::string("sharding.") + key;
    const auto elements = config.count(in_zero(key), as, 0, kMostElements);
    if (!elements) continue;
    if (*elements == 0) {
      config.not_honoured(in_zero(key), as + " is at least 1");
      continue;
    }
    draft.set("sharding", key, *elements, "elements; from " + in_zero(key));
    config.honoured(in_zero(key), as);
  }
  if (const auto overlap = config.flag(in_zero("overlap_comm"), "sharding.overlap_comm")) {
    draft.set("sharding", "overlap_comm", *overlap, "from " + in_zero("overlap_comm"));
    config.honoured(in_zero("overlap_comm"), "sharding.overlap_comm");
  }
}

/// int8 replaces both directions of the wire at once.
bool translate_quantization(DeepSpeedConfig& config, ExperimentDraft& draft) {
  const std::string weights = in_zero("zero_quantized_weights");
  const std::string gradients = in_zero("zero_quantized_gradients");
  const std::string as = "sharding.wire_dtype";
  const auto quantize_weights = config.flag(weights, as);
  const auto quantize_gradients = config.flag(gradients, as);
  const bool both = quantize_weights.value_or(false) && quantize_gradients.value_or(false);
  if (both)
    draft.set("sharding", "wire_dtype", std::string("int8"),
              "from " + weights +
                  " and its "
                  "companion for gradients");
  const auto judge = [&](const std::string& path, const std::optional<bool>& on) {
    if (on && *on && !both) {
      config.not_honoured(path,
                          "sharding.wire_dtype = \"int8\" quantizes weights and gradients, but "
                          "only one of them is asked for");
    } else if (on) {
      config.honoured(path, as, *on ? "blocks of 256 values in both directions" : "");
    }
  };
  judge(weights, quantize_weights);
  judge(gradients, quantize_gradients);
  return both;
}

/// LoCo, the error feedback of quantized gradients.
void translate_error_feedback(DeepSpeedConfig& config, ExperimentDraft& draft, bool quantized) {
  const std::string as = "sharding.wire_error_feedback";
  bool given = false;
  for (const char* key : {"zeropp_loco_param.err_beta", "zeropp_loco_param.reset_T"}) {
    const std::string path = in_zero(key);
    if (!config.number(path, as, {.low = 0})) continue;
    if (!quantized) {
      config.not_honoured(path, "error feedback needs sharding.wire_dtype = \"int8\"");
      continue;
    }
    config.honoured(path, as,
                    "the whole error is added to the next gradient, without a moving "
                    "average");
    if (!given) draft.set("sharding", "wire_error_feedback", true, "from " + path);
    given = true;
  }
}

void translate_wire(DeepSpeedConfig& config, ExperimentDraft& draft, bool quantized) {
  const std::string path = "communication_data_type";
  const auto dtype = config.word(path, "sharding.wire_dtype");
  if (!dtype) return;
  if (quantized) {
    config.not_honoured(path, "sharding.wire_dtype is \"int8\" already, from zero_quantized_*");
  } else if (*dtype == "fp32" || *dtype == "bf16") {
    draft.set("sharding", "wire_dtype", *dtype, "from " + path);
    config.honoured(path, "sharding.wire_dtype",
                    *dtype == "fp32" ? "" : "for gathered parameters, too; sums are in float32");
  } else {
    config.not_honoured(path, "sharding.wire_dtype is \"fp32\", \"bf16\" or \"int8\"");
  }
}

void translate_offload(DeepSpeedConfig& config, ExperimentDraft& draft) {
  const std::string device_path = in_zero("offload_optimizer.device");
  const std::string old_path = in_zero("cpu_offload");
  const auto device = config.word(device_path, "sharding.offload");
  const auto old = config.flag(old_path, "sharding.offload");
  std::string from;
  if (old && !device) from = old_path;
  if (old)
    config.honoured(old_path, device ? "" : "sharding.offload",
                    device ? "offload_optimizer takes its place" : "");
  if (device && (*device == "cpu" || *device == "none")) {
    from = device_path;
    config.honoured(device_path, "sharding.offload",
                    *device == "cpu" ? "optimizer states only; nothing to do where device is "
                                       "\"cpu\""
                                     : "");
  } else if (device) {
    config.not_honoured(device_path,
                        "states stay where the parameters are; sharding.offload = "
                        "\"host\" moves them to the host's memory");
  }
  if (from.empty()) return;
  const bool host = device ? *device == "cpu" : *old;
  draft.set("sharding", "offload", std::string(host ? "host" : "none"), "from " + from);
}

void translate_persistence(DeepSpeedConfig& config, ExperimentDraft& draft,
                           const std::string& plugin) {
  // Where parameters are not sharded, the value waits for a swap to zero3.
  const std::string table = plugin == "hsdp" ? "sharding.hsdp" : "sharding.zero3";
  const std::string as = table + ".param_persistence_threshold";
  bool given = false;
  for (const char* key : {"stage3_param_persistence_threshold", "param_persistence_threshold"}) {
    const std::string path = in_zero(key);
    const auto elements = config.count(path, as, 0, kMostElements);
    if (!elements) continue;
    if (given) {
      config.not_honoured(path, "is another name of stage3_param_persistence_threshold: keep one");
      continue;
    }
    given = true;
    draft.set(table, "param_persistence_threshold", *elements, "elements; from " + path);
    config.honoured(path, as);
  }
}

}  // namespace

void translate_sharding(DeepSpeedConfig& config, ExperimentDraft& draft) {
  constexpr std::array<const char*, 4> kByStage = {"ddp", "zero1", "zero2", "zero3"};
  std::string comment;
  const int64_t stage = translate_stage(config, comment);
  const Groups groups = translate_groups(config, stage);
  const std::string plugin = groups.wanted ? "hsdp" : kByStage.at(static_cast<size_t>(stage));
  draft.set("sharding", "plugin", plugin, comment);
  translate_sizes(config, draft);
  const bool quantized = translate_quantization(config, draft);
  translate_error_feedback(config, draft, quantized);
  translate_wire(config, draft, quantized);
  translate_offload(config, draft);
  if (groups.wanted) draft.set("sharding.hsdp", "stage", stage, "from " + kStage);
  if (groups.size > 0) {
    draft.set("sharding.hsdp", "shard_size", groups.size, "ranks; from " + groups.from);
  }
  translate_persistence(config, draft, plugin);
}

}  // namespace zerolab
