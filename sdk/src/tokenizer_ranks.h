#pragma once
// The vocabulary of a byte-level BPE: byte strings and their ranks. A token is its rank; of two
// pairs that could be merged, the lower rank goes first.
//
// Ranks: local; from any thread.
// Errors: ConfigError that names the file, and the line that is wrong.
// Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016).

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zerolab {

/// Quick and of no use against an adversary. Short strings first: most are of 2 to 8 bytes.
uint64_t hash_bytes(const char* data, size_t size);

class BpeRanks {
 public:
  static constexpr int32_t kNone = INT32_MAX;
  /// Reads `num_ranks` lines "base64-of-bytes rank", which hold each rank below that and each
  /// single byte once.
  BpeRanks(const std::string& file, int32_t num_ranks);

  /// kNone if these bytes are no token.
  int32_t rank(const char* data, size_t size) const {
    return size == 1 ? rank_of_byte_[static_cast<unsigned char>(*data)]
                     : rank(data, size, hash_bytes(data, size));
  }
  int32_t rank(const char* data, size_t size, uint64_t hash) const;
  std::string_view bytes(int32_t rank) const;
  /// Appends the tokens of one piece of at least one byte: neighbours are merged, the pair of
  /// lowest rank first, of equal ones the leftmost, until no neighbours are a token together.
  void merge(std::string_view piece, std::vector<int32_t>& tokens) const;

 private:
  struct Slot {
    uint32_t tag = 0;     // upper half of the hash
    uint32_t offset = 0;  // in all_bytes_
    uint32_t size = 0;    // 0: free
    int32_t rank = 0;
  };
  void read(const std::string& file, int32_t num_ranks);
  void insert(uint32_t offset, uint32_t size, int32_t rank);
  void merge_short(std::string_view piece, std::vector<int32_t>& tokens) const;
  void merge_long(std::string_view piece, std::vector<int32_t>& tokens) const;

  std::string all_bytes_;
  std::vector<Slot> slots_;                                   // a power of two of them
  std::vector<std::pair<uint32_t, uint32_t>> place_of_rank_;  // offset and size; size 0: not there
  std::array<int32_t, 256> rank_of_byte_;
  size_t longest_ = 0;
};

}  // namespace zerolab
