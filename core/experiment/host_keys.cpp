#include "experiment/host_keys.h"

#include <algorithm>
#include <utility>

#include "experiment/option_check.h"

namespace zerolab {
namespace {

struct DebugKeys {
  bool check_collectives = true;
  bool check_replicas = false;
  static void describe(Describe<DebugKeys>& d) {
    d.field("check_collectives", &DebugKeys::check_collectives,
            "compare what ranks call with every collective; costs a message of 256 bytes to each "
            "rank for each, and no waiting")
        .keeps_results();
    d.field("check_replicas", &DebugKeys::check_replicas,
            "after each step, compare on all ranks the parameters that stay whole; costs a pass "
            "over them")
        .keeps_results();
  }
};

template <class Keys>
const OptionSchema& schema_of() {
  static const OptionSchema schema = Describe<Keys>::schema();
  return schema;
}

template <class Keys>
Keys read(const OptionValues& values) {
  Keys keys;
  schema_of<Keys>().assign(&keys, values);
  return keys;
}

bool is_device(std::string_view device) {
  constexpr std::string_view kPrefix = "cuda:";
  if (device == "cpu" || device == "cuda") return true;
  if (device.substr(0, kPrefix.size()) != kPrefix) return false;
  const std::string_view number = device.substr(kPrefix.size());
  return !number.empty() && number.size() <= 3 &&
         number.find_first_not_of("0123456789") == std::string_view::npos;
}

constexpr size_t kLongestName = 200;  // with a number behind it, still a file name everywhere

}  // namespace

void TopLevelKeys::describe(Describe<TopLevelKeys>& d) {
  d.field("name", &TopLevelKeys::name,
          "what runs are called, of [A-Za-z0-9._-]; the file's name without .toml if not given")
      .keeps_results();
  d.field("seed", &TopLevelKeys::seed, "of initial values, data order and dropout").at_least(0);
  d.field("steps", &TopLevelKeys::steps, "optimizer steps of the run")
      .unit("steps")
      .at_least(1)
      .required();
  d.field("gradient_clipping", &TopLevelKeys::gradient_clipping,
          "largest global gradient norm; 0: off")
      .at_least(0);
  d.field("device", &TopLevelKeys::device,
          "\"cpu\", \"cuda\" (each rank takes the one of its local rank) or \"cuda:N\"");
  d.field("threads", &TopLevelKeys::threads, "threads per rank; 0: cores / ranks on this machine")
      .at_least(0)
      .at_most(1024);
  d.field("init_from", &TopLevelKeys::init_from,
          "weights that a new run begins with: a run's folder (or RUN@500, RUN@best), a "
          "checkpoint's, a file that `zerolab checkpoint consolidate` wrote, or .safetensors")
      .path();
  d.field("freeze", &TopLevelKeys::freeze,
          "parameters that are not trained, by name; * stands for any characters, ? for one");
  d.field("extends", &TopLevelKeys::extends,
          "a file or a list of files that this one builds on, later ones over earlier")
      .path();
  d.field("plugin_path", &TopLevelKeys::plugin_path,
          "folders with plugins; used only if the user trusts the experiment's")
      .path()
      .keeps_results();
}

void BatchConfig::describe(Describe<BatchConfig>& d) {
  d.field("sequence_length", &BatchConfig::sequence_length, "tokens of a sequence")
      .unit("tokens")
      .at_least(1)
      .at_most(1 << 24)
      .required();
  d.field("micro_batch_size", &BatchConfig::micro_batch_size,
          "sequences per rank and micro-batch; follows from the other two if not given")
      .unit("sequences")
      .at_least(1)
      .at_most(1 << 24);
  d.field("gradient_accumulation_steps", &BatchConfig::gradient_accumulation_steps,
          "micro-batches per step; follows from the other two if both are given")
      .at_least(1)
      .at_most(1 << 24);
  d.field("total_batch_size", &BatchConfig::total_batch_size,
          "sequences per step over all ranks; follows from the other two if not given")
      .unit("sequences")
      .at_least(1)
      .at_most(1 << 30);
  d.field("reduce_every", &BatchConfig::reduce_every,
          "when gradients are summed over ranks; \"step\" moves less under accumulation, in "
          "another order of addition")
      .one_of({"micro_batch", "step"});
  d.field(
      "drop_last", &BatchConfig::drop_last,
      "an epoch ends with its last whole step; otherwise a step may take samples of two epochs, "
      "and none is left out");
}

void MemoryConfig::describe(Describe<MemoryConfig>& d) {
  d.field(
       "activation_checkpointing", &MemoryConfig::activation_checkpointing,
       "keep only the inputs of the model's units and run them again in backward; the same bits, "
       "less memory, about a third more computing")
      .keeps_results();
}

void EvaluationConfig::describe(Describe<EvaluationConfig>& d) {
  d.field("every", &EvaluationConfig::every, "steps between evaluations; 0: only at the end")
      .unit("steps")
      .at_least(0)
      .keeps_results();
  d.field("num_samples", &EvaluationConfig::num_samples,
          "sequences of the validation split; 0: all of it")
      .unit("sequences")
      .at_least(0)
      .keeps_results();
}

void CheckpointConfig::describe(Describe<CheckpointConfig>& d) {
  d.field("every", &CheckpointConfig::every,
          "steps between checkpoints; 0: only at the end, and when the run is stopped")
      .unit("steps")
      .at_least(0)
      .keeps_results();
  d.field("at_end", &CheckpointConfig::at_end,
          "a checkpoint after the last step; a run that is stopped saves itself in any case")
      .keeps_results();
  d.field("keep_last", &CheckpointConfig::keep_last, "newest checkpoints that are kept")
      .at_least(1)
      .keeps_results();
  d.field("keep_every", &CheckpointConfig::keep_every,
          "checkpoints of steps that are multiples of this are never pruned; 0: none")
      .unit("steps")
      .at_least(0)
      .keeps_results();
  d.field("keep_best", &CheckpointConfig::keep_best,
          "\"val_loss\" keeps the checkpoint with the lowest validation loss too")
      .one_of({"", "val_loss"})
      .keeps_results();
  d.field("async", &CheckpointConfig::async,
          "write checkpoints while training goes on; needs memory for a copy of the state")
      .keeps_results();
  d.field("on_error", &CheckpointConfig::on_error,
          "what a checkpoint that cannot be written does to the run; the last one always stops it, "
          "a mirror never does")
      .one_of({"stop", "continue"})
      .keeps_results();
  d.field("mirror", &CheckpointConfig::mirror,
          "copy checkpoints to this remote of rclone (\"remote:path\", or a folder)")
      .keeps_results();
}

void CheckpointConfig::check(Problems& problems) const {
  if (!keep_best.empty() && every == 0) {
    problems.add("keep_best", "needs checkpoints to choose from; set checkpoint.every");
  }
}

void GuardConfig::describe(Describe<GuardConfig>& d) {
  d.field("non_finite", &GuardConfig::non_finite,
          "what a loss or gradient that is not finite does; one that loss scaling explains is "
          "skipped in any case")
      .one_of({"skip", "stop", "rollback"});
  d.field("spike", &GuardConfig::spike, "what a loss far above those of the steps before does")
      .one_of({"off", "skip", "stop", "rollback"});
  d.field("window", &GuardConfig::window, "steps whose losses a spike is held against")
      .unit("steps")
      .at_least(2)
      .at_most(100000);
  d.field("z_score", &GuardConfig::z_score,
          "a spike is so many standard deviations above the mean of the window")
      .above(0);
  d.field("max_skips", &GuardConfig::max_skips, "skipped steps in a row after which the run stops")
      .unit("steps")
      .at_least(1);
  d.field("max_rollbacks", &GuardConfig::max_rollbacks, "rollbacks of a run after which it stops")
      .at_least(0);
}

void DistributedConfig::describe(Describe<DistributedConfig>& d) {
  d.field("stall_timeout_s", &DistributedConfig::stall_timeout_s,
          "a rank that makes no progress for so long is stuck and ends the run; 0: never")
      .unit("seconds")
      .at_least(0)
      .keeps_results();
}

void TopLevelKeys::check(Problems& problems) const {
  if (std::string wrong = check_name(name); !wrong.empty()) problems.add("name", std::move(wrong));
  if (!is_device(device)) {
    problems.add("device", "must be \"cpu\", \"cuda\" or \"cuda:N\" with a device number N, is " +
                               to_toml(device) + "; default \"cpu\"");
  }
  if (std::find(freeze.begin(), freeze.end(), "") != freeze.end()) {
    problems.add("freeze", "has an empty pattern, which no parameter's name matches");
  }
}

std::string check_name(std::string_view name) {
  const bool suits = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
  if (!suits) {
    return "must be made of letters, digits, '.', '_' and '-', is " + to_toml(std::string(name));
  }
  if (name.size() > kLongestName) {
    return "must have at most " + std::to_string(kLongestName) + " characters, has " +
           std::to_string(name.size());
  }
  return {};
}

const std::vector<HostTable>& host_tables() {
  static const std::vector<HostTable> tables = {{"", schema_of<TopLevelKeys>()},
                                                {"batch", schema_of<BatchConfig>()},
                                                {"memory", schema_of<MemoryConfig>()},
                                                {"evaluation", schema_of<EvaluationConfig>()},
                                                {"checkpoint", schema_of<CheckpointConfig>()},
                                                {"guard", schema_of<GuardConfig>()},
                                                {"distributed", schema_of<DistributedConfig>()},
                                                {"debug", schema_of<DebugKeys>()}};
  return tables;
}

void assign_host_table(std::string_view table, const OptionValues& values, Experiment& experiment) {
  if (table.empty()) {
    const auto keys = read<TopLevelKeys>(values);
    experiment.name = keys.name;
    experiment.seed = static_cast<uint64_t>(keys.seed);
    experiment.steps = keys.steps;
    experiment.gradient_clipping = keys.gradient_clipping;
    experiment.device = keys.device;
    experiment.threads = keys.threads;
    experiment.init_from = keys.init_from;
    experiment.freeze = keys.freeze;
  } else if (table == "batch") {
    experiment.batch = read<BatchConfig>(values);
  } else if (table == "memory") {
    experiment.memory = read<MemoryConfig>(values);
  } else if (table == "evaluation") {
    experiment.evaluation = read<EvaluationConfig>(values);
  } else if (table == "checkpoint") {
    experiment.checkpoint = read<CheckpointConfig>(values);
  } else if (table == "guard") {
    experiment.guard = read<GuardConfig>(values);
  } else if (table == "distributed") {
    experiment.distributed = read<DistributedConfig>(values);
  } else if (table == "debug") {
    const auto keys = read<DebugKeys>(values);
    experiment.check_collectives = keys.check_collectives;
    experiment.check_replicas = keys.check_replicas;
  }
}

std::string describe_host_keys() {
  std::string text;
  for (const HostTable& table : host_tables()) {
    if (!table.name.empty()) text += "\n[" + table.name + "]\n";
    for (const OptionField& field : table.schema.fields()) {
      text += field.name + "  # " + field.doc + " (" + describe_field(field) + ")\n";
    }
  }
  return text;
}

}  // namespace zerolab
