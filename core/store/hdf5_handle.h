#pragma once
// HDF5 identifiers that close themselves, and return codes that become errors.
//
// Errors: StoreError "FILE: cannot ACTION: REASON"; HDF5's own printing is switched off and its
// innermost reason is quoted.
// Owns: a handle owns its identifier.

#include <filesystem>
#include <string>

#include <hdf5.h>

#ifndef H5_HAVE_THREADSAFE
#error "HDF5 has to be built thread-safe: checkpoints are written while metrics are"
#endif

namespace zerolab {

/// Switches HDF5's printing off for this thread; call before anything else of HDF5.
void silence_hdf5();

/// Throws for a negative code. `action` completes "cannot ...".
void check_hdf5(herr_t code, const std::filesystem::path& file, const char* action);

class Hdf5Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Hdf5Handle() = default;
  /// Takes over `id`, which is the result of `action` on `file`; throws if it is negative.
  Hdf5Handle(hid_t id, Close close, const std::filesystem::path& file, const char* action);
  Hdf5Handle(Hdf5Handle&& other) noexcept;
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept;
  ~Hdf5Handle();

  operator hid_t() const { return id_; }
  bool valid() const { return id_ >= 0; }
  /// Closes with the code checked: writes that HDF5 put off fail here.
  void close(const std::filesystem::path& file, const char* action);

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

/// How files are opened: formats that HDF5 1.8 tools read, and no lock, so that a run can be read
/// while it is written (and written on file systems without locks).
Hdf5Handle file_access(const std::filesystem::path& file);

}  // namespace zerolab
