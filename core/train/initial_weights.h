#pragma once
// A new run that begins with weights of another one, or of another program (`init_from`).

#include <functional>
#include <string>

#include "zerolab/communicator.h"
#include "zerolab/model.h"
#include "zerolab/sharding.h"

namespace zerolab {

/// Where weights came from.
struct InitialWeights {
  std::string source;  ///< the checkpoint's folder, or the file
  std::string layout;  ///< in which they were found; empty: the model's own names
  std::string text() const { return source + (layout.empty() ? "" : " (layout " + layout + ")"); }
};

struct InitialWeightsRequest {
  const std::string& init_from;
  const Model& model;
  Sharding& sharding;
  Parameters& parameters;
  std::function<void()> alive = {};  ///< called before each piece
};

/// [local] Whether there is what `init_from` names, without reading it. Errors: ConfigError.
void check_initial_weights(const std::string& init_from);

/// [collective] Writes parameters, and nothing else, into a strategy's memory, each rank its own
/// pieces: after attach(), before the first step. Ranks read what rank 0 found, so that all read
/// the same checkpoint of a run that goes on meanwhile. Errors: ConfigError that lists what does
/// not fit, before anything is written; StoreError for damage.
InitialWeights load_initial_weights(const InitialWeightsRequest& request, Communicator& ranks);

}  // namespace zerolab
