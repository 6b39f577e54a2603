#include "store/file_layer.h"

#include "zerolab/error.h"

#include "catch.h"
#include "faulty_files.h"
#include "scratch.h"

namespace zerolab {

TEST_CASE("write_file replaces what was there") {
  const ScratchFolder folder;
  const std::filesystem::path file = folder.path() / "a.txt";
  write_file(real_files(), file, "one");
  write_file(real_files(), file, "two");
  CHECK(read_file(file) == "two");
  CHECK_FALSE(std::filesystem::exists("a.txt.partial"));
}

TEST_CASE("a leftover of a process that was killed is no hindrance") {
  const ScratchFolder folder;
  const std::filesystem::path file = folder.path() / "a.txt";
  std::ofstream("a.txt.partial") << "torn";
  write_file(real_files(), file, "whole");
  CHECK(read_file(file) == "whole");
}

TEST_CASE(
    "whichever call of write_file fails, a reader sees the old text or the new, and no partial "
    "file stays") {
  int call = 1;
  for (; call < 100; ++call) {
    const ScratchFolder folder;
    const std::filesystem::path file = folder.path() / "a.txt";
    write_file(real_files(), file, "the old text");
    FaultyFiles files(call);
    bool failed = false;
    try {
      write_file(files, file, "the new text");
    } catch (const StoreError& error) {
      failed = true;
      CHECK_THAT(error.what(), Catch::Matchers::Contains(file.string()) &&
                                   Catch::Matchers::Contains("No space left on device"));
    }
    CAPTURE(call);
    const std::string text = read_file(file);
    CHECK((text == "the old text" || text == "the new text"));
    CHECK_FALSE(std::filesystem::exists("a.txt.partial"));
    if (!failed) {
      CHECK(text == "the new text");
      break;
    }
  }
  CHECK(call == 6);  // create, write, sync, rename, sync of the folder; then none is left to fail
}

}  // namespace zerolab
