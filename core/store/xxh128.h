#pragma once
// XXH3 with 128 bits, as 32 hex digits: what `xxhsum -H2` prints.
//
// Ranks: local.
// Source: xxHash, https://xxhash.com; the canonical form is big-endian.

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace zerolab {

/// Of bytes that come in pieces.
class Xxh128 {
 public:
  Xxh128();
  /// [hot]
  void update(const void* data, size_t size);
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

std::string xxh128(std::string_view bytes);
/// Of a whole file, without memory of its size. Errors: StoreError that names the file.
std::string xxh128_of_file(const std::filesystem::path& file);

}  // namespace zerolab
