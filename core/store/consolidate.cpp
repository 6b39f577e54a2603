#include "store/consolidate.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "zerolab/error.h"

#include "store/checkpoint_layout.h"
#include "store/safetensors.h"

namespace zerolab {

namespace {

namespace fs = std::filesystem;

int64_t bytes_of(const PieceInfo& tensor) {
  return tensor.length * dtype_size(tensor.dtype);
}

/// Addresses without memory behind them: they stand for values that are read when their turn comes.
class Addresses {
 public:
  explicit Addresses(int64_t count) : count_(static_cast<size_t>(std::max<int64_t>(count, 1))) {
    void* const begin =
        ::mmap(nullptr, count_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) {
      throw StoreError("the checkpoint's " + std::to_string(count) +
                       " bytes do not fit this process's addresses: " + errno_text(errno) +
                       "; raise its limit of virtual memory (ulimit -v).");
    }
    begin_ = static_cast<const char*>(begin);
  }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  ~Addresses() { ::munmap(const_cast<char*>(begin_), count_); }

  const char* at(int64_t number) const { return begin_ + number; }
  int64_t number(const char* address) const { return address - begin_; }

 private:
  const size_t count_;
  const char* begin_ = nullptr;
};

class Consolidation {
 public:
  Consolidation(const CheckpointReader& checkpoint, const ConsolidateRequest& request,
                const ByteProgress& progress, FileLayer& files)
      : checkpoint_(checkpoint), progress_(progress), files_(files) {
    const bool states = request.states || request.format == WholeFormat::kHdf5;
    for (const PieceInfo& tensor : checkpoint.tensors()) {
      if (!states && tensor.state != kParameterState) continue;
      begins_.push_back(total_);
      tensors_.push_back(&tensor);
      total_ += bytes_of(tensor);
    }
  }

  ConsolidatedFile write(const fs::path& path, WholeFormat format) {
    const int64_t bytes = format == WholeFormat::kHdf5 ? write_hdf5(path) : write_safe(path);
    return {static_cast<int64_t>(tensors_.size()), bytes};
  }

 private:
  void read(const PieceInfo& tensor, int64_t first, int64_t count, void* out) {
    checkpoint_.read(tensor, first, count, out);
    done_ += count * dtype_size(tensor.dtype);
    if (progress_) progress_(done_, total_);
  }

  int64_t write_hdf5(const fs::path& path) {
    const Addresses addresses(total_);
    std::vector<PieceData> pieces;
    for (size_t i = 0; i < tensors_.size(); ++i)
      pieces.push_back({*tensors_[i], addresses.at(begins_[i])});
    const FileLabel label{checkpoint_.manifest().point.step, 0, 1};
    std::vector<char> block;
    const auto values = [&](const LaidChunk& chunk) {
      const int64_t at = addresses.number(chunk.values);
      const auto after = std::upper_bound(begins_.begin(), begins_.end(), at);
      const auto i = static_cast<size_t>(after - begins_.begin() - 1);
      const int64_t each = dtype_size(tensors_[i]->dtype);
      block.resize(static_cast<size_t>(chunk.values_bytes));
      read(*tensors_[i], (at - begins_[i]) / each, chunk.values_bytes / each, block.data());
      return static_cast<const char*>(block.data());
    };
    return write_laid_out(files_, path, lay_out_checkpoint(path, label, pieces, {}), values).bytes;
  }

  int64_t write_safe(const fs::path& path) {
    std::map<std::string, const PieceInfo*> sources;
    std::vector<SafeTensor> list;
    for (const PieceInfo* tensor : tensors_) {
      const bool own = tensor->state == kParameterState;
      const std::string name = own ? tensor->parameter : tensor->parameter + "." + tensor->state;
      sources[name] = tensor;
      list.push_back({name, tensor->dtype, tensor->shape, 0, 0});
    }
    return write_safetensors(files_, path, std::move(list), metadata(),
                             [&](const SafeTensor& tensor, int64_t first, int64_t count,
                                 void* out) { read(*sources.at(tensor.name), first, count, out); });
  }

  std::map<std::string, std::string> metadata() const {
    const CheckpointManifest& manifest = checkpoint_.manifest();
    std::set<std::string> states;
    for (const PieceInfo* tensor : tensors_)
      if (tensor->state != kParameterState) states.insert(tensor->state);
    std::string list;
    for (const std::string& state : states) list += (list.empty() ? "" : ",") + state;
    std::map<std::string, std::string> metadata = {
        {"format", "pt"},  // what Python's loaders for PyTorch ask for
        {"step", std::to_string(manifest.point.step)},
        {"run", manifest.run.name},
        {kStatesKey, list}};
    for (const auto& [kind, plugin] : manifest.plugins)
      metadata[kind] = plugin.id + " " + plugin.version;
    return metadata;
  }

  const CheckpointReader& checkpoint_;
  const ByteProgress& progress_;
  FileLayer& files_;
  std::vector<const PieceInfo*> tensors_;
  std::vector<int64_t> begins_;  // of each: the bytes of those before it
  int64_t total_ = 0, done_ = 0;
};

}  // namespace

ConsolidatedFile consolidate(const CheckpointReader& checkpoint, const ConsolidateRequest& request,
                             const ByteProgress& progress, FileLayer& files) {
  const fs::path path = fs::absolute(request.file);
  if (!request.overwrite && file_exists(path)) {
    throw StoreError(path.string() +
                     ": is there already; choose another name, or allow to overwrite it.");
  }
  fs::path partial = path;
  partial += ".partial";
  ::unlink(partial.c_str());  // of a process that was killed here
  const ConsolidatedFile written =
      Consolidation(checkpoint, request, progress, files).write(partial, request.format);
  move_into_place(files, partial, path);
  return written;
}

}  // namespace zerolab
