// zerolab verify: proves on the user's own experiment that its sharding changes nothing.

#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "on_ranks.h"
#include "output.h"
#include "train/verification.h"
#include "verify_report.h"

namespace zerolab {
namespace {

struct VerifyFlags {
  ExperimentFlags experiment;
  RankFlags ranks;
  std::string against = "ddp";
  int64_t steps = 0;
  bool all = false, json = false;
};

/// Beside JSON, progress is for a terminal only.
void print_progress(const VerifyFlags& flags, const std::string& line) {
  if (!flags.json) {
    print(line + "\n");
  } else if (isatty(STDERR_FILENO) != 0) {
    std::fputs((line + "\n").c_str(), stderr);
  }
}

int verify(const VerifyFlags& flags, const CommandLine& line) {
  const VerificationRequest request{request_from(flags.experiment), flags.against, flags.steps};
  VerificationObserver observer;
  observer.on_progress = [&](const std::string& text) { print_progress(flags, text); };
  observer.on_result = [&](const Verification& result) {
    print(flags.json ? verification_json(result) : verification_text(result, flags.all));
  };
  return on_ranks(
      flags.experiment, flags.ranks, line,
      [&] { check_before_verification(request, flags.experiment.ranks); },
      [&](const RankEnvironment& environment) {
        return verify_as_rank(request, environment, observer);
      });
}

}  // namespace

void add_verify(CLI::App& app, CommandLine& line) {
  CLI::App* const verb = app.add_subcommand(
      "verify", "Prove on an experiment that its sharding strategy changes nothing");
  const auto flags = std::make_shared<VerifyFlags>();
  add_experiment_flags(*verb, flags->experiment);
  verb->add_option("--against", flags->against, "the sharding plugin to compare with")
      ->type_name("NAME")
      ->capture_default_str();
  verb->add_option("--steps", flags->steps,
                   "steps of each run (default: 5, or the experiment's if these are fewer)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->type_name("N");
  verb->add_flag("--all", flags->all, "list every parameter and state, not only what differs");
  verb->add_flag("--json", flags->json, "print one JSON object");
  add_rank_flags(*verb, flags->ranks);
  verb->footer(
      "The experiment runs three times, and writes nothing: twice under the reference, which shows "
      "that this machine repeats itself, then as it is. Compared are the loss and the gradient "
      "norm "
      "of each step, a small validation, and every element of every parameter and optimizer "
      "state.\n\n"
      "Exit code 0: identical to the last bit; or, if the strategy sends rounded numbers "
      "(wire_dtype), within the difference of losses that it states. 1: not, and the first "
      "difference is named.\n\n"
      "Examples:\n"
      "  zerolab verify experiment.toml --ranks 3\n"
      "  zerolab verify experiment.toml sharding.plugin=NAME --against OTHER --steps 20 --ranks 2\n"
      "  zerolab verify experiment.toml --ranks 2 --json > verification.json");
  verb->callback([flags, &line] { line.exit_code = verify(*flags, line); });
}

}  // namespace zerolab
