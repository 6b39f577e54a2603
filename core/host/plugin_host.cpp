#include "host/plugin_host.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <set>
#include <system_error>

#include "zerolab/error.h"

#include "host/loaded_library.h"
#include "host/manifest.h"
#include "host/search_path.h"
#include "host/torch_version.h"

namespace zerolab {
namespace {

namespace fs = std::filesystem;

std::vector<PluginRecord> records_of(const Manifest& manifest, const fs::path& file) {
  std::vector<PluginRecord> records;
  for (const Manifest::Plugin& plugin : manifest.plugins) {
    const size_t slash = plugin.id.find('/');
    records.push_back({*kind_from_name(std::string_view(plugin.id).substr(0, slash)),
                       plugin.id.substr(slash + 1), plugin.version, plugin.summary, plugin.source,
                       file, manifest.build});
  }
  return records;
}

/// May code of this file run? Errors: PluginError.
void check_file(const fs::path& file, const Manifest& manifest) {
  const std::string unsafe = unsafe_reason(file);
  if (!unsafe.empty()) throw PluginError(unsafe);
  check_manifest(file, manifest);
}

/// What the library says of itself must be what its manifest promised.
void check_table(const fs::path& file, const Manifest& manifest, const PluginTable& table) {
  std::string promised, given;
  for (const Manifest::Plugin& plugin : manifest.plugins) promised.append(" ").append(plugin.id);
  bool kinds_fit = true;
  for (size_t i = 0; i < table.num_entries; ++i) {
    const PluginEntry& entry = table.entries[i];
    given.append(" ").append(entry.id);
    kinds_fit = kinds_fit && entry.id.starts_with(kind_name(entry.kind));
  }
  if (promised == given && kinds_fit) return;
  throw PluginError(file.string() + " is refused: its manifest offers" + promised +
                    ", but its plugin table" + (kinds_fit ? "" : ", with kinds that do not fit,") +
                    " has" + given + "; rebuild it against this zerolab's SDK.");
}

/// An option must be writable as a key of the kind's table, beside the reserved word `plugin`.
void check_options(const PluginRecord& record, const OptionSchema& schema) {
  std::set<std::string_view> seen;
  for (const OptionField& field : schema.fields()) {
    const bool is_name = !field.name.empty() &&
                         std::all_of(field.name.begin(), field.name.end(), detail::is_name_char);
    if (!is_name || field.name == "plugin" || !seen.insert(field.name).second) {
      throw PluginError("plugin " + record.id() + " in " + record.file.string() +
                        " describes an option '" + field.name +
                        "', but an option's name is made of [a-z0-9_], occurs once, and is not "
                        "'plugin'; this is for its author to mend.");
    }
  }
}

/// What a directory gave: "3 plugins", "missing", "not trusted".
std::string outcome(const SearchedDirectory& directory, const std::vector<PluginRecord>& records) {
  if (directory.untrusted) return "not trusted";
  if (!directory.exists) return "missing";
  const auto count = std::count_if(records.begin(), records.end(), [&](const PluginRecord& record) {
    return record.file.parent_path() == directory.path;
  });
  return std::to_string(count) + (count == 1 ? " plugin" : " plugins");
}

std::string without_period(std::string sentence) {
  if (sentence.ends_with('.')) sentence.pop_back();
  return sentence;
}

std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : std::string(separator)) + word;
  return text;
}

}  // namespace

PluginHost::PluginHost(const PluginSearch& search) {
  require_built_torch();
  for (const SearchPlace& place : search_places(search)) scan_directory(place);
  std::sort(records_.begin(), records_.end(), [](const PluginRecord& a, const PluginRecord& b) {
    return a.kind != b.kind ? a.kind < b.kind : a.name < b.name;
  });
}

PluginHost::~PluginHost() = default;

void PluginHost::scan_directory(const SearchPlace& place) {
  SearchedDirectory& directory = searched_.emplace_back();
  directory.path = place.path;
  directory.origin = place.origin;
  std::error_code failed;
  directory.exists = fs::exists(place.path, failed);
  directory.untrusted = !place.trusted;
  if (directory.untrusted) {
    directory.notes.push_back(place.path.string() +
                              " is not used: an experiment's own plugin_path can run any code of "
                              "its author; if you trust it, add --trust-plugin-path");
    return;
  }
  if (!directory.exists) return;
  const std::string unsafe = unsafe_reason(place.path);
  if (!unsafe.empty()) {
    directory.refused.push_back(unsafe);
    return;
  }
  std::vector<fs::path> files;
  for (fs::directory_iterator it(place.path, failed), end; !failed && it != end;
       it.increment(failed)) {
    if (it->path().extension() == ".so") files.push_back(it->path());
  }
  if (failed) {
    directory.refused.push_back(place.path.string() +
                                " cannot be read as a directory: " + failed.message() + ".");
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) scan_file(directory, file);
}

void PluginHost::scan_file(SearchedDirectory& directory, const fs::path& file) {
  std::optional<Manifest> manifest;
  try {
    manifest = read_manifest(file);
    if (!manifest) return;  // a library, but no plugin
    check_file(file, *manifest);
  } catch (const PluginError& error) {
    directory.refused.emplace_back(error.what());
    if (!manifest) return;
    for (const Manifest::Plugin& plugin : manifest->plugins) {
      refused_ids_.emplace(plugin.id, error.what());
    }
    return;
  }
  const ManifestDifferences found = compare_manifest(*manifest, host_manifest());
  if (!found.informing.empty()) {
    directory.notes.push_back(file.string() + ": " + joined(found.informing, "; "));
  }
  for (PluginRecord& record : records_of(*manifest, file)) add(directory, std::move(record));
}

void PluginHost::add(SearchedDirectory& directory, PluginRecord record) {
  const PluginRecord* const first = find(record.kind, record.name);
  if (first == nullptr) {
    records_.push_back(std::move(record));
    return;
  }
  std::error_code failed;
  if (fs::equivalent(first->file, record.file, failed)) return;  // a link to it
  if (first->file.parent_path() == record.file.parent_path()) {
    throw PluginError("both " + first->file.string() + " and " + record.file.string() +
                      " offer the plugin " + record.id() + "; remove one of them.");
  }
  directory.notes.push_back(record.id() + " in " + record.file.string() +
                            " is not used: " + first->file.string() + " comes earlier");
}

const PluginRecord* PluginHost::find(Kind kind, std::string_view name) const {
  for (const PluginRecord& record : records_) {
    if (record.kind == kind && record.name == name) return &record;
  }
  return nullptr;
}

std::vector<PluginRecord> PluginHost::read_file(const fs::path& file) {
  const fs::path absolute = fs::absolute(file).lexically_normal();
  const std::optional<Manifest> manifest = read_manifest(absolute);
  if (!manifest) {
    throw PluginError(absolute.string() +
                      " is a shared library but no zerolab plugin (it has no section " +
                      std::string(kManifestSection) + ").");
  }
  check_file(absolute, *manifest);
  return records_of(*manifest, absolute);
}

const PluginEntry& PluginHost::load(const PluginRecord& record) {
  const std::optional<Manifest> manifest = read_manifest(record.file);
  if (!manifest) throw PluginError(record.file.string() + " is no zerolab plugin any more.");
  check_file(record.file, *manifest);
  const PluginTable& table = load_plugin_table(record.file);
  check_table(record.file, *manifest, table);
  for (size_t i = 0; i < table.num_entries; ++i) {
    if (table.entries[i].id == record.id()) return table.entries[i];
  }
  throw PluginError(record.file.string() + " does not offer " + record.id() + " any more.");
}

const OptionSchema& PluginHost::describe(const PluginRecord& record) {
  const PluginEntry& entry = load(record);
  const OptionSchema* schema = nullptr;
  try {
    schema = &entry.schema();
  } catch (const std::exception& error) {
    throw PluginError("plugin " + record.id() + " in " + record.file.string() +
                      " failed while it described its options: " + error.what());
  }
  check_options(record, *schema);
  return *schema;
}

const PluginEntry& PluginHost::entry(Kind kind, std::string_view name) {
  const PluginRecord* const record = find(kind, name);
  if (record == nullptr) throw PluginError(missing_message(kind, name));
  return load(*record);
}

const OptionSchema* PluginHost::schema(Kind kind, std::string_view name) {
  const PluginRecord* const record = find(kind, name);
  return record == nullptr ? nullptr : &describe(*record);
}

std::vector<std::string> PluginHost::names(Kind kind) {
  std::vector<std::string> found;
  for (const PluginRecord& record : records_) {
    if (record.kind == kind) found.push_back(record.name);
  }
  return found;
}

/// A name of the kind that is spelled nearly so; else a plugin of another kind that is called
/// exactly so.
std::string PluginHost::nearest_id(Kind kind, std::string_view name) {
  const std::string near = nearest(name, names(kind));
  if (!near.empty()) return std::string(kind_name(kind)) + "/" + near;
  for (const PluginRecord& record : records_) {
    if (record.name == name) return record.id();
  }
  return "";
}

std::string PluginHost::missing_message(Kind kind, std::string_view name) {
  const std::string id = std::string(kind_name(kind)) + "/" + std::string(name);
  const auto refusal = refused_ids_.find(id);
  if (refusal != refused_ids_.end()) {
    return "plugin '" + id + "' cannot be used: " + refusal->second;
  }
  std::string message = "no plugin '" + id + "' is installed";
  const std::string near = nearest_id(kind, name);
  if (!near.empty()) message += "; nearest: '" + near + "'";
  const std::vector<std::string> installed = names(kind);
  message += "; installed " + std::string(kind_name(kind)) +
             " plugins: " + (installed.empty() ? "none" : joined(installed, ", "));
  std::vector<std::string> places, refused, unused;
  for (const SearchedDirectory& directory : searched_) {
    places.push_back(directory.path.string() + " (" + directory.origin + ", " +
                     outcome(directory, records_) + ")");
    for (const std::string& sentence : directory.refused) {
      refused.push_back(without_period(sentence));
    }
    if (directory.untrusted) unused.push_back(directory.notes.front());
  }
  message += "; searched: " + joined(places, ", ");
  if (!refused.empty()) message += "; refused: " + joined(refused, "; ");
  if (!unused.empty()) message += "; " + joined(unused, "; ");
  return message + ".";
}

}  // namespace zerolab
