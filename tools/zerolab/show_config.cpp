// zerolab show-config: the experiment as a run would see it.

#include <memory>

#include <CLI/CLI.hpp>

#include "zerolab/error.h"

#include "experiment/experiment.h"
#include "experiment/host_keys.h"
#include "host/plugin_host.h"
#include "output.h"
#include "verbs.h"

namespace zerolab {
namespace {

void show_config(const ExperimentFlags& flags) {
  if (flags.ranks < 1) {
    throw ConfigError("--ranks must be at least 1, is " + std::to_string(flags.ranks) + ".");
  }
  const ExperimentFile file = ExperimentFile::load(flags.file, flags.overrides);
  PluginHost host(plugin_search(flags, file));
  print(file.resolve(host, flags.ranks).resolved_toml);
}

}  // namespace

void add_show_config(CLI::App& app, CommandLine&) {
  CLI::App* const verb = app.add_subcommand(
      "show-config", "Check an experiment and print every value of it with its origin");
  const auto flags = std::make_shared<ExperimentFlags>();
  add_experiment_flags(*verb, *flags);
  verb->footer(
      "The output is an experiment itself: save it, and it runs the same.\n\nExamples:\n"
      "  zerolab show-config experiment.toml\n"
      "  zerolab show-config experiment.toml steps=10 sharding.plugin=NAME --ranks 4\n\n"
      "Keys that belong to no plugin (for a plugin's: zerolab plugins inspect KIND/NAME):\n" +
      describe_host_keys());
  verb->callback([flags] { show_config(*flags); });
}

}  // namespace zerolab
