#include "store/journal.h"

#include <cerrno>
#include <cmath>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "zerolab/error.h"

#include "store/json_text.h"

namespace zerolab {

std::vector<std::string> journal_keys(const std::vector<std::string>& columns) {
  std::vector<std::string> keys;
  for (const std::string& column : columns) keys.push_back(json_quoted(column) + ": ");
  return keys;
}

void append_journal_line(std::string& out, const std::vector<std::string>& keys,
                         const MetricsRow& row) {
  char before = '{';
  for (size_t i = 0; i < row.size(); ++i) {
    if (std::isnan(row[i])) continue;
    out += before;
    if (before == ',') out += ' ';
    before = ',';
    out += keys[i];
    append_json_number(out, row[i]);
  }
  out += "}\n";
}

Journal::Journal(FileLayer& files, std::filesystem::path path,
                 const std::vector<std::string>& columns)
    : files_(files), path_(std::move(path)), keys_(journal_keys(columns)) {
  descriptor_ = files_.open_to_append(path_);
  if (descriptor_ < 0) fail(errno);
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) {
    const int error = errno;
    ::close(descriptor_);
    fail(error);
  }
  length_ = status.st_size;
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

  line_.clear();
  append_journal_line(line_, keys_, row);
  if (const int error = write_all(files_, descriptor_, line_)) {
    // Best effort: if this fails too, the torn line has no line feed, and readers pass over it.
    [[maybe_unused]] const int ignored = ::ftruncate(descriptor_, length_);
    fail(error);
  }
  length_ += static_cast<off_t>(line_.size());
}

int Journal::duplicate() const {
  const int descriptor = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0) fail(errno);
  return descriptor;
}

void Journal::close() {
  if (descriptor_ < 0) return;
  int error = files_.sync(descriptor_) != 0 ? errno : 0;
  if (::close(std::exchange(descriptor_, -1)) != 0 && error == 0) error = errno;
  if (error != 0) fail(error);
}

}  // namespace zerolab
