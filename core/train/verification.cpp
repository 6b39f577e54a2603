#include "train/verification.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "zerolab/error.h"

#include "train/initial_weights.h"
#include "train/progress.h"
#include "train/whole_state.h"

namespace zerolab {
namespace {

constexpr int64_t kDefaultSteps = 5;
constexpr size_t kNumbersPerStep = 3;

/// An experiment twice: as it is, and under the reference.
struct Pair {
  Experiment own, reference;
};

/// Options that the command line gives to the chosen strategy are not meant for the reference: they
/// move to the chosen one's own table.
std::vector<std::string> reference_overrides(const VerificationRequest& request,
                                             const std::string& own) {
  const std::string table = std::string(kind_name(Kind::kSharding)) + ".";
  std::vector<std::string> overrides;
  for (const std::string& text : request.source.overrides) {
    const std::string key = text.substr(0, text.find('='));
    const bool is_option = key.starts_with(table) && key != table + "plugin" &&
                           key.find('.', table.size()) == std::string::npos;
    overrides.push_back(is_option ? table + own + "." + text.substr(table.size()) : text);
  }
  overrides.push_back(table + "plugin=" + to_toml(request.against));
  return overrides;
}

double tolerance_of(PluginHost& host, const Experiment& experiment) {
  return host.create<Sharding>(experiment)->loss_tolerance();
}

/// A reference is exact if it can be: an option that makes it round (the experiment gave it for its
/// own strategy) goes back to its default.
void make_exact(PluginHost& host, Experiment& experiment) {
  PluginChoice& choice = experiment.plugins[static_cast<size_t>(Kind::kSharding)];
  double tolerance = tolerance_of(host, experiment);
  for (const auto& [name, value] : host.entry(Kind::kSharding, choice.name).schema().defaults()) {
    if (tolerance == 0) return;
    const OptionValue before = std::exchange(choice.options[name], value);
    const double now = tolerance_of(host, experiment);
    if (now < tolerance) {
      tolerance = now;
    } else {
      choice.options[name] = before;
    }
  }
}

/// A shorter run keeps the schedule of the experiment; a longer one stretches it. The
/// validation is one batch a rank.
void prepare(Experiment& experiment, int64_t steps, int num_ranks) {
  experiment.steps = std::max(experiment.steps, steps);
  int64_t& samples = experiment.evaluation.num_samples;
  const int64_t one_batch = experiment.batch.micro_batch_size * num_ranks;
  samples = samples > 0 ? std::min(samples, one_batch) : one_batch;
}

Pair resolve_pair(const VerificationRequest& request, PluginHost& host, Experiment own,
                  int num_ranks) {
  if (host.find(Kind::kSharding, request.against) == nullptr) {
    throw PluginError("--against: " + host.missing_message(Kind::kSharding, request.against));
  }
  const std::string& strategy = own.plugin(Kind::kSharding).name;
  if (strategy == request.against) return {own, own};
  const ExperimentFile file =
      ExperimentFile::load(request.source.experiment, reference_overrides(request, strategy));
  Experiment reference = resolve_for_training(file, host, num_ranks);
  make_exact(host, reference);
  return {std::move(own), std::move(reference)};
}

/// Rank 0's numbers, and where another rank has others.
RunTrace agree(const std::vector<double>& mine, Communicator& ranks) {
  const auto all = ranks.gather_control(mine);
  RunTrace trace;
  for (size_t at = 0; at + kNumbersPerStep <= mine.size(); at += kNumbersPerStep) {
    trace.steps.push_back({all[at], all[at + 1], all[at + 2] != 0});
  }
  trace.val_loss = all[mine.size() - 1];
  for (size_t i = 0; i < mine.size() && trace.disagreement.empty(); ++i) {
    for (size_t rank = 1; rank < static_cast<size_t>(ranks.size()); ++rank) {
      const double other = all[rank * mine.size() + i];
      if (same_number(other, all[i])) continue;
      constexpr const char* kWhat[kNumbersPerStep] = {"the loss", "the gradient norm",
                                                      "whether the update is skipped"};
      const bool last = i + 1 == mine.size();
      trace.disagreement = (last ? "after the last step the validation loss"
                                 : "in step " + std::to_string(i / kNumbersPerStep + 1) + " " +
                                       kWhat[i % kNumbersPerStep]) +
                           " is " + number_text(other, true) + " on rank " + std::to_string(rank) +
                           " and " + number_text(all[i], true) + " on rank 0";
      break;
    }
  }
  return trace;
}

/// The three runs of one rank.
class Verifier {
 public:
  Verifier(JoinedRank& joined, const VerificationObserver& observer, int64_t steps)
      : joined_(joined), observer_(observer), steps_(steps) {}

  Verification verify(const Pair& pair) {
    const bool alone =
        pair.own.plugin(Kind::kSharding).name == pair.reference.plugin(Kind::kSharding).name;
    Verification result;
    result.name = pair.own.name;
    result.sharding = pair.own.plugin(Kind::kSharding).name;
    result.against = pair.reference.plugin(Kind::kSharding).name;
    result.num_ranks = joined_.ranks.size();
    result.threads = joined_.threads;
    say(result.name + ": " +
        (alone ? result.sharding + " against itself"
               : result.sharding + " against " + result.against) +
        ", " + std::to_string(result.num_ranks) +
        (result.num_ranks == 1 ? " rank x " : " ranks x ") + std::to_string(result.threads) +
        (result.threads == 1 ? " thread, " : " threads, ") + std::to_string(steps_) + " steps, " +
        (alone ? "twice" : "three times"));
    result.reference = run(pair.reference, "reference " + result.against + ", 1 of 2", nullptr);
    result.own = run(pair.reference, "reference " + result.against + ", 2 of 2", &result);
    result.repeats = result.first_difference().empty();
    if (!alone && result.problem().empty()) {
      result.own = run(pair.own, result.sharding, &result);
      result.tolerance = tolerance_of(joined_.host, pair.own);
      if (result.tolerance > 0) result.tolerance += tolerance_of(joined_.host, pair.reference);
    }
    return result;
  }

 private:
  void say(const std::string& line) const {
    if (joined_.ranks.rank() == 0 && observer_.on_progress) observer_.on_progress(line);
  }

  /// The first run is kept; every other is compared with it, tensor by tensor, into `result`.
  RunTrace run(const Experiment& experiment, const std::string& title, Verification* result) try {
    TrainingPlugins plugins = make_plugins(joined_.host, experiment);
    Trainer trainer(experiment, plugins, joined_.ranks);
    if (!experiment.init_from.empty()) {
      load_initial_weights(
          {experiment.init_from, *plugins.model, trainer.sharding(), trainer.parameters()},
          joined_.ranks);
    }
    RunTrace trace = trace_run(trainer, joined_.ranks, steps_);
    WholeState state(trainer.sharding().state(), joined_.ranks);
    if (!kept_) {
      kept_.emplace(state, joined_.ranks);
    } else {
      result->tensors = kept_->compare(state);
      const auto matched = static_cast<int64_t>(std::count_if(
          result->tensors.begin(), result->tensors.end(),
          [&](const auto& tensor) { return state.find(tensor.parameter, tensor.state) >= 0; }));
      result->num_not_compared = static_cast<int64_t>(state.tensors().size()) - matched;
    }
    const std::string copies = state.disagreement();
    if (trace.disagreement.empty() && !copies.empty())
      trace.disagreement = "after the last step " + copies;
    say(title + ": " + std::to_string(steps_) + " steps in " + format_duration(trace.seconds) +
        ", last loss " + number_text(trace.steps.back().loss, false));
    return trace;
  } catch (Error& error) {
    error.in(title);
    throw;
  } catch (const c10::Error& error) {
    throw Error(title + ": " + plain_sentence(error));
  }

  JoinedRank& joined_;
  const VerificationObserver& observer_;
  int64_t steps_;
  std::optional<KeptState> kept_;
};

}  // namespace

RunTrace trace_run(Trainer& trainer, Communicator& ranks, int64_t steps) {
  const auto started = std::chrono::steady_clock::now();
  std::vector<double> numbers;
  for (int64_t step = 0; step < steps; ++step) {
    try {
      const StepRecord record = trainer.step();
      numbers.insert(numbers.end(), {record.loss, record.grad_norm, record.skipped ? 1.0 : 0.0});
    } catch (Error& error) {
      error.in("step " + std::to_string(step + 1));
      throw;
    } catch (const c10::Error& error) {
      throw Error("step " + std::to_string(step + 1) + ": " + plain_sentence(error));
    }
  }
  numbers.push_back(trainer.validate());
  RunTrace trace = agree(numbers, ranks);
  trace.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return trace;
}

void check_before_verification(const VerificationRequest& request, int num_ranks) {
  const ExperimentFile file =
      ExperimentFile::load(request.source.experiment, request.source.overrides);
  PluginHost host(search_for(request.source, file));
  const Pair pair =
      resolve_pair(request, host, resolve_for_training(file, host, num_ranks), num_ranks);
  if (!pair.own.init_from.empty()) check_initial_weights(pair.own.init_from);
}

int verify_as_rank(const VerificationRequest& request, const RankEnvironment& environment,
                   const VerificationObserver& observer) {
  return run_as_rank(request.source, environment, [&](JoinedRank& joined) {
    const int num_ranks = joined.ranks.size();
    Pair pair = resolve_pair(request, joined.host, joined.experiment, num_ranks);
    const int64_t steps =
        request.steps > 0 ? request.steps : std::min(kDefaultSteps, pair.own.steps);
    for (Experiment* experiment : {&pair.own, &pair.reference}) {
      prepare(*experiment, steps, num_ranks);
    }
    Verifier verifier(joined, observer, steps);
    const Verification result = verifier.verify(pair);
    if (joined.ranks.rank() == 0 && observer.on_result) observer.on_result(result);
    return RankOutcome{0, result.problem()};
  });
}

}  // namespace zerolab
