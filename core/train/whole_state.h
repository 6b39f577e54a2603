#pragma once
// Training state as whole tensors: put together from the ranks' pieces one tensor at a time, and
// kept in even slices to be compared with that of another run.
//
// Shapes: whole tensors are flat, [numel].
// Ranks: collective, except where it says otherwise.
// Errors: PluginError for pieces that contradict each other or leave elements out.

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/communicator.h"
#include "zerolab/state.h"

#include "train/verdict.h"

namespace zerolab {

struct WholeTensor {
  std::string parameter, state;
  int64_t numel = 0;
  at::ScalarType dtype = at::kFloat;
};

/// Who holds what of a run's state. Needs the run: its pieces are views.
class WholeState {
 public:
  struct Place {
    int64_t offset = 0, length = 0;
    int rank = 0;
  };
  /// All ranks learn all pieces' places. Tensors without elements are left out.
  WholeState(std::vector<StatePiece> mine, Communicator& ranks);

  /// [local] In the order of rank 0's pieces, then of the others': the same on every rank.
  const std::vector<WholeTensor>& tensors() const { return tensors_; }
  /// [local] Which rank holds what of tensor number `i`, by offset, then rank: the same on every
  /// rank.
  const std::vector<Place>& places(size_t i) const { return places_[i]; }
  /// [local] The index of a tensor; -1 if there is none.
  int64_t find(const std::string& parameter, const std::string& state) const;
  /// Tensor number `i` on every rank, in new memory. Of several copies of an element the one counts
  /// whose piece begins first; among these, the lowest rank's.
  at::Tensor assemble(size_t i);
  /// What copies of one element do not agree about in the tensors assembled so far, as part of a
  /// sentence; empty if all are equal. The same on every rank.
  std::string disagreement();

 private:
  size_t tensor_index(const WholeTensor& tensor);
  void learn(const std::vector<int64_t>& list, int rank);
  void find_gaps() const;

  Communicator& ranks_;
  std::vector<StatePiece> mine_;
  std::vector<WholeTensor> tensors_;
  std::vector<std::vector<Place>> places_;  // of each tensor
  std::vector<double> deviating_;  // elements of this rank's copies that are not as assembled
};

/// Elements whose bits differ, and the largest absolute difference of these. [local] Any two
/// tensors of one size and dtype.
struct Deviation {
  int64_t num_differing = 0;
  double largest = 0;  ///< NaN if a differing element is NaN
};
Deviation deviation(const at::Tensor& a, const at::Tensor& b);

/// The state of a run that is over. Each rank keeps an even slice of every tensor.
class KeptState {
 public:
  KeptState(WholeState& state, Communicator& ranks);
  /// Every kept tensor against the one of another run, on every rank the same.
  std::vector<TensorDifference> compare(WholeState& other) const;

 private:
  at::Tensor my_slice(const at::Tensor& whole) const;

  Communicator& ranks_;
  std::vector<WholeTensor> tensors_;
  std::vector<at::Tensor> slices_;
};

}  // namespace zerolab
