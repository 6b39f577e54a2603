#include "train/weight_export.h"

#include <algorithm>
#include <set>
#include <utility>

#include <unistd.h>

#include <ATen/ops/from_blob.h>

#include "zerolab/error.h"

#include "store/safetensors.h"
#include "train/saved_state.h"
#include "train/weight_match.h"
#include "train/weight_reader.h"

namespace zerolab {
namespace {

namespace fs = std::filesystem;

/// One tensor to write, and the one that it is read from.
struct Outgoing {
  SafeTensor tensor;
  WeightOrigin origin;
};

std::vector<Outgoing> outgoing(const WeightLayout& layout, const WeightExport& request,
                               const SavedModel& saved, const TensorSource& source) {
  const WeightMatch match =
      match_weights(source, *saved.parameters, {}, request.file.filename().string());
  std::vector<Outgoing> list;
  std::set<size_t> written;
  for (const ForeignWeight& weight : layout.weights) {
    const size_t i = parameter_of(weight, layout, *saved.parameters);
    const bool again = !written.insert(i).second;
    if (match.origins[i].empty() || (again && layout.name.empty())) continue;
    const PieceInfo& from = source.tensors[match.origins[i].front().tensor].info;
    std::vector<int64_t> shape = from.shape;
    if (weight.transposed) std::reverse(shape.begin(), shape.end());
    list.push_back({{weight.name, request.dtype.value_or(from.dtype), std::move(shape), 0, 0},
                    {match.origins[i].front().tensor, weight.transposed}});
  }
  return list;
}

}  // namespace

WeightLayout find_layout(const std::string& name, const SavedModel& saved) {
  if (name.empty()) return own_layout(*saved.parameters);
  std::vector<std::string> names;
  for (WeightLayout& layout : saved.model->weight_layouts()) {
    if (layout.name == name) return std::move(layout);
    names.push_back(layout.name);
  }
  if (names.empty()) {
    throw ConfigError("the model knows no layout but its own names; leave --layout out, is '" +
                      name + "'.");
  }
  std::string list;
  for (const std::string& known : names) list += (list.empty() ? "" : ", ") + known;
  throw ConfigError("the model has no layout '" + name + "'; it has " + list +
                    ", and its own names if --layout is left out.");
}

ExportedWeights export_weights(const WeightExport& request, const SavedModel& saved,
                               const TensorSource& source, FileLayer& files) {
  const fs::path path = fs::absolute(request.file);
  if (!request.overwrite && file_exists(path)) {
    throw ConfigError(request.file.string() +
                      ": is there already; choose another name, or use --force.");
  }
  const WeightLayout layout = find_layout(request.layout, saved);
  std::map<std::string, WeightOrigin> origins;
  std::vector<SafeTensor> tensors;
  for (Outgoing& each : outgoing(layout, request, saved, source)) {
    origins[each.tensor.name] = each.origin;
    tensors.push_back(std::move(each.tensor));
  }
  std::map<std::string, std::string> metadata = request.metadata;
  metadata["format"] = "pt";  // what readers of PyTorch's models ask for
  if (!layout.name.empty()) metadata["layout"] = layout.name;
  WeightReader reader(source);
  fs::path partial = path;
  partial += ".partial";
  ::unlink(partial.c_str());  // of a process that was killed here
  ExportedWeights written{static_cast<int64_t>(tensors.size()), 0};
  written.bytes = write_safetensors(
      files, partial, std::move(tensors), metadata,
      [&](const SafeTensor& tensor, int64_t first, int64_t count, void* out) {
        const auto options = at::TensorOptions().dtype(dtype_of(tensor.dtype));
        reader.read(origins.at(tensor.name), first, at::from_blob(out, {count}, options));
      });
  move_into_place(files, partial, path);
  return written;
}

}  // namespace zerolab
