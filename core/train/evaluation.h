#pragma once
// Loss over the validation split: the same number of bits on any number of ranks.
// Ranks: collective.

#include <functional>

#include "zerolab/communicator.h"
#include "zerolab/data.h"
#include "zerolab/model.h"
#include "zerolab/precision.h"
#include "zerolab/units.h"

#include "experiment/experiment.h"
#include "train/batcher.h"

namespace zerolab {

struct EvaluationParts {
  Model& model;
  const Data& data;
  Units& units;
  Batcher& batcher;
  Communicator& world;
  PrecisionPolicy precision;
  std::function<void()> alive;  ///< called before each batch
};

/// Mean loss per counted target over the first `num_samples` validation sequences (0: all), in
/// batches of `batch_size`. [collective] Every rank runs the same number of batches; sums are added
/// in the order of batches.
double evaluate(EvaluationParts parts, int64_t num_samples, int64_t batch_size);

}  // namespace zerolab
