#include "store/sessions.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <optional>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "zerolab/version.h"

namespace zerolab {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr int64_t kUnknownStep = std::numeric_limits<int64_t>::max();

std::string line_of(const Session& session) {
  nlohmann::ordered_json line;
  line["session"] = session.number;
  line["first_step"] = session.first_step;
  line["started"] = session.started;
  line["ranks"] = session.info.ranks;
  line["source"] = session.info.source;
  line["zerolab_version"] = session.zerolab_version;
  if (!session.columns.empty()) line["columns"] = session.columns;
  return line.dump(-1, ' ', false, json::error_handler_t::replace);
}

Session parse_session(const std::string& text, int64_t number) {
  Session session;
  session.number = number;
  session.line = text;
  try {
    const json line = json::parse(text);
    session.first_step = line.at("first_step").get<int64_t>();
    session.started = line.value("started", "");
    session.info.ranks = line.value("ranks", 1);
    session.info.source = line.value("source", "");
    session.zerolab_version = line.value("zerolab_version", "");
    session.columns = line.value("columns", std::vector<std::string>());
  } catch (const json::exception&) {
    session.first_step = kUnknownStep;
  }
  return session;
}

/// Which of the journal's columns stands at each of a segment's.
std::vector<std::optional<size_t>> places(const std::vector<std::string>& columns,
                                          const std::vector<std::string>& in_journal) {
  std::vector<std::optional<size_t>> found;
  for (const std::string& column : columns) {
    const auto at = std::find(in_journal.begin(), in_journal.end(), column);
    if (at == in_journal.end()) {
      found.emplace_back();
    } else {
      found.emplace_back(static_cast<size_t>(at - in_journal.begin()));
    }
  }
  return found;
}

/// The columns that the session said it has, and what its rows have besides: in a folder whose
/// sessions.jsonl is lost, all of them, the step first.
std::vector<std::string> columns_of(const Session& session, const JournalRows& journal,
                                    const std::vector<const MetricsRow*>& rows) {
  std::vector<std::string> columns = session.columns;
  if (columns.empty() && !rows.empty()) columns.emplace_back("step");
  for (size_t i = 0; i < journal.columns.size(); ++i) {
    const auto has = [i](const MetricsRow* row) { return !std::isnan((*row)[i]); };
    if (std::find(columns.begin(), columns.end(), journal.columns[i]) == columns.end() &&
        std::any_of(rows.begin(), rows.end(), has)) {
      columns.push_back(journal.columns[i]);
    }
  }
  return columns;
}

MetricsSegment segment_of(const Session& session, const JournalRows& journal,
                          const std::vector<const MetricsRow*>& rows) {
  MetricsSegment segment;
  segment.columns = columns_of(session, journal, rows);
  const auto from = places(segment.columns, journal.columns);
  for (const MetricsRow* row : rows) {
    MetricsRow& values = segment.rows.emplace_back();
    for (const std::optional<size_t>& place : from) {
      values.push_back(place ? (*row)[*place] : std::nan(""));
    }
  }
  return segment;
}

/// So that a reader who asks every segment for a column finds it.
void lend_columns(std::vector<MetricsSegment>& segments) {
  const auto has_some = [](const MetricsSegment& segment) { return !segment.columns.empty(); };
  const auto first = std::find_if(segments.begin(), segments.end(), has_some);
  std::vector<std::string> columns = {"step"};
  if (first != segments.end()) columns = first->columns;
  for (MetricsSegment& segment : segments) {
    if (segment.columns.empty()) segment.columns = columns;
    columns = segment.columns;
  }
}

}  // namespace

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm fields{};
  ::gmtime_r(&now, &fields);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &fields)};
}

Session new_session(int64_t number, int64_t finished_steps, const SessionInfo& info) {
  return {number, finished_steps + 1, utc_now(), info, ZEROLAB_VERSION, {}, {}};
}

std::vector<Session> read_sessions(const fs::path& folder) {
  std::vector<Session> sessions;
  if (file_exists(folder / kSessionsName)) {
    std::istringstream text(read_text_file(folder / kSessionsName));
    for (std::string line; std::getline(text, line);) {
      sessions.push_back(parse_session(line, static_cast<int64_t>(sessions.size())));
    }
  }
  if (sessions.empty()) sessions.emplace_back();
  return sessions;
}

void write_sessions(FileLayer& files, const fs::path& folder, std::vector<Session>& sessions) {
  std::string text;
  for (Session& session : sessions) {
    if (session.line.empty() || &session == &sessions.back()) session.line = line_of(session);
    text += session.line + "\n";
  }
  write_file(files, folder / kSessionsName, text);
}

std::vector<MetricsSegment> segments_of(const JournalRows& journal,
                                        const std::vector<Session>& sessions) {
  std::vector<std::vector<const MetricsRow*>> rows(sessions.size());
  const auto step = std::find(journal.columns.begin(), journal.columns.end(), "step");
  for (const MetricsRow& row : journal.rows) {
    // Rows of later steps were superseded when a session started, so the last one that started at
    // or before the row's step wrote it.
    const double at = row[static_cast<size_t>(step - journal.columns.begin())];
    size_t owner = sessions.size() - 1;
    while (owner > 0 && static_cast<double>(sessions[owner].first_step) > at) --owner;
    rows[owner].push_back(&row);
  }
  std::vector<MetricsSegment> segments;
  for (size_t i = 0; i < sessions.size(); ++i) {
    segments.push_back(segment_of(sessions[i], journal, rows[i]));
  }
  lend_columns(segments);
  return segments;
}

}  // namespace zerolab
