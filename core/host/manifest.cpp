#include "host/manifest.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <string_view>
#include <utility>

#include "zerolab/error.h"
#include "zerolab/plugin.h"

#include "host/elf_section.h"

namespace zerolab {
namespace {

constexpr auto kHostText =
    detail::manifest<detail::write_manifest(nullptr, 0, nullptr)>(nullptr, 0);

constexpr std::array<std::string_view, 5> kMustBeEqual = {"torch", "layout", "cxx11_abi",
                                                          "glibcxx_debug", "sanitizers"};
constexpr std::array<std::string_view, 3> kMayDiffer = {"compiler", "build_type", "torch_build_id"};
constexpr std::string_view kMissing = "missing";

std::string field(const Manifest& manifest, std::string_view key) {
  const auto found = manifest.build.find(std::string(key));
  return found == manifest.build.end() ? std::string(kMissing) : found->second;
}

std::string difference(std::string_view key, const std::string& plugin, const std::string& host) {
  return std::string(key) + " is " + plugin + " in the plugin and " + host + " in this zerolab";
}

/// "1.0" to (1, 0); nullopt for anything else.
std::optional<std::pair<unsigned, unsigned>> parse_abi(std::string_view text) {
  unsigned major = 0, minor = 0;
  const char* end = text.data() + text.size();
  const auto [dot, first] = std::from_chars(text.data(), end, major);
  if (first != std::errc() || dot == end || *dot != '.') return std::nullopt;
  const auto [last, second] = std::from_chars(dot + 1, end, minor);
  if (second != std::errc() || last != end) return std::nullopt;
  return std::pair(major, minor);
}

bool abi_fits(const std::string& plugin, const std::string& host) {
  const auto theirs = parse_abi(plugin), ours = parse_abi(host);
  return theirs && ours && theirs->first == ours->first && theirs->second <= ours->second;
}

/// The kind that an id names, if the id is "kind/name" with a known kind.
std::optional<Kind> kind_of(std::string_view id) {
  const size_t slash = id.find('/');
  return slash == std::string_view::npos ? std::nullopt : kind_from_name(id.substr(0, slash));
}

bool is_id(std::string_view id) {
  if (!kind_of(id)) return false;
  const std::string_view name = id.substr(id.find('/') + 1);
  return !name.empty() && std::all_of(name.begin(), name.end(), detail::is_name_char);
}

std::string joined(const std::vector<std::string>& clauses) {
  std::string text;
  for (const std::string& clause : clauses) text += (text.empty() ? "" : "; ") + clause;
  return text;
}

}  // namespace

const Manifest& host_manifest() {
  static const Manifest manifest = parse_manifest({kHostText.data(), kHostText.size() - 1});
  return manifest;
}

std::optional<Manifest> read_manifest(const std::filesystem::path& file) {
  const std::optional<std::string> section = read_elf_section(file, kManifestSection);
  if (!section) return std::nullopt;
  // One text, ended by a zero; a linker may pad with more zeros.
  const std::string_view text(section->data(), std::min(section->find('\0'), section->size()));
  try {
    if (section->find_first_not_of('\0', text.size()) != std::string::npos) {
      throw PluginError("its manifest is damaged: more than one text");
    }
    return parse_manifest(text);
  } catch (const PluginError& error) {
    throw PluginError(file.string() + " is refused, because " + error.what() +
                      "; build or install it again.");
  }
}

ManifestDifferences compare_manifest(const Manifest& plugin, const Manifest& host) {
  ManifestDifferences found;
  const std::string abi = field(plugin, "sdk_abi"), host_abi = field(host, "sdk_abi");
  if (!abi_fits(abi, host_abi)) found.refusing.push_back(difference("sdk_abi", abi, host_abi));
  for (std::string_view key : kMustBeEqual) {
    const std::string theirs = field(plugin, key), ours = field(host, key);
    if (theirs != ours || theirs == kMissing) {
      found.refusing.push_back(difference(key, theirs, ours));
    }
  }
  for (const Manifest::Plugin& offered : plugin.plugins) {
    const std::optional<Kind> kind = kind_of(offered.id);
    if (!kind) continue;  // check_manifest has a sentence for it
    const int64_t revision = kKindRevisions[static_cast<size_t>(*kind)];
    if (offered.kind_revision != revision) {
      found.refusing.push_back(difference("kind_revision of " + offered.id,
                                          std::to_string(offered.kind_revision),
                                          std::to_string(revision)));
    }
  }
  for (std::string_view key : kMayDiffer) {
    const std::string theirs = field(plugin, key), ours = field(host, key);
    if (theirs != ours) found.informing.push_back(difference(key, theirs, ours));
  }
  return found;
}

void check_manifest(const std::filesystem::path& file, const Manifest& manifest) {
  const ManifestDifferences found = compare_manifest(manifest, host_manifest());
  if (!found.refusing.empty()) {
    throw PluginError(
        file.string() + " is refused before loading: " + joined(found.refusing) +
        "; rebuild it against this zerolab's SDK (cmake with find_package(zerolab)).");
  }
  if (manifest.plugins.empty()) {
    throw PluginError(file.string() + " is refused: its manifest offers no plugin.");
  }
  std::set<std::string_view> seen;
  for (const Manifest::Plugin& plugin : manifest.plugins) {
    if (!is_id(plugin.id)) {
      throw PluginError(file.string() + " is refused: its manifest offers '" + plugin.id +
                        "', but an id is KIND/NAME with a kind of this zerolab (model, data, "
                        "optimizer, sharding, precision, scheduler) and a name of [a-z0-9_].");
    }
    if (!seen.insert(plugin.id).second) {
      throw PluginError(file.string() + " is refused: its manifest offers '" + plugin.id +
                        "' twice.");
    }
  }
}

}  // namespace zerolab
