#pragma once
// Texts and numbers in HDF5 files. Texts are variable-length UTF-8 strings, which h5py gives
// back as str; long ones and lists are datasets, because an attribute holds 64 KiB at most.
//
// Errors: StoreError that names the file; StoreError as well when what is read has another type
// or shape.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "store/hdf5_handle.h"

namespace zerolab {

void write_text(hid_t parent, const char* name, const std::string& text,
                const std::filesystem::path& file);
void write_texts(hid_t parent, const char* name, const std::vector<std::string>& texts,
                 const std::filesystem::path& file);
void write_attribute(hid_t object, const std::string& name, const std::string& text,
                     const std::filesystem::path& file);
void write_attribute(hid_t object, const std::string& name, double number,
                     const std::filesystem::path& file);
void write_attribute(hid_t object, const std::string& name, int64_t number,
                     const std::filesystem::path& file);

std::string read_text_attribute(hid_t object, const char* name, const std::filesystem::path& file);
/// A scalar or a list; a scalar gives one text.
std::vector<std::string> read_texts(hid_t parent, const char* name,
                                    const std::filesystem::path& file);

}  // namespace zerolab
