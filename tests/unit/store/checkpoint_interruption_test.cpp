// A save that the end of its process, or a full disk, cuts short at each of its calls in turn.

#include <algorithm>
#include <optional>

#include "zerolab/error.h"

#include "catch.h"
#include "interrupted_files.h"
#include "saved_checkpoints.h"
#include "scratch.h"
#include "store/checkpoint_folder.h"

namespace zerolab {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using Steps = std::vector<int64_t>;
namespace fs = std::filesystem;

bool contains(const Steps& steps, int64_t step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

/// How far the save came that is interrupted.
struct Progress {
  bool published = false, pruned = false;
};

/// Steps 1 and 2, and 3 if it is to be replaced, are there.
void save_the_old_ones(const ScratchFolder& scratch, bool replaces) {
  CheckpointFolder folder(scratch.path());
  for (int64_t step = 1; step <= (replaces ? 3 : 2); ++step) save(folder, step, "old");
}

void save_and_prune(CheckpointFolder& folder, Progress& progress) {
  save(folder, 3, "new");
  progress.published = true;
  folder.prune({2, 0, false});
  progress.pruned = true;
}

/// Complete checkpoints are whole, and none is missing that has to be there.
void check_nothing_lost(const CheckpointFolder& folder, const Progress& progress, bool replaces) {
  const Steps steps = folder.steps();
  for (const int64_t step : steps) {
    REQUIRE((step >= 1 && step <= 3));
    const std::string version = whole_version(folder, step);
    if (step < 3) CHECK(version == "old");
    if (step == 3 && progress.published) CHECK(version == "new");
    if (step == 3 && !replaces) CHECK(version == "new");
  }
  CHECK(contains(steps, 2));
  if (!progress.published) CHECK(contains(steps, 1));
  if (progress.published || replaces) CHECK(contains(steps, 3));
  if (progress.pruned) CHECK(steps == Steps{2, 3});
}

/// The next save, after which nothing of the interrupted one is left.
void check_goes_on(const ScratchFolder& scratch) {
  CheckpointFolder folder(scratch.path());
  save(folder, 4, "next");
  folder.prune({2, 0, false});
  const Steps steps = folder.steps();
  REQUIRE(steps.size() == 2);
  CHECK(steps[1] == 4);
  CHECK(names_in(scratch.path() / "checkpoints").size() == 2);
}

/// Returns whether the save had that many calls.
bool kill_at(int call, bool replaces, bool can_exchange) {
  const ScratchFolder scratch;
  save_the_old_ones(scratch, replaces);
  InterruptedFiles files(InterruptedFiles::By::kKill, call, can_exchange);
  CheckpointFolder folder(scratch.path(), files);
  Progress progress;
  try {
    save_and_prune(folder, progress);
  } catch (const Killed&) {
  }
  CAPTURE(call, replaces, can_exchange);
  CheckpointFolder after(scratch.path());
  if (!can_exchange) after.recover();
  check_nothing_lost(after, progress, replaces);
  check_goes_on(scratch);
  return files.reached();
}

/// The same for a disk that is full for one call.
bool fail_at(int call, bool replaces, bool can_exchange) {
  const ScratchFolder scratch;
  save_the_old_ones(scratch, replaces);
  InterruptedFiles files(InterruptedFiles::By::kFullDisk, call, can_exchange);
  CheckpointFolder folder(scratch.path(), files);
  Progress progress;
  std::optional<std::string> error;
  try {
    save_and_prune(folder, progress);
  } catch (const StoreError& thrown) {
    error = thrown.what();
  }
  CAPTURE(call, replaces, can_exchange, error.value_or("no error"));
  check_nothing_lost(folder, progress, replaces);
  if (error.has_value()) {
    CHECK_THAT(*error, StartsWith(scratch.path().string()) &&
                           Contains("No space left on device; complete checkpoints are as they "
                                    "were, so free some space there."));
    if (!progress.published) CHECK_FALSE(fs::exists(folder.partial(3) / kManifestName));
  }
  check_goes_on(scratch);
  return files.reached();
}

void interrupt_everywhere(bool (*interrupt_at)(int, bool, bool)) {
  for (const bool replaces : {false, true}) {
    for (const bool can_exchange : {true, false}) {
      int call = 1;
      while (interrupt_at(call, replaces, can_exchange)) ++call;
      CHECK(call > 15);
      CHECK(call < 200);
    }
  }
}

}  // namespace

TEST_CASE("killed at any call of a save, a run keeps its complete checkpoints and only those") {
  interrupt_everywhere(kill_at);
}

TEST_CASE("whichever call of a save fails, complete checkpoints stay and the error says why") {
  interrupt_everywhere(fail_at);
}

}  // namespace zerolab
