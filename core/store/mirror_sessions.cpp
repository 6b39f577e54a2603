#include "store/mirror_sessions.h"

#include <algorithm>
#include <sstream>

#include <nlohmann/json.hpp>

#include "store/file_layer.h"
#include "store/sessions.h"

namespace zerolab {
namespace {

SessionStart session_start(const std::string& text) try {
  const auto line = nlohmann::json::parse(text);
  return {line.at("started").get<std::string>(), line.value("source", ""),
          line.value("first_step", int64_t{1})};
} catch (const nlohmann::json::exception&) {
  return {};
}

std::string in_words(const SessionStart& session) {
  return session.started + (session.source.empty() ? "" : " from " + session.source);
}

}  // namespace

std::vector<SessionStart> session_starts(const std::string& text) {
  std::vector<SessionStart> sessions;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) sessions.push_back(session_start(line));
  return sessions;
}

std::vector<SessionStart> session_starts_in(const std::filesystem::path& run) {
  const std::filesystem::path file = run / kSessionsName;
  if (!file_exists(file)) return {};
  return session_starts(read_text_file(file));
}

std::string other_run(const std::vector<SessionStart>& there,
                      const std::vector<SessionStart>& here) {
  if (there.empty() || here.empty()) return {};
  const SessionStart &that = there.front(), &ours = here.front();
  if (that.started.empty() || ours.started.empty() || that.is_same(ours)) return {};
  return "that one was started " + in_words(that) + ", and this one " + in_words(ours);
}

std::optional<int64_t> first_superseded(const std::vector<SessionStart>& there,
                                        const std::vector<SessionStart>& here) {
  if (there.empty() || here.empty() || here.back().started.empty()) return {};
  const auto is_newest = [&](const SessionStart& one) { return one.is_same(here.back()); };
  if (std::any_of(there.begin(), there.end(), is_newest)) return {};
  return here.back().first_step;
}

}  // namespace zerolab
