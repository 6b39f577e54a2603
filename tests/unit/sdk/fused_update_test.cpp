#include "zerolab/fused_update.h"

#include <bit>
#include <limits>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "zerolab/error.h"
#include "zerolab/random.h"

#include "catch.h"

namespace {

using zerolab::OptimizerRange;
using zerolab::UpdateBlock;

/// parameters += gradients; states[0] += 1; a mark for those that decay in states[1].
void add(const UpdateBlock& block) {
  for (int64_t i = 0; i < block.n; ++i) {
    block.parameters[i] += block.gradients[i];
    block.states[0][i] += 1;
    block.states[1][i] += block.decay ? 1 : 0;
  }
}

struct Flat {
  Flat(int64_t n, at::ScalarType gradient, at::ScalarType copied)
      : parameters(at::randn({n}, zerolab::make_generator(1))),
        gradients(at::randn({n}, zerolab::make_generator(2)).to(gradient)),
        visits(at::zeros({n})),
        decayed(at::zeros({n})) {
    if (copied != at::kFloat) copy = at::zeros({n}, at::TensorOptions().dtype(copied));
  }
  at::Tensor parameters, gradients, copy, visits, decayed;

  OptimizerRange range(int64_t begin, int64_t end) const {
    const auto cut = [&](const at::Tensor& x) {
      return x.defined() ? x.narrow(0, begin, end - begin) : x;
    };
    return {cut(parameters), cut(gradients), {cut(visits), cut(decayed)}, begin == 0, cut(copy)};
  }
  std::vector<OptimizerRange> ranges(std::vector<int64_t> cuts) const {
    std::vector<OptimizerRange> list;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) list.push_back(range(cuts[i], cuts[i + 1]));
    return list;
  }
};

class Threads {
 public:
  explicit Threads(int n) : before_(at::get_num_threads()) { at::set_num_threads(n); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_;
};

/// The same bits, where NaN equals NaN.
bool same_numbers(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.isnan(), b.isnan()) && at::equal(a.nan_to_num(0), b.nan_to_num(0)) &&
         at::equal(a.isposinf(), b.isposinf()) && at::equal(a.isneginf(), b.isneginf());
}

/// A value of every sign and exponent, with significands that try every way of rounding.
at::Tensor hard_values() {
  std::vector<float> values;
  for (uint32_t top = 0; top < 512; ++top) {
    for (const uint32_t low :
         {0U, 1U, 0xfffU, 0x1000U, 0x1001U, 0x2fffU, 0x3000U, 0x3001U, 0x7fffU, 0x8000U, 0x8001U,
          0x17fffU, 0x18000U, 0x18001U, 0x400000U, 0x7fe000U, 0x7fefffU, 0x7ff000U, 0x7fffffU}) {
      values.push_back(std::bit_cast<float>((top << 23) | low));
    }
    for (uint32_t bit = 0; bit < 23; ++bit) {  // float16's subnormals round at every place
      values.push_back(std::bit_cast<float>((top << 23) | (1U << bit)));
      values.push_back(std::bit_cast<float>((top << 23) | (3U << bit)));
      values.push_back(std::bit_cast<float>((top << 23) | ((1U << bit) + 1)));
    }
  }
  while (values.size() % zerolab::kRangeAlignment != 0) values.push_back(0);
  return at::from_blob(values.data(), {static_cast<int64_t>(values.size())}).clone();
}

/// Every 16-bit pattern.
at::Tensor all_patterns(at::ScalarType dtype) {
  std::vector<uint16_t> bits(1 << 16);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  return at::from_blob(bits.data(), {1 << 16}, at::TensorOptions().dtype(dtype)).clone();
}

constexpr at::ScalarType kLow[] = {at::kBFloat16, at::kHalf};

}  // namespace

TEST_CASE("update_in_blocks visits every element of every range once, with its range's decay") {
  const Threads two(2);
  for (const int64_t n : {16, 4096, 4112, 16 * 5003}) {
    for (const bool many : {false, true}) {
      CAPTURE(n, many);
      const Flat flat(n, at::kFloat, at::kFloat);
      std::vector<int64_t> cuts = {0};
      for (int64_t cut = many ? 16 : n; cut < n; cut += 16) cuts.push_back(cut);
      cuts.push_back(n);
      std::vector<OptimizerRange> ranges = flat.ranges(cuts);
      zerolab::update_in_blocks(ranges, {}, add);
      CHECK(at::equal(flat.visits, at::ones({n})));
      at::Tensor decayed = at::zeros({n});
      decayed.narrow(0, 0, cuts[1]).fill_(1);
      CHECK(at::equal(flat.decayed, decayed));
    }
  }
}

TEST_CASE("update_in_blocks gives the same bits wherever ranges begin and with any thread count") {
  const int64_t n = 16 * 5003;
  for (const at::ScalarType low : kLow) {
    const auto updated = [&](int threads, const std::vector<int64_t>& cuts) {
      const Threads scope(threads);
      Flat flat(n, low, low);
      std::vector<OptimizerRange> ranges = flat.ranges(cuts);
      zerolab::update_in_blocks(ranges, {.gradient_multiplier = 0.3}, add);
      return flat;
    };
    const Flat whole = updated(1, {0, n});
    for (const int threads : {1, 2, 3}) {
      for (const auto& cuts : {std::vector<int64_t>{0, n}, {0, 16, n}, {0, 4112, 4128, 40000, n}}) {
        const Flat other = updated(threads, cuts);
        CHECK(at::equal(other.parameters, whole.parameters));
        CHECK(at::equal(other.copy, whole.copy));
      }
    }
  }
}

TEST_CASE("update_in_blocks gives the gradients in float32, whatever they are kept in") {
  for (const at::ScalarType low : kLow) {
    Flat flat(1 << 16, low, at::kFloat);
    flat.parameters.zero_();
    flat.gradients = all_patterns(low);
    const at::Tensor before = flat.gradients.clone();
    std::vector<OptimizerRange> ranges = flat.ranges({0, 1 << 16});
    zerolab::update_in_blocks(ranges, {}, add);
    CHECK(same_numbers(flat.parameters, before.to(at::kFloat)));
    CHECK(same_numbers(flat.gradients, before));  // left as they are
  }
}

TEST_CASE("update_in_blocks multiplies gradients in float32 and leaves them as they are") {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    Flat flat(16 * 300, dtype, at::kFloat);
    flat.parameters.zero_();
    const at::Tensor before = flat.gradients.clone();
    std::vector<OptimizerRange> ranges = flat.ranges({0, 16 * 300});
    zerolab::update_in_blocks(ranges, {.gradient_multiplier = 0.1}, add);
    CHECK(at::equal(flat.parameters, before.to(at::kFloat).mul(0.1F)));
    CHECK(at::equal(flat.gradients, before));
  }
}

TEST_CASE("update_in_blocks takes float32 gradients as they are, without a copy") {
  const Flat flat(16 * 300, at::kFloat, at::kFloat);
  const auto* const first = flat.gradients.const_data_ptr<float>();
  const Threads one(1);
  int64_t blocks = 0;
  std::vector<OptimizerRange> ranges = flat.ranges({0, 16 * 300});
  zerolab::update_in_blocks(ranges, {}, [&](const UpdateBlock& block) {
    blocks += 1;
    CHECK(block.n % zerolab::kRangeAlignment == 0);
    CHECK(block.gradients - first == block.parameters - flat.parameters.const_data_ptr<float>());
  });
  CHECK(blocks == 2);
}

TEST_CASE("update_in_blocks rounds copies as LibTorch does: to nearest even, NaN stays NaN") {
  const at::Tensor values = hard_values();
  const int64_t n = values.numel();
  for (const at::ScalarType low : kLow) {
    Flat flat(n, at::kFloat, low);
    flat.parameters.copy_(values);
    std::vector<OptimizerRange> ranges = flat.ranges({0, n});
    zerolab::update_in_blocks(ranges, {}, [](const UpdateBlock&) {});
    CHECK(same_numbers(flat.copy, values.to(low)));
    CHECK(flat.copy.isnan().sum().item<int64_t>() > 0);
    CHECK(same_numbers(flat.parameters, values));
  }
}

TEST_CASE("update_in_blocks takes no ranges and empty ranges") {
  CHECK_NOTHROW(zerolab::update_in_blocks({}, {}, add));
  const Flat flat(32, at::kBFloat16, at::kBFloat16);
  std::vector<OptimizerRange> ranges = flat.ranges({0, 0, 16, 16, 32, 32});
  zerolab::update_in_blocks(ranges, {}, add);
  CHECK(at::equal(flat.visits, at::ones({32})));
}

TEST_CASE("update_in_blocks refuses tensors that are not what a range says") {
  const auto refused = [](const auto& spoil) {
    const Flat flat(32, at::kFloat, at::kBFloat16);
    std::vector<OptimizerRange> ranges = flat.ranges({0, 32});
    spoil(ranges[0]);
    CHECK_THROWS_AS(zerolab::update_in_blocks(ranges, {}, add), zerolab::Error);
    CHECK(flat.visits.count_nonzero().item<int64_t>() == 0);
  };
  refused([](OptimizerRange& r) { r.gradients = r.gradients.narrow(0, 0, 16); });
  refused([](OptimizerRange& r) { r.gradients = r.gradients.to(at::kDouble); });
  refused([](OptimizerRange& r) { r.copy = r.copy.to(at::kFloat); });
  refused([](OptimizerRange& r) { r.states[1] = r.states[1].to(at::kHalf); });
  refused([](OptimizerRange& r) { r.parameters = at::zeros({64}).slice(0, 0, 64, 2); });
}
