#pragma once
// What a finished run says about bytes: predicted beside counted, and what the collectives cost.

#include <string>
#include <utility>
#include <vector>

#include "train/record.h"

namespace zerolab {

/// "reduce_scatter_calls", "reduce_scatter_bytes", "reduce_scatter_seconds",
/// "reduce_scatter_exposed_seconds", and so on for each kind; and the values in that order.
std::vector<std::string> collective_columns();
void append_values(const CollectiveRecords& records, std::vector<double>& values);

/// Lines for the end of a run: a table of bytes, a sentence on each that was predicted wrongly, a
/// table of collectives, and what reducing once a step would save.
std::string byte_report(const RunResult& result);

/// The same as numbers by name, for summaries; NaN where nothing was predicted.
std::vector<std::pair<std::string, double>> byte_numbers(const RunResult& result);

}  // namespace zerolab
