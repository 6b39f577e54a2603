#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include "zerolab/optimizer.h"
#include "zerolab/random.h"

#include "catch.h"
#include "installed.h"

namespace {

constexpr int64_t kLength = 16 * 21;

struct Flat {
  at::Tensor parameters = at::empty({kLength}), gradients = at::empty({kLength});
  std::vector<at::Tensor> states;
  explicit Flat(size_t num_states) {
    auto generator = zerolab::make_generator(3);
    parameters.normal_(0, 1, generator);
    gradients.normal_(0, 0.1, generator);
    for (size_t i = 0; i < num_states; ++i) states.push_back(at::zeros({kLength}));
  }
  zerolab::OptimizerRange range(int64_t from, int64_t to, bool decay) const {
    zerolab::OptimizerRange r{parameters.narrow(0, from, to - from),
                              gradients.narrow(0, from, to - from).clone(),
                              {},
                              decay};
    for (const at::Tensor& state : states) r.states.push_back(state.narrow(0, from, to - from));
    return r;
  }
};

}  // namespace

void check_optimizer(const std::string& name, zerolab::Optimizer& one, zerolab::Optimizer& other) {
  INFO("optimizer " << name);
  const size_t num_states = one.state_names().size();
  for (const int64_t cut : {16, 160, 320}) {
    Flat whole(num_states), parts(num_states);
    for (int64_t step = 1; step <= 3; ++step) {
      const zerolab::UpdateStep update{1e-2, step, 0.5};
      std::vector<zerolab::OptimizerRange> all = {whole.range(0, kLength, true)};
      std::vector<zerolab::OptimizerRange> two = {parts.range(0, cut, true),
                                                  parts.range(cut, kLength, true)};
      one.update(all, update);
      other.update(two, update);
    }
    CHECK(at::equal(whole.parameters, parts.parameters));  // bit-identical wherever a range is cut
    CHECK_FALSE(at::equal(whole.parameters, Flat(num_states).parameters));
    CHECK(whole.parameters.isfinite().all().item<bool>());
    for (size_t i = 0; i < num_states; ++i) CHECK(at::equal(whole.states[i], parts.states[i]));
  }
  // Padding is zero, has no gradient, and has to stay zero.
  Flat padding(num_states);
  padding.parameters.zero_();
  padding.gradients.zero_();
  std::vector<zerolab::OptimizerRange> ranges = {padding.range(0, 160, true),
                                                 padding.range(160, kLength, false)};
  one.update(ranges, {1e-2, 1, 1});
  CHECK(padding.parameters.count_nonzero().item<int64_t>() == 0);
  one.update({}, {1e-2, 2, 1});  // a rank may own nothing
}
