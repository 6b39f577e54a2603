#pragma once
// Flags of the verbs that train: run, resume and fork.

#include <string>

#include <CLI/CLI.hpp>

#include "on_ranks.h"
#include "train/session.h"
#include "verbs.h"

namespace zerolab {

struct TrainingFlags {
  ExperimentFlags experiment;  ///< for resume and fork, `file` is the run
  RankFlags ranks;
  std::string run_dir, max_time;
  bool json = false;
};

/// All but what the verb trains on and --run-dir. After the flags of the experiment.
void add_training_flags(CLI::App& verb, TrainingFlags& flags);
void add_run_dir_flag(CLI::App& verb, TrainingFlags& flags);

/// The request but for how it starts. Errors: ConfigError for a time that cannot be read.
RunRequest training_request(const TrainingFlags& flags);

/// Checks and trains, here or on ranks of our own.
int train(const RunRequest& request, const TrainingFlags& flags, const CommandLine& line);

/// A finished run has nothing to go on with; says so, or prints its summary as JSON. Errors:
/// ConfigError if it is asked for with other values.
int tell_finished(const RunRequest& request, const TrainingFlags& flags);

/// "55m", "1h30m", "90s", "1:30:00" in seconds; 0 for an empty text. Errors: ConfigError.
double parse_duration(const std::string& text);

}  // namespace zerolab
