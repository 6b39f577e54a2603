#include "zerolab/parameters.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include "zerolab/error.h"
#include "zerolab/flat.h"
#include "zerolab/flat_parameters.h"

#include "catch.h"
#include "test_parameters.h"

TEST_CASE("parameters are declared unit by unit, with names, aliases and decay by dimension") {
  zerolab::Parameters p;
  declare_awkward(p);
  CHECK(p.size() == 8);
  CHECK(p.num_units() == 3);
  CHECK(p.unit_name(1) == "block.0");
  CHECK(p.find("head") == p.find("embedding"));
  CHECK(p.find("nothing") == -1);
  CHECK(p.info(0).decay);
  CHECK_FALSE(p.info(1).decay);
  CHECK(p.info(0).unit == 0);
  CHECK(p.info(2).unit == 1);
  CHECK(p.total_numel() == 35 + 5 + 165 + 33 + 16 + 0 + 1 + 17);
  CHECK(p.total_numel(true) == p.total_numel() - 16);
  CHECK_THROWS_AS(p.declare("head", {1}, zerolab::Init::zeros()), zerolab::PluginError);
  CHECK_THROWS_AS(p.alias("nothing", "x"), zerolab::PluginError);
}

TEST_CASE("a declared tensor has a shape but no memory until it is bound") {
  zerolab::Parameters p;
  const at::Tensor w = p.declare("w", {3, 4}, zerolab::Init::ones());
  CHECK(w.storage().nbytes() == 0);
  CHECK(w.sizes() == at::IntArrayRef({3, 4}));
  const at::Tensor flat = at::zeros({20});
  p.bind(0, flat, 8);
  p.initialize(0, 1);
  CHECK(w.requires_grad());
  CHECK(w.is_leaf());
  CHECK(w.data_ptr() == static_cast<float*>(flat.data_ptr()) + 8);
  CHECK(flat.sum().item<float>() == 12);
}

TEST_CASE("initial values depend on seed and name alone") {
  const auto values = [](int num_ranks, uint64_t seed) {
    zerolab::Parameters p;
    declare_awkward(p);
    const zerolab::FlatLayout layout(p, {.num_ranks = num_ranks, .bucket_elements = 64});
    zerolab::FlatParameters flat;
    flat.allocate(p, layout, seed);
    std::vector<at::Tensor> copies;
    for (size_t i = 0; i < p.size(); ++i) copies.push_back(p.tensor(i).detach().clone());
    return copies;
  };
  const auto one = values(1, 5), three = values(3, 5), other = values(1, 6);
  for (size_t i = 0; i < one.size(); ++i) CHECK(at::equal(one[i], three[i]));
  CHECK_FALSE(at::equal(one[0], other[0]));
  CHECK_FALSE(at::equal(one[0].flatten().narrow(0, 0, 16), one[4].flatten()));
}

TEST_CASE(
    "the gradient callback comes once for a weight that is used twice and never for an unused "
    "one") {
  zerolab::Parameters p;
  const at::Tensor a = p.declare("a", {4}, zerolab::Init::ones());
  p.declare("unused", {4}, zerolab::Init::ones());
  const zerolab::FlatLayout layout(p, {.num_ranks = 1, .bucket_elements = 64});
  zerolab::FlatParameters flat;
  flat.allocate(p, layout, 1);
  std::vector<size_t> calls;
  p.on_gradient([&](size_t index) { calls.push_back(index); });
  a.mul(a).sum().backward();
  CHECK(calls == std::vector<size_t>{0});
  CHECK(a.grad().sum().item<float>() == 8);
}
