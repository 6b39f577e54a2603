#pragma once
// A run's folder on a disk, once create() or reopen() of run_folder.h have put it in order.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "zerolab/error.h"

#include "store/folder_lock.h"
#include "store/journal.h"
#include "store/metrics_file.h"
#include "store/run_folder.h"
#include "store/sessions.h"

namespace zerolab {

class DiskRunFolder final : public RunFolder {
 public:
  /// `sessions` end with the running one; `config` and `environment` are the texts of its files.
  DiskRunFolder(FileLayer& files, std::filesystem::path path, FolderLock lock,
                std::vector<Session> sessions, std::string config, std::string environment);

  const std::filesystem::path& path() const override { return path_; }
  void open_metrics(const std::vector<std::string>& columns) override;
  void append(const MetricsRow& row) override;
  void rewind(int64_t finished_steps) override;
  void sync() override;
  void stop() override;
  void finish(const RunSummary& summary) override;

 private:
  void open_files();
  void seal(const std::optional<RunSummary>& summary);
  void check_open() const;
  /// Takes no more rows, and says in the error what is safe.
  [[noreturn]] void fail(const StoreError& error);

  FileLayer& files_;
  std::filesystem::path path_;
  FolderLock lock_;
  std::vector<Session> sessions_;
  std::string config_, environment_;

  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<Journal> journal_;
  size_t num_rows_ = 0;  ///< of all sessions, superseded ones aside
  bool opened_ = false, failed_ = false;
  /// Held where journal_ or failed_ change, and by sync() while it looks at them. append() takes it
  /// only when it fails, so that no row waits for a disk.
  std::mutex mutex_;
};

/// metrics.h5 as the folder's journal and its sessions tell it; without a summary.
MetricsContents contents_of(const std::filesystem::path& folder,
                            const std::vector<Session>& sessions, const std::string& config,
                            const std::string& environment);

}  // namespace zerolab
