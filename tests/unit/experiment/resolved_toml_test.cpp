#include <sstream>

#include "catch.h"
#include "fake_catalogue.h"

using namespace zerolab;
using namespace zerolab::test;

namespace {

void check_equal(const Experiment& a, const Experiment& b) {
  CHECK(a.name == b.name);
  CHECK(a.seed == b.seed);
  CHECK(a.steps == b.steps);
  CHECK(a.gradient_clipping == b.gradient_clipping);
  CHECK(a.device == b.device);
  CHECK(a.threads == b.threads);
  CHECK(a.check_collectives == b.check_collectives);
  CHECK(a.batch.sequence_length == b.batch.sequence_length);
  CHECK(a.batch.micro_batch_size == b.batch.micro_batch_size);
  CHECK(a.batch.gradient_accumulation_steps == b.batch.gradient_accumulation_steps);
  CHECK(a.batch.total_batch_size == b.batch.total_batch_size);
  CHECK(a.batch.reduce_every == b.batch.reduce_every);
  CHECK(a.evaluation.every == b.evaluation.every);
  CHECK(a.evaluation.num_samples == b.evaluation.num_samples);
  CHECK(a.checkpoint.every == b.checkpoint.every);
  CHECK(a.checkpoint.keep_last == b.checkpoint.keep_last);
  for (Kind kind : kKinds) {
    CHECK(a.plugin(kind).name == b.plugin(kind).name);
    CHECK(a.plugin(kind).options == b.plugin(kind).options);
  }
}

/// Values without comments, so that origins may differ.
std::string values(const std::string& toml) {
  std::string text;
  for (const std::string& line : lines(toml)) {
    const size_t comment = line.find("  # ");
    const std::string value = line.substr(0, line.find_last_not_of(' ', comment) + 1);
    if (!line.empty() && line[0] != '#') text += value + "\n";
  }
  return text;
}

/// The line that begins with `begin`, blanks squeezed.
std::string line_of(const std::string& toml, const std::string& begin) {
  for (const std::string& line : lines(toml)) {
    if (line.compare(0, begin.size(), begin) != 0) continue;
    std::istringstream words(line);
    std::string squeezed, word;
    while (words >> word) squeezed += (squeezed.empty() ? "" : " ") + word;
    return squeezed;
  }
  return {};
}

}  // namespace

TEST_CASE("the resolved experiment gives the same experiment again", "[experiment]") {
  const Folder folder;
  folder.write(
      "base.toml",
      sound(
          "bucket = \"1MB\"\n[sharding.split]\ndepth = 3\n[scheduler.ramp]\npath = \"rates.txt\"\n",
          "name = \"it's\"\n"));
  const auto file = folder.write(
      "sub/exp.toml",
      "extends = \"../base.toml\"\nname = \"mine\"\nplugin_path = [\"p\"]\ngradient_clipping = 1\n"
      "[batch]\ntotal_batch_size = 12\n[scheduler]\nlr = 1e-5\ntags = [\"a\\\"b\", "
      "\"\\u00fc\\n\"]\n");
  const Experiment first = resolve(file, {"seed=9", "data.path=d#1.txt"}, 3);
  const auto again = folder.write("run/config.resolved.toml", first.resolved_toml);
  const Experiment second = resolve(again, {}, 3);
  check_equal(first, second);
  CHECK(option<std::string>(second, Kind::kScheduler, "path") ==
        (folder.path() / "rates.txt").string());
  CHECK(ExperimentFile::load(again, {}).plugin_path() ==
        std::vector<std::filesystem::path>{folder.path() / "sub/p"});
  CHECK(values(first.resolved_toml) == values(second.resolved_toml));
  const Experiment third =
      resolve(folder.write("run/config.resolved.toml", second.resolved_toml), {}, 3);
  const Experiment fourth =
      resolve(folder.write("run/config.resolved.toml", third.resolved_toml), {}, 3);
  CHECK(third.resolved_toml == fourth.resolved_toml);
}

TEST_CASE("the resolved experiment says where every value is from", "[experiment]") {
  const Folder folder;
  folder.write("base.toml", sound("bucket = 3\n"));
  const auto file = folder.write(
      "sub/exp.toml", "extends = \"../base.toml\"\n\nseed = 5\n[batch]\ntotal_batch_size = 12\n");
  const std::string toml = resolve(file, {"scheduler.lr=1"}, 3).resolved_toml;
  CHECK(lines(toml)[0] == "# \"exp\", resolved for 3 ranks from " + file.string());
  CHECK(lines(toml)[1] == "# override 'scheduler.lr=1'");
  CHECK(line_of(toml, "name") == "name = \"exp\" # computed");
  CHECK(line_of(toml, "seed") == "seed = 5 # exp.toml:3");
  CHECK(line_of(toml, "steps") == "steps = 10 # ../base.toml:1");
  CHECK(line_of(toml, "device") == "device = \"cpu\" # default");
  CHECK(line_of(toml, "lr") == "lr = 1.0 # override");
  CHECK(line_of(toml, "bucket") == "bucket = 3 # ../base.toml:18");
  CHECK(line_of(toml, "total_batch_size") == "total_batch_size = 12 # exp.toml:5");
  CHECK(line_of(toml, "gradient_accumulation_steps") ==
        "gradient_accumulation_steps = 2 # computed");
  CHECK(line_of(toml, "extends").empty());
  for (const std::string& line : lines(toml)) {
    if (line.find(" = ") != std::string::npos && line[0] != '#') CHECK(has(line, "  # "));
  }
}

TEST_CASE("options that wait for another plugin stay in the resolved experiment", "[experiment]") {
  const Folder folder;
  const auto file = folder.write(
      "exp.toml", sound("bucket = 3\n[sharding.other]\nx = 1\n[scheduler.flat]\nlr = 0.5\n"));
  const Experiment swapped = resolve(file, {"sharding.plugin=split"});
  CHECK(has(swapped.resolved_toml,
            "[sharding.whole]\nbucket = 3  # exp.toml:18, not used: split is chosen\n"));
  CHECK(has(swapped.resolved_toml,
            "[scheduler.flat]\nlr = 0.5  # exp.toml:22, not used: ramp is chosen\n"));
  CHECK(has(swapped.resolved_toml, "# left out: options of other, which is not installed\n"));

  const auto resolved = folder.write("run/config.resolved.toml", swapped.resolved_toml);
  check_equal(swapped, resolve(resolved));
  const Experiment back = resolve(resolved, {"sharding.plugin=whole"});
  CHECK(option<int64_t>(back, Kind::kSharding, "bucket") == 3);
  CHECK(option<double>(resolve(resolved, {"scheduler.plugin=flat"}), Kind::kScheduler, "lr") ==
        0.5);
}
