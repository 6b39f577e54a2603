#pragma once
// What another program computed, recorded in a small HDF5 file beside this one: README.md says how.
//
// A path is "group/dataset". Numbers come back in the dtype they were recorded in: float32,
// float64, int64, int32 or bool (uint8).
// Ranks: local.
// Errors: zerolab::StoreError that names the file and the path.

#include <filesystem>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/options.h"

#include "store/hdf5_handle.h"

class GoldenFile {
 public:
  /// Opens tests/golden/PART.h5.
  explicit GoldenFile(const std::string& part);

  /// A dataset of numbers, in its own shape.
  at::Tensor tensor(const std::string& path) const;
  /// The same as a list of doubles, which hold whole numbers up to 2^53.
  std::vector<double> numbers(const std::string& path) const;
  /// What a group holds, in the order of names. "" is the root.
  std::vector<std::string> names(const std::string& group) const;

  /// Attributes of a group or dataset.
  std::string text(const std::string& path, const std::string& name) const;
  double number(const std::string& path, const std::string& name) const;
  /// All attributes of a group, as a plugin's options: bool, whole numbers, floats, texts, and
  /// lists of floats.
  zerolab::OptionValues options(const std::string& group) const;

 private:
  zerolab::Hdf5Handle open(const std::string& path) const;
  zerolab::Hdf5Handle dataset(const std::string& path) const;
  zerolab::OptionValue option(const zerolab::Hdf5Handle& object, const std::string& name) const;

  std::filesystem::path file_;
  zerolab::Hdf5Handle handle_;
};
