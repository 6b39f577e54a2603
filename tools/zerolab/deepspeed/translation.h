#pragma once
// The parts of a DeepSpeed configuration, each to its tables of an experiment. Each function gives
// a verdict on the keys it knows; translate_rest() gives it on all others.
//
// What a key that is absent means: where it changes results (optimizer, learning rate, warmup),
// DeepSpeed's default is written down; elsewhere the experiment keeps its own.
// Source: DeepSpeed's documentation, "Configuration JSON" and "Learning Rate Schedulers".

#include <cstdint>

#include "deepspeed_config.h"
#include "experiment_draft.h"

namespace zerolab {

/// train_batch_size and its two companions, to [batch]. Errors: ConfigError if no number of GPUs
/// satisfies all three.
void translate_batch(DeepSpeedConfig& config, ExperimentDraft& draft);
/// optimizer, but for its lr, to [optimizer].
void translate_optimizer(DeepSpeedConfig& config, ExperimentDraft& draft);
/// scheduler and the optimizer's lr, to [scheduler] and the top level's steps.
void translate_schedule(DeepSpeedConfig& config, ExperimentDraft& draft);
/// bf16, fp16, torch_autocast and amp, to [precision]. Errors: ConfigError for bf16 with fp16.
void translate_precision(DeepSpeedConfig& config, ExperimentDraft& draft);
/// zero_optimization and communication_data_type, to [sharding].
void translate_sharding(DeepSpeedConfig& config, ExperimentDraft& draft);
/// Verdicts on every key that has none: what is known not to be honoured, and typing errors.
void translate_rest(DeepSpeedConfig& config);

}  // namespace zerolab
