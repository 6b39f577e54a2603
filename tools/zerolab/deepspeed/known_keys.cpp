#include "known_keys.h"

#include <algorithm>
#include <set>

namespace zerolab {
namespace {

constexpr const char* kMetrics =
    "every run keeps its metrics, of each step, in metrics.h5 and metrics.jsonl";
constexpr const char* kTimes =
    "metrics.h5 holds each step's seconds and those of its communication";
constexpr const char* kRecompute =
    "DeepSpeed's table only tunes what the model turns on; memory.activation_checkpointing = true "
    "recomputes activations of any model";
constexpr const char* kNvme = "nothing is kept on NVMe";
constexpr const char* kOffloadParameters =
    "parameters stay on the device; sharding.plugin = \"zero3\" spreads them over ranks";
constexpr const char* kPinned = "the strategy decides how it copies";
constexpr const char* kFetching =
    "zero3 gathers and frees unit by unit; sharding.zero3.reshard_after_forward decides when";
constexpr const char* kFlat = "parameters and gradients always lie in flat buffers here";
constexpr const char* kParallel = "ranks share the data, not a layer's computation";
constexpr const char* kSequence =
    "the data plugin decides which tokens come when; batch.sequence_length is constant";
constexpr const char* kCompression = "models are trained as they are";
constexpr const char* kAnyOptimizer = "every strategy runs with every optimizer";
constexpr const char* kSums =
    "sums are in float32 along a fixed tree: nothing overflows on the way";
constexpr const char* kMasters = "updates are always of float32 parameters with float32 states";
constexpr const char* kCheckpoint =
    "[checkpoint] says when; a checkpoint is not bound to a strategy or a number of ranks";
constexpr const char* kTuning = "zerolab plan predicts memory and traffic of every strategy";
constexpr const char* kImplementation = "the optimizer plugin decides how it computes";
constexpr const char* kOtherSchedule = "the schedule of scheduler.type has no such option";
constexpr const char* kOtherOptimizer = "the optimizer of optimizer.type has no such option here";

constexpr KnownKey kKnown[] = {
    // Training
    {"steps_per_print", "", "progress is printed by time; every step is in metrics.jsonl"},
    {"wall_clock_breakdown", "false", kTimes},
    {"memory_breakdown", "false", "the summary of a run states memory by category"},
    {"dump_state", "false", "zerolab show-config prints every value and its origin"},
    {"log_level", "", "there is one level"},
    {"vocabulary_size", "", "the data plugin decides the size of the vocabulary"},
    {"dataloader_drop_last", "true", "every batch is whole: epochs follow each other seamlessly"},
    {"managed_gradient_accumulation", "true", "the host always counts micro-batches"},
    {"sparse_gradients", "false", "gradients are dense"},
    {"disable_allgather", "false", "the strategy decides how parameters are published"},
    {"graph_harvesting", "false", "steps are not captured as graphs"},
    {"use_node_local_storage", "false", kCheckpoint},
    {"data_types.param_dtype", "\"fp32\"", "precision.plugin decides the parameters' dtype"},
    {"data_types.buffer_dtype", "null", "precision.plugin decides dtypes"},
    {"compile", "enabled", "models are not compiled"},
    {"timers", "", kTimes},
    // Optimizer and scheduler
    {"zero_allow_untested_optimizer", "true", kAnyOptimizer},
    {"zero_force_ds_cpu_optimizer", "false", kAnyOptimizer},
    {"optimizer.legacy_fusion", "false", kImplementation},
    {"optimizer.params.bias_correction", "true", "both averages are always corrected"},
    {"optimizer.params.amsgrad", "false", "the largest second average is not kept"},
    {"optimizer.params.max_grad_norm", "0", "gradient_clipping is the key, here as in DeepSpeed"},
    {"optimizer.params.set_grad_none", "", kImplementation},
    {"optimizer.params.fused", "", kImplementation},
    {"optimizer.params.foreach", "", kImplementation},
    {"optimizer.params.fp32_optimizer_states", "true", kMasters},
    {"optimizer.params.freeze_step", "", kOtherOptimizer},
    {"optimizer.params.var_freeze_step", "", kOtherOptimizer},
    {"optimizer.params.var_update_scaler", "", kOtherOptimizer},
    {"optimizer.params.local_step_scaler", "", kOtherOptimizer},
    {"optimizer.params.local_step_clipper", "", kOtherOptimizer},
    {"optimizer.params.cuda_aware", "", kOtherOptimizer},
    {"optimizer.params.comm_backend_name", "", kOtherOptimizer},
    {"scheduler.params.last_batch_iteration", "-1", "a run begins at step 0"},
    {"scheduler.params.lr_range_test_min_lr", "", kOtherSchedule},
    {"scheduler.params.lr_range_test_step_size", "", kOtherSchedule},
    {"scheduler.params.lr_range_test_step_rate", "", kOtherSchedule},
    {"scheduler.params.lr_range_test_staircase", "", kOtherSchedule},
    {"scheduler.params.cycle_min_lr", "", kOtherSchedule},
    {"scheduler.params.cycle_max_lr", "", kOtherSchedule},
    {"scheduler.params.cycle_first_step_size", "", kOtherSchedule},
    {"scheduler.params.cycle_second_step_size", "", kOtherSchedule},
    {"scheduler.params.decay_lr_rate", "", kOtherSchedule},
    {"scheduler.params.decay_step_size", "", kOtherSchedule},
    // Communication
    {"gradient_allreduce_op", "\"mean\"", "gradients are averaged over all tokens of a step"},
    {"prescale_gradients", "false", kSums},
    {"gradient_predivide_factor", "1.0", kSums},
    {"seq_parallel_comm_data_type", "\"fp32\"", kParallel},
    {"comms_logger", "enabled",
     "calls, bytes and seconds of every collective are in metrics.h5 anyway"},
    // Precision
    {"fp16.consecutive_hysteresis", "false", "hysteresis is counted anew when the scale grows"},
    {"fp16.auto_cast", "", "inputs are tokens: there is nothing to cast"},
    {"fp16.fused_mode", "", kImplementation},
    {"fp16.fp16_master_weights_and_grads", "false", kMasters},
    {"bf16.bf16_master_weights_and_grads", "false", kMasters},
    {"bf16.bf16_optimizer_states", "false", kMasters},
    {"bf16.immediate_grad_update", "", "gradients are added up in float32 as they come"},
    {"bf16.check_grad_overflow", "true", "a step without a finite gradient is always skipped"},
    {"torch_autocast.lower_precision_safe_modules", "",
     "autocast decides by operation; sharding.wire_dtype decides what travels"},
    {"torch_autocast.dtype", "", "precision.plugin decides"},
    {"amp", "enabled", "precision.plugin = \"amp_fp16\" stands in for Apex's amp"},
    // ZeRO
    {"zero_optimization.allgather_partitions", "true", kFlat},
    {"zero_optimization.reduce_scatter", "true", "every rank gets only the sums that it owns"},
    {"zero_optimization.contiguous_gradients", "true", kFlat},
    {"zero_optimization.round_robin_gradients", "false", kFlat},
    {"zero_optimization.parameter_alignment", "", kFlat},
    {"zero_optimization.use_multi_rank_bucket_allreduce", "", kFlat},
    {"zero_optimization.compute_grad_norm", "true", "the norm is always computed and recorded"},
    {"zero_optimization.ignore_unused_parameters", "true",
     "a parameter without a gradient has a gradient of zero"},
    {"zero_optimization.load_from_fp32_weights", "true", kMasters},
    {"zero_optimization.elastic_checkpoint", "", kCheckpoint},
    {"zero_optimization.pipeline_loading_checkpoint", "", kCheckpoint},
    {"zero_optimization.legacy_stage1", "false", "there is one stage 1"},
    {"zero_optimization.stage3_prefetch_bucket_size", "", "the next unit is gathered ahead"},
    {"zero_optimization.prefetch_bucket_size", "", "the next unit is gathered ahead"},
    {"zero_optimization.stage3_max_live_parameters", "", kFetching},
    {"zero_optimization.max_live_parameters", "", kFetching},
    {"zero_optimization.stage3_max_reuse_distance", "", kFetching},
    {"zero_optimization.max_reuse_distance", "", kFetching},
    {"zero_optimization.stage3_module_granularity_threshold", "", kFetching},
    {"zero_optimization.module_granularity_threshold", "", kFetching},
    {"zero_optimization.stage3_allgather_sequential", "", kFetching},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", "", kFetching},
    {"zero_optimization.leaf_module", "", kFetching},
    {"zero_optimization.stage3_partition_stream_chunk_size", "",
     "parameters are made shard by shard"},
    {"zero_optimization.stage3_model_persistence_threshold", "",
     "only sharding.zero3.param_persistence_threshold bounds what stays whole"},
    {"zero_optimization.model_persistence_threshold", "",
     "only sharding.zero3.param_persistence_threshold bounds what stays whole"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", "false", kCheckpoint},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", "false", kCheckpoint},
    {"zero_optimization.gather_16bit_weights_on_model_save", "false", kCheckpoint},
    {"zero_optimization.sub_group_size", "", "a rank updates all that it owns at once"},
    {"zero_optimization.offload_param.device", "\"none\"", kOffloadParameters},
    {"zero_optimization.offload_param", "", kOffloadParameters},
    {"zero_optimization.cpu_offload_param", "false", kOffloadParameters},
    {"zero_optimization.cpu_offload_params", "false", kOffloadParameters},
    {"zero_optimization.cpu_offload_use_pin_memory", "", kPinned},
    {"zero_optimization.offload_optimizer.pin_memory", "", kPinned},
    {"zero_optimization.offload_optimizer.pipeline", "", kNvme},
    {"zero_optimization.offload_optimizer.pipeline_read", "false", kNvme},
    {"zero_optimization.offload_optimizer.pipeline_write", "false", kNvme},
    {"zero_optimization.offload_optimizer.fast_init", "false", kNvme},
    {"zero_optimization.offload_optimizer.nvme_path", "", kNvme},
    {"zero_optimization.offload_optimizer.buffer_count", "", kNvme},
    {"zero_optimization.offload_optimizer.buffer_size", "", kNvme},
    {"zero_optimization.offload_optimizer.ratio", "1.0", "all optimizer states move or none"},
    {"zero_optimization.offload_optimizer.super_offload", "false", kPinned},
    {"zero_optimization.offload_optimizer.convert_grad_on_cpu", "", kPinned},
    {"zero_optimization.offload_optimizer.cpuadam_cores_perc", "", "threads says how many"},
    {"zero_optimization.zero_quantized_nontrainable_weights", "false",
     "frozen parameters are kept as the others are"},
    {"zero_optimization.mics_hierarchical_params_gather", "false",
     "a group gathers in one collective"},
    {"zero_optimization.memory_efficient_linear", "", "the model decides how it computes"},
    {"zero_optimization.override_module_apply", "", "parameters have their values from the host"},
    {"zero_optimization.log_trace_cache_warnings", "false", "nothing is traced"},
    {"zero_optimization.enable_sanity_checks", "true",
     "debug.check_collectives, which is on, compares collectives between ranks"},
    {"zero_optimization.save_muon_momentum_buffer_in_memory", "", kNvme},
    {"zero_optimization.zenflow", "", "updates do not run beside the next step"},
    {"allgather_size", "", "sharding.allgather_bucket_size is the key"},
    {"aio", "", kNvme},
    // Everything else, table by table
    {"activation_checkpointing.partition_activations", "false", kRecompute},
    {"activation_checkpointing.cpu_checkpointing", "false", kRecompute},
    {"activation_checkpointing.contiguous_memory_optimization", "false", kRecompute},
    {"activation_checkpointing.number_checkpoints", "null", kRecompute},
    {"activation_checkpointing.synchronize_checkpoint_boundary", "false", kRecompute},
    {"activation_checkpointing.profile", "false", kRecompute},
    {"tensorboard", "enabled", kMetrics},
    {"wandb", "enabled", kMetrics},
    {"comet", "enabled", kMetrics},
    {"csv_monitor", "enabled", kMetrics},
    {"flops_profiler", "enabled", kTimes},
    {"autotuning", "enabled", kTuning},
    {"elasticity", "enabled",
     "batch.total_batch_size keeps the batch at every --ranks that divides it"},
    {"checkpoint", "", kCheckpoint},
    {"nebula", "enabled", kCheckpoint},
    {"datastates", "", kCheckpoint},
    {"curriculum_learning", "enabled", kSequence},
    {"data_efficiency", "enabled", kSequence},
    {"progressive_layer_drop", "enabled", "every layer runs in every step"},
    {"sparse_attention", "", "the model plugin decides its attention"},
    {"compression_training", "", kCompression},
    {"quantize_training", "", kCompression},
    {"weight_quantization", "", kCompression},
    {"eigenvalue", "enabled", kCompression},
    {"hybrid_engine", "enabled", "a run trains; it does not generate between steps"},
    {"pipeline", "", kParallel},
    {"tensor_parallel", "", kParallel},
    {"expert_parallel", "enabled", kParallel},
    {"sequence_parallel_size", "1", kParallel},
    {"data_parallel_size", "", "--ranks says how many"},
    {"use_data_before_expert_parallelism", "false", kParallel},
};

constexpr const char* kTranslated[] = {
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "communication_data_type",
    "data_types.grad_accum_dtype",
    "optimizer.type",
    "optimizer.params.lr",
    "optimizer.params.betas",
    "optimizer.params.eps",
    "optimizer.params.weight_decay",
    "optimizer.params.torch_adam",
    "optimizer.params.adam_w_mode",
    "optimizer.params.momentum",
    "optimizer.params.dampening",
    "optimizer.params.nesterov",
    "scheduler.type",
    "scheduler.params.warmup_min_lr",
    "scheduler.params.warmup_max_lr",
    "scheduler.params.warmup_num_steps",
    "scheduler.params.warmup_type",
    "scheduler.params.warmup_min_ratio",
    "scheduler.params.cos_min_ratio",
    "scheduler.params.total_num_steps",
    "bf16.enabled",
    "bfloat16.enabled",
    "fp16.enabled",
    "fp16.loss_scale",
    "fp16.initial_scale_power",
    "fp16.loss_scale_window",
    "fp16.hysteresis",
    "fp16.min_loss_scale",
    "torch_autocast.enabled",
    "amp.enabled",
    "zero_optimization.stage",
    "zero_optimization.mics_shard_size",
    "zero_optimization.zero_hpz_partition_size",
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.overlap_comm",
    "zero_optimization.zero_quantized_weights",
    "zero_optimization.zero_quantized_gradients",
    "zero_optimization.zeropp_loco_param.err_beta",
    "zero_optimization.zeropp_loco_param.reset_T",
    "zero_optimization.offload_optimizer.device",
    "zero_optimization.cpu_offload",
    "zero_optimization.stage3_param_persistence_threshold",
    "zero_optimization.param_persistence_threshold",
};

}  // namespace

std::span<const KnownKey> known_keys() {
  return kKnown;
}

std::span<const char* const> translated_keys() {
  return kTranslated;
}

const KnownKey* find_known(const std::string& path) {
  const KnownKey* best = nullptr;
  size_t longest = 0;
  for (const KnownKey& key : known_keys()) {
    const std::string known = key.path;
    const bool covers = path == known || path.starts_with(known + ".");
    if (covers && known.size() >= longest) best = &key, longest = known.size();
  }
  return best;
}

namespace {

/// Calls `visit(table, name)` for each step of each known path.
template <class Visit>
void for_each_name(const Visit& visit) {
  std::vector<std::string> paths(translated_keys().begin(), translated_keys().end());
  for (const KnownKey& key : known_keys()) paths.push_back(key.path);
  for (const std::string& path : paths) {
    std::string table;
    for (size_t start = 0; start < path.size();) {
      const size_t end = std::min(path.find('.', start), path.size());
      visit(table, path.substr(start, end - start));
      table = path.substr(0, end);
      start = end + 1;
    }
  }
}

}  // namespace

std::vector<std::string> known_names(const std::string& table) {
  std::set<std::string> names;
  for_each_name([&](const std::string& in, const std::string& name) {
    if (in == table) names.insert(name);
  });
  return {names.begin(), names.end()};
}

std::vector<std::string> tables_with(const std::string& name) {
  std::set<std::string> tables;
  for_each_name([&](const std::string& in, const std::string& known) {
    if (known == name) tables.insert(in);
  });
  return {tables.begin(), tables.end()};
}

}  // namespace zerolab
