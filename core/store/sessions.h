#pragma once
// sessions.jsonl: when a run was started and gone on with, and from where; and which rows of the
// journal each session wrote. With it metrics.h5 can be made from the journal alone.
// Ranks: rank 0 writes.
// Errors: StoreError that names the file.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "store/file_layer.h"
#include "store/journal_reader.h"
#include "store/metrics_contents.h"
#include "store/run_folder.h"

namespace zerolab {

inline constexpr const char* kSessionsName = "sessions.jsonl";

/// "2026-11-30T18:51:04Z", in UTC.
std::string utc_now();

/// From one start of a run to its end, or to the death of its process.
struct Session {
  int64_t number = 0;      ///< counted from 0
  int64_t first_step = 1;  ///< its rows' steps begin here
  std::string started;     ///< UTC, "2026-11-30T18:51:04Z"
  SessionInfo info;
  std::string zerolab_version;
  /// Of its metrics; empty until they are opened.
  std::vector<std::string> columns;
  std::string line;  ///< as it stands in the file
};

/// A session that starts now.
Session new_session(int64_t number, int64_t finished_steps, const SessionInfo& info);

/// Sessions of the run in `folder`, by number; at least one. A line that is damaged is a session
/// without rows, and theirs count for the one before; a folder without the file had one session.
std::vector<Session> read_sessions(const std::filesystem::path& folder);

/// Puts the file there anew, durable. Lines of sessions before the last stay as they are.
void write_sessions(FileLayer& files, const std::filesystem::path& folder,
                    std::vector<Session>& sessions);

/// The journal's rows as metrics.h5 holds them: a segment for each session. A session that never
/// opened its metrics has no rows, and the columns of a neighbour.
std::vector<MetricsSegment> segments_of(const JournalRows& journal,
                                        const std::vector<Session>& sessions);

}  // namespace zerolab
