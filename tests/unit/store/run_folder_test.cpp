#include "store/run_folder.h"

#include <csignal>
#include <set>
#include <thread>

#include <sys/resource.h>

#include "zerolab/error.h"

#include "catch.h"
#include "faulty_files.h"
#include "scratch.h"

namespace zerolab {
namespace {

using Catch::Matchers::Contains;

std::unique_ptr<RunFolder> create(const std::filesystem::path& dir, const std::string& name,
                                  FileLayer& files = real_files()) {
  return RunFolder::create(dir, name, "steps = 3\n", {{"cpu_model", "abacus"}}, {}, files);
}

}  // namespace

TEST_CASE("a run gets the first free number under runs/") {
  const ScratchFolder folder;
  CHECK(create("", "tiny")->path() == folder.path() / "runs/tiny-1");
  CHECK(create("", "tiny")->path() == folder.path() / "runs/tiny-2");
  CHECK(create("", "other")->path() == folder.path() / "runs/other-1");
  std::filesystem::remove_all("runs/tiny-1");
  CHECK(create("", "tiny")->path() == folder.path() / "runs/tiny-1");
  CHECK(create("", "tiny")->path() == folder.path() / "runs/tiny-3");
}

TEST_CASE(
    "a new folder holds the configuration, the environment and its session, and nothing else") {
  const ScratchFolder folder;
  const auto run = create("", "tiny");
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(run->path()))
    files.insert(entry.path().filename());
  CHECK(files ==
        std::set<std::string>{"config.resolved.toml", "environment.json", "sessions.jsonl"});
  CHECK(read_file(run->path() / "config.resolved.toml") == "steps = 3\n");
  CHECK(read_file(run->path() / "environment.json") == "{\n  \"cpu_model\": \"abacus\"\n}\n");
}

TEST_CASE("--run-dir is used as it is, with its parents made") {
  const ScratchFolder folder;
  CHECK(create("a/b/c/", "tiny")->path() == folder.path() / "a/b/c");
  CHECK(create(folder.path() / "x" / ".." / "y", "tiny")->path() == folder.path() / "y");
  CHECK(std::filesystem::exists("a/b/c/environment.json"));
  CHECK_FALSE(std::filesystem::exists("runs"));
}

TEST_CASE("a --run-dir that exists is refused and left alone, whatever it is") {
  const ScratchFolder folder;
  std::filesystem::create_directory("full");
  std::ofstream("full/keep") << "mine";
  std::ofstream("file") << "mine";
  std::filesystem::create_symlink("nowhere", "link");
  for (const char* name : {"full", "full/", "file", "link"}) {
    CHECK_THROWS_AS(create(name, "tiny"), ConfigError);
    CHECK_THROWS_WITH(create(name, "tiny"), Contains("--run-dir " + std::string(name)) &&
                                                Contains("exists already") && Contains("remove"));
  }
  CHECK(read_file("full/keep") == "mine");
  CHECK(read_file("file") == "mine");
}

TEST_CASE("a name that cannot be a folder's is refused") {
  const ScratchFolder folder;
  CHECK_THROWS_AS(create("", "a/b"), ConfigError);
  CHECK_THROWS_AS(create("", ""), ConfigError);
  CHECK(folder.empty());
}

TEST_CASE("a --run-dir below a file is refused with the reason") {
  const ScratchFolder folder;
  std::ofstream("file") << "mine";
  CHECK_THROWS_AS(create("file/run", "tiny"), StoreError);
  CHECK_THROWS_WITH(create("file/run", "tiny"),
                    Contains("file/run") && Contains("Not a directory"));
}

TEST_CASE("runs that start at once, in threads and in processes, get different folders") {
  const ScratchFolder folder;
  constexpr int kProcesses = 4, kThreads = 4, kRuns = 5;
  std::vector<pid_t> children;
  std::fflush(nullptr);
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([] {
        // Only the folder's maker writes its mark: it must not be there before.
        for (int i = 0; i < kRuns; ++i) {
          const auto run = create("", "tiny");
          if (FileLayer().create(run->path() / "mark") < 0) _exit(3);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    _exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  for (int number = 1; number <= kProcesses * kThreads * kRuns; ++number) {
    CHECK(std::filesystem::exists("runs/tiny-" + std::to_string(number) + "/mark"));
  }
}

TEST_CASE("whichever call of create fails, nothing is left behind and the error says why") {
  int call = 1;
  for (bool failed = true; failed && call < 100; ++call) {
    const ScratchFolder folder;
    FaultyFiles files(call);
    failed = false;
    try {
      create("a/b/run", "tiny", files);
    } catch (const StoreError& error) {
      failed = true;
      CAPTURE(call);
      CHECK_THAT(error.what(),
                 Contains((folder.path() / "a").string()) && Contains("No space left on device"));
      CHECK(folder.empty());
    }
  }
  CHECK(call == 20);  // three folders, and five calls for each of three files
}

TEST_CASE("a failed create leaves other runs alone") {
  const ScratchFolder folder;
  create("", "tiny");
  FaultyFiles files(4);
  CHECK_THROWS_AS(create("", "tiny", files), StoreError);
  CHECK(std::filesystem::exists("runs/tiny-1/environment.json"));
  CHECK_FALSE(std::filesystem::exists("runs/tiny-2"));
}

TEST_CASE("a full disk leaves nothing behind") {
  const ScratchFolder folder;
  const ChildResult child = run_in_child([] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4, 4};
    setrlimit(RLIMIT_FSIZE, &limit);
    create("", "tiny");
  });
  CHECK(child.code == 1);
  CHECK_THAT(child.error,
             Contains("runs/tiny-1/config.resolved.toml") && Contains("File too large"));
  CHECK(folder.empty());
}

TEST_CASE("a folder that may not be written is refused with path and reason") {
  const ScratchFolder folder;
  std::filesystem::create_directory("locked");
  std::filesystem::permissions(
      "locked", std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec |
                    std::filesystem::perms::others_read | std::filesystem::perms::others_exec);
  const ChildResult child = run_in_child([] {
    // Root writes everywhere.
    if (getuid() == 0 && setuid(65534) != 0) throw std::runtime_error("setuid failed");
    create("locked/run", "tiny");
  });
  CHECK(child.code == 1);
  CHECK_THAT(child.error, Contains("locked/run") && Contains("Permission denied"));
  CHECK(std::filesystem::is_empty("locked"));
}

}  // namespace zerolab
