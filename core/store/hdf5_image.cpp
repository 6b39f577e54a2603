#include "store/hdf5_image.h"

#include <cstdlib>
#include <new>
#include <utility>

#include "store/hdf5_handle.h"

namespace zerolab {

namespace {

constexpr size_t kIncrement = 4096;  // bytes

/// Takes over the buffer that HDF5 would free when it closes the file. (H5Fget_file_image of
/// HDF5 1.10 clears a flag in the header without renewing the header's checksum.)
struct ClosingImage {
  size_t allocated = 0;
  std::string bytes;
};

void* allocate(size_t size, H5FD_file_image_op_t, void* image) {
  static_cast<ClosingImage*>(image)->allocated = size;
  return std::malloc(size);
}

void* reallocate(void* buffer, size_t size, H5FD_file_image_op_t, void* image) {
  void* moved = std::realloc(buffer, size);
  if (moved != nullptr) static_cast<ClosingImage*>(image)->allocated = size;
  return moved;
}

herr_t release(void* buffer, H5FD_file_image_op_t operation, void* into) {
  auto& image = *static_cast<ClosingImage*>(into);
  herr_t result = 0;
  try {
    if (operation == H5FD_FILE_IMAGE_OP_FILE_CLOSE) {
      image.bytes.assign(static_cast<const char*>(buffer), image.allocated);
    }
  } catch (const std::bad_alloc&) {
    result = -1;
  }
  std::free(buffer);
  return result;
}

void* share(void* image) {
  return image;
}
herr_t keep(void*) {
  return 0;
}

}  // namespace

std::string build_hdf5_image(const std::filesystem::path& file,
                             const std::function<void(hid_t)>& fill) {
  constexpr const char* kAction = "build the file in memory";
  ClosingImage image;
  const Hdf5Handle access = file_access(file);
  H5FD_file_image_callbacks_t callbacks{};
  callbacks.image_malloc = allocate;
  callbacks.image_realloc = reallocate;
  callbacks.image_free = release;
  callbacks.udata_copy = share;
  callbacks.udata_free = keep;
  callbacks.udata = &image;
  check_hdf5(H5Pset_fapl_core(access, kIncrement, false), file, kAction);
  check_hdf5(H5Pset_file_image_callbacks(access, &callbacks), file, kAction);
  // No file of this name is made or looked for.
  Hdf5Handle id(H5Fcreate(file.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose, file,
                kAction);
  fill(id);
  check_hdf5(H5Fflush(id, H5F_SCOPE_LOCAL), file, kAction);
  id.close(file, kAction);
  return std::move(image.bytes);
}

}  // namespace zerolab
