// metrics.h5 and the journal when the process dies: at any call that changes the disk, and at any
// moment.
//
// This program's own write, pwrite, ftruncate, rename and unlink stand before the C library's, so a
// child can be killed before the n-th call, or in the middle of it: the kernel heeds a kill between
// pages.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <new>
#include <random>
#include <thread>

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include "catch.h"
#include "scratch.h"
#include "store/journal_reader.h"
#include "store/metrics_contents.h"
#include "store/run_folder.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> moments_seen{0};
std::atomic<int64_t> deadly_moment{0};  // 0: none

void maybe_die() {
  if (counting && ++moments_seen == deadly_moment) kill(getpid(), SIGKILL);
}

using Write = ssize_t (*)(int, const void*, size_t, off_t);

ssize_t write_in_pages(Write write, int fd, const void* data, size_t size, off_t offset) {
  constexpr size_t kPage = 4096;
  maybe_die();
  const size_t in_first_page = kPage - static_cast<size_t>(offset) % kPage;
  if (counting && in_first_page < size) {
    if (write(fd, data, in_first_page, offset) < 0) return -1;
    maybe_die();
  }
  return write(fd, data, size, offset);
}

}  // namespace

#define INTERPOSED extern "C" __attribute__((visibility("default")))

// HDF5 may have been built to call either spelling of each.
INTERPOSED ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  static const auto real = reinterpret_cast<Write>(dlsym(RTLD_NEXT, "pwrite"));
  return write_in_pages(real, fd, data, size, offset);
}

INTERPOSED ssize_t write(int fd, const void* data, size_t size) {
  static const auto real =
      reinterpret_cast<ssize_t (*)(int, const void*, size_t)>(dlsym(RTLD_NEXT, "write"));
  maybe_die();
  static bool halved = false;
  halved = counting && !halved;  // half of it; the caller writes the rest
  return real(fd, data, halved ? (size + 1) / 2 : size);
}

INTERPOSED int rename(const char* from, const char* to) noexcept {
  static const auto real =
      reinterpret_cast<int (*)(const char*, const char*)>(dlsym(RTLD_NEXT, "rename"));
  maybe_die();
  return real(from, to);
}

INTERPOSED int unlink(const char* path) noexcept {
  static const auto real = reinterpret_cast<int (*)(const char*)>(dlsym(RTLD_NEXT, "unlink"));
  maybe_die();
  return real(path);
}

INTERPOSED ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  return pwrite(fd, data, size, offset);
}

INTERPOSED int ftruncate(int fd, off_t length) noexcept {
  static const auto real = reinterpret_cast<int (*)(int, off_t)>(dlsym(RTLD_NEXT, "ftruncate"));
  maybe_die();
  return real(fd, length);
}

INTERPOSED int ftruncate64(int fd, off64_t length) noexcept {
  return ftruncate(fd, length);
}

namespace zerolab {
namespace {

const std::vector<std::string> kColumns = {"step", "loss", "a", "b", "c", "d",
                                           "e",    "f",    "g", "h", "i", "val_loss"};
const double kNone = std::nan("");

MetricsRow row_of(int64_t step) {
  const double s = static_cast<double>(step);
  return {s,     1 / s, s + 2, s + 3, s + 4,  s + 5,
          s + 6, s + 7, s + 8, s + 9, s + 10, step % 10 == 0 ? 2 / s : kNone};
}

bool same_bits_or_both_nan(const MetricsRow& a, const MetricsRow& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

/// Memory that a child shares with the test: how far it came.
struct Progress {
  std::atomic<int64_t> rows{0}, moments{0};
};

class SharedProgress {
 public:
  SharedProgress()
      : at_(new (mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                      -1, 0)) Progress) {}
  ~SharedProgress() { munmap(at_, sizeof(Progress)); }
  Progress* operator->() { return at_; }

 private:
  Progress* at_;
};

/// A run of `num_rows` rows in ./run, to its end. Moments are counted from row
/// `first_counted` on (0: from the start).
void write_run(SharedProgress& progress, int64_t num_rows, int64_t first_counted) {
  counting = first_counted == 0;
  auto run = RunFolder::create("run", "", "name = \"crash\"\n", {{"host", "here"}});
  run->open_metrics(kColumns);
  for (int64_t step = 1; step <= num_rows; ++step) {
    if (step == first_counted) counting = true;
    run->append(row_of(step));
    progress->rows = step;
  }
  run->finish({{{"final_loss", 0.5}}, {{"device", "cpu"}}});
  progress->moments = moments_seen.load();
}

/// Every row that append() returned for is there, in order and unharmed; one more may be.
void require_rows_survived(int64_t acknowledged) {
  const std::filesystem::path file = "run/metrics.h5";
  if (!std::filesystem::exists(file)) {
    REQUIRE(acknowledged == 0);
    return;
  }
  const MetricsContents contents = read_metrics(file);
  REQUIRE(contents.config == "name = \"crash\"\n");
  const std::vector<MetricsRow>& rows = contents.segments.at(0).rows;
  const auto found = static_cast<int64_t>(rows.size());
  REQUIRE(found >= acknowledged);
  REQUIRE(found <= acknowledged + 1);
  for (int64_t step = 1; step <= found; ++step) {
    if (!same_bits_or_both_nan(rows[static_cast<size_t>(step - 1)], row_of(step)))
      FAIL("row " << step << " is damaged");
  }
  const std::string journal = read_file("run/metrics.jsonl");
  REQUIRE(std::count(journal.begin(), journal.end(), '\n') >= found);
}

/// Kills a run at each of its counted moments in turn, and looks at what is left.
void kill_at_every_moment(int64_t num_rows, int64_t first_counted) {
  int64_t total = 0;
  {
    const ScratchFolder folder;
    SharedProgress progress;
    REQUIRE(run_in_child([&] { write_run(progress, num_rows, first_counted); }).code == 0);
    total = progress->moments;
    REQUIRE(total > 3);
  }
  for (int64_t deadly = 1; deadly <= total; ++deadly) {
    const ScratchFolder folder;
    SharedProgress progress;
    const ChildResult child = run_in_child([&] {
      deadly_moment = deadly;
      write_run(progress, num_rows, first_counted);
    });
    CAPTURE(deadly, total, progress->rows.load());
    REQUIRE(child.code == -SIGKILL);
    require_rows_survived(progress->rows);
  }
}

/// A run of 5 rows that is gone on with after 3, and goes back to 4. Moments are counted from where
/// it is gone on with.
void write_two_sessions(SharedProgress& progress) {
  const auto add = [&](RunFolder& run, int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) {
      run.append(row_of(step));
      ++progress->rows;
    }
  };
  auto run = RunFolder::create("run", "", "name = \"crash\"\n", {});
  run->open_metrics(kColumns);
  add(*run, 1, 5);
  run.reset();
  counting = true;
  run = RunFolder::reopen("run", 3, "name = \"crash\"\n", {}, {1, "step 3"});
  run->open_metrics(kColumns);
  add(*run, 4, 6);
  run->rewind(4);
  add(*run, 5, 7);
  run->stop();
  progress->moments = moments_seen.load();
}

/// Goes on after step 2, and looks for every row that was acknowledged; one more may be there.
void require_can_be_gone_on_with(int64_t acknowledged) {
  RunFolder::reopen("run", 2, "", {}, {1, "step 2"});
  int64_t found = 0;
  for (const char* file : {"run/metrics.jsonl", "run/metrics.superseded.jsonl"}) {
    const JournalRows journal = read_journal(file);
    REQUIRE(journal.num_damaged == 0);
    found += static_cast<int64_t>(journal.rows.size());
  }
  REQUIRE(found >= acknowledged);
  REQUIRE(found <= acknowledged + 1);
  REQUIRE(read_journal("run/metrics.jsonl").rows.size() == 2);
  const std::vector<MetricsSegment> segments = read_metrics("run/metrics.h5").segments;
  REQUIRE(segments.size() >= 2);
  REQUIRE(segments[0].column("step") == std::vector<double>{1, 2});
  for (size_t i = 1; i < segments.size(); ++i) REQUIRE(segments[i].rows.empty());
}

}  // namespace

TEST_CASE("a run killed at or inside any single write keeps every row that was acknowledged") {
  kill_at_every_moment(50, 0);
}

TEST_CASE("so does a run killed while its full metrics file makes room for more") {
  kill_at_every_moment(1027, 1023);
}

TEST_CASE(
    "a run killed at any single write while it is gone on with or goes back can be reopened") {
  int64_t total = 1;
  for (int64_t deadly = 0; deadly <= total; ++deadly) {
    const ScratchFolder folder;
    SharedProgress progress;
    const ChildResult child = run_in_child([&] {
      deadly_moment = deadly;  // first none, to count them
      write_two_sessions(progress);
    });
    if (deadly == 0) total = progress->moments;
    CAPTURE(deadly, total, progress->rows.load(), child.error);
    REQUIRE(child.code == (deadly == 0 ? 0 : -SIGKILL));
    require_can_be_gone_on_with(progress->rows);
  }
  CHECK(total > 50);
}

TEST_CASE("a run killed at any moment keeps every row that was acknowledged") {
  std::mt19937 random(20240229);
  for (int repetition = 0; repetition < 25; ++repetition) {
    const ScratchFolder folder;
    SharedProgress progress;
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      write_run(progress, 1000000, 0);
      _exit(0);
    }
    // Not a fixed time: some rows, and then a part of one.
    const auto enough = std::uniform_int_distribution<int64_t>(0, 400)(random);
    while (progress->rows < enough) std::this_thread::yield();
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::uniform_int_distribution<int>(0, 200)(random)));
    kill(child, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    CAPTURE(repetition, progress->rows.load());
    require_rows_survived(progress->rows);
  }
}

}  // namespace zerolab
