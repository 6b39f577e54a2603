#include "zerolab/unit_parameters.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "initial_fill.h"

namespace zerolab {
namespace {

constexpr size_t kRegionZero = 0;

size_t region_of(int unit) {
  return static_cast<size_t>(unit) + 1;
}

/// Memory of a tensor whose storage comes and goes. Its views and what autograd saved of it keep
/// pointing to the storage, so they see the memory that is there.
void empty_storage(const at::Tensor& tensor) {
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, tensor.device()));
  storage->set_nbytes(0);
}

void fill_storage(const at::Tensor& tensor) {
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const auto bytes = static_cast<size_t>(tensor.nbytes());
  storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
  storage->set_nbytes(bytes);
}

}  // namespace

UnitParameters::UnitParameters(Parameters& parameters, const FlatLayout& layout,
                               Communicator& owners, uint64_t seed, UnitGatherTraits traits,
                               at::ScalarType dtype)
    : parameters_(parameters), layout_(layout), owners_(owners), traits_(traits) {
  const auto options = at::TensorOptions().dtype(dtype);
  traits_.wire = wire_for(traits.wire, dtype);
  shard_ = at::zeros({layout.shard_length()}, options.dtype(at::kFloat));
  if (dtype != at::kFloat) copies_ = at::empty({layout.shard_length()}, options);
  InitialFill fill(parameters, layout, owners.rank(), seed,
                   copies_.defined() ? shard_ : at::Tensor());
  frozen_ = allocate_frozen(parameters, seed, dtype);
  units_.resize(layout.regions().size() - 1);
  size_t slot = 0;
  for (size_t r = 0; r < layout.regions().size(); ++r) {
    const Region& cut = layout.regions()[r];
    const at::Tensor memory = at::zeros({cut.length}, options);
    const int64_t end = cut.offset + cut.length;
    for (; slot < layout.slots().size(); ++slot) {
      const Slot& s = layout.slots()[slot];
      const bool last = r + 1 == layout.regions().size();
      if (s.offset + s.numel > end || (s.offset == end && !last)) break;
      parameters.bind(s.parameter, memory, s.numel == 0 ? 0 : s.offset - cut.offset);
      fill.fill_next();
    }
    for (size_t b = cut.first_bucket; b < cut.end_bucket; ++b) {
      const int64_t start = layout.slice_offset(b, owners.rank()) - cut.offset;
      shard_slice(b).copy_(memory.narrow(0, start, layout.slice_length(b)));
    }
    if (r == kRegionZero) {
      whole_ = memory;
    } else {
      units_[r - 1].memory = memory;
      empty_storage(memory);
    }
  }
  buffers_.resize(static_cast<size_t>(most_buckets(layout)));
  for (WireBuffers& buffers : buffers_) {
    buffers = WireBuffers::for_all_gather(traits_.wire, layout.longest_bucket(), owners.size());
  }
  const Region& zero = layout.regions()[kRegionZero];
  publishing_.emplace(layout, owners, GatherTraits{traits_.wire, traits_.longest_prefetch},
                      zero.first_bucket, zero.end_bucket);
  for (int unit = 1; unit < parameters.num_units(); ++unit) {
    if (region(unit).length > 0) order_[0].push_back(unit);
  }
  order_[1] = order_[0];
  order_[1].insert(order_[1].end(), order_[0].rbegin(), order_[0].rend());
}

UnitParameters::~UnitParameters() = default;

int64_t UnitParameters::most_buckets(const FlatLayout& layout) {
  int64_t most = 0;
  for (size_t r = 1; r < layout.regions().size(); ++r) {
    most = std::max(most, layout.regions()[r].num_buckets());
  }
  return most;
}

const Region& UnitParameters::region(int unit) const {
  return layout_.regions()[region_of(unit)];
}

/// This rank's slice of a bucket, as the model computes with it.
at::Tensor UnitParameters::shard_slice(size_t bucket) const {
  const at::Tensor& shard = copies_.defined() ? copies_ : shard_;
  return shard.narrow(0, layout_.owned_offset(bucket), layout_.slice_length(bucket));
}

/// Starts the gather of a unit that is not here.
void UnitParameters::gather(int unit) {
  for (size_t u = 0; u < units_.size(); ++u) finish(static_cast<int>(u));  // buffers are shared
  Unit& it = units_[static_cast<size_t>(unit)];
  const Region& cut = region(unit);
  fill_storage(it.memory);
  it.here = true;
  gathered_ += static_cast<int64_t>(it.memory.nbytes());
  peak_gathered_ = std::max(peak_gathered_, gathered_);
  const std::string what = "parameters of unit " + parameters_.unit_name(unit) + ", bucket ";
  for (size_t b = cut.first_bucket; b < cut.end_bucket; ++b) {
    const Bucket& bucket = layout_.buckets()[b];
    WireBuffers buffers =
        buffers_[b - cut.first_bucket].part(traits_.wire, bucket.length, owners_.size());
    it.gathers.push_back(wire_all_gather(
        owners_, traits_.wire, it.memory.narrow(0, bucket.offset - cut.offset, bucket.length),
        shard_slice(b), buffers, what + std::to_string(b)));
  }
}

void UnitParameters::finish(int unit) {
  Unit& it = units_[static_cast<size_t>(unit)];
  for (const auto& work : it.gathers) work->wait();
  it.gathers.clear();
}

void UnitParameters::enter(int unit) {
  if (region(unit).length == 0) return;
  const at::NoGradGuard no_grad;
  Unit& it = units_[static_cast<size_t>(unit)];
  if (!it.here) gather(unit);
  finish(unit);
  ++it.users;
  coming_.push_back(unit);
  prefetch();
}

void UnitParameters::leave(int unit, bool keep) {
  if (region(unit).length == 0) return;
  const at::NoGradGuard no_grad;
  Unit& it = units_[static_cast<size_t>(unit)];
  if (--it.users == 0 && !keep) free_memory(unit);
  prefetch();
}

void UnitParameters::free_memory(int unit) {
  Unit& it = units_[static_cast<size_t>(unit)];
  finish(unit);
  gathered_ -= static_cast<int64_t>(it.memory.nbytes());
  empty_storage(it.memory);
  it.here = false;
}

/// Starts gathering the unit that came next in the pass before, if this pass goes the same way.
void UnitParameters::prefetch() {
  const std::vector<int>& known = order_[training_ ? 1 : 0];
  const size_t at = coming_.size();
  if (!traits_.prefetch || at == 0 || at >= known.size() || known[at - 1] != coming_.back()) return;
  const int next = known[at];
  if (units_[static_cast<size_t>(next)].here) return;
  if (region(next).length <= traits_.longest_prefetch) gather(next);
}

void UnitParameters::begin_pass(bool training) {
  const at::NoGradGuard no_grad;
  training_ = training;
  coming_.clear();
  free_all();  // nothing, unless the pass before was broken off
  if (region(0).length == 0) return;
  gather(0);
  finish(0);
}

void UnitParameters::before_forward(int unit) {
  if (unit != 0) enter(unit);
}

void UnitParameters::after_forward(int unit) {
  if (unit != 0) leave(unit, training_ && !traits_.reshard_after_forward);
}

void UnitParameters::before_backward(int unit) {
  enter(unit);
}

void UnitParameters::after_backward(int unit) {
  leave(unit, false);
}

void UnitParameters::free_all() {
  for (size_t u = 0; u < units_.size(); ++u) {
    if (units_[u].here) free_memory(static_cast<int>(u));
    units_[u].users = 0;
  }
}

void UnitParameters::end_pass() {
  free_all();
  std::swap(order_[training_ ? 1 : 0], coming_);
}

void UnitParameters::publish() {
  publishing_->run(
      whole_, [this](size_t b) { return shard_slice(b); }, "small parameters");
}

int64_t UnitParameters::bytes() const {
  const at::Tensor& shard = copies_.defined() ? copies_ : shard_;
  return static_cast<int64_t>(shard.nbytes() + whole_.nbytes() + frozen_.nbytes());
}

int64_t UnitParameters::master_bytes() const {
  return copies_.defined() ? static_cast<int64_t>(shard_.nbytes()) : 0;
}

int64_t UnitParameters::buffer_bytes() const {
  int64_t bytes = publishing_->buffer_bytes();
  for (const WireBuffers& buffers : buffers_) bytes += buffers.bytes();
  return bytes;
}

void UnitParameters::predict(const FlatLayout& layout, const UnitGatherTraits& traits,
                             int64_t element_size, int64_t micro_batches, Footprint& footprint) {
  const auto& regions = layout.regions();
  const int ranks = layout.num_ranks();
  BucketGather::predict(layout, {traits.wire, traits.longest_prefetch}, regions[0].first_bucket,
                        regions[0].end_bucket, element_size, 1, footprint);
  footprint.held.buckets +=
      most_buckets(layout) * all_gather_buffer_bytes(traits.wire, layout.longest_bucket(), ranks);
  int64_t most = 0, all = 0, before = 0;
  for (size_t r = 1; r < regions.size(); ++r) {
    const bool root = r == region_of(0);
    const int64_t times = root || !traits.reshard_after_forward ? 1 : 2;
    for (size_t b = regions[r].first_bucket; b < regions[r].end_bucket; ++b) {
      predict_gather(traits.wire, layout.buckets()[b].length, ranks, element_size,
                     times * micro_batches, footprint);
    }
    const int64_t length = regions[r].length;
    all += length;
    if (root || length == 0) continue;
    // Forward gathers this one ahead while the one before runs, backward the other way round.
    const bool ahead = traits.prefetch && std::min(length, before) <= traits.longest_prefetch;
    most = std::max(most, ahead ? before + length : length);
    before = length;
  }
  const int64_t peak = traits.reshard_after_forward ? regions[1].length + most : all;
  footprint.held.gathered += peak * element_size;
}

}  // namespace zerolab
