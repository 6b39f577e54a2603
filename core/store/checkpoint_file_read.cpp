// The half of checkpoint_file.h that reads. Nothing in a file or in a list of chunks is believed
// before it is compared with the file's real size.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "zerolab/error.h"

#include "store/checkpoint_file.h"
#include "store/chunk_grid.h"
#include "store/fletcher32.h"
#include "store/input_file.h"
#include "store/xxh128.h"

namespace zerolab {

namespace {

constexpr int64_t kBlockBytes = 256 << 10;  // stays in a core's cache

std::string tensor_name(const LocalInfo& info) {
  return "the local state '" + info.name + "'";
}

/// A dataset of an open file, by its chunks' places.
class StoredValues {
 public:
  StoredValues(const InputFile& file, TensorDtype dtype, int64_t length, const ChunkPlaces& chunks)
      : file_(file), grid_(dtype, std::max<int64_t>(length, 0)), chunks_(chunks) {
    if (length < 0 || static_cast<int64_t>(chunks.begin.size()) != grid_.num_chunks)
      problem_ = "its list of chunks does not fit its length";
  }
  const ChunkGrid& grid() const { return grid_; }
  const std::string& problem() const { return problem_; }  ///< "": none so far

  /// Compares the chunk's checksum; elements [first, first + count) of the dataset go to `out`
  /// as far as they are in this chunk. False: there is a problem.
  bool read_chunk(int64_t chunk, int64_t first, int64_t count, char* out) {
    const int64_t begin = chunks_.begin[static_cast<size_t>(chunk)], bytes = grid_.chunk_bytes();
    if (begin < 0 || begin > file_.size() || bytes + kFletcherBytes > file_.size() - begin)
      return fail("the file ends before it does");
    const int64_t chunk_first = grid_.first(chunk);
    const int64_t from = std::max(first, chunk_first);
    const int64_t to = std::min(first + count, chunk_first + grid_.count(chunk));
    const int64_t wanted = (from - chunk_first) * grid_.element_bytes;
    const int64_t wanted_end = std::max(wanted, (to - chunk_first) * grid_.element_bytes);
    if (wanted_end > wanted) out += (from - first) * grid_.element_bytes;
    Fletcher32 checksum;
    // The bytes before what is wanted, what is wanted straight into its place, the bytes after.
    if (!pass(begin, begin + wanted, nullptr, checksum) ||
        !pass(begin + wanted, begin + wanted_end, out, checksum) ||
        !pass(begin + wanted_end, begin + bytes, nullptr, checksum)) {
      return false;
    }
    uint32_t stored = 0;
    if (!take(begin + bytes, &stored, kFletcherBytes)) return false;
    if (stored != checksum.value())
      return fail("its checksum is wrong in bytes " + std::to_string(begin) + " to " +
                  std::to_string(begin + bytes + kFletcherBytes));
    return true;
  }

 private:
  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  bool take(int64_t at, void* out, int64_t size) {
    const int error = file_.read_at(at, out, static_cast<size_t>(size));
    return error == 0 || fail(errno_text(error));
  }
  bool pass(int64_t begin, int64_t end, char* out, Fletcher32& checksum) {
    for (int64_t at = begin; at < end; at += kBlockBytes) {
      const int64_t size = std::min(end - at, kBlockBytes);
      if (out == nullptr) block_.resize(static_cast<size_t>(kBlockBytes));
      char* const to = out != nullptr ? out + (at - begin) : block_.data();
      if (!take(at, to, size)) return false;
      checksum.update(to, static_cast<size_t>(size));
    }
    return true;
  }

  const InputFile& file_;
  const ChunkGrid grid_;
  const ChunkPlaces& chunks_;
  std::vector<char> block_;
  std::string problem_;
};

std::string damage_of(const InputFile& file, TensorDtype dtype, int64_t length,
                      const ChunkPlaces& chunks) {
  StoredValues values(file, dtype, length, chunks);
  for (int64_t chunk = 0; values.problem().empty() && chunk < values.grid().num_chunks; ++chunk)
    values.read_chunk(chunk, 0, 0, nullptr);
  return values.problem();
}

/// "'wte' (exp_avg): its checksum is wrong ...", or "" if all tensors are as they were.
std::string first_damaged(const InputFile& file, const SealedFile& sealed) {
  for (const SealedPiece& piece : sealed.pieces) {
    const std::string damage = damage_of(file, piece.info.dtype, piece.info.length, piece.chunks);
    if (!damage.empty()) return tensor_name(piece.info) + ": " + damage;
  }
  for (const SealedLocal& local : sealed.local) {
    const std::string damage = damage_of(file, local.info.dtype, local.info.length, local.chunks);
    if (!damage.empty()) return tensor_name(local.info) + ": " + damage;
  }
  return "";
}

template <typename Info>
void read_any(const std::filesystem::path& path, const Info& info, const ChunkPlaces& chunks,
              int64_t first, int64_t count, void* out) {
  const auto refuse = [&](const std::string& reason) {
    throw StoreError(path.string() + ": cannot read " + tensor_name(info) + ": " + reason + ".");
  };
  if (info.length < 0 || first < 0 || count < 0 || first > info.length ||
      count > info.length - first) {
    refuse("it has no " + std::to_string(count) + " elements from " + std::to_string(first) +
           " on, but " + std::to_string(info.length) + " in all");
  }
  if (count == 0) return;
  const InputFile file(path);
  if (file.error() != 0) refuse(errno_text(file.error()));
  StoredValues values(file, info.dtype, info.length, chunks);
  if (!values.problem().empty()) refuse(values.problem());
  const int64_t each = values.grid().chunk_length;
  for (int64_t chunk = first / each; chunk <= (first + count - 1) / each; ++chunk) {
    if (!values.read_chunk(chunk, first, count, static_cast<char*>(out)))
      refuse(values.problem() + "; use another checkpoint");
  }
}

/// Empty if the file's bytes are the sealed ones, else what differs.
std::string difference(const InputFile& file, const SealedFile& sealed) {
  if (file.size() != sealed.bytes)
    return "it has " + std::to_string(file.size()) + " bytes instead of " +
           std::to_string(sealed.bytes);
  Xxh128 hash;
  std::vector<char> block(static_cast<size_t>(kBlockBytes));
  for (int64_t at = 0; at < file.size(); at += kBlockBytes) {
    const auto size = static_cast<size_t>(std::min(file.size() - at, kBlockBytes));
    if (const int error = file.read_at(at, block.data(), size); error != 0)
      return "it cannot be read: " + errno_text(error);
    hash.update(block.data(), size);
  }
  return hash.hex() == sealed.xxh128 ? "" : "its bytes are not the ones that were saved";
}

}  // namespace

std::string find_damage(const std::filesystem::path& folder, const SealedFile& sealed) {
  const std::filesystem::path path = folder / sealed.name;
  const InputFile file(path);
  if (file.error() != 0)
    return path.string() + ": cannot be opened: " + errno_text(file.error()) + ".";
  const std::string different = difference(file, sealed);
  if (different.empty()) return "";
  const std::string tensor = first_damaged(file, sealed);
  return path.string() + " is damaged: " + different + "; " +
         (tensor.empty() ? "its tensors are unharmed" : tensor) + ".";
}

void read_elements(const std::filesystem::path& file, const PieceInfo& info,
                   const ChunkPlaces& chunks, int64_t first, int64_t count, void* out) {
  read_any(file, info, chunks, first, count, out);
}

void read_elements(const std::filesystem::path& file, const LocalInfo& info,
                   const ChunkPlaces& chunks, int64_t first, int64_t count, void* out) {
  read_any(file, info, chunks, first, count, out);
}

}  // namespace zerolab
