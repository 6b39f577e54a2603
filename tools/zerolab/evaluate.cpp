// zerolab evaluate: how well a trained model predicts data that it has not seen.

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "zerolab/error.h"

#include "output.h"
#include "train/model_score.h"
#include "trained_model_flags.h"

namespace zerolab {
namespace {

struct EvaluateFlags : TrainedModelFlags {
  std::string data;
  int64_t num_samples = 0, batch_size = 0;
  const CLI::Option *num_samples_given = nullptr, *batch_size_given = nullptr;
  bool json = false;
};

/// One line of standard error that is written over, if it is a terminal.
class Progress {
 public:
  Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  void operator()(int64_t done, int64_t all) {
    const auto now = std::chrono::steady_clock::now();
    if (!is_terminal_ || now - last_ < std::chrono::milliseconds(200)) return;
    last_ = now;
    shown_ = true;
    std::fprintf(stderr, "\rbatch %lld of %lld\033[K", static_cast<long long>(done),
                 static_cast<long long>(all));
  }

 private:
  const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

/// What the run itself found at this checkpoint; NaN if it did not look, or this is another
/// question.
double recorded_loss(const EvaluateFlags& flags, const TrainedModel& trained) {
  const bool same = flags.data.empty() && flags.overrides.empty() && flags.dtype == "run" &&
                    flags.num_samples_given->count() == 0;
  return same ? trained.manifest.point.val_loss : std::nan("");
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string score_text(const EvaluateFlags& flags, const TrainedModel& trained,
                       const ModelScore& score) {
  const double recorded = recorded_loss(flags, trained);
  std::vector<std::vector<std::string>> rows = {
      {"  loss", fixed(score.loss, 6) + " nats per token"},
      {"  perplexity", fixed(score.perplexity(), 4)},
      {"  bits per token", fixed(score.bits_per_token(), 6)}};
  if (score.bytes > 0) rows.push_back({"  bits per byte", fixed(score.bits_per_byte(), 6)});
  rows.push_back({"  tokens", std::to_string(score.tokens)});
  if (score.bytes > 0) rows.push_back({"  bytes", std::to_string(score.bytes)});
  rows.push_back({"  tokens per second", fixed(score.tokens_per_sec(), 0)});
  if (!std::isnan(recorded)) {
    rows.push_back({"  recorded by the run",
                    fixed(recorded, 6) + (recorded == score.loss ? ", the same bits" : "")});
  }
  const std::string what = flags.data.empty() ? "its validation split" : flags.data;
  return title_of(flags, trained) + ": " + std::to_string(score.samples) + " sequences of " + what +
         "\n" + table(std::move(rows));
}

nlohmann::json number_or_null(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

std::string score_json(const EvaluateFlags& flags, const TrainedModel& trained,
                       const ModelScore& score) {
  const nlohmann::json object = {
      {"run", parse_checkpoint_name(flags.run).run.string()},
      {"step", trained.manifest.point.step},
      {"data", flags.data.empty() ? nlohmann::json(nullptr) : nlohmann::json(flags.data)},
      {"loss", number_or_null(score.loss)},
      {"perplexity", number_or_null(score.perplexity())},
      {"bits_per_token", number_or_null(score.bits_per_token())},
      {"bits_per_byte", number_or_null(score.bits_per_byte())},
      {"recorded_val_loss", number_or_null(recorded_loss(flags, trained))},
      {"samples", score.samples},
      {"tokens", score.tokens},
      {"bytes", score.bytes},
      {"seconds", score.seconds},
      {"tokens_per_sec", score.tokens_per_sec()}};
  return object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void evaluate(const EvaluateFlags& flags) {
  const std::unique_ptr<TrainedModel> trained = load_trained_model(flags);
  if (!flags.data.empty()) {
    try {
      trained->data->validate_on(std::filesystem::absolute(flags.data).string());
    } catch (Error& error) {
      error.in("--data");
      throw;
    }
  }
  const Experiment& experiment = trained->experiment;
  // All of another file; of the run's own data as much as the run looks at.
  int64_t num_samples = flags.data.empty() ? experiment.evaluation.num_samples : 0;
  if (flags.num_samples_given->count() > 0) num_samples = flags.num_samples;
  const int64_t batch_size =
      flags.batch_size_given->count() > 0 ? flags.batch_size : experiment.batch.micro_batch_size;
  ModelScore score;
  {
    Progress progress;
    score = score_model(*trained, num_samples, batch_size, std::ref(progress));
  }
  print(flags.json ? score_json(flags, *trained, score) : score_text(flags, *trained, score));
}

}  // namespace

void add_evaluate(CLI::App& app, CommandLine&) {
  constexpr int64_t kMost = int64_t{1} << 40;
  CLI::App* const verb =
      app.add_subcommand("evaluate", "Measure how well a trained model predicts held-out data");
  const auto flags = std::make_shared<EvaluateFlags>();
  add_trained_model_flags(*verb, *flags);
  verb->add_option("--data", flags->data,
                   "a file in the run's vocabulary (default: the run's own validation split)")
      ->type_name("FILE");
  flags->num_samples_given =
      verb->add_option("--num-samples", flags->num_samples,
                       "sequences, from the first; 0: all (default: evaluation.num_samples for the "
                       "run's own split, all of a file)")
          ->check(CLI::Range(int64_t{0}, kMost))
          ->type_name("N");
  flags->batch_size_given =
      verb->add_option("--batch-size", flags->batch_size,
                       "sequences at a time (default: batch.micro_batch_size of the run)")
          ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
          ->type_name("N");
  verb->add_flag("--json", flags->json, "print one JSON object");
  verb->footer(
      "The loss is in nats per token; perplexity is its exponential. Bits per byte is the loss of "
      "all tokens over the bytes of their text, which compares models of different vocabularies; a "
      "token that ends a document has no bytes.\n\n"
      "On the run's own split, with its batch size and as many threads, the loss is the one that "
      "the run recorded at this checkpoint, to the last bit.\n\n"
      "Examples:\n"
      "  zerolab evaluate runs/experiment-1\n"
      "  zerolab evaluate runs/experiment-1@best --data other.txt --json\n"
      "  zerolab evaluate runs/experiment-1 --dtype bf16 --num-samples 100");
  verb->callback([flags] { with_plain_errors([&] { evaluate(*flags); }); });
}

}  // namespace zerolab
