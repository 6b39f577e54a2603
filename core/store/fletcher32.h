#pragma once
// The Fletcher-32 checksum that HDF5 appends to a chunk.
//
// Ranks: local. Allocates nothing.
// Source: HDF5 File Format Specification 3.0, IV.A.2.l, and the library's H5_checksum_fletcher32:
// with 16-bit big-endian words w_0 ... w_(n-1), a last odd byte being a word's upper half,
//   low half  = sum w_i, high half = sum (n - i) w_i, both modulo 65535,
// where a multiple of 65535 other than 0 is 65535. It is stored as 4 little-endian bytes.

#include <cstddef>
#include <cstdint>

namespace zerolab {

class Fletcher32 {
 public:
  /// [hot] More bytes of the same chunk, cut anywhere.
  void update(const void* data, size_t size);
  uint32_t value() const;

 private:
  void add_word(uint32_t word);
  uint64_t sum_ = 0, weighted_ = 0;  // of little-endian words, as residues of 0 ... 65535
  bool odd_ = false;
  uint8_t first_half_ = 0;  // of a word whose other half has not come yet
};

inline constexpr int64_t kFletcherBytes = 4;  ///< that follow the values of a chunk

uint32_t fletcher32(const void* data, size_t size);

}  // namespace zerolab
