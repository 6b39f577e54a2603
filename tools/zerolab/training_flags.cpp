#include "training_flags.h"

#include <cctype>
#include <fstream>
#include <iterator>

#include "zerolab/error.h"

#include "output.h"

namespace zerolab {
namespace {

constexpr int kMostRestarts = 1000000;

double seconds_of(char unit) {
  switch (unit) {
    case 'd':
      return 86400;
    case 'h':
      return 3600;
    case 'm':
      return 60;
    case 's':
      return 1;
    default:
      return 0;
  }
}

/// Hours, minutes and seconds, or minutes and seconds, with colons; -1 if it is none.
double clock_seconds(const std::string& text) {
  double total = 0, field = 0;
  int digits = 0, fields = 1;
  for (const char c : text) {
    if (c == ':' && digits > 0 && fields < 3) {
      total = (total + field) * 60;
      field = digits = 0;
      ++fields;
    } else if (std::isdigit(static_cast<unsigned char>(c)) != 0 && digits < 9) {
      field = field * 10 + (c - '0');
      ++digits;
    } else {
      return -1;
    }
  }
  return fields > 1 && digits > 0 ? total + field : -1;
}

/// Numbers with units, added up; -1 if it is none.
double unit_seconds(const std::string& text) {
  double total = 0, number = 0;
  int digits = 0;
  for (const char c : text) {
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 && digits < 9) {
      number = number * 10 + (c - '0');
      ++digits;
      continue;
    }
    if (digits == 0 || seconds_of(c) == 0) return -1;
    total += number * seconds_of(c);
    number = digits = 0;
  }
  return digits == 0 && !text.empty() ? total : -1;
}

}  // namespace

double parse_duration(const std::string& text) {
  if (text.empty()) return 0;
  const bool clock = text.find(':') != std::string::npos;
  const double seconds = clock ? clock_seconds(text) : unit_seconds(text);
  if (seconds > 0) return seconds;
  throw ConfigError("--max-time must be a time such as 55m, 1h30m, 90s or 1:30:00, is '" + text +
                    "'.");
}

void add_run_dir_flag(CLI::App& verb, TrainingFlags& flags) {
  verb.add_option("--run-dir", flags.run_dir,
                  "write the run here; must not exist (default: runs/NAME-N)")
      ->type_name("DIR");
}

void add_training_flags(CLI::App& verb, TrainingFlags& flags) {
  add_rank_flags(verb, flags.ranks);
  verb.add_option("--max-time", flags.max_time,
                  "save, stop and exit with 75 after this time, e.g. 55m or 1h30m")
      ->type_name("TIME");
  verb.add_option("--restarts", flags.ranks.restarts,
                  "start the ranks again after a failure, from the newest checkpoint, at most so "
                  "often")
      ->check(CLI::Range(0, kMostRestarts))
      ->type_name("N");
  verb.add_flag("--json", flags.json, "print the summary as JSON; progress goes to standard error");
}

RunRequest training_request(const TrainingFlags& flags) {
  RunRequest request;
  request.run_dir = flags.run_dir;
  request.json = flags.json;
  request.max_seconds = parse_duration(flags.max_time);
  return request;
}

int tell_finished(const RunRequest& request, const TrainingFlags& flags) {
  check_before_launch(request, flags.experiment.ranks);
  if (flags.json) {
    std::ifstream summary(request.from.run / "summary.json");
    print(std::string(std::istreambuf_iterator<char>(summary), {}));
  } else {
    print(request.from.run.string() +
          ": is finished; to train further, fork it with another number of steps.\n");
  }
  return 0;
}

int train(const RunRequest& request, const TrainingFlags& flags, const CommandLine& line) {
  return on_ranks(
      flags.experiment, flags.ranks, line,
      [&] { check_before_launch(request, flags.experiment.ranks); },
      [&](const RankEnvironment& environment) { return run_rank(request, environment); });
}

}  // namespace zerolab
