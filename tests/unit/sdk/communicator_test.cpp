#include "zerolab/communicator.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include "zerolab/error.h"

#include "catch.h"

TEST_CASE("alone, every collective is a copy and moves nothing") {
  const auto alone = zerolab::make_single_communicator();
  CHECK(alone->rank() == 0);
  CHECK(alone->size() == 1);
  const at::Tensor in = at::arange(8, at::kFloat);
  for (int which = 0; which < 3; ++which) {
    const at::Tensor out = at::zeros({8});
    auto work = which == 0   ? alone->reduce_scatter(out, in)
                : which == 1 ? alone->all_gather(out, in)
                             : alone->all_to_all(out, in);
    work->wait();
    CHECK(at::equal(out, in));
  }
  alone->barrier();
  CHECK(alone->gather_control(std::vector<double>{1.5, 2}) == std::vector<double>{1.5, 2});
  CHECK(alone->payload_bytes() == 0);
}

TEST_CASE("tensors of other lengths, dtypes or layouts than stated are refused") {
  const auto alone = zerolab::make_single_communicator();
  const at::Tensor in = at::zeros({8});
  CHECK_THROWS_AS(alone->all_gather(at::zeros({9}), in), zerolab::PluginError);
  CHECK_THROWS_AS(alone->reduce_scatter(at::zeros({8}, at::kDouble), in), zerolab::PluginError);
  CHECK_THROWS_AS(alone->all_to_all(at::zeros({2, 4}), in), zerolab::PluginError);
  CHECK_THROWS_AS(alone->all_to_all(in, at::zeros({16}).slice(0, 0, 16, 2)), zerolab::PluginError);
}
