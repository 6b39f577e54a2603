#include "store/checkpoint_reader.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "zerolab/error.h"

namespace zerolab {

namespace {

using Key = std::pair<std::string, std::string>;  // parameter, state

std::string shape_text(const PieceInfo& tensor) {
  std::string text(dtype_name(tensor.dtype));
  text += " [";
  for (size_t i = 0; i < tensor.shape.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(tensor.shape[i]);
  return text + "]";
}

int64_t num_elements(const PieceInfo& tensor) {
  // That it fits into a number, the manifest's reader has seen to, but not before a size of 0.
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) return 0;
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
}

std::string elements_text(int64_t begin, int64_t end) {
  return "elements " + std::to_string(begin) + " to " + std::to_string(end - 1);
}

}  // namespace

CheckpointReader::CheckpointReader(const std::filesystem::path& checkpoint)
    : folder_(checkpoint), manifest_(read_checkpoint_manifest(checkpoint)) {
  find_tensors();
}

void CheckpointReader::find_tensors() {
  std::map<Key, std::pair<PieceInfo, std::vector<Place>>> found;
  for (size_t file = 0; file < manifest_.files.size(); ++file) {
    const std::vector<SealedPiece>& pieces = manifest_.files[file].pieces;
    for (size_t piece = 0; piece < pieces.size(); ++piece) {
      const PieceInfo& info = pieces[piece].info;
      auto& [whole, places] = found[{info.parameter, info.state}];
      if (places.empty()) {
        whole = info;
        whole.offset = 0;
        whole.length = num_elements(info);
      } else if (whole.shape != info.shape || whole.dtype != info.dtype) {
        throw StoreError((folder_ / manifest_.files[file].name).string() + ": tensor " +
                         tensor_name(info) + " is " + shape_text(info) + " here, but " +
                         shape_text(whole) + " in " + manifest_.files[places.front().file].name +
                         "; all ranks have to save the same model, so take another checkpoint.");
      }
      places.push_back({info.offset, info.offset + info.length, file, piece});
    }
  }
  for (auto& [key, tensor] : found) {
    places_.push_back(cover(tensor.first, std::move(tensor.second)));
    tensors_.push_back(std::move(tensor.first));
  }
}

std::vector<CheckpointReader::Place> CheckpointReader::cover(const PieceInfo& tensor,
                                                             std::vector<Place> pieces) const {
  std::sort(pieces.begin(), pieces.end(), [](const Place& a, const Place& b) {
    return std::tie(a.begin, a.file, a.piece) < std::tie(b.begin, b.file, b.piece);
  });
  const auto check_reached = [&](int64_t reached, int64_t next) {
    if (reached >= next) return;
    throw StoreError(folder_.string() + ": no file holds " + elements_text(reached, next) +
                     " of tensor " + tensor_name(tensor) +
                     "; the checkpoint is not whole, so take another one.");
  };
  std::vector<Place> cover;
  int64_t reached = 0;
  for (const Place& piece : pieces) {
    check_reached(reached, piece.begin);
    if (piece.end <= reached) continue;
    cover.push_back({reached, piece.end, piece.file, piece.piece});
    reached = piece.end;
  }
  check_reached(reached, tensor.length);
  return cover;
}

const PieceInfo* CheckpointReader::find(const std::string& parameter,
                                        const std::string& state) const {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), std::tie(parameter, state),
                                   [](const PieceInfo& tensor, const auto& key) {
                                     return std::tie(tensor.parameter, tensor.state) < key;
                                   });
  if (at == tensors_.end() || at->parameter != parameter || at->state != state) return nullptr;
  return &*at;
}

size_t CheckpointReader::num_files() const {
  return manifest_.files.size() + manifest_.texts.size();
}

std::string CheckpointReader::find_damage(size_t file) const {
  if (file < manifest_.files.size()) return zerolab::find_damage(folder_, manifest_.files[file]);
  try {
    read_saved_text(folder_, manifest_.texts.at(file - manifest_.files.size()));
  } catch (const StoreError& error) {
    return error.what();
  }
  return {};
}

void CheckpointReader::read(const PieceInfo& tensor, int64_t first, int64_t count,
                            void* out) const {
  const PieceInfo* found = find(tensor.parameter, tensor.state);
  if (found == nullptr) {
    throw StoreError(folder_.string() + ": holds no tensor " + tensor_name(tensor) +
                     "; take another checkpoint, or the experiment that it was saved with.");
  }
  if (first < 0 || count < 0 || count > found->length - first) {
    throw StoreError(folder_.string() + ": tensor " + tensor_name(tensor) + " has " +
                     std::to_string(found->length) + " elements, so " + std::to_string(count) +
                     " from " + std::to_string(first) + " on cannot be read.");
  }
  const std::vector<Place>& places = places_[static_cast<size_t>(found - tensors_.data())];
  auto place = std::upper_bound(places.begin(), places.end(), first,
                                [](int64_t at, const Place& place) { return at < place.end; });
  auto* to = static_cast<std::byte*>(out);
  for (int64_t at = first; at < first + count; ++place) {
    const SealedFile& file = manifest_.files[place->file];
    const SealedPiece& piece = file.pieces[place->piece];
    const int64_t length = std::min(place->end, first + count) - at;
    read_elements(folder_ / file.name, piece.info, piece.chunks, at - piece.info.offset, length,
                  to);
    at += length;
    to += length * dtype_size(found->dtype);
  }
}

const SealedLocal* CheckpointReader::find_local(int rank, const std::string& name) const {
  if (rank < 0 || static_cast<size_t>(rank) >= manifest_.files.size()) return nullptr;
  for (const SealedLocal& local : manifest_.files[static_cast<size_t>(rank)].local)
    if (local.info.name == name) return &local;
  return nullptr;
}

void CheckpointReader::read_local(int rank, const SealedLocal& local, void* out) const {
  read_elements(folder_ / manifest_.files.at(static_cast<size_t>(rank)).name, local.info,
                local.chunks, 0, local.info.length, out);
}

}  // namespace zerolab
