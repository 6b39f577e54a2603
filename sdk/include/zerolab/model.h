#pragma once
// Kind `model`: the network and its loss.
//
// Shapes: B sequences, T tokens, V vocabulary.
// Order: constructed from its options; declare() once; then loss() per micro-batch, logits() and
// next_logits() for generation.
// Ranks: local. A model never communicates.
//
// Implementing this:
//  - declare() names every parameter once, unit by unit in forward order; weights used by
//    several units go to the root unit.
//  - A parameter is read in its own unit's function alone, a root parameter in any: elsewhere it
//    may have no memory (a strategy that shards parameters frees it), and reading it is a crash.
//  - loss() runs its blocks through units.run() and draws dropout only from the scope.
//  - loss() returns a sum over counted targets, not a mean: the trainer divides once, over all
//    ranks.
//  - Parameters may be of another dtype than the one they were declared in (float32): tables that
//    are not parameters follow the dtype of what they meet.

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/export.h"
#include "zerolab/kind.h"
#include "zerolab/parameters.h"
#include "zerolab/units.h"

namespace zerolab {

/// A target that is not counted in the loss.
inline constexpr int64_t kIgnoredTarget = -100;

struct Batch {
  at::Tensor tokens;        ///< [B, T] int64
  at::Tensor targets;       ///< [B, T] int64; kIgnoredTarget where not counted
  int64_t num_targets = 0;  ///< counted targets
};

struct ModelContext {
  int64_t vocab_size = 0;
  int64_t sequence_length = 0;  ///< the longest T that will be asked for
};

/// What attention keeps of the tokens read so far. Made empty by who generates; a model fills it in
/// next_logits(), layer by layer, and may keep memory for as many tokens as `capacity` says.
struct KeyValueCache {
  int64_t capacity = 0;                  ///< tokens that will be read at most
  int64_t length = 0;                    ///< tokens read
  std::vector<at::Tensor> keys, values;  ///< by layer, [B, heads, capacity, head width]
};

/// A weight as another program's files hold it.
struct ForeignWeight {
  std::string name;         ///< in the file
  std::string parameter;    ///< here: a declared name, or an alias of one
  bool transposed = false;  ///< the file holds it [in, out], here it is [out, in]
};

/// What another program's config.json may say of a model that computes what this one does.
struct ForeignSetting {
  std::string name;                   ///< "n_head"
  std::vector<std::string> accepted;  ///< JSON values; the first is this model's own
};

/// How another program names a whole model's weights.
struct WeightLayout {
  std::string name;                    ///< of [a-z0-9_], unique in the model: "huggingface"
  std::vector<ForeignWeight> weights;  ///< each parameter once; an alias of one may follow it
  /// Suffixes of names in a file that stand for nothing here ("attn.bias").
  std::vector<std::string> ignored_suffixes;
  /// What that program wants to read beside the weights, as JSON ("config.json"); may be empty.
  std::string config_json;
  /// What no shape tells, and decides what the weights compute; compared where weights are read.
  std::vector<ForeignSetting> settings = {};
};

class ZEROLAB_API Model {
 public:
  static constexpr Kind kKind = Kind::kModel;
  virtual ~Model();
  /// [setup] Declares every parameter. Errors: ConfigError if the context does not fit the options.
  virtual void declare(Parameters& parameters, const ModelContext& context) = 0;
  /// [hot] Sum of the loss over counted targets: a scalar, float32, that requires grad when
  /// training.
  virtual at::Tensor loss(const Batch& batch, Units& units) = 0;
  /// [B, T] tokens to [B, T, V] logits.
  virtual at::Tensor logits(const at::Tensor& tokens_BT, Units& units) = 0;
  /// Whether next_logits() is there.
  virtual bool has_cache() const { return false; }
  /// [hot] Reads tokens_BT, which follow those that the cache holds, adds them to it, and gives the
  /// logits [B, V] of the token after the last of them. Not in training. The same numbers as
  /// logits() within rounding.
  virtual at::Tensor next_logits(const at::Tensor& tokens_BT, Units& units, KeyValueCache& cache);
  /// After declare(). How other programs name these weights; their files can be read and written.
  virtual std::vector<WeightLayout> weight_layouts() const { return {}; }
};

}  // namespace zerolab
