#include "train/initial_weights.h"

#include <vector>

#include "zerolab/error.h"

#include "train/exchange.h"
#include "train/foreign_settings.h"
#include "train/saved_state.h"
#include "train/weight_match.h"
#include "train/weight_reader.h"
#include "train/weight_source.h"

namespace zerolab {
namespace {

constexpr const char* kKey = "key 'init_from': ";

/// A tied weight that the source holds twice is one only if both are the same.
void check_ties(const WeightMatch& match, const TensorSource& source, WeightReader& reader,
                const std::string& title) {
  for (const std::vector<WeightOrigin>& origins : match.origins) {
    for (size_t i = 1; i < origins.size(); ++i) {
      if (reader.equal(origins.front(), origins[i])) continue;
      throw ConfigError(title + ": '" + source.tensors[origins.front().tensor].info.parameter +
                        "' and '" + source.tensors[origins[i].tensor].info.parameter +
                        "' are one weight in the model, and differ there; choose the model's "
                        "option that makes them two.");
    }
  }
}

/// The program that saved the weights may say what they are for.
void check_settings(const std::string& path, const std::string& name,
                    const std::vector<WeightLayout>& layouts, const std::string& title) {
  for (const WeightLayout& layout : layouts) {
    if (layout.name != name) continue;
    const std::string differences = foreign_differences(path, layout);
    if (differences.empty()) continue;
    throw ConfigError(title + ": config.json beside it is of a model that computes otherwise: " +
                      differences + "; choose the model's options so.");
  }
}

}  // namespace

void check_initial_weights(const std::string& init_from) {
  find_weights(init_from, kKey);
}

InitialWeights load_initial_weights(const InitialWeightsRequest& request, Communicator& ranks) {
  const std::string mine =
      ranks.rank() == 0 ? find_weights(request.init_from, kKey).string() : std::string();
  const std::string path = gather_texts(ranks, mine).front();
  const TensorSource source = open_weights(path);
  const std::string title = kKey + path;
  const Parameters& parameters = request.parameters;
  const std::vector<WeightLayout> layouts = request.model.weight_layouts();
  const WeightMatch match = match_weights(source, parameters, layouts, title);
  check_settings(path, match.layout, layouts, title);
  WeightReader reader(source);
  check_ties(match, source, reader, title);
  const std::vector<StatePiece> pieces = training_state(request.sharding, parameters);
  for (const StatePiece& piece : pieces) {
    if (piece.state != kParameterState || piece.length == 0) continue;
    if (request.alive) request.alive();
    const auto index = static_cast<size_t>(parameters.find(piece.parameter));
    reader.read(match.origins[index].front(), piece.offset, piece.data);
  }
  publish_loaded(pieces, request.sharding, parameters, ranks);
  return {path, match.layout};
}

}  // namespace zerolab
