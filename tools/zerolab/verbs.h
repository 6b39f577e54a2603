#pragma once
// The verbs of `zerolab`, one file each, and the flags that several share.

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace zerolab {

struct PluginSearch;
class ExperimentFile;

/// What main gives every verb and takes back from it.
struct CommandLine {
  std::vector<std::string> arguments;  ///< as they were given, the program's name first
  int exit_code = 0;  ///< set by a verb that ends with another code without an error
};

/// Flags of every verb that looks for plugins.
struct PluginFlags {
  std::vector<std::string> plugin_path;
};
void add_plugin_flags(CLI::App& verb, PluginFlags& flags);
PluginSearch plugin_search(const PluginFlags& flags);

/// Flags of every verb that reads an experiment.
struct ExperimentFlags {
  PluginFlags plugins;
  std::string file;
  std::vector<std::string> overrides;  ///< "dotted.key=TOML value"
  int ranks = 1;
  bool trust_plugin_path = false;
};
void add_experiment_flags(CLI::App& verb, ExperimentFlags& flags);
/// All of them but the experiment itself.
void add_override_flags(CLI::App& verb, ExperimentFlags& flags);
/// The search path with the experiment's own entries.
PluginSearch plugin_search(const ExperimentFlags& flags, const ExperimentFile& file);

/// Each adds its subcommand, whose callback does the work. Errors: zerolab::Error, which main
/// prints.
void add_checkpoint(CLI::App& app, CommandLine& line);
void add_evaluate(CLI::App& app, CommandLine& line);
void add_export(CLI::App& app, CommandLine& line);
void add_fork(CLI::App& app, CommandLine& line);
void add_generate(CLI::App& app, CommandLine& line);
void add_import(CLI::App& app, CommandLine& line);
void add_plan(CLI::App& app, CommandLine& line);
void add_plugins(CLI::App& app, CommandLine& line);
void add_resume(CLI::App& app, CommandLine& line);
void add_run(CLI::App& app, CommandLine& line);
void add_show_config(CLI::App& app, CommandLine& line);
void add_tokenize(CLI::App& app, CommandLine& line);
void add_verify(CLI::App& app, CommandLine& line);

}  // namespace zerolab
