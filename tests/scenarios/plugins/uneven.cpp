// A model that goes another way on one rank, from one training step on: it raises in the middle of
// the forward or backward pass, uses a parameter that the others do not use, or skips a unit. A
// model is not told its rank; this one reads the launcher's variable.
// Shapes: B sequences, T tokens, C channels, V vocabulary.

#include <chrono>
#include <cstdlib>
#include <string>

#include <ATen/ops/add.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>

#include "zerolab/error.h"
#include "zerolab/model.h"
#include "zerolab/plugin.h"

namespace {

using zerolab::Init;

constexpr int kChannels = 16, kBlocks = 3;

class Uneven : public zerolab::Model {
 public:
  struct Options {
    std::string detour = "none";
    int64_t rank = 1;
    int64_t from_step = 3;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("detour", &Options::detour, "what the rank does otherwise")
          .one_of({"none", "raise", "raise_in_backward", "uses_unused", "skips_unit"});
      d.field("rank", &Options::rank, "which rank").at_least(0);
      d.field("from_step", &Options::from_step, "the first step with a detour, of one micro-batch")
          .at_least(1);
    }
  };
  explicit Uneven(const Options& options) : options_(options) {
    const char* number = std::getenv("ZEROLAB_RANK");
    mine_ = (number != nullptr ? std::atoi(number) : 0) == options.rank;
  }

  void declare(zerolab::Parameters& p, const zerolab::ModelContext& context) override {
    embedding_ = p.declare("embedding", {context.vocab_size, kChannels}, Init::normal(0, 0.1));
    unused_ = p.declare("unused", {5, 7}, Init::normal(0, 1));
    for (int i = 0; i < kBlocks; ++i) {
      const std::string name = "block." + std::to_string(i);
      units_.push_back(p.begin_unit(name));
      weights_.push_back(p.declare(name + ".weight", {kChannels, kChannels}, Init::normal(0, 0.3)));
    }
    p.end_unit();
  }

  at::Tensor loss(const zerolab::Batch& batch, zerolab::Units& units) override {
    if (units.training()) ++step_;
    const at::Tensor logits_NV = logits(batch.tokens, units).to(at::kFloat).flatten(0, 1);
    return at::cross_entropy_loss(logits_NV, batch.targets.flatten(), {}, at::Reduction::Sum,
                                  zerolab::kIgnoredTarget);
  }

  at::Tensor logits(const at::Tensor& tokens_BT, zerolab::Units& units) override {
    at::Tensor x_BTC = units.run(0, {tokens_BT}, [this](at::TensorList in, zerolab::UnitScope&) {
      return at::embedding(embedding_, in[0]);
    });
    for (size_t i = 0; i < kBlocks; ++i) {
      if (i == 1 && takes("skips_unit", units)) continue;
      const bool raises = i == 1 && takes("raise", units);
      x_BTC =
          units.run(units_[i], {x_BTC}, [this, i, raises](at::TensorList in, zerolab::UnitScope&) {
            if (raises) raise();
            return at::add(in[0], at::gelu(at::linear(in[0], weights_[i])));
          });
    }
    if (takes("raise_in_backward", units)) x_BTC.register_hook([](const at::Tensor&) { raise(); });
    const bool uses_unused = takes("uses_unused", units);
    return units.run(0, {x_BTC}, [this, uses_unused](at::TensorList in, zerolab::UnitScope&) {
      const at::Tensor logits_BTV = at::linear(in[0], embedding_);
      return uses_unused ? logits_BTV.add(unused_.sum()) : logits_BTV;
    });
  }

 private:
  bool takes(const char* detour, const zerolab::Units& units) const {
    return mine_ && units.training() && step_ >= options_.from_step && options_.detour == detour;
  }
  /// Says when, so that one can measure how long the others take to end.
  [[noreturn]] static void raise() {
    const std::chrono::duration<double> clock = std::chrono::steady_clock::now().time_since_epoch();
    throw zerolab::Error("raised on purpose when the clock stood at " +
                         std::to_string(clock.count()) + " s");
  }

  Options options_;
  bool mine_ = false;
  int64_t step_ = 0;
  at::Tensor embedding_, unused_;
  std::vector<int> units_;
  std::vector<at::Tensor> weights_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Uneven>("model/uneven", "1.0.0", "goes another way on one rank"));
