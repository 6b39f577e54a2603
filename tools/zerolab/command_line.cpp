#include "command_line.h"

#include <vector>

#include "experiment/experiment.h"
#include "host/plugin_host.h"
#include "verbs.h"

namespace zerolab {
namespace {

/// The verb that was reached before the mistake.
const CLI::App& deepest(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : full_name(*app.get_parent()) + " " + app.get_name();
}

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
  }
  return names;
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string see_help(const CLI::App& app) {
  return "; see: " + full_name(app) + " --help.";
}

}  // namespace

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& at = deepest(app);
  const std::vector<std::string> unknown = app.remaining(true);
  if (unknown.empty()) {
    std::string text = error.what();
    while (text.ends_with('\n') || text.ends_with('.')) text.pop_back();
    return text + see_help(at);
  }
  const std::string word = unknown.front().substr(0, unknown.front().find('='));
  const bool is_flag = word.starts_with('-');
  const std::vector<std::string> known = is_flag ? flags_of(at) : verbs_of(at);
  const std::string near = nearest(word, known);
  std::string text = full_name(at) + " knows no " + (is_flag ? "flag '" : "verb '") + word + "'";
  if (!is_flag && known.empty())
    text = full_name(at) + " takes no more words, but '" + word + "' follows";
  if (!near.empty()) {
    text += "; did you mean '" + near + "'?";
    return text;
  }
  if (!known.empty()) text += "; it knows " + joined(known);
  return text + see_help(at);
}

void add_plugin_flags(CLI::App& verb, PluginFlags& flags) {
  verb.add_option("--plugin-path", flags.plugin_path,
                  "a directory to look for plugins in, before all others; may be repeated")
      ->type_name("DIR")
      ->allow_extra_args(false);
}

PluginSearch plugin_search(const PluginFlags& flags) {
  PluginSearch search;
  search.from_command_line.assign(flags.plugin_path.begin(), flags.plugin_path.end());
  return search;
}

void add_experiment_flags(CLI::App& verb, ExperimentFlags& flags) {
  verb.add_option("experiment", flags.file, "the experiment, a TOML file")
      ->type_name("EXPERIMENT")
      ->required();
  add_override_flags(verb, flags);
}

void add_override_flags(CLI::App& verb, ExperimentFlags& flags) {
  verb.add_option("overrides", flags.overrides,
                  "dotted.key=VALUE, a TOML value or a bare word, e.g. scheduler.lr=1e-3")
      ->type_name("KEY=VALUE");
  verb.add_option("--ranks", flags.ranks, "number of processes on this machine")->type_name("N");
  verb.add_flag("--trust-plugin-path", flags.trust_plugin_path,
                "load plugins from the experiment's own plugin_path: they can run any code");
  add_plugin_flags(verb, flags.plugins);
}

PluginSearch plugin_search(const ExperimentFlags& flags, const ExperimentFile& file) {
  PluginSearch search = plugin_search(flags.plugins);
  search.from_experiment = file.plugin_path();
  search.trust_experiment = flags.trust_plugin_path;
  return search;
}

}  // namespace zerolab
