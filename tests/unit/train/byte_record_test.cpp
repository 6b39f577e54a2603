#include "train/byte_record.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <ATen/ops/zeros.h>

#include "catch.h"
#include "distributed/world.h"
#include "idle_sharding.h"
#include "train/byte_report.h"
#include "train/progress.h"

using zerolab::CollectiveKind;

namespace {

/// Moves and holds a little, and says so, or says something else.
class Small : public IdleSharding {
 public:
  explicit Small(bool predicts) : predicts_(predicts) {}
  zerolab::HeldBytes held_bytes() const override { return {10, 20, 30, 40, 50}; }
  std::optional<zerolab::Footprint> footprint(
      const zerolab::FootprintRequest& request) const override {
    if (!predicts_) return std::nullopt;
    zerolab::Footprint footprint;
    footprint.held = {10, 20, 30, 41, 50};
    const bool once = request.reduce_every == zerolab::ReduceEvery::kStep;
    footprint.of(CollectiveKind::kAllGather).add(once ? 1 : request.micro_batches, 16);
    return footprint;
  }

 private:
  bool predicts_;
};

void gather_four_floats(zerolab::Communicator& world) {
  const at::Tensor mine = at::zeros({4}), all = at::zeros({8});
  world.all_gather(all, mine)->wait();
}

/// Four steps, the last one skipped; the first is warm-up. Rank 0's records and result.
struct Told {
  std::vector<zerolab::StepRecord> records;
  zerolab::RunResult result;
};

Told run(bool predicts, int64_t micro_batches) {
  Told told;
  zerolab::run_on_threads(2, [&](zerolab::Communicator& world) {
    const zerolab::Parameters parameters;
    const Small sharding(predicts);
    gather_four_floats(world);  // before the first step: counts for none
    zerolab::ByteRecord bytes(
        world, sharding, {parameters, 2, {}, 2, micro_batches, zerolab::ReduceEvery::kMicroBatch},
        1);
    std::vector<zerolab::StepRecord> records;
    for (int64_t step = 1; step <= 4; ++step) {
      zerolab::StepRecord record;
      record.step = step;
      record.skipped = step == 4;
      bytes.begin_step();
      for (int64_t i = 0; i < (step == 1 ? 5 : micro_batches); ++i) gather_four_floats(world);
      world.barrier();
      bytes.end_step(record);
      records.push_back(record);
    }
    zerolab::RunResult result;
    result.last = records.back();
    result.skipped_steps = 1;
    bytes.finish(result);
    if (world.rank() == 0) told = {records, result};
  });
  return told;
}

double column(const zerolab::StepRecord& record, const std::string& name) {
  const auto& columns = zerolab::metric_columns();
  const auto found = std::find(columns.begin(), columns.end(), name);
  REQUIRE(found != columns.end());
  return zerolab::metric_row(record)[static_cast<size_t>(found - columns.begin())];
}

double number(const zerolab::RunResult& result, const std::string& name) {
  for (const auto& [key, value] : zerolab::byte_numbers(result)) {
    if (key == name) return value;
  }
  FAIL("no number " << name);
  return 0;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("kinds of collectives have one name") {
  for (size_t i = 0; i < zerolab::kNumCollectiveKinds; ++i) {
    CHECK(std::string(zerolab::kCollectiveWords[i]) ==
          zerolab::collective_name(static_cast<CollectiveKind>(i)));
  }
}

TEST_CASE("a step's record holds what its collectives moved, control traffic apart") {
  const Told told = run(true, 3);
  const zerolab::StepRecord& second = told.records[1];
  CHECK(second.bytes_moved == 48);
  CHECK(column(second, "bytes_moved") == 48);
  CHECK(column(second, "bytes_moved_predicted") == 48);
  CHECK(column(second, "all_gather_calls") == 3);
  CHECK(column(second, "all_gather_bytes") == 48);
  CHECK(column(second, "all_gather_seconds") > 0);
  CHECK(column(second, "all_gather_exposed_seconds") <= column(second, "all_gather_seconds"));
  CHECK(column(second, "reduce_scatter_calls") == 0);
  CHECK(column(second, "control_calls") > 0);
  CHECK(told.records[0].bytes_moved == 80);
}

TEST_CASE("a prediction is about steps with an update") {
  const Told told = run(true, 3);
  CHECK(std::isnan(told.records[3].bytes_moved_predicted));
  CHECK(told.records[3].bytes_moved == 48);
  CHECK(std::isnan(run(false, 1).records[0].bytes_moved_predicted));
}

TEST_CASE("means leave out the warm-up and skipped steps") {
  const zerolab::CollectiveRecord mean = run(true, 3).result.collectives[1];
  CHECK(mean.calls == 3);
  CHECK(mean.bytes == 48);
}

TEST_CASE("a result holds predicted and counted bytes, and what reducing once a step saves") {
  const zerolab::RunResult result = run(true, 3).result;
  CHECK(number(result, "parameter_bytes") == 10);
  CHECK(number(result, "gradient_bytes") == 20);
  CHECK(number(result, "optimizer_bytes") == 30);
  CHECK(number(result, "bucket_bytes") == 40);
  CHECK(number(result, "gathered_bytes") == 50);
  CHECK(number(result, "bytes_moved_per_step") == 48);
  CHECK(number(result, "predicted_bucket_bytes") == 41);
  CHECK(number(result, "predicted_bytes_moved_per_step") == 48);
  CHECK(number(result, "saved_by_reducing_every_step") == 32);
  CHECK(number(result, "all_gather_calls_per_step") == 3);
}

TEST_CASE("the report says which prediction was wrong, and nothing of the others") {
  const std::string text = zerolab::byte_report(run(true, 3).result);
  CHECK(has(text, "buckets per rank: 1 byte less than the strategy predicted"));
  CHECK_FALSE(has(text, "gradients per rank:"));
  CHECK(has(text, "would move 32 bytes less a step"));
  CHECK(has(text, "all_gather"));
  CHECK_FALSE(has(text, "broadcast"));
}

TEST_CASE("without a footprint or accumulation the report says and holds nothing of them") {
  const zerolab::RunResult result = run(false, 1).result;
  const std::string text = zerolab::byte_report(result);
  CHECK(has(text, "states no footprint"));
  CHECK_FALSE(has(text, "reduce_every"));
  CHECK(std::isnan(number(result, "predicted_parameter_bytes")));
  CHECK(number(result, "saved_by_reducing_every_step") == 0);
}
