#include "store/fletcher32.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "zerolab/error.h"

#include "catch.h"
#include "scratch.h"
#include "store/xxh128.h"

// HDF5's own, which its library exports and its headers do not declare.
extern "C" uint32_t H5_checksum_fletcher32(const void* data, size_t size);

namespace zerolab {
namespace {

/// Bytes as tensors have them: noise, zeros, ones and few values.
std::string some_bytes(std::mt19937_64& random, size_t size) {
  const uint64_t kind = random() % 4;
  std::string bytes(size, kind == 1 ? '\xff' : '\0');
  for (char& byte : bytes) {
    if (kind == 0 || (kind == 2 && random() % 100 == 0)) byte = static_cast<char>(random());
  }
  return bytes;
}

}  // namespace

TEST_CASE("fletcher32 is HDF5's, for any length and any cut") {
  std::mt19937_64 random(1);
  for (size_t round = 0; round < 1500; ++round) {
    const std::string bytes = some_bytes(random, round < 300 ? round : random() % 40000);
    const uint32_t expected = H5_checksum_fletcher32(bytes.data(), bytes.size());
    CAPTURE(bytes.size());
    REQUIRE(fletcher32(bytes.data(), bytes.size()) == expected);
    Fletcher32 checksum;
    for (size_t at = 0; at < bytes.size();) {
      const size_t count = std::min<size_t>(bytes.size() - at, random() % 1000);
      checksum.update(bytes.data() + at, count);
      at += count;
    }
    REQUIRE(checksum.value() == expected);
  }
}

TEST_CASE("fletcher32 of many bytes of ones does not overflow") {
  const std::string ones(3'000'001, '\xff');
  CHECK(fletcher32(ones.data(), ones.size()) == H5_checksum_fletcher32(ones.data(), ones.size()));
}

TEST_CASE("xxh128 prints what xxhsum -H2 prints") {
  CHECK(xxh128("") == "99aa06d3014798d86001c324468d497f");
  CHECK(xxh128("a") == "a96faf705af16834e6c632b61e964e1f");
}

TEST_CASE("xxh128 of a file or of pieces is that of the bytes") {
  const ScratchFolder folder;
  std::mt19937_64 random(2);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{262144}, size_t{1'000'003}}) {
    const std::string bytes = some_bytes(random, size);
    std::ofstream("file", std::ios::binary) << bytes;
    CHECK(xxh128_of_file("file") == xxh128(bytes));
    Xxh128 hash;
    for (size_t at = 0; at < size; at += 1000)
      hash.update(bytes.data() + at, std::min<size_t>(1000, size - at));
    CHECK(hash.hex() == xxh128(bytes));
  }
  CHECK_THROWS_AS(xxh128_of_file("missing"), StoreError);
}

}  // namespace zerolab
