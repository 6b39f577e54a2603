#include "train/saved_state.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <tuple>

#include <ATen/ops/empty.h>

#include "zerolab/error.h"

#include "store/xxh128.h"
#include "train/exchange.h"
#include "train/verdict.h"

namespace zerolab {
namespace {

constexpr size_t kListed = 5;  // differences that an error names

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

std::string listed(const std::vector<std::string>& phrases) {
  std::string text;
  for (size_t i = 0; i < std::min(phrases.size(), kListed); ++i) {
    text += (text.empty() ? "" : "; ") + phrases[i];
  }
  if (phrases.size() > kListed) {
    text += "; and " + std::to_string(phrases.size() - kListed) + " more";
  }
  return text;
}

/// What the model declares and the checkpoint does not hold so, and the reverse.
void compare_parameters(const LoadRequest& request) {
  std::vector<std::string> differences;
  size_t matched = 0, saved = 0;
  for (const PieceInfo& tensor : request.checkpoint.tensors())
    saved += tensor.state == kParameterState;
  for (size_t i = 0; i < request.parameters.size(); ++i) {
    const ParameterInfo& info = request.parameters.info(i);
    if (info.numel == 0) continue;  // nothing to keep
    const PieceInfo* tensor = request.checkpoint.find(info.name, kParameterState);
    if (tensor == nullptr) {
      differences.push_back("'" + info.name + "' is not in it");
    } else if (++matched; tensor->shape != info.shape) {
      differences.push_back("'" + info.name + "' is " + shape_text(tensor->shape) + " there and " +
                            shape_text(info.shape) + " in the model");
    }
  }
  for (const PieceInfo& tensor : request.checkpoint.tensors()) {
    if (matched == saved) break;
    if (tensor.state == kParameterState && request.parameters.find(tensor.parameter) < 0) {
      differences.push_back("'" + tensor.parameter + "' is not in the model");
    }
  }
  if (differences.empty()) return;
  throw ConfigError("the checkpoint of step " +
                    std::to_string(request.checkpoint.manifest().point.step) +
                    " is of another model: " + listed(differences) +
                    "; go on with the model that it was saved with.");
}

/// Optimizer states that the checkpoint has no tensors of.
std::vector<std::string> missing_states(const LoadRequest& request) {
  std::vector<std::string> missing;
  for (const std::string& state : request.optimizer.state_names()) {
    const auto& tensors = request.checkpoint.tensors();
    const bool found = std::any_of(tensors.begin(), tensors.end(),
                                   [&](const PieceInfo& t) { return t.state == state; });
    if (!found) missing.push_back(state);
  }
  return missing;
}

void load_piece(const LoadRequest& request, const StatePiece& piece) {
  if (piece.length == 0) return;  // no checkpoint holds tensors without elements
  const PieceInfo* tensor = request.checkpoint.find(piece.parameter, piece.state);
  if (tensor == nullptr) {
    if (request.fork && piece.state != kParameterState) return;
    throw ConfigError("the checkpoint holds no " + tensor_title(piece.parameter, piece.state) +
                      ": it was saved with another optimizer or model.");
  }
  if (tensor->shape != piece.shape) {
    throw ConfigError(tensor_title(piece.parameter, piece.state) +
                      " has another shape in the checkpoint.");
  }
  if (tensor->dtype != stored_dtype(piece.data.scalar_type())) {
    // A frozen parameter has no master: it was saved in what another precision computes with.
    const at::Tensor saved =
        at::empty({piece.length}, at::TensorOptions().dtype(dtype_of(tensor->dtype)));
    request.checkpoint.read(*tensor, piece.offset, piece.length, saved.mutable_data_ptr());
    piece.data.copy_(saved);
    return;
  }
  request.checkpoint.read(*tensor, piece.offset, piece.length, piece.data.mutable_data_ptr());
}

/// False if the checkpoint has none of this rank's.
bool load_local(const LoadRequest& request, const LocalState& state, int rank) {
  const SealedLocal* local = request.checkpoint.find_local(rank, state.name);
  if (local == nullptr || local->info.length != state.data.numel() ||
      local->info.dtype != stored_dtype(state.data.scalar_type())) {
    return false;
  }
  request.checkpoint.read_local(rank, *local, state.data.mutable_data_ptr());
  return true;
}

std::string checksum(const at::Tensor& data) {
  return xxh128({static_cast<const char*>(data.const_data_ptr()), data.nbytes()});
}

}  // namespace

void compare_resident(const Parameters& parameters, Communicator& ranks, const std::string& when,
                      const std::string& advice) {
  std::string mine;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& tensor = parameters.tensor(i);
    const bool resident = tensor.storage().nbytes() >= tensor.nbytes();
    mine += (resident ? checksum(tensor.detach()) : "-") + '\n';
  }
  const auto texts = gather_texts(ranks, mine);
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts.front()) continue;
    const auto [a, b] =
        std::mismatch(texts[rank].begin(), texts[rank].end(), texts.front().begin());
    const auto parameter = static_cast<size_t>(std::count(texts[rank].begin(), a, '\n'));
    throw PluginError(when + ", rank " + std::to_string(rank) + " computes with another '" +
                      parameters.info(parameter).name + "' than rank 0 does: " + advice);
  }
}

namespace {

/// Copies of one piece have to be equal on all ranks that hold it.
void compare_copies(const std::vector<StatePiece>& pieces, Communicator& ranks) {
  std::string mine;
  for (const StatePiece& piece : pieces) {
    mine += piece.parameter + '\n' + piece.state + '\n' + std::to_string(piece.offset) + ' ' +
            std::to_string(piece.length) + '\n' + checksum(piece.data) + '\n';
  }
  const auto texts = gather_texts(ranks, mine);
  std::map<std::string, std::pair<std::string, size_t>> seen;  // piece: checksum, rank
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    for (size_t at = 0; at < texts[rank].size();) {
      const size_t parameter_end = texts[rank].find('\n', at);
      const size_t state_end = texts[rank].find('\n', parameter_end + 1);
      const size_t place_end = texts[rank].find('\n', state_end + 1);
      const size_t sum_end = texts[rank].find('\n', place_end + 1);
      const std::string piece = texts[rank].substr(at, place_end - at);
      const std::string sum = texts[rank].substr(place_end + 1, sum_end - place_end - 1);
      const auto [known, fresh] = seen.try_emplace(piece, sum, rank);
      if (!fresh && known->second.first != sum) {
        const std::string parameter = texts[rank].substr(at, parameter_end - at);
        const std::string state =
            texts[rank].substr(parameter_end + 1, state_end - parameter_end - 1);
        throw Error("after loading, rank " + std::to_string(rank) + " holds " +
                    tensor_title(parameter, state) + " otherwise than rank " +
                    std::to_string(known->second.second) + " does");
      }
      at = sum_end + 1;
    }
  }
}

}  // namespace

std::vector<StatePiece> training_state(Sharding& sharding, const Parameters& parameters) {
  std::vector<StatePiece> pieces = sharding.state();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterInfo& info = parameters.info(i);
    if (info.requires_grad || info.numel == 0) continue;
    pieces.push_back({info.name, kParameterState, info.shape, 0, info.numel,
                      parameters.tensor(i).detach().view({info.numel})});
  }
  return pieces;
}

TensorDtype stored_dtype(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return TensorDtype::kFloat32;
    case at::kDouble:
      return TensorDtype::kFloat64;
    case at::kHalf:
      return TensorDtype::kFloat16;
    case at::kBFloat16:
      return TensorDtype::kBFloat16;
    case at::kLong:
      return TensorDtype::kInt64;
    case at::kInt:
      return TensorDtype::kInt32;
    case at::kByte:
      return TensorDtype::kUInt8;
    default:
      throw PluginError(
          "a state's dtype is one that checkpoints do not hold; they hold float32, "
          "float64, float16, bfloat16, int64, int32 and uint8");
  }
}

at::ScalarType dtype_of(TensorDtype stored) {
  for (const at::ScalarType dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kByte}) {
    if (stored_dtype(dtype) == stored) return dtype;
  }
  throw PluginError("a checkpoint holds a dtype that tensors do not have");
}

void publish_loaded(const std::vector<StatePiece>& pieces, Sharding& sharding,
                    const Parameters& parameters, Communicator& ranks) {
  sharding.state_restored();
  compare_copies(pieces, ranks);
  compare_resident(parameters, ranks, "after loading",
                   "the sharding strategy has to publish what was loaded in state_restored()");
}

std::vector<std::string> load_state(const LoadRequest& request, Communicator& ranks) {
  std::vector<std::string> notes;
  compare_parameters(request);
  const std::vector<std::string> missing = missing_states(request);
  if (!missing.empty() && !request.fork) {
    throw ConfigError("the checkpoint holds no optimizer state '" + missing.front() +
                      "': it was saved with another optimizer.");
  }
  for (const std::string& state : missing) {
    notes.push_back("the checkpoint holds no optimizer state '" + state + "': it starts at zero");
  }
  const std::vector<StatePiece> pieces = training_state(request.sharding, request.parameters);
  for (const StatePiece& piece : pieces) {
    if (request.alive) request.alive();
    load_piece(request, piece);
  }
  std::vector<int64_t> left;
  for (const LocalState& state : request.sharding.local_state()) {
    left.push_back(request.same_owners && load_local(request, state, ranks.rank()) ? 0 : 1);
  }
  const auto all_left = left.empty() ? left : ranks.gather_control(left);
  if (std::count(all_left.begin(), all_left.end(), 1) > 0) {
    notes.push_back("what each rank kept for itself (" +
                    request.sharding.local_state().front().name +
                    ") does not fit these ranks and starts anew: results agree within what the "
                    "wire loses, not bit by bit");
  }
  publish_loaded(pieces, request.sharding, request.parameters, ranks);
  return notes;
}

TrainingPoint loaded_point(const LoadRequest& request) {
  TrainingPoint point = request.checkpoint.manifest().point;
  const size_t states = request.optimizer.state_names().size();
  if (states > 0 && missing_states(request).size() == states) point.applied_updates = 0;
  return point;
}

}  // namespace zerolab
