#include "train/whole_state.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include "zerolab/error.h"

#include "train/exchange.h"

namespace zerolab {
namespace {

constexpr int64_t kNumbersPerPiece = 6;  // before its names

int64_t numel_of(const std::vector<int64_t>& shape) {
  int64_t numel = 1;
  for (int64_t size : shape) numel *= size;
  return numel;
}

void check_piece(const StatePiece& piece) {
  const int64_t numel = numel_of(piece.shape);
  const bool inside = piece.offset >= 0 && piece.length >= 0 && piece.offset <= numel &&
                      piece.length <= numel - piece.offset;
  if (inside && piece.data.defined() && piece.data.dim() == 1 && piece.data.is_contiguous() &&
      piece.data.numel() == piece.length) {
    return;
  }
  throw PluginError("a piece of " + tensor_title(piece.parameter, piece.state) +
                    " says that it holds elements " + std::to_string(piece.offset) + " to " +
                    std::to_string(piece.offset + piece.length) + " of " + std::to_string(numel) +
                    ", but its data is not one contiguous row of so many");
}

std::vector<int64_t> describe(const std::vector<StatePiece>& pieces) {
  std::vector<int64_t> list;
  for (const StatePiece& piece : pieces) {
    list.insert(list.end(),
                {static_cast<int64_t>(piece.parameter.size()),
                 static_cast<int64_t>(piece.state.size()), numel_of(piece.shape),
                 static_cast<int64_t>(piece.data.scalar_type()), piece.offset, piece.length});
    append_text(list, piece.parameter);
    append_text(list, piece.state);
  }
  return list;
}

/// The same bytes as integers, so that equal means the same bits: also for zeros with a sign, and
/// for NaN.
at::Tensor bits_of(const at::Tensor& values) {
  switch (values.element_size()) {
    case 1:
      return values.view(at::kByte);
    case 2:
      return values.view(at::kShort);
    case 4:
      return values.view(at::kInt);
    default:
      return values.view(at::kLong);
  }
}

}  // namespace

WholeState::WholeState(std::vector<StatePiece> mine, Communicator& ranks)
    : ranks_(ranks), mine_(std::move(mine)) {
  std::erase_if(mine_, [](const StatePiece& piece) { return numel_of(piece.shape) == 0; });
  for (const StatePiece& piece : mine_) check_piece(piece);
  const auto lists = gather_lists(ranks, describe(mine_));
  for (size_t rank = 0; rank < lists.size(); ++rank) learn(lists[rank], static_cast<int>(rank));
  for (auto& places : places_) {
    std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
      return std::pair(a.offset, a.rank) < std::pair(b.offset, b.rank);
    });
  }
  find_gaps();
  deviating_.resize(tensors_.size());
}

int64_t WholeState::find(const std::string& parameter, const std::string& state) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const WholeTensor& t) {
    return t.parameter == parameter && t.state == state;
  });
  return found == tensors_.end() ? -1 : found - tensors_.begin();
}

size_t WholeState::tensor_index(const WholeTensor& tensor) {
  const int64_t found = find(tensor.parameter, tensor.state);
  if (found < 0) {
    tensors_.push_back(tensor);
    places_.emplace_back();
    return tensors_.size() - 1;
  }
  const WholeTensor& known = tensors_[static_cast<size_t>(found)];
  if (known.numel != tensor.numel || known.dtype != tensor.dtype) {
    throw PluginError("two pieces of " + tensor_title(tensor.parameter, tensor.state) +
                      " differ about its shape or dtype");
  }
  return static_cast<size_t>(found);
}

void WholeState::learn(const std::vector<int64_t>& list, int rank) {
  for (size_t at = 0; at < list.size();) {
    const int64_t* piece = list.data() + at;
    at += kNumbersPerPiece;
    const size_t state_at = at + static_cast<size_t>(words_for(piece[0]));
    const size_t index =
        tensor_index({text_at(list, at, piece[0]), text_at(list, state_at, piece[1]), piece[2],
                      static_cast<at::ScalarType>(piece[3])});
    places_[index].push_back({piece[4], piece[5], rank});
    at = state_at + static_cast<size_t>(words_for(piece[1]));
  }
}

void WholeState::find_gaps() const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const WholeTensor& tensor = tensors_[i];
    int64_t covered = 0, next = tensor.numel;
    for (const Place& place : places_[i]) {
      if (place.offset > covered) {
        next = place.offset;
        break;
      }
      covered = std::max(covered, place.offset + place.length);
    }
    if (covered == tensor.numel) continue;
    throw PluginError("no rank holds elements " + std::to_string(covered) + " to " +
                      std::to_string(next - 1) + " of " +
                      tensor_title(tensor.parameter, tensor.state));
  }
}

at::Tensor WholeState::assemble(size_t i) {
  const at::NoGradGuard no_grad;
  const WholeTensor& tensor = tensors_[i];
  std::vector<const StatePiece*> pieces;
  for (const StatePiece& piece : mine_) {
    if (piece.parameter == tensor.parameter && piece.state == tensor.state)
      pieces.push_back(&piece);
  }
  const at::TensorOptions options =
      mine_.empty() ? at::TensorOptions() : mine_.front().data.options();
  const at::Tensor whole = at::empty({tensor.numel}, options.dtype(tensor.dtype));
  // Own pieces first; where another rank's copy counts, its broadcast overwrites them.
  for (const StatePiece* piece : pieces) {
    whole.narrow(0, piece->offset, piece->length).copy_(piece->data);
  }
  int64_t covered = 0;
  for (const Place& place : places_[i]) {
    const int64_t end = place.offset + place.length;
    if (end <= covered) continue;
    ranks_.broadcast(whole.narrow(0, covered, end - covered), place.rank);
    covered = end;
  }
  for (const StatePiece* piece : pieces) {
    const Deviation found = deviation(whole.narrow(0, piece->offset, piece->length), piece->data);
    deviating_[i] += static_cast<double>(found.num_differing);
  }
  return whole;
}

std::string WholeState::disagreement() {
  const auto all = ranks_.gather_control(deviating_);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    for (size_t rank = 0; rank < static_cast<size_t>(ranks_.size()); ++rank) {
      const auto elements = static_cast<int64_t>(all[rank * tensors_.size() + i]);
      if (elements == 0) continue;
      return "rank " + std::to_string(rank) + " holds " + std::to_string(elements) + " of " +
             std::to_string(tensors_[i].numel) + " elements of " +
             tensor_title(tensors_[i].parameter, tensors_[i].state) +
             " otherwise than another rank does";
    }
  }
  return {};
}

Deviation deviation(const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kChunk = int64_t{1} << 20;  // bounds the memory of a comparison
  Deviation total;
  for (int64_t at = 0; at < a.numel(); at += kChunk) {
    const int64_t length = std::min(kChunk, a.numel() - at);
    const at::Tensor x = a.narrow(0, at, length), y = b.narrow(0, at, length);
    const at::Tensor differ = bits_of(x).ne(bits_of(y));
    const auto count = differ.sum().item<int64_t>();
    if (count == 0) continue;
    total.num_differing += count;
    const at::Tensor distances =
        x.masked_select(differ).to(at::kDouble).sub(y.masked_select(differ).to(at::kDouble)).abs();
    const auto largest = distances.max().item<double>();  // NaN if one is
    if (!(largest <= total.largest) && !std::isnan(total.largest)) total.largest = largest;
  }
  return total;
}

KeptState::KeptState(WholeState& state, Communicator& ranks)
    : ranks_(ranks), tensors_(state.tensors()) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    slices_.push_back(my_slice(state.assemble(i)).clone());
  }
}

at::Tensor KeptState::my_slice(const at::Tensor& whole) const {
  const int64_t size = ranks_.size(), rank = ranks_.rank();
  const int64_t share = (whole.numel() + size - 1) / size;
  const int64_t begin = std::min(whole.numel(), rank * share);
  return whole.narrow(0, begin, std::min(share, whole.numel() - begin));
}

std::vector<TensorDifference> KeptState::compare(WholeState& other) const {
  std::vector<TensorDifference> differences;
  std::vector<double> mine;  // of each tensor: differing elements, the largest difference
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const WholeTensor& kept = tensors_[i];
    TensorDifference difference{kept.parameter, kept.state, kept.numel, 0, 0, ""};
    const int64_t index = other.find(kept.parameter, kept.state);
    Deviation found;
    if (index < 0) {
      difference.unlike = "is missing";
    } else if (const WholeTensor& t = other.tensors()[static_cast<size_t>(index)];
               t.numel != kept.numel || t.dtype != kept.dtype) {
      difference.unlike = "has another shape or dtype";
    } else {
      found = deviation(my_slice(other.assemble(static_cast<size_t>(index))), slices_[i]);
    }
    mine.push_back(static_cast<double>(found.num_differing));
    mine.push_back(found.largest);
    differences.push_back(std::move(difference));
  }
  const auto all = ranks_.gather_control(mine);
  for (size_t at = 0; at < all.size(); at += 2) {
    TensorDifference& difference = differences[at / 2 % tensors_.size()];
    difference.num_differing += static_cast<int64_t>(all[at]);
    const double largest = all[at + 1];
    if (!(largest <= difference.largest) && !std::isnan(difference.largest))
      difference.largest = largest;
  }
  return differences;
}

}  // namespace zerolab
