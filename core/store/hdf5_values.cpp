#include "store/hdf5_values.h"

#include "zerolab/error.h"

namespace zerolab {

namespace {

Hdf5Handle text_type(const std::filesystem::path& file) {
  Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose, file, "make a text type");
  check_hdf5(H5Tset_size(type, H5T_VARIABLE), file, "make a text type");
  check_hdf5(H5Tset_cset(type, H5T_CSET_UTF8), file, "make a text type");
  return type;
}

Hdf5Handle scalar_space(const std::filesystem::path& file) {
  return Hdf5Handle(H5Screate(H5S_SCALAR), H5Sclose, file, "make a scalar space");
}

void write_dataset(hid_t parent, const char* name, hid_t space, const char* const* texts,
                   const std::filesystem::path& file) {
  const Hdf5Handle type = text_type(file);
  Hdf5Handle dataset(H5Dcreate2(parent, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                     H5Dclose, file, "make a text dataset");
  check_hdf5(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts), file, "write a text");
  dataset.close(file, "close a text dataset");
}

void write_attribute_value(hid_t object, const std::string& name, hid_t file_type,
                           hid_t memory_type, const void* value,
                           const std::filesystem::path& file) {
  const Hdf5Handle space = scalar_space(file);
  Hdf5Handle attribute(H5Acreate2(object, name.c_str(), file_type, space, H5P_DEFAULT, H5P_DEFAULT),
                       H5Aclose, file, "make an attribute");
  check_hdf5(H5Awrite(attribute, memory_type, value), file, "write an attribute");
  attribute.close(file, "close an attribute");
}

}  // namespace

void write_text(hid_t parent, const char* name, const std::string& text,
                const std::filesystem::path& file) {
  const char* const value = text.c_str();
  write_dataset(parent, name, scalar_space(file), &value, file);
}

void write_texts(hid_t parent, const char* name, const std::vector<std::string>& texts,
                 const std::filesystem::path& file) {
  std::vector<const char*> values;
  for (const std::string& text : texts) values.push_back(text.c_str());
  const hsize_t count = texts.size();
  const Hdf5Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose, file,
                         "make a list's space");
  write_dataset(parent, name, space, values.data(), file);
}

void write_attribute(hid_t object, const std::string& name, const std::string& text,
                     const std::filesystem::path& file) {
  const Hdf5Handle type = text_type(file);
  const char* const value = text.c_str();
  write_attribute_value(object, name, type, type, &value, file);
}

void write_attribute(hid_t object, const std::string& name, double number,
                     const std::filesystem::path& file) {
  write_attribute_value(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &number, file);
}

void write_attribute(hid_t object, const std::string& name, int64_t number,
                     const std::filesystem::path& file) {
  write_attribute_value(object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &number, file);
}

std::string read_text_attribute(hid_t object, const char* name, const std::filesystem::path& file) {
  const Hdf5Handle attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose, file,
                             "open an attribute");
  const Hdf5Handle stored(H5Aget_type(attribute), H5Tclose, file, "read an attribute's type");
  const Hdf5Handle space(H5Aget_space(attribute), H5Sclose, file, "read an attribute's shape");
  if (H5Tis_variable_str(stored) <= 0 || H5Sget_simple_extent_npoints(space) != 1) {
    throw StoreError(file.string() + ": the attribute '" + name + "' does not hold a text.");
  }
  const Hdf5Handle type = text_type(file);
  char* value = nullptr;
  check_hdf5(H5Aread(attribute, type, &value), file, "read an attribute");
  const std::string text = value != nullptr ? value : "";
  check_hdf5(H5Dvlen_reclaim(type, space, H5P_DEFAULT, &value), file, "free a text");
  return text;
}

std::vector<std::string> read_texts(hid_t parent, const char* name,
                                    const std::filesystem::path& file) {
  const Hdf5Handle dataset(H5Dopen2(parent, name, H5P_DEFAULT), H5Dclose, file,
                           "open a text dataset");
  const Hdf5Handle space(H5Dget_space(dataset), H5Sclose, file, "read a text's shape");
  const Hdf5Handle stored(H5Dget_type(dataset), H5Tclose, file, "read a text's type");
  const hssize_t count = H5Sget_simple_extent_npoints(space);
  if (count < 0 || H5Tis_variable_str(stored) <= 0) {
    throw StoreError(file.string() + ": the dataset '" + name + "' does not hold texts.");
  }
  const Hdf5Handle type = text_type(file);
  std::vector<char*> values(static_cast<size_t>(count), nullptr);
  check_hdf5(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), file,
             "read a text");
  std::vector<std::string> texts;
  for (const char* value : values) texts.emplace_back(value != nullptr ? value : "");
  check_hdf5(H5Dvlen_reclaim(type, space, H5P_DEFAULT, values.data()), file, "free a text");
  return texts;
}

}  // namespace zerolab
