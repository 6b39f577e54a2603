#pragma once
// Writes a model's weights for other programs: one safetensors file, named as a layout says.
// Ranks: local.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "zerolab/model.h"

#include "store/file_layer.h"
#include "store/tensor_source.h"
#include "train/saved_model.h"

namespace zerolab {

struct WeightExport {
  std::filesystem::path file;
  std::string layout;                ///< empty: the model's own names
  std::optional<TensorDtype> dtype;  ///< nothing: as saved
  bool overwrite = false;            ///< else a file that is there is a ConfigError
  std::map<std::string, std::string> metadata;
};
struct ExportedWeights {
  int64_t tensors = 0, bytes = 0;
};

/// Under a layout, a tied weight is written under each of its names, as strict readers want; under
/// the model's own names once. Of a transposed tensor all is in memory, of another 8 MiB at a time.
/// Errors: ConfigError for a layout that the model does not have; StoreError if the file cannot be
/// written, which is then gone.
ExportedWeights export_weights(const WeightExport& request, const SavedModel& saved,
                               const TensorSource& source, FileLayer& files = real_files());

/// A layout of a model by its name; "" is that of its own names. Errors: ConfigError that lists the
/// model's.
WeightLayout find_layout(const std::string& name, const SavedModel& saved);

}  // namespace zerolab
