#include "store/checkpoint_folder.h"

#include <fstream>
#include <functional>
#include <set>

#include "zerolab/error.h"

#include "catch.h"
#include "interrupted_files.h"
#include "saved_checkpoints.h"
#include "scratch.h"

namespace zerolab {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using Steps = std::vector<int64_t>;
namespace fs = std::filesystem;

void damage(const fs::path& file) {
  std::string text = read_file(file);
  text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
  std::ofstream(file, std::ios::binary) << text;
}

}  // namespace

TEST_CASE("checkpoints are folders called after their steps, under their final names when whole") {
  const ScratchFolder scratch;
  CheckpointFolder folder(scratch.path());
  CHECK(folder.steps().empty());
  CHECK(scratch.empty());
  CHECK(folder.path(500) == scratch.path() / "checkpoints/step-000000500");
  CHECK(folder.partial(500) == scratch.path() / "checkpoints/step-000000500.partial");
  CHECK(folder.path(1234567890123) == scratch.path() / "checkpoints/step-1234567890123");
  CHECK(CheckpointFolder::rank_file_name(3) == "rank-0003.h5");
  CHECK(CheckpointFolder::rank_file_name(12345) == "rank-12345.h5");

  const CheckpointManifest manifest = prepare(folder, 500, "first");
  CHECK(folder.steps().empty());
  CHECK(names_in("checkpoints") == std::set<std::string>{"step-000000500.partial"});
  folder.publish(manifest, {{"config.resolved.toml", "version = \"first\"\n"}});
  CHECK(folder.steps() == Steps{500});
  CHECK(names_in("checkpoints") == std::set<std::string>{"step-000000500"});
  CHECK(names_in("checkpoints/step-000000500") ==
        std::set<std::string>{"rank-0000.h5", "config.resolved.toml", "manifest.json"});
  CHECK(whole_version(folder, 500) == "first");

  save(folder, 1234567890123);
  save(folder, 20);
  CHECK(folder.steps() == Steps{20, 500, 1234567890123});
}

TEST_CASE("an abandoned checkpoint leaves nothing behind") {
  const ScratchFolder scratch;
  CheckpointFolder folder(scratch.path());
  prepare(folder, 1, "first");
  folder.abandon(1);
  CHECK(fs::is_empty("checkpoints"));
  folder.abandon(1);
}

TEST_CASE("a saved text is read by its name") {
  const ScratchFolder scratch;
  CheckpointFolder folder(scratch.path());
  save(folder, 1);
  CHECK(folder.text(1, "config.resolved.toml") == "version = \"first\"\n");
  CHECK_THROWS_WITH(folder.text(1, "environment.json"),
                    Contains("step-000000001") && Contains("'environment.json'"));
  damage("checkpoints/step-000000001/config.resolved.toml");
  CHECK_THROWS_AS(folder.text(1, "config.resolved.toml"), StoreError);
}

TEST_CASE("a checkpoint under another step's name is refused") {
  const ScratchFolder scratch;
  CheckpointFolder folder(scratch.path());
  save(folder, 1);
  fs::rename(folder.path(1), folder.path(2));
  CHECK_THROWS_WITH(folder.manifest(2), Contains("step-000000002") && Contains("of step 1"));
  CHECK_THROWS_WITH(folder.manifest(3), Contains("step-000000003") && Contains("No such file"));
}

TEST_CASE("a checkpoint of a step that is there already takes its place") {
  for (const bool can_exchange : {true, false}) {
    const ScratchFolder scratch;
    InterruptedFiles files(InterruptedFiles::By::kFullDisk, 1000, can_exchange);
    CheckpointFolder folder(scratch.path(), files);
    save(folder, 1);
    save(folder, 2, "first");
    save(folder, 2, "second");
    CHECK(folder.steps() == Steps{1, 2});
    CHECK(whole_version(folder, 2) == "second");
    CHECK(names_in("checkpoints") == std::set<std::string>{"step-000000001", "step-000000002"});
  }
}

TEST_CASE("a folder without a manifest is no checkpoint, and gives way to one") {
  const ScratchFolder scratch;
  CheckpointFolder folder(scratch.path());
  fs::create_directories("checkpoints/step-000000002/deeper");
  std::ofstream("checkpoints/step-000000002/rank-0000.h5") << "half";
  CHECK(folder.steps().empty());
  save(folder, 2);
  CHECK(whole_version(folder, 2) == "first");
}

TEST_CASE("a rank's file that is missing or too short keeps a checkpoint from being published") {
  const ScratchFolder scratch;
  CheckpointFolder folder(scratch.path());
  save(folder, 1);
  CheckpointManifest manifest = prepare(folder, 2, "first");
  manifest.files.push_back({"rank-0001.h5", 3, "", {}, {}});
  CHECK_THROWS_WITH(folder.publish(manifest, {}),
                    Contains("step-000000002.partial/rank-0001.h5") && Contains("No such file"));
  CHECK(names_in("checkpoints") == std::set<std::string>{"step-000000001"});
  manifest = prepare(folder, 2, "first");
  std::ofstream(folder.partial(2) / "rank-0000.h5") << "x";
  CHECK_THROWS_WITH(folder.publish(manifest, {}), Contains("has 1 bytes"));
  CHECK(folder.steps() == Steps{1});
}

TEST_CASE("retention keeps the last ones, every n-th and the best") {
  struct Case {
    Retention retention;
    Steps kept;
  };
  const Case cases[] = {
      {{2, 0, false}, {50, 60}},
      {{1, 0, false}, {60}},
      {{0, 0, false}, {60}},
      {{-1, 0, false}, {60}},
      {{100, 0, false}, {10, 20, 30, 40, 50, 60}},
      {{1, 20, false}, {20, 40, 60}},
      {{1, 7, false}, {60}},
      {{1, 0, true}, {30, 60}},
      {{2, 40, true}, {30, 40, 50, 60}},
  };
  for (const Case& one : cases) {
    const ScratchFolder scratch;
    CheckpointFolder folder(scratch.path());
    // 30 is as good as 20 and newer.
    const double losses[] = {kNone, 2.5, 2.5, 2.75, kNone, 3};
    for (int64_t i = 0; i < 6; ++i) save(folder, 10 * (i + 1), "first", losses[i]);
    folder.prune(one.retention);
    CHECK(folder.steps() == one.kept);
    CHECK(names_in("checkpoints").size() == one.kept.size());
    for (const int64_t step : one.kept) CHECK(whole_version(folder, step) == "first");
  }
}

TEST_CASE("a damaged checkpoint is never the best, and goes when its turn comes") {
  const ScratchFolder scratch;
  CheckpointFolder folder(scratch.path());
  for (int64_t step = 1; step <= 4; ++step) save(folder, step, "first", static_cast<double>(step));
  damage("checkpoints/step-000000001/manifest.json");
  folder.prune({3, 0, true});
  CHECK(folder.steps() == Steps{2, 3, 4});
  damage("checkpoints/step-000000003/manifest.json");
  folder.prune({2, 0, true});
  CHECK(folder.steps() == Steps{2, 3, 4});
  CHECK_THROWS_AS(folder.manifest(3), StoreError);
  folder.prune({1, 0, true});
  CHECK(folder.steps() == Steps{2, 4});
}

TEST_CASE("pruning clears what killed processes left, and touches no other name") {
  const ScratchFolder scratch;
  CheckpointFolder folder(scratch.path());
  save(folder, 5);
  const std::set<std::string> foreign = {
      "step-5",          "step-00000000a", "step-000000001.partial2",   "step-0000000001",
      "step-000000001 ", "STEP-000000001", "step-000000001.old",        "my-best",
      "step--00000001",  "step-",          "step-99999999999999999999", "step-000000002.partial.x"};
  for (const std::string& name : foreign) fs::create_directories("checkpoints/" + name + "/inside");
  std::ofstream("checkpoints/step-000000003") << "a file";
  fs::create_directories("elsewhere");
  std::ofstream("elsewhere/keep") << "mine";
  fs::create_symlink("../elsewhere", "checkpoints/step-000000004");
  for (const char* left : {"step-000000001", "step-000000002.partial", "step-000000002.replaced",
                           "step-000000005.partial", "step-000000005.replaced"})
    fs::create_directories("checkpoints/" + std::string(left) + "/deeper");
  fs::create_symlink("../../../elsewhere", "checkpoints/step-000000002.partial/deeper/link");
  // Of later steps: another process may be writing them.
  fs::create_directories("checkpoints/step-000000006.partial");
  fs::create_directories("checkpoints/step-000000007");

  folder.prune({1, 0, false});
  std::set<std::string> expected = foreign;
  expected.insert({"step-000000003", "step-000000004", "step-000000005", "step-000000006.partial",
                   "step-000000007"});
  CHECK(names_in("checkpoints") == expected);
  CHECK(read_file("elsewhere/keep") == "mine");
  CHECK(whole_version(folder, 5) == "first");
}

TEST_CASE("a folder of leftovers alone is left as it is") {
  const ScratchFolder scratch;
  CheckpointFolder folder(scratch.path());
  folder.prune({});
  CHECK(scratch.empty());
  prepare(folder, 3, "first");
  folder.prune({});
  CHECK(fs::exists(folder.partial(3) / "rank-0000.h5"));
}

TEST_CASE("a run that goes back loses its later checkpoints") {
  const ScratchFolder scratch;
  CheckpointFolder folder(scratch.path());
  for (const int64_t step : {1, 2, 3, 4}) save(folder, step);
  prepare(folder, 5, "first");
  fs::create_directories("checkpoints/step-000000009");
  folder.remove_after(2);
  CHECK(names_in("checkpoints") == std::set<std::string>{"step-000000001", "step-000000002"});
}

TEST_CASE(
    "what a process left in the middle of a replacement is put back, unless its successor came") {
  const ScratchFolder scratch;
  CheckpointFolder folder(scratch.path());
  save(folder, 1);
  save(folder, 2);
  const fs::path replaced = "checkpoints/step-000000002.replaced";
  fs::rename(folder.path(2), replaced);
  CHECK(folder.steps() == Steps{1});
  folder.recover();
  CHECK(folder.steps() == Steps{1, 2});
  CHECK_FALSE(fs::exists(replaced));

  fs::rename(folder.path(2), replaced);
  folder.begin(3);
  CHECK(folder.steps() == Steps{1, 2});

  fs::rename(folder.path(2), replaced);
  folder.remove_after(1);
  CHECK(names_in("checkpoints") == std::set<std::string>{"step-000000001"});

  save(folder, 2, "second");
  fs::copy("checkpoints/step-000000001", replaced, fs::copy_options::recursive);
  folder.recover();
  CHECK(whole_version(folder, 2) == "second");
  folder.prune({});
  CHECK_FALSE(fs::exists(replaced));
}

TEST_CASE("a folder that may not be written, or is gone, is an error with path and reason") {
  const ScratchFolder scratch;
  CheckpointFolder gone("no/run/here");
  CHECK_THROWS_AS(gone.begin(1), StoreError);
  CHECK_THROWS_WITH(gone.begin(1), StartsWith("no/run/here/checkpoints") &&
                                       Contains("No such file") && Contains("removed"));
  CheckpointFolder folder(scratch.path());
  save(folder, 1);
  CheckpointManifest manifest = prepare(folder, 2, "first");
  fs::remove_all("checkpoints");
  CHECK_THROWS_AS(folder.publish(manifest, {}), StoreError);
  CHECK(scratch.empty());

  std::ofstream("checkpoints") << "a file";
  CHECK_THROWS_WITH(folder.begin(1), Contains("Not a directory"));
  CHECK_THROWS_AS(folder.steps(), StoreError);
}

TEST_CASE("checkpoints that may not be removed or added to are named, and stay") {
  const ScratchFolder scratch;
  CheckpointFolder folder(scratch.path());
  for (const int64_t step : {1, 2, 3}) save(folder, step);
  // Root writes everywhere.
  const auto as_nobody = [](const std::function<void()>& body) {
    return run_in_child([&] {
      if (getuid() == 0 && setuid(65534) != 0) throw std::runtime_error("setuid failed");
      body();
    });
  };
  const auto locked = fs::perms(0555);
  for (const fs::path& path : {folder.path(1), folder.path(2), fs::path("checkpoints")})
    fs::permissions(path, locked);
  const ChildResult begun = as_nobody([&] { folder.begin(4); });
  CHECK(begun.code == 1);
  CHECK_THAT(begun.error, Contains("step-000000004.partial") && Contains("Permission denied") &&
                              Contains("let this user write there"));
  const ChildResult pruned = as_nobody([&] { folder.prune({1, 0, false}); });
  CHECK(pruned.code == 1);
  CHECK_THAT(pruned.error,
             Contains("step-000000001: cannot be removed") && Contains("Permission denied"));
  for (const int64_t step : {1, 2, 3}) CHECK(whole_version(folder, step) == "first");
  for (const fs::path& path : {folder.path(1), folder.path(2), fs::path("checkpoints")})
    fs::permissions(path, fs::perms::owner_all);
}

}  // namespace zerolab
