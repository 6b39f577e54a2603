#pragma once
// Parameters of which every rank holds its shard: a unit's are gathered before it runs, forward or
// backward, and freed after it. The order of units in one pass tells the next pass what to gather
// ahead.
//
// Needs a layout that is cut at units. Region 0, small parameters, stays whole; the root unit is
// gathered once a pass. A gathered tensor's memory comes and goes, its identity stays: what
// autograd saved of it is there again when backward needs it.
// Ranks: [collective] begin_pass, before_*, after_*, end_pass and publish: every rank runs the same
// units in the same order.
// Source: Rajbhandari et al., arXiv 1910.02054, section 5.3; Zhao et al., "PyTorch FSDP", arXiv
// 2304.11277, section 3.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/bucket_gather.h"
#include "zerolab/communicator.h"
#include "zerolab/export.h"
#include "zerolab/flat.h"
#include "zerolab/footprint.h"
#include "zerolab/parameters.h"
#include "zerolab/units.h"

namespace zerolab {

struct UnitGatherTraits {
  WireDtype wire = WireDtype::kFloat32;
  bool prefetch = true;
  int64_t longest_prefetch = kDefaultGatherElements;  ///< longer units are not gathered ahead
  bool reshard_after_forward = true;  ///< false: a unit stays from its forward to its backward
};

class ZEROLAB_API UnitParameters : public UnitListener {
 public:
  /// [setup] Lays out, fills and shards unit by unit, so that no rank ever holds all of them.
  /// References outlive this. `dtype`: what the model computes with.
  UnitParameters(Parameters& parameters, const FlatLayout& layout, Communicator& owners,
                 uint64_t seed, UnitGatherTraits traits, at::ScalarType dtype = at::kFloat);
  ~UnitParameters() override;

  void begin_pass(bool training) override;
  void before_forward(int unit) override;
  void after_forward(int unit) override;
  void before_backward(int unit) override;
  void after_backward(int unit) override;
  void end_pass() override;

  /// What this rank owns: [shard_length], float32; views of it are updated in place.
  const at::Tensor& shard() const { return shard_; }
  /// The same elements in the dtype that the model computes with, to be written when the shard
  /// changes: that is what is gathered. Undefined for float32.
  const at::Tensor& copies() const { return copies_; }
  /// [hot] [collective] After an update: region 0 to every rank.
  void publish();

  int64_t bytes() const;         ///< what is gathered from, region 0 and frozen parameters
  int64_t master_bytes() const;  ///< the shard, where it is not what is gathered from
  int64_t buffer_bytes() const;  ///< of the wire
  int64_t gathered_bytes() const { return peak_gathered_; }  ///< high water
  /// What will be held and moved in a step of so many micro-batches.
  static void predict(const FlatLayout& layout, const UnitGatherTraits& traits,
                      int64_t element_size, int64_t micro_batches, Footprint& footprint);

 private:
  struct Unit {
    at::Tensor memory;  ///< [region length]; its storage is empty while the unit is not here
    std::vector<std::unique_ptr<Work>> gathers;
    bool here = false;  ///< memory is there; complete if no gather is left
    int users = 0;      ///< runs, forward or backward, that are going on
  };
  const Region& region(int unit) const;
  at::Tensor shard_slice(size_t bucket) const;
  void gather(int unit);
  void finish(int unit);
  void enter(int unit);
  void leave(int unit, bool keep);
  void free_memory(int unit);
  void free_all();
  void prefetch();
  static int64_t most_buckets(const FlatLayout& layout);

  Parameters& parameters_;
  const FlatLayout& layout_;
  Communicator& owners_;
  UnitGatherTraits traits_;
  at::Tensor shard_, copies_, frozen_, whole_;  // whole_: region 0
  std::vector<Unit> units_;
  std::vector<WireBuffers> buffers_;  // of the bucket gathers of one unit
  std::optional<BucketGather> publishing_;
  // The units in the order in which they came, of the pass before and of this one; by training.
  std::array<std::vector<int>, 2> order_;
  std::vector<int> coming_;
  bool training_ = false;
  int64_t gathered_ = 0, peak_gathered_ = 0;
};

}  // namespace zerolab
