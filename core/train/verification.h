#pragma once
// Does a sharding strategy change the result? The user's own experiment runs three times in one
// process per rank: twice under a reference strategy, which shows that the machine repeats itself,
// and once under its own.
//
// Each run has new plugins and a new trainer; data, order, schedule, initial values and dropout are
// functions of the experiment, and so the same. Nothing is written.
// Ranks: collective, except where it says otherwise.

#include <cstdint>
#include <functional>
#include <string>

#include "train/rank_session.h"
#include "train/verdict.h"

namespace zerolab {

struct VerificationRequest {
  ExperimentRequest source;
  std::string against;  ///< the reference, a sharding plugin's name
  int64_t steps = 0;    ///< of each run; 0: five, or the experiment's if these are fewer
};

/// Told on rank 0 what happens; either may be empty.
struct VerificationObserver {
  std::function<void(const std::string& line)> on_progress;
  std::function<void(const Verification& result)> on_result;
};

/// [local] Everything that can be checked before a process is started. Errors: ConfigError,
/// PluginError.
void check_before_verification(const VerificationRequest& request, int num_ranks);

/// Verifies as this process's rank. Returns and throws as run_as_rank; what is not proven is a
/// failure of the whole.
int verify_as_rank(const VerificationRequest& request, const RankEnvironment& environment,
                   const VerificationObserver& observer);

/// What the ranks measured in `steps` steps and one small validation, the same on every rank.
RunTrace trace_run(Trainer& trainer, Communicator& ranks, int64_t steps);

}  // namespace zerolab
