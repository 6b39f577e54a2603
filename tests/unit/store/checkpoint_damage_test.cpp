// Damaged checkpoint files: whatever happened to their bytes, it is noticed and named.

#include <limits>
#include <random>

#include <fcntl.h>
#include <unistd.h>

#include "zerolab/error.h"

#include "catch.h"
#include "checkpoint_samples.h"
#include "scratch.h"
#include "store/chunk_grid.h"
#include "store/fletcher32.h"

namespace zerolab {
namespace {

using Catch::Matchers::Contains;

constexpr const char* kFile = "rank-0000.h5";

/// Turns one bit round in place; twice is none.
void flip_bit(int64_t byte, int bit) {
  const int descriptor = open(kFile, O_RDWR);
  char value = 0;
  REQUIRE(pread(descriptor, &value, 1, byte) == 1);
  value = static_cast<char>(value ^ (1 << bit));
  REQUIRE(pwrite(descriptor, &value, 1, byte) == 1);
  close(descriptor);
}

struct NamedRange {
  std::string name;
  int64_t begin, end;
};

/// Of all chunks with their checksums, in the order in which find_damage looks.
std::vector<NamedRange> chunk_ranges(const SealedFile& sealed) {
  std::vector<NamedRange> ranges;
  const auto add = [&](const std::string& name, const auto& dataset) {
    const ChunkGrid grid(dataset.info.dtype, dataset.info.length);
    for (const int64_t begin : dataset.chunks.begin)
      ranges.push_back({name, begin, begin + grid.chunk_bytes() + kFletcherBytes});
  };
  for (const SealedPiece& piece : sealed.pieces)
    add("'" + piece.info.parameter + "' (" + piece.info.state + ")", piece);
  for (const SealedLocal& local : sealed.local)
    add("the local state '" + local.info.name + "'", local);
  return ranges;
}

template <typename Touched>
std::string name_of_first(const SealedFile& sealed, const Touched& touched) {
  for (const NamedRange& range : chunk_ranges(sealed)) {
    if (touched(range)) return range.name;
  }
  return "its tensors are unharmed";
}

void check_flip(const SealedFile& sealed, int64_t byte, int bit) {
  flip_bit(byte, bit);
  const std::string damage = find_damage(".", sealed);
  flip_bit(byte, bit);
  const std::string name = name_of_first(
      sealed, [&](const NamedRange& range) { return range.begin <= byte && byte < range.end; });
  INFO("byte " << byte << ", bit " << bit << ": " << damage);
  CHECK((Contains(kFile).match(damage) && Contains(name).match(damage)));
}

template <typename Info>
std::string refusal_of(const Info& info, const ChunkPlaces& chunks, int64_t first, int64_t count) {
  std::vector<char> out(static_cast<size_t>(1 << 20));
  try {
    read_elements(kFile, info, chunks, first, count, out.data());
  } catch (const StoreError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("any bit that is flipped is found, and its tensor named") {
  const ScratchFolder folder;
  const SealedFile sealed = small_sample().write();
  std::mt19937_64 random(3);
  for (int i = 0; i < 1000; ++i)
    check_flip(sealed, static_cast<int64_t>(random() % static_cast<uint64_t>(sealed.bytes)), i % 8);
  for (const NamedRange& range : chunk_ranges(sealed)) {
    for (const int64_t byte : {range.begin, range.end - 5, range.end - 4, range.end - 1})
      check_flip(sealed, byte, static_cast<int>(random() % 8));
    const auto size = static_cast<uint64_t>(range.end - range.begin);
    for (int i = 0; i < 50; ++i)
      check_flip(sealed, range.begin + static_cast<int64_t>(random() % size), i % 8);
  }
  CHECK(find_damage(".", sealed).empty());
}

TEST_CASE("a flipped bit in any of several chunks is found, its padding included") {
  const ScratchFolder folder;
  const SealedFile sealed = large_sample().write();
  for (const NamedRange& range : chunk_ranges(sealed)) {
    for (const int64_t byte : {range.begin + 4321, range.end - 5, range.end - 1})
      check_flip(sealed, byte, 3);
  }
}

TEST_CASE("any truncation is found, and the first tensor that is cut named") {
  const ScratchFolder folder;
  const SealedFile sealed = small_sample().write();
  std::mt19937_64 random(4);
  std::vector<int64_t> sizes = {0, 1, sealed.bytes - 1};
  for (const NamedRange& range : chunk_ranges(sealed))
    sizes.insert(sizes.end(), {range.begin, range.end - 1, range.end});
  for (int i = 0; i < 200; ++i)
    sizes.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(sealed.bytes)));
  for (const int64_t size : sizes) {
    if (size == sealed.bytes) continue;
    std::filesystem::copy_file(kFile, "whole");
    std::filesystem::resize_file(kFile, static_cast<uintmax_t>(size));
    const std::string damage = find_damage(".", sealed);
    std::filesystem::rename("whole", kFile);
    const std::string name =
        name_of_first(sealed, [&](const NamedRange& range) { return range.end > size; });
    INFO(size << " bytes: " << damage);
    CHECK(
        (Contains(std::to_string(size) + " bytes").match(damage) && Contains(name).match(damage)));
  }
}

TEST_CASE("a file that is longer, missing, or no file is damage too") {
  const ScratchFolder folder;
  const SealedFile sealed = small_sample().write();
  std::ofstream(kFile, std::ios::app) << "x";
  CHECK_THAT(find_damage(".", sealed), Contains(std::to_string(sealed.bytes + 1) + " bytes"));
  std::filesystem::remove(kFile);
  CHECK_THAT(find_damage(".", sealed), Contains(kFile) && Contains("No such file"));
  std::filesystem::create_directory(kFile);
  CHECK_THAT(find_damage(".", sealed), Contains(kFile) && Contains("Is a directory"));
}

TEST_CASE("reading elements of a damaged chunk is refused with file and tensor") {
  const ScratchFolder folder;
  const SealedFile sealed = large_sample().write();
  const SealedPiece& piece = sealed.pieces.at(2);
  const int64_t second = ChunkGrid(piece.info.dtype, piece.info.length).first(1);
  flip_bit(piece.chunks.begin.at(1) + 1000, 0);
  CHECK(refusal_of(piece.info, piece.chunks, second - 10, 10).empty());
  for (const auto& [first, count] : {std::pair{second - 10, int64_t{11}}, {second, int64_t{1}}}) {
    CHECK_THAT(refusal_of(piece.info, piece.chunks, first, count),
               Contains(kFile) && Contains("'bytes' (parameter)") && Contains("checksum"));
  }
}

TEST_CASE("lists of chunks that cannot be are refused, whatever they say") {
  const ScratchFolder folder;
  SealedFile sealed = small_sample().write();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const SealedPiece intact = sealed.pieces.at(0);
  SealedPiece& piece = sealed.pieces.at(0);
  const auto check_refused = [&](int64_t first, int64_t count) {
    CHECK_THAT(refusal_of(piece.info, piece.chunks, first, count), Contains("'wte' (parameter)"));
    sealed.xxh128 = "other";
    CHECK_THAT(find_damage(".", sealed), Contains("'wte' (parameter)"));
    piece = intact;
  };
  for (const int64_t begin : {int64_t{-1}, kLeast, kMost, sealed.bytes, sealed.bytes - 3}) {
    piece.chunks.begin = {begin};
    check_refused(0, 1);
  }
  piece.chunks.begin.clear();
  check_refused(0, 1);
  piece.chunks.begin.push_back(0);
  piece.chunks.begin.push_back(0);
  check_refused(0, 1);
  for (const int64_t length : {int64_t{-1}, kLeast, kMost, int64_t{1} << 62}) {
    piece.info.length = length;
    check_refused(0, 1);
  }
  for (const auto& [first, count] : {std::pair{int64_t{-1}, int64_t{1}},
                                     {int64_t{0}, int64_t{101}},
                                     {kMost, kMost},
                                     {kLeast, kLeast}}) {
    CHECK_THAT(refusal_of(piece.info, piece.chunks, first, count), Contains("'wte' (parameter)"));
  }
}

}  // namespace zerolab
