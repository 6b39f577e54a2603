#include "train/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "zerolab/error.h"
#include "zerolab/random.h"

namespace zerolab {
namespace {

std::string number_text(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  return text.ends_with('.') ? text + "0" : text;
}

/// The lowest id of the largest logit.
size_t likeliest(std::span<const float> logits) {
  const auto found = std::max_element(logits.begin(), logits.end());
  const bool usable = std::none_of(logits.begin(), logits.end(), [](float x) {
    return std::isnan(x) || x == std::numeric_limits<float>::infinity();
  });
  if (found == logits.end() || !usable || !std::isfinite(*found)) {
    throw Error(
        "the model gave logits that are not finite: the checkpoint is of a broken training.");
  }
  return static_cast<size_t>(found - logits.begin());
}

/// Tokens less likely than the k-th likeliest get no weight; those equal to it stay.
void keep_top_k(std::span<const float> logits, int64_t top_k, std::vector<double>& weights) {
  const auto k = static_cast<size_t>(top_k);
  if (k == 0 || k >= logits.size()) return;
  std::vector<float> sorted(logits.begin(), logits.end());
  const auto kth = sorted.begin() + static_cast<std::ptrdiff_t>(k) - 1;
  std::nth_element(sorted.begin(), kth, sorted.end(), std::greater<>());
  for (size_t i = 0; i < weights.size(); ++i) {
    if (logits[i] < *kth) weights[i] = 0;
  }
}

void keep_top_p(double top_p, std::vector<double>& weights) {
  if (top_p >= 1) return;
  std::vector<size_t> order;  // likeliest first, then lowest id first
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
  });
  const double wanted = top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
  double before = 0;
  for (const size_t i : order) {
    const double weight = weights[i];
    if (before >= wanted) weights[i] = 0;
    before += weight;
  }
}

}  // namespace

void SamplingOptions::check() const {
  if (!(temperature >= 0) || std::isinf(temperature)) {
    throw ConfigError(
        "--temperature must be 0 (always the likeliest token) or a positive number, is " +
        number_text(temperature) + ".");
  }
  if (top_k < 0) {
    throw ConfigError("--top-k must be 0 (all tokens) or a number of tokens, is " +
                      std::to_string(top_k) + ".");
  }
  if (!(top_p > 0 && top_p <= 1)) {
    throw ConfigError("--top-p must be above 0 and at most 1 (all tokens), is " +
                      number_text(top_p) + ".");
  }
}

std::vector<double> next_token_probabilities(std::span<const float> logits,
                                             const SamplingOptions& options) {
  const size_t best = likeliest(logits);
  std::vector<double> weights(logits.size(), 0.0);
  if (options.temperature == 0) {
    weights[best] = 1;
    return weights;
  }
  const double largest = logits[best];
  for (size_t i = 0; i < logits.size(); ++i) {
    weights[i] = std::exp((static_cast<double>(logits[i]) - largest) / options.temperature);
  }
  keep_top_k(logits, options.top_k, weights);
  keep_top_p(options.top_p, weights);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= total;
  return weights;
}

double sampling_number(uint64_t seed, int64_t sample, int64_t position) {
  const uint64_t key = mix_key(
      {seed, name_key("generate"), static_cast<uint64_t>(sample), static_cast<uint64_t>(position)});
  return static_cast<double>(key >> 11) * 0x1p-53;
}

int64_t choose_token(std::span<const double> probabilities, double number) {
  double below = 0;
  int64_t last = 0;  // rounding may leave the sum of all a little below 1
  for (size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] <= 0) continue;
    below += probabilities[i];
    last = static_cast<int64_t>(i);
    if (below > number) break;
  }
  return last;
}

}  // namespace zerolab
