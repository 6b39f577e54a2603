#include "train/byte_record.h"

#include "plan/plan.h"

namespace zerolab {
namespace {

static_assert(kCollectiveWords.size() == kNumCollectiveKinds);

RankBytes rank_bytes(const HeldBytes& held, int64_t moved) {
  return {held.parameters, held.gradients, held.optimizer, held.buckets, held.gathered, moved};
}

}  // namespace

ByteRecord::ByteRecord(const Communicator& world, const Sharding& sharding,
                       const FootprintRequest& request, int64_t warm_up)
    : world_(world), sharding_(sharding), warm_up_(warm_up) {
  const std::optional<Footprint> footprint = sharding.footprint(request);
  if (!footprint) return;
  predicted_ = rank_bytes(footprint->held, footprint->moved_bytes());
  saved_by_reducing_every_step_ = saved_by_reducing_every_step(sharding, request, *footprint);
}

CollectiveRecords ByteRecord::counted() const {
  CollectiveRecords records;
  for (size_t i = 0; i < records.size(); ++i) {
    const CollectiveCounters& counters = world_.counters(static_cast<CollectiveKind>(i));
    records[i] = {static_cast<double>(counters.calls), static_cast<double>(counters.bytes),
                  counters.seconds, counters.exposed_seconds};
  }
  return records;
}

void ByteRecord::begin_step() {
  before_ = counted();
}

void ByteRecord::end_step(StepRecord& record) {
  const CollectiveRecords after = counted();
  const bool summed = record.step > warm_up_ && !record.skipped;
  if (summed) ++summed_steps_;
  for (size_t i = 0; i < after.size(); ++i) {
    record.collectives[i] = after[i];
    record.collectives[i].add(before_[i], -1);
    if (summed) sums_[i].add(record.collectives[i], 1);
    if (i == static_cast<size_t>(CollectiveKind::kControl)) continue;
    record.bytes_moved += static_cast<int64_t>(record.collectives[i].bytes);
  }
  if (record.skipped) return;  // a prediction is about steps with an update
  moved_by_update_ = record.bytes_moved;
  if (predicted_) record.bytes_moved_predicted = static_cast<double>(predicted_->moved);
}

void ByteRecord::finish(RunResult& result) const {
  result.counted = rank_bytes(sharding_.held_bytes(), moved_by_update_);
  result.predicted = predicted_;
  result.saved_by_reducing_every_step = saved_by_reducing_every_step_;
  if (summed_steps_ == 0) return;
  for (size_t i = 0; i < sums_.size(); ++i) {
    result.collectives[i] = sums_[i].over(static_cast<double>(summed_steps_));
  }
}

}  // namespace zerolab
