// GradientReducer's check that ranks use the same parameters.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "zerolab/error.h"
#include "zerolab/gradient_reducer.h"
#include "zerolab/random.h"

namespace zerolab {

/// At the end of a step all ranks must have got gradients for the same parameters.
void GradientReducer::check_same_use() {
  int64_t word = 0;
  for (size_t s = 0; s < seen_.size(); ++s) {
    if (seen_[s]) word |= int64_t{1} << (s % 63);
    if (s % 63 == 62 || s + 1 == seen_.size()) uses_.push_back(std::exchange(word, 0));
  }
  if (!last_) return;
  const std::vector<int64_t> mine = std::exchange(uses_, {});
  uint64_t hash = 0;
  for (const int64_t bits : mine) hash = mix_key({hash, static_cast<uint64_t>(bits)});
  for (Communicator* ranks : {&route_.owners, route_.replicas}) {
    if (ranks == nullptr || ranks->size() == 1) continue;
    const auto hashes = ranks->gather_control(std::vector<int64_t>{static_cast<int64_t>(hash)});
    const auto other =
        std::find_if(hashes.begin(), hashes.end(), [&](int64_t h) { return h != hashes.front(); });
    if (other == hashes.end()) continue;
    const auto all = ranks->gather_control(mine);
    const auto rank = static_cast<size_t>(other - hashes.begin());
    const size_t words_each = (seen_.size() + 62) / 63;
    for (size_t w = 0; w < mine.size(); ++w) {
      const int64_t first = all[w], second = all[rank * mine.size() + w];
      if (first == second) continue;
      const auto bit = static_cast<size_t>(__builtin_ctzll(static_cast<uint64_t>(first ^ second)));
      const size_t slot = w % words_each * 63 + bit;
      const bool on_first = ((first >> bit) & 1) != 0;
      const auto name = [&](size_t r) {
        return std::to_string(ranks->rank_in_run(static_cast<int>(r)));
      };
      const std::string with = name(on_first ? 0 : rank), without = name(on_first ? rank : 0);
      throw PeerError("ranks use different parameters: '" +
                      parameters_.info(layout_.slots()[slot].parameter).name +
                      "' got a gradient on rank " + with + " and none on rank " + without +
                      " in micro-batch " + std::to_string(w / words_each + 1) +
                      " of the step; make every rank run the same parts of the model, or let it "
                      "count as zero there (find_unused_parameters = true, where the strategy has "
                      "that option)");
    }
  }
}

}  // namespace zerolab
