#include "train/save_plan.h"

#include <algorithm>
#include <utility>

namespace zerolab {
namespace {

constexpr int64_t kLongPiece = int64_t{1} << 18;  // elements; shorter ones are not worth a cut

/// The ranks that hold one and the same piece.
struct Copies {
  int64_t offset = 0, length = 0;
  std::vector<int> ranks;
};

std::vector<Copies> group_copies(const std::vector<WholeState::Place>& places) {
  std::vector<Copies> groups;
  for (const WholeState::Place& place : places) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const Copies& group) {
      return group.offset == place.offset && group.length == place.length;
    });
    if (found != groups.end()) {
      found->ranks.push_back(place.rank);
    } else {
      groups.push_back({place.offset, place.length, {place.rank}});
    }
  }
  return groups;
}

/// Calls `give(rank, part)` for each part of a piece.
template <class Give>
void share_out(size_t tensor, const Copies& copies, const std::vector<int64_t>& load,
               const Give& give) {
  const auto count = static_cast<int64_t>(copies.ranks.size());
  if (count > 1 && copies.length >= kLongPiece) {
    for (int64_t k = 0; k < count; ++k) {
      const int64_t begin = copies.length * k / count, end = copies.length * (k + 1) / count;
      give(copies.ranks[static_cast<size_t>(k)], {tensor, copies.offset + begin, end - begin});
    }
    return;
  }
  const int least = *std::min_element(copies.ranks.begin(), copies.ranks.end(), [&](int a, int b) {
    return load[static_cast<size_t>(a)] < load[static_cast<size_t>(b)];
  });
  give(least, {tensor, copies.offset, copies.length});
}

}  // namespace

std::vector<SavePart> plan_save(const WholeState& state, int rank, int num_ranks) {
  std::vector<SavePart> mine;
  std::vector<int64_t> load(static_cast<size_t>(num_ranks), 0);
  const auto give = [&](int to, const SavePart& part) {
    load[static_cast<size_t>(to)] += part.length;
    if (to == rank && part.length > 0) mine.push_back(part);
  };
  // What there is no choice about first: the rest then evens it out.
  for (const bool shared : {false, true}) {
    for (size_t i = 0; i < state.tensors().size(); ++i) {
      for (const Copies& copies : group_copies(state.places(i))) {
        if ((copies.ranks.size() > 1) == shared) share_out(i, copies, load, give);
      }
    }
  }
  std::sort(mine.begin(), mine.end(), [](const SavePart& a, const SavePart& b) {
    return std::pair(a.tensor, a.offset) < std::pair(b.tensor, b.offset);
  });
  return mine;
}

}  // namespace zerolab
