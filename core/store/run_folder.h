#pragma once
// A run's folder: config.resolved.toml, environment.json, sessions.jsonl, metrics.h5,
// metrics.jsonl, checkpoints/. FORMAT.md describes the files.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/file_layer.h"
#include "store/folder_lock.h"

namespace zerolab {

/// Every value of the experiment; what makes a folder a run's.
inline constexpr const char* kConfigName = "config.resolved.toml";
inline constexpr const char* kEnvironmentName = "environment.json";

/// One row of metrics.h5 and one line of metrics.jsonl. NaN where a column has no value at this
/// step.
using MetricsRow = std::vector<double>;

/// Numbers and texts of the run's end ("final_loss", "optimizer_bytes", ...), stored as attributes
/// of /summary.
struct RunSummary {
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<std::pair<std::string, std::string>> texts;
};

/// One start of a run, as sessions.jsonl records it.
struct SessionInfo {
  int ranks = 1;
  /// Where it begins: "" at the beginning, "step 20" where the run goes on, "RUN@20" in a fork.
  std::string source;
  int64_t finished_steps = 0;  ///< before the first one of a fork
};

/// Written by rank 0 only, and by one process at a time: the folder is locked while this lives.
class RunFolder {
 public:
  /// `explicit_dir` (--run-dir) must not exist; if empty, `runs/<name>-<n>` with the first free n,
  /// made by an exclusive mkdir. Missing parents are made. Nothing is left behind when this throws.
  /// `files` outlives the folder and is called by sync()'s thread too; tests hand in one that
  /// fails. Errors: ConfigError if the folder exists or the name cannot be one; StoreError if it
  /// cannot be written.
  static std::unique_ptr<RunFolder> create(const std::filesystem::path& explicit_dir,
                                           const std::string& name,
                                           const std::string& resolved_toml,
                                           const std::map<std::string, std::string>& environment,
                                           const SessionInfo& session = {},
                                           FileLayer& files = real_files());

  /// Goes on in a run's folder after `finished_steps` steps (0: from the start). Rows of later
  /// steps are superseded: they move to metrics.superseded.jsonl. metrics.h5 is made anew from
  /// metrics.jsonl, so it may be damaged or missing; if metrics.jsonl is missing, that is made from
  /// metrics.h5. Configuration and environment take the place of the session's before, which are
  /// kept as config.resolved.session-<n>.toml and environment.session-<n>.json; summary.json goes.
  /// Whatever moment this dies at, calling it again loses and doubles no row.
  /// Errors: ConfigError if `dir` is no run's folder; StoreError if it cannot be read or written,
  /// or another process is writing it. `lock`: the folder's, if the caller has it already.
  static std::unique_ptr<RunFolder> reopen(const std::filesystem::path& dir, int64_t finished_steps,
                                           const std::string& resolved_toml,
                                           const std::map<std::string, std::string>& environment,
                                           const SessionInfo& session,
                                           FileLayer& files = real_files(),
                                           std::optional<FolderLock> lock = std::nullopt);

  /// The run `runs/<name>-<n>` with the greatest n, absolute. A folder without a configuration,
  /// whose process died while it made it, is no run.
  static std::optional<std::filesystem::path> newest(const std::string& name);

  virtual ~RunFolder();
  /// Absolute.
  virtual const std::filesystem::path& path() const = 0;

  /// Fixes the columns of this session's segment; the first is "step". Once, before append().
  /// metrics.jsonl omits values that are NaN.
  virtual void open_metrics(const std::vector<std::string>& columns) = 0;
  /// [hot] Appends and flushes a row: on return it survives the death of the process. Errors:
  /// StoreError (disk full, folder gone), with what survives; then no more rows are taken.
  virtual void append(const MetricsRow& row) = 0;
  /// This session goes back: rows of steps after `finished_steps` are superseded as by reopen(),
  /// and append() goes on in the same segment. Not while another thread appends. Errors:
  /// StoreError; then no more rows are taken, and reopen() completes what was begun.
  virtual void rewind(int64_t finished_steps) = 0;
  /// Makes every row durable whose append() returned before the call. From any thread, while
  /// others of these are called; append() does not wait for it. Nothing to do before
  /// open_metrics() and after stop() or finish(). Errors: StoreError.
  virtual void sync() = 0;
  /// The session ends without a summary: the run was stopped and can be gone on with. Everything is
  /// durable, metrics.h5 sealed. Once, instead of finish(). Errors: StoreError; the rows stay.
  virtual void stop() = 0;
  /// Seals metrics.h5 with the summary, makes everything durable, and writes summary.json. Once.
  /// Errors: StoreError; the rows stay.
  virtual void finish(const RunSummary& summary) = 0;
};

/// Environment to record with a run: versions, CPU, threads, and variables from an allow-list (no
/// credentials).
std::map<std::string, std::string> collect_environment();

}  // namespace zerolab
