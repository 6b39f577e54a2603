#include "store/metrics_contents.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "zerolab/error.h"

#include "store/hdf5_image.h"
#include "store/hdf5_values.h"

namespace zerolab {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFormat = "zerolab-metrics";
constexpr int64_t kFormatVersion = 1;
constexpr hsize_t kChunkRows = 64;

// ---- reading

struct SummaryReader {
  const fs::path& file;
  RunSummary summary;
};

/// H5Aiterate's callback. Exceptions may not pass through C: -1 stops the iteration, and the caller
/// throws.
herr_t read_summary_attribute(hid_t group, const char* name, const H5A_info_t*, void* into) {
  auto& reader = *static_cast<SummaryReader*>(into);
  try {
    const Hdf5Handle attribute(H5Aopen(group, name, H5P_DEFAULT), H5Aclose, reader.file,
                               "open the summary");
    const Hdf5Handle type(H5Aget_type(attribute), H5Tclose, reader.file, "read the summary");
    if (H5Tget_class(type) == H5T_FLOAT) {
      double number = 0;
      check_hdf5(H5Aread(attribute, H5T_NATIVE_DOUBLE, &number), reader.file, "read the summary");
      reader.summary.numbers.emplace_back(name, number);
    } else {
      reader.summary.texts.emplace_back(name, read_text_attribute(group, name, reader.file));
    }
  } catch (const StoreError&) {
    return -1;
  }
  return 0;
}

MetricsSegment read_segment(hid_t id, const std::string& name, const fs::path& file) {
  MetricsSegment segment;
  segment.columns = read_texts(id, (name + "/columns").c_str(), file);
  const Hdf5Handle dataset(H5Dopen2(id, (name + "/rows").c_str(), H5P_DEFAULT), H5Dclose, file,
                           "open the rows");
  const Hdf5Handle space(H5Dget_space(dataset), H5Sclose, file, "read the rows' shape");
  hsize_t extent[2] = {0, 0};
  if (H5Sget_simple_extent_ndims(space) != 2 ||
      H5Sget_simple_extent_dims(space, extent, nullptr) < 0 ||
      extent[1] != segment.columns.size() || extent[1] == 0) {
    throw StoreError(file.string() + ": the table " + name + "/rows does not fit its columns.");
  }
  std::vector<double> values(extent[0] * extent[1]);
  check_hdf5(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
             file, "read the rows");
  for (auto row = values.begin(); row != values.end(); row += static_cast<ptrdiff_t>(extent[1])) {
    // Room that is not used yet.
    if (!std::isnan(*row)) segment.rows.emplace_back(row, row + static_cast<ptrdiff_t>(extent[1]));
  }
  return segment;
}

void check_format(hid_t id, const fs::path& file) {
  if (H5Aexists(id, "format") <= 0 || H5Aexists(id, "format_version") <= 0 ||
      read_text_attribute(id, "format", file) != kFormat) {
    throw StoreError(file.string() + ": is an HDF5 file, but not one of zerolab's metrics.");
  }
  const Hdf5Handle attribute(H5Aopen(id, "format_version", H5P_DEFAULT), H5Aclose, file,
                             "open the format version");
  int64_t version = 0;
  check_hdf5(H5Aread(attribute, H5T_NATIVE_INT64, &version), file, "read the format version");
  if (version < 1 || version > kFormatVersion) {
    throw StoreError(file.string() + ": has format version " + std::to_string(version) +
                     ", and this zerolab reads 1 to " + std::to_string(kFormatVersion) +
                     "; read it with the zerolab that wrote it, or a newer one.");
  }
}

// ---- writing

void write_rows(hid_t group, const MetricsSegment& segment, size_t spare_rows,
                const fs::path& file) {
  const hsize_t num_columns = segment.columns.size(), num_rows = segment.rows.size();
  const hsize_t extent[2] = {num_rows + spare_rows, num_columns};
  const hsize_t limit[2] = {H5S_UNLIMITED, num_columns}, chunk[2] = {kChunkRows, num_columns};
  const double fill = std::numeric_limits<double>::quiet_NaN();
  const Hdf5Handle space(H5Screate_simple(2, extent, limit), H5Sclose, file, "shape the rows");
  const Hdf5Handle layout(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, file, "lay out the rows");
  check_hdf5(H5Pset_chunk(layout, 2, chunk), file, "lay out the rows");
  check_hdf5(H5Pset_fill_value(layout, H5T_NATIVE_DOUBLE, &fill), file, "lay out the rows");
  check_hdf5(H5Pset_alloc_time(layout, H5D_ALLOC_TIME_EARLY), file, "lay out the rows");
  check_hdf5(H5Pset_obj_track_times(layout, false), file, "lay out the rows");
  Hdf5Handle dataset(
      H5Dcreate2(group, "rows", H5T_IEEE_F64LE, space, H5P_DEFAULT, layout, H5P_DEFAULT), H5Dclose,
      file, "make room for the rows");
  if (num_rows > 0) {
    std::vector<double> values;
    values.reserve(num_rows * num_columns);
    for (const MetricsRow& row : segment.rows) values.insert(values.end(), row.begin(), row.end());
    const hsize_t start[2] = {0, 0}, count[2] = {num_rows, num_columns};
    const Hdf5Handle memory(H5Screate_simple(2, count, nullptr), H5Sclose, file, "shape the rows");
    check_hdf5(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, count, nullptr), file,
               "shape the rows");
    check_hdf5(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, values.data()),
               file, "write the rows");
  }
  dataset.close(file, "write the rows");
}

Hdf5Handle make_group(hid_t parent, const std::string& name, const fs::path& file) {
  return Hdf5Handle(H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                    H5Gclose, file, "make a group");
}

void write_all_contents(hid_t id, const MetricsContents& contents, size_t spare_rows,
                        const fs::path& file) {
  write_attribute(id, "format", std::string(kFormat), file);
  write_attribute(id, "format_version", kFormatVersion, file);
  write_text(id, "config", contents.config, file);
  write_text(id, "environment", contents.environment, file);
  make_group(id, "segments", file).close(file, "close a group");
  for (size_t i = 0; i < contents.segments.size(); ++i) {
    Hdf5Handle group = make_group(id, segment_name(i), file);
    write_texts(group, "columns", contents.segments[i].columns, file);
    write_rows(group, contents.segments[i], i + 1 == contents.segments.size() ? spare_rows : 0,
               file);
    group.close(file, "close a group");
  }
  if (contents.summary) {
    Hdf5Handle group = make_group(id, "summary", file);
    for (const auto& [name, number] : contents.summary->numbers) {
      write_attribute(group, name, number, file);
    }
    for (const auto& [name, text] : contents.summary->texts)
      write_attribute(group, name, text, file);
    group.close(file, "close a group");
  }
}

}  // namespace

std::string segment_name(size_t index) {
  return "segments/" + std::to_string(index);
}

std::vector<double> MetricsSegment::column(const std::string& name) const {
  const auto found = std::find(columns.begin(), columns.end(), name);
  if (found == columns.end()) throw StoreError("the metrics have no column '" + name + "'.");
  const auto index = static_cast<size_t>(found - columns.begin());
  std::vector<double> values;
  for (const MetricsRow& row : rows) values.push_back(row[index]);
  return values;
}

MetricsContents read_metrics(const fs::path& file) {
  silence_hdf5();
  const Hdf5Handle access = file_access(file);
  const Hdf5Handle id(H5Fopen(file.c_str(), H5F_ACC_RDONLY, access), H5Fclose, file,
                      "open the file");
  check_format(id, file);

  MetricsContents contents;
  contents.config = read_texts(id, "config", file).at(0);
  contents.environment = read_texts(id, "environment", file).at(0);
  for (size_t i = 0; i == 0 || H5Lexists(id, segment_name(i).c_str(), H5P_DEFAULT) > 0; ++i) {
    contents.segments.push_back(read_segment(id, segment_name(i), file));
  }
  if (H5Lexists(id, "summary", H5P_DEFAULT) > 0) {
    SummaryReader reader{file, {}};
    check_hdf5(H5Aiterate_by_name(id, "summary", H5_INDEX_NAME, H5_ITER_INC, nullptr,
                                  read_summary_attribute, &reader, H5P_DEFAULT),
               file, "read the summary");
    contents.summary = std::move(reader.summary);
  }
  return contents;
}

void write_metrics(FileLayer& files, const fs::path& file, const MetricsContents& contents,
                   size_t spare_rows) {
  silence_hdf5();
  const auto fill = [&](hid_t id) { write_all_contents(id, contents, spare_rows, file); };
  write_file(files, file, build_hdf5_image(file, fill));
}

}  // namespace zerolab
