#include "zerolab/fused_update.h"

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/Parallel.h>

#include "zerolab/error.h"
#include "zerolab/vector_clones.h"

#include "sixteen_bits.h"

namespace zerolab {
namespace {

// What a block touches (masters, gradients, two states) stays in the second-level cache, its
// converted gradients in the first.
constexpr int64_t kBlock = 4096;
static_assert(kBlock % kRangeAlignment == 0);
constexpr int64_t kGrainBlocks = 8;  // as many elements as LibTorch gives a thread at least

ZEROLAB_VECTOR_CLONES void widen_bf16(const uint16_t* __restrict in, int64_t n, float factor,
                                      float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) out[i] = sixteen_bits::from_bf16(in[i]) * factor;
}

ZEROLAB_VECTOR_CLONES void widen_fp16(const uint16_t* __restrict in, int64_t n, float factor,
                                      float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) out[i] = sixteen_bits::from_fp16(in[i]) * factor;
}

ZEROLAB_VECTOR_CLONES void scale(const float* __restrict in, int64_t n, float factor,
                                 float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] * factor;
}

ZEROLAB_VECTOR_CLONES void round_to_bf16(const float* __restrict in, int64_t n,
                                         uint16_t* __restrict out) {
  for (int64_t i = 0; i < n; ++i) out[i] = sixteen_bits::to_bf16(in[i]);
}

ZEROLAB_VECTOR_CLONES void round_to_fp16(const float* __restrict in, int64_t n,
                                         uint16_t* __restrict out) {
  for (int64_t i = 0; i < n; ++i) out[i] = sixteen_bits::to_fp16(in[i]);
}

bool is_low_precision(at::ScalarType dtype) {
  return dtype == at::kBFloat16 || dtype == at::kHalf;
}

bool suits(const at::Tensor& tensor, int64_t n, bool right_dtype) {
  return right_dtype && tensor.is_cpu() && tensor.numel() == n && tensor.is_contiguous();
}

/// A range as pointers, which threads share without touching reference counts.
struct Pointers {
  float* parameters;
  const void* gradients;
  at::ScalarType gradient_dtype;
  uint16_t* copy = nullptr;
  at::ScalarType copy_dtype = at::kFloat;
  std::vector<float*> states;
  int64_t n;
  bool decay;
  int64_t first_block;  // of all ranges' blocks

  int64_t num_blocks() const { return (n + kBlock - 1) / kBlock; }
};

Pointers pointers(OptimizerRange& range, int64_t first_block) {
  const int64_t n = range.parameters.numel();
  const at::ScalarType gradient_dtype = range.gradients.scalar_type();
  bool good =
      suits(range.parameters, n, range.parameters.scalar_type() == at::kFloat) &&
      suits(range.gradients, n, gradient_dtype == at::kFloat || is_low_precision(gradient_dtype)) &&
      n % kRangeAlignment == 0;
  if (range.copy.defined()) {
    good = good && suits(range.copy, n, is_low_precision(range.copy.scalar_type()));
  }
  for (const at::Tensor& state : range.states) {
    good = good && suits(state, n, state.scalar_type() == at::kFloat);
  }
  if (!good) {
    throw Error("update_in_blocks: range of " + std::to_string(n) +
                " parameters: tensors must be contiguous, on the CPU, of one length that is a "
                "multiple of " +
                std::to_string(kRangeAlignment) +
                ", masters and states float32, gradients float32, bfloat16 or float16, copies "
                "bfloat16 or float16.");
  }
  Pointers p{.parameters = range.parameters.mutable_data_ptr<float>(),
             .gradients = range.gradients.const_data_ptr(),
             .gradient_dtype = gradient_dtype,
             .states = {},
             .n = n,
             .decay = range.decay,
             .first_block = first_block};
  if (range.copy.defined()) {
    p.copy = static_cast<uint16_t*>(range.copy.mutable_data_ptr());
    p.copy_dtype = range.copy.scalar_type();
  }
  for (at::Tensor& state : range.states) p.states.push_back(state.mutable_data_ptr<float>());
  return p;
}

/// The gradients of a block, times `factor`, in float32: where they are, or in `buffer`.
const float* gradients_of(const Pointers& p, int64_t at, int64_t n, float factor, float* buffer) {
  if (p.gradient_dtype == at::kFloat) {
    const float* const in = static_cast<const float*>(p.gradients) + at;
    if (factor == 1) return in;
    scale(in, n, factor, buffer);
    return buffer;
  }
  const uint16_t* const in = static_cast<const uint16_t*>(p.gradients) + at;
  if (p.gradient_dtype == at::kBFloat16) {
    widen_bf16(in, n, factor, buffer);
  } else {
    widen_fp16(in, n, factor, buffer);
  }
  return buffer;
}

using Rule = std::function<void(const UpdateBlock&)>;

void update_block(const Pointers& p, int64_t index, float factor, std::vector<float*>& states,
                  const Rule& rule) {
  alignas(64) float buffer[kBlock];
  const int64_t at = index * kBlock;
  const int64_t n = std::min(kBlock, p.n - at);
  states.clear();
  for (float* state : p.states) states.push_back(state + at);
  rule({.parameters = p.parameters + at,
        .gradients = gradients_of(p, at, n, factor, buffer),
        .states = states.data(),
        .n = n,
        .decay = p.decay});
  if (p.copy == nullptr) return;
  if (p.copy_dtype == at::kBFloat16) {
    round_to_bf16(p.parameters + at, n, p.copy + at);
  } else {
    round_to_fp16(p.parameters + at, n, p.copy + at);
  }
}

}  // namespace

void update_in_blocks(std::span<OptimizerRange> ranges, const UpdateStep& step, const Rule& rule) {
  std::vector<Pointers> all;
  all.reserve(ranges.size());
  int64_t num_blocks = 0;
  for (OptimizerRange& range : ranges) {
    if (range.parameters.numel() == 0) continue;
    all.push_back(pointers(range, num_blocks));
    num_blocks += all.back().num_blocks();
  }
  const auto factor = static_cast<float>(step.gradient_multiplier);
  at::parallel_for(0, num_blocks, kGrainBlocks, [&](int64_t begin, int64_t end) {
    auto p = std::upper_bound(all.begin(), all.end(), begin, [](int64_t block, const Pointers& q) {
      return block < q.first_block;
    });
    --p;  // the range that has block `begin`
    std::vector<float*> states;
    for (int64_t block = begin; block < end; ++block) {
      if (block == p->first_block + p->num_blocks()) ++p;
      update_block(*p, block - p->first_block, factor, states, rule);
    }
  });
}

}  // namespace zerolab
