#pragma once
// Rows of steps that a run does again: they leave metrics.jsonl for metrics.superseded.jsonl.
//
// Two files change, and a process may die between them. So what is to move is written down first,
// with the length that metrics.superseded.jsonl had (metrics.superseding.jsonl); until that file is
// gone, doing all of it again gives the same two files.
// Order: while no Journal is open; finish_superseding() before anything else is read of a folder
// that is gone on with.
// Ranks: rank 0 only.
// Errors: StoreError; after one, finish_superseding() completes what was begun.

#include <cstdint>
#include <filesystem>

#include "store/file_layer.h"

namespace zerolab {

/// Moves the rows of steps after `finished_steps`. A last line that was cut off goes away.
void supersede_rows(FileLayer& files, const std::filesystem::path& folder, int64_t finished_steps);

/// Completes what a process began that died in supersede_rows().
void finish_superseding(FileLayer& files, const std::filesystem::path& folder);

}  // namespace zerolab
