#include "awkward_model.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>

using zerolab::Init;

namespace {
constexpr int64_t kChannels = 11, kHidden = 23;
}

void AwkwardModel::declare(zerolab::Parameters& p, const zerolab::ModelContext& context) {
  embedding_ = p.declare("embedding", {context.vocab_size, kChannels}, Init::normal(0, 0.5));
  p.alias("embedding", "head");
  final_norm_ = p.declare("final_norm", {kChannels}, Init::ones());
  final_bias_ = p.declare("final_bias", {kChannels}, Init::zeros());
  twice_ = p.declare("twice", {kChannels, kChannels}, Init::normal(0, 0.3));
  temperature_ = p.declare("temperature", {1}, Init::ones());
  shared_ = p.declare("shared", {kChannels}, Init::ones());  // read by every block
  unused_ = p.declare("unused", {5, 7}, Init::normal(0, 1));
  p.declare("empty", {0, 4}, Init::zeros());
  for (int i = 0; i < 2; ++i) {
    const std::string name = "block." + std::to_string(i);
    Block block;
    block.unit = p.begin_unit(name);
    block.norm = p.declare(name + ".norm", {kChannels}, Init::ones());
    block.in = p.declare(name + ".in", {kHidden, kChannels}, Init::normal(0, 0.3));
    block.bias = p.declare(name + ".bias", {kHidden}, Init::zeros());
    block.frozen = p.declare(name + ".frozen", {kHidden, kHidden}, Init::normal(0, 0.2),
                             {.requires_grad = false});
    block.out = p.declare(name + ".out", {kChannels, kHidden}, Init::normal(0, 0.3));
    block.out_twice = p.declare(name + ".out_twice", {kChannels, kChannels}, Init::normal(0, 0.2));
    blocks_.push_back(block);
  }
  p.end_unit();
}

at::Tensor AwkwardModel::run_block(const Block& b, const at::Tensor& x_BTC, zerolab::Units& units) {
  return units.run(b.unit, {x_BTC}, [this, &b](at::TensorList in, auto& scope) {
    const at::Tensor normed = at::layer_norm(in[0], {kChannels}, b.norm).mul(shared_);
    const at::Tensor hidden = at::linear(at::gelu(at::linear(normed, b.in, b.bias)), b.frozen);
    return in[0]
        .add(scope.dropout(at::linear(at::linear(hidden, b.out), b.out_twice), 0.2 * dropout_))
        .add(at::linear(at::linear(in[0], b.out_twice), b.out_twice));
  });
}

at::Tensor AwkwardModel::logits(const at::Tensor& tokens_BT, zerolab::Units& units) {
  at::Tensor x_BTC = units.run(0, {tokens_BT}, [this](at::TensorList in, auto& scope) {
    return scope.dropout(at::embedding(embedding_, in[0]), 0.1 * dropout_);
  });
  for (const Block& b : blocks_) {
    if (detour_ == Detour::kSkipsBlock && &b == &blocks_.back()) continue;
    const int runs = detour_ == Detour::kRunsTwice ? 2 : 1;
    for (int i = 0; i < runs; ++i) x_BTC = run_block(b, x_BTC, units);
  }
  return units.run(0, {x_BTC}, [this](at::TensorList in, zerolab::UnitScope&) {
    const at::Tensor x = at::linear(at::linear(in[0], twice_), twice_).add(in[0]);
    const at::Tensor normed = at::layer_norm(x, {kChannels}, final_norm_, final_bias_);
    const at::Tensor logits = at::linear(normed, embedding_).mul(temperature_);
    return detour_ == Detour::kUsesUnused ? logits.add(unused_.sum()) : logits;
  });
}

at::Tensor AwkwardModel::loss(const zerolab::Batch& batch, zerolab::Units& units) {
  const at::Tensor logits_NV = logits(batch.tokens, units).to(at::kFloat).flatten(0, 1);
  return at::cross_entropy_loss(logits_NV, batch.targets.flatten(), {}, at::Reduction::Sum,
                                zerolab::kIgnoredTarget);
}

void CountingData::sample(zerolab::Split, int64_t index, std::span<int64_t> tokens,
                          std::span<int64_t> targets) const {
  const int64_t stride = 1 + index % 5;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const auto at = static_cast<int64_t>(t);
    tokens[t] = (index + stride * at) % kVocabulary;
    targets[t] = (index + stride * (at + 1)) % kVocabulary;
    const bool uncounted = (at + index) % 5 == 0 || (index % 7 == 0 && at > 1);
    if (uncounted) targets[t] = zerolab::kIgnoredTarget;
  }
}
