#pragma once
// Which run a mirror holds, and how far: sessions.jsonl there against the one here.
// Ranks: rank 0 only.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace zerolab {

/// Of a line of sessions.jsonl, what tells sessions apart.
struct SessionStart {
  std::string started;  ///< empty: the line cannot be read
  std::string source;
  int64_t first_step = 1;

  bool is_same(const SessionStart& other) const {
    return started == other.started && source == other.source;
  }
};

/// A session for each line of the file's text.
std::vector<SessionStart> session_starts(const std::string& text);
/// Those of a run's folder; none if it has no such file. Errors: StoreError if it cannot be read.
std::vector<SessionStart> session_starts_in(const std::filesystem::path& run);

/// How the run there differs from the one here, in words; empty if it is the same run, or one of
/// the two cannot be told.
std::string other_run(const std::vector<SessionStart>& there,
                      const std::vector<SessionStart>& here);

/// The first step of the newest session here, if the mirror does not know that session: what it has
/// of that step and later ones is of an earlier session, and this one does them again.
std::optional<int64_t> first_superseded(const std::vector<SessionStart>& there,
                                        const std::vector<SessionStart>& here);

}  // namespace zerolab
