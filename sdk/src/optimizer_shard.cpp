#include "zerolab/optimizer_shard.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

namespace zerolab {

void OptimizerShard::allocate(const FlatLayout& layout, int rank, Masters masters,
                              Optimizer& optimizer, const Copies& copies) {
  optimizer_ = &optimizer;
  masters_ = std::move(masters);
  owned_ = layout.ranges(rank);
  pieces_ = layout.pieces(rank);
  names_ = optimizer.state_names();
  const int64_t length = rank < 0 ? layout.length() : layout.shard_length();
  for (size_t i = 0; i < names_.size(); ++i)
    states_.push_back(at::zeros({length}, at::TensorOptions().dtype(at::kFloat)));
  for (const FlatRange& range : owned_) {
    OptimizerRange view;
    view.parameters = masters_(range.offset, range.owned_offset, range.length);
    for (const at::Tensor& state : states_)
      view.states.push_back(state.narrow(0, range.owned_offset, range.length));
    if (copies) view.copy = copies(range.offset, range.owned_offset, range.length);
    view.decay = range.decay;
    ranges_.push_back(std::move(view));
  }
}

void OptimizerShard::update(const std::function<at::Tensor(const FlatRange&)>& gradient,
                            const UpdateStep& step) {
  const at::NoGradGuard no_grad;
  const bool as_it_is = optimizer_->takes_low_precision();
  for (size_t i = 0; i < owned_.size(); ++i) {
    const at::Tensor given = gradient(owned_[i]);
    ranges_[i].gradients = as_it_is ? given : given.to(at::kFloat);
  }
  optimizer_->update(ranges_, step);
  if (!as_it_is) refresh_copies();
}

void OptimizerShard::refresh_copies() {
  const at::NoGradGuard no_grad;
  for (const OptimizerRange& range : ranges_) {
    if (range.copy.defined()) range.copy.copy_(range.parameters);
  }
}

std::vector<StatePiece> OptimizerShard::pieces(const Parameters& parameters) const {
  std::vector<StatePiece> result;
  for (const FlatPiece& piece : pieces_) {
    const ParameterInfo& info = parameters.info(piece.parameter);
    const auto add = [&](const std::string& name, const at::Tensor& data) {
      result.push_back({info.name, name, info.shape, piece.tensor_offset, piece.length, data});
    };
    add("parameter", masters_(piece.flat_offset, piece.owned_offset, piece.length));
    for (size_t s = 0; s < states_.size(); ++s) {
      add(names_[s], states_[s].narrow(0, piece.owned_offset, piece.length));
    }
  }
  return result;
}

int64_t OptimizerShard::bytes() const {
  int64_t total = 0;
  for (const at::Tensor& state : states_) total += static_cast<int64_t>(state.nbytes());
  return total;
}

}  // namespace zerolab
