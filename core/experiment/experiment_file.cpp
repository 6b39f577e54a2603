#include <string>
#include <utility>

#include "zerolab/error.h"

#include "experiment/experiment.h"
#include "experiment/experiment_tree.h"
#include "experiment/host_keys.h"
#include "experiment/host_tables.h"
#include "experiment/plugin_tables.h"
#include "experiment/problem_report.h"
#include "experiment/resolved_toml.h"

namespace zerolab {

struct ExperimentFile::Impl {
  ExperimentTree tree;
  std::vector<std::filesystem::path> plugin_path;
};

namespace {

/// The experiment's plugin folders as far as they can be read; resolve() reports what is wrong with
/// them.
std::vector<std::filesystem::path> read_plugin_path(const ExperimentTree& tree) {
  const Setting* setting = find_setting(tree.root, "plugin_path");
  const OptionValue* value = setting != nullptr ? setting->option() : nullptr;
  if (value == nullptr) return {};
  std::vector<std::string> list;
  if (const auto* many = std::get_if<std::vector<std::string>>(value)) list = *many;
  if (const auto* one = std::get_if<std::string>(value)) list = {*one};
  std::vector<std::filesystem::path> paths;
  for (const std::string& path : list) {
    paths.emplace_back(absolute_path(path, tree.sources[setting->value_at.source].folder));
  }
  return paths;
}

}  // namespace

ExperimentFile::ExperimentFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ExperimentFile::~ExperimentFile() = default;
ExperimentFile::ExperimentFile(ExperimentFile&&) noexcept = default;

ExperimentFile ExperimentFile::load(const std::filesystem::path& file,
                                    const std::vector<std::string>& overrides) {
  auto impl = std::make_unique<Impl>();
  impl->tree = read_experiment(file, overrides);
  impl->plugin_path = read_plugin_path(impl->tree);
  return ExperimentFile(std::move(impl));
}

const std::vector<std::filesystem::path>& ExperimentFile::plugin_path() const {
  return impl_->plugin_path;
}

Experiment ExperimentFile::resolve(PluginCatalogue& catalogue, int num_ranks) const {
  if (num_ranks < 1) {
    throw ConfigError("a run needs at least 1 rank, not " + std::to_string(num_ranks));
  }
  const ExperimentTree& tree = impl_->tree;
  ProblemReport report(tree.sources);
  const KindTables kinds = check_kind_tables(tree, catalogue, report);
  ChosenSchemas schemas{};
  for (size_t i = 0; i < kinds.size(); ++i) schemas[i] = kinds[i].schema;
  const std::vector<CheckedTable> host = check_host_tables(tree, schemas, num_ranks, report);
  report.throw_if_any();

  Experiment experiment;
  experiment.file = tree.file;
  for (size_t i = 0; i < host.size(); ++i) {
    const std::string& table = host_tables()[i].name;
    experiment.host_values[table] = host[i].options();
    assign_host_table(table, experiment.host_values[table], experiment);
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    experiment.plugins[i] = {kinds[i].plugin, kinds[i].options.options()};
  }
  experiment.resolved_toml = write_resolved_toml(tree, host, kinds, num_ranks);
  return experiment;
}

}  // namespace zerolab
