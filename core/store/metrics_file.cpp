#include "store/metrics_file.h"

#include <utility>

namespace zerolab {

namespace {

constexpr hsize_t kFirstCapacity = 1024;  // rows

}  // namespace

MetricsFile::MetricsFile(FileLayer& files, std::filesystem::path path,
                         const MetricsContents& contents)
    : files_(files),
      path_(std::move(path)),
      num_columns_(contents.segments.back().columns.size()),
      num_rows_(contents.segments.back().rows.size()),
      capacity_(num_rows_ + kFirstCapacity) {
  write_metrics(files_, path_, contents, kFirstCapacity);
  open();
}

void MetricsFile::open() {
  const Hdf5Handle access = file_access(path_);
  file_ =
      Hdf5Handle(H5Fopen(path_.c_str(), H5F_ACC_RDWR, access), H5Fclose, path_, "open the file");
  size_t segment = 0;
  while (H5Lexists(file_, segment_name(segment + 1).c_str(), H5P_DEFAULT) > 0) ++segment;
  // Without a chunk cache a cell goes to the disk as it is, not with the whole chunk around it.
  const Hdf5Handle uncached(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose, path_, "open the rows");
  check_hdf5(H5Pset_chunk_cache(uncached, 0, 0, 0), path_, "open the rows");
  rows_ = Hdf5Handle(H5Dopen2(file_, (segment_name(segment) + "/rows").c_str(), uncached), H5Dclose,
                     path_, "open the rows");
  row_space_ = Hdf5Handle(H5Dget_space(rows_), H5Sclose, path_, "open the rows");
  cell_space_ =
      Hdf5Handle(H5Screate_simple(1, &num_columns_, nullptr), H5Sclose, path_, "open the rows");
}

void MetricsFile::close() {
  cell_space_ = Hdf5Handle();
  row_space_ = Hdf5Handle();
  rows_.close(path_, "close the rows");
  file_.close(path_, "close the file");
}

void MetricsFile::write_cells(hsize_t first, hsize_t count, const double* values) {
  const hsize_t start[2] = {num_rows_, first}, shape[2] = {1, count}, origin = 0;
  check_hdf5(H5Sselect_hyperslab(row_space_, H5S_SELECT_SET, start, nullptr, shape, nullptr), path_,
             "choose a row");
  check_hdf5(H5Sselect_hyperslab(cell_space_, H5S_SELECT_SET, &origin, nullptr, &count, nullptr),
             path_, "choose a row");
  check_hdf5(H5Dwrite(rows_, H5T_NATIVE_DOUBLE, cell_space_, row_space_, H5P_DEFAULT, values),
             path_, "write a row");
}

void MetricsFile::append(const MetricsRow& row) {
  silence_hdf5();
  if (num_rows_ == capacity_) grow();
  if (num_columns_ > 1) write_cells(1, num_columns_ - 1, row.data() + 1);
  write_cells(0, 1, row.data());
  check_hdf5(H5Fflush(file_, H5F_SCOPE_LOCAL), path_, "write a row");
  ++num_rows_;
}

void MetricsFile::grow() {
  close();
  write_metrics(files_, path_, read_metrics(path_), num_rows_);
  capacity_ = 2 * num_rows_;
  open();
}

void MetricsFile::finish(const std::optional<RunSummary>& summary) {
  silence_hdf5();
  close();
  MetricsContents contents = read_metrics(path_);
  contents.summary = summary;
  write_metrics(files_, path_, contents, 0);
}

}  // namespace zerolab
