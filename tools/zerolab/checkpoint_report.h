#pragma once
// What the verbs of `zerolab checkpoint` print: text for people, or one JSON object.

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "store/checkpoint_diff.h"
#include "store/checkpoint_list.h"
#include "store/checkpoint_reader.h"
#include "store/verify_checkpoint.h"

namespace zerolab {

/// "1.3 MB": decimal units, three digits or so.
std::string size_text(int64_t bytes);

struct CheckpointInspection {
  std::filesystem::path folder;
  const CheckpointReader& checkpoint;
  /// All of its run, if the user asked about the run.
  std::vector<ListedCheckpoint> all;
};
std::string inspection_text(const CheckpointInspection& inspection);
std::string inspection_json(const CheckpointInspection& inspection);

using CheckpointVerdicts = std::vector<std::pair<std::filesystem::path, CheckpointVerdict>>;
/// A line for each checkpoint that is whole, and for each sentence of damage.
std::string verdicts_text(const CheckpointVerdicts& verdicts);
std::string verdicts_json(const CheckpointVerdicts& verdicts);

/// `a` and `b` as the user named them; at most twenty tensors that differ, or `all`.
std::string diff_text(const CheckpointDiff& diff, const std::string& a, const std::string& b,
                      bool all);
std::string diff_json(const CheckpointDiff& diff, const std::string& a, const std::string& b);
/// "27 of 27 tensors and 4 counters differ"
std::string difference_sentence(const CheckpointDiff& diff);

}  // namespace zerolab
