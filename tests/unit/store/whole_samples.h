#pragma once
// A checkpoint of two ranks for tests of what reads it whole: tensors of every type, cut in the
// middle, with values that know their place.

#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "store/checkpoint_folder.h"
#include "store/consolidate.h"

namespace zerolab {

struct WholeSample {
  PieceInfo info;
  std::string bytes;
};

/// Bytes that are finite numbers of any type: none has all bits of an exponent.
inline WholeSample whole_sample(const std::string& parameter, const std::string& state,
                                std::vector<int64_t> shape, TensorDtype dtype, int64_t length) {
  WholeSample sample{{parameter, state, std::move(shape), dtype, 0, length}, {}};
  for (int64_t i = 0; i < length * dtype_size(dtype); ++i)
    sample.bytes += static_cast<char>((i * 7 + static_cast<int64_t>(parameter.size())) % 60);
  return sample;
}

inline std::vector<WholeSample> whole_samples() {
  constexpr int64_t kLong = kChunkBytes / 4 * 2 + 1001;  // of three chunks
  return {whole_sample("wte.weight", "parameter", {30, 7}, TensorDtype::kFloat32, 210),
          whole_sample("wte.weight", "exp_avg", {30, 7}, TensorDtype::kFloat32, 210),
          whole_sample("half", "parameter", {5, 1, 3}, TensorDtype::kFloat16, 15),
          whole_sample("brain", "parameter", {333}, TensorDtype::kBFloat16, 333),
          whole_sample("double", "parameter", {2, 2}, TensorDtype::kFloat64, 4),
          whole_sample("scalar", "parameter", {}, TensorDtype::kInt64, 1),
          whole_sample("count", "parameter", {9}, TensorDtype::kInt32, 9),
          whole_sample("a \"name\"/\\", "parameter", {11}, TensorDtype::kUInt8, 11),
          whole_sample("long", "parameter", {kLong}, TensorDtype::kFloat32, kLong)};
}

inline const WholeSample& sample_of(const std::vector<WholeSample>& samples,
                                    const std::string& parameter,
                                    const std::string& state = kParameterState) {
  for (const WholeSample& sample : samples)
    if (sample.info.parameter == parameter && sample.info.state == state) return sample;
  throw std::runtime_error("no sample " + parameter);
}

/// Saves step 7 in `run`; each rank has one half of every tensor. Returns the checkpoint's folder.
inline std::filesystem::path save_whole(const std::filesystem::path& run,
                                        const std::vector<WholeSample>& samples,
                                        TrainingPoint point = {}) {
  std::filesystem::create_directory(run);
  CheckpointFolder folder(run);
  folder.begin(7);
  CheckpointManifest manifest;
  manifest.point = std::move(point);
  manifest.point.step = 7;
  manifest.run.name = "sample";
  manifest.run.ranks = 2;
  manifest.plugins["model"] = {"model/any", "1.2.0", std::string(32, '0')};
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<PieceData> pieces;
    for (const WholeSample& sample : samples) {
      const int64_t half = sample.info.length / 2;
      PieceInfo info = sample.info;
      info.offset = rank == 0 ? 0 : half;
      info.length = rank == 0 ? half : info.length - half;
      pieces.push_back({info, sample.bytes.data() + info.offset * dtype_size(info.dtype)});
    }
    manifest.files.push_back(write_checkpoint_file(
        real_files(), folder.partial(7) / CheckpointFolder::rank_file_name(rank), {7, rank, 2},
        pieces, {}));
  }
  folder.publish(manifest, {{"config.resolved.toml", "steps = 9\n"}});
  return folder.path(7);
}

/// Flips a bit in the middle of a piece's first chunk.
inline void damage(const std::filesystem::path& checkpoint, size_t file,
                   const std::string& parameter) {
  const CheckpointManifest manifest = read_checkpoint_manifest(checkpoint);
  const SealedFile& sealed = manifest.files.at(file);
  for (const SealedPiece& piece : sealed.pieces) {
    if (piece.info.parameter != parameter) continue;
    const int64_t at = piece.chunks.begin.at(0) + dtype_size(piece.info.dtype) / 2;
    std::fstream stream(checkpoint / sealed.name, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekg(at);
    const char byte = static_cast<char>(stream.get() ^ 4);
    stream.seekp(at);
    stream.put(byte);
    return;
  }
  throw std::runtime_error("no piece of " + parameter);
}

}  // namespace zerolab
