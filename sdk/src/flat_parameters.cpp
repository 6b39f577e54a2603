#include "zerolab/flat_parameters.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace zerolab {

void FlatParameters::allocate(Parameters& parameters, const FlatLayout& layout, uint64_t seed) {
  layout_ = &layout;
  flat_ = at::zeros({layout.length()}, at::TensorOptions().dtype(at::kFloat));
  for (const Slot& slot : layout.slots()) {
    parameters.bind(slot.parameter, flat_, slot.offset);
    parameters.initialize(slot.parameter, seed);
  }
  frozen_ = allocate_frozen(parameters, seed);
}

void FlatParameters::set_gather(Communicator& owners, GatherTraits traits) {
  gather_.emplace(*layout_, owners, traits, 0, layout_->buckets().size());
  if (owners.size() == 1 || traits.wire == WireDtype::kFloat32) return;
  masters_ = at::empty({layout_->shard_length()}, flat_.options());
  for (size_t b = 0; b < layout_->buckets().size(); ++b) {
    masters_.narrow(0, layout_->owned_offset(b), layout_->slice_length(b))
        .copy_(slice(b, owners.rank()));
  }
}

at::Tensor FlatParameters::slice(size_t index, int rank) const {
  return flat_.narrow(0, layout_->slice_offset(index, rank), layout_->slice_length(index));
}

at::Tensor FlatParameters::master(int64_t flat_offset, int64_t owned_offset, int64_t length) const {
  return masters_.defined() ? masters_.narrow(0, owned_offset, length)
                            : flat_.narrow(0, flat_offset, length);
}

void FlatParameters::publish(Communicator& owners) {
  if (!gather_) set_gather(owners, {});
  gather_->run(
      flat_,
      [&](size_t b) {
        return master(layout_->slice_offset(b, owners.rank()), layout_->owned_offset(b),
                      layout_->slice_length(b));
      },
      "parameters");
}

int64_t FlatParameters::bytes() const {
  return bytes_of(flat_) + bytes_of(frozen_);
}

}  // namespace zerolab
