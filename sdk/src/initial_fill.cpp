#include "initial_fill.h"

#include <utility>

namespace zerolab {

InitialFill::InitialFill(Parameters& parameters, const FlatLayout& layout, int rank, uint64_t seed,
                         at::Tensor masters)
    : parameters_(parameters), layout_(layout), seed_(seed), masters_(std::move(masters)) {
  if (masters_.defined()) pieces_ = layout.pieces(rank);
}

void InitialFill::fill_next() {
  const size_t parameter = layout_.slots()[slot_++].parameter;
  if (!masters_.defined()) return parameters_.initialize(parameter, seed_);
  const at::Tensor values = parameters_.initial_values(parameter, seed_);
  parameters_.tensor(parameter).detach().view({-1}).copy_(values);
  for (; piece_ < pieces_.size() && pieces_[piece_].parameter == parameter; ++piece_) {
    const FlatPiece& piece = pieces_[piece_];
    masters_.narrow(0, piece.owned_offset, piece.length)
        .copy_(values.narrow(0, piece.tensor_offset, piece.length));
  }
}

}  // namespace zerolab
