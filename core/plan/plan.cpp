#include "plan/plan.h"

#include <algorithm>
#include <utility>

#include "zerolab/error.h"

namespace zerolab {
namespace {

PlanRow plan_row(const PlanCandidate& candidate, const FootprintRequest& request) {
  PlanRow row{candidate.name, candidate.own, std::nullopt, candidate.why_not, 0};
  if (!candidate.strategy) return row;
  try {
    row.footprint = candidate.strategy->footprint(request);
    if (!row.footprint) {
      row.why_not = "states no footprint";
      return row;
    }
    row.saved_by_reducing_every_step =
        saved_by_reducing_every_step(*candidate.strategy, request, *row.footprint);
  } catch (const Error& error) {
    row.footprint.reset();
    row.why_not = error.what();
  }
  return row;
}

/// The least of the rows that `admits`, by `key`.
template <class Admits, class Key>
const PlanRow* least(const std::vector<PlanRow>& rows, const Admits& admits, const Key& key) {
  const PlanRow* best = nullptr;
  for (const PlanRow& row : rows) {
    if (!row.footprint || !admits(row)) continue;
    if (best == nullptr || key(row) < key(*best)) best = &row;
  }
  return best;
}

}  // namespace

int64_t saved_by_reducing_every_step(const Sharding& strategy, FootprintRequest request,
                                     const Footprint& footprint) {
  if (request.micro_batches == 1 || request.reduce_every == ReduceEvery::kStep) return 0;
  request.reduce_every = ReduceEvery::kStep;
  const std::optional<Footprint> once = strategy.footprint(request);
  return once ? footprint.moved_bytes() - once->moved_bytes() : 0;
}

std::vector<PlanRow> plan_rows(const std::vector<PlanCandidate>& candidates,
                               const FootprintRequest& request) {
  std::vector<PlanRow> rows;
  for (const PlanCandidate& candidate : candidates) rows.push_back(plan_row(candidate, request));
  return rows;
}

const PlanRow* cheapest(const std::vector<PlanRow>& rows, int64_t activation_bytes,
                        std::optional<int64_t> memory) {
  return least(
      rows,
      [&](const PlanRow& row) {
        return !memory || row.footprint->held.total() + activation_bytes <= *memory;
      },
      [](const PlanRow& row) {
        return std::pair(row.footprint->moved_bytes(), row.footprint->held.total());
      });
}

const PlanRow* smallest(const std::vector<PlanRow>& rows) {
  return least(
      rows, [](const PlanRow&) { return true; },
      [](const PlanRow& row) { return row.footprint->held.total(); });
}

}  // namespace zerolab
