#include "host/manifest.h"

#include <random>

#include "zerolab/error.h"

#include "catch.h"
#include "fixture.h"

using host_test::contains;
using host_test::message_of;
using zerolab::Manifest;
using zerolab::PluginError;

namespace {

Manifest plain_manifest() {
  return *zerolab::read_manifest(host_test::library("zerolab_scheduler_plain"));
}

std::string refusal(const Manifest& manifest) {
  return message_of<PluginError>([&] { zerolab::check_manifest("/x.so", manifest); });
}

}  // namespace

TEST_CASE("a manifest tells what a file was built with and what it offers") {
  const Manifest manifest = plain_manifest();
  REQUIRE(manifest.plugins.size() == 1);
  CHECK(manifest.plugins[0].id == "scheduler/plain");
  CHECK(manifest.plugins[0].version == "1.2.3");
  CHECK(manifest.plugins[0].summary == "always the same rate");
  CHECK(manifest.plugins[0].source == "a source");
  CHECK(manifest.plugins[0].kind_revision == 1);
  CHECK(manifest.build.at("glibcxx_debug") == "false");
  CHECK(manifest.build.at("layout").size() == 16);
  CHECK(manifest.build == zerolab::host_manifest().build);
  CHECK(refusal(manifest).empty());
}

TEST_CASE(
    "every field that must fit refuses, and the sentence has both values and how to rebuild") {
  for (const std::string key :
       {"sdk_abi", "torch", "layout", "cxx11_abi", "glibcxx_debug", "sanitizers"}) {
    CAPTURE(key);
    Manifest manifest = plain_manifest();
    const std::string ours = manifest.build.at(key);
    manifest.build[key] = "another";
    const std::string message = refusal(manifest);
    CHECK(contains(message, "/x.so"));
    CHECK(contains(message, key + " is another in the plugin and " + ours + " in this zerolab"));
    CHECK(contains(message, "find_package(zerolab)"));
    manifest.build.erase(key);
    CHECK(contains(refusal(manifest), key + " is missing in the plugin"));
  }
}

TEST_CASE("a refusal names all differing fields at once") {
  Manifest manifest = plain_manifest();
  manifest.build["torch"] = "2.99.0";
  manifest.build["layout"] = "0123456789abcdef";
  manifest.plugins[0].kind_revision = 7;
  const std::string message = refusal(manifest);
  CHECK(contains(message, "torch is 2.99.0"));
  CHECK(contains(message, "layout is 0123456789abcdef"));
  CHECK(contains(message,
                 "kind_revision of scheduler/plain is 7 in the plugin and 1 in this zerolab"));
  CHECK_FALSE(contains(message, "sdk_abi"));
}

TEST_CASE("an SDK ABI fits if the major is the same and the minor not newer than the host's") {
  Manifest host = plain_manifest();
  host.build["sdk_abi"] = "3.5";
  Manifest plugin = host;
  const auto fits = [&](const std::string& abi) {
    plugin.build["sdk_abi"] = abi;
    return zerolab::compare_manifest(plugin, host).refusing.empty();
  };
  CHECK(fits("3.5"));
  CHECK(fits("3.0"));
  CHECK_FALSE(fits("3.6"));
  CHECK_FALSE(fits("3.10"));
  CHECK_FALSE(fits("2.5"));
  CHECK_FALSE(fits("4.0"));
  for (const char* damaged :
       {"", "3", "3.", ".5", "3.5x", "3.5.1", "-3.5", "3,5", "99999999999.0"}) {
    CAPTURE(damaged);
    CHECK_FALSE(fits(damaged));
  }
}

TEST_CASE("another compiler, build type or LibTorch build only informs") {
  Manifest manifest = plain_manifest();
  for (const std::string key : {"compiler", "build_type", "torch_build_id"})
    manifest.build[key] = "another";
  CHECK(refusal(manifest).empty());
  CHECK(zerolab::compare_manifest(manifest, zerolab::host_manifest()).informing.size() == 3);
}

TEST_CASE("a manifest must offer something, under ids that this zerolab knows") {
  Manifest manifest = plain_manifest();
  const Manifest::Plugin plugin = manifest.plugins[0];
  manifest.plugins.clear();
  CHECK(contains(refusal(manifest), "offers no plugin"));
  manifest.plugins = {plugin, plugin};
  CHECK(contains(refusal(manifest), "'scheduler/plain' twice"));
  for (const char* id : {"", "scheduler", "scheduler/", "scheduler/Plain", "tokenizer/plain",
                         "/plain", "scheduler/../plain", "scheduler/a b"}) {
    CAPTURE(id);
    manifest.plugins = {plugin};
    manifest.plugins[0].id = id;
    CHECK(contains(refusal(manifest), "KIND/NAME"));
  }
}

TEST_CASE("a damaged manifest text is a clause, never a crash") {
  const auto clause = [](std::string_view text) {
    return message_of<PluginError>([&] { zerolab::parse_manifest(text); });
  };
  for (const char* text :
       {"", "x", "[build", "build = 1", "[build]\na = [1]", "[build]\na = 1.5",
        "[build]\nplugin = 1\n[plugin]\n", "plugin = [1]\n[build]\n", "[build]\n[[plugin]]\n",
        "[build]\n[[plugin]]\nid = 1", "[build]\n\xff\xfe"}) {
    CAPTURE(text);
    CHECK(contains(clause(text), "its manifest is damaged"));
  }
  const std::string good = "[build]\n[[plugin]]\nid='a'\nversion='b'\nsummary='c'\nsource='d'\n";
  CHECK(contains(clause(good + "kind_revision = '1'"), "kind_revision"));
  CHECK(clause(good + "kind_revision = 1").empty());
  CHECK(contains(clause("[build]\ncompiler = \"\\u001b[2J\""), "control character"));
  CHECK(contains(clause("[build]\n\"a\\u001b\" = 1"), "control character"));
  CHECK_FALSE(clause(std::string(100000, '[')).empty());
}

TEST_CASE("damage inside the section of a file is reported with the file") {
  const std::string whole = host_test::read(host_test::library("zerolab_scheduler_plain"));
  const host_test::Folder folder;
  const auto refusal_of = [&](const std::string& bytes) {
    const auto file = host_test::write(folder / "x.so", bytes);
    return message_of<PluginError>([&] { zerolab::read_manifest(file); });
  };
  const std::string broken = refusal_of(host_test::patched(whole, "[build]\n", "[build}\n"));
  CHECK(contains(broken, (folder / "x.so").string()));
  CHECK(contains(broken, "its manifest is damaged: line 1"));
  CHECK(contains(
      refusal_of(host_test::patched(whole, "[[plugin]]\n", std::string("\0[plugin]]\n", 11))),
      "more than one text"));
}

TEST_CASE("flipped bytes in the manifest end in a sentence or in a manifest") {
  const std::string whole = host_test::read(host_test::library("zerolab_scheduler_plain"));
  const size_t start = whole.find("[build]\n");
  const size_t length = whole.find("kind_revision = 1", start) + 18 - start;
  const host_test::Folder folder;
  std::mt19937 random(7);
  size_t refused = 0, accepted = 0;
  for (int round = 0; round < 300; ++round) {
    std::string bytes = whole;
    bytes[start + random() % length] ^= static_cast<char>(1 + random() % 255);
    const auto file = host_test::write(folder / "x.so", bytes);
    const std::string message = message_of<PluginError>([&] {
      const auto manifest = zerolab::read_manifest(file);
      if (manifest) zerolab::check_manifest(file, *manifest);
    });
    (message.empty() ? accepted : refused) += 1;
  }
  CHECK(refused > 30);
  CHECK(accepted > 5);  // a summary or a compiler that reads otherwise
}
