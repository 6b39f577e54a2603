#pragma once
// The host's own tables of an experiment, checked, and the arithmetic between batch sizes.

#include <vector>

#include "experiment/experiment_tree.h"
#include "experiment/option_check.h"
#include "experiment/plugin_tables.h"

namespace zerolab {

/// Checks the tables of host_tables(), in their order, and reports keys of the top level that
/// nobody reads. `schemas`: of the chosen plugins, to tell where a misplaced key belongs.
/// micro_batch_size * gradient_accumulation_steps * num_ranks = total_batch_size: what is not given
/// follows. Problems go to the report.
std::vector<CheckedTable> check_host_tables(const ExperimentTree& tree,
                                            const ChosenSchemas& schemas, int num_ranks,
                                            ProblemReport& report);

}  // namespace zerolab
