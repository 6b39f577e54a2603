#pragma once
// Gathers what ranks own of flat space, bucket by bucket and several at a time.
// Ranks: [collective] run(); everything else is local.

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/communicator.h"
#include "zerolab/export.h"
#include "zerolab/flat.h"
#include "zerolab/footprint.h"
#include "zerolab/wire.h"

namespace zerolab {

/// Elements gathered at once unless told otherwise; DeepSpeed's default of allgather_bucket_size.
inline constexpr int64_t kDefaultGatherElements = 500000000;

struct GatherTraits {
  WireDtype wire = WireDtype::kFloat32;
  int64_t elements_in_flight = kDefaultGatherElements;  ///< at least one bucket
};

class ZEROLAB_API BucketGather {
 public:
  /// Gathers buckets [first, end) of a layout. References outlive this.
  BucketGather(const FlatLayout& layout, Communicator& owners, GatherTraits traits, size_t first,
               size_t end);
  /// [hot] whole[length] receives every owner's slices; `slice(bucket)` is this rank's own, which
  /// may lie in `whole`. `what` is the beginning of the collectives' labels.
  void run(const at::Tensor& whole, const std::function<at::Tensor(size_t bucket)>& slice,
           std::string_view what);
  int64_t buffer_bytes() const;
  /// What run() moves, `times` times, and the buffers it holds; `element_size` of an unrounded
  /// element.
  static void predict(const FlatLayout& layout, GatherTraits traits, size_t first, size_t end,
                      int64_t element_size, int64_t times, Footprint& footprint);

 private:
  static int64_t in_flight(const FlatLayout& layout, GatherTraits traits, size_t first, size_t end);
  const FlatLayout& layout_;
  Communicator& owners_;
  GatherTraits traits_;
  size_t first_, end_;
  std::vector<WireBuffers> buffers_;  // one for each gather in flight
};

/// Adds the payload of gathering `out[n]` among R ranks through a wire, `times` times.
ZEROLAB_API void predict_gather(WireDtype wire, int64_t n, int ranks, int64_t element_size,
                                int64_t times, Footprint& footprint);

}  // namespace zerolab
