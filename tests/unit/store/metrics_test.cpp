// metrics.h5 and metrics.jsonl through the run folder that writes them.

#include <cmath>
#include <csignal>
#include <limits>

#include <sys/resource.h>

#include "zerolab/error.h"

#include "catch.h"
#include "faulty_files.h"
#include "scratch.h"
#include "store/metrics_contents.h"
#include "store/run_folder.h"

namespace zerolab {
namespace {

using Catch::Matchers::Contains;

const double kNone = std::nan("");

std::unique_ptr<RunFolder> open_run(const std::vector<std::string>& columns,
                                    FileLayer& files = real_files()) {
  auto run = RunFolder::create("run", "", "steps = 3\n", {{"cpu_model", "abacus"}}, {}, files);
  run->open_metrics(columns);
  return run;
}

MetricsSegment stored() {
  return read_metrics("run/metrics.h5").segments.at(0);
}

}  // namespace

TEST_CASE("a row is in metrics.h5 and in the journal as soon as append returns") {
  const ScratchFolder folder;
  auto run = open_run({"step", "loss", "val_loss"});
  CHECK(stored().rows.empty());
  run->append({1, 4.25, kNone});
  CHECK(stored().column("loss") == std::vector<double>{4.25});
  CHECK(read_file("run/metrics.jsonl") == "{\"step\": 1, \"loss\": 4.25}\n");
  run->append({2, 0.1, 3});
  CHECK(stored().column("step") == std::vector<double>{1, 2});
  CHECK(read_file("run/metrics.jsonl") ==
        "{\"step\": 1, \"loss\": 4.25}\n{\"step\": 2, \"loss\": 0.1, \"val_loss\": 3}\n");
  CHECK(std::isnan(stored().column("val_loss").at(0)));
}

TEST_CASE(
    "metrics.h5 holds the columns' names, the configuration, the environment and the summary") {
  const ScratchFolder folder;
  auto run = open_run({"step", "loss"});
  CHECK_FALSE(read_metrics("run/metrics.h5").summary.has_value());
  run->append({1, 2.5});
  run->finish(
      {{{"final_loss", 2.5}, {"b", kNone}}, {{"device", "cpu"}, {"note", "d\"\n\xc3\xa9"}}});

  const MetricsContents contents = read_metrics("run/metrics.h5");
  CHECK(contents.segments.size() == 1);
  CHECK(contents.segments[0].columns == std::vector<std::string>{"step", "loss"});
  CHECK(contents.segments[0].rows == std::vector<MetricsRow>{{1, 2.5}});
  CHECK(contents.config == "steps = 3\n");
  CHECK(contents.environment == read_file("run/environment.json"));
  REQUIRE(contents.summary.has_value());
  REQUIRE(contents.summary->numbers.size() == 2);
  CHECK(contents.summary->numbers[1] == std::pair<std::string, double>("final_loss", 2.5));
  CHECK(std::isnan(contents.summary->numbers[0].second));
  CHECK(contents.summary->texts.at(1).second == "d\"\n\xc3\xa9");
  CHECK(read_file("run/summary.json") ==
        "{\n  \"final_loss\": 2.5,\n  \"b\": null,\n  \"device\": \"cpu\",\n  \"note\": "
        "\"d\\\"\\n\xc3\xa9\"\n}\n");
}

TEST_CASE("values come back with the same bits, infinities too") {
  const ScratchFolder folder;
  const double infinity = std::numeric_limits<double>::infinity();
  const MetricsRow row = {1, 0.1 + 0.2, 5e-324, -infinity, -1e300};
  auto run = open_run({"step", "a", "b", "c", "d"});
  run->append(row);
  CHECK(stored().rows.at(0) == row);
  CHECK_THAT(read_file("run/metrics.jsonl"), Contains("\"c\": \"-Infinity\""));
}

TEST_CASE("a run longer than the room that metrics.h5 began with keeps all its rows") {
  const ScratchFolder folder;
  auto run = open_run({"step", "half"});
  for (int step = 1; step <= 5000; ++step) run->append({step * 1.0, step / 2.0});
  const auto check = [] {
    const MetricsSegment segment = stored();
    REQUIRE(segment.rows.size() == 5000);
    for (size_t i = 0; i < 5000; ++i) {
      if (segment.rows[i] != MetricsRow{i + 1.0, (i + 1.0) / 2}) FAIL("row " << i << " is damaged");
    }
  };
  check();
  run->finish({});
  check();
  CHECK(std::filesystem::file_size("run/metrics.h5") < 7000 * 16);  // the room to spare is gone
}

TEST_CASE("a run without a single step can be finished") {
  const ScratchFolder folder;
  open_run({"step", "loss"})->finish({});
  CHECK(stored().rows.empty());
  CHECK(read_metrics("run/metrics.h5").summary.has_value());
  CHECK(read_file("run/metrics.jsonl").empty());
  CHECK(read_file("run/summary.json") == "{}\n");
}

TEST_CASE("a configuration larger than an attribute may be is kept") {
  const ScratchFolder folder;
  const std::string config(200000, '#');
  auto run = RunFolder::create("run", "", config, {});
  run->open_metrics({"step"});
  CHECK(read_metrics("run/metrics.h5").config == config);
}

TEST_CASE("rows that do not fit, and calls out of order, are refused") {
  const ScratchFolder folder;
  auto run = RunFolder::create("run", "", "", {});
  CHECK_THROWS_WITH(run->append({1, 2}), Contains("not open"));
  CHECK_THROWS_WITH(run->open_metrics({"loss"}), Contains("'step'"));
  run->open_metrics({"step", "loss"});
  CHECK_THROWS_WITH(run->open_metrics({"step", "loss"}), Contains("already"));
  CHECK_THROWS_WITH(run->append({1}), Contains("2 values"));
  CHECK_THROWS_WITH(run->append({kNone, 1}), Contains("step"));
  CHECK(read_file("run/metrics.jsonl").empty());
  run->append({1, 2});
  run->finish({});
  CHECK_THROWS_WITH(run->append({2, 2}), Contains("not open"));
  CHECK(stored().rows.size() == 1);
}

TEST_CASE(
    "a full disk is an error that says why and what is safe, and leaves every row that was "
    "acknowledged") {
  // A limit on file sizes acts as a full disk does: for the journal here.
  const ScratchFolder folder;
  const ChildResult child = run_in_child([] {
    auto run = open_run({"step", "loss"});
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{40000, 40000};  // metrics.h5 is smaller than that from the start
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int step = 1; step <= 1000; ++step) run->append({step * 1.0, 1 / 3.0});
  });
  CHECK(child.code == 1);
  CHECK_THAT(child.error, Contains("run/metrics.jsonl") && Contains("File too large") &&
                              Contains("rows before are safe"));
  const std::string journal = read_file("run/metrics.jsonl");
  const auto lines = std::count(journal.begin(), journal.end(), '\n');
  CHECK(lines > 500);
  CHECK(journal.back() == '\n');
  CHECK(static_cast<long>(stored().rows.size()) == lines);
}

TEST_CASE("a disk too full for metrics.h5 to grow leaves every row that was acknowledged") {
  const ScratchFolder folder;
  const ChildResult child = run_in_child([] {
    auto run = open_run({"step", "a", "b", "c", "d", "e", "f", "g"});
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100000, 100000};  // the journal stays below, 2048 rows do not
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int step = 1; step <= 1500; ++step)
      run->append({step * 1.0, kNone, kNone, kNone, kNone, kNone, kNone, kNone});
  });
  CHECK(child.code == 1);
  CHECK_THAT(child.error, Contains("run/metrics.h5") && Contains("File too large") &&
                              Contains("1024 rows before"));
  CHECK(stored().rows.size() == 1024);
  CHECK_FALSE(std::filesystem::exists("run/metrics.h5.partial"));
}

TEST_CASE("whichever call fails while a run is written, its rows stay readable") {
  int call = 1;
  for (bool failed = true; failed && call < 100; ++call) {
    const ScratchFolder folder;
    FaultyFiles files(call);
    failed = false;
    size_t acknowledged = 0;
    bool open = false;
    try {
      auto run = open_run({"step", "loss"}, files);
      open = true;
      for (int step = 1; step <= 3; ++step) {
        run->append({step * 1.0, 0.1});
        acknowledged = static_cast<size_t>(step);
      }
      run->finish({{{"final_loss", 0.1}}, {}});
    } catch (const StoreError& error) {
      failed = true;
      CHECK_THAT(error.what(), Contains("No space left on device"));
    }
    CAPTURE(call);
    if (open) CHECK(stored().rows.size() == acknowledged);
    const std::string journal =
        std::filesystem::exists("run") ? read_file("run/metrics.jsonl") : "";
    CHECK((journal.empty() || journal.back() == '\n'));
    for (const auto& entry : std::filesystem::recursive_directory_iterator(".")) {
      CHECK(entry.path().extension() != ".partial");
    }
  }
  CHECK((call > 25 && call < 100));
}

TEST_CASE("a run whose folder was deleted stops at the next row") {
  const ScratchFolder folder;
  auto run = open_run({"step", "loss"});
  run->append({1, 2});
  std::filesystem::remove_all("run");
  CHECK_THROWS_AS(run->append({2, 2}), StoreError);
}

TEST_CASE("a file that holds no metrics is refused by name") {
  const ScratchFolder folder;
  CHECK_THROWS_WITH(read_metrics("none.h5"),
                    Contains("none.h5") && Contains("No such file or directory"));
  std::ofstream("text.h5") << "not HDF5";
  CHECK_THROWS_WITH(read_metrics("text.h5"), Contains("text.h5: cannot open the file"));
}

TEST_CASE("a damaged metrics.h5 is an error and not a crash") {
  const ScratchFolder folder;
  auto run = open_run({"step", "loss"});
  run->append({1, 2});
  run->finish({});
  const std::string whole = read_file("run/metrics.h5");
  // HDF5 makes files in steps of 4096 bytes, so the last of them may not matter.
  for (size_t size = 0; size + 4096 < whole.size(); size += 101) {
    std::ofstream("cut.h5", std::ios::binary) << whole.substr(0, size);
    CAPTURE(size);
    CHECK_THROWS_AS(read_metrics("cut.h5"), StoreError);
  }
}

}  // namespace zerolab
