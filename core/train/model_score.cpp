#include "train/model_score.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numbers>

#include "zerolab/communicator.h"

#include "train/batcher.h"
#include "train/evaluation.h"

namespace zerolab {
namespace {

/// What is predicted: the model has no part in it.
void count_targets(const Data& data, int64_t sequence_length, ModelScore& score) {
  std::vector<int64_t> tokens(static_cast<size_t>(sequence_length)), targets(tokens), text;
  const bool decodes = has_text(data);
  const int64_t end_of_text = data.end_of_text();
  for (int64_t i = 0; i < score.samples; ++i) {
    data.sample(Split::kValidation, i, tokens, targets);
    text.clear();
    for (const int64_t target : targets) {
      score.tokens += target != kIgnoredTarget;
      if (target != kIgnoredTarget && target != end_of_text) text.push_back(target);
    }
    if (decodes) score.bytes += static_cast<int64_t>(data.decode(text).size());
  }
}

}  // namespace

double ModelScore::perplexity() const {
  return std::exp(loss);
}

double ModelScore::bits_per_token() const {
  return loss / std::numbers::ln2;
}

double ModelScore::bits_per_byte() const {
  if (bytes == 0) return std::numeric_limits<double>::quiet_NaN();
  return bits_per_token() * (static_cast<double>(tokens) / static_cast<double>(bytes));
}

double ModelScore::tokens_per_sec() const {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

ModelScore score_model(TrainedModel& trained, int64_t num_samples, int64_t batch_size,
                       const std::function<void(int64_t done, int64_t all)>& progress) {
  const Data& data = *trained.data;
  ModelScore score;
  const int64_t available = data.size(Split::kValidation);
  score.samples = num_samples > 0 ? std::min(num_samples, available) : available;
  BatchConfig batch = trained.experiment.batch;
  batch.micro_batch_size = std::min(batch_size, score.samples);
  batch.drop_last = false;  // nothing is trained
  Batcher batcher(data, batch, trained.experiment.seed, 0, 1);
  const auto world = make_single_communicator();
  const int64_t all = (score.samples + batch_size - 1) / batch_size;
  int64_t done = 0;
  const auto started = std::chrono::steady_clock::now();
  score.loss = evaluate({*trained.model, data, trained.units, batcher, *world, trained.precision,
                         [&] {
                           if (progress) progress(done, all);
                           ++done;
                         }},
                        score.samples, batch_size);
  score.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  count_targets(data, batch.sequence_length, score);
  return score;
}

}  // namespace zerolab
