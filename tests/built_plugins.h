#pragma once
// The plugins of this build, for tests that run them.

#include "host/plugin_host.h"

inline zerolab::PluginHost& host() {
  static zerolab::PluginHost host = [] {
    zerolab::PluginSearch search;
    search.from_command_line = {ZEROLAB_TEST_PLUGIN_DIR};
    return zerolab::PluginHost(search);
  }();
  return host;
}
