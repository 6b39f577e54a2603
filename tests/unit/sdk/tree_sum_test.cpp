#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include "zerolab/communicator.h"
#include "zerolab/random.h"

#include "catch.h"

namespace {

/// The order as the header states it, element by element.
float reference(std::vector<float> x) {
  for (size_t s = 1; s < x.size(); s *= 2) {
    for (size_t i = 0; i + s < x.size(); i += 2 * s) x[i] = x[i] + x[i + s];
  }
  return x[0];
}

}  // namespace

TEST_CASE("tree_sum adds in the stated order, bit for bit, for 1 to 9 ranks") {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const int64_t n : {1, 16, 1000, 70001}) {
      at::Tensor in = at::empty({ranks * n});
      auto generator = zerolab::make_generator(static_cast<uint64_t>(ranks * 1000 + n));
      in.normal_(0, 1, generator);
      in.narrow(0, 0, n).mul_(1e6);  // magnitudes that make the order visible
      const at::Tensor out = at::empty({n});
      zerolab::tree_sum(out, in, ranks);
      const float* x = in.const_data_ptr<float>();
      for (int64_t i = 0; i < n; ++i) {
        std::vector<float> column;
        for (int r = 0; r < ranks; ++r) column.push_back(x[r * n + i]);
        REQUIRE(out.const_data_ptr<float>()[i] == reference(column));
      }
    }
  }
}

TEST_CASE("bfloat16 is added in float32, and each addition rounded") {
  at::Tensor in = at::empty({3}, at::kBFloat16);
  in[0] = 1.0;
  in[1] = 0.00390625;  // half a unit in the last place of 1.0 in bfloat16
  in[2] = 0.00390625;
  const at::Tensor out = at::empty({1}, at::kBFloat16);
  zerolab::tree_sum(out, in, 3);
  CHECK(out.item<float>() == 1.0F);
}

TEST_CASE("a sum of 16-bit values in two stages, over groups and across them, has the same bits") {
  const auto dtype = GENERATE(at::kBFloat16, at::kHalf);
  at::Tensor in = at::empty({4 * 40}, at::kFloat);
  auto generator = zerolab::make_generator(5);
  const at::Tensor values = in.normal_(0, 1, generator).to(dtype);
  const at::Tensor whole = at::empty({40}, values.options());
  zerolab::tree_sum(whole, values, 4);
  const at::Tensor groups = at::empty({80}, values.options());
  zerolab::tree_sum(groups.narrow(0, 0, 40), values.narrow(0, 0, 80), 2);
  zerolab::tree_sum(groups.narrow(0, 40, 40), values.narrow(0, 80, 80), 2);
  const at::Tensor staged = at::empty({40}, values.options());
  zerolab::tree_sum(staged, groups, 2);
  CHECK(staged.equal(whole));
}

TEST_CASE(
    "the sum over micro-batches and ranks is the sum over global micro-batches for powers of two") {
  const std::vector<double> g = {1e16, 1, -1e16, 3, 7, 1e-3, 5, 11};
  const double whole = zerolab::tree_sum(g);
  for (const size_t ranks : {2U, 4U, 8U}) {
    std::vector<double> micro_sums;
    for (size_t m = 0; m < g.size() / ranks; ++m) {
      micro_sums.push_back(
          zerolab::tree_sum(std::vector<double>(g.begin() + static_cast<long>(m * ranks),
                                                g.begin() + static_cast<long>((m + 1) * ranks))));
    }
    CHECK(zerolab::tree_sum(micro_sums) == whole);
  }
}
