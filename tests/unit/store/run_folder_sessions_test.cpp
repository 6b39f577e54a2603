// A run that is gone on with, goes back, and stops: what its folder holds.

#include <atomic>
#include <random>
#include <thread>

#include "zerolab/error.h"
#include "zerolab/version.h"

#include "catch.h"
#include "run_sessions.h"
#include "store/sessions.h"

namespace zerolab {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

Names names_between(int64_t first, int64_t last, int session) {
  Names names;
  for (int64_t step = first; step <= last; ++step) {
    names.push_back(std::to_string(step) + "/" + std::to_string(session));
  }
  return names;
}

Names operator+(Names a, const Names& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

bool same_contents(const MetricsContents& a, const MetricsContents& b) {
  return a.config == b.config && a.environment == b.environment &&
         std::equal(a.segments.begin(), a.segments.end(), b.segments.begin(), b.segments.end(),
                    [](const MetricsSegment& x, const MetricsSegment& y) {
                      return x.columns == y.columns && same_rows(x.rows, y.rows);
                    });
}

}  // namespace

TEST_CASE(
    "a run that is gone on with after any step holds each row once, in its session's segment") {
  constexpr int64_t kSteps = 6;
  for (int64_t second = 0; second <= kSteps; ++second) {
    for (int64_t third = 0; third <= second + 2; ++third) {
      const ScratchFolder folder;
      DyingFiles fast;
      add_rows(*begin_run(fast), 1, kSteps, 0);
      add_rows(*go_on(second, 1, fast), second + 1, second + 2, 1);
      const auto run = go_on(third, 2, fast);
      add_rows(*run, third + 1, third + 3, 2);
      CAPTURE(second, third);
      const Names first_rows = names_between(1, std::min(second, third), 0),
                  second_rows = names_between(second + 1, third, 1),
                  third_rows = names_between(third + 1, third + 3, 2);
      CHECK(journal_names("run/metrics.jsonl") == first_rows + second_rows + third_rows);
      CHECK(segment_names(0) == first_rows);
      CHECK(segment_names(1) == second_rows);
      CHECK(segment_names(2) == third_rows);
      CHECK(journal_names("run/metrics.superseded.jsonl") ==
            names_between(second + 1, kSteps, 0) + names_between(third + 1, second, 0) +
                names_between(std::max(second, third) + 1, second + 2, 1));
    }
  }
}

TEST_CASE("sessions.jsonl tells when each session began, from where, and its columns") {
  const ScratchFolder folder;
  begin_run();
  reopen_run(20, 1);
  const std::vector<Session> sessions = read_sessions("run");
  REQUIRE(sessions.size() == 2);
  CHECK(sessions[0].number == 0);
  CHECK(sessions[0].first_step == 1);
  CHECK(sessions[0].info.ranks == 2);
  CHECK(sessions[0].info.source.empty());
  CHECK(sessions[0].columns == kRunColumns);
  CHECK(sessions[1].number == 1);
  CHECK(sessions[1].first_step == 21);
  CHECK(sessions[1].info.ranks == 1);
  CHECK(sessions[1].info.source == "step 20");
  CHECK(sessions[1].columns.empty());  // it never opened its metrics
  for (const Session& session : sessions) {
    CHECK(session.zerolab_version == ZEROLAB_VERSION);
    REQUIRE(session.started.size() == 20);
    CHECK(session.started.substr(0, 2) == "20");
    CHECK(session.started[10] == 'T');
    CHECK(session.started.back() == 'Z');
  }
}

TEST_CASE(
    "each session's configuration and environment stay, and the newest have the plain names") {
  const ScratchFolder folder;
  begin_run()->finish({{{"final_loss", 1}}, {}});
  CHECK(fs::exists("run/summary.json"));
  go_on(0, 1)->stop();
  go_on(0, 2)->stop();
  CHECK(read_file("run/config.resolved.session-0.toml") == config_of(0));
  CHECK(read_file("run/config.resolved.session-1.toml") == config_of(1));
  CHECK(read_file("run/config.resolved.toml") == config_of(2));
  CHECK_THAT(read_file("run/environment.session-1.json"), Contains("\"session\": \"1\""));
  CHECK_THAT(read_file("run/environment.json"), Contains("\"session\": \"2\""));
  const MetricsContents contents = read_metrics("run/metrics.h5");
  CHECK(contents.config == config_of(2));
  CHECK(contents.environment == read_file("run/environment.json"));
  CHECK_FALSE(contents.summary.has_value());
  CHECK_FALSE(fs::exists("run/summary.json"));
}

TEST_CASE("segments may have different columns") {
  const ScratchFolder folder;
  auto run = begin_run();
  add_rows(*run, 1, 3, 0);
  run.reset();
  run = reopen_run(2, 1);
  run->open_metrics({"step", "other"});
  run->append({3, 7});
  run.reset();
  go_on(3, 2);
  const MetricsContents contents = read_metrics("run/metrics.h5");
  CHECK(contents.segments.at(0).columns == kRunColumns);
  CHECK(contents.segments.at(1).columns == std::vector<std::string>{"step", "other"});
  CHECK(contents.segments.at(1).rows == std::vector<MetricsRow>{{3, 7}});
  CHECK(contents.segments.at(2).columns == kRunColumns);
}

TEST_CASE("a session that never opened its metrics has no rows and a neighbour's columns") {
  const ScratchFolder folder;
  RunFolder::create("run", "", config_of(0), {});
  reopen_run(0, 1);
  CHECK(read_metrics("run/metrics.h5").segments.at(1).columns == std::vector<std::string>{"step"});
  go_on(0, 2)->append(row_of(1, 2));
  reopen_run(1, 3);
  const MetricsContents contents = read_metrics("run/metrics.h5");
  REQUIRE(contents.segments.size() == 4);
  for (const MetricsSegment& segment : contents.segments) CHECK(segment.columns == kRunColumns);
  CHECK(segment_names(2) == Names{"1/2"});
}

TEST_CASE("a damaged or missing metrics.h5 is made again, equal to the one before") {
  const ScratchFolder folder;
  DyingFiles fast;
  add_rows(*begin_run(fast), 1, 40, 0);
  auto run = go_on(30, 1, fast);
  add_rows(*run, 31, 60, 1);
  run->stop();
  const std::string whole = read_file("run/metrics.h5");
  run.reset();
  reopen_run(60, 2, fast);
  const MetricsContents expected = read_metrics("run/metrics.h5");
  REQUIRE(expected.segments.size() == 3);

  std::mt19937 random(11);
  std::vector<std::string> damaged = {"", "not HDF5 at all", whole.substr(0, whole.size() / 2)};
  for (int i = 0; i < 100; ++i) {
    std::string flipped = whole;
    flipped[random() % flipped.size()] ^= static_cast<char>(1 << random() % 8);
    damaged.push_back(flipped);
    damaged.push_back(whole.substr(0, random() % whole.size()));
  }
  fs::copy("run", "kept", fs::copy_options::recursive);
  const auto check = [&] {
    reopen_run(60, 2, fast);
    // One session more each time, without rows of its own.
    MetricsContents found = read_metrics("run/metrics.h5");
    REQUIRE(found.segments.size() == 4);
    CHECK(found.segments.back().rows.empty());
    found.segments.pop_back();
    CHECK(same_contents(found, expected));
    fs::remove_all("run");
    fs::copy("kept", "run", fs::copy_options::recursive);
  };
  fs::remove("run/metrics.h5");
  check();
  for (const std::string& bytes : damaged) {
    std::ofstream("run/metrics.h5", std::ios::binary) << bytes;
    check();
  }
}

TEST_CASE("a metrics.jsonl that a loss of power left empty is made again, too") {
  const ScratchFolder folder;
  add_rows(*begin_run(), 1, 5, 0);
  const std::string journal = read_file("run/metrics.jsonl");
  std::ofstream("run/metrics.jsonl", std::ios::trunc);
  reopen_run(5, 1);
  CHECK(read_file("run/metrics.jsonl") == journal);
}

TEST_CASE("a missing metrics.jsonl is made again from metrics.h5, byte by byte") {
  const ScratchFolder folder;
  add_rows(*begin_run(), 1, 5, 0);
  add_rows(*go_on(3, 1), 4, 6, 1);
  const std::string journal = read_file("run/metrics.jsonl");
  fs::remove("run/metrics.jsonl");
  reopen_run(6, 2);
  CHECK(read_file("run/metrics.jsonl") == journal);

  fs::remove("run/metrics.jsonl");
  std::ofstream("run/metrics.h5") << "damaged";
  CHECK_THROWS_AS(reopen_run(6, 3), StoreError);
  CHECK_THROWS_WITH(reopen_run(6, 3), Contains("run/metrics.jsonl: is missing") &&
                                          Contains("metrics.h5") && Contains("copy"));
  CHECK(read_file("run/metrics.h5") == "damaged");
}

TEST_CASE("a journal that was cut off anywhere gets its rows back from metrics.h5") {
  const ScratchFolder folder;
  DyingFiles fast;
  add_rows(*begin_run(fast), 1, 4, 0);
  const std::string whole = read_file("run/metrics.jsonl");
  for (size_t cut = 0; cut < whole.size(); cut += 37) {
    CAPTURE(cut);
    std::ofstream("run/metrics.jsonl", std::ios::binary | std::ios::trunc) << whole.substr(0, cut);
    const auto session = static_cast<int64_t>(cut) + 1;
    reopen_run(4, session);
    REQUIRE(read_file("run/metrics.jsonl") == whole);
  }
  CHECK_FALSE(fs::exists("run/metrics.superseded.jsonl"));
}

TEST_CASE("damage in the middle of a journal is mended from metrics.h5, and kept aside") {
  const ScratchFolder folder;
  add_rows(*begin_run(), 1, 4, 0);
  const std::string whole = read_file("run/metrics.jsonl");
  std::string text = whole;
  text[text.find("{\"step\": 2")] = 'x';
  std::ofstream("run/metrics.jsonl", std::ios::binary) << text;
  reopen_run(4, 1);
  CHECK(read_file("run/metrics.jsonl") == whole);
  CHECK(read_file("run/metrics.damaged.jsonl") == text);
}

TEST_CASE("without metrics.h5, a journal cut off in a line goes on after its last whole one") {
  std::string whole;
  for (size_t cut = 0;; ++cut) {
    const ScratchFolder folder;
    DyingFiles fast;
    add_rows(*begin_run(fast), 1, 4, 0);
    whole = read_file("run/metrics.jsonl");
    const size_t third = whole.find("{\"step\": 3");
    if (third + cut > whole.size()) break;
    fs::resize_file("run/metrics.jsonl", third + cut);
    fs::remove("run/metrics.h5");
    const int64_t left = third + cut == whole.size()                 ? 4
                         : third + cut >= whole.find("{\"step\": 4") ? 3
                                                                     : 2;
    go_on(10, 1, fast)->append(row_of(11, 1));
    CAPTURE(cut);
    CHECK(journal_names("run/metrics.jsonl") == names_between(1, left, 0) + Names{"11/1"});
    CHECK(segment_names(0) == names_between(1, left, 0));
    CHECK_FALSE(fs::exists("run/metrics.superseded.jsonl"));
  }
}

TEST_CASE("without metrics.h5, damage in the middle of a journal costs its line, and stays there") {
  const ScratchFolder folder;
  add_rows(*begin_run(), 1, 4, 0);
  std::string text = read_file("run/metrics.jsonl");
  text[text.find("{\"step\": 2")] = 'x';
  std::ofstream("run/metrics.jsonl", std::ios::binary) << text;
  fs::remove("run/metrics.h5");
  go_on(3, 1)->append(row_of(4, 1));
  CHECK(segment_names(0) == Names{"1/0", "3/0"});
  CHECK(segment_names(1) == Names{"4/1"});
  CHECK(read_journal("run/metrics.jsonl").num_damaged == 1);
  CHECK_THAT(read_file("run/metrics.jsonl"), Contains("\nx\"step\": 2"));
}

TEST_CASE("a run that goes back writes on in the same segment, and what it had is kept aside") {
  const ScratchFolder folder;
  add_rows(*begin_run(), 1, 5, 0);
  const auto run = go_on(5, 1);
  add_rows(*run, 6, 9, 1);
  run->rewind(7);
  CHECK(segment_names(1) == Names{"6/1", "7/1"});
  add_rows(*run, 8, 8, 1);
  CHECK(segment_names(1) == Names{"6/1", "7/1", "8/1"});
  run->rewind(3);  // to before this session
  CHECK(segment_names(0) == Names{"1/0", "2/0", "3/0"});
  add_rows(*run, 4, 7, 1);
  run->rewind(7);  // nothing is later
  run->stop();
  CHECK(segment_names(1) == names_between(4, 7, 1));
  CHECK(journal_names("run/metrics.jsonl") == names_between(1, 3, 0) + names_between(4, 7, 1));
  CHECK(journal_names("run/metrics.superseded.jsonl") ==
        Names{"8/1", "9/1", "4/0", "5/0", "6/1", "7/1", "8/1"});
}

TEST_CASE("after a run went back, metrics.h5 can still be made from the journal alone") {
  const ScratchFolder folder;
  add_rows(*begin_run(), 1, 5, 0);
  auto run = go_on(5, 1);
  run->rewind(2);
  add_rows(*run, 3, 6, 1);
  run.reset();
  fs::remove("run/metrics.h5");
  reopen_run(6, 2);
  CHECK(segment_names(0) == Names{"1/0", "2/0"});
  CHECK(segment_names(1) == names_between(3, 6, 1));
}

TEST_CASE("a run that was stopped has a sealed metrics.h5 and no summary, and takes no more rows") {
  const ScratchFolder folder;
  const auto run = begin_run();
  add_rows(*run, 1, 3, 0);
  const auto live = fs::file_size("run/metrics.h5");
  run->stop();
  CHECK(fs::file_size("run/metrics.h5") < live);
  CHECK(segment_names(0) == names_between(1, 3, 0));
  CHECK_FALSE(fs::exists("run/summary.json"));
  CHECK_THROWS_WITH(run->append(row_of(4, 0)), Contains("not open"));
  CHECK_THROWS_WITH(run->rewind(1), Contains("not open"));
  CHECK_NOTHROW(run->sync());
}

TEST_CASE("rows are made durable by another thread while they are appended and the run goes back") {
  struct CountingFiles : FileLayer {
    std::atomic<int> num_syncs{0};
    int sync(int descriptor) override {
      ++num_syncs;
      return FileLayer::sync(descriptor);
    }
  } files;
  const ScratchFolder folder;
  const auto run = begin_run(files);
  const int before = files.num_syncs;
  run->append(row_of(1, 0));
  run->sync();
  CHECK(files.num_syncs == before + 1);
  std::atomic<bool> done{false};
  std::thread syncing([&] {
    while (!done) run->sync();
  });
  add_rows(*run, 2, 200, 0);
  for (int i = 0; i < 5; ++i) {
    run->rewind(100);
    add_rows(*run, 101, 200, 0);
  }
  done = true;
  syncing.join();
  run->stop();
  CHECK(journal_names("run/metrics.jsonl") == names_between(1, 200, 0));
  CHECK(journal_names("run/metrics.superseded.jsonl").size() == 500);
}

TEST_CASE("a sync that fails is an error") {
  struct FailingFiles : FileLayer {
    bool failing = false;
    int sync(int descriptor) override {
      errno = EIO;
      return failing ? -1 : FileLayer::sync(descriptor);
    }
  } files;
  const ScratchFolder folder;
  const auto run = begin_run(files);
  files.failing = true;
  CHECK_THROWS_AS(run->sync(), StoreError);
  CHECK_THROWS_WITH(run->sync(), Contains("metrics.jsonl") && Contains("Input/output error"));
}

TEST_CASE("a run has one writer, in this process or another, until it is gone") {
  const ScratchFolder folder;
  auto run = begin_run();
  run->append(row_of(1, 0));
  CHECK_THROWS_AS(reopen_run(0, 1), StoreError);
  CHECK_THROWS_WITH(reopen_run(0, 1), Contains((folder.path() / "run").string() +
                                               ": another process is writing this run; "));
  const ChildResult child = run_in_child([] { reopen_run(0, 1); });
  CHECK(child.code == 1);
  CHECK_THAT(child.error, Contains("another process is writing this run"));
  CHECK(read_sessions("run").size() == 1);
  run->append(row_of(2, 0));
  run.reset();
  run = reopen_run(2, 1);
  CHECK_THROWS_AS(reopen_run(0, 2), StoreError);
  CHECK(journal_names("run/metrics.jsonl") == Names{"1/0", "2/0"});
}

TEST_CASE("a folder that is no run's cannot be gone on with, and is left alone") {
  const ScratchFolder folder;
  fs::create_directory("run");
  std::ofstream("run/summary.json") << "mine";
  CHECK_THROWS_AS(reopen_run(0, 1), ConfigError);
  CHECK_THROWS_WITH(reopen_run(0, 1),
                    Contains("run: is not a run's folder") && Contains("config.resolved.toml"));
  CHECK(read_file("run/summary.json") == "mine");
  fs::remove_all("run");
  CHECK_THROWS_AS(reopen_run(0, 1), ConfigError);
  CHECK(folder.empty());
}

TEST_CASE("a run whose sessions.jsonl is lost keeps its rows in one segment") {
  const ScratchFolder folder;
  add_rows(*begin_run(), 1, 3, 0);
  add_rows(*go_on(2, 1), 3, 4, 1);
  fs::remove("run/sessions.jsonl");
  go_on(4, 2)->append(row_of(5, 2));
  CHECK(segment_names(0) == Names{"1/0", "2/0", "3/1", "4/1"});
  CHECK(segment_names(1) == Names{"5/2"});
}

TEST_CASE("the newest run of a name is the one with the greatest number") {
  const ScratchFolder folder;
  CHECK_FALSE(RunFolder::newest("tiny").has_value());
  for (int i = 0; i < 11; ++i) RunFolder::create("", "tiny", "", {});
  RunFolder::create("", "tiny-er", "", {});
  fs::create_directory("runs/tiny-12");  // its process died before it was a run
  fs::create_directory("runs/tiny-99x");
  CHECK(RunFolder::newest("tiny") == folder.path() / "runs/tiny-11");
  CHECK(RunFolder::newest("tiny-er") == folder.path() / "runs/tiny-er-1");
  CHECK_FALSE(RunFolder::newest("tin").has_value());
}

}  // namespace zerolab
