#pragma once
// Which tensor of a file is which of a model's parameters: by the model's own names, or as one of
// its layouts says, judged as a whole by names and shapes.
// Ranks: local.

#include <cstddef>
#include <string>
#include <vector>

#include "zerolab/model.h"
#include "zerolab/parameters.h"

#include "store/tensor_source.h"

namespace zerolab {

/// A tensor of a source, by its number there.
struct WeightOrigin {
  size_t tensor = 0;
  bool transposed = false;  ///< the rows there are the columns here
  bool operator==(const WeightOrigin&) const = default;
};

struct WeightMatch {
  std::string layout;  ///< its name; empty: the model's own names
  /// By parameter. Several where the source holds a tied weight under more than one name, which
  /// have to be equal; none for a parameter without elements.
  std::vector<std::vector<WeightOrigin>> origins;
};

/// The layout of a model's own names, which is called "".
WeightLayout own_layout(const Parameters& parameters);

/// The number of the parameter that a layout's weight stands for. Errors: PluginError if the model
/// has none of this name.
size_t parameter_of(const ForeignWeight& weight, const WeightLayout& layout,
                    const Parameters& parameters);

/// The layout whose names and shapes are all there, with nothing left over but what it ignores. The
/// names of a layout may lack their common first word ("transformer."), as files of a model without
/// its head do. `title` begins the errors. Errors: one ConfigError with what differs under the
/// layout that comes closest; ConfigError if two layouts fit and mean different things; PluginError
/// for a layout of parameters that the model does not have.
WeightMatch match_weights(const TensorSource& source, const Parameters& parameters,
                          const std::vector<WeightLayout>& layouts, const std::string& title);

}  // namespace zerolab
