#pragma once
// From a sample's index to the place where its window begins: a pure function, without memory of
// the windows. A part is a stretch of one file; a window lies in one part.
//
// Every part owns a range of indices, one after the other. The host visits indices in a seeded
// permutation, so ranges mix, and over one epoch the mixture is exact.
//
// Shapes: T tokens in a window, and the one after them.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace token_bin {

struct Part {
  size_t source = 0;  ///< which file
  int64_t first = 0;  ///< its first token
  int64_t length = 0;
};

struct WindowRule {
  int64_t window = 0;  ///< T
  int64_t stride = 0;  ///< from a window to the next; 0: drawn at random by `key`
  uint64_t key = 0;
};

class WindowMap {
 public:
  struct Place {
    size_t source;
    int64_t first;
  };

  WindowMap() = default;
  /// `weights` are one for each part: the shares of an epoch, in which each window comes at least
  /// once. Without any, each window comes once. Each part with a weight has a window.
  /// Errors: ConfigError for weights too far apart to count.
  WindowMap(std::vector<Part> parts, WindowRule rule, const std::vector<double>& weights = {});

  /// Different windows of a part of this length; with a drawn start, the places to draw from.
  static int64_t num_windows(const WindowRule& rule, int64_t length);

  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  Place at(int64_t index) const;

 private:
  std::vector<Part> parts_;
  WindowRule rule_;
  std::vector<int64_t> ends_;  // of each part's range of indices
};

}  // namespace token_bin
