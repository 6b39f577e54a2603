#include "store/journal.h"

#include <cerrno>
#include <cmath>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include "zerolab/error.h"

#include "store/json_text.h"

namespace zerolab {

Journal::Journal(FileLayer& files, std::filesystem::path path,
                 const std::vector<std::string>& columns)
    : files_(files), path_(std::move(path)) {
  for (const std::string& column : columns) keys_.push_back(json_quoted(column) + ": ");
  descriptor_ = files_.create(path_);
  if (descriptor_ < 0) fail(errno);
}

Journal::~Journal() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Journal::fail(int error) const {
  throw StoreError(path_.string() + ": cannot be written: " + errno_text(error) + ".");
}

void Journal::append(const MetricsRow& row) {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail(errno);
  // A deleted file takes writes without a murmur until the end of the run.
  if (status.st_nlink == 0)
    throw StoreError(path_.string() + ": was deleted while the run went on.");

  line_.assign(1, '{');
  for (size_t i = 0; i < row.size(); ++i) {
    if (std::isnan(row[i])) continue;
    if (line_.size() > 1) line_ += ", ";
    line_ += keys_[i];
    append_json_number(line_, row[i]);
  }
  line_.append("}\n");
  if (const int error = write_all(files_, descriptor_, line_)) {
    // Best effort: if this fails too, the torn line has no line feed, and readers pass over it.
    [[maybe_unused]] const int ignored = ::ftruncate(descriptor_, length_);
    fail(error);
  }
  length_ += static_cast<off_t>(line_.size());
}

void Journal::close() {
  if (descriptor_ < 0) return;
  int error = files_.sync(descriptor_) != 0 ? errno : 0;
  if (::close(std::exchange(descriptor_, -1)) != 0 && error == 0) error = errno;
  if (error != 0) fail(error);
}

}  // namespace zerolab
