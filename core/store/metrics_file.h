#pragma once
// metrics.h5 while a run goes on.
//
// Whatever call the process dies in, the file opens and holds every row whose append() returned.
// HDF5 does not promise that of a file that grows: between two writes of one flush, its index
// may point beyond the end that its header states. So a live file has room for rows to come,
// filled with NaN, and a row is written in place: its values first, its step last. A full file
// is replaced by one with twice the room, and at the end by one without, each written beside it
// and renamed.
// Order: append() until finish().
// Ranks: rank 0 only.
// Errors: StoreError that names the file.
// Owns: the open file.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <hdf5.h>

#include "store/file_layer.h"
#include "store/hdf5_handle.h"
#include "store/metrics_contents.h"
#include "store/run_folder.h"

namespace zerolab {

class MetricsFile {
 public:
  /// Creates the file with what is known before the first row; rows are added to the last segment.
  MetricsFile(FileLayer& files, std::filesystem::path path, const MetricsContents& contents);

  /// [hot] Adds a row of as many values as there are columns; its first, the step, is not NaN. On
  /// return it survives the death of the process, not of the machine. Not after a StoreError, which
  /// leaves the rows before it in the file.
  void append(const MetricsRow& row);
  /// Adds the summary, if there is one, takes the room to spare away, makes everything durable and
  /// closes. If this throws, the rows are still in the file.
  void finish(const std::optional<RunSummary>& summary);

 private:
  void open();
  void close();
  void grow();
  void write_cells(hsize_t first, hsize_t count, const double* values);

  FileLayer& files_;
  std::filesystem::path path_;
  hsize_t num_columns_ = 0, num_rows_ = 0, capacity_ = 0;
  Hdf5Handle file_, rows_, row_space_, cell_space_;
};

}  // namespace zerolab
