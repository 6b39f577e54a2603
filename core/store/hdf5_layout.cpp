#include "store/hdf5_layout.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>
#endif

namespace zerolab {

namespace {

constexpr int64_t kPageBytes = 64 << 10;
constexpr hsize_t kMetadataBlockBytes = 16
                                        << 10;  // HDF5's structures stand together in such blocks

/// Calls f(page number, offset in it, bytes done so far, bytes) for each page of a range.
template <typename F>
void for_pages(int64_t begin, size_t size, const F& f) {
  for (size_t done = 0; done < size;) {
    const int64_t at = begin + static_cast<int64_t>(done), offset = at % kPageBytes;
    const size_t count = std::min(size - done, static_cast<size_t>(kPageBytes - offset));
    f(at / kPageBytes, offset, done, count);
    done += count;
  }
}

// --- the driver ------------------------------------------------------------------------------

struct Driver {
  H5FD_t base;  // HDF5's own part comes first
  Hdf5Layout* layout;
  haddr_t allocated, written;
};

Driver& of(H5FD_t* file) {
  return *reinterpret_cast<Driver*>(file);
}
const Driver& of(const H5FD_t* file) {
  return *reinterpret_cast<const Driver*>(file);
}

H5FD_t* open_layout(const char*, unsigned, hid_t access, haddr_t) {
  const void* info = H5Pget_driver_info(access);
  auto* driver = info != nullptr ? new (std::nothrow) Driver{} : nullptr;
  if (driver == nullptr) return nullptr;
  driver->layout = *static_cast<Hdf5Layout* const*>(info);
  return &driver->base;
}
herr_t close_layout(H5FD_t* file) {
  of(file).layout->set_end(static_cast<int64_t>(std::max(of(file).allocated, of(file).written)));
  delete &of(file);
  return 0;
}
herr_t query(const H5FD_t*, unsigned long* flags) {
  if (flags != nullptr) *flags = H5FD_FEAT_AGGREGATE_METADATA;
  return 0;
}
haddr_t allocated(const H5FD_t* file, H5FD_mem_t) {
  return of(file).allocated;
}
herr_t set_allocated(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  of(file).allocated = end;
  return 0;
}
haddr_t written(const H5FD_t* file, H5FD_mem_t) {
  return of(file).written;
}
herr_t read(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t begin, size_t size, void* out) {
  of(file).layout->read(static_cast<int64_t>(begin), out, size);
  return 0;
}
herr_t write(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t begin, size_t size, const void* data) {
  of(file).layout->write(static_cast<int64_t>(begin), data, size);
  of(file).written = std::max(of(file).written, begin + size);
  return 0;
}
herr_t truncate(H5FD_t* file, hid_t, hbool_t) {
  of(file).written = of(file).allocated;
  return 0;
}

hid_t register_driver() {
  H5FD_class_t driver{};
#ifdef H5FD_CLASS_VERSION
  driver.version = H5FD_CLASS_VERSION;
  driver.value = static_cast<H5FD_class_value_t>(400);  // of those for drivers of one program
#endif
  driver.name = "zerolab_layout";
  driver.maxaddr = static_cast<haddr_t>(std::numeric_limits<int64_t>::max());
  driver.fc_degree = H5F_CLOSE_WEAK;
  driver.fapl_size = sizeof(Hdf5Layout*);
  driver.open = open_layout;
  driver.close = close_layout;
  driver.query = query;
  driver.get_eoa = allocated;
  driver.set_eoa = set_allocated;
  driver.get_eof = written;
  driver.read = read;
  driver.write = write;
  driver.truncate = truncate;
  for (H5FD_mem_t& kind : driver.fl_map) kind = H5FD_MEM_SUPER;
  driver.fl_map[H5FD_MEM_DRAW] = H5FD_MEM_DRAW;
  return H5FDregister(&driver);
}

}  // namespace

void Hdf5Layout::expect_block(const void* block, int64_t size) {
  block_ = block;
  block_bytes_ = size;
  block_place_ = -1;
}

void Hdf5Layout::read(int64_t begin, void* out, size_t size) const {
  for_pages(begin, size, [&](int64_t page, int64_t offset, size_t done, size_t count) {
    char* const to = static_cast<char*>(out) + done;
    const auto found = pages_.find(page);
    if (found == pages_.end()) {
      std::memset(to, 0, count);
    } else {
      std::memcpy(to, found->second.data() + offset, count);
    }
  });
}

void Hdf5Layout::copy(int64_t begin, const char* data, size_t size) {
  for_pages(begin, size, [&](int64_t page, int64_t offset, size_t done, size_t count) {
    std::vector<char>& bytes = pages_[page];
    bytes.resize(kPageBytes);
    std::memcpy(bytes.data() + offset, data + done, count);
  });
}

void Hdf5Layout::write(int64_t begin, const void* data, size_t size) noexcept {
  if (data == block_ && static_cast<int64_t>(size) == block_bytes_ && block_place_ < 0) {
    block_place_ = begin;
    return;
  }
  try {
    copy(begin, static_cast<const char*>(data), size);
  } catch (const std::bad_alloc&) {
    out_of_memory_ = true;  // HDF5 is told that all went well: it may crash after a failed write
  }
}

Hdf5Handle create_hdf5_layout(const std::filesystem::path& file, Hdf5Layout& layout) {
  constexpr const char* kAction = "lay the file out";
  static const hid_t driver = register_driver();
  Hdf5Layout* const info = &layout;
  const Hdf5Handle access = file_access(file);
  check_hdf5(H5Pset_driver(access, driver, &info), file, kAction);
  check_hdf5(H5Pset_meta_block_size(access, kMetadataBlockBytes), file, kAction);
  const Hdf5Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose, file, kAction);
  check_hdf5(H5Pset_obj_track_times(creation, false), file, kAction);
  return Hdf5Handle(H5Fcreate(file.c_str(), H5F_ACC_TRUNC, creation, access), H5Fclose, file,
                    kAction);
}

}  // namespace zerolab
