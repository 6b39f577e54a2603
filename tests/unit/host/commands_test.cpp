// The `zerolab` program as a user meets it: verbs, flags, exit codes, what goes where.

#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "catch.h"
#include "fixture.h"

using host_test::contains;

namespace {

namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string out, err;
};

struct Shell {
  host_test::NoPluginsOfTheUser alone;
  host_test::Folder root;
  fs::path plugins = root.folder("plugins");

  Outcome operator()(const std::string& arguments) const {
    const std::string command = std::string("'" ZEROLAB_TEST_BINARY "' ") + arguments + " >'" +
                                (root / "out").string() + "' 2>'" + (root / "err").string() + "'";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, host_test::read(root / "out"),
            host_test::read(root / "err")};
  }
  void install_plain() const {
    host_test::put_copy(host_test::library("zerolab_scheduler_plain"), plugins / "plain.so");
  }
  std::string path() const { return " --plugin-path '" + plugins.string() + "'"; }
};

nlohmann::json plain_of(const nlohmann::json& list) {
  for (const auto& plugin : list["plugins"]) {
    if (plugin["name"] == "plain") return plugin;
  }
  return {};
}

}  // namespace

TEST_CASE("--version and --help answer on standard output") {
  const Shell zerolab;
  const Outcome version = zerolab("--version");
  CHECK(version.code == 0);
  CHECK(version.out.starts_with("zerolab 0."));
  CHECK(contains(version.out, "SDK ABI"));
  for (const char* arguments :
       {"--help", "-h", "plugins --help", "plugins inspect --help", "show-config --help"}) {
    CAPTURE(arguments);
    const Outcome help = zerolab(arguments);
    CHECK(help.code == 0);
    CHECK(contains(help.out, "--help"));
    CHECK(help.err.empty());
  }
  CHECK(contains(zerolab("--help").out, "Examples:"));
  CHECK(contains(zerolab("show-config --help").out, "--trust-plugin-path"));
}

TEST_CASE("without a verb the help is the error") {
  const Shell zerolab;
  const Outcome nothing = zerolab("");
  CHECK(nothing.code == 2);
  CHECK(nothing.out.empty());
  CHECK(contains(nothing.err, "Examples:"));
  CHECK(zerolab("plugins").code == 2);
}

TEST_CASE("a mistyped verb or flag is exit 2, one sentence and a suggestion") {
  const Shell zerolab;
  const struct {
    const char *arguments, *says;
  } mistakes[] = {{"show-confg x.toml", "did you mean 'show-config'?"},
                  {"plugins lst", "did you mean 'list'?"},
                  {"plugins list --jsn", "did you mean '--json'?"},
                  {"show-config x.toml --rank 2", "did you mean '--ranks'?"},
                  {"frobnicate", "it knows "},
                  {"plugins inspect", "plugin is required"},
                  {"plugins inspect a b", "'b' follows"},
                  {"show-config x.toml --ranks many", "many"},
                  {"show-config x.toml --ranks", "--ranks"}};
  for (const auto& mistake : mistakes) {
    CAPTURE(mistake.arguments);
    const Outcome outcome = zerolab(mistake.arguments);
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    CHECK(outcome.err.starts_with("zerolab: error: "));
    CHECK(contains(outcome.err, mistake.says));
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  }
}

TEST_CASE("plugins list shows plugins, refused files and the places searched") {
  const Shell zerolab;
  zerolab.install_plain();
  host_test::write(zerolab.plugins / "text.so", "text");
  const Outcome list = zerolab("plugins list" + zerolab.path());
  CHECK(list.code == 0);
  CHECK(contains(list.out, "scheduler"));
  CHECK(contains(list.out, "always the same rate"));
  CHECK(contains(
      list.out, "refused:\n  " + (zerolab.plugins / "text.so").string() + " is no shared library"));
  CHECK(contains(list.out, zerolab.plugins.string() + " (--plugin-path)"));
  CHECK(contains(list.out, "(user folder, missing)"));
  const auto json = nlohmann::json::parse(zerolab("plugins list --json" + zerolab.path()).out);
  CHECK(plain_of(json)["version"] == "1.2.3");
  CHECK(plain_of(json)["file"] == (zerolab.plugins / "plain.so").string());
  CHECK(json["searched"][0]["refused"].size() == 1);
}

TEST_CASE("plugins inspect shows options, by name or by file, as text, JSON and TOML") {
  const Shell zerolab;
  zerolab.install_plain();
  const std::string file = " '" + (zerolab.plugins / "plain.so").string() + "'";
  const Outcome by_name = zerolab("plugins inspect scheduler/plain" + zerolab.path());
  CHECK(by_name.code == 0);
  CHECK(contains(by_name.out, "warmup_steps"));
  CHECK(contains(by_name.out, "at least 0"));
  CHECK(contains(by_name.out, "linear warmup from zero to lr\n"));
  CHECK(zerolab("plugins inspect" + file).out == by_name.out);
  const auto json = nlohmann::json::parse(zerolab("plugins inspect --json" + file).out);
  CHECK(json["options"][1]["name"] == "warmup_steps");
  CHECK(json["options"][1]["default"] == 100);
  CHECK(json["options"][5]["default"].is_null());
  CHECK(json["options"][1]["type"] == "int");
  CHECK(json["build"]["cxx11_abi"] == "1");
  CHECK(zerolab("plugins inspect --toml" + file)
            .out.starts_with("[scheduler]\nplugin = \"plain\"\n"));
  CHECK(zerolab("plugins inspect --toml --json" + file).code == 2);
}

TEST_CASE("a plugin that is not there is exit 3, a word that is neither id nor file exit 2") {
  const Shell zerolab;
  zerolab.install_plain();
  host_test::write(zerolab.root / "text.so", "text");
  const Outcome missing = zerolab("plugins inspect scheduler/plan" + zerolab.path());
  CHECK(missing.code == 3);
  CHECK(contains(missing.err, "nearest: 'scheduler/plain'"));
  const Outcome text = zerolab("plugins inspect '" + (zerolab.root / "text.so").string() + "'");
  CHECK(text.code == 3);
  CHECK(contains(text.err, "text.so is no shared library"));
  const Outcome neither = zerolab("plugins inspect nothing");
  CHECK(neither.code == 2);
  CHECK(contains(neither.err, "neither KIND/NAME"));
}

TEST_CASE("show-config reports mistakes with the exit code of a configuration") {
  const Shell zerolab;
  CHECK(zerolab("show-config '" + (zerolab.root / "missing.toml").string() + "'").code == 2);
  const Outcome ranks = zerolab("show-config x.toml --ranks 0");
  CHECK(ranks.code == 2);
  CHECK(contains(ranks.err, "--ranks must be at least 1, is 0"));
}

TEST_CASE("a reader that goes away is no error, a full disk is one") {
  const Shell zerolab;
  const std::string binary = "'" ZEROLAB_TEST_BINARY "' ";
  const std::string code = " 2>'" + (zerolab.root / "err").string() + "'; echo $? >'" +
                           (zerolab.root / "code").string() + "'";
  const std::string piped = "{ sleep 0.2; " + binary + "plugins list" + code + "; } | true";
  REQUIRE(std::system(piped.c_str()) == 0);
  CHECK(host_test::read(zerolab.root / "code") == "0\n");
  CHECK(host_test::read(zerolab.root / "err").empty());
  if (!fs::exists("/dev/full")) return;
  REQUIRE(std::system((binary + "plugins list >/dev/full" + code).c_str()) == 0);
  CHECK(host_test::read(zerolab.root / "code") == "1\n");
  CHECK(contains(host_test::read(zerolab.root / "err"), "cannot write to standard output"));
}
