#pragma once
// What the tests of optimizers share: one flat space, and how it moves under a fixed sequence of
// gradients.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "zerolab/optimizer.h"
#include "zerolab/random.h"

#include "catch.h"
#include "load_plugin.h"

namespace optimizer_test {

using zerolab::kRangeAlignment;

/// Parameters, gradients and states (zeros) of one flat space.
struct Flat {
  Flat(int64_t n, size_t num_states)
      : parameters(at::randn({n}, zerolab::make_generator(1))),
        gradients(at::randn({n}, zerolab::make_generator(2))) {
    for (size_t i = 0; i < num_states; ++i) states.push_back(at::zeros({n}));
  }
  at::Tensor parameters, gradients;
  std::vector<at::Tensor> states;

  zerolab::OptimizerRange range(int64_t begin, int64_t end, bool decay, double factor = 1) const {
    const auto cut = [&](const at::Tensor& x) { return x.narrow(0, begin, end - begin); };
    zerolab::OptimizerRange range;
    range.parameters = cut(parameters);
    range.gradients = cut(gradients).mul(factor);
    for (const at::Tensor& state : states) range.states.push_back(cut(state));
    range.decay = decay;
    return range;
  }
  bool same_bits(const Flat& other) const {
    bool same = at::equal(parameters, other.parameters);
    for (size_t i = 0; i < states.size(); ++i) same = same && at::equal(states[i], other.states[i]);
    return same;
  }
};

class Threads {
 public:
  explicit Threads(int n) : before_(at::get_num_threads()) { at::set_num_threads(n); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_;
};

/// A plugin with options, and flat spaces that it updates.
struct Subject {
  std::string id;
  zerolab::OptionValues options;

  std::unique_ptr<zerolab::Optimizer> make() const {
    return load_plugin<zerolab::Optimizer>(id, options);
  }
  Flat flat(int64_t n) const { return {n, make()->state_names().size()}; }
  /// Three updates with the space cut at `cuts`; elements before `first_plain` decay.
  Flat updated(int64_t n, const std::vector<int64_t>& cuts, int64_t first_plain) const {
    const auto optimizer = make();
    Flat space = flat(n);
    for (int64_t step = 1; step <= 3; ++step) {
      std::vector<zerolab::OptimizerRange> ranges;
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        ranges.push_back(space.range(cuts[i], cuts[i + 1], cuts[i] < first_plain,
                                     0.1 * static_cast<double>(step)));
      }
      optimizer->update(ranges, {.lr = 1e-2, .step = step, .gradient_multiplier = 0.7});
    }
    return space;
  }
};

/// Bit-identical wherever a range is cut, with one thread and with two.
inline void check_cuts(const Subject& subject) {
  // Small, and large enough for several threads.
  for (int64_t n : {16 * 37, 16 * 4003}) {
    const int64_t plain = 16 * 20;
    const Threads alone(1);
    const Flat whole = subject.updated(n, {0, plain, n}, plain);
    const Threads both(2);
    const int64_t stride = n < 1000 ? kRangeAlignment : kRangeAlignment * 443;
    for (int64_t cut = stride; cut < n; cut += stride) {
      CAPTURE(n, cut);
      std::vector<int64_t> cuts = {0, plain, cut, n};
      std::sort(cuts.begin(), cuts.end());
      REQUIRE(subject.updated(n, cuts, plain).same_bits(whole));
    }
    std::vector<int64_t> all;
    for (int64_t cut = 0; cut < n; cut += kRangeAlignment) all.push_back(cut);
    all.push_back(n);
    CHECK(subject.updated(n, all, plain).same_bits(whole));
  }
}

/// Elements that are zero and have no gradient stay zero.
inline void check_padding(const Subject& subject) {
  const auto optimizer = subject.make();
  Flat flat = subject.flat(16);
  flat.parameters.zero_();
  for (int64_t step = 1; step <= 3; ++step) {
    std::vector<zerolab::OptimizerRange> ranges = {flat.range(0, 16, true, 0)};
    optimizer->update(ranges, {.lr = 0.1, .step = step});
  }
  CHECK(flat.parameters.count_nonzero().item<int64_t>() == 0);
  for (const at::Tensor& state : flat.states) CHECK(state.count_nonzero().item<int64_t>() == 0);
}

/// `steps` updates against `element(p, g, decay, step)`, one element in double precision, which
/// keeps its states itself (one Element for each element). Half of the space decays.
template <class Element, class Make>
void check_formula(const Subject& subject, const Make& make, int64_t steps, double tolerance) {
  const int64_t n = 64;
  const double lr = 3e-3, multiplier = 0.25;
  const auto optimizer = subject.make();
  Flat flat = subject.flat(n);
  std::vector<Element> expected;
  for (int64_t i = 0; i < n; ++i) expected.push_back(make(flat.parameters[i].item<double>()));
  for (int64_t step = 1; step <= steps; ++step) {
    const double factor = std::cos(static_cast<double>(step));
    std::vector<zerolab::OptimizerRange> ranges = {flat.range(0, 32, true, factor),
                                                   flat.range(32, n, false, factor)};
    optimizer->update(ranges, {.lr = lr, .step = step, .gradient_multiplier = multiplier});
    for (int64_t i = 0; i < n; ++i) {
      const double g = flat.gradients[i].item<double>() * factor * multiplier;
      expected[static_cast<size_t>(i)].update(g, lr, i < 32, step);
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    const double p = expected[static_cast<size_t>(i)].p;
    CAPTURE(i);
    CHECK(std::abs(flat.parameters[i].item<double>() - p) < tolerance * std::max(1.0, std::abs(p)));
  }
}

}  // namespace optimizer_test
