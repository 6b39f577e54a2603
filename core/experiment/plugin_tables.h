#pragma once
// The tables of the six kinds: which plugin is chosen, which settings are its options, which
// wait for another plugin.

#include <array>
#include <string>
#include <vector>

#include "experiment/experiment.h"
#include "experiment/experiment_tree.h"
#include "experiment/option_check.h"

namespace zerolab {

/// A setting that the chosen plugin does not use; kept, so that the resolved experiment can be
/// swapped too.
struct UnusedOption {
  std::string plugin, option;
  OptionValue value;
  std::string origin;
  size_t layer = 0;
};

/// A kind's table, checked.
struct KindTable {
  const OptionSchema* schema = nullptr;  ///< of the chosen plugin; null if missing or refused
  std::string plugin;                    ///< empty if none is chosen
  std::string plugin_origin;             ///< where the choice was made
  CheckedTable options;
  std::vector<UnusedOption> unused;
  std::vector<std::string>
      not_installed;  ///< plugins with a table of their own that nobody could check
};
using KindTables = std::array<KindTable, kKinds.size()>;  ///< indexed by Kind

/// Checks the tables of all kinds. Problems go to the report. May load plugins.
///
/// For an option of the chosen plugin, [kind] and [kind.NAME] are two places to say it: the later
/// layer wins, and within one layer the more specific place. Where a later layer chose another
/// plugin, options in [kind] that only the earlier choice knows are set aside: a one-word swap
/// never trips over them.
KindTables check_kind_tables(const ExperimentTree& tree, PluginCatalogue& catalogue,
                             ProblemReport& report);

/// "; it belongs in [scheduler]" if a key that is unknown where it stands has a place
/// elsewhere; else empty. `schemas` are those of the chosen plugins by kind, null where none is.
using ChosenSchemas = std::array<const OptionSchema*, kKinds.size()>;
std::string place_elsewhere(std::string_view key, std::string_view table,
                            const ChosenSchemas& schemas);

}  // namespace zerolab
