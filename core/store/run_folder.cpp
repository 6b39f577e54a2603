#include "store/run_folder.h"

#include <cerrno>
#include <cmath>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "zerolab/error.h"

#include "store/file_layer.h"
#include "store/journal.h"
#include "store/json_text.h"
#include "store/metrics_contents.h"
#include "store/metrics_file.h"

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

class DiskRunFolder final : public RunFolder {
 public:
  DiskRunFolder(FileLayer& files, fs::path path, std::string config, std::string environment)
      : files_(files),
        path_(std::move(path)),
        config_(std::move(config)),
        environment_(std::move(environment)) {}

  const fs::path& path() const override { return path_; }

  void open_metrics(const std::vector<std::string>& columns) override {
    if (metrics_ != nullptr) throw Error(path_.string() + ": the metrics are open already.");
    if (columns.empty() || columns.front() != "step") {
      throw Error(path_.string() + ": the first column of the metrics has to be 'step'.");
    }
    auto metrics = std::make_unique<MetricsFile>(
        files_, path_ / "metrics.h5",
        MetricsContents{{{columns, {}}}, config_, environment_, std::nullopt});
    journal_ = std::make_unique<Journal>(files_, path_ / "metrics.jsonl", columns);
    metrics_ = std::move(metrics);
    num_columns_ = columns.size();
  }

  void append(const MetricsRow& row) override {
    check_open();
    if (row.size() != num_columns_ || std::isnan(row.front())) {
      throw Error(path_.string() + ": a row has to have " + std::to_string(num_columns_) +
                  " values, one for each column, and its step has to be a number.");
    }
    try {
      // The journal first: what it holds, metrics.h5 can be made from.
      journal_->append(row);
      metrics_->append(row);
    } catch (const StoreError& error) {
      metrics_.reset();
      journal_.reset();
      std::string reason = error.what();
      reason.pop_back();  // the full stop
      throw StoreError(reason + "; the " + std::to_string(num_rows_) + " rows before are safe in " +
                       path_.string() + ", so free some space there or look at the disk.");
    }
    ++num_rows_;
  }

  void finish(const RunSummary& summary) override {
    check_open();
    const auto metrics = std::move(metrics_);
    const auto journal = std::move(journal_);
    journal->close();
    metrics->finish(summary);
    write_file(files_, path_ / "summary.json", summary_json(summary));
  }

 private:
  void check_open() const {
    if (metrics_ != nullptr) return;
    throw Error(path_.string() +
                ": the metrics are not open: not yet, no more, or closed by an error.");
  }

  FileLayer& files_;
  fs::path path_;
  std::string config_, environment_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<Journal> journal_;
  size_t num_columns_ = 0;
  int64_t num_rows_ = 0;
};

}  // namespace

RunFolder::~RunFolder() = default;

std::unique_ptr<RunFolder> RunFolder::create(const fs::path& explicit_dir, const std::string& name,
                                             const std::string& resolved_toml,
                                             const std::map<std::string, std::string>& environment,
                                             FileLayer& files) {
  MadeFolders made(files);
  std::error_code error;
  fs::path path;
  if (!explicit_dir.empty()) {
    path = fs::absolute(explicit_dir, error).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();  // a trailing slash
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
    const fs::path stem = fs::absolute("runs", error) / (name + "-");
    for (int number = 1;; ++number) {
      path = stem;
      path += std::to_string(number);
      if (made.make(path)) break;
    }
  }

  std::string environment_json = json_object(environment);
  const fs::path config_file = path / "config.resolved.toml",
                 environment_file = path / "environment.json";
  try {
    write_file(files, config_file, resolved_toml);
    write_file(files, environment_file, environment_json);
  } catch (...) {
    ::unlink(config_file.c_str());
    ::unlink(environment_file.c_str());
    throw;
  }
  made.keep();
  return std::make_unique<DiskRunFolder>(files, path, resolved_toml, std::move(environment_json));
}

}  // namespace zerolab
