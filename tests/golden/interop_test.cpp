// Files that transformers and nanoGPT's module saved: a run that begins with them computes the
// logits that those programs compute.

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "zerolab/model.h"
#include "zerolab/optimizer.h"
#include "zerolab/sharding.h"

#include "built_plugins.h"
#include "distributed/world.h"
#include "golden_file.h"
#include "near.h"
#include "plugins/load_plugin.h"
#include "train/initial_weights.h"

namespace {

constexpr double kTolerance = 1e-5;

struct Loaded {
  at::Tensor logits;
  std::string layout;
};

/// What each rank computes after a start with the recorded weights.
std::vector<Loaded> load(const GoldenFile& golden, const std::string& at,
                         const std::string& strategy, int ranks) {
  const std::string path = ZEROLAB_TEST_SOURCE_DIR "/tests/golden/" + golden.text(at, "path");
  const at::Tensor tokens_BT = golden.tensor(at + "/tokens");
  std::vector<Loaded> loaded(static_cast<size_t>(ranks));
  zerolab::run_on_threads(ranks, [&](zerolab::Communicator& world) {
    const auto model = load_plugin<zerolab::Model>("model/gpt", golden.options(at + "/options"));
    const auto optimizer = load_plugin<zerolab::Optimizer>("optimizer/adamw");
    const auto sharding = load_plugin<zerolab::Sharding>("sharding/" + strategy);
    zerolab::Parameters parameters;
    model->declare(parameters, {.vocab_size = static_cast<int64_t>(golden.number(at, "vocab_size")),
                                .sequence_length = tokens_BT.size(1)});
    sharding->attach({parameters, world, *optimizer, {}, /*seed=*/1});
    const zerolab::InitialWeights found =
        zerolab::load_initial_weights({path, *model, *sharding, parameters}, world);
    const at::NoGradGuard no_grad;
    zerolab::Units units;
    units.set_listener(sharding.get());
    units.begin(/*training=*/false, 0);
    loaded[static_cast<size_t>(world.rank())] = {model->logits(tokens_BT, units), found.layout};
    units.end();
  });
  return loaded;
}

void check(const std::string& at, const std::string& layout) {
  const GoldenFile golden("interop");
  for (const auto& [strategy, ranks] :
       {std::pair{"ddp", 1}, std::pair{"zero2", 2}, std::pair{"zero3", 2}}) {
    for (const Loaded& loaded : load(golden, at, strategy, ranks)) {
      CAPTURE(strategy, ranks);
      CHECK(loaded.layout == layout);
      CHECK(relative_distance(loaded.logits, golden.tensor(at + "/logits")) < kTolerance);
    }
  }
}

}  // namespace

TEST_CASE("a checkpoint that transformers saved loads and gives transformers' logits") {
  check("huggingface", "huggingface");
}

TEST_CASE("weights that nanoGPT's module saved load and give its logits") {
  check("nanogpt", "nanogpt");
}
