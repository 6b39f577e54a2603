#pragma once
// The place where ranks meet: a key-value store over TCP (c10d's TCPStore), and the failures
// that ranks report there.
//
// A failure that is a rank's own (a bad file, a full disk, being stuck) is kept apart from one that
// only says that a peer is gone, so that the cause is found whichever was written first.
// Ranks: every function is [local]; functions on failures never throw and never block for long.
// Errors: ConfigError for a port in use; PeerError if the others do not come.

#include <memory>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "distributed/failure.h"
#include "distributed/world.h"

namespace zerolab {

class Meeting {
 public:
  /// [setup] Hosts on the loopback; port 0 takes any free one.
  static std::unique_ptr<Meeting> host_on_loopback(int port);
  /// [setup] Reaches the meeting of a run, or hosts it if the environment says so.
  static std::unique_ptr<Meeting> reach(const RankEnvironment& environment, double timeout_s);

  int port() const { return port_; }
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

  /// [setup] Says that this rank is here and waits for the others.
  void wait_for_all(const RankEnvironment& environment, double timeout_s);

  void report(const Failure& failure);
  /// The first failure that is a rank's own; else the first that blames a peer; else nothing.
  std::optional<Failure> failure();
  /// Waits up to `seconds` for a rank's own failure, then as failure(). Tells the host that it may
  /// go.
  std::optional<Failure> await_failure(double seconds);
  /// The host of a failed run stays until the `others` have looked, at most `seconds`.
  void linger(int others, double seconds);

  /// Tells the launcher where the run is kept; it reads that after a failure.
  void announce_run_folder(const std::string& path);
  /// Empty if no rank announced one.
  std::string run_folder();

 private:
  Meeting(c10::intrusive_ptr<c10d::Store> store, int port, const std::string& prefix);
  std::optional<Failure> read(const std::string& key);

  c10::intrusive_ptr<c10d::Store> store_;  ///< under the run's prefix
  int port_;
};

/// The message of any exception, without source positions, back traces and line breaks.
std::string plain_message(const std::exception& error);

}  // namespace zerolab
