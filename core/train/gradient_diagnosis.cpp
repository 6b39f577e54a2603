#include "train/gradient_diagnosis.h"

#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>

namespace zerolab {
namespace {

/// Takes the watcher off again, whatever happens.
class Watch {
 public:
  Watch(Parameters& parameters, std::function<void(size_t, const at::Tensor&)> watcher)
      : parameters_(parameters) {
    parameters_.watch_gradients(std::move(watcher));
  }
  ~Watch() { parameters_.watch_gradients({}); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  Parameters& parameters_;
};

}  // namespace

std::string find_bad_gradient(Parameters& parameters, Communicator& ranks, int64_t count,
                              const std::function<void(int64_t micro)>& micro_batch) {
  std::vector<int64_t> found = {-1, -1};  // micro-batch, parameter
  int64_t now = 0;
  {
    const Watch watch(parameters, [&](size_t index, const at::Tensor& gradient) {
      const at::NoGradGuard no_grad;
      if (found[0] >= 0 || !gradient.defined()) return;
      if (!at::isfinite(gradient).all().item<bool>()) found = {now, static_cast<int64_t>(index)};
    });
    for (; now < count; ++now) micro_batch(now);
  }
  const auto all = ranks.gather_control(found);
  for (int64_t micro = 0; micro < count; ++micro) {
    for (size_t rank = 0; rank < static_cast<size_t>(ranks.size()); ++rank) {
      if (all[2 * rank] != micro) continue;
      return "the first gradient that is not finite is that of '" +
             parameters.info(static_cast<size_t>(all[2 * rank + 1])).name + "' on rank " +
             std::to_string(rank) + " in micro-batch " + std::to_string(micro);
    }
  }
  return {};
}

}  // namespace zerolab
