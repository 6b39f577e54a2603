#include "store/xxh128.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <new>
#include <vector>

#include <xxhash.h>

#include "zerolab/error.h"

#include "store/file_layer.h"
#include "store/input_file.h"

namespace zerolab {

namespace {

static_assert(XXH_VERSION_NUMBER >= 800, "XXH3 before xxHash 0.8 gives other values");

std::string to_hex(const XXH128_hash_t& hash) {
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx",
                static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text.data();
}

}  // namespace

void Xxh128::Free::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

Xxh128::Xxh128() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void Xxh128::update(const void* data, size_t size) {
  XXH3_128bits_update(state_.get(), data, size);
}

std::string Xxh128::hex() const {
  return to_hex(XXH3_128bits_digest(state_.get()));
}

std::string xxh128(std::string_view bytes) {
  return to_hex(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string xxh128_of_file(const std::filesystem::path& file) {
  const InputFile in(file);
  int error = in.error();
  Xxh128 hash;
  std::vector<char> buffer(256 << 10);
  for (int64_t at = 0; error == 0 && at < in.size();) {
    const size_t size =
        static_cast<size_t>(std::min<int64_t>(in.size() - at, static_cast<int64_t>(buffer.size())));
    error = in.read_at(at, buffer.data(), size);
    hash.update(buffer.data(), size);
    at += static_cast<int64_t>(size);
  }
  if (error != 0) throw StoreError(file.string() + ": cannot be read: " + errno_text(error) + ".");
  return hash.hex();
}

}  // namespace zerolab
