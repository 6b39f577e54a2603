#include "zerolab/exact_norm.h"

#include <cmath>
#include <limits>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "zerolab/random.h"

#include "catch.h"

namespace {

at::Tensor random_gradients(int64_t n, double scale) {
  at::Tensor x = at::empty({n});
  auto generator = zerolab::make_generator(static_cast<uint64_t>(n));
  x.normal_(0, scale, generator);
  return x;
}

double norm_of(const std::vector<at::Tensor>& slices) {
  const auto alone = zerolab::make_single_communicator();
  const auto result = zerolab::gradient_norm(slices, *alone);
  CHECK(result.finite);
  return result.norm;
}

}  // namespace

TEST_CASE("the norm has the same bits however the gradient is cut and ordered") {
  const at::Tensor x = random_gradients(100003, 1e-3);
  const double whole = norm_of({x});
  for (const int64_t cut : {1, 16, 777, 4096, 50000, 99999}) {
    CHECK(norm_of({x.narrow(0, 0, cut), x.narrow(0, cut, x.numel() - cut)}) == whole);
    CHECK(norm_of({x.narrow(0, cut, x.numel() - cut), x.narrow(0, 0, cut)}) == whole);
  }
  CHECK(norm_of({x.flip(0)}) == whole);
}

TEST_CASE("the norm agrees with a double sum within the stated bound") {
  for (const double scale : {1e-30, 1e-10, 1.0, 1e15}) {
    const at::Tensor x = random_gradients(50000, scale);
    const double expected = std::sqrt(x.to(at::kDouble).square().sum().item<double>());
    CHECK(norm_of({x}) == Approx(expected).epsilon(1e-10));
  }
}

TEST_CASE("the norm of 16-bit gradients is that of the same values in float32") {
  const auto alone = zerolab::make_single_communicator();
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    at::Tensor x = random_gradients(50001, 1e-3).to(dtype);
    CHECK(norm_of({x}) == norm_of({x.to(at::kFloat)}));
    CHECK(norm_of({x.narrow(0, 0, 7001), x.narrow(0, 7001, 43000)}) == norm_of({x}));
    x[4097] = std::numeric_limits<float>::infinity();
    CHECK_FALSE(zerolab::gradient_norm({x}, *alone).finite);
  }
}

TEST_CASE("extreme values neither overflow nor vanish") {
  at::Tensor x = at::zeros({3});
  CHECK(norm_of({x}) == 0);
  x[1] = std::numeric_limits<float>::max();
  CHECK(norm_of({x}) == static_cast<double>(std::numeric_limits<float>::max()));
  x.zero_();
  x[2] = std::numeric_limits<float>::denorm_min();
  CHECK(norm_of({x}) == static_cast<double>(std::numeric_limits<float>::denorm_min()));
  CHECK(norm_of({}) == 0);
}

TEST_CASE("a single infinity or NaN anywhere is not finite") {
  const auto alone = zerolab::make_single_communicator();
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    for (const int64_t where : {0, 31, 4999}) {
      at::Tensor x = random_gradients(5000, 1);
      x[where] = bad;
      CHECK_FALSE(zerolab::gradient_norm({x}, *alone).finite);
    }
  }
}
