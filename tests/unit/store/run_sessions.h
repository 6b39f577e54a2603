#pragma once
// Runs of several sessions with rows that tell who wrote them, what their folder has to hold, and a
// file layer that dies.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "catch.h"
#include "scratch.h"
#include "store/file_layer.h"
#include "store/journal_reader.h"
#include "store/metrics_contents.h"
#include "store/run_folder.h"

namespace zerolab {

/// What a process that is killed leaves undone: all that comes after.
struct Killed {};

/// Dies before its n-th call, or after it. Syncs are counted and not made; nor is the one that ext4
/// makes of its own when a file takes another's place, which is a hundred times the rest.
class DyingFiles : public FileLayer {
 private:
  template <typename Call>
  auto call(const Call& call) {
    if (!armed_) return call();
    ++num_calls_;
    if (num_calls_ == deadly_call_ && !after_) throw Killed();
    const auto result = call();
    if (num_calls_ == deadly_call_) throw Killed();
    return result;
  }

 public:
  explicit DyingFiles(int deadly_call = 0, bool after = false)
      : deadly_call_(deadly_call), after_(after) {}
  /// Calls count only while armed, as it is at first.
  void arm(bool armed) { armed_ = armed; }

  int create(const std::filesystem::path& path) override {
    return call([&] { return FileLayer::create(path); });
  }
  int open_to_append(const std::filesystem::path& path) override {
    return call([&] { return FileLayer::open_to_append(path); });
  }
  ssize_t write(int descriptor, const char* data, size_t size) override {
    // In two halves, so that it can die between them.
    return call([&] { return FileLayer::write(descriptor, data, (size + 1) / 2); });
  }
  int sync(int) override {
    return call([] { return 0; });
  }
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return call([&] {
      ::unlink(to.c_str());
      return FileLayer::rename(from, to);
    });
  }
  int unlink(const std::filesystem::path& path) override {
    return call([&] { return FileLayer::unlink(path); });
  }

 private:
  int deadly_call_, num_calls_ = 0;
  bool after_, armed_ = true;
};

inline const std::vector<std::string> kRunColumns = {"step", "loss", "val_loss", "session",
                                                     "never"};

/// Values that lose bits easily; NaN where a column has none.
inline MetricsRow row_of(int64_t step, int session) {
  const double none = std::nan(""), s = static_cast<double>(step);
  return {s, session == 1 ? std::numeric_limits<double>::infinity() : 1 / (s + session),
          step % 3 == 0 ? -1e-310 * s : none, static_cast<double>(session), none};
}

inline bool same_rows(const std::vector<MetricsRow>& a, const std::vector<MetricsRow>& b) {
  const auto same = [](double x, double y) {
    return (std::isnan(x) && std::isnan(y)) || std::memcmp(&x, &y, sizeof x) == 0;
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const MetricsRow& x, const MetricsRow& y) {
                      return std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
                    });
}

/// "step/session" of each row, in order, after a check of its values; empty for a missing file.
inline std::vector<std::string> names_of(const std::vector<std::string>& columns,
                                         const std::vector<MetricsRow>& rows) {
  std::vector<std::string> names;
  for (const MetricsRow& row : rows) {
    MetricsRow values;
    for (const std::string& column : kRunColumns) {
      const auto at = std::find(columns.begin(), columns.end(), column);
      values.push_back(at == columns.end() ? std::nan("")
                                           : row[static_cast<size_t>(at - columns.begin())]);
    }
    const auto step = static_cast<int64_t>(values[0]);
    const auto session = static_cast<int>(values[3]);
    REQUIRE(same_rows({values}, {row_of(step, session)}));
    names.push_back(std::to_string(step) + "/" + std::to_string(session));
  }
  return names;
}

inline std::vector<std::string> journal_names(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return {};
  const JournalRows journal = read_journal(file);
  REQUIRE(journal.num_damaged == 0);
  return names_of(journal.columns, journal.rows);
}

inline std::vector<std::string> segment_names(size_t segment) {
  const MetricsContents contents = read_metrics("run/metrics.h5");
  const MetricsSegment& found = contents.segments.at(segment);
  return names_of(found.columns, found.rows);
}

using Names = std::vector<std::string>;

inline void add_rows(RunFolder& run, int64_t first, int64_t last, int session) {
  for (int64_t step = first; step <= last; ++step) run.append(row_of(step, session));
}

inline std::string config_of(int session) {
  return "seed = " + std::to_string(session) + "\n";
}

/// Session 0 of ./run.
inline std::unique_ptr<RunFolder> begin_run(FileLayer& files = real_files()) {
  auto run = RunFolder::create("run", "", config_of(0), {{"session", "0"}}, {2, ""}, files);
  run->open_metrics(kRunColumns);
  return run;
}

/// A later session of ./run, without metrics yet.
inline std::unique_ptr<RunFolder> reopen_run(int64_t finished_steps, int session,
                                             FileLayer& files = real_files()) {
  return RunFolder::reopen("run", finished_steps, config_of(session),
                           {{"session", std::to_string(session)}},
                           {1, "step " + std::to_string(finished_steps)}, files);
}

inline std::unique_ptr<RunFolder> go_on(int64_t finished_steps, int session,
                                        FileLayer& files = real_files()) {
  auto run = reopen_run(finished_steps, session, files);
  run->open_metrics(kRunColumns);
  return run;
}

}  // namespace zerolab
