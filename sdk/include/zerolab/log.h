#pragma once
// Messages from plugins to the user. Not for the hot loop.

#include <string>

#include "zerolab/export.h"

namespace zerolab::log {

enum class Level { kDebug, kInfo, kWarning, kError };

/// The host's receiver; until it sets one, warnings and errors go to standard error.
using Sink = void (*)(Level level, const std::string& message);
ZEROLAB_API void set_sink(Sink sink);

ZEROLAB_API void write(Level level, const std::string& message);
inline void debug(const std::string& message) {
  write(Level::kDebug, message);
}
inline void info(const std::string& message) {
  write(Level::kInfo, message);
}
inline void warning(const std::string& message) {
  write(Level::kWarning, message);
}

}  // namespace zerolab::log
