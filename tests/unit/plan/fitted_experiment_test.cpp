#include "plan/fitted_experiment.h"

#include "zerolab/error.h"

#include "../experiment/fake_catalogue.h"
#include "catch.h"

using zerolab::test::sound;

namespace {

zerolab::FittedExperiment fit(const std::vector<std::string>& overrides, int num_ranks) {
  const zerolab::test::Folder folder;
  const auto path = folder.write("exp.toml", sound());
  zerolab::test::FakeCatalogue catalogue;
  const auto file = zerolab::ExperimentFile::load(path, overrides);
  return zerolab::resolve_fitting(file, catalogue, num_ranks);
}

}  // namespace

TEST_CASE("a number of ranks that the batch sizes fit is taken as it is") {
  const auto fitted = fit({"batch.total_batch_size=8"}, 4);
  CHECK(fitted.ranks == 4);
  CHECK(fitted.experiment.batch.micro_batch_size == 2);
  CHECK(fitted.experiment.batch.gradient_accumulation_steps == 1);
}

TEST_CASE("another gets the sizes per rank of the next smaller number that fits") {
  for (int ranks : {3, 64, 60000}) {
    const auto fitted = fit({"batch.total_batch_size=8"}, ranks);
    CHECK(fitted.ranks == (ranks == 3 ? 2 : 4));
    CHECK(fitted.experiment.batch.micro_batch_size == 2);
    CHECK(fitted.experiment.batch.gradient_accumulation_steps == (ranks == 3 ? 2 : 1));
  }
}

TEST_CASE("or of the next larger one, where no smaller number fits") {
  const auto fitted = fit({"batch.total_batch_size=16", "batch.gradient_accumulation_steps=1"}, 3);
  CHECK(fitted.ranks == 8);
  CHECK(fitted.experiment.batch.micro_batch_size == 2);
}

TEST_CASE("a mistake that has nothing to do with the number of ranks is reported") {
  for (int ranks : {1, 64}) {
    CHECK_THROWS_AS(fit({"batch.total_batch_size=8", "stepz=3"}, ranks), zerolab::ConfigError);
    CHECK_THROWS_AS(fit({"stepz=3"}, ranks), zerolab::ConfigError);
  }
}
