#include "host/plugin_host.h"

#include <sys/stat.h>

#include "zerolab/error.h"
#include "zerolab/scheduler.h"

#include "catch.h"
#include "fixture.h"

using host_test::contains;
using host_test::library;
using host_test::message_of;
using host_test::patched;
using host_test::put_copy;
using zerolab::Kind;
using zerolab::PluginError;
using zerolab::PluginHost;
using zerolab::SearchedDirectory;

namespace {

namespace fs = std::filesystem;

/// Folders to search, and nobody else's plugins.
struct Place {
  host_test::NoPluginsOfTheUser alone;
  host_test::Folder root;
  fs::path first = root.folder("first"), second = root.folder("second");
  PluginHost host() const { return PluginHost({{first, second}, {}, false}); }
};

std::string plain_bytes() {
  return host_test::read(library("zerolab_scheduler_plain"));
}

const SearchedDirectory& searched(const PluginHost& host, const fs::path& path) {
  for (const SearchedDirectory& directory : host.searched()) {
    if (directory.path == path) return directory;
  }
  throw std::runtime_error("not searched: " + path.string());
}

}  // namespace

TEST_CASE("plugins are found by their manifests, loaded when they are asked for, and made") {
  const Place place;
  put_copy(library("zerolab_scheduler_plain"), place.first / "a.so");
  put_copy(library("zerolab_scheduler_pair"), place.first / "b.so");
  PluginHost host = place.host();
  CHECK(host.names(Kind::kScheduler) ==
        std::vector<std::string>{"first_of_two", "plain", "second_of_two"});
  const auto* record = host.find(Kind::kScheduler, "plain");
  REQUIRE(record != nullptr);
  CHECK(record->id() == "scheduler/plain");
  CHECK(record->file == place.first / "a.so");
  CHECK(record->summary == "always the same rate");
  CHECK(host.schema(Kind::kScheduler, "plain")->find("warmup_steps") != nullptr);
  CHECK(host.schema(Kind::kModel, "plain") == nullptr);
  zerolab::Experiment experiment;
  experiment.plugins[static_cast<size_t>(Kind::kScheduler)].name = "second_of_two";
  CHECK(host.create<zerolab::Scheduler>(experiment)->lr(3) == 2);
}

TEST_CASE("scanning runs no code of a plugin, using it does") {
  const Place place;
  put_copy(library("zerolab_scheduler_plain"), place.first / "a.so");
  const fs::path trace = place.root / "trace";
  const host_test::Variable variable("ZEROLAB_TEST_TRACE", trace.string());
  PluginHost host = place.host();
  CHECK_FALSE(host.missing_message(Kind::kScheduler, "other").empty());
  CHECK_FALSE(fs::exists(trace));
  host.entry(Kind::kScheduler, "plain");
  CHECK(fs::exists(trace));
}

TEST_CASE("a plugin of another build is refused before any of its code runs") {
  const struct {
    std::string from, to, named;
  } builds[] = {
      {"sdk_abi = \"4.0\"", "sdk_abi = \"5.0\"", "sdk_abi is 5.0"},
      {"sdk_abi = \"4.0\"", "sdk_abi = \"4.9\"", "sdk_abi is 4.9"},
      {"\ntorch = \"2.", "\ntorch = \"1.", "torch is 1."},
      {"layout = \"", "layoot = \"", "layout is missing"},
      {"cxx11_abi = \"1\"", "cxx11_abi = \"0\"", "cxx11_abi is 0"},
      {"glibcxx_debug = false", "glibcxx_debug = true ", "glibcxx_debug is true"},
      {"kind_revision = 1", "kind_revision = 2", "kind_revision of scheduler/plain is 2"}};
  for (const auto& build : builds) {
    CAPTURE(build.to);
    const Place place;
    const fs::path trace = place.root / "trace";
    const host_test::Variable variable("ZEROLAB_TEST_TRACE", trace.string());
    const auto file =
        host_test::write(place.first / "a.so", patched(plain_bytes(), build.from, build.to));
    PluginHost host = place.host();
    REQUIRE(searched(host, place.first).refused.size() == 1);
    const std::string& refusal = searched(host, place.first).refused[0];
    CHECK(contains(refusal, file.string()));
    CHECK(contains(refusal, build.named));
    const auto use = [&] { host.entry(Kind::kScheduler, "plain"); };
    CHECK(message_of<PluginError>(use) == "plugin 'scheduler/plain' cannot be used: " + refusal);
    CHECK(message_of<PluginError>([&] { PluginHost::read_file(file); }) == refusal);
    CHECK_FALSE(fs::exists(trace));
  }
}

TEST_CASE("files that cannot be plugins are refused one by one, and the others are used") {
  const Place place;
  put_copy(library("zerolab_scheduler_plain"), place.first / "good.so");
  host_test::write(place.first / "empty.so", "");
  host_test::write(place.first / "text.so", "not a library\n");
  host_test::write(place.first / "cut.so", plain_bytes().substr(0, plain_bytes().size() / 2));
  host_test::write(place.first / "notes.txt", "no plugin, and not called one");
  REQUIRE(::mkfifo((place.first / "pipe.so").c_str(), 0600) == 0);
  fs::create_symlink("nowhere", place.first / "dangling.so");
  const PluginHost host = place.host();
  CHECK(host.find(Kind::kScheduler, "plain") != nullptr);
  const auto& refused = searched(host, place.first).refused;
  REQUIRE(refused.size() == 5);
  CHECK(contains(refused[0], "cut.so is a damaged or truncated library"));
  CHECK(contains(refused[1], "dangling.so cannot be opened"));
  CHECK(contains(refused[2], "empty.so is empty"));
  CHECK(contains(refused[3], "pipe.so is no regular file"));
  CHECK(contains(refused[4], "text.so is no shared library"));
}

TEST_CASE("a library without a manifest is passed over in a scan, and told so when it is named") {
  const Place place;
  const auto file = host_test::write(
      place.first / "a.so",
      patched(plain_bytes(), std::string("\0.zerolab\0", 10), std::string("\0.zerolob\0", 10)));
  CHECK(searched(place.host(), place.first).refused.empty());
  CHECK(place.host().find(Kind::kScheduler, "plain") == nullptr);
  CHECK(
      contains(message_of<PluginError>([&] { PluginHost::read_file(file); }), "no zerolab plugin"));
}

TEST_CASE("a table that offers other plugins than the manifest is refused") {
  const Place place;
  const auto file = host_test::write(
      place.first / "a.so",
      patched(plain_bytes(), "id = \"scheduler/plain\"", "id = \"scheduler/plein\""));
  const auto use = [&] { place.host().entry(Kind::kScheduler, "plein"); };
  const std::string message = message_of<PluginError>(use);
  CHECK(contains(message, file.string()));
  CHECK(contains(message, "its manifest offers scheduler/plein"));
  CHECK(contains(message, "has scheduler/plain"));
}

TEST_CASE("a table whose kinds or ids are wrong is refused") {
  for (const char* how : {"other kind", "other id"}) {
    const Place place;
    const host_test::Variable variable("ZEROLAB_TEST_ODD", how);
    put_copy(library("zerolab_scheduler_odd"), place.first / "a.so");
    const auto use = [&] { place.host().entry(Kind::kScheduler, "odd"); };
    CHECK(contains(message_of<PluginError>(use), "its manifest offers scheduler/odd"));
  }
}

TEST_CASE("two files of one directory that offer one plugin are an error that names both") {
  const Place place;
  put_copy(library("zerolab_scheduler_plain"), place.first / "a.so");
  fs::create_symlink("a.so", place.first / "link.so");
  CHECK_NOTHROW(place.host());  // the same file by another name
  put_copy(library("zerolab_scheduler_plain"), place.first / "b.so");
  const std::string message = message_of<PluginError>([&] { place.host(); });
  CHECK(contains(message, "a.so"));
  CHECK(contains(message, "b.so"));
  CHECK(contains(message, "scheduler/plain"));
}

TEST_CASE("of two directories that offer one plugin the earlier wins and says so") {
  const Place place;
  put_copy(library("zerolab_scheduler_plain"), place.first / "a.so");
  put_copy(library("zerolab_scheduler_plain"), place.second / "b.so");
  const PluginHost host = place.host();
  CHECK(host.find(Kind::kScheduler, "plain")->file == place.first / "a.so");
  REQUIRE(searched(host, place.second).notes.size() == 1);
  CHECK(contains(searched(host, place.second).notes[0], "a.so comes earlier"));
}

TEST_CASE("differences that do no harm are noted") {
  const Place place;
  host_test::write(place.first / "a.so",
                   patched(plain_bytes(), "\ncompiler = \"", "\ncompilar = \""));
  const PluginHost host = place.host();
  CHECK(host.find(Kind::kScheduler, "plain") != nullptr);
  REQUIRE(searched(host, place.first).notes.size() == 1);
  CHECK(contains(searched(host, place.first).notes[0], "compiler is missing"));
}

TEST_CASE("files and directories that others may write to are refused") {
  const Place place;
  const auto file = put_copy(library("zerolab_scheduler_plain"), place.first / "a.so");
  REQUIRE(::chmod(file.c_str(), 0666) == 0);
  PluginHost host = place.host();
  CHECK(host.find(Kind::kScheduler, "plain") == nullptr);
  CHECK(contains(host.missing_message(Kind::kScheduler, "plain"), "chmod go-w"));
  REQUIRE(::chmod(file.c_str(), 0644) == 0);
  CHECK(place.host().find(Kind::kScheduler, "plain") != nullptr);
  REQUIRE(::chmod(place.first.c_str(), 0777) == 0);
  host = place.host();
  CHECK(host.find(Kind::kScheduler, "plain") == nullptr);
  CHECK(contains(searched(host, place.first).refused.at(0), "chmod go-w"));
}

TEST_CASE("an experiment's own directory is used only if it is trusted") {
  const Place place;
  put_copy(library("zerolab_scheduler_plain"), place.first / "a.so");
  PluginHost wary({{}, {place.first}, false});
  CHECK(wary.find(Kind::kScheduler, "plain") == nullptr);
  CHECK(contains(wary.missing_message(Kind::kScheduler, "plain"), "--trust-plugin-path"));
  CHECK(contains(wary.missing_message(Kind::kScheduler, "plain"),
                 "(the experiment's plugin_path, not trusted)"));
  CHECK(PluginHost({{}, {place.first}, true}).find(Kind::kScheduler, "plain") != nullptr);
}

TEST_CASE(
    "a missing plugin is answered with the nearest, the installed, the searched and the refused") {
  const Place place;
  put_copy(library("zerolab_scheduler_plain"), place.first / "a.so");
  host_test::write(place.first / "text.so", "text");
  fs::remove(place.second);
  const std::string message = place.host().missing_message(Kind::kScheduler, "plan");
  CHECK(contains(message, "no plugin 'scheduler/plan' is installed"));
  CHECK(contains(message, "nearest: 'scheduler/plain'"));
  CHECK(contains(message, "installed scheduler plugins: plain"));
  CHECK(contains(message, place.first.string() + " (--plugin-path, 1 plugin)"));
  CHECK(contains(message, place.second.string() + " (--plugin-path, missing)"));
  CHECK(contains(message,
                 "refused: " + (place.first / "text.so").string() + " is no shared library"));
  CHECK(message.ends_with("."));
  CHECK(
      contains(place.host().missing_message(Kind::kModel, "plain"), "nearest: 'scheduler/plain'"));
  CHECK(contains(place.host().missing_message(Kind::kModel, "x"), "installed model plugins: none"));
}

TEST_CASE("a file that was replaced since the scan is checked again") {
  const Place place;
  const auto file = put_copy(library("zerolab_scheduler_plain"), place.first / "a.so");
  PluginHost host = place.host();
  fs::remove(file);
  host_test::write(file, patched(plain_bytes(), "sdk_abi = \"4.0\"", "sdk_abi = \"5.0\""));
  CHECK(contains(message_of<PluginError>([&] { host.entry(Kind::kScheduler, "plain"); }),
                 "sdk_abi is 5.0"));
  fs::remove(file);
  CHECK(contains(message_of<PluginError>([&] { host.entry(Kind::kScheduler, "plain"); }),
                 "No such file"));
}
