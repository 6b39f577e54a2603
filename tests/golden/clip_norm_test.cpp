// The global gradient norm against torch.nn.utils.clip_grad_norm_ in double precision.

#include <algorithm>
#include <string>
#include <vector>

#include "zerolab/exact_norm.h"

#include "distributed/world.h"
#include "golden_file.h"
#include "near.h"

namespace {

/// Our sum of squares is exact to 2^-50 of the largest one; what is left is float32 in the scaling.
constexpr double kTolerance = 1e-6;

std::vector<at::Tensor> slices(const GoldenFile& golden, const std::string& group) {
  std::vector<at::Tensor> all;
  for (const std::string& name : golden.names(group)) {
    all.push_back(golden.tensor(group + "/" + name));
  }
  return all;
}

}  // namespace

TEST_CASE("the gradient norm and what clipping makes of it are PyTorch's, on any number of ranks") {
  const GoldenFile golden("clip_norm");
  for (const std::string& at : golden.names("")) {
    const std::vector<at::Tensor> gradients = slices(golden, at + "/gradients");
    const std::vector<at::Tensor> clipped = slices(golden, at + "/clipped");
    const double expected = golden.number(at, "norm"), largest = golden.number(at, "max_norm");
    for (const int ranks : {1, 2, 3}) {
      CAPTURE(at, ranks);
      std::vector<zerolab::GradientNorm> norms(static_cast<size_t>(ranks));
      zerolab::run_on_threads(ranks, [&](zerolab::Communicator& world) {
        std::vector<at::Tensor> mine;
        for (const at::Tensor& whole : gradients) {
          mine.push_back(
              whole.tensor_split(world.size())[static_cast<size_t>(world.rank())].contiguous());
        }
        norms[static_cast<size_t>(world.rank())] = zerolab::gradient_norm(mine, world);
      });
      for (const zerolab::GradientNorm& norm : norms) {
        CHECK(norm.finite);
        CHECK(norm.norm == Approx(expected).epsilon(kTolerance));
        CHECK(norm.norm == norms.front().norm);
      }
      // The trainer's rule; accumulation_test.cpp sees the trainer apply it.
      const double multiplier = std::min(1.0, largest / (norms.front().norm + 1e-6));
      for (size_t i = 0; i < gradients.size(); ++i) {
        CHECK(relative_distance(gradients[i].to(at::kDouble) * multiplier, clipped[i]) <
              kTolerance);
      }
    }
  }
}
