#include "train/model_score.h"

#include <cmath>
#include <numbers>
#include <string>

#include <ATen/ops/full.h>

#include "zerolab/error.h"

#include "catch.h"

namespace {

using zerolab::kIgnoredTarget;
using zerolab::ModelScore;
using zerolab::Split;
using zerolab::TrainedModel;

constexpr int64_t kTokens = 4, kEnd = 256;

/// Validation sequences of given targets; a token is a byte, or ends a document.
class GivenData : public zerolab::Data {
 public:
  explicit GivenData(std::vector<std::vector<int64_t>> targets) : targets_(std::move(targets)) {}
  void open(const zerolab::DataContext&) override {}
  int64_t vocab_size() const override { return 257; }
  int64_t size(Split) const override { return static_cast<int64_t>(targets_.size()); }
  void sample(Split, int64_t index, std::span<int64_t> tokens,
              std::span<int64_t> targets) const override {
    const auto& given = targets_[static_cast<size_t>(index)];
    std::copy(given.begin(), given.end(), targets.begin());
    std::fill(tokens.begin(), tokens.end(), 0);
  }
  std::string decode(std::span<const int64_t> tokens) const override {
    std::string text;
    if (!decodes) return text;
    for (const int64_t token : tokens) text += token == kEnd ? "<end>" : std::string(1, 'x');
    return text;
  }
  int64_t end_of_text() const override { return kEnd; }
  bool decodes = true;

 private:
  std::vector<std::vector<int64_t>> targets_;
};

/// A target costs an eighth of its number, which float32 holds exactly.
class PricedModel : public zerolab::Model {
 public:
  void declare(zerolab::Parameters&, const zerolab::ModelContext&) override {}
  at::Tensor loss(const zerolab::Batch& batch, zerolab::Units& units) override {
    CHECK_FALSE(units.training());
    batch_sizes.push_back(batch.targets.size(0));
    double sum = 0;
    const at::Tensor targets = batch.targets.contiguous();
    for (int64_t i = 0; i < targets.numel(); ++i) {
      const int64_t target = targets.const_data_ptr<int64_t>()[i];
      if (target != kIgnoredTarget) sum += static_cast<double>(target) / 8;
    }
    return at::full({}, sum, at::TensorOptions().dtype(at::kFloat));
  }
  at::Tensor logits(const at::Tensor&, zerolab::Units&) override { return {}; }
  std::vector<int64_t> batch_sizes;
};

void set_up(TrainedModel& trained, std::vector<std::vector<int64_t>> targets, bool decodes = true) {
  auto data = std::make_unique<GivenData>(std::move(targets));
  data->decodes = decodes;
  trained.data = std::move(data);
  trained.model = std::make_unique<PricedModel>();
  trained.experiment.batch.sequence_length = kTokens;
  trained.experiment.batch.micro_batch_size = 2;
}

}  // namespace

TEST_CASE("where a token is a byte, bits per byte are the loss over ln 2") {
  TrainedModel trained;
  set_up(trained, {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}});
  const ModelScore score = zerolab::score_model(trained, 0, 2);
  CHECK(score.loss == 78.0 / 8 / 12);
  CHECK(score.samples == 3);
  CHECK(score.tokens == 12);
  CHECK(score.bytes == 12);
  CHECK(score.perplexity() == std::exp(score.loss));
  CHECK(score.bits_per_token() == score.loss / std::numbers::ln2);
  CHECK(score.bits_per_byte() == score.loss / std::numbers::ln2);
}

TEST_CASE("a token that ends a document counts in the loss and has no bytes") {
  TrainedModel trained;
  set_up(trained, {{8, 8, kEnd, 8}});
  const ModelScore score = zerolab::score_model(trained, 0, 1);
  CHECK(score.loss == (3 + 32) / 4.0);
  CHECK(score.tokens == 4);
  CHECK(score.bytes == 3);
  CHECK(score.bits_per_byte() == Approx(35 / std::numbers::ln2 / 3).epsilon(1e-14));
}

TEST_CASE("targets that are not counted count nowhere") {
  TrainedModel trained;
  set_up(trained, {{8, kIgnoredTarget, 16, kIgnoredTarget}});
  const ModelScore score = zerolab::score_model(trained, 0, 1);
  CHECK(score.loss == 1.5);
  CHECK(score.tokens == 2);
  CHECK(score.bytes == 2);
  set_up(trained, {{kIgnoredTarget, kIgnoredTarget, kIgnoredTarget, kIgnoredTarget}});
  CHECK_THROWS_AS(zerolab::score_model(trained, 0, 1), zerolab::Error);
}

TEST_CASE("data without text has no bits per byte") {
  TrainedModel trained;
  set_up(trained, {{1, 2, 3, 4}}, false);
  CHECK_FALSE(zerolab::has_text(*trained.data));
  const ModelScore score = zerolab::score_model(trained, 0, 1);
  CHECK(score.bytes == 0);
  CHECK(std::isnan(score.bits_per_byte()));
}

TEST_CASE("only as many sequences are read as asked for, in batches of the given size") {
  TrainedModel trained;
  set_up(trained, std::vector<std::vector<int64_t>>(7, {8, 8, 8, 8}));
  std::vector<std::pair<int64_t, int64_t>> told;
  const ModelScore score = zerolab::score_model(
      trained, 5, 2, [&](int64_t done, int64_t all) { told.emplace_back(done, all); });
  CHECK(score.samples == 5);
  CHECK(score.tokens == 20);
  CHECK(score.loss == 1);
  CHECK(dynamic_cast<PricedModel&>(*trained.model).batch_sizes == std::vector<int64_t>{2, 2, 1});
  CHECK(told == std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {1, 3}, {2, 3}});
  CHECK(zerolab::score_model(trained, 100, 1000).samples == 7);  // no more than there are
}
