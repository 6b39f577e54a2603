#pragma once
// Tokens from a model, one after the other.
//
// The window: a model reads at most `window` tokens at a time (its sequence length). When another
// one does not fit, the latter half of the window is kept and read anew, at positions from 0. This
// is the same with a cache and without, so both give the same tokens. A prompt longer than the
// window begins with its latest half window.
//
// Shapes: B sequences, T tokens, V vocabulary.
// Ranks: local.

#include <cstdint>
#include <functional>
#include <vector>

#include "zerolab/model.h"
#include "zerolab/precision.h"
#include "zerolab/units.h"

#include "train/sampling.h"

namespace zerolab {

struct GenerationParts {
  Model& model;
  Units& units;
  PrecisionPolicy precision;
  int64_t window = 0;
};

struct GenerationRequest {
  std::vector<int64_t> prompt;  ///< one token at least
  SamplingOptions sampling = {};
  uint64_t seed = 0;
  int64_t sample = 0;  ///< its number among those of one seed
  int64_t max_tokens = 256;
  int64_t end_of_text = -1;  ///< generation ends with it; -1: with none
  bool use_cache = true;     ///< if the model has one
};

struct Generation {
  enum class End { kMaxTokens, kEndOfText, kStopped };
  std::vector<int64_t> tokens;  ///< without the prompt, and without the one that ends the text
  End end = End::kMaxTokens;
  int64_t prompt_tokens = 0;  ///< of the prompt that were read
  double prompt_seconds = 0;  ///< until the first token could be chosen
  double seconds = 0;         ///< from then on
  int64_t passes = 0;         ///< runs of the model after that of the prompt

  double prompt_tokens_per_sec() const;
  /// Of tokens after the first; 0 if there is none.
  double tokens_per_sec() const;
};

/// [local] Threads that are worth it for one token at a time: each operation of a small model takes
/// less time than threads need to meet. `cores`: what this process may use.
int generation_threads(int64_t num_parameters, int cores);

/// [hot] Calls back with each token; false ends the generation after it. Errors: Error if logits
/// are not finite; what the model throws.
Generation generate(GenerationParts parts, const GenerationRequest& request,
                    const std::function<bool(int64_t token)>& on_token = {});

}  // namespace zerolab
