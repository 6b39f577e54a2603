#include "golden_file.h"

#include <cstdint>

#include <ATen/ops/empty.h>

#include "zerolab/error.h"

#include "store/hdf5_values.h"

namespace {

using zerolab::Hdf5Handle;

struct NumberType {
  at::ScalarType dtype;
  hid_t in_memory;
};

/// How a recorded type is read; h5py records bool as an enumeration of bytes.
NumberType number_type(hid_t type, const std::string& where) {
  const size_t bytes = H5Tget_size(type);
  switch (H5Tget_class(type)) {
    case H5T_FLOAT:
      if (bytes == 4) return {at::kFloat, H5T_NATIVE_FLOAT};
      if (bytes == 8) return {at::kDouble, H5T_NATIVE_DOUBLE};
      break;
    case H5T_INTEGER:
      if (bytes == 8) return {at::kLong, H5T_NATIVE_INT64};
      if (bytes == 4) return {at::kInt, H5T_NATIVE_INT32};
      if (bytes == 1) return {at::kByte, H5T_NATIVE_UINT8};
      break;
    case H5T_ENUM:
      if (bytes == 1) return {at::kByte, type};
      break;
    default:
      break;
  }
  throw zerolab::StoreError(where + " holds a type of number that goldens do not have");
}

}  // namespace

GoldenFile::GoldenFile(const std::string& part)
    : file_(std::filesystem::path(ZEROLAB_TEST_SOURCE_DIR) / "tests/golden" / (part + ".h5")) {
  zerolab::silence_hdf5();
  handle_ = Hdf5Handle(H5Fopen(file_.c_str(), H5F_ACC_RDONLY, zerolab::file_access(file_)),
                       H5Fclose, file_, "open it");
}

Hdf5Handle GoldenFile::open(const std::string& path) const {
  const std::string whole = "/" + path;
  return {H5Oopen(handle_, whole.c_str(), H5P_DEFAULT), H5Oclose, file_,
          ("open '" + path + "'").c_str()};
}

Hdf5Handle GoldenFile::dataset(const std::string& path) const {
  return {H5Dopen2(handle_, path.c_str(), H5P_DEFAULT), H5Dclose, file_,
          ("open '" + path + "'").c_str()};
}

at::Tensor GoldenFile::tensor(const std::string& path) const {
  const Hdf5Handle data = dataset(path);
  const Hdf5Handle type(H5Dget_type(data), H5Tclose, file_, "read a type");
  const Hdf5Handle space(H5Dget_space(data), H5Sclose, file_, "read a shape");
  std::vector<hsize_t> extent(static_cast<size_t>(H5Sget_simple_extent_ndims(space)));
  if (!extent.empty()) H5Sget_simple_extent_dims(space, extent.data(), nullptr);
  const std::vector<int64_t> shape(extent.begin(), extent.end());
  const auto [dtype, in_memory] = number_type(type, file_.string() + ": '" + path + "'");
  at::Tensor values = at::empty(shape, at::TensorOptions().dtype(dtype));
  zerolab::check_hdf5(
      H5Dread(data, in_memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.mutable_data_ptr()), file_,
      ("read '" + path + "'").c_str());
  return values;
}

std::vector<double> GoldenFile::numbers(const std::string& path) const {
  const at::Tensor values = tensor(path).to(at::kDouble).contiguous();
  const double* first = values.const_data_ptr<double>();
  return {first, first + values.numel()};
}

std::vector<std::string> GoldenFile::names(const std::string& group) const {
  const Hdf5Handle object = open(group);
  H5G_info_t info{};
  zerolab::check_hdf5(H5Gget_info(object, &info), file_, ("list '" + group + "'").c_str());
  std::vector<std::string> found;
  for (hsize_t i = 0; i < info.nlinks; ++i) {
    char name[256] = {};
    const ssize_t length = H5Lget_name_by_idx(object, ".", H5_INDEX_NAME, H5_ITER_INC, i, name,
                                              sizeof name, H5P_DEFAULT);
    zerolab::check_hdf5(length < 0 ? -1 : 0, file_, ("list '" + group + "'").c_str());
    found.emplace_back(name);
  }
  return found;
}

std::string GoldenFile::text(const std::string& path, const std::string& name) const {
  return zerolab::read_text_attribute(open(path), name.c_str(), file_);
}

double GoldenFile::number(const std::string& path, const std::string& name) const {
  const Hdf5Handle object = open(path);
  const std::string action = "read attribute '" + name + "' of '" + path + "'";
  const Hdf5Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, file_,
                             action.c_str());
  double value = 0;
  zerolab::check_hdf5(H5Aread(attribute, H5T_NATIVE_DOUBLE, &value), file_, action.c_str());
  return value;
}

zerolab::OptionValue GoldenFile::option(const Hdf5Handle& object, const std::string& name) const {
  const std::string action = "read option '" + name + "'";
  const Hdf5Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, file_,
                             action.c_str());
  const Hdf5Handle type(H5Aget_type(attribute), H5Tclose, file_, action.c_str());
  const Hdf5Handle space(H5Aget_space(attribute), H5Sclose, file_, action.c_str());
  const auto read = [&](hid_t in_memory, void* out) {
    zerolab::check_hdf5(H5Aread(attribute, in_memory, out), file_, action.c_str());
  };
  switch (H5Tget_class(type)) {
    case H5T_ENUM: {  // h5py's bool
      int8_t value = 0;
      read(type, &value);
      return value != 0;
    }
    case H5T_INTEGER: {
      int64_t value = 0;
      read(H5T_NATIVE_INT64, &value);
      return value;
    }
    case H5T_FLOAT: {
      std::vector<double> values(static_cast<size_t>(H5Sget_simple_extent_npoints(space)));
      read(H5T_NATIVE_DOUBLE, values.data());
      if (H5Sget_simple_extent_ndims(space) == 0) return values.front();
      return values;
    }
    default:
      return zerolab::read_text_attribute(object, name.c_str(), file_);
  }
}

zerolab::OptionValues GoldenFile::options(const std::string& group) const {
  const Hdf5Handle object = open(group);
  zerolab::OptionValues values;
  const int count = H5Aget_num_attrs(object);
  for (int i = 0; i < count; ++i) {
    char name[256] = {};
    const ssize_t length =
        H5Aget_name_by_idx(object, ".", H5_INDEX_NAME, H5_ITER_INC, static_cast<hsize_t>(i), name,
                           sizeof name, H5P_DEFAULT);
    zerolab::check_hdf5(length < 0 ? -1 : 0, file_, "list options");
    values.insert_or_assign(name, option(object, name));
  }
  return values;
}
