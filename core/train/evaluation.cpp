#include "train/evaluation.h"

#include <algorithm>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "zerolab/error.h"

#include "train/autocast_scope.h"

namespace zerolab {

double evaluate(EvaluationParts parts, int64_t num_samples, int64_t batch_size) {
  const at::NoGradGuard no_grad;
  const int64_t available = parts.data.size(Split::kValidation);
  const int64_t samples = num_samples > 0 ? std::min(num_samples, available) : available;
  const int64_t num_batches = (samples + batch_size - 1) / batch_size;
  const int64_t ranks = parts.world.size();
  const int64_t rounds = (num_batches + ranks - 1) / ranks;
  std::vector<double> mine;  // loss sum, targets; a round beyond the last batch counts nothing
  for (int64_t round = 0; round < rounds; ++round) {
    parts.alive();
    const int64_t b = round * ranks + parts.world.rank();
    const int64_t first = b < num_batches ? b * batch_size : 0;
    const Batch batch = parts.batcher.validation(first, std::min(batch_size, samples - first));
    parts.units.begin(false, 0);
    const AutocastScope autocast(parts.precision.autocast_dtype);
    const double loss = parts.model.loss(batch, parts.units).item<double>();
    parts.units.end();
    mine.push_back(b < num_batches ? loss : 0);
    mine.push_back(b < num_batches ? static_cast<double>(batch.num_targets) : 0);
  }
  const auto all = parts.world.gather_control(mine);
  std::vector<double> losses, targets;
  for (int64_t b = 0; b < num_batches; ++b) {
    const auto at = static_cast<size_t>((b % ranks) * 2 * rounds + b / ranks * 2);
    losses.push_back(all[at]);
    targets.push_back(all[at + 1]);
  }
  const double counted = tree_sum(targets);
  if (counted == 0) throw Error("the validation samples have no target that counts");
  return tree_sum(losses) / counted;
}

}  // namespace zerolab
