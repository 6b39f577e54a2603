#include "train/tensor_memory.h"

#include <atomic>
#include <cstring>

#include <malloc.h>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

namespace zerolab {
namespace {

std::atomic<int64_t> live{0}, peak{0};

void count(int64_t bytes) {
  const int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t most = peak.load(std::memory_order_relaxed);
  while (now > most && !peak.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

void release(void* memory) {
  if (memory == nullptr) return;
  live.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  c10::free_cpu(memory);
}

/// LibTorch's own way to memory, with a count.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const memory = c10::alloc_cpu(bytes);
    if (memory != nullptr) count(static_cast<int64_t>(malloc_usable_size(memory)));
    return {memory, memory, &release, at::Device(at::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

}  // namespace

void count_tensor_memory() {
  static auto* const allocator = new CountingAllocator;  // tensors may outlive everything
  constexpr uint8_t kAboveTheDefault = 1;
  c10::SetCPUAllocator(allocator, kAboveTheDefault);
}

int64_t live_tensor_bytes() {
  return live.load(std::memory_order_relaxed);
}

int64_t peak_tensor_bytes() {
  return peak.load(std::memory_order_relaxed);
}

}  // namespace zerolab
