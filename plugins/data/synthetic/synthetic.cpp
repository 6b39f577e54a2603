// Made-up tokens, from the seed alone: nothing to download, and the best loss is known in
// advance (nats a token, the average over targets that no model can be expected to undercut).
//
//   pattern "random":  every token uniform over V. Nothing to learn: ln V.
//   pattern "cycle":   next = (a * token + c) mod V with probability 1 - noise, else uniform; a is
//                      coprime to V, so the map is a permutation. Best loss: the entropy of a row,
//                      -(1 - noise + noise / V) ln(1 - noise + noise / V)
//                      - (V - 1) (noise / V) ln(noise / V).
//   pattern "grammar": next = (a_r * token + c_r + d_k) mod V. Which rule r = 0 or 1 holds is the
//                      parity of the token before `token` (0 for a sample's first), so a model has
//                      to look at two tokens. k is drawn from 0 to K - 1 (`branching`) with
//                      probability p_k = 2^(K - 1 - k) / (2^K - 1), and the d_k differ: every pair
//                      of tokens has K successors, and the best loss is -sum p_k ln p_k, whatever
//                      the pair. For K = 2, 3, 4, 8: 0.637, 0.956, 1.137, 1.361.
//
// a, c and d come from the seed and hold for both splits.
// Every token is drawn from a key of (seed, split, sample, position): a pure function of the
// index, without state.

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "zerolab/data.h"
#include "zerolab/plugin.h"
#include "zerolab/random.h"

namespace {

class Synthetic : public zerolab::Data {
 public:
  struct Options {
    int64_t vocab_size = 256;
    int64_t num_samples = 10000;
    int64_t num_validation_samples = 64;
    std::string pattern = "random";
    double noise = 0.1;
    int64_t branching = 4;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("vocab_size", &Options::vocab_size, "number of different tokens")
          .at_least(2)
          .at_most(1LL << 31);
      d.field("num_samples", &Options::num_samples, "size of the training split")
          .unit("sequences")
          .at_least(1);
      d.field("num_validation_samples", &Options::num_validation_samples,
              "size of the validation split")
          .unit("sequences")
          .at_least(1);
      d.field("pattern", &Options::pattern,
              "random: nothing to learn; cycle: a fixed permutation; grammar: two tokens decide")
          .one_of({"random", "cycle", "grammar"});
      d.field("noise", &Options::noise, "share of uniform tokens in pattern cycle")
          .at_least(0)
          .at_most(1);
      d.field("branching", &Options::branching, "successors of a pair of tokens in pattern grammar")
          .at_least(1)
          .at_most(32);
    }
    void check(zerolab::Problems& problems) const {
      if (pattern == "grammar" && branching > vocab_size)
        problems.add("branching", "must not exceed vocab_size (" + std::to_string(vocab_size) +
                                      "), is " + std::to_string(branching));
    }
  };
  explicit Synthetic(const Options& options)
      : options_(options), noise_(options.pattern == "random" ? 1 : options.noise) {}

  void open(const zerolab::DataContext& context) override {
    seed_ = context.seed;
    const uint64_t key = zerolab::mix_key({seed_, zerolab::name_key("data/synthetic")});
    rules_[0] = make_rule(key);
    rules_[1] = make_rule(zerolab::mix_key({key, 3}));
    make_offsets(zerolab::mix_key({key, 4}));
  }
  int64_t vocab_size() const override { return options_.vocab_size; }
  int64_t size(zerolab::Split split) const override {
    return split == zerolab::Split::kTrain ? options_.num_samples : options_.num_validation_samples;
  }
  void sample(zerolab::Split split, int64_t index, std::span<int64_t> tokens,
              std::span<int64_t> targets) const override {
    const uint64_t V = static_cast<uint64_t>(options_.vocab_size);
    const uint64_t key =
        zerolab::mix_key({seed_, static_cast<uint64_t>(split), static_cast<uint64_t>(index)});
    const bool grammar = options_.pattern == "grammar";
    uint64_t before = 0, token = zerolab::mix_key({key, 0}) % V;
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int64_t>(token);
      const uint64_t draw = zerolab::mix_key({key, i + 1});
      const uint64_t next = grammar ? (rules_[before & 1].of(token, V) + offset(draw)) % V
                                    : noisy_successor(token, draw);
      before = token;
      token = next;
      targets[i] = static_cast<int64_t>(token);
    }
  }

 private:
  /// A permutation of the tokens.
  struct Rule {
    uint64_t multiplier = 1, increment = 0;
    uint64_t of(uint64_t token, uint64_t V) const { return (multiplier * token + increment) % V; }
  };

  Rule make_rule(uint64_t key) const {
    const uint64_t V = static_cast<uint64_t>(options_.vocab_size);
    Rule rule{zerolab::mix_key({key, 2}) % V, zerolab::mix_key({key, 1}) % V};
    while (std::gcd(rule.multiplier, V) != 1) rule.multiplier = (rule.multiplier + 1) % V;
    return rule;
  }

  uint64_t noisy_successor(uint64_t token, uint64_t draw) const {
    const uint64_t V = static_cast<uint64_t>(options_.vocab_size);
    // The upper 53 bits choose between noise and the map; another key gives the noise.
    const bool noisy = static_cast<double>(draw >> 11) * 0x1p-53 < noise_;
    return noisy ? zerolab::mix_key({draw, 1}) % V : rules_[0].of(token, V);
  }

  void make_offsets(uint64_t key) {
    if (options_.pattern != "grammar") return;
    for (uint64_t n = 0; std::ssize(offsets_) < options_.branching; ++n) {
      const uint64_t drawn =
          zerolab::mix_key({key, n}) % static_cast<uint64_t>(options_.vocab_size);
      if (std::find(offsets_.begin(), offsets_.end(), drawn) == offsets_.end())
        offsets_.push_back(drawn);
    }
  }

  /// d_k: the first with probability about one half, each other half as often as the one before.
  uint64_t offset(uint64_t draw) const {
    uint64_t rest = draw % ((uint64_t{1} << options_.branching) - 1);
    uint64_t share = uint64_t{1} << (options_.branching - 1);
    size_t k = 0;
    for (; rest >= share; share >>= 1, ++k) rest -= share;
    return offsets_[k];
  }

  Options options_;
  double noise_;
  uint64_t seed_ = 0;
  Rule rules_[2];
  std::vector<uint64_t> offsets_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Synthetic>(
    "data/synthetic", "1.0.0",
    "seeded tokens whose best loss is known: random, a permutation, a grammar"));
