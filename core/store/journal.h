#pragma once
// metrics.jsonl, the journal of a run: one JSON object a row, written before the row goes to
// metrics.h5.
// Order: append() until close().
// Ranks: rank 0 only.
// Owns: the file's descriptor.

#include <filesystem>
#include <string>
#include <vector>

#include <sys/types.h>

#include "store/file_layer.h"
#include "store/run_folder.h"

namespace zerolab {

/// A row as a line, with its line feed; `keys` are journal_keys() of its columns.
void append_journal_line(std::string& out, const std::vector<std::string>& keys,
                         const MetricsRow& row);
std::vector<std::string> journal_keys(const std::vector<std::string>& columns);

class Journal {
 public:
  /// Opens the file, which is there and ends with a line feed, to add to it. Errors: StoreError.
  Journal(FileLayer& files, std::filesystem::path path, const std::vector<std::string>& columns);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// [hot] One line in one write, without values that are NaN. In the kernel's hands on return: it
  /// survives the death of the process, not of the machine. Errors: StoreError; a line that only
  /// went in part is taken back.
  void append(const MetricsRow& row);
  /// A descriptor of the same file, the caller's to close: with it another thread can sync what is
  /// there while this one appends. Errors: StoreError.
  int duplicate() const;
  /// Makes all lines durable. Errors: StoreError.
  void close();

 private:
  [[noreturn]] void fail(int error) const;

  FileLayer& files_;
  std::filesystem::path path_;
  std::vector<std::string> keys_;  ///< `"name": `
  std::string line_;
  int descriptor_ = -1;
  off_t length_ = 0;  ///< bytes of whole lines
};

}  // namespace zerolab
