#include "train/weight_reader.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>

#include "train/saved_state.h"

namespace zerolab {
namespace {

constexpr int64_t kBlock = int64_t{1} << 20;  // elements read at a time

at::Tensor row_of(int64_t count, TensorDtype dtype) {
  return at::empty({count}, at::TensorOptions().dtype(dtype_of(dtype)));
}

}  // namespace

void WeightReader::read(const WeightOrigin& origin, int64_t first, const at::Tensor& out) {
  const at::NoGradGuard no_grad;
  const SourceTensor& from = tensor(origin);
  const int64_t count = out.numel();
  if (origin.transposed && from.info.shape.size() > 1) {
    if (turned_ != origin.tensor) {
      turned_.reset();
      turned_values_ = at::Tensor();  // before the next one takes memory
      const at::Tensor whole = row_of(from.info.length, from.info.dtype);
      from.read(0, from.info.length, whole.mutable_data_ptr());
      turned_values_ = whole.view({from.info.shape[0], -1}).t().contiguous().view({-1});
      turned_ = origin.tensor;
    }
    out.copy_(turned_values_.narrow(0, first, count));
    return;
  }
  if (out.scalar_type() == dtype_of(from.info.dtype)) {
    from.read(first, count, out.mutable_data_ptr());
    return;
  }
  const at::Tensor block = row_of(std::min(kBlock, count), from.info.dtype);
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t length = std::min(kBlock, count - at);
    from.read(first + at, length, block.mutable_data_ptr());
    out.narrow(0, at, length).copy_(block.narrow(0, 0, length));
  }
}

bool WeightReader::equal(const WeightOrigin& a, const WeightOrigin& b) {
  const int64_t all = tensor(a).info.length;
  const at::Tensor x = at::empty({std::min(kBlock, all)}, at::TensorOptions().dtype(at::kDouble));
  const at::Tensor y = at::empty_like(x);
  for (int64_t at = 0; at < all; at += kBlock) {
    const int64_t length = std::min(kBlock, all - at);
    read(a, at, x.narrow(0, 0, length));
    read(b, at, y.narrow(0, 0, length));
    if (!x.narrow(0, 0, length).equal(y.narrow(0, 0, length))) return false;
  }
  return true;
}

}  // namespace zerolab
