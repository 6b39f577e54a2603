// Counting tokens, in which the last token of the vocabulary stands at the beginning of some
// training samples and nowhere else: a model can tell those samples, whatever rank and step they
// come to.

#include "zerolab/data.h"
#include "zerolab/plugin.h"

namespace {

class Marked : public zerolab::Data {
 public:
  struct Options {
    int64_t first = 0, count = 0;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("first", &Options::first, "the first sample that is marked").at_least(0);
      d.field("count", &Options::count, "how many are, from there on").at_least(0);
    }
  };
  explicit Marked(const Options& options) : options_(options) {}

  void open(const zerolab::DataContext&) override {}
  int64_t vocab_size() const override { return kVocabulary; }
  int64_t size(zerolab::Split split) const override {
    return split == zerolab::Split::kTrain ? 256 : 8;
  }
  void sample(zerolab::Split split, int64_t index, std::span<int64_t> tokens,
              std::span<int64_t> targets) const override {
    constexpr int64_t kCounted = kVocabulary - 1;
    for (size_t t = 0; t < tokens.size(); ++t) {
      tokens[t] = (index + static_cast<int64_t>(t)) % kCounted;
      targets[t] = (tokens[t] + 1) % kCounted;
    }
    const bool is_marked = index >= options_.first && index < options_.first + options_.count;
    if (split == zerolab::Split::kTrain && is_marked) tokens[0] = kCounted;
  }

 private:
  static constexpr int64_t kVocabulary = 16;
  Options options_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Marked>("data/marked", "1.0.0", "samples with a mark"));
