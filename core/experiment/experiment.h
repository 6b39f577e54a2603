#pragma once
// An experiment: what a TOML file and its overrides say, checked and complete.

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zerolab/kind.h"
#include "zerolab/options.h"

namespace zerolab {

/// The chosen plugin of a kind, with every option resolved.
struct PluginChoice {
  std::string name;
  OptionValues options;
};

struct BatchConfig {
  int64_t sequence_length = 0;
  int64_t micro_batch_size = 0;              ///< sequences per rank and micro-batch
  int64_t gradient_accumulation_steps = 1;   ///< micro-batches per step
  int64_t total_batch_size = 0;              ///< sequences per step over all ranks
  std::string reduce_every = "micro_batch";  ///< or "step"
  bool drop_last = false;                    ///< an epoch ends with its last whole step
  static void describe(Describe<BatchConfig>& d);
};

struct MemoryConfig {
  bool activation_checkpointing = false;
  static void describe(Describe<MemoryConfig>& d);
};

struct EvaluationConfig {
  int64_t every = 0;        ///< steps; 0: only at the end
  int64_t num_samples = 0;  ///< sequences of the validation split; 0: all of it
  static void describe(Describe<EvaluationConfig>& d);
};

struct CheckpointConfig {
  int64_t every = 0;              ///< steps; 0: only at the end and when stopped
  bool at_end = true;             ///< one after the last step
  int64_t keep_last = 2;          ///< newest ones that are kept
  int64_t keep_every = 0;         ///< those of every so many steps are kept for ever; 0: none
  std::string keep_best;          ///< "val_loss": the best one is kept too; empty: no
  bool async = false;             ///< write while training goes on
  std::string on_error = "stop";  ///< or "continue"
  std::string mirror;             ///< "remote:path" of rclone; empty: none
  static void describe(Describe<CheckpointConfig>& d);
  void check(Problems& problems) const;
};

/// What is done about steps that look as if training broke: "skip" the update, "stop", or
/// "rollback" to the newest checkpoint and go on with the samples after the bad ones.
struct GuardConfig {
  std::string non_finite = "skip";  ///< a loss or gradient that is not finite; not that of a scale
  std::string spike = "off";        ///< a loss far above those before; also "off"
  int64_t window = 100;             ///< steps whose losses a spike is held against
  double z_score = 6;               ///< standard deviations above their mean
  int64_t max_skips = 50;           ///< in a row; then it stops
  int64_t max_rollbacks = 3;        ///< of a run; then it stops
  static void describe(Describe<GuardConfig>& d);
};

struct DistributedConfig {
  double stall_timeout_s = 300;  ///< a rank without progress for so long is stuck; 0: never
  static void describe(Describe<DistributedConfig>& d);
};

struct Experiment {
  std::string name;
  uint64_t seed = 1337;
  int64_t steps = 0;
  double gradient_clipping = 0;  ///< 0: off
  std::string device = "cpu";
  int64_t threads = 0;  ///< per rank; 0: cores / ranks on this machine
  bool check_collectives = true;
  bool check_replicas = false;
  std::string init_from;  ///< weights that a new run begins with; empty: the initial laws'
  std::vector<std::string> freeze;  ///< patterns of parameters that are not trained
  BatchConfig batch;
  MemoryConfig memory;
  EvaluationConfig evaluation;
  CheckpointConfig checkpoint;
  GuardConfig guard;
  DistributedConfig distributed;
  std::array<PluginChoice, 6> plugins;  ///< indexed by Kind
  /// The host's own keys as they were checked, by table ("" is the top level).
  std::map<std::string, OptionValues> host_values;

  std::filesystem::path file;  ///< the experiment file, absolute
  std::string resolved_toml;   ///< every value, its origin in a comment; a valid experiment itself
  const PluginChoice& plugin(Kind kind) const { return plugins[static_cast<size_t>(kind)]; }
};

/// What the loader needs to know about installed plugins; the host implements it.
class PluginCatalogue {
 public:
  virtual ~PluginCatalogue() = default;
  /// The options of a plugin; null if it is not installed. May load the library. Errors:
  /// PluginError if it is refused.
  virtual const OptionSchema* schema(Kind kind, std::string_view name) = 0;
  /// Names installed for a kind, sorted; reads manifests only.
  virtual std::vector<std::string> names(Kind kind) = 0;
  /// The sentence for a plugin that is not there: nearest id, directories searched, what was
  /// refused there and why.
  virtual std::string missing_message(Kind kind, std::string_view name) = 0;
};

/// A parsed experiment file with its bases (`extends`) and overrides, before plugins are looked up.
class ExperimentFile {
 public:
  /// `overrides`: "dotted.key=TOML value". Errors: ConfigError with file:line:col for syntax; a
  /// missing file; a cycle of `extends`.
  static ExperimentFile load(const std::filesystem::path& file,
                             const std::vector<std::string>& overrides);
  ~ExperimentFile();
  ExperimentFile(ExperimentFile&&) noexcept;

  /// The experiment's own `plugin_path` entries, absolute; used only if the user trusts them.
  const std::vector<std::filesystem::path>& plugin_path() const;
  /// Checks everything against the installed plugins and completes it for `num_ranks`.
  /// Errors: one ConfigError with all problems, a line each; PluginError if a plugin is missing or
  /// refused.
  Experiment resolve(PluginCatalogue& catalogue, int num_ranks) const;

 private:
  struct Impl;
  explicit ExperimentFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The nearest of `candidates` to a mistyped word; empty if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace zerolab
