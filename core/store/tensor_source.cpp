#include "store/tensor_source.h"

#include <algorithm>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "zerolab/error.h"

#include "store/checkpoint_reader.h"
#include "store/consolidate.h"
#include "store/json_text.h"
#include "store/safetensors.h"
#include "store/whole_file.h"

namespace zerolab {

namespace {

namespace fs = std::filesystem;

void sort(std::vector<SourceTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const SourceTensor& a, const SourceTensor& b) {
    return std::tie(a.info.parameter, a.info.state) < std::tie(b.info.parameter, b.info.state);
  });
}

Counter real(double value, bool is_state = true) {
  Counter counter{"", value, is_state};
  append_json_number(counter.text, value);
  return counter;
}

std::map<std::string, Counter> counters_of(const TrainingPoint& point) {
  std::map<std::string, Counter> counters = {
      {"step", {std::to_string(point.step), {}}},
      {"applied_updates", {std::to_string(point.applied_updates), {}}},
      {"skipped_steps", {std::to_string(point.skipped_steps), {}}},
      {"tokens", {std::to_string(point.tokens), {}}},
      {"next_sample", {std::to_string(point.next_sample), {}}},
      {"seed", {std::to_string(point.seed), {}}},
      {"val_loss", real(point.val_loss, false)},
      {"skips_in_a_row", {std::to_string(point.skips_in_a_row), {}}},
      {"rollbacks", {std::to_string(point.rollbacks), {}}}};
  for (const auto& [name, value] : point.precision) counters["precision." + name] = real(value);
  for (size_t i = 0; i < point.recent_losses.size(); ++i)
    counters["recent_losses[" + std::to_string(i) + "]"] = real(point.recent_losses[i]);
  return counters;
}

void add_local(const fs::path& checkpoint, const CheckpointManifest& manifest,
               TensorSource& source) {
  for (size_t rank = 0; rank < manifest.files.size(); ++rank) {
    const fs::path file = checkpoint / manifest.files[rank].name;
    for (const SealedLocal& local : manifest.files[rank].local) {
      const LocalInfo& info = local.info;
      source.tensors.push_back({{info.name,
                                 "local to rank " + std::to_string(rank),
                                 {info.length},
                                 info.dtype,
                                 0,
                                 info.length},
                                [file, local](int64_t first, int64_t count, void* out) {
                                  read_elements(file, local.info, local.chunks, first, count, out);
                                }});
    }
  }
}

std::set<std::string> words_of(const std::string& list) {
  std::set<std::string> words;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    words.insert(list.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

/// Parameter and state of a name. A state's parameter is there too, whose name has no such ending.
std::pair<std::string, std::string> split(const std::string& name,
                                          const std::set<std::string>& states,
                                          const std::set<std::string>& names) {
  for (const std::string& state : states) {
    if (!name.ends_with("." + state)) continue;
    const std::string parameter = name.substr(0, name.size() - state.size() - 1);
    if (names.count(parameter) > 0) return {parameter, state};
  }
  return {name, kParameterState};
}

/// File by tensor, as an index says; every file is beside the index.
std::map<std::string, std::string> read_index(const fs::path& index) {
  const auto json = nlohmann::json::parse(read_text_file(index), nullptr, false);
  const auto found = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || found == json.end() || !found->is_object())
    throw StoreError(index.string() +
                     ": is no index of safetensors files: it has no 'weight_map'.");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : found->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name != fs::path(name).filename().string())
      throw StoreError(index.string() + ": names no file of its folder for tensor '" + tensor +
                       "'.");
    files[tensor] = name;
  }
  return files;
}

}  // namespace

TensorSource open_checkpoint_tensors(const fs::path& checkpoint) {
  const auto reader = std::make_shared<const CheckpointReader>(checkpoint);
  TensorSource source;
  for (const PieceInfo& tensor : reader->tensors()) {
    source.tensors.push_back({tensor, [reader, &tensor](int64_t first, int64_t count, void* out) {
                                reader->read(tensor, first, count, out);
                              }});
  }
  add_local(checkpoint, reader->manifest(), source);
  sort(source.tensors);
  source.counters = counters_of(reader->manifest().point);
  return source;
}

TensorSource open_whole_file(const fs::path& file) {
  TensorSource source;
  for (const SealedPiece& piece : find_whole_tensors(file)) {
    source.tensors.push_back({piece.info, [file, piece](int64_t first, int64_t count, void* out) {
                                read_elements(file, piece.info, piece.chunks, first, count, out);
                              }});
  }
  sort(source.tensors);
  return source;
}

TensorSource open_safetensors(const fs::path& file) {
  const auto header = std::make_shared<const SafetensorsHeader>(read_safetensors_header(file));
  const auto listed = header->metadata.find(kStatesKey);
  const auto states = words_of(listed == header->metadata.end() ? "" : listed->second);
  std::set<std::string> names;
  for (const SafeTensor& tensor : header->tensors) names.insert(tensor.name);
  TensorSource source;
  for (const SafeTensor& tensor : header->tensors) {
    const auto [parameter, state] = split(tensor.name, states, names);
    source.tensors.push_back(
        {{parameter, state, tensor.shape, tensor.dtype, 0, tensor.bytes / dtype_size(tensor.dtype)},
         [file, header, &tensor](int64_t first, int64_t count, void* out) {
           read_safetensors(file, *header, tensor, first, count, out);
         }});
  }
  sort(source.tensors);
  return source;
}

TensorSource open_safetensors_index(const fs::path& index) {
  const std::map<std::string, std::string> listed = read_index(index);
  std::map<std::string, std::map<std::string, SourceTensor>> files;
  for (const auto& [tensor, file] : listed) files.try_emplace(file);
  for (auto& [file, tensors] : files) {
    for (SourceTensor& tensor : open_safetensors(index.parent_path() / file).tensors) {
      const PieceInfo& info = tensor.info;
      const std::string name =
          info.parameter + (info.state == kParameterState ? "" : "." + info.state);
      tensors.emplace(name, std::move(tensor));
    }
  }
  TensorSource source;
  for (const auto& [tensor, file] : listed) {
    const auto found = files.at(file).find(tensor);
    if (found == files.at(file).end())
      throw StoreError((index.parent_path() / file).string() + ": has no tensor '" + tensor +
                       "', which " + index.filename().string() + " says is there.");
    source.tensors.push_back(found->second);
  }
  sort(source.tensors);
  return source;
}

}  // namespace zerolab
