#pragma once
// From a model's logits to the next token: temperature, top-k, top-p, and the inverse of what is
// left.
//
// Shapes: V vocabulary.
// Ranks: local.
// Source: top-k as Fan et al., arXiv 1805.04833; top-p as Holtzman et al., arXiv 1904.09751, 3.1.
// Deviates: of tokens of one probability at the edge of top-p, those of lower ids stay.

#include <cstdint>
#include <span>
#include <vector>

namespace zerolab {

struct SamplingOptions {
  double temperature = 1;  ///< divides logits; 0: always the likeliest token
  int64_t top_k = 0;       ///< only tokens as likely as the k-th likeliest; 0: all
  /// Then only the likeliest tokens whose probabilities add up to so much, the one that reaches it
  /// included.
  double top_p = 1;
  /// Errors: ConfigError for numbers out of range, named as the command line does.
  void check() const;
};

/// [hot] Probabilities [V] of the next token. Of equally likely ones, temperature 0 takes the one
/// of the lowest id. Errors: Error if a logit is NaN or +infinity, or none is finite.
std::vector<double> next_token_probabilities(std::span<const float> logits,
                                             const SamplingOptions& options);

/// The number in [0, 1) that decides token number `position` of a sample: no state, so a sample is
/// the same whatever else is generated.
double sampling_number(uint64_t seed, int64_t sample, int64_t position);

/// The first token whose probability, added to those of all lower ids, is above `number` in [0, 1).
int64_t choose_token(std::span<const double> probabilities, double number);

}  // namespace zerolab
