#include "window_map.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "zerolab/error.h"
#include "zerolab/random.h"

namespace token_bin {

int64_t WindowMap::num_windows(const WindowRule& rule, int64_t length) {
  const int64_t starts = length - rule.window;  // the last token of a part is a target alone
  if (starts <= 0) return 0;
  return rule.stride == 0 ? starts : (starts - 1) / rule.stride + 1;
}

WindowMap::WindowMap(std::vector<Part> parts, WindowRule rule, const std::vector<double>& weights)
    : parts_(std::move(parts)), rule_(rule) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto share = [&](size_t p) { return weights.empty() ? 0 : weights[p] / sum; };
  // The epoch in which the part that lasts longest has each of its windows once.
  double epoch = 0;
  for (size_t p = 0; p < weights.size(); ++p)
    epoch = std::max(epoch, static_cast<double>(num_windows(rule_, parts_[p].length)) / share(p));
  if (!(epoch < 0x1p53))
    throw zerolab::ConfigError(
        "data.weights: the smallest is too small beside the others for an epoch in which each "
        "window comes once; give weights that are nearer to each other.");
  int64_t end = 0;
  for (size_t p = 0; p < parts_.size(); ++p) {
    end += std::max<int64_t>(num_windows(rule_, parts_[p].length), std::llround(epoch * share(p)));
    ends_.push_back(end);
  }
}

WindowMap::Place WindowMap::at(int64_t index) const {
  const auto p =
      static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
  const Part& part = parts_[p];
  const int64_t number = index - (p == 0 ? 0 : ends_[p - 1]);
  const int64_t count = num_windows(rule_, part.length);
  if (rule_.stride > 0) return {part.source, part.first + number % count * rule_.stride};
  const uint64_t draw = zerolab::mix_key({rule_.key, p, static_cast<uint64_t>(number)});
  return {part.source, part.first + static_cast<int64_t>(draw % static_cast<uint64_t>(count))};
}

}  // namespace token_bin
