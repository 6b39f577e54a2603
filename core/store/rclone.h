#pragma once
// rclone, as the mirror uses it: files copied, and compared with what they were copied from.
//
// The user's configuration and RCLONE_* variables hold; where they say nothing, waits and retries
// are shorter than rclone's own, so that a mirror that does not answer is noticed in minutes.
// rclone asks nothing. A line of its progress every two seconds goes to a pipe of this process:
// if the process is killed, that line ends rclone, too.
// Needs rclone 1.53 (2020).
// Ranks: local. From one thread at a time.
// Errors: StoreError if rclone cannot be started; all else is in the results.

#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "store/child_output.h"

namespace zerolab {

/// Folder `below` of a remote ("remote:path", "remote:", or a folder).
std::string join_remote(const std::string& remote, const std::string& below);
/// "remote:" of "remote:path", with options if it has any; empty if `remote` is a folder.
std::string remote_root(const std::string& remote);

struct RcloneResult {
  int code = 0;
  bool stopped = false;
  std::string output;
  std::string log;
  std::string reason;  ///< why it failed, one line without a full stop; empty if it did not

  bool ok() const { return code == 0 && !stopped; }
};

/// Which files of a folder: rclone's filters, and the names that have to be there in the end.
struct FileChoice {
  std::vector<std::string> filters;
  std::set<std::string> names;  ///< with '/', relative to the folder
};

class Rclone {
 public:
  /// Takes rclone from PATH, and the environment as it is now. `stop` outlives this. `origin` is
  /// what asked for a mirror. Errors: ConfigError if rclone is not in PATH.
  explicit Rclone(const StopSwitch& stop, const std::string& origin = "key 'checkpoint.mirror'");

  RcloneResult run(const std::vector<std::string>& arguments,
                   double seconds = std::numeric_limits<double>::infinity()) const;
  /// The files in or below a folder, down to `depth` levels; none if it does not exist. `problem`
  /// is empty if the answer can be relied on.
  std::set<std::string> list(const std::string& folder, int depth, std::string& problem) const;
  /// What is in a file. `problem` as in list().
  std::string text(const std::string& file, std::string& problem) const;
  /// Removes a file of a folder; one that is not there is removed. Returns what is wrong; empty if
  /// nothing.
  std::string remove(const std::string& folder, const std::string& name) const;
  /// Copies what is not there yet and compares; what then differs is copied once more. Returns what
  /// is wrong; empty if nothing.
  std::string copy(const std::string& from, const std::string& to, const FileChoice& files) const;
  /// By size and hash; by reading everything where the two have no hash in common. Returns what
  /// differs; empty if nothing.
  std::string compare(const std::string& from, const std::string& to,
                      const FileChoice& files) const;
  bool stopped() const { return stop_.stopped(); }

 private:
  std::string transfer(const std::string& from, const std::string& to, const FileChoice& files,
                       const char* unless) const;
  bool has_hashes(const std::string& remote) const;

  const StopSwitch& stop_;
  std::string program_;
  std::vector<std::string> environment_;
  mutable std::set<std::string> with_hashes_;  ///< roots known to have some
};

}  // namespace zerolab
