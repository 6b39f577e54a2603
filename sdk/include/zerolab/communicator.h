#pragma once
// Collectives between ranks, with sums in one fixed order, counters, and a check that all ranks
// call the same.
//
// Every sum is made by all-to-all plus addition in float32 along a stride-doubling tree over
// ranks: in round k, rank i adds rank i + 2^k (for three ranks (r0 + r1) + r2). So every
// strategy adds in the same order, whatever the backend.
//
// Ranks: [collective] functions are called by all ranks in the same order. With each travels a
// fingerprint (operation, size, dtype, sequence number, label), compared in its wait() before the
// result is used, without waiting for anyone at its start: a mismatch is a PeerError that names
// both, not an abort. A label says what a collective is for ("gather of unit blocks.3"); up to 200
// characters.
// Errors: PeerError when a peer is gone, stuck longer than the time-out, or calls something
// else.
// Owns: tensors are the caller's, and stay untouched by the caller until wait().

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/export.h"

namespace zerolab {

enum class CollectiveKind : uint32_t {
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kControl
};
inline constexpr size_t kNumCollectiveKinds = 5;
ZEROLAB_API const char* collective_name(CollectiveKind kind);

struct CollectiveCounters {
  int64_t calls = 0;
  int64_t bytes = 0;           ///< payload that this rank sends to others
  double seconds = 0;          ///< from start to completion as seen by wait()
  double exposed_seconds = 0;  ///< of these, spent inside the call and its wait()
};

/// A collective under way.
class ZEROLAB_API Work {
 public:
  virtual ~Work();
  /// [collective] Returns when the result is there. Once.
  virtual void wait() = 0;
  /// Instead of wait(), when something is wrong: `reason` is what every further call will say.
  virtual void abandon(const std::string& /*reason*/) {}
};

/// Small numbers of all ranks under way.
class ZEROLAB_API ControlWork {
 public:
  virtual ~ControlWork();
  /// [collective] Rank after rank. Once.
  virtual std::vector<int64_t> wait() = 0;
};

class ZEROLAB_API Communicator {
 public:
  virtual ~Communicator();
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// A rank of this one by its number in the whole run, which is what errors name: another one
  /// where this was split off.
  int rank_in_run(int rank) const {
    return ranks_in_run_.empty() ? rank : ranks_in_run_[static_cast<size_t>(rank)];
  }

  /// [collective] [hot] out[S] = ordered sum over ranks of in[rank * S, rank * S + S); in is [R *
  /// S]. With one rank, a copy. `out` may be this rank's own slice of `in`. Float32 sums whatever
  /// the dtype. What arrives goes to `received` (like `in`), if the caller has memory for it.
  std::unique_ptr<Work> reduce_scatter(const at::Tensor& out, const at::Tensor& in,
                                       std::string_view label = {},
                                       const at::Tensor& received = {});
  /// [collective] [hot] out[R * S] = the ranks' in[S], one after the other. `in` may be this rank's
  /// own slice of `out`.
  std::unique_ptr<Work> all_gather(const at::Tensor& out, const at::Tensor& in,
                                   std::string_view label = {});
  /// [collective] out[r * S ...] = rank r's in[rank * S ...].
  std::unique_ptr<Work> all_to_all(const at::Tensor& out, const at::Tensor& in,
                                   std::string_view label = {});
  /// [collective] Everyone gets root's tensor.
  void broadcast(const at::Tensor& tensor, int root);

  /// [collective] Small control traffic, counted apart: each rank's numbers, rank after rank. Same
  /// length everywhere.
  std::vector<int64_t> gather_control(const std::vector<int64_t>& numbers);
  std::vector<double> gather_control(const std::vector<double>& numbers);
  /// [collective] Returns when everyone is here.
  void barrier();

  /// [collective] A communicator among `ranks` (ranks of this one, ascending, the caller among
  /// them); every rank calls it with the group that it belongs to. It counts into this one's
  /// counters, checks as this one does, and ends before it. Order of the calls: the same on all
  /// ranks. Errors: PluginError if the caller is not among them.
  std::unique_ptr<Communicator> split(const std::vector<int>& ranks);

  /// Since construction or the last reset, by kind.
  const CollectiveCounters& counters(CollectiveKind kind) const {
    return (*counters_)[static_cast<size_t>(kind)];
  }
  /// Payload of all kinds but control.
  int64_t payload_bytes() const;
  void reset_counters() { *counters_ = {}; }
  /// Fingerprints with each collective; on by default. They cost a small message to each rank, and
  /// no waiting.
  void set_checking(bool on) { checking_ = on; }

 protected:
  Communicator();
  // What a backend does. Tensors are 1-D and contiguous; sizes are already checked. Data of
  // exchanges with different fingerprints must not meet: other ranks may be calling something else,
  // which shows only in wait().
  virtual std::unique_ptr<Work> start_all_to_all(const at::Tensor& out, const at::Tensor& in,
                                                 uint32_t fingerprint) = 0;
  virtual std::unique_ptr<Work> start_all_gather(const at::Tensor& out, const at::Tensor& in,
                                                 uint32_t fingerprint) = 0;
  virtual void run_broadcast(const at::Tensor& tensor, int root) = 0;
  /// Gathers int64 of equal length on the control channel: [R * length]; several may be under way.
  virtual std::unique_ptr<ControlWork> start_gather_control(std::vector<int64_t> numbers) = 0;
  virtual std::unique_ptr<Communicator> start_split(const std::vector<int>& ranks) = 0;

 private:
  class CountedWork;
  class ReduceScatterWork;
  using Counters = std::array<CollectiveCounters, kNumCollectiveKinds>;
  /// A frame under way, and what it must be like.
  struct FrameExchange {
    std::unique_ptr<ControlWork> work;  ///< none while checking is off
    uint32_t fingerprint = 0;
    bool label_counts = true;
  };
  FrameExchange start_frame(CollectiveKind kind, int64_t elements, int64_t dtype, int64_t detail,
                            const std::vector<int64_t>& payload);
  FrameExchange start_check(CollectiveKind kind, const at::Tensor& tensor, int64_t detail,
                            std::string_view label);
  std::vector<int64_t> finish_frame(FrameExchange& exchange);
  std::unique_ptr<Work> counted(CollectiveKind kind, int64_t bytes, FrameExchange frame,
                                std::unique_ptr<Work> work, double started);
  at::Tensor take_scratch(const at::Tensor& like);
  void give_scratch(at::Tensor scratch);

  std::vector<int> ranks_in_run_;       // of a part
  std::shared_ptr<Counters> counters_;  // shared with what was split off
  std::vector<at::Tensor> scratch_;
  uint64_t sequence_ = 0;
  bool checking_ = true;
};

/// out = sum of the R slices of in[R * S] along the fixed tree, each addition in float32 and
/// rounded to the tensors' dtype. The arithmetic of reduce_scatter; [local].
ZEROLAB_API void tree_sum(const at::Tensor& out, const at::Tensor& in, int num_ranks);
/// The same tree over plain numbers.
ZEROLAB_API double tree_sum(std::vector<double> numbers);

/// A communicator of one rank: copies. For tests, plans and single-process runs.
ZEROLAB_API std::unique_ptr<Communicator> make_single_communicator();

}  // namespace zerolab
