// Merging of one piece. Both ways choose the same pair each time: the lowest rank, the leftmost of
// equal ones.

#include <queue>

#include "tokenizer_ranks.h"

namespace zerolab {
namespace {

constexpr size_t kShort = 128;  // up to here, looking at every pair each time is quicker

}  // namespace

void BpeRanks::merge(std::string_view piece, std::vector<int32_t>& tokens) const {
  if (piece.size() <= kShort) {
    merge_short(piece, tokens);
  } else {
    merge_long(piece, tokens);
  }
}

void BpeRanks::merge_short(std::string_view piece, std::vector<int32_t>& tokens) const {
  // Part i is [start[i], start[i + 1]); pair[i] is the rank of parts i and i + 1 together.
  std::array<uint8_t, kShort + 1> start;
  std::array<int32_t, kShort> pair;
  size_t num_parts = piece.size();
  const auto rank_of = [&](size_t first, size_t behind) {
    return rank(piece.data() + start[first], size_t{start[behind]} - start[first]);
  };
  for (size_t i = 0; i <= num_parts; ++i) start[i] = static_cast<uint8_t>(i);
  for (size_t i = 0; i + 1 < num_parts; ++i) pair[i] = rank_of(i, i + 2);
  while (num_parts > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < num_parts; ++i) {
      if (pair[i] < pair[best]) best = i;
    }
    if (pair[best] == kNone) break;
    --num_parts;
    for (size_t i = best + 1; i <= num_parts; ++i) start[i] = start[i + 1];
    for (size_t i = best + 1; i + 1 < num_parts; ++i) pair[i] = pair[i + 1];
    if (best + 1 < num_parts) pair[best] = rank_of(best, best + 2);
    if (best > 0) pair[best - 1] = rank_of(best - 1, best + 1);
  }
  for (size_t i = 0; i < num_parts; ++i) tokens.push_back(rank_of(i, i + 1));
}

void BpeRanks::merge_long(std::string_view piece, std::vector<int32_t>& tokens) const {
  // Parts by where they begin: the next one begins where a part ends. Candidates stay in the queue
  // when a neighbour's merge has made them void; size tells.
  struct Candidate {
    int32_t rank;
    size_t left, right, size;
    bool operator<(const Candidate& other) const {  // the queue's top is the largest
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  const size_t end = piece.size();
  std::vector<size_t> size(end, 1), before(end);  // size 0: inside of another part
  std::priority_queue<Candidate> candidates;
  const auto propose = [&](size_t left) {
    const size_t right = left + size[left];
    if (right >= end) return;
    const size_t both = size[left] + size[right];
    const int32_t found = rank(piece.data() + left, both);
    if (found != kNone) candidates.push({found, left, right, both});
  };
  for (size_t i = 0; i < end; ++i) before[i] = i - 1;
  for (size_t i = 0; i < end; ++i) propose(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    const bool valid = size[best.left] == best.right - best.left &&
                       size[best.right] == best.size - size[best.left];
    if (!valid) continue;
    size[best.left] = best.size;
    size[best.right] = 0;
    const size_t behind = best.left + best.size;
    if (behind < end) before[behind] = best.left;
    propose(best.left);
    if (best.left > 0) propose(before[best.left]);
  }
  for (size_t i = 0; i < end; i += size[i]) tokens.push_back(rank(piece.data() + i, size[i]));
}

}  // namespace zerolab
