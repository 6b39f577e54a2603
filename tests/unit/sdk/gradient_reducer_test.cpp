#include "zerolab/gradient_reducer.h"

#include <map>
#include <mutex>

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include "zerolab/flat_parameters.h"

#include "catch.h"
#include "distributed/world.h"
#include "test_parameters.h"

namespace {

/// One backward whose gradient of parameter i is `factor` times the parameter's own index plus one.
void backward(const zerolab::Parameters& p, double factor, const std::string& except = "") {
  at::Tensor loss = at::zeros({});
  for (size_t i = 0; i < p.size(); ++i) {
    if (!p.info(i).requires_grad || p.info(i).name == except) continue;
    loss = loss.add(p.tensor(i).sum(), factor * static_cast<double>(i + 1));
  }
  loss.backward();
}

struct Fixture {
  zerolab::Parameters p;
  std::unique_ptr<zerolab::Communicator> alone = zerolab::make_single_communicator();
  std::optional<zerolab::FlatLayout> layout;
  zerolab::FlatParameters flat;
  Fixture() {
    declare_awkward(p);
    layout.emplace(p, zerolab::LayoutRules{.num_ranks = 1, .bucket_elements = 64});
    flat.allocate(p, *layout, 1);
  }
  /// Value of the reduced gradient of a parameter's first element; checks that the whole parameter
  /// has it.
  double value(const zerolab::GradientReducer& reducer, const std::string& name) {
    double result = 0;
    for (const auto& piece : layout->pieces(0)) {
      if (p.info(piece.parameter).name != name) continue;
      const size_t bucket = static_cast<size_t>(piece.flat_offset / layout->buckets()[0].length);
      const auto data = reducer.gradients({bucket, piece.flat_offset, piece.length, 0, false});
      result = data[0].item<double>();
      CHECK(data.eq(result).all().item<bool>());
    }
    return result;
  }
};

}  // namespace

TEST_CASE("gradients arrive in their slots and gaps stay zero") {
  Fixture f;
  zerolab::GradientReducer reducer(f.p, *f.layout, *f.alone, {});
  reducer.begin_micro_batch(true);
  backward(f.p, 1);
  reducer.end_micro_batch();
  double total = 0;
  for (size_t i = 0; i < f.p.size(); ++i) {
    if (!f.p.info(i).requires_grad || f.p.info(i).numel == 0) continue;
    CHECK(f.value(reducer, f.p.info(i).name) == static_cast<double>(i + 1));
    total += static_cast<double>((i + 1) * static_cast<size_t>(f.p.info(i).numel));
    CHECK_FALSE(f.p.tensor(i).grad().defined());
  }
  CHECK(reducer.full().sum().item<double>() == total);
}

TEST_CASE("an unused parameter has a zero gradient, also after a step in which it had one") {
  for (const bool keep_full : {true, false}) {
    Fixture f;
    zerolab::GradientReducer reducer(f.p, *f.layout, *f.alone, {.keep_full = keep_full});
    reducer.begin_micro_batch(true);
    backward(f.p, 1);
    reducer.end_micro_batch();
    reducer.release();
    reducer.begin_micro_batch(true);
    backward(f.p, 1, "block.0.matrix");
    reducer.end_micro_batch();
    CHECK(f.value(reducer, "block.0.matrix") == 0);
    CHECK(f.value(reducer, "block.0.bias") == 4);
  }
}

TEST_CASE("micro-batches are added, reduced each or once") {
  for (const auto every : {zerolab::ReduceEvery::kMicroBatch, zerolab::ReduceEvery::kStep}) {
    for (const int64_t micros : {1, 2, 3, 5, 8}) {
      Fixture f;
      zerolab::GradientReducer reducer(f.p, *f.layout, *f.alone,
                                       {.keep_full = true, .reduce_every = every});
      for (int step = 0; step < 2; ++step) {
        double expected = 0;
        for (int64_t m = 0; m < micros; ++m) {
          reducer.begin_micro_batch(m + 1 == micros);
          backward(f.p, static_cast<double>(m + 1), m == 0 ? "block.0.bias" : "");
          reducer.end_micro_batch();
          expected += static_cast<double>(m + 1);
        }
        CHECK(f.value(reducer, "embedding") == expected);
        CHECK(f.value(reducer, "block.0.bias") == 4 * (expected - 1));
        reducer.release();
      }
    }
  }
}

TEST_CASE("the norm is taken over the reduced gradients") {
  Fixture f;
  zerolab::GradientReducer reducer(f.p, *f.layout, *f.alone, {});
  reducer.begin_micro_batch(true);
  backward(f.p, 1);
  reducer.end_micro_batch();
  double squares = 0;
  for (size_t i = 0; i < f.p.size(); ++i) {
    if (f.p.info(i).requires_grad)
      squares += static_cast<double>((i + 1) * (i + 1)) * static_cast<double>(f.p.info(i).numel);
  }
  CHECK(reducer.norm().norm == Approx(std::sqrt(squares)).epsilon(1e-12));
}

TEST_CASE("on two ranks, whole and transient buckets give each rank the same sums") {
  for (const auto every : {zerolab::ReduceEvery::kMicroBatch, zerolab::ReduceEvery::kStep}) {
    for (const bool keep_full : {true, false}) {
      for (const int64_t micros : {1, 3}) {
        // Catch2 asserts on one thread only: the ranks' gradients are collected first.
        std::map<std::string, std::vector<float>> sums;
        std::mutex mutex;
        zerolab::run_on_threads(2, [&](zerolab::Communicator& world) {
          zerolab::Parameters p;
          declare_awkward(p);
          const zerolab::FlatLayout layout(
              p, {.num_ranks = 2,
                  .bucket_elements = 96});  // cuts parameters; the last bucket is short
          zerolab::FlatParameters flat;
          flat.allocate(p, layout, 1);
          zerolab::GradientReducer reducer(
              p, layout, world, {.keep_full = keep_full, .reduce_every = every, .same_use = false});
          for (int step = 0; step < 2; ++step) {
            for (int64_t m = 0; m < micros; ++m) {
              reducer.begin_micro_batch(m + 1 == micros);
              backward(p, world.rank() + 1, m == 0 && world.rank() == 0 ? "block.0.bias" : "");
              reducer.end_micro_batch();
            }
            if (step == 0) reducer.release();
          }
          const std::lock_guard lock(mutex);
          for (const auto& piece : layout.pieces(world.rank())) {
            const auto bucket = static_cast<size_t>(piece.flat_offset / layout.buckets()[0].length);
            const at::Tensor data =
                reducer.gradients({bucket, piece.flat_offset, piece.length, 0, false});
            auto& all = sums[p.info(piece.parameter).name];
            all.insert(all.end(), data.const_data_ptr<float>(),
                       data.const_data_ptr<float>() + piece.length);
          }
        });
        zerolab::Parameters p;
        declare_awkward(p);
        for (size_t i = 0; i < p.size(); ++i) {
          const auto& info = p.info(i);
          if (!info.requires_grad || info.numel == 0) continue;
          INFO(info.name << ", keep_full " << keep_full << ", micro-batches " << micros);
          // Ranks 0 and 1 contribute 1 and 2 times (i + 1) in each micro-batch; the bias lacks one
          // of rank 0.
          const double rounds =
              static_cast<double>(3 * micros - (info.name == "block.0.bias" ? 1 : 0));
          CHECK(sums[info.name] ==
                std::vector<float>(static_cast<size_t>(info.numel),
                                   static_cast<float>(rounds * static_cast<double>(i + 1))));
        }
      }
    }
  }
}

TEST_CASE("what error feedback kept of a step that is discarded is forgotten") {
  std::map<bool, std::vector<at::Tensor>> sums;
  std::mutex mutex;
  for (const bool skipped : {false, true}) {
    zerolab::run_on_threads(2, [&](zerolab::Communicator& world) {
      zerolab::Parameters p;
      declare_awkward(p);
      const zerolab::FlatLayout layout(p, {.num_ranks = 2, .bucket_elements = 96});
      zerolab::FlatParameters flat;
      flat.allocate(p, layout, 1);
      zerolab::GradientReducer reducer(p, layout, world,
                                       {.wire = zerolab::WireDtype::kInt8, .error_feedback = true});
      const auto step = [&](double factor) {
        reducer.begin_micro_batch(true);
        backward(p, factor);
        reducer.end_micro_batch();
      };
      if (skipped) {
        step(0.7);
        reducer.discard();
      }
      step(1.3);
      if (world.rank() != 0) return;
      const std::lock_guard lock(mutex);
      for (size_t b = 0; b < layout.buckets().size(); ++b) {
        sums[skipped].push_back(reducer.slice(b).clone());
      }
    });
  }
  for (size_t b = 0; b < sums[true].size(); ++b) CHECK(at::equal(sums[true][b], sums[false][b]));
}
