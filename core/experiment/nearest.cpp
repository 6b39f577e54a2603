// The nearest known word: spelling distance first, then a word that is part of the other.
// Source: optimal string alignment, the restricted form of Damerau (1964) and Levenshtein
// (1966): insertion, deletion, substitution and a swap of neighbours cost 1 each.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "experiment/experiment.h"

namespace zerolab {
namespace {

/// Upper case and hyphens are no difference in what was meant.
std::string folded(std::string_view word) {
  std::string out(word);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return out;
}

size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, substituted});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, previous);
    std::swap(previous, row);
  }
  return previous[b.size()];
}

constexpr size_t kLongestWord = 100;  // beyond it nobody mistyped a key
constexpr size_t kShortestPart = 4;   // shorter parts are in too many words

bool is_part(std::string_view part, std::string_view whole) {
  return part.size() >= kShortestPart && whole.find(part) != std::string_view::npos;
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > kLongestWord) return {};
  const std::string wanted = folded(word);
  const std::string* best = nullptr;
  size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    const size_t d = distance(wanted, folded(candidate));
    // A third of the letters may differ, but never all of a short word.
    const size_t cutoff = std::max<size_t>(1, std::max(wanted.size(), candidate.size()) / 3);
    if (d > cutoff || d >= std::min(wanted.size(), candidate.size())) continue;
    if (best == nullptr || d < best_distance) best = &candidate, best_distance = d;
  }
  if (best != nullptr) return *best;
  for (const std::string& candidate : candidates) {
    const std::string other = folded(candidate);
    if (!is_part(wanted, other) && !is_part(other, wanted)) continue;
    if (best == nullptr || candidate.size() < best->size()) best = &candidate;
  }
  return best != nullptr ? *best : std::string();
}

}  // namespace zerolab
