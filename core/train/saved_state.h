#pragma once
// Between a strategy's state and the pieces that a checkpoint keeps.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "zerolab/optimizer.h"
#include "zerolab/parameters.h"
#include "zerolab/sharding.h"
#include "zerolab/state.h"

#include "store/checkpoint_reader.h"

namespace zerolab {

/// [local] All that this rank holds of whole tensors, as views: the strategy's pieces, and frozen
/// parameters, which every rank has whole.
std::vector<StatePiece> training_state(Sharding& sharding, const Parameters& parameters);

/// The store's word for a dtype, and whether it has one. Errors: PluginError for a dtype that no
/// checkpoint holds.
TensorDtype stored_dtype(at::ScalarType dtype);
/// The reverse.
at::ScalarType dtype_of(TensorDtype stored);

/// [collective] After training_state()'s pieces were written: lets the strategy follow, and
/// compares copies across ranks by checksum. Errors: Error or PluginError that says who differs in
/// what.
void publish_loaded(const std::vector<StatePiece>& pieces, Sharding& sharding,
                    const Parameters& parameters, Communicator& ranks);

/// [collective] Whole parameters that a model computes with, where they stay between steps, have to
/// be the same on all ranks. Errors: PluginError that begins with `when` and ends with `advice`.
void compare_resident(const Parameters& parameters, Communicator& ranks, const std::string& when,
                      const std::string& advice);

struct LoadRequest {
  const CheckpointReader& checkpoint;
  Sharding& sharding;
  Parameters& parameters;
  const Optimizer& optimizer;
  /// A fork may have other optimizer states: those that the checkpoint lacks start at zero.
  bool fork = false;
  /// The same strategy on the same number of ranks saved: what belongs to one rank is taken over.
  bool same_owners = false;
  std::function<void()> alive = {};  ///< called before each piece
};

/// [collective] Writes a checkpoint's tensors into a strategy's memory, and compares copies across
/// ranks by checksum. Returns what the user should know, a sentence each, the same on every rank.
/// Errors: ConfigError that lists parameters that do not fit, before anything is written;
/// StoreError for damage.
std::vector<std::string> load_state(const LoadRequest& request, Communicator& ranks);
/// [local] Where training stands after that: as saved, but updates are counted from 0 by an
/// optimizer of whose states the checkpoint has none.
TrainingPoint loaded_point(const LoadRequest& request);

}  // namespace zerolab
