#include "store/run_folder.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

#include "zerolab/error.h"
#include "zerolab/log.h"

#include "store/disk_run_folder.h"
#include "store/journal_reader.h"
#include "store/json_text.h"
#include "store/superseded_rows.h"

namespace zerolab {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail_to_make(const fs::path& path, int error) {
  throw StoreError(path.string() + ": the run's folder cannot be made: " + errno_text(error) + ".");
}

/// Folders that create() made, outermost first; removed again unless kept.
class MadeFolders {
 public:
  explicit MadeFolders(FileLayer& files) : files_(files) {}
  ~MadeFolders() {
    // A parent goes only if it is empty: another run may have moved in meanwhile.
    for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) ::rmdir(folder->c_str());
  }
  MadeFolders(const MadeFolders&) = delete;
  MadeFolders& operator=(const MadeFolders&) = delete;

  /// Makes `path` and its missing parents. Returns false if `path` itself exists.
  bool make(const fs::path& path) {
    // Another run that failed may remove a parent between our making it and using it: then once
    // more.
    for (int attempt = 0;; ++attempt) {
      make_parents(path.parent_path());
      if (files_.make_directory(path) == 0) break;
      if (errno == EEXIST) return false;
      if (errno != ENOENT || attempt == 100) fail_to_make(path, errno);
    }
    made_.push_back(path);
    return true;
  }
  void keep() { made_.clear(); }

 private:
  void make_parents(const fs::path& path) {
    std::error_code ignored;
    if (path.empty() || fs::exists(path, ignored)) return;
    make_parents(path.parent_path());
    if (files_.make_directory(path) == 0) {
      made_.push_back(path);
    } else if (errno != EEXIST && errno != ENOENT) {
      fail_to_make(path, errno);
    }
  }

  FileLayer& files_;
  std::vector<fs::path> made_;
};

/// Keeps what the last session was given, under its number. What is there already stays: then a
/// process died after it, and what has the plain name now may be of a session that never began.
void keep_for_session(FileLayer& files, const fs::path& folder, const std::string& stem,
                      const std::string& extension, int64_t session) {
  const fs::path kept = folder / (stem + ".session-" + std::to_string(session) + extension),
                 plain = folder / (stem + extension);
  if (file_exists(plain) && !file_exists(kept)) write_file(files, kept, read_text_file(plain));
}

/// Steps of rows, as many times as they are there.
using Steps = std::multiset<double>;

Steps steps_of_table(const fs::path& table) {
  Steps steps;
  try {
    for (const MetricsSegment& segment : read_metrics(table).segments)
      for (const double step : segment.column("step")) steps.insert(step);
  } catch (const std::exception&) {
    return {};  // damaged: it is made again from the journal
  }
  return steps;
}

Steps steps_of_journal(const fs::path& journal) {
  Steps steps;
  if (!file_exists(journal)) return steps;
  JournalRows journal_rows = read_journal(journal);
  if (journal_rows.rows.empty()) return steps;
  const MetricsSegment segment{std::move(journal_rows.columns), std::move(journal_rows.rows)};
  for (const double step : segment.column("step")) steps.insert(step);
  return steps;
}

/// True if metrics.jsonl has lost rows that metrics.h5 still has. It is written first, so that
/// takes damage, or a machine that lost its power. What is left of it is kept beside it. Rows that
/// were superseded are not lost: a process died before metrics.h5 was made again.
bool set_torn_journal_aside(FileLayer& files, const fs::path& folder, int64_t finished_steps) {
  const fs::path journal = folder / "metrics.jsonl", table = folder / "metrics.h5";
  if (!file_exists(journal) || !file_exists(table)) return false;
  const Steps here = steps_of_journal(journal), there = steps_of_table(table);
  // A table without the journal's own rows is itself the damaged one.
  if (!std::includes(there.begin(), there.end(), here.begin(), here.end())) return false;
  std::vector<double> lost;
  std::set_difference(there.begin(), there.end(), here.begin(), here.end(),
                      std::back_inserter(lost));
  std::erase_if(lost, [&](double step) { return step > static_cast<double>(finished_steps); });
  if (lost.empty()) return false;
  const Steps superseded = steps_of_journal(folder / "metrics.superseded.jsonl");
  for (const double step : lost) {
    if (superseded.count(step) > 0) return false;
  }
  const fs::path aside = folder / "metrics.damaged.jsonl";
  write_file(files, aside, read_text_file(journal));
  log::warning(journal.string() + ": lacks " + std::to_string(lost.size()) + " of the " +
               std::to_string(there.size()) + " rows that metrics.h5 has; it is made from it " +
               "again, and is kept as it was in " + aside.filename().string());
  return true;
}

/// Where metrics.jsonl is missing, or is empty as a machine that lost its power leaves it, or has
/// lost rows, it is made again from metrics.h5.
void restore_journal(FileLayer& files, const fs::path& folder, int64_t finished_steps,
                     std::vector<Session>& sessions) {
  const fs::path journal = folder / "metrics.jsonl", table = folder / "metrics.h5";
  std::error_code error;
  const bool emptied = finished_steps > 0 && fs::file_size(journal, error) == 0;
  const bool lost =
      !file_exists(journal) || emptied || set_torn_journal_aside(files, folder, finished_steps);
  if (!lost || !file_exists(table)) return;
  MetricsContents contents;
  try {
    contents = read_metrics(table);
  } catch (const std::exception& error) {  // HDF5's numbers of a damaged file ask for any memory
    std::string reason = error.what();
    if (reason.back() == '.') reason.pop_back();
    throw StoreError(journal.string() + ": is missing and cannot be made from metrics.h5 (" +
                     reason +
                     "); put one of the two back from a copy, or move metrics.h5 away to " +
                     "go on without the rows so far.");
  }
  std::string text;
  for (size_t i = 0; i < contents.segments.size(); ++i) {
    const MetricsSegment& segment = contents.segments[i];
    const auto keys = journal_keys(segment.columns);
    for (const MetricsRow& row : segment.rows) append_journal_line(text, keys, row);
    if (i < sessions.size() && sessions[i].columns.empty()) sessions[i].columns = segment.columns;
  }
  write_file(files, journal, text);
}

}  // namespace

RunFolder::~RunFolder() = default;

std::unique_ptr<RunFolder> RunFolder::create(const fs::path& explicit_dir, const std::string& name,
                                             const std::string& resolved_toml,
                                             const std::map<std::string, std::string>& environment,
                                             const SessionInfo& session, FileLayer& files) {
  MadeFolders made(files);
  fs::path path;
  if (!explicit_dir.empty()) {
    path = whole_path(explicit_dir);
    if (!made.make(path)) {
      throw ConfigError("--run-dir " + explicit_dir.string() +
                        ": exists already; name a folder that does not exist, or remove this one.");
    }
  } else {
    if (name.empty() || name.find('/') != std::string::npos) {
      throw ConfigError(
          "name = \"" + name +
          "\": a run's folder is called after it, so it has to be a word without '/'; change it.");
    }
    const fs::path stem = whole_path("runs") / (name + "-");
    for (int number = 1;; ++number) {
      path = stem;
      path += std::to_string(number);
      if (made.make(path)) break;
    }
  }

  FolderLock lock(path);
  std::string environment_json = json_object(environment);
  std::vector<Session> sessions = {new_session(0, session.finished_steps, session)};
  try {
    write_file(files, path / kConfigName, resolved_toml);
    write_file(files, path / kEnvironmentName, environment_json);
    write_sessions(files, path, sessions);
  } catch (...) {
    for (const char* file : {kConfigName, kEnvironmentName, kSessionsName}) {
      ::unlink((path / file).c_str());
    }
    throw;
  }
  made.keep();
  return std::make_unique<DiskRunFolder>(files, path, std::move(lock), std::move(sessions),
                                         resolved_toml, std::move(environment_json));
}

std::unique_ptr<RunFolder> RunFolder::reopen(const fs::path& dir, int64_t finished_steps,
                                             const std::string& resolved_toml,
                                             const std::map<std::string, std::string>& environment,
                                             const SessionInfo& session, FileLayer& files,
                                             std::optional<FolderLock> lock) {
  const fs::path path = whole_path(dir);
  if (!file_exists(path / kConfigName)) {
    throw ConfigError(dir.string() + ": is not a run's folder, which holds a " + kConfigName +
                      "; name the folder that the run made, such as runs/NAME-1.");
  }
  if (!lock) lock.emplace(path);
  // A process may die before any of these calls. Rows leave before anything says that there is a
  // new session, and it counts once sessions.jsonl has it; the next one does what is not done yet.
  std::vector<Session> sessions = read_sessions(path);
  restore_journal(files, path, finished_steps, sessions);
  remove_file(files, path / "summary.json");  // what goes on is not finished
  finish_superseding(files, path);
  supersede_rows(files, path, finished_steps);

  std::string environment_json = json_object(environment);
  const int64_t last = sessions.back().number;
  keep_for_session(files, path, "config.resolved", ".toml", last);
  keep_for_session(files, path, "environment", ".json", last);
  write_file(files, path / kConfigName, resolved_toml);
  write_file(files, path / kEnvironmentName, environment_json);
  sessions.push_back(new_session(last + 1, finished_steps, session));
  write_sessions(files, path, sessions);
  write_metrics(files, path / "metrics.h5",
                contents_of(path, sessions, resolved_toml, environment_json), 0);
  return std::make_unique<DiskRunFolder>(files, path, std::move(*lock), std::move(sessions),
                                         resolved_toml, std::move(environment_json));
}

std::optional<fs::path> RunFolder::newest(const std::string& name) {
  const std::string stem = name + "-";
  std::optional<fs::path> found;
  uint64_t greatest = 0;
  std::error_code error;
  for (fs::directory_iterator entry("runs", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string file = entry->path().filename().string();
    if (file.compare(0, stem.size(), stem) != 0) continue;
    uint64_t number = 0;
    const char *begin = file.data() + stem.size(), *end_of_name = file.data() + file.size();
    const auto [rest, problem] = std::from_chars(begin, end_of_name, number);
    if (problem != std::errc() || rest != end_of_name || number <= greatest ||
        !file_exists(entry->path() / kConfigName)) {
      continue;
    }
    greatest = number;
    found = whole_path(entry->path());
  }
  return found;
}

}  // namespace zerolab
