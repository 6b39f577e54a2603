#include "store/checkpoint_layout.h"

#include <algorithm>
#include <map>
#include <string>

#include "zerolab/error.h"

#include "store/chunk_grid.h"
#include "store/fletcher32.h"
#include "store/hdf5_values.h"

namespace zerolab {

namespace {

/// Bit numbers of an IEEE-like type of 16 bits. HDF5 1.10 has no such type of its own.
hid_t make_float16(size_t exponent_bits, size_t exponent_bias) {
  const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  const size_t mantissa_bits = 15 - exponent_bits;
  if (H5Tset_fields(type, 15, mantissa_bits, exponent_bits, 0, mantissa_bits) < 0 ||
      H5Tset_size(type, 2) < 0 || H5Tset_ebias(type, exponent_bias) < 0) {
    H5Tclose(type);
    return -1;
  }
  return type;
}

hid_t make_type(TensorDtype dtype) {
  switch (dtype) {
    case TensorDtype::kFloat32:
      return H5Tcopy(H5T_IEEE_F32LE);
    case TensorDtype::kFloat64:
      return H5Tcopy(H5T_IEEE_F64LE);
    case TensorDtype::kFloat16:
      return make_float16(5, 15);
    case TensorDtype::kBFloat16:
      return make_float16(8, 127);
    case TensorDtype::kInt64:
      return H5Tcopy(H5T_STD_I64LE);
    case TensorDtype::kInt32:
      return H5Tcopy(H5T_STD_I32LE);
    case TensorDtype::kUInt8:
      return H5Tcopy(H5T_STD_U8LE);
  }
  return -1;
}

class LayoutBuilder {
 public:
  LayoutBuilder(const std::filesystem::path& path, CheckpointLayout& layout)
      : path_(path), layout_(layout), file_(create_hdf5_layout(path, layout.structures)) {
    link_ = made(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
    check(H5Pset_char_encoding(link_, H5T_CSET_UTF8));
    group_ = made(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
    check(H5Pset_obj_track_times(group_, false));
    uncached_ = made(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
    check(H5Pset_chunk_cache(uncached_, 0, 0, 0));
  }

  void label(const FileLabel& label) {
    write_attribute(file_, "format", std::string("zerolab-checkpoint"), path_);
    write_int64(file_, "format_version", 1);
    write_int64(file_, "step", label.step);
    write_int64(file_, "rank", label.rank);
    write_int64(file_, "ranks", label.ranks);
    tensors_ = make_group(file_, "tensors");
    local_ = make_group(file_, "local");
  }

  void add(const PieceData& piece) {
    const PieceInfo& info = piece.info;
    what_ = "lay out '" + info.parameter + "' (" + info.state + ")";
    check_piece(info, piece.data);
    if (info.length == 0) return;
    const Hdf5Handle& state = state_group(info);
    SealedPiece sealed{info, {}};
    sealed.chunks = add_dataset(state, std::to_string(info.offset), nullptr, info.dtype,
                                info.length, piece.data);
    layout_.sealed.pieces.push_back(std::move(sealed));
  }

  void add(const LocalData& local) {
    what_ = "lay out the local state '" + local.info.name + "'";
    if (local.info.length < 0 || (local.info.length > 0 && local.data == nullptr))
      refuse("a length below 0, or no values");
    if (local.info.length == 0) return;
    SealedLocal sealed{local.info, {}};
    sealed.chunks = add_dataset(local_, object_name(local.info.name), &local.info.name,
                                local.info.dtype, local.info.length, local.data);
    layout_.sealed.local.push_back(std::move(sealed));
  }

  /// Lets HDF5 finish its structures.
  void close() {
    what_ = "lay the file out";
    states_.clear();
    parameters_.clear();
    tensors_.close(path_, what_.c_str());
    local_.close(path_, what_.c_str());
    file_.close(path_, what_.c_str());
    if (layout_.structures.out_of_memory()) refuse("out of memory");
    layout_.sealed.name = path_.filename().string();
    layout_.sealed.bytes = layout_.structures.bytes();
    std::sort(layout_.chunks.begin(), layout_.chunks.end(),
              [](const LaidChunk& a, const LaidChunk& b) { return a.begin < b.begin; });
  }

 private:
  Hdf5Handle made(hid_t id, Hdf5Handle::Close close) const {
    return Hdf5Handle(id, close, path_, what_.c_str());
  }
  void check(herr_t code) const { check_hdf5(code, path_, what_.c_str()); }
  [[noreturn]] void refuse(const std::string& reason) const {
    throw StoreError(path_.string() + ": cannot " + what_ + ": " + reason + ".");
  }

  void check_piece(const PieceInfo& info, const void* data) const {
    int64_t elements = 1;
    for (const int64_t size : info.shape) {
      if (size < 0 || __builtin_mul_overflow(elements, size, &elements))
        refuse("its shape is impossible");
    }
    if (info.offset < 0 || info.length < 0 || info.offset > elements - info.length ||
        (info.length > 0 && data == nullptr)) {
      refuse("the piece of " + std::to_string(info.length) + " elements at " +
             std::to_string(info.offset) + " is no part of its " + std::to_string(elements));
    }
  }

  void write_int64s(hid_t object, const char* name, hid_t space, const int64_t* values) const {
    Hdf5Handle attribute =
        made(H5Acreate2(object, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    check(H5Awrite(attribute, H5T_NATIVE_INT64, values));
    attribute.close(path_, what_.c_str());
  }
  void write_int64(hid_t object, const char* name, int64_t value) const {
    write_int64s(object, name, made(H5Screate(H5S_SCALAR), H5Sclose), &value);
  }

  Hdf5Handle make_group(hid_t parent, const std::string& name) const {
    return made(H5Gcreate2(parent, name.c_str(), link_, group_, H5P_DEFAULT), H5Gclose);
  }

  const Hdf5Handle& state_group(const PieceInfo& info) {
    static constexpr int64_t kNoSize = 0;  // HDF5 wants an address even of nothing
    Hdf5Handle& parameter = parameters_[info.parameter];
    if (!parameter.valid()) {
      parameter = make_group(tensors_, object_name(info.parameter));
      write_attribute(parameter, "name", info.parameter, path_);
      const hsize_t dims = info.shape.size();
      write_int64s(parameter, "shape", made(H5Screate_simple(1, &dims, nullptr), H5Sclose),
                   info.shape.empty() ? &kNoSize : info.shape.data());
    }
    Hdf5Handle& state = states_[{info.parameter, info.state}];
    if (!state.valid()) {
      state = make_group(parameter, object_name(info.state));
      write_attribute(state, "name", info.state, path_);
    }
    return state;
  }

  ChunkPlaces add_dataset(hid_t group, const std::string& name, const std::string* true_name,
                          TensorDtype dtype, int64_t length, const void* data) {
    const ChunkGrid grid(dtype, length);
    const hsize_t dims = static_cast<hsize_t>(length);
    const hsize_t chunk_dims = static_cast<hsize_t>(grid.chunk_length);
    const Hdf5Handle creation = made(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    check(H5Pset_chunk(creation, 1, &chunk_dims));
    check(H5Pset_fletcher32(creation));
    check(H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER));
    check(H5Pset_obj_track_times(creation, false));
    const Hdf5Handle space = made(H5Screate_simple(1, &dims, nullptr), H5Sclose);
    const Hdf5Handle type = made(make_type(dtype), H5Tclose);
    Hdf5Handle dataset =
        made(H5Dcreate2(group, name.c_str(), type, space, link_, creation, uncached_), H5Dclose);
    if (true_name != nullptr) write_attribute(dataset, "name", *true_name, path_);
    ChunkPlaces places;
    for (int64_t chunk = 0; chunk < grid.num_chunks; ++chunk)
      places.begin.push_back(add_chunk(dataset, grid, chunk, static_cast<const char*>(data)));
    dataset.close(path_, what_.c_str());
    return places;
  }

  int64_t add_chunk(hid_t dataset, const ChunkGrid& grid, int64_t chunk, const char* data) {
    LaidChunk laid;
    laid.values = data + grid.first(chunk) * grid.element_bytes;
    laid.values_bytes = grid.count(chunk) * grid.element_bytes;
    laid.padding_bytes = grid.chunk_bytes() - laid.values_bytes;
    const hsize_t at = static_cast<hsize_t>(grid.first(chunk));
    const int64_t stored = grid.chunk_bytes() + kFletcherBytes;
    layout_.structures.expect_block(laid.values, stored);
    check(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, &at, static_cast<size_t>(stored), laid.values));
    laid.begin = layout_.structures.block_place();
    if (laid.begin < 0) refuse("HDF5 wrote no chunk");
    layout_.chunks.push_back(laid);
    return laid.begin;
  }

  const std::filesystem::path& path_;
  CheckpointLayout& layout_;
  std::string what_ = "lay the file out";  // for errors: "cannot ..."
  // Handles close in the opposite order, the file last.
  Hdf5Handle file_, link_, group_, uncached_, tensors_, local_;
  std::map<std::string, Hdf5Handle> parameters_;
  std::map<std::pair<std::string, std::string>, Hdf5Handle> states_;
};

}  // namespace

std::string object_name(const std::string& name) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  const bool dots = name == "." || name == "..";
  std::string escaped;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= ' ' || byte == 0x7f || c == '/' || c == '%' || dots) {
      escaped += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      escaped += c;
    }
  }
  return escaped.empty() ? "%" : escaped;
}

CheckpointLayout lay_out_checkpoint(const std::filesystem::path& path, const FileLabel& label,
                                    const std::vector<PieceData>& pieces,
                                    const std::vector<LocalData>& local) {
  silence_hdf5();
  CheckpointLayout layout;
  LayoutBuilder builder(path, layout);
  builder.label(label);
  for (const PieceData& piece : pieces) builder.add(piece);
  for (const LocalData& state : local) builder.add(state);
  builder.close();
  return layout;
}

}  // namespace zerolab
