#include "train/generation.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <string>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "zerolab/error.h"
#include "zerolab/random.h"

#include "built_plugins.h"
#include "catch.h"

namespace {

using zerolab::Generation;
using zerolab::GenerationRequest;
using Tokens = std::vector<int64_t>;

constexpr int64_t kVocabulary = 13;

/// Logits that depend on every token that is seen and on its position.
std::vector<float> toy_logits(const Tokens& context) {
  uint64_t state = 0;
  for (size_t i = 0; i < context.size(); ++i) {
    state = zerolab::mix_key({state, i, static_cast<uint64_t>(context[i])});
  }
  std::vector<float> logits;
  for (uint64_t v = 0; v < kVocabulary; ++v) {
    logits.push_back(static_cast<float>(zerolab::mix_key({state, v}) % 1000) / 200);
  }
  return logits;
}

class ToyModel : public zerolab::Model {
 public:
  explicit ToyModel(int64_t window) : window_(window) {}
  void declare(zerolab::Parameters&, const zerolab::ModelContext&) override {}
  at::Tensor loss(const zerolab::Batch&, zerolab::Units&) override { return {}; }
  at::Tensor logits(const at::Tensor& tokens_BT, zerolab::Units& units) override {
    ++passes;
    CHECK_FALSE(units.training());
    const int64_t T = tokens_BT.size(1);
    REQUIRE(tokens_BT.size(0) == 1);
    REQUIRE(T <= window_);
    at::Tensor logits_BTV = at::zeros({1, T, kVocabulary});
    fill(logits_BTV.select(1, T - 1), tokens_of(tokens_BT));
    return logits_BTV;
  }
  bool has_cache() const override { return cached; }
  at::Tensor next_logits(const at::Tensor& tokens_BT, zerolab::Units& units,
                         zerolab::KeyValueCache& cache) override {
    ++passes;
    CHECK_FALSE(units.training());
    if (cache.length == 0) context_.clear();
    REQUIRE(static_cast<int64_t>(context_.size()) == cache.length);
    const Tokens tokens = tokens_of(tokens_BT);
    REQUIRE_FALSE(tokens.empty());
    context_.insert(context_.end(), tokens.begin(), tokens.end());
    cache.length += static_cast<int64_t>(tokens.size());
    tokens_read += static_cast<int64_t>(tokens.size());
    REQUIRE(cache.length <= cache.capacity);
    REQUIRE(cache.capacity <= window_);
    at::Tensor logits_BV = at::empty({1, kVocabulary});
    fill(logits_BV, context_);
    return logits_BV;
  }

  bool cached = true, broken = false;
  int64_t tokens_read = 0, passes = 0;

 private:
  static Tokens tokens_of(const at::Tensor& tokens_BT) {
    const int64_t* first = tokens_BT.const_data_ptr<int64_t>();
    return {first, first + tokens_BT.numel()};
  }
  void fill(const at::Tensor& out, const Tokens& context) const {
    std::vector<float> logits = toy_logits(context);
    if (broken) logits[3] = std::numeric_limits<float>::quiet_NaN();
    std::copy(logits.begin(), logits.end(), out.mutable_data_ptr<float>());
  }
  int64_t window_;
  Tokens context_;
};

Generation generate(zerolab::Model& model, int64_t window, const GenerationRequest& request,
                    const std::function<bool(int64_t)>& on_token = {}) {
  zerolab::Units units;
  return zerolab::generate({model, units, {}, window}, request, on_token);
}

/// The same by what the header says, from the whole context each time.
Tokens expected_tokens(int64_t window, const GenerationRequest& request) {
  Tokens context = request.prompt, made;
  while (static_cast<int64_t>(made.size()) < request.max_tokens) {
    if (static_cast<int64_t>(context.size()) > window) {
      context.erase(context.begin(), context.end() - std::max<int64_t>(1, window / 2));
    }
    const auto logits = toy_logits(context);
    const auto position = static_cast<int64_t>(made.size());
    const int64_t token =
        zerolab::choose_token(zerolab::next_token_probabilities(logits, request.sampling),
                              zerolab::sampling_number(request.seed, request.sample, position));
    if (token == request.end_of_text) break;
    made.push_back(token);
    context.push_back(token);
  }
  return made;
}

GenerationRequest request_of(Tokens prompt, double temperature, uint64_t seed, int64_t max_tokens) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = temperature;
  request.seed = seed;
  request.max_tokens = max_tokens;
  return request;
}

/// model/gpt with memory of its own, and weights large enough to prefer some tokens.
struct BuiltGpt {
  explicit BuiltGpt(int64_t window) {
    const zerolab::OptionSchema* schema = host().schema(zerolab::Kind::kModel, "gpt");
    REQUIRE(schema != nullptr);
    zerolab::OptionValues options = schema->defaults();
    options["num_layers"] = int64_t{2};
    options["num_heads"] = int64_t{2};
    options["embedding_dim"] = int64_t{16};
    options["init_std"] = 0.4;
    model.reset(
        static_cast<zerolab::Model*>(host().entry(zerolab::Kind::kModel, "gpt").create(options)));
    model->declare(parameters, {kVocabulary, window});
    flat = at::zeros({parameters.total_numel()});
    int64_t offset = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters.bind(i, flat, offset);
      parameters.initialize(i, 3);
      offset += parameters.info(i).numel;
    }
  }
  std::unique_ptr<zerolab::Model> model;
  zerolab::Parameters parameters;
  at::Tensor flat;
};

}  // namespace

TEST_CASE("tokens are those of the window's rule, with a cache and without, over many windows") {
  for (const int64_t window : {1, 2, 5, 8}) {
    for (const double temperature : {0.0, 0.7, 1.0}) {
      for (const uint64_t seed : {1, 2, 3}) {
        GenerationRequest request = request_of({4, 7, 1}, temperature, seed, 41);
        INFO("window " << window << ", temperature " << temperature << ", seed " << seed);
        const Tokens expected = expected_tokens(window, request);
        ToyModel model(window);
        CHECK(generate(model, window, request).tokens == expected);
        request.use_cache = false;
        CHECK(generate(model, window, request).tokens == expected);
        request.use_cache = true;
        model.cached = false;
        CHECK(generate(model, window, request).tokens == expected);
      }
    }
  }
}

TEST_CASE("a prompt as long as the window fits, of a longer one the latest half counts") {
  const Tokens prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  ToyModel model(8);
  Generation made = generate(model, 8, request_of({prompt.begin() + 1, prompt.end()}, 0, 0, 1));
  CHECK(made.prompt_tokens == 8);
  CHECK(model.tokens_read == 8);
  made = generate(model, 8, request_of(prompt, 0, 0, 6));
  CHECK(made.prompt_tokens == 4);
  CHECK(made.tokens == generate(model, 8, request_of({6, 7, 8, 9}, 0, 0, 6)).tokens);
}

TEST_CASE("with a cache each token is read once in a window") {
  ToyModel model(16);
  const Generation made = generate(model, 16, request_of({1, 2, 3}, 0, 0, 10));
  CHECK(made.tokens.size() == 10);
  CHECK(model.tokens_read == 3 + 9);  // the last one is not read
  CHECK(model.passes == 10);
  CHECK(made.passes == 9);
}

TEST_CASE("the sample and the seed change a text, more tokens or other samples do not") {
  ToyModel model(8);
  const Tokens first = generate(model, 8, request_of({1}, 1, 5, 30)).tokens;
  CHECK(generate(model, 8, request_of({1}, 1, 5, 30)).tokens == first);
  CHECK(generate(model, 8, request_of({1}, 1, 6, 30)).tokens != first);
  GenerationRequest other = request_of({1}, 1, 5, 30);
  other.sample = 1;
  CHECK(generate(model, 8, other).tokens != first);
  const Tokens longer = generate(model, 8, request_of({1}, 1, 5, 60)).tokens;
  CHECK(Tokens(longer.begin(), longer.begin() + 30) == first);
}

TEST_CASE("a text ends before its end of text, after its last token, or where the caller stops") {
  ToyModel model(8);
  GenerationRequest request = request_of({1}, 1, 5, 40);
  const Generation whole = generate(model, 8, request);
  CHECK(whole.end == Generation::End::kMaxTokens);
  REQUIRE(whole.tokens.size() == 40);

  request.end_of_text = whole.tokens[12];
  const auto end = std::find(whole.tokens.begin(), whole.tokens.end(), request.end_of_text);
  const Generation ended = generate(model, 8, request);
  CHECK(ended.end == Generation::End::kEndOfText);
  CHECK(ended.tokens == Tokens(whole.tokens.begin(), end));

  request.end_of_text = -1;
  Tokens seen;
  const Generation stopped = generate(model, 8, request, [&](int64_t token) {
    seen.push_back(token);
    return seen.size() < 7;
  });
  CHECK(stopped.end == Generation::End::kStopped);
  CHECK(stopped.tokens == seen);
  CHECK(seen == Tokens(whole.tokens.begin(), whole.tokens.begin() + 7));
}

TEST_CASE("a model that gives no numbers is an error") {
  ToyModel model(8);
  model.broken = true;
  CHECK_THROWS_AS(generate(model, 8, request_of({1}, 0, 0, 3)), zerolab::Error);
}

TEST_CASE("the built gpt gives the same tokens with its cache and without, over several windows") {
  constexpr int64_t kWindow = 12;
  BuiltGpt gpt(kWindow);
  REQUIRE(gpt.model->has_cache());
  for (const double temperature : {0.0, 1.0}) {
    for (const uint64_t seed : {1, 2, 3, 4}) {
      INFO("temperature " << temperature << ", seed " << seed);
      GenerationRequest request =
          request_of({3, 1, 4, static_cast<int64_t>(seed)}, temperature, seed, 50);
      const Tokens cached = generate(*gpt.model, kWindow, request).tokens;
      request.use_cache = false;
      CHECK(generate(*gpt.model, kWindow, request).tokens == cached);
      CHECK(std::set<int64_t>(cached.begin(), cached.end()).size() > 1);
    }
  }
}

TEST_CASE("small models generate on one thread, large ones on no more than there are cores") {
  CHECK(zerolab::generation_threads(0, 8) == 1);
  CHECK(zerolab::generation_threads(10'000'000, 8) == 1);
  CHECK(zerolab::generation_threads(124'000'000, 8) == 2);
  CHECK(zerolab::generation_threads(7'000'000'000, 8) == 8);
  CHECK(zerolab::generation_threads(7'000'000'000, 0) == 1);
}
