#include "zerolab/communicator.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <functional>
#include <utility>

#include <ATen/ops/empty.h>

#include "zerolab/error.h"
#include "zerolab/random.h"

namespace zerolab {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Control traffic travels in frames of one length, so that ranks that disagree about what to do can
// still tell each other: a header (kind, elements, dtype, detail, sequence number), then numbers.
constexpr size_t kFrameLength = 32, kHeaderLength = 5;
constexpr size_t kFramePayload = kFrameLength - kHeaderLength;

/// A label in the payload of a frame, and back.
void write_label(std::string_view label, int64_t* payload) {
  constexpr size_t kLongest = kFramePayload * sizeof(int64_t) - 1;
  std::memcpy(payload, label.data(), std::min(label.size(), kLongest));
}

std::string describe(const int64_t* header) {
  const auto kind = static_cast<CollectiveKind>(header[0]);
  std::string text = collective_name(kind);
  text += " of " + std::to_string(header[1]) + " ";
  if (kind == CollectiveKind::kControl) return text + "numbers, call " + std::to_string(header[4]);
  text += c10::toString(static_cast<at::ScalarType>(header[2]));
  if (kind == CollectiveKind::kBroadcast) text += " from rank " + std::to_string(header[3]);
  const std::string label = reinterpret_cast<const char*>(header + kHeaderLength);
  if (!label.empty()) text += " (" + label + ")";
  return text + ", call " + std::to_string(header[4]);
}

class FinishedWork : public Work {
 public:
  void wait() override {}
};

class FinishedControl : public ControlWork {
 public:
  explicit FinishedControl(std::vector<int64_t> numbers) : numbers_(std::move(numbers)) {}
  std::vector<int64_t> wait() override { return std::move(numbers_); }

 private:
  std::vector<int64_t> numbers_;
};

void copy_unless_same(const at::Tensor& out, const at::Tensor& in) {
  if (out.const_data_ptr() != in.const_data_ptr()) out.copy_(in);
}

/// `out` and `in` as a collective wants them: 1-D, contiguous, of one dtype, `out` being in's
/// length * up / down.
void check_shapes(CollectiveKind kind, const at::Tensor& out, const at::Tensor& in, int64_t up,
                  int64_t down) {
  const auto plain = [](const at::Tensor& t) { return t.dim() == 1 && t.is_contiguous(); };
  const bool fits = plain(out) && plain(in) && out.scalar_type() == in.scalar_type() &&
                    in.numel() % down == 0 && out.numel() == in.numel() / down * up;
  if (fits) return;
  throw PluginError(
      std::string(collective_name(kind)) + " was given " + std::to_string(in.numel()) +
      " elements for " + std::to_string(out.numel()) + " (" + std::to_string(std::max(up, down)) +
      " ranks); tensors must be 1-D, contiguous, of one dtype and of the lengths that "
      "zerolab/communicator.h states");
}

class SingleCommunicator : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

 protected:
  std::unique_ptr<Work> start_all_to_all(const at::Tensor& out, const at::Tensor& in,
                                         uint32_t) override {
    copy_unless_same(out, in);
    return std::make_unique<FinishedWork>();
  }
  std::unique_ptr<Work> start_all_gather(const at::Tensor& out, const at::Tensor& in,
                                         uint32_t fingerprint) override {
    return start_all_to_all(out, in, fingerprint);
  }
  void run_broadcast(const at::Tensor&, int) override {}
  std::unique_ptr<ControlWork> start_gather_control(std::vector<int64_t> numbers) override {
    return std::make_unique<FinishedControl>(std::move(numbers));
  }
  std::unique_ptr<Communicator> start_split(const std::vector<int>&) override {
    return std::make_unique<SingleCommunicator>();
  }
};

}  // namespace

const char* collective_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kControl:
      return "control";
  }
  return "unknown";
}

Work::~Work() = default;
ControlWork::~ControlWork() = default;
Communicator::Communicator() : counters_(std::make_shared<Counters>()) {}
Communicator::~Communicator() = default;

/// Compares what ranks call before the result is waited for; adds the time spent to the counters.
class Communicator::CountedWork : public Work {
 public:
  CountedWork(Communicator& world, FrameExchange frame, std::unique_ptr<Work> work,
              CollectiveCounters& counters, double started)
      : world_(world),
        frame_(std::move(frame)),
        work_(std::move(work)),
        counters_(counters),
        started_(started) {}
  void wait() override {
    const double entered = now_s();
    try {
      world_.finish_frame(frame_);
    } catch (const Error& error) {
      work_->abandon(error.what());
      throw;
    }
    work_->wait();
    const double done = now_s();
    counters_.seconds += done - started_;
    counters_.exposed_seconds += done - entered;
  }

 private:
  Communicator& world_;
  FrameExchange frame_;
  std::unique_ptr<Work> work_;
  CollectiveCounters& counters_;
  double started_;
};

/// The second half of a reduce_scatter: the sum of what came in.
class Communicator::ReduceScatterWork : public Work {
 public:
  ReduceScatterWork(Communicator& world, std::unique_ptr<Work> exchange, at::Tensor received,
                    at::Tensor out, bool from_scratch)
      : world_(world),
        exchange_(std::move(exchange)),
        received_(std::move(received)),
        out_(std::move(out)),
        from_scratch_(from_scratch) {}
  void wait() override {
    exchange_->wait();
    tree_sum(out_, received_, world_.size());
    if (from_scratch_) world_.give_scratch(std::move(received_));
  }
  void abandon(const std::string& reason) override { exchange_->abandon(reason); }

 private:
  Communicator& world_;
  std::unique_ptr<Work> exchange_;
  at::Tensor received_, out_;
  bool from_scratch_;
};

std::unique_ptr<Work> Communicator::counted(CollectiveKind kind, int64_t bytes, FrameExchange frame,
                                            std::unique_ptr<Work> work, double started) {
  CollectiveCounters& counters = (*counters_)[static_cast<size_t>(kind)];
  counters.calls += 1;
  counters.bytes += bytes;
  counters.exposed_seconds += now_s() - started;
  return std::make_unique<CountedWork>(*this, std::move(frame), std::move(work), counters, started);
}

std::unique_ptr<Work> Communicator::reduce_scatter(const at::Tensor& out, const at::Tensor& in,
                                                   std::string_view label,
                                                   const at::Tensor& received) {
  check_shapes(CollectiveKind::kReduceScatter, out, in, 1, size());
  if (size() == 1) {
    copy_unless_same(out, in);
    return std::make_unique<FinishedWork>();
  }
  const double started = now_s();
  FrameExchange frame = start_check(CollectiveKind::kReduceScatter, in, 0, label);
  const bool own_memory = !received.defined();
  const at::Tensor arrived = own_memory ? take_scratch(in) : received;
  auto exchange = start_all_to_all(arrived, in, frame.fingerprint);
  const int64_t bytes = static_cast<int64_t>(in.nbytes()) / size() * (size() - 1);
  return counted(
      CollectiveKind::kReduceScatter, bytes, std::move(frame),
      std::make_unique<ReduceScatterWork>(*this, std::move(exchange), arrived, out, own_memory),
      started);
}

std::unique_ptr<Work> Communicator::all_gather(const at::Tensor& out, const at::Tensor& in,
                                               std::string_view label) {
  check_shapes(CollectiveKind::kAllGather, out, in, size(), 1);
  if (size() == 1) {
    copy_unless_same(out, in);
    return std::make_unique<FinishedWork>();
  }
  const double started = now_s();
  FrameExchange frame = start_check(CollectiveKind::kAllGather, in, 0, label);
  const int64_t bytes = static_cast<int64_t>(in.nbytes()) * (size() - 1);
  auto exchange = start_all_gather(out, in, frame.fingerprint);
  return counted(CollectiveKind::kAllGather, bytes, std::move(frame), std::move(exchange), started);
}

std::unique_ptr<Work> Communicator::all_to_all(const at::Tensor& out, const at::Tensor& in,
                                               std::string_view label) {
  check_shapes(CollectiveKind::kAllToAll, out, in, size(), size());
  if (size() == 1) {
    copy_unless_same(out, in);
    return std::make_unique<FinishedWork>();
  }
  const double started = now_s();
  FrameExchange frame = start_check(CollectiveKind::kAllToAll, in, 0, label);
  const int64_t bytes = static_cast<int64_t>(in.nbytes()) / size() * (size() - 1);
  auto exchange = start_all_to_all(out, in, frame.fingerprint);
  return counted(CollectiveKind::kAllToAll, bytes, std::move(frame), std::move(exchange), started);
}

std::unique_ptr<Communicator> Communicator::split(const std::vector<int>& ranks) {
  const bool ascending =
      std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  const bool inside = !ranks.empty() && ranks.front() >= 0 && ranks.back() < size();
  if (!ascending || !inside || !std::binary_search(ranks.begin(), ranks.end(), rank())) {
    throw PluginError("split was given ranks that are not an ascending part of 0 to " +
                      std::to_string(size() - 1) + " with the calling rank " +
                      std::to_string(rank()) + " in it");
  }
  std::unique_ptr<Communicator> part = start_split(ranks);
  part->counters_ = counters_;
  part->checking_ = checking_;
  for (const int r : ranks) part->ranks_in_run_.push_back(rank_in_run(r));
  return part;
}

void Communicator::broadcast(const at::Tensor& tensor, int root) {
  check_shapes(CollectiveKind::kBroadcast, tensor, tensor, 1, 1);
  if (root < 0 || root >= size()) {
    throw PluginError("broadcast from rank " + std::to_string(root) + ", but there are " +
                      std::to_string(size()) + " ranks");
  }
  if (size() == 1) return;
  const double started = now_s();
  FrameExchange frame = start_check(CollectiveKind::kBroadcast, tensor, root, {});
  finish_frame(frame);
  run_broadcast(tensor, root);
  const int64_t bytes = rank() == root ? static_cast<int64_t>(tensor.nbytes()) * (size() - 1) : 0;
  counted(CollectiveKind::kBroadcast, bytes, {}, std::make_unique<FinishedWork>(), started)->wait();
}

Communicator::FrameExchange Communicator::start_check(CollectiveKind kind, const at::Tensor& tensor,
                                                      int64_t detail, std::string_view label) {
  if (!checking_) return {};
  std::vector<int64_t> words(kFramePayload, 0);
  write_label(label, words.data());
  return start_frame(kind, tensor.numel(), static_cast<int64_t>(tensor.scalar_type()), detail,
                     words);
}

Communicator::FrameExchange Communicator::start_frame(CollectiveKind kind, int64_t elements,
                                                      int64_t dtype, int64_t detail,
                                                      const std::vector<int64_t>& payload) {
  std::vector<int64_t> frame(kFrameLength, 0);
  const int64_t header[kHeaderLength] = {static_cast<int64_t>(kind), elements, dtype, detail,
                                         static_cast<int64_t>(sequence_++)};
  std::copy_n(header, kHeaderLength, frame.begin());
  std::copy(payload.begin(), payload.end(), frame.begin() + kHeaderLength);
  FrameExchange exchange;
  // The payload of a data collective is its label; that of a control exchange differs.
  exchange.label_counts = kind != CollectiveKind::kControl;
  uint64_t hash = 0;
  for (const int64_t word : frame) hash = mix_key({hash, static_cast<uint64_t>(word)});
  exchange.fingerprint = static_cast<uint32_t>(hash);
  exchange.work = start_gather_control(std::move(frame));
  (*counters_)[static_cast<size_t>(CollectiveKind::kControl)].bytes +=
      static_cast<int64_t>(kFrameLength * sizeof(int64_t)) * (size() - 1);
  return exchange;
}

std::vector<int64_t> Communicator::finish_frame(FrameExchange& exchange) {
  if (!exchange.work) return {};
  std::vector<int64_t> frames = exchange.work->wait();
  const size_t compared = exchange.label_counts ? kFrameLength : kHeaderLength;
  for (int r = 1; r < size(); ++r) {
    const int64_t* other = frames.data() + static_cast<size_t>(r) * kFrameLength;
    if (std::equal(other, other + compared, frames.data())) continue;
    throw PeerError("ranks call different collectives: rank " + std::to_string(rank_in_run(0)) +
                    " calls " + describe(frames.data()) + ", rank " +
                    std::to_string(rank_in_run(r)) + " calls " + describe(other) +
                    "; every rank must call the same ones in the same order");
  }
  return frames;
}

std::vector<int64_t> Communicator::gather_control(const std::vector<int64_t>& numbers) {
  if (size() == 1) return numbers;
  CollectiveCounters& counters = (*counters_)[static_cast<size_t>(CollectiveKind::kControl)];
  const double started = now_s();
  const auto ranks = static_cast<size_t>(size());
  std::vector<int64_t> all;
  if (numbers.size() <= kFramePayload) {
    FrameExchange exchange =
        start_frame(CollectiveKind::kControl, static_cast<int64_t>(numbers.size()), 0, 0, numbers);
    const std::vector<int64_t> frames = finish_frame(exchange);
    for (size_t r = 0; r < ranks; ++r) {
      const auto begin =
          frames.begin() + static_cast<std::ptrdiff_t>(r * kFrameLength + kHeaderLength);
      all.insert(all.end(), begin, begin + static_cast<std::ptrdiff_t>(numbers.size()));
    }
  } else {
    FrameExchange exchange =
        start_frame(CollectiveKind::kControl, static_cast<int64_t>(numbers.size()), 0, 0, {});
    finish_frame(exchange);
    all = start_gather_control(numbers)->wait();
    counters.bytes += static_cast<int64_t>(numbers.size() * sizeof(int64_t) * (ranks - 1));
  }
  counters.calls += 1;
  const double took = now_s() - started;
  counters.seconds += took;
  counters.exposed_seconds += took;
  return all;
}

std::vector<double> Communicator::gather_control(const std::vector<double>& numbers) {
  std::vector<int64_t> bits;
  bits.reserve(numbers.size());
  for (double x : numbers) bits.push_back(std::bit_cast<int64_t>(x));
  std::vector<double> all;
  for (int64_t x : gather_control(bits)) all.push_back(std::bit_cast<double>(x));
  return all;
}

void Communicator::barrier() {
  gather_control(std::vector<int64_t>{});
}

int64_t Communicator::payload_bytes() const {
  int64_t bytes = 0;
  for (size_t kind = 0; kind < kNumCollectiveKinds; ++kind) {
    if (static_cast<CollectiveKind>(kind) != CollectiveKind::kControl)
      bytes += (*counters_)[kind].bytes;
  }
  return bytes;
}

at::Tensor Communicator::take_scratch(const at::Tensor& like) {
  for (size_t i = 0; i < scratch_.size(); ++i) {
    if (scratch_[i].numel() != like.numel() || scratch_[i].scalar_type() != like.scalar_type())
      continue;
    at::Tensor found = std::move(scratch_[i]);
    scratch_.erase(scratch_.begin() + static_cast<std::ptrdiff_t>(i));
    return found;
  }
  return at::empty(like.sizes(), like.options());
}

void Communicator::give_scratch(at::Tensor scratch) {
  constexpr size_t kKept = 4;
  if (scratch_.size() == kKept) scratch_.erase(scratch_.begin());
  scratch_.push_back(std::move(scratch));
}

std::unique_ptr<Communicator> make_single_communicator() {
  return std::make_unique<SingleCommunicator>();
}

}  // namespace zerolab
