#pragma once
// The keys of an experiment that the host reads itself, described like a plugin's options, so
// that one checker serves both.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "zerolab/options.h"

#include "experiment/experiment.h"

namespace zerolab {

/// Keys outside any table.
struct TopLevelKeys {
  std::string name;
  int64_t seed = 1337;
  int64_t steps = 0;
  double gradient_clipping = 0;
  std::string device = "cpu";
  int64_t threads = 0;
  std::string init_from;
  std::vector<std::string> freeze;
  std::vector<std::string> extends;
  std::vector<std::string> plugin_path;
  static void describe(Describe<TopLevelKeys>& d);
  void check(Problems& problems) const;
};

/// Empty if a name suits a folder; otherwise what is wrong with it.
std::string check_name(std::string_view name);

/// Tables of the host, in the order of the resolved TOML; the first is the top level, whose name is
/// empty.
struct HostTable {
  std::string name;
  OptionSchema schema;
};
const std::vector<HostTable>& host_tables();

/// Copies the checked values of a host table ("", "batch", ...) into the experiment.
void assign_host_table(std::string_view table, const OptionValues& values, Experiment& experiment);

/// All host keys as a commented TOML skeleton, for help.
std::string describe_host_keys();

}  // namespace zerolab
