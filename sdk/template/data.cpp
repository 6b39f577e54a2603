// Counting: each sample starts somewhere and goes up by one, modulo the vocabulary. The contract
// is in zerolab/data.h.

#include "zerolab/data.h"

#include "zerolab/plugin.h"

namespace {

class MyData : public zerolab::Data {
 public:
  struct Options {
    int64_t vocab_size = 64;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("vocab_size", &Options::vocab_size, "number of different tokens").at_least(2);
    }
  };
  explicit MyData(const Options& options) : options_(options) {}

  // Files are opened here; a missing one is a zerolab::ConfigError.
  void open(const zerolab::DataContext&) override {}
  int64_t vocab_size() const override { return options_.vocab_size; }
  int64_t size(zerolab::Split) const override { return options_.vocab_size; }
  // The same tokens whenever an index is asked for: the host shuffles, splits over ranks, resumes.
  void sample(zerolab::Split, int64_t index, std::span<int64_t> tokens,
              std::span<int64_t> targets) const override {
    for (size_t t = 0; t < tokens.size(); ++t) {
      tokens[t] = (index + static_cast<int64_t>(t)) % options_.vocab_size;
      targets[t] = (tokens[t] + 1) % options_.vocab_size;
    }
  }

 private:
  Options options_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<MyData>("data/my_data", "0.1.0", "counting modulo the vocabulary"));
