#include "zerolab/flat_parameters.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "initial_fill.h"

namespace zerolab {

void FlatParameters::allocate(Parameters& parameters, const FlatLayout& layout, uint64_t seed,
                              at::ScalarType dtype, int owner) {
  layout_ = &layout;
  flat_ = at::zeros({layout.length()}, at::TensorOptions().dtype(dtype));
  if (low_precision()) {
    masters_ = at::zeros({owner < 0 ? layout.length() : layout.shard_length()},
                         flat_.options().dtype(at::kFloat));
  }
  InitialFill fill(parameters, layout, owner, seed, masters_);
  for (const Slot& slot : layout.slots()) {
    parameters.bind(slot.parameter, flat_, slot.offset);
    fill.fill_next();
  }
  frozen_ = allocate_frozen(parameters, seed, dtype);
}

void FlatParameters::set_gather(Communicator& owners, GatherTraits traits) {
  traits.wire = wire_for(traits.wire, flat_.scalar_type());
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

at::Tensor FlatParameters::copy(int64_t flat_offset, int64_t length) const {
  return low_precision() ? flat_.narrow(0, flat_offset, length) : at::Tensor();
}

void FlatParameters::publish(Communicator& owners) {
  if (!gather_) set_gather(owners, {});
  gather_->run(
      flat_,
      [&](size_t b) {
        if (low_precision()) return slice(b, owners.rank());
        return master(layout_->slice_offset(b, owners.rank()), layout_->owned_offset(b),
                      layout_->slice_length(b));
      },
      "parameters");
}

int64_t FlatParameters::bytes() const {
  return bytes_of(flat_) + bytes_of(frozen_);
}

}  // namespace zerolab
