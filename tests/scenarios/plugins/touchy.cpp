// A model that one token upsets, the last of the vocabulary: its loss is then no number, or high,
// or the gradient of its last block and of what lies before it is no number.
// Shapes: B sequences, T tokens, C channels, V vocabulary, N = B T.

#include <limits>
#include <string>

#include <ATen/ops/add.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>

#include "zerolab/model.h"
#include "zerolab/plugin.h"

namespace {

using zerolab::Init;

constexpr int kChannels = 16, kBlocks = 2;
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

class Touchy : public zerolab::Model {
 public:
  struct Options {
    std::string upset = "loss";
    static void describe(zerolab::Describe<Options>& d) {
      d.field("upset", &Options::upset, "what is not as it should be")
          .one_of({"loss", "gradient", "spike"});
    }
  };
  explicit Touchy(const Options& options) : options_(options) {}

  void declare(zerolab::Parameters& p, const zerolab::ModelContext& context) override {
    last_token_ = context.vocab_size - 1;
    embedding_ = p.declare("embedding", {context.vocab_size, kChannels}, Init::normal(0, 0.1));
    for (int i = 0; i < kBlocks; ++i) {
      const std::string name = "block." + std::to_string(i);
      units_.push_back(p.begin_unit(name));
      weights_.push_back(p.declare(name + ".weight", {kChannels, kChannels}, Init::normal(0, 0.3)));
    }
    p.end_unit();
  }

  at::Tensor loss(const zerolab::Batch& batch, zerolab::Units& units) override {
    const at::Tensor logits_NV = logits(batch.tokens, units).to(at::kFloat).flatten(0, 1);
    const at::Tensor loss = at::cross_entropy_loss(logits_NV, batch.targets.flatten(), {},
                                                   at::Reduction::Sum, zerolab::kIgnoredTarget);
    if (is_upset("loss", batch.tokens)) return loss.mul(kNoNumber);
    return is_upset("spike", batch.tokens) ? loss.mul(100) : loss;
  }

  at::Tensor logits(const at::Tensor& tokens_BT, zerolab::Units& units) override {
    at::Tensor x_BTC = units.run(0, {tokens_BT}, [this](at::TensorList in, zerolab::UnitScope&) {
      return at::embedding(embedding_, in[0]);
    });
    for (size_t i = 0; i < kBlocks; ++i) {
      x_BTC = units.run(units_[i], {x_BTC}, [this, i](at::TensorList in, zerolab::UnitScope&) {
        return at::add(in[0], at::gelu(at::linear(in[0], weights_[i])));
      });
    }
    if (x_BTC.requires_grad() && is_upset("gradient", tokens_BT)) {
      x_BTC.register_hook([](const at::Tensor& gradient) { return gradient.mul(kNoNumber); });
    }
    return units.run(0, {x_BTC}, [this](at::TensorList in, zerolab::UnitScope&) {
      return at::linear(in[0], embedding_);
    });
  }

 private:
  bool is_upset(const char* how, const at::Tensor& tokens) const {
    return options_.upset == how && tokens.eq(last_token_).any().item<bool>();
  }

  Options options_;
  int64_t last_token_ = 0;
  at::Tensor embedding_;
  std::vector<int> units_;
  std::vector<at::Tensor> weights_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Touchy>("model/touchy", "1.0.0", "upset by one token"));
