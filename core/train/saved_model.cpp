#include "train/saved_model.h"

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "zerolab/error.h"

#include "train/declared_model.h"
#include "train/weight_match.h"

namespace zerolab {
namespace {

/// What a vocabulary's size may be: any side of a matrix, the longest first.
std::vector<int64_t> possible_sizes(const TensorSource& saved) {
  std::set<int64_t, std::greater<>> sizes;
  for (const SourceTensor& tensor : saved.tensors) {
    if (tensor.info.state != kParameterState || tensor.info.shape.size() < 2) continue;
    sizes.insert(tensor.info.shape.begin(), tensor.info.shape.end());
  }
  return {sizes.begin(), sizes.end()};
}

}  // namespace

SavedModel declare_as_saved(const std::function<std::unique_ptr<Model>()>& make,
                            const Experiment& experiment, const TensorSource& saved,
                            const std::string& title) {
  std::optional<ConfigError> first;
  for (const int64_t size : possible_sizes(saved)) {
    SavedModel model{make(), std::make_unique<Parameters>(), size};
    try {
      declare_model(*model.model, experiment, size, *model.parameters);
      match_weights(saved, *model.parameters, {}, title);
      return model;
    } catch (const ConfigError& error) {
      if (!first) first = error;
    }
  }
  if (first) throw *first;
  throw ConfigError(title + ": holds no weights of a model.");
}

}  // namespace zerolab
