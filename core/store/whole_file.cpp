#include "store/whole_file.h"

#include <algorithm>
#include <string>

#include "zerolab/error.h"

#include "store/chunk_grid.h"
#include "store/hdf5_values.h"

namespace zerolab {

namespace {

namespace fs = std::filesystem;

constexpr const char* kAction = "read its tensors";

class WholeFile {
 public:
  explicit WholeFile(const fs::path& path) : path_(path) {
    silence_hdf5();
    const Hdf5Handle access = file_access(path);
    file_ = made(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), H5Fclose);
  }

  std::vector<SealedPiece> pieces() {
    if (read_text_attribute(file_, "format", path_) != "zerolab-checkpoint")
      refuse("its format is not 'zerolab-checkpoint'");
    int64_t version = 0;
    read_int64s(file_, "format_version", &version, 1);
    if (version != 1) refuse("its format version " + std::to_string(version) + " is newer");
    std::vector<SealedPiece> found;
    const Hdf5Handle tensors = made(H5Gopen2(file_, "tensors", H5P_DEFAULT), H5Gclose);
    for (const std::string& name : names_in(tensors)) {
      const Hdf5Handle parameter = made(H5Gopen2(tensors, name.c_str(), H5P_DEFAULT), H5Gclose);
      PieceInfo info;
      info.parameter = read_text_attribute(parameter, "name", path_);
      info.shape = read_shape(parameter);
      for (const std::string& state : names_in(parameter)) {
        const Hdf5Handle group = made(H5Gopen2(parameter, state.c_str(), H5P_DEFAULT), H5Gclose);
        info.state = read_text_attribute(group, "name", path_);
        found.push_back(piece_in(group, info));
      }
    }
    return found;
  }

 private:
  Hdf5Handle made(hid_t id, Hdf5Handle::Close close) const {
    return Hdf5Handle(id, close, path_, kAction);
  }
  void check(herr_t code) const { check_hdf5(code, path_, kAction); }
  [[noreturn]] void refuse(const std::string& reason) const {
    throw StoreError(path_.string() + ": cannot " + kAction + ": " + reason + ".");
  }

  std::vector<std::string> names_in(hid_t group) const {
    H5G_info_t about{};
    check(H5Gget_info(group, &about));
    std::vector<std::string> names;
    for (hsize_t i = 0; i < about.nlinks; ++i) {
      const auto name_at = [&](char* out, size_t size) {
        const ssize_t length =
            H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, out, size, H5P_DEFAULT);
        check(length < 0 ? -1 : 0);
        return static_cast<size_t>(length);
      };
      std::string name(name_at(nullptr, 0) + 1, '\0');
      name_at(name.data(), name.size());
      name.pop_back();
      names.push_back(std::move(name));
    }
    return names;
  }

  int64_t num_values(hid_t attribute) const {
    const Hdf5Handle space = made(H5Aget_space(attribute), H5Sclose);
    return H5Sget_simple_extent_npoints(space);
  }
  void read_int64s(hid_t object, const char* name, int64_t* out, int64_t count) const {
    const Hdf5Handle attribute = made(H5Aopen(object, name, H5P_DEFAULT), H5Aclose);
    if (num_values(attribute) != count) refuse(std::string("'") + name + "' has another length");
    check(H5Aread(attribute, H5T_NATIVE_INT64, out));
  }
  std::vector<int64_t> read_shape(hid_t parameter) const {
    const Hdf5Handle attribute = made(H5Aopen(parameter, "shape", H5P_DEFAULT), H5Aclose);
    std::vector<int64_t> shape(static_cast<size_t>(std::max<int64_t>(num_values(attribute), 0)));
    if (!shape.empty()) check(H5Aread(attribute, H5T_NATIVE_INT64, shape.data()));
    return shape;
  }

  TensorDtype dtype_of(hid_t dataset) const {
    const Hdf5Handle type = made(H5Dget_type(dataset), H5Tclose);
    const size_t bytes = H5Tget_size(type);
    if (H5Tget_class(type) == H5T_INTEGER) {
      if (bytes == 8) return TensorDtype::kInt64;
      if (bytes == 4) return TensorDtype::kInt32;
      if (bytes == 1) return TensorDtype::kUInt8;
    } else if (H5Tget_class(type) == H5T_FLOAT) {
      if (bytes == 8) return TensorDtype::kFloat64;
      if (bytes == 4) return TensorDtype::kFloat32;
      if (bytes == 2)
        return H5Tget_ebias(type) == 127 ? TensorDtype::kBFloat16 : TensorDtype::kFloat16;
    }
    refuse("it holds numbers of another type");
  }

  SealedPiece piece_in(hid_t group, PieceInfo info) const {
    const std::string name = "'" + info.parameter + "' (" + info.state + ")";
    if (names_in(group) != std::vector<std::string>{"0"})
      refuse("it holds parts of tensor " + name + "; consolidate its checkpoint");
    const Hdf5Handle dataset = made(H5Dopen2(group, "0", H5P_DEFAULT), H5Dclose);
    const Hdf5Handle space = made(H5Dget_space(dataset), H5Sclose);
    if (H5Sget_simple_extent_ndims(space) != 1) refuse("tensor " + name + " is not stored flat");
    info.dtype = dtype_of(dataset);
    info.length = H5Sget_simple_extent_npoints(space);
    int64_t elements = 1;
    for (const int64_t size : info.shape)
      if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) elements = -1;
    if (info.length != elements)
      refuse("it holds parts of tensor " + name + "; consolidate its checkpoint");
    SealedPiece piece{info, {}};
    const ChunkGrid grid(info.dtype, info.length);
    for (int64_t chunk = 0; chunk < grid.num_chunks; ++chunk) {
      const hsize_t at = static_cast<hsize_t>(grid.first(chunk));
      haddr_t begin = HADDR_UNDEF;
      hsize_t size = 0;
      unsigned unfiltered = 0;
      check(H5Dget_chunk_info_by_coord(dataset, &at, &unfiltered, &begin, &size));
      if (begin == HADDR_UNDEF) refuse("a part of tensor " + name + " is missing");
      piece.chunks.begin.push_back(static_cast<int64_t>(begin));
    }
    return piece;
  }

  const fs::path& path_;
  Hdf5Handle file_;
};

}  // namespace

std::vector<SealedPiece> find_whole_tensors(const fs::path& file) {
  return WholeFile(file).pieces();
}

}  // namespace zerolab
