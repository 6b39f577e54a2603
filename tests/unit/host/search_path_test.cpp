#include "host/search_path.h"

#include <pwd.h>
#include <unistd.h>

#include "catch.h"
#include "fixture.h"
#include "host/plugin_host.h"

using host_test::contains;
using zerolab::is_private_group;
using zerolab::PluginSearch;
using zerolab::search_places;
using zerolab::unsafe_reason;

TEST_CASE("places come in the documented order") {
  const host_test::Folder folder;
  const host_test::Variable data("XDG_DATA_HOME", (folder / "data").string());
  const host_test::Variable path("ZEROLAB_PLUGIN_PATH", ":" + (folder / "third").string() + "::" +
                                                            (folder / "fourth").string() + ":");
  PluginSearch search;
  search.from_command_line = {folder / "first"};
  search.from_experiment = {folder / "second"};
  search.trust_experiment = true;
  const auto places = search_places(search);
  REQUIRE(places.size() == 6);
  CHECK(places[0].path == folder / "first");
  CHECK(places[0].origin == "--plugin-path");
  CHECK(places[1].path == folder / "second");
  CHECK(places[1].origin == "the experiment's plugin_path");
  CHECK(places[2].path == folder / "third");
  CHECK(places[3].path == folder / "fourth");
  CHECK(places[3].origin == "ZEROLAB_PLUGIN_PATH");
  CHECK(places[4].path == folder / "data/zerolab/plugins");
  CHECK(places[5].path.is_absolute());
}

TEST_CASE("the experiment's own places are not trusted unless the user says so") {
  const host_test::NoPluginsOfTheUser alone;
  PluginSearch search;
  search.from_experiment = {"/experiment"};
  CHECK_FALSE(search_places(search)[0].trusted);
  search.trust_experiment = true;
  CHECK(search_places(search)[0].trusted);
}

TEST_CASE("a place that the user names himself is trusted, whatever the experiment names") {
  const host_test::NoPluginsOfTheUser alone;
  const host_test::Variable path("ZEROLAB_PLUGIN_PATH", "/same");
  PluginSearch search;
  search.from_experiment = {"/same"};
  const auto places = search_places(search);
  CHECK_FALSE(places[0].trusted);
  CHECK(places[1].path == "/same");
  CHECK(places[1].trusted);
}

TEST_CASE("a directory that comes twice keeps its first place, also through a link") {
  const host_test::NoPluginsOfTheUser alone;
  const host_test::Folder folder;
  std::filesystem::create_directory_symlink(folder.folder("real"), folder / "link");
  PluginSearch search;
  search.from_command_line = {folder / "real", folder / "link", folder / "real/",
                              folder / "missing/../real"};
  const auto places = search_places(search);
  CHECK(places[0].path == folder / "real");
  CHECK(places[1].origin == "user folder");
}

TEST_CASE("without XDG_DATA_HOME the user's folder is under the home folder") {
  const host_test::Variable path("ZEROLAB_PLUGIN_PATH", "");
  const host_test::Variable home("HOME", "/home/somebody");
  for (const char* unusable : {"", "relative/data"}) {
    const host_test::Variable data("XDG_DATA_HOME", unusable);
    CHECK(search_places({})[0].path == "/home/somebody/.local/share/zerolab/plugins");
  }
}

TEST_CASE("what everyone may write to is unsafe, and the sentence says what to run") {
  const host_test::Folder folder;
  const auto file = host_test::write(folder / "it's.so", "x");
  CHECK(unsafe_reason(file).empty());
  CHECK(unsafe_reason(folder.folder("safe")).empty());
  CHECK(unsafe_reason(folder / "missing").empty());
  REQUIRE(::chmod(file.c_str(), 0646) == 0);
  const std::string reason = unsafe_reason(file);
  CHECK(contains(reason, "everyone may write to it"));
  CHECK(contains(reason, "chmod go-w '" + folder.path().string() + "/it'\\''s.so'"));
  REQUIRE(::chmod(folder.path().c_str(), 01777) == 0);
  CHECK_FALSE(unsafe_reason(folder.path()).empty());
}

TEST_CASE("what a group may write to is unsafe unless the group is its owner's alone") {
  const host_test::Folder folder;
  const auto file = host_test::write(folder / "x.so", "x");
  REQUIRE(::chmod(file.c_str(), 0664) == 0);
  struct stat status {};
  REQUIRE(::stat(file.c_str(), &status) == 0);
  CHECK(unsafe_reason(file).empty() == is_private_group(status.st_gid, status.st_uid));
  CHECK_FALSE(is_private_group(0, 0));
  const passwd* const daemon = ::getpwnam("daemon");
  if (daemon == nullptr) return;
  const uid_t uid = daemon->pw_uid;
  CHECK_FALSE(is_private_group(daemon->pw_gid + 1, uid));
  CHECK_FALSE(is_private_group(daemon->pw_gid, uid + 1));
}

TEST_CASE("what belongs to somebody else is unsafe") {
  if (::geteuid() != 0) return;  // only root can give a file away
  const host_test::Folder folder;
  const auto file = host_test::write(folder / "x.so", "x");
  REQUIRE(::chown(file.c_str(), 65534, 65534) == 0);
  const std::string reason = unsafe_reason(file);
  CHECK(contains(reason, "and not to you or root"));
  CHECK(contains(reason, "chown 0 '" + file.string() + "'"));
}
