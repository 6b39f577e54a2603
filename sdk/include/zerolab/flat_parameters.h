#pragma once
// Parameters that every rank holds whole, in one flat tensor, which the model computes with. Where
// that is no float32, exact masters of what a rank owns lie beside it.
// Ranks: publish is [collective], everything else local.

#include <cstdint>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "zerolab/bucket_gather.h"
#include "zerolab/communicator.h"
#include "zerolab/export.h"
#include "zerolab/flat.h"
#include "zerolab/parameters.h"

namespace zerolab {

class ZEROLAB_API FlatParameters {
 public:
  FlatParameters() = default;
  /// [setup] Allocates flat parameter memory (zeroed), binds every parameter to it, fills them;
  /// frozen parameters get memory of their own. The layout outlives this. With another `dtype` than
  /// float32, masters of what `owner` owns (FlatLayout::ranges: -1 everything) are kept: they
  /// start from what was drawn, the parameters from that, rounded.
  void allocate(Parameters& parameters, const FlatLayout& layout, uint64_t seed,
                at::ScalarType dtype = at::kFloat, int owner = -1);
  /// [setup] Before the first publish(), where it is not to be plain: through a wire, so many at
  /// once. With a wire that rounds, what this rank owns is kept exact beside what it computes with
  /// (master()); with one owner, or parameters of 16 bits, nothing is rounded on the way.
  void set_gather(Communicator& owners, GatherTraits traits);

  const at::Tensor& flat() const { return flat_; }
  /// View of the parameters in a rank's slice of a bucket.
  at::Tensor slice(size_t index, int rank) const;
  /// Exact values of what this rank owns: a view of [length] elements that start at `flat_offset`
  /// in flat space and at `owned_offset` in owned space.
  at::Tensor master(int64_t flat_offset, int64_t owned_offset, int64_t length) const;
  /// What the model computes with of the same elements, if that is not the masters: to be written
  /// before publish(). Undefined for float32.
  at::Tensor copy(int64_t flat_offset, int64_t length) const;
  /// [collective] Every owner's slices to every rank: the parameters are whole and equal again.
  void publish(Communicator& owners);

  int64_t bytes() const;
  int64_t master_bytes() const { return bytes_of(masters_); }
  int64_t buffer_bytes() const { return gather_ ? gather_->buffer_bytes() : 0; }

 private:
  static int64_t bytes_of(const at::Tensor& t) {
    return t.defined() ? static_cast<int64_t>(t.nbytes()) : 0;
  }
  bool low_precision() const { return flat_.scalar_type() != at::kFloat; }
  const FlatLayout* layout_ = nullptr;
  at::Tensor flat_, frozen_, masters_;
  std::optional<BucketGather> gather_;
};

}  // namespace zerolab
