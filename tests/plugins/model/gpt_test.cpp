// Legend: B sequences, T tokens, C channels, H heads, D = C / H, V vocabulary, L layers.

#include <algorithm>
#include <cmath>

#include <ATen/ops/all.h>
#include <ATen/ops/equal.h>

#include "zerolab/error.h"

#include "catch.h"
#include "model/gpt_fixture.h"
#include "model/model_promises.h"

using namespace gpt_test;

TEST_CASE("model/gpt computes what a definition in double precision computes, and its gradients") {
  for (bool bias : {false, true}) {
    for (bool tied : {true, false}) {
      for (const char* gelu : {"exact", "tanh"}) {
        CAPTURE(bias, tied, gelu);
        Bound b(tiny({{"bias", bias}, {"tie_embeddings", tied}, {"gelu", std::string(gelu)}}));
        disturb(b);
        const Reference reference(b, 2, 2, bias, std::string(gelu) == "tanh");
        const at::Tensor expected = reference.logits(b.batch.tokens);
        // Float32 against double: logits of size one through two blocks.
        CHECK(largest(b.model->logits(b.batch.tokens, b.units) - expected) < 1e-5);

        const std::vector<at::Tensor> gradients = b.gradients();
        for (size_t i = 0; i < b.parameters.size(); ++i)
          b.parameters.tensor(i).mutable_grad().reset();
        cross_entropy_sum(expected, b.batch.targets).backward();
        for (size_t i = 0; i < b.parameters.size(); ++i) {
          CAPTURE(b.parameters.info(i).name);
          const at::Tensor exact = b.parameters.tensor(i).grad();
          REQUIRE(gradients[i].defined());
          CHECK(largest(exact) > 0);
          CHECK(largest(gradients[i] - exact) < 2e-5 * std::max(1.0, largest(exact)));
        }
      }
    }
  }
}

TEST_CASE("model/gpt has gradients that finite differences agree with") {
  Bound b(tiny());
  disturb(b);
  const std::vector<at::Tensor> gradients = b.gradients();
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < b.parameters.size(); ++i) {
    CAPTURE(b.parameters.info(i).name);
    // Along one random direction a parameter: the central difference of a float32 loss of about 40
    // with step 1e-2 is good to about 1e-5 * 40 / 1e-2.
    const at::Tensor& w = b.parameters.tensor(i);
    at::Tensor direction = at::zeros_like(w).normal_(0, 1, zerolab::make_generator(i));
    direction.div_(direction.norm());
    const at::Tensor before = w.detach().clone();
    w.detach().add_(direction, 1e-2);
    const double up = b.loss().item<double>();
    w.detach().copy_(before).add_(direction, -1e-2);
    const double down = b.loss().item<double>();
    w.detach().copy_(before);
    const double slope = (gradients[i] * direction).sum().item<double>();
    CHECK((up - down) / 2e-2 == Approx(slope).epsilon(0.02).margin(0.01));
  }
}

TEST_CASE("model/gpt loses ln V per token at the start (statistical)") {
  Bound b({{"num_layers", int64_t{4}}, {"num_heads", int64_t{4}}, {"embedding_dim", int64_t{128}}},
          65, 64);
  // Logits have a standard deviation of about init_std * sqrt(C) = 0.23, which adds about 0.03.
  const double mean = b.loss().item<double>() / static_cast<double>(b.batch.num_targets);
  CHECK(mean == Approx(std::log(65.0)).margin(0.1));
}

TEST_CASE("model/gpt has as many parameters as the closed form says") {
  for (int64_t L : {1, 4}) {
    for (bool bias : {false, true}) {
      for (bool tied : {true, false}) {
        const int64_t C = 128, V = 65, T = 64;
        Bound b({{"num_layers", L},
                 {"num_heads", int64_t{4}},
                 {"embedding_dim", C},
                 {"bias", bias},
                 {"tie_embeddings", tied}},
                V, T);
        int64_t expected = V * C + T * C + C + L * (12 * C * C + 2 * C);
        if (bias) expected += C + L * (3 * C + C + 4 * C + C + 2 * C);
        if (!tied) expected += V * C;
        CHECK(b.parameters.total_numel() == expected);
      }
    }
  }
  Bound published(
      {{"num_layers", int64_t{4}}, {"num_heads", int64_t{4}}, {"embedding_dim", int64_t{128}}}, 65,
      64);
  CHECK(published.parameters.total_numel() == 804096);
}

TEST_CASE("model/gpt makes a unit of each block and keeps shared weights in the root") {
  Bound b(tiny());
  REQUIRE(b.parameters.num_units() == 3);
  CHECK(b.parameters.unit_name(1) == "blocks.0");
  CHECK(b.parameters.unit_name(2) == "blocks.1");
  for (size_t i = 0; i < b.parameters.size(); ++i) {
    const zerolab::ParameterInfo& info = b.parameters.info(i);
    const int expected = info.name.rfind("blocks.", 0) == 0 ? 1 + (info.name[7] - '0') : 0;
    CHECK(info.unit == expected);
    CHECK(info.decay == (info.shape.size() >= 2));
  }
  CHECK(b.parameters.find("blocks.1.attention.qkv.weight") >= 0);
}

TEST_CASE("model/gpt ties the head: one parameter, two names, a gradient from both uses") {
  Bound tied(tiny()), untied(tiny({{"tie_embeddings", false}}));
  REQUIRE(tied.parameters.find("lm_head.weight") == tied.parameters.find("wte.weight"));
  REQUIRE(untied.parameters.find("lm_head.weight") != untied.parameters.find("wte.weight"));
  {
    const at::NoGradGuard no_grad;
    untied.tensor("lm_head.weight").copy_(tied.tensor("wte.weight"));
  }
  const at::Tensor both = (tied.gradients(), tied.tensor("wte.weight").grad());
  untied.gradients();
  const at::Tensor as_words = untied.tensor("wte.weight").grad();
  const at::Tensor as_head = untied.tensor("lm_head.weight").grad();
  CHECK(largest(as_words) > 0);
  CHECK(largest(as_head) > 0);
  CHECK(largest(both - (as_words + as_head)) < 1e-5 * largest(both));
}

TEST_CASE("model/gpt is causal: a later token changes no earlier logit (bit-identical)") {
  for (double attention_dropout : {0.0, 0.3}) {
    CAPTURE(attention_dropout);
    Bound b(tiny({{"attention_dropout", attention_dropout}}));
    check_causal(b, /*training=*/attention_dropout > 0);
  }
}

TEST_CASE("model/gpt reads with a cache what it reads without") {
  for (const OptionValues& options :
       {OptionValues{},
        {{"bias", true}, {"head_bias", true}, {"vocab_multiple", int64_t{8}}},
        {{"positions", std::string("none")}},
        {{"max_positions", int64_t{20}}}}) {
    Bound b(tiny(options));
    disturb(b);
    check_cache(b);
    check_full_cache(b);
  }
  Bound b(tiny());
  zerolab::KeyValueCache cache;
  cache.capacity = 20;
  b.model->next_logits(b.batch.tokens, b.units, cache);
  CHECK_THROWS_AS(b.model->next_logits(b.batch.tokens, b.units, cache), zerolab::Error);
}

TEST_CASE("model/gpt takes texts shorter than its positions and refuses longer ones") {
  Bound b(tiny(), 11, 6);
  const at::Tensor whole = b.model->logits(b.batch.tokens, b.units);
  CHECK(whole.sizes() == at::IntArrayRef({3, 6, 11}));
  const at::Tensor part = b.model->logits(b.batch.tokens.slice(1, 0, 4), b.units);
  CHECK(largest(part - whole.slice(1, 0, 4)) < 1e-6);
  CHECK_THROWS_AS(b.model->logits(at::zeros({1, 7}, at::kLong), b.units), zerolab::Error);
}

TEST_CASE(
    "model/gpt returns a float32 sum over the counted targets of the cross entropy of logits") {
  Bound b(tiny());
  check_loss_is_sum(b);
}

TEST_CASE("model/gpt under autocast still gives a float32 loss and float32 gradients") {
  // bfloat16 keeps 8 bits, float16 11: a few per cent of the norm.
  for (at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    CAPTURE(dtype);
    Bound b(tiny());
    check_autocast(b, dtype);
  }
}

TEST_CASE("model/gpt computes with parameters in 16 bits") {
  for (at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    CAPTURE(dtype);
    Bound b(tiny({{"bias", true}}), 11, 6, 1, dtype), exact(tiny({{"bias", true}}));
    check_sixteen_bits(b, exact);
  }
}

TEST_CASE("model/gpt recomputes its blocks to the same gradients (bit-identical)") {
  Bound b(tiny({{"dropout", 0.2}, {"attention_dropout", 0.2}}));
  check_recomputation(b);
}

TEST_CASE("model/gpt replays its dropout under the same key and draws anew under another") {
  for (const char* option : {"dropout", "attention_dropout"}) {
    CAPTURE(option);
    Bound b(tiny({{option, 0.3}}));
    const double first = b.loss(1).item<double>();
    CHECK(b.loss(1).item<double>() == first);
    CHECK(b.loss(2).item<double>() != first);
    CHECK(b.loss(1).item<double>() == first);
  }
}

TEST_CASE("model/gpt has no dropout in evaluation, whatever the key") {
  Bound b(tiny({{"dropout", 0.3}, {"attention_dropout", 0.3}})), without(tiny());
  const double loss = b.loss().item<double>();
  b.units.begin(/*training=*/false, 77);
  CHECK(b.loss().item<double>() == loss);
  CHECK(without.loss().item<double>() == loss);
  CHECK(without.loss(3).item<double>() == loss);
}

TEST_CASE("model/gpt's explicit attention is the fused one when dropout takes almost nothing") {
  Bound explicit_attention(tiny({{"attention_dropout", 1e-12}})), fused(tiny());
  disturb(explicit_attention);
  disturb(fused);
  CHECK(explicit_attention.loss(1).item<double>() ==
        Approx(fused.loss(1).item<double>()).epsilon(1e-6));
}

TEST_CASE("model/gpt starts from the same weights for a seed, scaled where branches join") {
  const auto deviation = [](const Bound& b, const std::string& name) {
    return b.tensor(name).detach().std().item<double>();
  };
  const OptionValues wide = {
      {"num_layers", int64_t{8}}, {"num_heads", int64_t{2}}, {"embedding_dim", int64_t{64}}};
  OptionValues plain = wide;
  plain["scaled_residual_init"] = false;
  Bound scaled(wide), same(wide), unscaled(plain), other(wide, 11, 6, /*seed=*/2);
  CHECK(at::equal(scaled.flat, same.flat));
  CHECK_FALSE(at::equal(scaled.flat, other.flat));
  // Statistical: the deviation of 4,096 draws or more is good to 1.1 %; five times that.
  const double std = 0.02, residual = 0.02 / std::sqrt(16.0);
  CHECK(deviation(scaled, "blocks.3.attention.qkv.weight") == Approx(std).epsilon(0.055));
  CHECK(deviation(scaled, "blocks.3.attention.proj.weight") == Approx(residual).epsilon(0.055));
  CHECK(deviation(scaled, "blocks.7.mlp.proj.weight") == Approx(residual).epsilon(0.055));
  CHECK(deviation(unscaled, "blocks.7.mlp.proj.weight") == Approx(std).epsilon(0.055));
  CHECK(at::all(scaled.tensor("final_norm.weight") == 1).item<bool>());
}

TEST_CASE("model/gpt pads the vocabulary without changing loss or logits") {
  Bound padded(tiny({{"vocab_multiple", int64_t{8}}})), plain(tiny());
  const at::Tensor& rows = padded.tensor("wte.weight");
  REQUIRE(rows.size(0) == 16);
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < plain.parameters.size(); ++i) {
      const at::Tensor& from = plain.parameters.tensor(i);
      padded.parameters.tensor(i).narrow(0, 0, from.size(0)).copy_(from);
    }
  }
  CHECK(padded.model->logits(padded.batch.tokens, padded.units).size(-1) == 11);
  CHECK(padded.loss().item<double>() == Approx(plain.loss().item<double>()).epsilon(1e-6));
  padded.gradients();
  CHECK(largest(rows.grad().slice(0, 11, 16)) == 0);
}

TEST_CASE("model/gpt refuses heads that do not divide the width, and names both numbers") {
  CHECK(
      option_problems("model/gpt", {{"num_heads", int64_t{5}}, {"embedding_dim", int64_t{128}}}) ==
      std::vector<std::string>{"num_heads: must divide embedding_dim (128), is 5"});
  CHECK_FALSE(option_problems("model/gpt", {{"dropout", 1.0}}).empty());
  CHECK_FALSE(option_problems("model/gpt", {{"num_layers", int64_t{0}}}).empty());
  CHECK(option_problems("model/gpt", {}).empty());
}

TEST_CASE("model/gpt without positions: one block knows no order, two know it from the mask") {
  Bound b(tiny({{"positions", std::string("none")}, {"num_layers", int64_t{1}}}));
  CHECK(b.parameters.find("wpe.weight") < 0);
  at::Tensor swapped = b.batch.tokens.clone();
  swapped.select(1, 0).copy_(b.batch.tokens.select(1, 1));
  swapped.select(1, 1).copy_(b.batch.tokens.select(1, 0));
  const at::Tensor before = b.logits(), after = b.model->logits(swapped, b.units);
  CHECK(largest(before.select(1, 5) - after.select(1, 5)) < 1e-6);
  CHECK(largest(before.select(1, 0) - after.select(1, 0)) > 1e-3);
  Bound deep(tiny({{"positions", std::string("none")}}));
  CHECK(largest(deep.logits().select(1, 5) - deep.model->logits(swapped, deep.units).select(1, 5)) >
        1e-5);
  CHECK(b.model->logits(at::zeros({1, 7}, at::kLong), b.units).size(1) == 7);  // no limit either
}

TEST_CASE("model/gpt holds as many positions as it is told, for weights of a longer context") {
  Bound longer(tiny({{"max_positions", int64_t{10}}}), 11, 6);
  CHECK(longer.tensor("wpe.weight").size(0) == 10);
  CHECK(longer.model->logits(at::zeros({1, 10}, at::kLong), longer.units).size(1) == 10);
  CHECK_THROWS_AS(longer.model->logits(at::zeros({1, 11}, at::kLong), longer.units),
                  zerolab::Error);
  CHECK_THROWS_AS(Bound(tiny({{"max_positions", int64_t{5}}}), 11, 6), zerolab::ConfigError);
  CHECK(option_problems("model/gpt",
                        tiny({{"positions", std::string("none")}, {"max_positions", int64_t{5}}}))
            .size() == 1);
}

TEST_CASE(
    "model/gpt adds a bias to each word's logit, and to the norms' variance what it is told") {
  Bound plain(tiny()), biased(tiny({{"head_bias", true}})), wide(tiny({{"norm_eps", 1e-2}}));
  {
    const at::NoGradGuard no_grad;
    biased.tensor("lm_head.bias").select(0, 3).fill_(2.5);
  }
  const at::Tensor difference = biased.logits() - plain.logits();
  CHECK(largest(difference.select(2, 3) - 2.5) < 1e-5);
  CHECK(largest(difference.slice(2, 4)) == 0);
  CHECK(largest(wide.logits() - plain.logits()) > 1e-3);
}

TEST_CASE("model/gpt offers the layouts of the programs that compute the same function") {
  const auto check = [](const OptionValues& options, const std::vector<std::string>& names) {
    Bound b(tiny(options));
    check_layouts(b, names);
  };
  check({{"bias", true}}, {"huggingface", "huggingface_base", "nanogpt"});
  check({{"bias", false}}, {"nanogpt"});
  check({{"bias", true}, {"tie_embeddings", false}}, {"huggingface"});
  check({{"bias", true}, {"norm_eps", 1e-6}}, {"huggingface", "huggingface_base"});
  check({{"bias", true}, {"head_bias", true}}, {});
  check({{"bias", true}, {"positions", std::string("none")}}, {});
}

TEST_CASE("model/gpt says of each matrix whether a layout holds it transposed") {
  Bound b(tiny({{"bias", true}}));
  const std::vector<zerolab::WeightLayout> layouts = b.model->weight_layouts();
  const auto transposed = [](const zerolab::WeightLayout& layout) {
    return std::count_if(layout.weights.begin(), layout.weights.end(),
                         [](const zerolab::ForeignWeight& w) { return w.transposed; });
  };
  CHECK(transposed(layouts[0]) == 2 * 4);
  CHECK(transposed(layouts[1]) == 2 * 4);
  CHECK(transposed(layouts[2]) == 0);
  for (const zerolab::ForeignWeight& w : layouts[0].weights) {
    if (!w.transposed) continue;
    CHECK(b.tensor(w.parameter).dim() == 2);
    CHECK(w.name.rfind("transformer.h.", 0) == 0);
  }
}
