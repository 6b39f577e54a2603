#pragma once
// Finds, checks and loads plugins. A file's manifest is read from its ELF section and compared
// with the host's own before any code of it runs; libraries are loaded bound now and local, and
// never unloaded.

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "zerolab/kind.h"
#include "zerolab/plugin.h"

#include "experiment/experiment.h"

namespace zerolab {

struct Manifest;
struct SearchPlace;

/// A plugin as its manifest describes it.
struct PluginRecord {
  Kind kind = Kind::kModel;
  std::string name, version, summary, source;
  std::filesystem::path file;                ///< absolute
  std::map<std::string, std::string> build;  ///< what the file was built with, as its manifest says
  std::string id() const { return std::string(kind_name(kind)) + "/" + name; }
};

/// A directory of the search path; or why it, or a file in it, was not used.
struct SearchedDirectory {
  std::filesystem::path path;
  std::string origin;  ///< "--plugin-path", "ZEROLAB_PLUGIN_PATH", ...
  bool exists = false;
  bool untrusted = false;            ///< the experiment's own, not used without --trust-plugin-path
  std::vector<std::string> refused;  ///< one sentence a file, naming it
  std::vector<std::string> notes;    ///< shadowed ids and differences that only inform
};

struct PluginSearch {
  std::vector<std::filesystem::path> from_command_line;
  std::vector<std::filesystem::path> from_experiment;
  bool trust_experiment = false;  ///< --trust-plugin-path
};

class PluginHost : public PluginCatalogue {
 public:
  /// [setup] Scans the search path: --plugin-path, the experiment's (if trusted),
  /// ZEROLAB_PLUGIN_PATH, the user's folder, the installed (or build tree's) folder. Reads
  /// manifests only. Errors: PluginError if one directory offers an id twice, or if another
  /// LibTorch is loaded than this host was built with.
  explicit PluginHost(const PluginSearch& search);
  ~PluginHost() override;

  const std::vector<PluginRecord>& records() const { return records_; }  ///< by kind, then name
  const std::vector<SearchedDirectory>& searched() const { return searched_; }
  const PluginRecord* find(Kind kind, std::string_view name) const;

  /// The table entry of a plugin; loads its library. Errors: PluginError (missing, refused, a wrong
  /// table).
  const PluginEntry& entry(Kind kind, std::string_view name);

  /// Makes the chosen plugin of an interface's kind.
  template <class Interface>
  std::unique_ptr<Interface> create(const Experiment& experiment) {
    const PluginChoice& choice = experiment.plugin(Interface::kKind);
    return std::unique_ptr<Interface>(
        static_cast<Interface*>(entry(Interface::kKind, choice.name).create(choice.options)));
  }

  /// The plugins of one named file, from its manifest alone.
  /// Errors: PluginError: no such file, no library, no manifest in it, refused.
  static std::vector<PluginRecord> read_file(const std::filesystem::path& file);
  /// Loads the library of a record and finds its table entry. The file is checked again first: it
  /// may have been replaced. Errors: PluginError.
  static const PluginEntry& load(const PluginRecord& record);
  /// Loads the library of a record and gives the options that it describes.
  /// Errors: PluginError, also for options that cannot be written in an experiment.
  static const OptionSchema& describe(const PluginRecord& record);

  // PluginCatalogue
  const OptionSchema* schema(Kind kind, std::string_view name) override;
  std::vector<std::string> names(Kind kind) override;
  std::string missing_message(Kind kind, std::string_view name) override;

 private:
  void scan_directory(const SearchPlace& place);
  void scan_file(SearchedDirectory& directory, const std::filesystem::path& file);
  void add(SearchedDirectory& directory, PluginRecord record);
  std::string nearest_id(Kind kind, std::string_view name);

  std::vector<PluginRecord> records_;
  std::vector<SearchedDirectory> searched_;
  std::map<std::string, std::string>
      refused_ids_;  ///< the sentence for an id that only a refused file offers
};

}  // namespace zerolab
