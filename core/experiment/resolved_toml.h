#pragma once
// Writes a checked experiment as TOML: every value, its origin in a comment, no bases; read
// again, it gives the same experiment.

#include <string>
#include <vector>

#include "experiment/experiment_tree.h"
#include "experiment/option_check.h"
#include "experiment/plugin_tables.h"

namespace zerolab {

/// `host` in the order of host_tables(). Options of plugins that are not chosen stay in tables of
/// their own.
std::string write_resolved_toml(const ExperimentTree& tree, const std::vector<CheckedTable>& host,
                                const KindTables& kinds, int num_ranks);

}  // namespace zerolab
