#include "store/disk_run_folder.h"

#include <cerrno>
#include <cmath>
#include <utility>

#include <unistd.h>

#include "zerolab/error.h"

#include "store/journal_reader.h"
#include "store/json_text.h"
#include "store/superseded_rows.h"

namespace zerolab {

namespace fs = std::filesystem;

namespace {

std::string summary_json(const RunSummary& summary) {
  std::string text;
  const auto key = [&](const std::string& name) {
    text += text.empty() ? "\n  " : ",\n  ";
    text += json_quoted(name) + ": ";
  };
  for (const auto& [name, number] : summary.numbers) {
    key(name);
    append_json_number(text, number);
  }
  for (const auto& [name, value] : summary.texts) {
    key(name);
    text += json_quoted(value);
  }
  return text.empty() ? "{}\n" : "{" + text + "\n}\n";
}

}  // namespace

MetricsContents contents_of(const fs::path& folder, const std::vector<Session>& sessions,
                            const std::string& config, const std::string& environment) {
  const fs::path journal = folder / "metrics.jsonl";
  const JournalRows rows = file_exists(journal) ? read_journal(journal) : JournalRows{};
  return {segments_of(rows, sessions), config, environment, std::nullopt};
}

DiskRunFolder::DiskRunFolder(FileLayer& files, fs::path path, FolderLock lock,
                             std::vector<Session> sessions, std::string config,
                             std::string environment)
    : files_(files),
      path_(std::move(path)),
      lock_(std::move(lock)),
      sessions_(std::move(sessions)),
      config_(std::move(config)),
      environment_(std::move(environment)) {}

void DiskRunFolder::open_metrics(const std::vector<std::string>& columns) {
  if (opened_) throw Error(path_.string() + ": the metrics are open already.");
  if (columns.empty() || columns.front() != "step") {
    throw Error(path_.string() + ": the first column of the metrics has to be 'step'.");
  }
  const std::lock_guard lock(mutex_);
  opened_ = true;
  sessions_.back().columns = columns;
  write_sessions(files_, path_, sessions_);
  if (!file_exists(path_ / "metrics.jsonl")) write_file(files_, path_ / "metrics.jsonl", "");
  open_files();
}

/// Makes metrics.h5 from the journal, and opens both to add to them.
void DiskRunFolder::open_files() {
  const MetricsContents contents = contents_of(path_, sessions_, config_, environment_);
  num_rows_ = 0;
  for (const MetricsSegment& segment : contents.segments) num_rows_ += segment.rows.size();
  auto metrics = std::make_unique<MetricsFile>(files_, path_ / "metrics.h5", contents);
  journal_ = std::make_unique<Journal>(files_, path_ / "metrics.jsonl", sessions_.back().columns);
  metrics_ = std::move(metrics);
}

void DiskRunFolder::append(const MetricsRow& row) {
  check_open();
  if (row.size() != sessions_.back().columns.size() || std::isnan(row.front())) {
    throw Error(path_.string() + ": a row has to have " +
                std::to_string(sessions_.back().columns.size()) +
                " values, one for each column, and its step has to be a number.");
  }
  try {
    // The journal first: what it holds, metrics.h5 can be made from.
    journal_->append(row);
    metrics_->append(row);
  } catch (const StoreError& error) {
    const std::lock_guard lock(mutex_);
    fail(error);
  }
  ++num_rows_;
}

void DiskRunFolder::rewind(int64_t finished_steps) {
  check_open();
  // All of it: whoever wants to sync waits until there is a journal again.
  const std::lock_guard lock(mutex_);
  try {
    metrics_.reset();
    journal_->close();
    journal_.reset();
    supersede_rows(files_, path_, finished_steps);
    Session& session = sessions_.back();
    if (finished_steps + 1 < session.first_step) {
      session.first_step = finished_steps + 1;
      write_sessions(files_, path_, sessions_);
    }
    open_files();
  } catch (const StoreError& error) {
    fail(error);
  }
}

void DiskRunFolder::sync() {
  int descriptor = -1;
  {
    const std::lock_guard lock(mutex_);
    if (failed_) {
      throw StoreError(path_.string() +
                       ": the metrics were closed by an error, so they cannot be made durable.");
    }
    if (journal_ == nullptr) return;
    descriptor = journal_->duplicate();
  }
  const int error = files_.sync(descriptor) != 0 ? errno : 0;
  ::close(descriptor);
  if (error != 0) {
    throw StoreError((path_ / "metrics.jsonl").string() +
                     ": cannot be made durable: " + errno_text(error) + ".");
  }
}

void DiskRunFolder::stop() {
  seal(std::nullopt);
}

void DiskRunFolder::finish(const RunSummary& summary) {
  seal(summary);
  write_file(files_, path_ / "summary.json", summary_json(summary));
}

void DiskRunFolder::seal(const std::optional<RunSummary>& summary) {
  check_open();
  const std::lock_guard lock(mutex_);
  const auto metrics = std::move(metrics_);
  const auto journal = std::move(journal_);
  failed_ = true;
  journal->close();
  failed_ = false;
  metrics->finish(summary);
}

void DiskRunFolder::check_open() const {
  if (metrics_ != nullptr) return;
  throw Error(path_.string() +
              ": the metrics are not open: not yet, no more, or closed by an error.");
}

void DiskRunFolder::fail(const StoreError& error) {
  metrics_.reset();
  journal_.reset();
  failed_ = true;
  std::string reason = error.what();
  reason.pop_back();  // the full stop
  if (!file_exists(path_ / kConfigName)) {
    throw StoreError(reason + "; the run's folder " + path_.string() +
                     " is not there any more, so see who removed or renamed it.");
  }
  throw StoreError(reason + "; the " + std::to_string(num_rows_) + " rows before are safe in " +
                   path_.string() + ", so free some space there or look at the disk.");
}

}  // namespace zerolab
