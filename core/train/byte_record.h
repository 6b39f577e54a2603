#pragma once
// Fills in what records say about bytes: what each step moved, by kind of collective, what this
// rank holds, and what its strategy said beforehand about both.
//
// Order: begin_step() and end_step() around each step without its evaluation; finish() once.
// Ranks: local; reads counters, synchronises nothing.

#include <cstdint>
#include <optional>

#include "zerolab/communicator.h"
#include "zerolab/sharding.h"

#include "train/record.h"

namespace zerolab {

class ByteRecord {
 public:
  /// Asks an attached strategy for its prediction. Means leave out the first `warm_up` steps. The
  /// communicator and the strategy outlive this. Errors: what footprint() throws.
  ByteRecord(const Communicator& world, const Sharding& sharding, const FootprintRequest& request,
             int64_t warm_up);
  void begin_step();
  /// Needs to know whether the step was skipped.
  void end_step(StepRecord& record);
  void finish(RunResult& result) const;

 private:
  CollectiveRecords counted() const;

  const Communicator& world_;
  const Sharding& sharding_;
  int64_t warm_up_;
  std::optional<RankBytes> predicted_;
  int64_t saved_by_reducing_every_step_ = 0;
  CollectiveRecords before_, sums_;
  int64_t summed_steps_ = 0, moved_by_update_ = 0;
};

}  // namespace zerolab
