// Files that are no experiment, and what TOML can hold that no option takes.
#include <filesystem>

#include <unistd.h>

#include "zerolab/error.h"

#include "catch.h"
#include "fake_catalogue.h"

using namespace zerolab;
using namespace zerolab::test;

TEST_CASE("a file that is no experiment is refused with its name and the reason", "[experiment]") {
  const Folder folder;
  CHECK(config_error(folder.path() / "none.toml") == "none.toml:1:1: there is no such file");
  CHECK(config_error(folder.path() / "cwd") == "cwd:1:1: is a folder, not an experiment file");
  CHECK(config_error(folder.write("empty.toml", "")) == "empty.toml:1:1: is empty");
  const std::string latin1 =
      config_error(folder.write("latin1.toml", "steps = 1\nname = \"caf\xe9\"\n"));
  CHECK(has(latin1, "latin1.toml:2:"));
  CHECK(has(latin1, "not UTF-8 text"));
  const auto data = folder.write("data.bin", std::string((4 << 20) + 1, ' '));
  CHECK(config_error(data) == "data.bin:1:1: is larger than 4 MiB: not an experiment file");
  // A null byte is no TOML either.
  CHECK(has(config_error(folder.write("zero.toml", std::string("steps\0 = 1\n", 11))),
            "zero.toml:1:6"));
}

TEST_CASE("a file without permission to read is refused with the reason", "[experiment]") {
  if (geteuid() == 0) return;  // root reads everything
  const Folder folder;
  const auto file = folder.write("secret.toml", sound());
  std::filesystem::permissions(file, std::filesystem::perms::none);
  CHECK(config_error(file) == "secret.toml:1:1: cannot be read: Permission denied");
}

TEST_CASE("a file with comments only lacks everything that is required", "[experiment]") {
  const Folder folder;
  const std::string error = config_error(folder.write("exp.toml", "# later\n"));
  CHECK(has(error, "exp.toml:1:1: key 'steps': is missing: optimizer steps of the run"));
  CHECK(has(error, "exp.toml:1:1: key 'batch.sequence_length': is missing"));
  CHECK(has(error,
            "exp.toml:1:1: key 'model.plugin': is missing: add [model] with plugin = \"NAME\"; "
            "installed: plain"));
  CHECK(lines(error).size() == 8);
}

TEST_CASE("text that is no TOML is an error with its place", "[experiment]") {
  const Folder folder;
  const auto error = [&](const std::string& text) {
    return config_error(folder.write("exp.toml", text));
  };
  CHECK(has(error("steps = 10\nseed == 3\n"), "exp.toml:2:7: not valid TOML: "));
  CHECK(has(error("device = cpu\n"), "(a string needs quotes)"));
  CHECK(has(error("steps = 10\nsteps = 11\n"), "exp.toml:2:"));
  CHECK(has(error("seed = 9223372036854775808\n"), "exp.toml:1:"));
  // Table headers without a name, which a parser with assertions would die of.
  for (const char* header : {"[=]\n", "[.a]\n", "[#]\n", "[[=]]\n", "[ ]\n"}) {
    CHECK(has(error(header), "exp.toml:1:"));
  }
  CHECK(lines(error("a = [\n\n\n")).size() == 1);
}

TEST_CASE("a byte order mark and Windows line ends do no harm", "[experiment]") {
  const Folder folder;
  std::string text = "\xEF\xBB\xBF";
  for (const std::string& line : lines(sound())) text += line + "\r\n";
  CHECK(resolve(folder.write("exp.toml", text)).steps == 10);
}

TEST_CASE("values that no option takes are named in the error", "[experiment]") {
  const Folder folder;
  const auto error = [&](const std::string& value) {
    return config_error(folder.write("exp.toml", sound("", "gradient_clipping = " + value + "\n")));
  };
  const std::string begin = "exp.toml:2:21: key 'gradient_clipping': must be a number, is ";
  const std::string end = "; default 0.0";
  CHECK(error("nan") == begin + "nan" + end);
  CHECK(error("inf") == begin + "infinite" + end);
  CHECK(error("-inf") == begin + "infinite" + end);
  CHECK(error("1979-05-27") == begin + "a date" + end);
  CHECK(error("07:32:00") == begin + "a time" + end);
  CHECK(error("1979-05-27T07:32:00Z") == begin + "a date and time" + end);
  CHECK(error("[[1], [2]]") == begin + "a list of lists" + end);
  CHECK(error("[1, \"a\"]") == begin + "a list of mixed types" + end);
  CHECK(error("[true]") == begin + "a list of dates, times or truth values" + end);
  CHECK(error("[{ a = 1 }]") == begin + "a list of tables" + end);
  CHECK(error("{ a = 1 }") == begin + "a table" + end);
  CHECK(error("[1.0, nan]") == begin + "a list with an entry that is not finite" + end);
  CHECK(error("\"1\"") == begin + "a string (\"1\")" + end);
}

TEST_CASE("an integer does where a number is wanted, never the reverse", "[experiment]") {
  const Folder folder;
  const Experiment e =
      resolve(folder.write("exp.toml", sound("[scheduler.ramp]\nlr = 1\nbetas = [0, 0.5]\n")));
  CHECK(option<double>(e, Kind::kScheduler, "lr") == 1.0);
  CHECK(option<std::vector<double>>(e, Kind::kScheduler, "betas") == std::vector<double>{0, 0.5});
  CHECK(has(config_error(folder.write(
                "exp.toml", sound("[scheduler.ramp]\nbetas = [9007199254740993, 0.5]\n"))),
            "each entry must be "));
  CHECK(config_error(folder.write("exp.toml", sound("", "seed = 3.0\n"))) ==
        "exp.toml:2:8: key 'seed': must be an integer, is a number (3.0); default 1337");
}

TEST_CASE("an empty list suits any list", "[experiment]") {
  const Folder folder;
  const Experiment e = resolve(folder.write("exp.toml", sound("[scheduler.ramp]\ntags = []\n")));
  CHECK(option<std::vector<std::string>>(e, Kind::kScheduler, "tags").empty());
}
