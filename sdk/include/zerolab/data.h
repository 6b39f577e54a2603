#pragma once
// Kind `data`: which tokens. A pure map from (split, sample index) to tokens; the host owns the
// order, so exact resume and any number of ranks need no state but a counter.
//
// Shapes: T tokens.
// Order: constructed from its options; open() once; then everything else, from any thread.
// Ranks: local; every rank sees the same samples under the same index.
//
// Implementing this:
//  - sample() depends on nothing but its arguments.
//  - size() is at least one for both splits after open(), or open() throws and says what is too
//    short.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zerolab/export.h"
#include "zerolab/kind.h"

namespace zerolab {

enum class Split { kTrain, kValidation };

struct DataContext {
  int64_t sequence_length = 0;
  uint64_t seed = 0;
};

class ZEROLAB_API Data {
 public:
  static constexpr Kind kKind = Kind::kData;
  virtual ~Data();
  /// [setup] Reads what it needs. Errors: ConfigError for a file that is missing, empty or too
  /// short.
  virtual void open(const DataContext& context) = 0;
  virtual int64_t vocab_size() const = 0;
  /// Number of samples of a split.
  virtual int64_t size(Split split) const = 0;
  /// [hot] Writes T input tokens and their T targets (the next token; kIgnoredTarget where not
  /// counted).
  virtual void sample(Split split, int64_t index, std::span<int64_t> tokens,
                      std::span<int64_t> targets) const = 0;
  /// Text of tokens; empty if this data has none. Bytes, which need not be valid UTF-8 where a
  /// token is part of a character.
  virtual std::string decode(std::span<const int64_t> /*tokens*/) const { return {}; }
  /// Tokens of a text, as training saw them. Errors: ConfigError for text that has no tokens, and
  /// by default.
  virtual std::vector<int64_t> encode(std::string_view text) const;
  /// The token that ends a document; -1 if there is none.
  virtual int64_t end_of_text() const { return -1; }
  /// [setup] After open(): the validation split becomes all of another file, in the same
  /// vocabulary. Errors: ConfigError for a file that does not fit, and by default.
  virtual void validate_on(const std::string& path);
};

}  // namespace zerolab
