#pragma once
// Reads every byte of a checkpoint and says what is wrong with it.
//
// Ranks: local. Threads: its own, as many as asked for.
// Errors: none for damage, which is the result.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace zerolab {

struct CheckpointVerdict {
  int64_t step = -1;  ///< -1: the manifest cannot be read
  size_t files = 0, tensors = 0;
  int64_t bytes = 0;  ///< of all files, as the manifest has them
  /// A sentence for each damaged file, which names it and the first tensor in it that is damaged;
  /// where all files are as they were saved, for each tensor that is not whole, or not finite.
  std::vector<std::string> damage;
  bool whole() const { return damage.empty(); }
};

/// `checkpoint`: its folder. Files are compared with their checksums, tensors have to be there from
/// their first element to their last, and all numbers have to be finite. `progress`, from any of
/// the threads, one at a time: bytes that are done, and of all, each byte counted as often as it is
/// read.
CheckpointVerdict verify_checkpoint(
    const std::filesystem::path& checkpoint, int threads,
    const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace zerolab
