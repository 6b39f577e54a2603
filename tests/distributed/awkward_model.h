#pragma once
// A model that has every awkward kind of parameter: tied, frozen, unused, used twice in a unit and
// by several units, tiny (fewer elements than ranks), odd-sized, zero-size, decayed and not; and a
// made-up text for it.

#include <span>

#include <ATen/core/Tensor.h>

#include "zerolab/data.h"
#include "zerolab/model.h"

class AwkwardModel : public zerolab::Model {
 public:
  /// Another way through the model, which the other ranks do not take.
  enum class Detour { kNone, kUsesUnused, kSkipsBlock, kRunsTwice };
  void take(Detour detour) { detour_ = detour; }
  void leave_dropout_out() { dropout_ = 0; }

  void declare(zerolab::Parameters& parameters, const zerolab::ModelContext& context) override;
  at::Tensor loss(const zerolab::Batch& batch, zerolab::Units& units) override;
  at::Tensor logits(const at::Tensor& tokens_BT, zerolab::Units& units) override;

 private:
  at::Tensor embedding_, final_norm_, final_bias_, twice_, temperature_, shared_, unused_;
  struct Block {
    int unit = 0;
    at::Tensor norm, in, bias, frozen, out, out_twice;
  };
  at::Tensor run_block(const Block& b, const at::Tensor& x_BTC, zerolab::Units& units);
  std::vector<Block> blocks_;
  Detour detour_ = Detour::kNone;
  double dropout_ = 1;  // factor on all probabilities
};

/// Sequences that count upwards with a step of their own; every fifth target is not counted, and
/// the last sequence counts little.
class CountingData : public zerolab::Data {
 public:
  static constexpr int64_t kVocabulary = 13;
  void open(const zerolab::DataContext& context) override { length_ = context.sequence_length; }
  int64_t vocab_size() const override { return kVocabulary; }
  int64_t size(zerolab::Split) const override { return 37; }
  void sample(zerolab::Split split, int64_t index, std::span<int64_t> tokens,
              std::span<int64_t> targets) const override;

 private:
  int64_t length_ = 0;
};
