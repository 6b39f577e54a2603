// A bigram model with a hidden layer: the next token from the last one alone.
// Shapes: B sequences, T tokens, C channels, V vocabulary. The contract is in zerolab/model.h.

#include "zerolab/model.h"

#include <ATen/ops/add.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>

#include "zerolab/plugin.h"

namespace {

using zerolab::Init;

class MyModel : public zerolab::Model {
 public:
  struct Options {
    int64_t embedding_dim = 32;
    double dropout = 0;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("embedding_dim", &Options::embedding_dim, "channels").at_least(1);
      d.field("dropout", &Options::dropout, "on the hidden layer").at_least(0).below(1);
    }
  };
  explicit MyModel(const Options& options) : options_(options) {}

  // Unit by unit, in the order of the forward pass. Unit 0 is for weights that several units use.
  void declare(zerolab::Parameters& parameters, const zerolab::ModelContext& context) override {
    const int64_t C = options_.embedding_dim, V = context.vocab_size;
    embedding_VC_ = parameters.declare("embedding.weight", {V, C}, Init::normal(0, 0.02));
    hidden_unit_ = parameters.begin_unit("hidden");
    hidden_CC_ = parameters.declare("hidden.weight", {C, C}, Init::normal(0, 0.2));
    parameters.end_unit();
    head_VC_ = parameters.declare("head.weight", {V, C}, Init::normal(0, 0.02));
  }

  at::Tensor loss(const zerolab::Batch& batch, zerolab::Units& units) override {
    const at::Tensor logits_BTV = logits(batch.tokens, units);
    const at::Tensor logits_NV = logits_BTV.to(at::kFloat).flatten(0, 1);
    return at::cross_entropy_loss(logits_NV, batch.targets.flatten(), /*weight=*/{},
                                  at::Reduction::Sum, zerolab::kIgnoredTarget);
  }

  // What a unit reads, parameters aside, are its inputs.
  at::Tensor logits(const at::Tensor& tokens_BT, zerolab::Units& units) override {
    const at::Tensor x_BTC =
        units.run(0, {tokens_BT}, [this](at::TensorList in, zerolab::UnitScope&) {
          return at::embedding(embedding_VC_, in[0]);
        });
    const at::Tensor y_BTC =
        units.run(hidden_unit_, {x_BTC}, [this](at::TensorList in, zerolab::UnitScope& scope) {
          const at::Tensor hidden_BTC = at::gelu(at::linear(in[0], hidden_CC_));
          return at::add(in[0], scope.dropout(hidden_BTC, options_.dropout));
        });
    return units.run(0, {y_BTC}, [this](at::TensorList in, zerolab::UnitScope&) {
      return at::linear(in[0], head_VC_);
    });
  }

 private:
  Options options_;
  int hidden_unit_ = 0;
  at::Tensor embedding_VC_, hidden_CC_, head_VC_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<MyModel>("model/my_model", "0.1.0",
                                       "bigram model with a hidden layer"));
