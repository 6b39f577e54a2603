#include "zerolab/log.h"

#include <atomic>
#include <cstdio>

namespace zerolab::log {
namespace {

void to_standard_error(Level level, const std::string& message) {
  if (level < Level::kWarning) return;
  const char* word = level == Level::kWarning ? "warning" : "error";
  std::fprintf(stderr, "zerolab: %s: %s\n", word, message.c_str());
}

std::atomic<Sink> g_sink{&to_standard_error};

}  // namespace

void set_sink(Sink sink) {
  g_sink = sink != nullptr ? sink : &to_standard_error;
}
void write(Level level, const std::string& message) {
  g_sink.load()(level, message);
}

}  // namespace zerolab::log
