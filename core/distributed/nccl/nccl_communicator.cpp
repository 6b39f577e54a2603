// Collectives between GPU tensors through c10d's NCCL: the same interface as on the CPU, control
// over Gloo.
//
// Operations are queued on streams. wait() makes the current stream wait for the result, not
// this thread; a peer that is gone shows at the next control exchange, or ends the process
// through NCCL's own watchdog.
#define USE_CUDA
#define USE_C10D_NCCL
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "zerolab/error.h"

#include "distributed/nccl/nccl_factory.h"

namespace zerolab {
namespace {

/// Keeps the tensors until the current stream waits for the result.
class NcclWork : public Work {
 public:
  NcclWork(c10::intrusive_ptr<c10d::Work> work, at::Tensor out, at::Tensor in)
      : work_(std::move(work)), out_(std::move(out)), in_(std::move(in)) {}
  void wait() override try { work_->wait(); } catch (const std::exception& error) {
    throw PeerError(std::string("a collective between GPUs failed: ") + error.what());
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  at::Tensor out_, in_;
};

class NcclCommunicator : public Communicator {
 public:
  explicit NcclCommunicator(NcclRequest& request)
      : rank_(request.environment.rank),
        size_(request.environment.size),
        control_(std::move(request.control)),
        store_(c10::make_intrusive<c10d::PrefixStore>("nccl", request.store)),
        timeout_s_(request.timeout_s) {
    connect();
  }
  NcclCommunicator(int rank, int size, std::unique_ptr<ControlChannel> control,
                   c10::intrusive_ptr<c10d::Store> store, double timeout_s)
      : rank_(rank),
        size_(size),
        control_(std::move(control)),
        store_(std::move(store)),
        timeout_s_(timeout_s) {
    connect();
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

 protected:
  std::unique_ptr<Work> start_all_to_all(const at::Tensor& out, const at::Tensor& in,
                                         uint32_t) override {
    return start(out, in, [&](at::Tensor& to, at::Tensor& from) {
      std::vector<int64_t> equal_parts;
      return ranks_->alltoall_base(to, from, equal_parts, equal_parts);
    });
  }
  std::unique_ptr<Work> start_all_gather(const at::Tensor& out, const at::Tensor& in,
                                         uint32_t) override {
    return start(out, in, [&](at::Tensor& to, at::Tensor& from) {
      return ranks_->_allgather_base(to, from);
    });
  }
  void run_broadcast(const at::Tensor& tensor, int root) override {
    start(tensor, tensor, [&](at::Tensor& to, at::Tensor&) {
      std::vector<at::Tensor> tensors{to};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      return ranks_->broadcast(tensors, options);
    })->wait();
  }
  std::unique_ptr<ControlWork> start_gather_control(std::vector<int64_t> numbers) override {
    return control_->start_gather(std::move(numbers));
  }
  /// A group of its own under a name that its members share and no other group has.
  std::unique_ptr<Communicator> start_split(const std::vector<int>& ranks) override {
    const std::string name =
        "part" + std::to_string(++parts_) + "-" + std::to_string(ranks.front());
    const auto found = std::find(ranks.begin(), ranks.end(), rank_);
    return std::make_unique<NcclCommunicator>(
        static_cast<int>(found - ranks.begin()), static_cast<int>(ranks.size()),
        control_->split(ranks), c10::make_intrusive<c10d::PrefixStore>(name, store_), timeout_s_);
  }

 private:
  void connect() {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_s_ * 1000));
    ranks_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(store_, rank_, size_, options);
  }
  template <class Start>
  std::unique_ptr<Work> start(at::Tensor out, at::Tensor in, const Start& start) try {
    auto work = start(out, in);
    return std::make_unique<NcclWork>(std::move(work), std::move(out), std::move(in));
  } catch (const std::exception& error) {
    throw PeerError(std::string("a collective between GPUs failed: ") + error.what());
  }

  int rank_, size_;
  std::unique_ptr<ControlChannel> control_;
  c10::intrusive_ptr<c10d::Store> store_;
  double timeout_s_;
  int parts_ = 0;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> ranks_;
};

}  // namespace
}  // namespace zerolab

extern "C" ZEROLAB_API zerolab::Communicator* zerolab_make_nccl_communicator(
    zerolab::NcclRequest& request) {
  const int num_gpus = c10::cuda::device_count();
  const zerolab::RankEnvironment& environment = request.environment;
  if (num_gpus == 0) {
    throw zerolab::ConfigError(
        "device = \"cuda\" needs a GPU, and none is visible on this machine: set device = "
        "\"cpu\", or check the driver and CUDA_VISIBLE_DEVICES");
  }
  // Slurm and containers may show each rank only its own GPU.
  const int device = num_gpus == 1 ? 0 : environment.local_rank;
  if (device >= num_gpus || (num_gpus > 1 && environment.local_size > num_gpus)) {
    throw zerolab::ConfigError(
        "device = \"cuda\" needs a GPU for each rank: " + std::to_string(environment.local_size) +
        " ranks run on this machine and " + std::to_string(num_gpus) +
        " GPUs are visible; start fewer ranks");
  }
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
  if (environment.size == 1) return zerolab::make_single_communicator().release();
  return new zerolab::NcclCommunicator(request);
}
