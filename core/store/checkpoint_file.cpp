#include "store/checkpoint_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <system_error>

#include <unistd.h>

#include "zerolab/error.h"

#include "store/checkpoint_layout.h"
#include "store/fletcher32.h"
#include "store/read_back.h"
#include "store/xxh128.h"

namespace zerolab {

namespace {

struct DtypeRow {
  TensorDtype dtype;
  std::string_view name;
  int64_t bytes;
};
constexpr std::array<DtypeRow, 7> kDtypes = {{{TensorDtype::kFloat32, "float32", 4},
                                              {TensorDtype::kFloat64, "float64", 8},
                                              {TensorDtype::kFloat16, "float16", 2},
                                              {TensorDtype::kBFloat16, "bfloat16", 2},
                                              {TensorDtype::kInt64, "int64", 8},
                                              {TensorDtype::kInt32, "int32", 4},
                                              {TensorDtype::kUInt8, "uint8", 1}}};

const DtypeRow& row_of(TensorDtype dtype) {
  return kDtypes.at(static_cast<size_t>(dtype));
}

constexpr int64_t kBlockBytes = 256 << 10;  // stays in a core's cache between its passes

/// Writes a laid out file from its first byte to its last, and hashes what it writes. After an
/// error nothing more is written.
class Writer {
 public:
  Writer(FileLayer& files, int descriptor, ReadBack& reader)
      : files_(files), descriptor_(descriptor), reader_(reader) {}

  int write(const CheckpointLayout& layout, const ChunkValues& values) {
    for (const LaidChunk& chunk : layout.chunks) {
      put_structures(layout.structures, chunk.begin);
      if (error_ == 0) put_chunk(chunk, values(chunk));
    }
    put_structures(layout.structures, layout.structures.bytes());
    return error_;
  }
  std::string hex() const { return hash_.hex(); }

 private:
  void put(const char* data, int64_t size) {
    if (error_ != 0) return;
    hash_.update(data, static_cast<size_t>(size));
    error_ = write_all(files_, descriptor_, {data, static_cast<size_t>(size)});
    if (error_ != 0) return;
    at_ += size;
    reader_.written(at_);
  }

  void put_structures(const Hdf5Layout& structures, int64_t end) {
    while (at_ < end && error_ == 0) {
      const int64_t size = std::min(end - at_, kBlockBytes);
      block_.resize(static_cast<size_t>(size));
      structures.read(at_, block_.data(), block_.size());
      put(block_.data(), size);
    }
  }

  void put_chunk(const LaidChunk& chunk, const char* values) {
    static constexpr std::array<char, 4096> kZeros{};
    Fletcher32 checksum;
    const auto put_values = [&](const char* data, int64_t size) {
      checksum.update(data, static_cast<size_t>(size));
      put(data, size);
    };
    for (int64_t done = 0; done < chunk.values_bytes && error_ == 0; done += kBlockBytes)
      put_values(values + done, std::min(chunk.values_bytes - done, kBlockBytes));
    for (int64_t left = chunk.padding_bytes; left > 0 && error_ == 0; left -= kZeros.size())
      put_values(kZeros.data(), std::min<int64_t>(left, kZeros.size()));
    const uint32_t value = checksum.value();
    put(reinterpret_cast<const char*>(&value), kFletcherBytes);
  }

  FileLayer& files_;
  const int descriptor_;
  ReadBack& reader_;
  Xxh128 hash_;
  std::string block_;
  int64_t at_ = 0;
  int error_ = 0;
};

/// Everything that can fail once the file is there. Returns the sentence's end, or "" and the
/// checksum.
std::string fill(FileLayer& files, const std::filesystem::path& path, int descriptor,
                 const CheckpointLayout& layout, const ChunkValues& values, std::string& xxh128) {
  ReadBack reader(path, layout.sealed.bytes);
  Writer writer(files, descriptor, reader);
  if (const int error = writer.write(layout, values); error != 0)
    return "cannot be written: " + errno_text(error) + "; " + errno_advice(error);
  if (files.sync(descriptor) != 0) return "cannot be synced: " + errno_text(errno);
  if (const int error = reader.finish(); error != 0)
    return "cannot be read back: " + errno_text(error);
  xxh128 = writer.hex();
  if (reader.hex() != xxh128)
    return "does not read back as it was written; do not trust this disk or this memory";
  return "";
}

}  // namespace

std::string tensor_name(const std::string& parameter, const std::string& state) {
  return "'" + parameter + "' (" + state + ")";
}

std::string_view dtype_name(TensorDtype dtype) {
  return row_of(dtype).name;
}

TensorDtype dtype_from_name(std::string_view name) {
  std::string known;
  for (const DtypeRow& row : kDtypes) {
    if (row.name == name) return row.dtype;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  throw StoreError("'" + std::string(name) + "' is no type of tensors; these are: " + known + ".");
}

int64_t dtype_size(TensorDtype dtype) {
  return row_of(dtype).bytes;
}

SealedFile write_checkpoint_file(FileLayer& files, const std::filesystem::path& path,
                                 const FileLabel& label, const std::vector<PieceData>& pieces,
                                 const std::vector<LocalData>& local) {
  return write_laid_out(files, path, lay_out_checkpoint(path, label, pieces, local),
                        [](const LaidChunk& chunk) { return chunk.values; });
}

SealedFile write_laid_out(FileLayer& files, const std::filesystem::path& path,
                          CheckpointLayout layout, const ChunkValues& values) {
  const int descriptor = files.create(path);
  if (descriptor < 0)
    throw StoreError(path.string() + ": cannot be made: " + errno_text(errno) + ".");
  std::string problem;
  try {
    problem = fill(files, path, descriptor, layout, values, layout.sealed.xxh128);
  } catch (const Error&) {  // of `values`
    ::close(descriptor);
    ::unlink(path.c_str());
    throw;
  } catch (const std::bad_alloc&) {
    problem = "cannot be written: out of memory";
  } catch (const std::system_error& error) {
    problem = std::string("cannot be written: no thread to read it back: ") + error.what();
  }
  if (::close(descriptor) != 0 && problem.empty())
    problem = "cannot be closed: " + errno_text(errno);
  if (!problem.empty()) {
    ::unlink(path.c_str());
    throw StoreError(path.string() + ": " + problem + ".");
  }
  return std::move(layout.sealed);
}

}  // namespace zerolab
