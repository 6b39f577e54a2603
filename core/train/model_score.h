#pragma once
// How well a trained model predicts the validation split of its data.
//
// Units: loss in nats per counted target.
// Ranks: local.

#include <cstdint>
#include <functional>

#include "train/trained_model.h"

namespace zerolab {

struct ModelScore {
  double loss = 0;
  int64_t samples = 0;
  int64_t tokens = 0;  ///< counted targets
  int64_t bytes = 0;  ///< of their text; one that ends a document has none. 0: the data has no text
  double seconds = 0;

  double perplexity() const;
  double bits_per_token() const;
  double bits_per_byte() const;  ///< NaN without text
  double tokens_per_sec() const;
};

/// Over the first `num_samples` validation sequences (0: all), in batches of `batch_size`: the same
/// loss as training's own validation, bit for bit with the same batches and threads. `progress` is
/// called before each batch with those that are done, and all.
/// Errors: Error if no target counts; what the model throws.
ModelScore score_model(TrainedModel& trained, int64_t num_samples, int64_t batch_size,
                       const std::function<void(int64_t done, int64_t all)>& progress = {});

}  // namespace zerolab
