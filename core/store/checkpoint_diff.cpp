#include "store/checkpoint_diff.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "store/consolidate.h"

namespace zerolab {

namespace {

using Progress = std::function<void(int64_t, int64_t)>;

/// Sorted tensors of two sources, side by side: f(a, b) for those of both, g and h for others.
template <typename Both, typename OnlyA, typename OnlyB>
void merge(const std::vector<const SourceTensor*>& a, const std::vector<const SourceTensor*>& b,
           const Both& both, const OnlyA& only_a, const OnlyB& only_b) {
  const auto key = [](const SourceTensor& tensor) {
    return std::tie(tensor.info.parameter, tensor.info.state);
  };
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (j == b.size() || (i < a.size() && key(*a[i]) < key(*b[j]))) {
      only_a(*a[i++]);
    } else if (i == a.size() || key(*b[j]) < key(*a[i])) {
      only_b(*b[j++]);
    } else {
      both(*a[i++], *b[j++]);
    }
  }
}

std::vector<const SourceTensor*> chosen(const TensorSource& source, bool parameters_only) {
  std::vector<const SourceTensor*> tensors;
  for (const SourceTensor& tensor : source.tensors)
    if (!parameters_only || tensor.info.state == kParameterState) tensors.push_back(&tensor);
  return tensors;
}

ElementDifferences compare_blocks(const SourceTensor& a, const SourceTensor& b,
                                  const std::function<void(int64_t)>& done) {
  const int64_t each = dtype_size(a.info.dtype), length = a.info.length;
  std::vector<char> block_a, block_b;
  ElementDifferences all;
  for (int64_t first = 0; first < length; first += kChunkBytes / each) {
    const int64_t count = std::min(length - first, kChunkBytes / each);
    block_a.resize(static_cast<size_t>(count * each));
    block_b.resize(block_a.size());
    a.read(first, count, block_a.data());
    b.read(first, count, block_b.data());
    const ElementDifferences found =
        compare_elements(a.info.dtype, block_a.data(), block_b.data(), count);
    if (all.differing == 0 && found.differing > 0) all.first = first + found.first;
    all.differing += found.differing;
    all.largest = std::max(all.largest, found.largest);
    done(count);
  }
  return all;
}

std::vector<CounterDifference> differing_counters(const std::map<std::string, Counter>& a,
                                                  const std::map<std::string, Counter>& b,
                                                  double tolerance) {
  std::map<std::string, std::pair<const Counter*, const Counter*>> pairs;
  for (const auto& [name, counter] : a) pairs[name].first = &counter;
  for (const auto& [name, counter] : b) pairs[name].second = &counter;
  std::vector<CounterDifference> differing;
  for (const auto& [name, pair] : pairs) {
    const auto& [one, other] = pair;
    if (one != nullptr && other != nullptr && one->text == other->text) continue;
    CounterDifference found{name, one != nullptr ? one->text : "",
                            other != nullptr ? other->text : "",
                            (one != nullptr ? one : other)->is_state, false};
    found.within = one != nullptr && other != nullptr && one->real && other->real &&
                   std::abs(*one->real - *other->real) <= tolerance;
    differing.push_back(std::move(found));
  }
  return differing;
}

}  // namespace

std::string form_text(const PieceInfo& tensor) {
  std::string text(dtype_name(tensor.dtype));
  text += " [";
  for (size_t i = 0; i < tensor.shape.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(tensor.shape[i]);
  return text + "]";
}

bool CheckpointDiff::bit_identical() const {
  return only_a.empty() && only_b.empty() &&
         std::all_of(tensors.begin(), tensors.end(), [](const auto& t) { return t.identical(); }) &&
         std::none_of(counters.begin(), counters.end(), [](const auto& c) { return c.is_state; });
}

bool CheckpointDiff::equal() const {
  if (bit_identical()) return true;
  if (tolerance == 0 || !only_a.empty() || !only_b.empty()) return false;
  return std::all_of(
             tensors.begin(), tensors.end(),
             [&](const auto& t) { return t.same_form() && t.found.largest <= tolerance; }) &&
         std::all_of(counters.begin(), counters.end(),
                     [](const auto& c) { return !c.is_state || c.within; });
}

CheckpointDiff diff_tensors(const TensorSource& a, const TensorSource& b, double tolerance,
                            bool parameters_only, const Progress& progress) {
  CheckpointDiff diff;
  diff.tolerance = tolerance;
  const auto tensors_a = chosen(a, parameters_only), tensors_b = chosen(b, parameters_only);
  int64_t done = 0, total = 0;
  for (const SourceTensor* tensor : tensors_a) total += tensor->info.length;
  const auto more = [&](int64_t elements) {
    done += elements;
    if (progress) progress(done, total);
  };
  merge(
      tensors_a, tensors_b,
      [&](const SourceTensor& one, const SourceTensor& other) {
        TensorComparison compared{one.info.parameter,    one.info.state,  form_text(one.info),
                                  form_text(other.info), one.info.length, {}};
        if (compared.same_form()) compared.found = compare_blocks(one, other, more);
        diff.tensors.push_back(std::move(compared));
      },
      [&](const SourceTensor& one) { diff.only_a.push_back(tensor_name(one.info)); },
      [&](const SourceTensor& other) { diff.only_b.push_back(tensor_name(other.info)); });
  if (!parameters_only && !a.counters.empty() && !b.counters.empty())
    diff.counters = differing_counters(a.counters, b.counters, tolerance);
  return diff;
}

}  // namespace zerolab
