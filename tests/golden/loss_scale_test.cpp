// Dynamic loss scales against torch.amp.GradScaler over 60 steps, some of which overflow.
// Bit-identical: all scales are powers of two.

#include <cmath>
#include <string>
#include <vector>

#include "zerolab/precision.h"

#include "golden_file.h"
#include "near.h"
#include "plugins/load_plugin.h"

TEST_CASE("every dynamic loss scale goes where torch.amp.GradScaler's goes") {
  const GoldenFile golden("loss_scale");
  for (const std::string plugin : {"amp_fp16", "bf16_scaled", "fp16"}) {
    int settings = 0;
    for (const std::string& at : golden.names("")) {
      CAPTURE(plugin, at);
      zerolab::OptionValues options = golden.options(at + "/options");
      options["hysteresis"] = int64_t{1};           // PyTorch has none,
      options["min_scale"] = std::ldexp(1.0, -40);  // and no least scale
      const auto precision = load_plugin<zerolab::Precision>("precision/" + plugin, options);
      const std::vector<double> scales = golden.numbers(at + "/scales");
      const std::vector<double> finite = golden.numbers(at + "/finite");
      REQUIRE(scales.size() == finite.size() + 1);
      for (size_t step = 0; step < finite.size(); ++step) {
        CAPTURE(step);
        CHECK(precision->loss_scale() == scales[step]);
        precision->observe(finite[step] != 0);
      }
      CHECK(precision->loss_scale() == scales.back());
      ++settings;
    }
    CHECK(settings >= 5);
  }
}
