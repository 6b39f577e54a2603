#pragma once
// Checkpoint files for tests: tensors of every type with values that know their place.

#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "store/checkpoint_file.h"

namespace zerolab {

/// Pieces with values of their own: noise, the same each time. Comparisons are of bytes.
class SamplePieces {
 public:
  void add(const std::string& parameter, const std::string& state, std::vector<int64_t> shape,
           TensorDtype dtype, int64_t offset, int64_t length) {
    const void* const data = noise(length * dtype_size(dtype));
    pieces.push_back({{parameter, state, std::move(shape), dtype, offset, length}, data});
  }
  void add_local(const std::string& name, TensorDtype dtype, int64_t length) {
    local.push_back({{name, dtype, length}, noise(length * dtype_size(dtype))});
  }
  SealedFile write(FileLayer& files = real_files(),
                   const std::filesystem::path& path = "rank-0000.h5") const {
    return write_checkpoint_file(files, path, {500, 1, 4}, pieces, local);
  }

  std::vector<PieceData> pieces;
  std::vector<LocalData> local;

 private:
  const void* noise(int64_t bytes) {
    std::string& text = values_.emplace_back(static_cast<size_t>(bytes), '\0');
    for (size_t at = 0; at < text.size(); at += sizeof(uint64_t)) {
      const uint64_t word = random_();
      std::memcpy(text.data() + at, &word, std::min(sizeof word, text.size() - at));
    }
    return text.data();
  }
  std::deque<std::string> values_;
  std::mt19937_64 random_{7};
};

/// Every type, odd lengths, scalars, parts of tensors, odd names; all small.
inline SamplePieces small_sample() {
  SamplePieces sample;
  sample.add("wte", "parameter", {30, 7}, TensorDtype::kFloat32, 0, 100);
  sample.add("wte", "parameter", {30, 7}, TensorDtype::kFloat32, 103, 107);
  sample.add("wte", "exp_avg", {30, 7}, TensorDtype::kFloat64, 5, 199);
  sample.add("h/0%2F.weight", "parameter", {333}, TensorDtype::kBFloat16, 0, 333);
  sample.add(".", "parameter", {}, TensorDtype::kFloat16, 0, 1);
  sample.add("..", "..", {3}, TensorDtype::kInt64, 1, 2);
  sample.add("\xc3\xa9 \n", "count", {9}, TensorDtype::kInt32, 0, 9);
  sample.add("", "", {4001}, TensorDtype::kUInt8, 0, 4001);
  sample.add_local("residual", TensorDtype::kFloat32, 1001);
  sample.add_local("flags", TensorDtype::kUInt8, 3);
  return sample;
}

/// Datasets of one chunk exactly, one element more, and several.
inline SamplePieces large_sample() {
  constexpr int64_t kFloats = kChunkBytes / 4;
  SamplePieces sample;
  sample.add("exact", "parameter", {kFloats}, TensorDtype::kFloat32, 0, kFloats);
  sample.add("more", "parameter", {kFloats + 1}, TensorDtype::kFloat32, 0, kFloats + 1);
  sample.add("bytes", "parameter", {2 * kChunkBytes + 12345}, TensorDtype::kUInt8, 0,
             2 * kChunkBytes + 12345);
  sample.add_local("local", TensorDtype::kFloat64, kChunkBytes / 8 + 77);
  return sample;
}

}  // namespace zerolab
