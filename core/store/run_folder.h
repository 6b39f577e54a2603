#pragma once
// A run's folder: config.resolved.toml, environment.json, metrics.h5, metrics.jsonl,
// checkpoints/. FORMAT.md describes the files.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/file_layer.h"

namespace zerolab {

/// One row of metrics.h5 and one line of metrics.jsonl. NaN where a column has no value at this
/// step.
using MetricsRow = std::vector<double>;

/// Numbers and texts of the run's end ("final_loss", "optimizer_bytes", ...), stored as attributes
/// of /summary.
struct RunSummary {
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<std::pair<std::string, std::string>> texts;
};

/// Written by rank 0 only.
class RunFolder {
 public:
  /// `explicit_dir` (--run-dir) must not exist; if empty, `runs/<name>-<n>` with the first free n,
  /// made by an exclusive mkdir. Missing parents are made. Nothing is left behind when this throws.
  /// `files` outlives the folder; tests hand in one that fails. Errors: ConfigError if the folder
  /// exists or the name cannot be one; StoreError if it cannot be written.
  static std::unique_ptr<RunFolder> create(const std::filesystem::path& explicit_dir,
                                           const std::string& name,
                                           const std::string& resolved_toml,
                                           const std::map<std::string, std::string>& environment,
                                           FileLayer& files = real_files());
  virtual ~RunFolder();
  /// Absolute.
  virtual const std::filesystem::path& path() const = 0;

  /// Fixes the columns; the first is "step". Once, before append(). metrics.jsonl omits values that
  /// are NaN.
  virtual void open_metrics(const std::vector<std::string>& columns) = 0;
  /// [hot] Appends and flushes a row: on return it survives the death of the process. Errors:
  /// StoreError (disk full, folder gone), with what survives; then no more rows are taken.
  virtual void append(const MetricsRow& row) = 0;
  /// Seals metrics.h5 with the summary, makes everything durable, and writes summary.json. Once.
  /// Errors: StoreError; the rows stay.
  virtual void finish(const RunSummary& summary) = 0;
};

/// Environment to record with a run: versions, CPU, threads, and variables from an allow-list (no
/// credentials).
std::map<std::string, std::string> collect_environment();

}  // namespace zerolab
