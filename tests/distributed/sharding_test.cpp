// What further options, the number of ranks and the kinds of parameters change: nothing, where
// promised.

#include <cmath>

#include <ATen/ops/equal.h>

#include "awkward_model.h"
#include "catch.h"
#include "small_training.h"

namespace {

using Options = std::map<std::string, zerolab::OptionValue>;

}  // namespace

TEST_CASE("no option of a strategy changes a bit, and each is predicted") {
  const struct {
    const char* strategy;
    int64_t bucket;
    Options options;
  } cases[] = {
      {"ddp", 1, {}},
      {"ddp", 500, {{"allgather_bucket_size", int64_t{1}}}},
      {"zero1", 100000, {}},
      {"zero2", 1, {{"find_unused_parameters", true}}},
      {"zero2", 500, {{"offload", std::string("host")}}},
      {"zero3", 100000, {}},
      {"zero3", 1, {{"reshard_after_forward", false}}},
      {"zero3", 200, {{"param_persistence_threshold", int64_t{100}}}},
      {"zero3", 200, {{"param_persistence_threshold", int64_t{1} << 40}}},
      {"zero3", 200, {{"allgather_bucket_size", int64_t{100}}, {"find_unused_parameters", true}}},
      {"hsdp", 200, {{"shard_size", int64_t{1}}, {"stage", int64_t{2}}}},
      {"hsdp", 200, {{"shard_size", int64_t{2}}, {"stage", int64_t{1}}}},
      {"hsdp", 200, {{"shard_size", int64_t{2}}, {"stage", int64_t{2}}}},
      {"hsdp", 200, {{"shard_size", int64_t{2}}, {"reshard_after_forward", false}}},
      {"hsdp", 200, {{"shard_size", int64_t{4}}}},
  };
  for (const int64_t accumulation : {1, 3}) {
    Setting s{.ranks = 4, .accumulation = accumulation};
    const Outcome reference = run(s);
    for (const auto& c : cases) {
      s.sharding = c.strategy;
      s.bucket = c.bucket;
      s.options = c.options;
      INFO(title(s) << ", bucket " << c.bucket << ", " << c.options.size() << " options");
      const Outcome outcome = run(s);
      check_bit_identical(reference, outcome);
      check_prediction(outcome);
    }
  }
}

TEST_CASE("a unit that runs twice in a pass gets the gradients of both, under every strategy") {
  for (const int64_t accumulation : {1, 3}) {
    for (const char* reduce_every : {"micro_batch", "step"}) {
      Setting s{.reduce_every = reduce_every, .ranks = 3, .accumulation = accumulation};
      s.model = [](int) -> std::unique_ptr<zerolab::Model> {
        auto model = std::make_unique<AwkwardModel>();
        model->take(AwkwardModel::Detour::kRunsTwice);
        return model;
      };
      const Outcome reference = run(s);
      for (const std::string& strategy : host().names(zerolab::Kind::kSharding)) {
        for (const bool checkpointing : {false, true}) {
          s.sharding = strategy;
          s.checkpointing = checkpointing;
          INFO(title(s));
          check_bit_identical(reference, run(s));
        }
        s.checkpointing = false;
      }
    }
  }
}

TEST_CASE("ranks that cannot be grouped as shard_size says are refused with a sentence") {
  Setting s{.sharding = "hsdp", .ranks = 4, .options = {{"shard_size", int64_t{3}}}};
  CHECK_THROWS_WITH(run(s), Catch::Matchers::Contains("3 does not divide the 4 ranks"));
  s.ranks = 6;
  CHECK_THROWS_WITH(run(s), Catch::Matchers::Contains("power of two"));
}

TEST_CASE("1, 2 and 4 ranks give the same bits for the same total batch") {
  const Outcome one = run({.ranks = 1, .accumulation = 4});
  const Outcome two = run({.sharding = "zero2", .ranks = 2, .accumulation = 2, .over_gloo = true});
  const Outcome four = run({.sharding = "zero3", .ranks = 4, .accumulation = 1, .over_gloo = true});
  const Outcome hybrid =
      run({.sharding = "hsdp", .ranks = 4, .accumulation = 1, .over_gloo = true});
  for (const Outcome* other : {&two, &four, &hybrid}) {
    CHECK(one.losses == other->losses);
    CHECK(one.norms == other->norms);
    CHECK(one.val_losses.front() == other->val_losses.front());
    check_same_tensors(one.state, other->state);
  }
}

TEST_CASE(
    "the validation loss has the same bits on any number of ranks, with fewer samples than ranks "
    "too") {
  for (const int64_t samples : {1, 3, 5, 37}) {
    const Outcome alone = run({.ranks = 1, .steps = 0, .num_samples = samples});
    for (const int ranks : {2, 3, 4}) {
      const Outcome several = run({.ranks = ranks, .steps = 0, .num_samples = samples});
      for (const double loss : several.val_losses) CHECK(loss == alone.val_losses.front());
    }
  }
}

TEST_CASE("a frozen parameter keeps its values, an unused one only decays") {
  const Outcome start = run({.steps = 0}), end = run({.sharding = "zero2", .ranks = 2});
  CHECK(at::equal(start.parameters.at("block.0.frozen"), end.parameters.at("block.0.frozen")));
  const at::Tensor expected = start.parameters.at("unused").mul(std::pow(1 - 0.01 * 0.1, 4));
  // Four float32 multiplications against one: within a few units in the last place.
  CHECK(end.parameters.at("unused").allclose(expected, 1e-6, 0));
  CHECK_FALSE(at::equal(start.parameters.at("temperature"), end.parameters.at("temperature")));
}
