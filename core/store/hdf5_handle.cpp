#include "store/hdf5_handle.h"

#include <string_view>
#include <utility>

#include "zerolab/error.h"

namespace zerolab {

namespace {

/// Told of the innermost error first; keeps that one.
herr_t keep_first(unsigned index, const H5E_error2_t* error, void* text) {
  if (index == 0 && error->desc != nullptr) *static_cast<std::string*>(text) = error->desc;
  return 0;
}

/// HDF5 describes a failed system call at length; the system's own words stand behind "error
/// message".
std::string take_reason() {
  std::string text = "unknown HDF5 error";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
  H5Eclear2(H5E_DEFAULT);
  constexpr std::string_view kMark = "error message = '";
  const size_t begin = text.find(kMark);
  if (begin == std::string::npos) return text;
  const size_t end = text.find('\'', begin + kMark.size());
  return text.substr(begin + kMark.size(), end - begin - kMark.size());
}

[[noreturn]] void fail(const std::filesystem::path& file, const char* action) {
  throw StoreError(file.string() + ": cannot " + action + ": " + take_reason() + ".");
}

}  // namespace

void silence_hdf5() {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

void check_hdf5(herr_t code, const std::filesystem::path& file, const char* action) {
  if (code < 0) fail(file, action);
}

Hdf5Handle::Hdf5Handle(hid_t id, Close close, const std::filesystem::path& file, const char* action)
    : id_(id), close_(close) {
  if (id < 0) fail(file, action);
}

Hdf5Handle::Hdf5Handle(Hdf5Handle&& other) noexcept
    : id_(std::exchange(other.id_, -1)), close_(other.close_) {}

Hdf5Handle& Hdf5Handle::operator=(Hdf5Handle&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(close_, other.close_);
  return *this;
}

Hdf5Handle::~Hdf5Handle() {
  if (id_ >= 0) close_(id_);
}

void Hdf5Handle::close(const std::filesystem::path& file, const char* action) {
  if (id_ >= 0) check_hdf5(close_(std::exchange(id_, -1)), file, action);
}

Hdf5Handle file_access(const std::filesystem::path& file) {
  Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, file, "prepare its access");
  check_hdf5(H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V110), file,
             "choose its format");
  check_hdf5(H5Pset_file_locking(access, false, true), file, "switch its lock off");
  return access;
}

}  // namespace zerolab
