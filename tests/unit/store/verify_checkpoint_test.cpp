#include "store/verify_checkpoint.h"

#include <cstring>
#include <limits>

#include "catch.h"
#include "scratch.h"
#include "store/checkpoint_list.h"
#include "whole_samples.h"

namespace zerolab {
namespace {

using Catch::Matchers::Contains;
namespace fs = std::filesystem;

CheckpointVerdict verify(const fs::path& folder) {
  return verify_checkpoint(folder, 2, {});
}

}  // namespace

TEST_CASE("a checkpoint as it was saved is whole, and every byte is read") {
  const ScratchFolder scratch;
  const fs::path folder = save_whole("run", whole_samples());
  int64_t last = 0, all = 0;
  const CheckpointVerdict verdict = verify_checkpoint(folder, 2, [&](int64_t done, int64_t total) {
    last = done;
    all = total;
  });
  CHECK(verdict.whole());
  CHECK(verdict.step == 7);
  CHECK(verdict.files == 3);
  CHECK(verdict.tensors == whole_samples().size());
  CHECK(last == all);
  CHECK(all > verdict.bytes);
}

TEST_CASE("each damaged file is named, and the tensor in it") {
  const ScratchFolder scratch;
  const fs::path folder = save_whole("run", whole_samples());
  damage(folder, 0, "wte.weight");
  damage(folder, 1, "long");
  std::ofstream(folder / "config.resolved.toml") << "steps = 8\n";
  const std::vector<std::string> found = verify(folder).damage;
  REQUIRE(found.size() == 3);
  CHECK_THAT(found[0], Contains("rank-0000.h5") && Contains("'wte.weight'"));
  CHECK_THAT(found[1], Contains("rank-0001.h5") && Contains("'long'"));
  CHECK_THAT(found[2], Contains("config.resolved.toml"));
}

TEST_CASE("a missing file and a damaged manifest are damage, not errors") {
  const ScratchFolder scratch;
  const fs::path folder = save_whole("run", whole_samples());
  fs::remove(folder / "rank-0001.h5");
  REQUIRE(verify(folder).damage.size() == 1);
  CHECK_THAT(verify(folder).damage[0], Contains("rank-0001.h5"));
  std::ofstream(folder / "manifest.json", std::ios::app) << " ";
  REQUIRE(verify(folder).damage.size() == 1);
  CHECK_THAT(verify(folder).damage[0], Contains("manifest.json"));
  CHECK(verify(folder).step == -1);
}

TEST_CASE("a checkpoint that leaves elements out is not whole, though its files are") {
  const ScratchFolder scratch;
  const fs::path folder = save_whole("run", whole_samples());
  CheckpointManifest manifest = read_checkpoint_manifest(folder);
  manifest.files.pop_back();
  std::ofstream(folder / "manifest.json") << write_checkpoint_manifest(manifest);
  const std::vector<std::string> found = verify(folder).damage;
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0], Contains("no file holds elements"));
}

TEST_CASE("a tensor that is not finite is named, with its first such element") {
  const ScratchFolder scratch;
  std::vector<WholeSample> samples = whole_samples();
  const float bad =
      GENERATE(std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN());
  const int64_t at = kChunkBytes / 4 + 17;
  std::memcpy(samples.back().bytes.data() + 4 * at, &bad, sizeof bad);
  const std::vector<std::string> found = verify(save_whole("run", samples)).damage;
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0], Contains("'long' (parameter)") && Contains(std::to_string(at)));
}

TEST_CASE("all that a run's checkpoints folder holds is listed, with why it is not complete") {
  const ScratchFolder scratch;
  CHECK(list_checkpoints("run").empty());
  const std::vector<WholeSample> small = {
      whole_sample("w", "parameter", {4}, TensorDtype::kFloat32, 4)};
  TrainingPoint point;
  point.val_loss = 2.25;
  const fs::path folder = save_whole("run", small, point), parent = folder.parent_path();
  fs::create_directory(parent / "step-000000003");
  fs::create_directory(parent / "step-000000009.partial");
  fs::create_directory(parent / "notes");
  fs::copy(folder, parent / "step-000000008");
  const std::vector<ListedCheckpoint> all = list_checkpoints("run");
  REQUIRE(all.size() == 4);
  CHECK(all[0].name == "step-000000003");
  CHECK_THAT(all[0].problem, Contains("manifest.json"));
  CHECK(all[1].name == "step-000000007");
  CHECK(all[1].complete);
  CHECK(all[1].step == 7);
  CHECK(all[1].val_loss == 2.25);
  CHECK(all[1].bytes > 16);
  CHECK(all[1].problem.empty());
  CHECK(all[2].problem == "is of step 7");
  CHECK_FALSE(all[2].complete);
  CHECK_FALSE(all[3].complete);
  CHECK_FALSE(all[3].problem.empty());
}

}  // namespace zerolab
