#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include "zerolab/optimizer.h"
#include "zerolab/random.h"

#include "catch.h"
#include "installed.h"

namespace {

constexpr int64_t kLength = 16 * 21;

/// One flat space; `low`, if not float32, is what gradients are kept in and copies are made in.
struct Flat {
  at::Tensor parameters = at::empty({kLength}), gradients = at::empty({kLength}), copy;
  std::vector<at::Tensor> states;
  explicit Flat(size_t num_states, at::ScalarType low = at::kFloat) {
    auto generator = zerolab::make_generator(3);
    parameters.normal_(0, 1, generator);
    gradients.normal_(0, 0.1, generator);
    for (size_t i = 0; i < num_states; ++i) states.push_back(at::zeros({kLength}));
    if (low == at::kFloat) return;
    gradients = gradients.to(low);
    copy = at::zeros({kLength}, at::TensorOptions().dtype(low));
  }
  zerolab::OptimizerRange range(int64_t from, int64_t to, bool decay) const {
    const auto cut = [&](const at::Tensor& x) {
      return x.defined() ? x.narrow(0, from, to - from) : x;
    };
    zerolab::OptimizerRange r{cut(parameters), cut(gradients).clone(), {}, decay, cut(copy)};
    for (const at::Tensor& state : states) r.states.push_back(cut(state));
    return r;
  }
  void expect_bits_of(const Flat& other) const {
    CHECK(at::equal(parameters, other.parameters));
    for (size_t i = 0; i < states.size(); ++i) CHECK(at::equal(states[i], other.states[i]));
  }
};

/// Three updates of a space that is cut in two; nothing is cut at 0.
void update(zerolab::Optimizer& optimizer, const Flat& flat, int64_t cut) {
  for (int64_t step = 1; step <= 3; ++step) {
    std::vector<zerolab::OptimizerRange> ranges;
    if (cut > 0) ranges.push_back(flat.range(0, cut, true));
    ranges.push_back(flat.range(cut, kLength, true));
    optimizer.update(ranges, {1e-2, step, 0.5});
  }
}

/// 16-bit gradients count as the same numbers in float32 would, and the copy is the rounded
/// masters.
void check_low_precision(zerolab::Optimizer& one, zerolab::Optimizer& other) {
  const size_t num_states = one.state_names().size();
  for (const at::ScalarType low : {at::kBFloat16, at::kHalf}) {
    for (const int64_t cut : {0, 16, 160}) {
      Flat narrow(num_states, low), wide(num_states);
      wide.gradients = narrow.gradients.to(at::kFloat);
      update(one, narrow, cut);
      update(other, wide, 0);
      narrow.expect_bits_of(wide);
      CHECK(at::equal(narrow.copy, narrow.parameters.to(low)));
    }
  }
}

}  // namespace

void check_optimizer(const std::string& name, zerolab::Optimizer& one, zerolab::Optimizer& other) {
  INFO("optimizer " << name);
  const size_t num_states = one.state_names().size();
  for (const int64_t cut : {16, 160, 320}) {
    Flat whole(num_states), parts(num_states);
    update(one, whole, 0);
    update(other, parts, cut);
    parts.expect_bits_of(whole);  // bit-identical wherever a range is cut
    CHECK_FALSE(at::equal(whole.parameters, Flat(num_states).parameters));
    CHECK(whole.parameters.isfinite().all().item<bool>());
  }
  if (one.takes_low_precision()) check_low_precision(one, other);
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
