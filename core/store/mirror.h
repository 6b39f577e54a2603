#pragma once
// A second place for a run's checkpoints: <mirror>/<run folder's name>/checkpoints/step-000000500
// beside the run's small files, written by rclone while training goes on.
//
// Files first, compared by size and hash (read back where the mirror knows no hashes), then the
// run's small files, then manifest.json: a mirrored checkpoint with a manifest is complete. A
// mirror that fails is told about and changes nothing else.
// The mirror keeps what it has of the run's past: pruning a run removes nothing there. What the run
// took back is taken back there, too, before anything newer counts: the manifests of checkpoints
// from which it did not go on, and summary.json if it goes on.
// A mirror holds one run under a name: sessions.jsonl there and here must begin with the same
// session. One that holds another run is told about, and nothing is mirrored.
// A hash that the mirror states is believed. S3 states one that rclone gave it for files above
// rclone's cutoff for uploads in parts (200 MiB), whose parts it checked when they arrived.
// Ranks: rank 0 only.
// Order: push() as checkpoints get complete, then finish().
// Owns: a thread, and the rclone that it runs.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace zerolab {

class Mirror {
 public:
  /// Told sentences, from the mirror's thread, finish() or the destructor; must not throw.
  using Tell = std::function<void(const std::string&)>;

  /// `origin` is what the user gave it with; the message begins so. Errors: ConfigError if rclone
  /// is not in PATH or too old, or `remote` is no remote of it. A remote that cannot be reached now
  /// is no error.
  static void check(const std::string& remote,
                    const std::string& origin = "key 'checkpoint.mirror'");

  /// A checkpoint is tried four times, after growing pauses: `first_pause`, then 4 and 16 times as
  /// long. Errors: ConfigError if rclone is not in PATH.
  Mirror(std::string remote, const std::filesystem::path& run, Tell tell,
         std::chrono::milliseconds first_pause = std::chrono::seconds(2));
  ~Mirror();  ///< stops rclone and the thread at once; tells which checkpoints were still to come
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  /// [local] Returns at once. Of several that wait the newest goes first; one that has been pruned
  /// is passed over, also while it is being copied.
  void push(int64_t step);
  /// Waits until all is mirrored, with the run's small files as they are then, at most so long, and
  /// not once `give_up`, which is asked a few times a second, says so; tells what is not. Nothing
  /// is mirrored after that.
  void finish(double seconds, const std::function<bool()>& give_up = {});

  /// Brings the newest complete checkpoint, or that of `step` if it is not negative, and the run's
  /// small files from the mirror into `run`, which is made if missing, and locked meanwhile. All
  /// comes under partial names first and is compared with the mirror. What `run` has stays as it
  /// is, and no summary.json comes, unless it has no complete checkpoint at all: then the mirror's
  /// small files replace those there.
  /// Returns the step; nothing if the mirror has none. Errors: StoreError (mirror not reachable, or
  /// of another run than the one in `run`; another process writes `run`; disk full, ...), then no
  /// partial name stays; ConfigError if rclone is not in PATH.
  static std::optional<int64_t> fetch(const std::string& remote, const std::filesystem::path& run,
                                      int64_t step = -1);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace zerolab
