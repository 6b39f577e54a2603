#pragma once
// What metrics.h5 holds, read and written whole.

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "store/file_layer.h"
#include "store/run_folder.h"

namespace zerolab {

/// The rows between one start of a run and the next.
struct MetricsSegment {
  std::vector<std::string> columns;
  std::vector<MetricsRow> rows;  ///< each as long as `columns`
  /// The values of a column, a row each. Errors: StoreError if there is none of that name.
  std::vector<double> column(const std::string& name) const;
};

/// Where segment `index` lies in the file.
std::string segment_name(size_t index);

struct MetricsContents {
  std::vector<MetricsSegment> segments;  ///< in order; at least one
  std::string config;                    ///< TOML
  std::string environment;               ///< JSON
  std::optional<RunSummary> summary;     ///< of a finished run; read back sorted by name
};

/// Of a run that is finished, goes on, or was killed. Errors: StoreError if the file is missing,
/// damaged, something else, or of a newer format.
MetricsContents read_metrics(const std::filesystem::path& file);

/// Puts a file with these contents at `file`, all of it or nothing, and durable. The last segment
/// gets room for `spare_rows` more, allocated and filled with NaN. Errors: StoreError; what was
/// there stays.
void write_metrics(FileLayer& files, const std::filesystem::path& file,
                   const MetricsContents& contents, size_t spare_rows);

}  // namespace zerolab
