#pragma once
// Why a rank, or the run, ended.

#include <string>

#include "zerolab/error.h"

namespace zerolab {

/// In place of a rank: nobody is to blame.
inline constexpr int kNoRank = -1;

struct Failure {
  int rank = 0;  ///< or kNoRank
  int exit_code = 0;
  std::string message;
  /// `rank` itself is stuck or gone: the cause, though its exit code says "peer".
  bool stalled = false;

  /// Only says that another rank is gone: gives way to what that one says.
  bool blames_peer() const { return exit_code == static_cast<int>(ExitCode::kPeer) && !stalled; }
  /// As users read it. Mistakes in the configuration are shared by all ranks, and name none.
  std::string sentence() const {
    const bool shared = rank == kNoRank || exit_code == static_cast<int>(ExitCode::kConfiguration);
    return shared ? message : "rank " + std::to_string(rank) + ": " + message;
  }
};

}  // namespace zerolab
