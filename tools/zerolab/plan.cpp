// zerolab plan: what each installed sharding strategy would hold and move, before anything runs.

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "zerolab/data.h"
#include "zerolab/error.h"
#include "zerolab/model.h"
#include "zerolab/optimizer.h"
#include "zerolab/precision.h"

#include "host/plugin_host.h"
#include "output.h"
#include "plan/activations.h"
#include "plan/fitted_experiment.h"
#include "plan_report.h"
#include "train/declared_model.h"
#include "verbs.h"

namespace zerolab {
namespace {

constexpr int kMostRanks = 1 << 16;

struct PlanFlags {
  ExperimentFlags experiment;
  std::string ranks = "1,2,4,8", memory, bandwidth, parameter_dtype, gradient_dtype;
  bool json = false;
};

std::vector<int> parse_ranks(const std::string& text) {
  std::vector<int> ranks;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int n = 0;
    const auto [next, error] = std::from_chars(at, end, n);
    if (error != std::errc() || n < 1 || n > kMostRanks || (next != end && *next != ',')) {
      throw ConfigError("--ranks must be whole numbers from 1 to " + std::to_string(kMostRanks) +
                        " with commas between them, such as 1,8,64; is '" + text + "'.");
    }
    ranks.push_back(n);
    if (next == end) return ranks;
    at = next + 1;
  }
}

/// "16GB" is 16e9 bytes, as figures are printed; "16GiB" is 16 * 2^30.
std::optional<int64_t> parse_quantity(const std::string& flag, const std::string& text) {
  if (text.empty()) return std::nullopt;
  double bytes = 0;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, bytes);
  const std::string_view rest(next, static_cast<size_t>(end - next));
  const size_t blanks = std::min(rest.find_first_not_of(' '), rest.size());
  const std::string_view word = rest.substr(blanks);
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},    {"TB", 1e12},
      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  for (const auto& [unit, factor] : kUnits) {
    const double value = bytes * factor;
    if (error == std::errc() && unit == word && value >= 1 && value < 0x1p62) {
      return static_cast<int64_t>(value);
    }
  }
  throw ConfigError(flag + " must be a size of at least one byte, such as 16GB (16e9 bytes) or " +
                    "16GiB; is '" + text + "'.");
}

void override_dtype(const std::string& flag, const std::string& word, at::ScalarType& dtype) {
  if (word.empty()) return;
  for (at::ScalarType known : {at::kFloat, at::kBFloat16, at::kHalf}) {
    if (word != dtype_word(known)) continue;
    dtype = known;
    return;
  }
  throw ConfigError(flag + " must be fp32, bf16 or fp16, is '" + word + "'.");
}

PrecisionPolicy policy_from(const PlanFlags& flags, PrecisionPolicy policy) {
  override_dtype("--parameter-dtype", flags.parameter_dtype, policy.parameter_dtype);
  override_dtype("--gradient-dtype", flags.gradient_dtype, policy.gradient_dtype);
  return policy;
}

/// Overrides of the command line that another strategy understands: not `sharding.OPTION` of an
/// option that it lacks.
std::vector<std::string> overrides_for(const std::string& name, PluginHost& host,
                                       const std::vector<std::string>& overrides) {
  constexpr std::string_view kTable = "sharding.";
  const OptionSchema* schema = host.schema(Kind::kSharding, name);
  std::vector<std::string> kept;
  for (const std::string& text : overrides) {
    const std::string key = text.substr(0, text.find('='));
    const bool is_option = key.starts_with(kTable) && key.find('.', kTable.size()) == key.npos;
    const bool known =
        !is_option || schema == nullptr || schema->find(key.substr(kTable.size())) != nullptr;
    if (known) kept.push_back(text);
  }
  kept.push_back("sharding.plugin=" + name);
  return kept;
}

PlanCandidate candidate(const std::string& name, const PlanFlags& flags, PluginHost& host,
                        const FittedExperiment& own) {
  const bool is_own = name == own.experiment.plugin(Kind::kSharding).name;
  PlanCandidate result{name, is_own, nullptr, ""};
  if (is_own) {
    result.strategy = host.create<Sharding>(own.experiment);
    return result;
  }
  try {
    const auto file = ExperimentFile::load(flags.experiment.file,
                                           overrides_for(name, host, flags.experiment.overrides));
    result.strategy = host.create<Sharding>(file.resolve(host, own.ranks));
  } catch (const Error& error) {
    result.why_not = error.what();
  }
  return result;
}

std::string plugin_line(const Experiment& experiment) {
  std::string line;
  for (Kind kind : {Kind::kModel, Kind::kData, Kind::kOptimizer, Kind::kPrecision}) {
    line += (line.empty() ? "" : " ") + experiment.plugin(kind).name;
  }
  return line;
}

Plan make_plan(const PlanFlags& flags) {
  const std::vector<int> ranks = parse_ranks(flags.ranks);
  Plan plan;
  plan.memory = parse_quantity("--memory", flags.memory);
  plan.bandwidth = parse_quantity("--bandwidth", flags.bandwidth);
  policy_from(flags, {});  // a mistyped flag is said before anything is opened

  const auto file = ExperimentFile::load(flags.experiment.file, flags.experiment.overrides);
  PluginHost host(plugin_search(flags.experiment, file));
  const FittedExperiment own = resolve_fitting(file, host, ranks.front());
  const Experiment& experiment = own.experiment;
  const auto data = host.create<Data>(experiment);
  data->open({experiment.batch.sequence_length, experiment.seed});
  const auto model = host.create<Model>(experiment);
  Parameters parameters;
  declare_model(*model, experiment, data->vocab_size(), parameters);

  plan.experiment = experiment.name;
  plan.plugins = plugin_line(experiment);
  plan.parameters = parameters.total_numel();
  plan.trainable = parameters.total_numel(true);
  plan.precision = policy_from(flags, host.create<Precision>(experiment)->policy());
  plan.num_states = static_cast<int64_t>(host.create<Optimizer>(experiment)->state_names().size());
  plan.activation_checkpointing = experiment.memory.activation_checkpointing;
  plan.reduce_every = experiment.batch.reduce_every;

  std::vector<PlanCandidate> candidates;
  for (const std::string& name : host.names(Kind::kSharding)) {
    candidates.push_back(candidate(name, flags, host, own));
  }
  for (int num_ranks : ranks) {
    const FittedExperiment fitted = resolve_fitting(file, host, num_ranks);
    const BatchConfig& batch = fitted.experiment.batch;
    PlanTable table{
        num_ranks, fitted.ranks, batch.micro_batch_size, batch.gradient_accumulation_steps, 0, {}};
    table.activation_bytes =
        activation_bytes(parameters, batch.micro_batch_size * batch.sequence_length,
                         compute_dtype(plan.precision), plan.activation_checkpointing);
    const auto reduce_every =
        batch.reduce_every == "step" ? ReduceEvery::kStep : ReduceEvery::kMicroBatch;
    table.rows = plan_rows(candidates, {parameters, num_ranks, plan.precision, plan.num_states,
                                        table.micro_batches, reduce_every});
    plan.tables.push_back(std::move(table));
  }
  return plan;
}

constexpr const char* kFooter =
    R"(Every installed strategy is planned with the experiment's options, [sharding.NAME] included;
* marks the experiment's own. The experiment's precision decides dtypes unless a flag does; in low
precision, float32 masters count as optimizer. Sizes: 16GB is 16e9 bytes, 16GiB is 16 * 2^30.
Nothing is allocated and no process is started.

Examples:
  zerolab plan experiment.toml
  zerolab plan experiment.toml --ranks 1,8,64 --memory 16GB
  zerolab plan experiment.toml --ranks 64 --parameter-dtype bf16 --gradient-dtype bf16
  zerolab plan experiment.toml --bandwidth 10GB --json batch.reduce_every=step)";

}  // namespace

void add_plan(CLI::App& app, CommandLine&) {
  CLI::App* const verb = app.add_subcommand(
      "plan", "Predict what each sharding strategy would hold and move on each rank");
  const auto flags = std::make_shared<PlanFlags>();
  add_experiment_flags(*verb, flags->experiment);
  verb->remove_option(verb->get_option("--ranks"));  // one number there, a list here
  verb->add_option("--ranks", flags->ranks, "numbers of ranks to plan for")
      ->type_name("N,N,...")
      ->capture_default_str();
  verb->add_option("--memory", flags->memory,
                   "memory of one rank; the cheapest strategy that fits is named")
      ->type_name("SIZE");
  verb->add_option("--bandwidth", flags->bandwidth,
                   "bytes a second that one rank can send; adds a time")
      ->type_name("SIZE");
  verb->add_option("--parameter-dtype", flags->parameter_dtype,
                   "fp32, bf16 or fp16 instead of the experiment's")
      ->type_name("DTYPE");
  verb->add_option("--gradient-dtype", flags->gradient_dtype,
                   "fp32, bf16 or fp16 instead of the experiment's")
      ->type_name("DTYPE");
  verb->add_flag("--json", flags->json, "print one JSON object, every figure in bytes");
  verb->footer(kFooter);
  verb->callback([flags] {
    const Plan plan = make_plan(*flags);
    print(flags->json ? plan_json(plan) : plan_text(plan));
  });
}

}  // namespace zerolab
