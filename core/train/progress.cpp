#include "train/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "train/byte_report.h"

namespace zerolab {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// fmt prints the sign of a NaN, which means nothing.
double plain(double value) {
  return std::isnan(value) ? std::abs(value) : value;
}

/// A reader that went away must not end a run: what cannot be written is lost.
template <class... Args>
void write(std::FILE* out, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), out);
}

/// About twenty lines a run, on round numbers.
int64_t round_interval(int64_t steps) {
  const double wanted = static_cast<double>(steps) / 20;
  if (wanted <= 1) return 1;
  const double power = std::pow(10, std::floor(std::log10(wanted)));
  for (double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (factor * power >= wanted) return static_cast<int64_t>(factor * power);
  }
  return 1;
}

/// Whole numbers without a point.
nlohmann::json number_or_null(double value) {
  constexpr double kWhole = 1LL << 53;
  if (!std::isfinite(value)) return nullptr;
  if (value == std::floor(value) && std::abs(value) < kWhole) return static_cast<int64_t>(value);
  return value;
}

}  // namespace

std::string format_bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string format_duration(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(seconds));
  if (s >= 3600) return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
  if (s >= 60) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} s", s);
}

Progress::Progress(std::FILE* out, int64_t total_steps, int64_t finished_steps)
    : out_(out),
      terminal_(isatty(fileno(out)) != 0),
      total_steps_(total_steps),
      finished_before_(finished_steps),
      line_every_(round_interval(total_steps)),
      started_(now_s()),
      last_line_(started_) {}

void Progress::print(const StepRecord& r) {
  constexpr double kQuietSeconds = 10, kRefreshSeconds = 0.1;
  const double now = now_s();
  const bool evaluated = r.evaluated, last = r.step == total_steps_;
  const bool lasting = evaluated || last || r.skipped;  // stays on a terminal, too
  const int64_t done = std::max<int64_t>(1, r.step - finished_before_);
  const bool due =
      terminal_ ? now - last_line_ >= kRefreshSeconds
                : done == 1 || r.step % line_every_ == 0 || now - last_line_ >= kQuietSeconds;
  if (!lasting && !due) return;
  last_line_ = now;
  const double left =
      (now - started_) / static_cast<double>(done) * static_cast<double>(total_steps_ - r.step);
  std::string line = fmt::format(
      "step {:>{}}/{}  loss {:.4f}  lr {:.2e}  grad norm {:.3f}  {:.0f} tok/s  ETA {}  peak {}",
      r.step, fmt::formatted_size("{}", total_steps_), total_steps_, plain(r.loss), r.lr,
      r.grad_norm, r.tokens_per_sec, format_duration(left),
      format_bytes(static_cast<double>(r.peak_memory_bytes)));
  if (evaluated) line += fmt::format("  val loss {:.4f}", r.val_loss);
  if (r.skipped) {
    line += "  skipped: " +
            (r.trouble.empty() ? fmt::format("gradients overflow at loss scale {:g}", r.loss_scale)
                               : r.trouble);
  }
  if (terminal_) {
    write(out_, "\r{}\x1b[K{}", line, lasting ? "\n" : "");
  } else {
    write(out_, "{}\n", line);
  }
  std::fflush(out_);
}

void Progress::print_rollback(int64_t step, const std::string& reason) {
  print_line(out_, "rolled back to the checkpoint of step " + std::to_string(step) +
                       ", going on with the samples after the bad ones: " + reason);
}

void print_line(std::FILE* out, const std::string& line) {
  write(out, "{}\n", line);
  std::fflush(out);
}

void print_header(std::FILE* out, const RunDescription& run, int64_t parameters, int64_t steps) {
  write(out, "{}: {} parameters, {}, {} rank{} x {} thread{}, {} steps\n", run.name, parameters,
        run.plugins, run.num_ranks, run.num_ranks == 1 ? "" : "s", run.threads,
        run.threads == 1 ? "" : "s", steps);
  std::fflush(out);
}

void print_summary(std::FILE* out, const RunDescription& run, const RunResult& r) {
  const std::string folder = std::filesystem::proximate(run.run_folder).string();
  write(out, "\n{} {} steps in {}\n", r.stopped ? "stopped after" : "finished", r.last.step,
        format_duration(r.seconds));
  write(out, "  final loss                     {:.4f}\n", plain(r.last.loss));
  if (r.last.evaluated) write(out, "  validation loss                {:.4f}\n", plain(r.val_loss));
  write(out, "  tokens per second              {:.0f}\n", r.tokens_per_sec);
  if (r.skipped_steps > 0) {
    write(out, "  skipped steps                  {}{}\n", r.skipped_steps,
          r.skipped_steps == r.last.step ? ": all, nothing was learnt" : "");
  }
  write(out, "{}", byte_report(r));
  if (r.checkpoints > 0) {
    write(out, "  checkpoints                    {}, in {:.2f} s; training waited {:.2f} s\n",
          r.checkpoints, r.checkpoint_seconds, r.checkpoint_stall_seconds);
  }
  write(out, "  run folder                     {}\n", folder);
  if (r.stopped) write(out, "  to go on                       zerolab resume {}\n", folder);
  std::fflush(out);
}

std::string summary_json(const RunDescription& run, const RunResult& r) {
  nlohmann::json summary = {
      {"name", run.name},
      {"run_folder", run.run_folder},
      {"ranks", run.num_ranks},
      {"threads", run.threads},
      {"steps", r.last.step},
      {"seconds", r.seconds},
      {"loss", number_or_null(r.last.loss)},
      {"val_loss", number_or_null(r.val_loss)},
      {"tokens_per_sec", r.tokens_per_sec},
      {"skipped_steps", r.skipped_steps},
      {"parameters", r.parameters},
      {"peak_memory_bytes", r.last.peak_memory_bytes},
      {"peak_tensor_bytes", r.last.peak_tensor_bytes},
      {"status", r.stopped ? "stopped" : "finished"},
      {"checkpoints", r.checkpoints},
      {"checkpoint_seconds", r.checkpoint_seconds},
      {"checkpoint_stall_seconds", r.checkpoint_stall_seconds},
  };
  for (const auto& [name, value] : byte_numbers(r)) summary[name] = number_or_null(value);
  return summary.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

const std::vector<std::string>& metric_columns() {
  static const std::vector<std::string> kColumns = [] {
    std::vector<std::string> columns = {"step",         "loss",        "lr",
                                        "grad_norm",    "tokens",      "tokens_per_sec",
                                        "step_seconds", "val_loss",    "skipped",
                                        "loss_scale",   "bytes_moved", "bytes_moved_predicted"};
    columns.push_back("peak_memory_bytes");
    columns.push_back("peak_tensor_bytes");
    columns.push_back("checkpoint_stall_seconds");
    columns.push_back("checkpoint_seconds");
    for (std::string& name : collective_columns()) columns.push_back(std::move(name));
    return columns;
  }();
  return kColumns;
}

std::vector<double> metric_row(const StepRecord& r) {
  const auto number = [](auto n) { return static_cast<double>(n); };
  std::vector<double> row = {number(r.step),
                             r.loss,
                             r.lr,
                             r.grad_norm,
                             number(r.tokens),
                             r.tokens_per_sec,
                             r.step_seconds,
                             r.val_loss,
                             number(r.skipped),
                             r.loss_scale,
                             number(r.bytes_moved),
                             r.bytes_moved_predicted,
                             number(r.peak_memory_bytes),
                             number(r.peak_tensor_bytes),
                             r.checkpoint_stall_seconds,
                             r.checkpoint_seconds};
  append_values(r.collectives, row);
  return row;
}

}  // namespace zerolab
