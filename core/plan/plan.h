#pragma once
// What each sharding strategy would hold and move per rank, worked out before anything runs.
//
// Units: bytes of one rank; moved: in one optimizer step with an update.
// Ranks: local. Arithmetic on declarations: no parameter has memory.
// Source: Rajbhandari et al., "ZeRO", arXiv 1910.02054, section 3 and figure 1.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zerolab/sharding.h"

namespace zerolab {

/// A strategy to plan for.
struct PlanCandidate {
  std::string name;
  bool own = false;  ///< the experiment's own
  std::unique_ptr<Sharding> strategy;
  std::string why_not;  ///< a sentence, if it could not be made
};

/// What a strategy says for one number of ranks.
struct PlanRow {
  std::string name;
  bool own = false;
  std::optional<Footprint> footprint;
  std::string why_not;  ///< a sentence, where there is no footprint
  int64_t saved_by_reducing_every_step = 0;
};

/// What reduce_every = "step" would move less than `footprint`, the strategy's answer to `request`;
/// 0 where it changes nothing. Errors: what footprint() throws.
int64_t saved_by_reducing_every_step(const Sharding& strategy, FootprintRequest request,
                                     const Footprint& footprint);

/// A row for each candidate, in their order. A candidate that cannot run on so many ranks, or
/// states no footprint, says so in its row.
std::vector<PlanRow> plan_rows(const std::vector<PlanCandidate>& candidates,
                               const FootprintRequest& request);

/// The row that moves the fewest bytes, and of those that move equally few the one that holds the
/// fewest, among rows that hold at most `memory` together with `activation_bytes`; null if there is
/// none.
const PlanRow* cheapest(const std::vector<PlanRow>& rows, int64_t activation_bytes,
                        std::optional<int64_t> memory);
/// The row that holds the fewest bytes; null if no row has a footprint.
const PlanRow* smallest(const std::vector<PlanRow>& rows);

}  // namespace zerolab
