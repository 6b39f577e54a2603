// Promise 4: bytes held and moved, by formula and as counted; and wires that round.

#include <cmath>

#include "catch.h"
#include "small_training.h"

using zerolab::CollectiveKind;
using zerolab::Kind;

namespace {

int64_t moved_bytes(const Outcome& outcome) {
  int64_t bytes = 0;
  for (size_t kind = 0; kind < zerolab::kNumCollectiveKinds; ++kind) {
    if (static_cast<CollectiveKind>(kind) != CollectiveKind::kControl) {
      bytes += outcome.moved[kind].bytes;
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("bytes held fall as the strategy shards, padding included") {
  for (const int ranks : {1, 2, 3, 4}) {
    const Outcome ddp = run({.ranks = ranks}), zero1 = run({.sharding = "zero1", .ranks = ranks}),
                  zero2 = run({.sharding = "zero2", .ranks = ranks});
    for (int r = 0; r < ranks; ++r) {
      const auto rank = static_cast<size_t>(r);
      CHECK(zero1.held[rank].optimizer * ranks == ddp.held[rank].optimizer);
      CHECK(zero2.held[rank].optimizer * ranks == ddp.held[rank].optimizer);
      CHECK(zero1.held[rank].gradients == ddp.held[rank].gradients);
      CHECK(zero2.held[rank].gradients * ranks == ddp.held[rank].gradients);
      CHECK(zero2.held[rank].parameters == ddp.held[rank].parameters);
    }
  }
}

TEST_CASE("parameters, gradients and states each fall to 1/N where they are sharded") {
  for (const int ranks : {2, 3, 4}) {
    const Outcome ddp = run({.ranks = ranks}), zero3 = run({.sharding = "zero3", .ranks = ranks});
    // Cut at units, flat space is padded unit by unit: at most 16 N elements for each of 4 regions.
    const int64_t padding = 4 * 16 * ranks * 4;
    const zerolab::HeldBytes &whole = ddp.held[0], &shard = zero3.held[0];
    CHECK(std::abs(shard.gradients * ranks - whole.gradients) <= padding);
    CHECK(std::abs(shard.optimizer * ranks - whole.optimizer) <= 2 * padding);
    const int64_t frozen = 2 * (23 * 23 + 15) / 16 * 16 * 4;
    CHECK(std::abs((shard.parameters - frozen) * ranks - (whole.parameters - frozen)) <=
          padding + 64 * ranks);
    CHECK(shard.gathered > 0);
    CHECK(shard.gathered < whole.parameters);
  }
}

TEST_CASE(
    "each strategy moves 2P(N-1)/N elements a step, and (A+1)P(N-1)/N with A reduced "
    "micro-batches") {
  for (const int ranks : {2, 3, 4}) {
    for (const int64_t accumulation : {1, 3}) {
      for (const char* strategy : {"ddp", "zero1", "zero2"}) {
        const Outcome outcome =
            run({.sharding = strategy, .ranks = ranks, .accumulation = accumulation});
        // Eight bytes of optimizer state for each padded element of this rank's share (all of them
        // for ddp).
        const int64_t padded =
            outcome.held[0].optimizer / 8 * (strategy == std::string("ddp") ? 1 : ranks);
        CHECK(outcome.bytes_moved == (accumulation + 1) * padded * 4 / ranks * (ranks - 1));
      }
    }
  }
}

TEST_CASE("sums of A micro-batches take log2(A) further gradients, rounded down") {
  for (const char* strategy : {"ddp", "zero2"}) {
    const int64_t alone = run({.sharding = strategy, .ranks = 2, .steps = 1}).held[0].gradients;
    for (const auto& [accumulation, sums] : {std::pair(2, 1), {3, 1}, {4, 2}, {5, 2}, {8, 3}}) {
      const Outcome outcome =
          run({.sharding = strategy, .ranks = 2, .accumulation = accumulation, .steps = 1});
      const int64_t shard =
          outcome.held[0].optimizer / 2 / (strategy == std::string("ddp") ? 2 : 1);
      CHECK(outcome.held[0].gradients == alone + sums * shard);
      check_prediction(outcome);
    }
  }
}

TEST_CASE(
    "sharded parameters move 3P(N-1)/N elements for each micro-batch, 2P of them for the root") {
  for (const int ranks : {2, 3, 4}) {
    for (const int64_t accumulation : {1, 3}) {
      const Outcome outcome =
          run({.sharding = "zero3", .ranks = ranks, .accumulation = accumulation});
      const Outcome kept = run({.sharding = "zero3",
                                .ranks = ranks,
                                .accumulation = accumulation,
                                .options = {{"reshard_after_forward", false}}});
      const int64_t padded = outcome.held[0].optimizer / 8 * ranks;
      const int64_t all = padded * 4 / ranks * (ranks - 1);
      // Units are gathered once more than the root.
      const int64_t units = moved_bytes(outcome) - accumulation * 2 * all;
      CHECK(moved_bytes(kept) == accumulation * 2 * all);
      CHECK(units > 0);
      CHECK(units < accumulation * all);
      CHECK(units % accumulation == 0);
    }
  }
}

TEST_CASE("a wire that rounds moves what it says, keeps replicas equal and losses close") {
  for (const std::string& strategy : host().names(Kind::kSharding)) {
    for (const int ranks : {2, 4}) {
      for (const char* wire : {"bf16", "int8"}) {
        for (const bool feedback : {false, true}) {
          Setting s{.sharding = strategy, .ranks = ranks, .accumulation = 3, .bucket = 100000};
          const Outcome exact = run(s);
          s.options = {{"wire_dtype", std::string(wire)}, {"wire_error_feedback", feedback}};
          const Outcome rounded = run(s);
          INFO(title(s) << ", " << wire << ", error feedback " << feedback);
          check_prediction(rounded);
          const double share =
              static_cast<double>(moved_bytes(rounded)) / static_cast<double>(moved_bytes(exact));
          CHECK(share <= (wire == std::string("bf16") ? 0.5 : 0.27));
          for (const double sum : rounded.parameter_sums) {
            CHECK(sum == rounded.parameter_sums.front());
          }
          // What FlatSharding::loss_tolerance() states.
          const double tolerance = wire == std::string("bf16") ? 1e-2 : 5e-2;
          CHECK(rounded.losses != exact.losses);
          for (size_t i = 0; i < exact.losses.size(); ++i) {
            CHECK(rounded.losses[i] == Approx(exact.losses[i]).epsilon(tolerance));
          }
        }
      }
    }
  }
}
