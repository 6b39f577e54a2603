// A run's folder when a process dies, or a call fails, while it is gone on with or goes back: at
// each call that changes the disk.

#include <filesystem>
#include <set>

#include "zerolab/error.h"

#include "catch.h"
#include "faulty_files.h"
#include "run_sessions.h"

namespace zerolab {
namespace {

namespace fs = std::filesystem;

/// Steps 1 to 6 in session 0, gone on with after 4, and 5 to 8 in session 1, which was killed in
/// the middle of a line.
void make_two_sessions() {
  DyingFiles alive;
  add_rows(*begin_run(alive), 1, 6, 0);
  add_rows(*go_on(4, 1, alive), 5, 8, 1);
  std::ofstream("run/metrics.jsonl", std::ios::app) << "{\"step\": 9, \"lo";
  std::ofstream("run/summary.json") << "{}\n";
  fs::rename("run", "before");
}

/// ./run as make_two_sessions() left it.
void start_again() {
  fs::remove_all("run");
  fs::copy("before", "run", fs::copy_options::recursive);
}

/// Every row that was ever written, once, here or there.
void require_nothing_lost_or_doubled(const Names& written) {
  std::multiset<std::string> expected(written.begin(), written.end()), found;
  for (const char* file : {"run/metrics.jsonl", "run/metrics.superseded.jsonl"}) {
    for (const std::string& name : journal_names(file)) found.insert(name);
  }
  REQUIRE(found == expected);
}

/// What the folder holds once it was gone on with after step 3 as `session`, and step 4 was taken.
void require_gone_on(int session) {
  REQUIRE(journal_names("run/metrics.jsonl") ==
          Names{"1/0", "2/0", "3/0", "4/" + std::to_string(session)});
  REQUIRE(journal_names("run/metrics.superseded.jsonl") ==
          Names{"5/0", "6/0", "4/0", "5/1", "6/1", "7/1", "8/1"});
  const size_t segments = read_metrics("run/metrics.h5").segments.size();
  for (size_t i = 0; i < segments; ++i) {
    const Names expected = i == 0              ? Names{"1/0", "2/0", "3/0"}
                           : i + 1 == segments ? Names{"4/" + std::to_string(session)}
                                               : Names{};
    REQUIRE(segment_names(i) == expected);
  }
  // A session counts once it is in sessions.jsonl, and each that counts kept what it was given.
  REQUIRE((segments == 3 || segments == 4));
  for (size_t i = 0; i + 1 < segments; ++i) {
    const std::string number = std::to_string(i);
    REQUIRE(read_file("run/config.resolved.session-" + number + ".toml") ==
            config_of(static_cast<int>(i)));
    REQUIRE(read_file("run/environment.session-" + number + ".json") ==
            "{\n  \"session\": \"" + number + "\"\n}\n");
  }
  REQUIRE(read_file("run/config.resolved.toml") == config_of(session));
  REQUIRE(read_metrics("run/metrics.h5").config == config_of(session));
  REQUIRE_FALSE(fs::exists("run/summary.json"));
  REQUIRE_FALSE(fs::exists("run/metrics.superseding.jsonl"));
}

/// Lets `action` die at each of its calls in turn, from the same folder, and checks what follows.
template <typename Action, typename Check>
void kill_at_every_call(const Action& action, const Check& check) {
  const ScratchFolder folder;
  make_two_sessions();
  for (const bool after : {false, true}) {
    bool killed = true;
    for (int call = 1; killed; ++call) {
      start_again();
      DyingFiles files(call, after);
      killed = false;
      try {
        action(files);
      } catch (const Killed&) {
        killed = true;
      }
      CAPTURE(call, after);
      REQUIRE((killed || call > 20));  // the loop saw something
      if (killed) check(call, after);
    }
  }
}

}  // namespace

TEST_CASE("whatever call a process dies at that goes on with a run, the next one finds every row") {
  kill_at_every_call([](FileLayer& files) { go_on(3, 2, files); },
                     [](int, bool) {
                       DyingFiles alive;
                       // The dead one may have had its number already.
                       const bool counted = fs::exists("run/config.resolved.session-1.toml") &&
                                            read_file("run/sessions.jsonl").find("\"session\":2") !=
                                                std::string::npos;
                       const int session = counted ? 3 : 2;
                       const auto run = go_on(3, session, alive);
                       run->append(row_of(4, session));
                       require_gone_on(session);
                     });
}

TEST_CASE("so does one that comes after two that died at the same call") {
  kill_at_every_call(
      [](FileLayer& files) { reopen_run(3, 2, files); },
      [](int call, bool after) {
        DyingFiles second(call, after), alive;
        try {
          reopen_run(3, 2, second);
        } catch (const Killed&) {
        }
        const auto run = go_on(3, 4, alive);
        run->append(row_of(4, 4));
        require_nothing_lost_or_doubled(
            {"1/0", "2/0", "3/0", "4/0", "5/0", "6/0", "5/1", "6/1", "7/1", "8/1", "4/4"});
        REQUIRE(journal_names("run/metrics.jsonl") == Names{"1/0", "2/0", "3/0", "4/4"});
        REQUIRE(segment_names(0) == Names{"1/0", "2/0", "3/0"});
      });
}

TEST_CASE("one that goes on from a later step finds what the dead one had not moved yet") {
  kill_at_every_call([](FileLayer& files) { reopen_run(3, 2, files); },
                     [](int, bool) {
                       DyingFiles alive;
                       const auto run = go_on(6, 4, alive);
                       run->append(row_of(7, 4));
                       require_nothing_lost_or_doubled({"1/0", "2/0", "3/0", "4/0", "5/0", "6/0",
                                                        "5/1", "6/1", "7/1", "8/1", "7/4"});
                       const Names found = journal_names("run/metrics.jsonl");
                       REQUIRE((found == Names{"1/0", "2/0", "3/0", "7/4"} ||
                                found == Names{"1/0", "2/0", "3/0", "4/0", "5/1", "6/1", "7/4"}));
                       if (found.size() == 7) REQUIRE(segment_names(1) == Names{"5/1", "6/1"});
                     });
}

TEST_CASE("whatever call a process dies at while its run goes back, the next one finds every row") {
  for (const int64_t back_to : {2, 5}) {  // before its own first step, and after
    const auto rewind = [&](DyingFiles& files) {
      files.arm(false);
      const auto run = go_on(4, 2, files);
      add_rows(*run, 5, 7, 2);
      files.arm(true);
      run->rewind(back_to);
      run->append(row_of(back_to + 1, 2));
    };
    kill_at_every_call(rewind, [&](int, bool) {
      std::multiset<std::string> before;
      for (const char* file :
           {"run/metrics.jsonl", "run/metrics.superseded.jsonl", "run/metrics.superseding.jsonl"}) {
        if (!fs::exists(file)) continue;
        const JournalRows rows = read_journal(file);
        for (const std::string& name : names_of(rows.columns, rows.rows)) before.insert(name);
      }
      DyingFiles alive;
      go_on(back_to, 3, alive);
      std::multiset<std::string> after;
      for (const char* file : {"run/metrics.jsonl", "run/metrics.superseded.jsonl"}) {
        for (const std::string& name : journal_names(file)) after.insert(name);
      }
      // What is being moved may be in two places meanwhile, and afterwards no more.
      REQUIRE(std::includes(before.begin(), before.end(), after.begin(), after.end()));
      for (const std::string& name : before) REQUIRE(after.count(name) >= 1);
      for (const char* first : {"1/0", "2/0", "3/0", "4/0", "5/1", "6/1", "7/1", "8/1"}) {
        REQUIRE(after.count(first) == 1);
      }
      const auto live = journal_names("run/metrics.jsonl");
      REQUIRE(live.size() <= static_cast<size_t>(back_to));
      REQUIRE(segment_names(0).front() == "1/0");
    });
  }
}

TEST_CASE("whichever call fails while a run is gone on with, the error says so and a retry works") {
  const ScratchFolder folder;
  make_two_sessions();
  int call = 1;
  for (bool failed = true; failed; ++call) {
    start_again();
    DyingFiles alive;
    FaultyFiles files(call);
    failed = false;
    try {
      go_on(3, 2, files);
    } catch (const StoreError& error) {
      failed = true;
      CHECK_THAT(error.what(), Catch::Matchers::Contains("No space left on device"));
    }
    CAPTURE(call);
    if (!failed) break;
    const bool counted = read_file("run/sessions.jsonl").find("\"session\":2") != std::string::npos;
    const auto run = go_on(3, counted ? 3 : 2, alive);
    run->append(row_of(4, counted ? 3 : 2));
    require_gone_on(counted ? 3 : 2);
  }
  CHECK(call > 40);
}

}  // namespace zerolab
