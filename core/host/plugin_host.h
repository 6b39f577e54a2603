#pragma once
// Finds, checks and loads plugins. A file's manifest is read from its ELF section and compared with the host's own before any
// code of it runs; libraries are loaded bound now and local, and never unloaded.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "experiment/experiment.h"
#include "zerolab/kind.h"
#include "zerolab/plugin.h"

namespace zerolab {

/// A plugin as its manifest describes it.
struct PluginRecord {
  Kind kind = Kind::kModel;
  std::string name, version, summary, source;
  std::filesystem::path file;
  std::string id() const { return std::string(kind_name(kind)) + "/" + name; }
};

/// A directory of the search path; or why it, or a file in it, was not used.
struct SearchedDirectory {
  std::filesystem::path path;
  std::string origin;                  ///< "--plugin-path", "ZEROLAB_PLUGIN_PATH", ...
  bool exists = false;
  std::vector<std::string> refused;    ///< one sentence a file, naming it
  std::vector<std::string> notes;      ///< shadowed ids and differences that only inform
};

struct PluginSearch {
  std::vector<std::filesystem::path> from_command_line;
  std::vector<std::filesystem::path> from_experiment;
  bool trust_experiment = false;  ///< --trust-plugin-path
};

class PluginHost : public PluginCatalogue {
 public:
  /// [setup] Scans the search path: --plugin-path, the experiment's (if trusted), ZEROLAB_PLUGIN_PATH, the user's folder,
  /// the installed (or build tree's) folder. Errors: PluginError if one directory offers an id twice.
  explicit PluginHost(const PluginSearch& search);
  ~PluginHost() override;

  const std::vector<PluginRecord>& records() const { return records_; }  ///< by kind, then name
  const std::vector<SearchedDirectory>& searched() const { return searched_; }
  const PluginRecord* find(Kind kind, std::string_view name) const;

  /// The table entry of a plugin; loads its library. Errors: PluginError (missing, refused, a wrong table).
  const PluginEntry& entry(Kind kind, std::string_view name);

  /// Makes the chosen plugin of an interface's kind.
  template <class Interface>
  std::unique_ptr<Interface> create(const Experiment& experiment) {
    const PluginChoice& choice = experiment.plugin(Interface::kKind);
    return std::unique_ptr<Interface>(static_cast<Interface*>(entry(Interface::kKind, choice.name).create(choice.options)));
  }

  // PluginCatalogue
  const OptionSchema* schema(Kind kind, std::string_view name) override;
  std::vector<std::string> names(Kind kind) override;
  std::string missing_message(Kind kind, std::string_view name) override;

 private:
  std::vector<PluginRecord> records_;
  std::vector<SearchedDirectory> searched_;
};

}  // namespace zerolab
