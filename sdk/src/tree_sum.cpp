// The fixed order of every sum over ranks: stride doubling, each addition in float32 and rounded to
// the dtype of what is added. (Rounding once, at the end, would give a sum in two stages, as over
// groups of ranks and then across groups, other bits than a sum in one.)
// Formula: for s = 1, 2, 4, ...: x[i] = x[i] + x[i + s] for i = 0, 2s, 4s, ... with i + s < R;
// the sum is x[0].

#include <algorithm>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "zerolab/communicator.h"

namespace zerolab {
namespace {

constexpr int64_t kGrain = 1 << 16;

void sum_two(float* out, const float* a, const float* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

void sum_three(float* out, const float* a, const float* b, const float* c, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = (a[i] + b[i]) + c[i];
}

void sum_four(float* out, const float* a, const float* b, const float* c, const float* d,
              int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

/// Any number of ranks, in blocks that stay in the cache.
void sum_blocks(float* out, const float* in, int64_t stride, int64_t begin, int64_t end,
                int num_ranks) {
  constexpr int64_t kBlock = 512;
  std::vector<float> x(static_cast<size_t>(num_ranks) * kBlock);
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t n = std::min(kBlock, end - at);
    for (int r = 0; r < num_ranks; ++r) std::copy_n(in + r * stride + at, n, x.data() + r * kBlock);
    for (int s = 1; s < num_ranks; s *= 2) {
      for (int r = 0; r + s < num_ranks; r += 2 * s) {
        sum_two(x.data() + r * kBlock, x.data() + r * kBlock, x.data() + (r + s) * kBlock, n);
      }
    }
    std::copy_n(x.data(), n, out + at);
  }
}

void sum_floats(float* out, const float* in, int64_t n, int num_ranks) {
  at::parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    const float* x = in + begin;
    switch (num_ranks) {
      case 1:
        std::copy_n(x, count, out + begin);
        break;
      case 2:
        sum_two(out + begin, x, x + n, count);
        break;
      case 3:
        sum_three(out + begin, x, x + n, x + 2 * n, count);
        break;
      case 4:
        sum_four(out + begin, x, x + n, x + 2 * n, x + 3 * n, count);
        break;
      default:
        sum_blocks(out, in, n, begin, end, num_ranks);
    }
  });
}

}  // namespace

void tree_sum(const at::Tensor& out, const at::Tensor& in, int num_ranks) {
  const int64_t n = out.numel();
  if (n == 0) return;
  const bool plain =
      in.is_cpu() && in.scalar_type() == at::kFloat && out.scalar_type() == at::kFloat;
  if (plain)
    return sum_floats(out.mutable_data_ptr<float>(), in.const_data_ptr<float>(), n, num_ranks);
  std::vector<at::Tensor> x;
  for (int r = 0; r < num_ranks; ++r) x.push_back(in.narrow(0, r * n, n));
  for (int s = 1; s < num_ranks; s *= 2) {
    for (int r = 0; r + s < num_ranks; r += 2 * s) {
      at::Tensor& sum = x[static_cast<size_t>(r)];
      sum = sum.add(x[static_cast<size_t>(r + s)]);
    }
  }
  out.copy_(x[0]);
}

double tree_sum(std::vector<double> x) {
  for (size_t s = 1; s < x.size(); s *= 2) {
    for (size_t i = 0; i + s < x.size(); i += 2 * s) x[i] += x[i + s];
  }
  return x.empty() ? 0 : x[0];
}

}  // namespace zerolab
