// Made-up tokens, from the seed alone: nothing to download, and the best loss is known in
// advance.
//
//   pattern "random": every token uniform over V. Nothing to learn: the loss stays at ln V.
//   pattern "cycle":  next = (a * token + c) mod V with probability 1 - noise, else uniform; a is
//   coprime to V, so the map is a
//                     permutation; a and c come from the seed and hold for both splits. Best loss:
//                     the entropy of one row,
//                     -(1 - noise + noise / V) ln(1 - noise + noise / V) - (V - 1) (noise / V)
//                     ln(noise / V).
//
// Every token is drawn from a key of (seed, split, sample, position): a pure function of the
// index, without state.

#include <numeric>

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
      d.field("pattern", &Options::pattern, "random: nothing to learn; cycle: a fixed permutation")
          .one_of({"random", "cycle"});
      d.field("noise", &Options::noise, "share of uniform tokens in pattern cycle")
          .at_least(0)
          .at_most(1);
    }
  };
  explicit Synthetic(const Options& options)
      : options_(options), noise_(options.pattern == "random" ? 1 : options.noise) {}

  void open(const zerolab::DataContext& context) override {
    seed_ = context.seed;
    const uint64_t V = static_cast<uint64_t>(options_.vocab_size);
    const uint64_t key = zerolab::mix_key({seed_, zerolab::name_key("data/synthetic")});
    increment_ = zerolab::mix_key({key, 1}) % V;
    multiplier_ = zerolab::mix_key({key, 2}) % V;
    while (std::gcd(multiplier_, V) != 1) multiplier_ = (multiplier_ + 1) % V;
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
    uint64_t token = zerolab::mix_key({key, 0}) % V;
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int64_t>(token);
      const uint64_t draw = zerolab::mix_key({key, i + 1});
      // The upper 53 bits choose between noise and the map; another key gives the noise.
      const bool noisy = static_cast<double>(draw >> 11) * 0x1p-53 < noise_;
      token = noisy ? zerolab::mix_key({draw, 1}) % V : (multiplier_ * token + increment_) % V;
      targets[i] = static_cast<int64_t>(token);
    }
  }

 private:
  Options options_;
  double noise_;
  uint64_t seed_ = 0, multiplier_ = 1, increment_ = 0;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Synthetic>("data/synthetic", "1.0.0",
                                         "seeded random tokens, or a learnable permutation"));
