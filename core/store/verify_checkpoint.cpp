#include "store/verify_checkpoint.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <optional>

#include "zerolab/error.h"

#include "store/checkpoint_reader.h"
#include "store/element_values.h"

namespace zerolab {

namespace {

using Progress = std::function<void(int64_t, int64_t)>;

/// Tasks 0 ... n - 1 on several threads, and what each found.
class Tasks {
 public:
  Tasks(int threads, int64_t total, const Progress& progress)
      : threads_(std::max(threads, 1)), total_(total), progress_(progress) {}

  std::vector<std::string> run(size_t count, const std::function<std::string(size_t)>& task) {
    std::vector<std::string> found(count);
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t i = next++; i < count; i = next++) found[i] = task(i);
    };
    std::vector<std::future<void>> others;
    const size_t most = std::min(static_cast<size_t>(threads_), count);
    for (size_t t = 1; t < most; ++t) others.push_back(std::async(std::launch::async, work));
    work();
    for (std::future<void>& other : others) other.get();
    return found;
  }

  void done(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    if (progress_) progress_(done_, total_);
  }

 private:
  const int threads_;
  const int64_t total_;
  const Progress& progress_;
  std::mutex mutex_;
  int64_t done_ = 0;
};

/// Empty if all elements are finite.
std::string not_finite(const CheckpointReader& reader, const PieceInfo& tensor, Tasks& tasks) {
  const int64_t each = dtype_size(tensor.dtype);
  std::vector<char> block;
  for (int64_t first = 0; first < tensor.length; first += kChunkBytes / each) {
    const int64_t count = std::min(tensor.length - first, kChunkBytes / each);
    block.resize(static_cast<size_t>(count * each));
    reader.read(tensor, first, count, block.data());
    tasks.done(count * each);
    const int64_t found = first_not_finite(tensor.dtype, block.data(), count);
    if (found >= 0) {
      return "tensor " + tensor_name(tensor) + " is not finite: its element " +
             std::to_string(first + found) + " is infinite or no number.";
    }
  }
  return "";
}

void keep(std::vector<std::string> found, std::vector<std::string>& damage) {
  for (std::string& sentence : found)
    if (!sentence.empty()) damage.push_back(std::move(sentence));
}

/// The files by themselves: for a checkpoint whose tensors cannot be put together.
std::string damage_of_file(const std::filesystem::path& checkpoint,
                           const CheckpointManifest& manifest, size_t file) try {
  if (file < manifest.files.size()) return find_damage(checkpoint, manifest.files[file]);
  read_saved_text(checkpoint, manifest.texts.at(file - manifest.files.size()));
  return "";
} catch (const StoreError& error) {
  return error.what();
}

}  // namespace

CheckpointVerdict verify_checkpoint(const std::filesystem::path& checkpoint, int threads,
                                    const Progress& progress) {
  CheckpointVerdict verdict;
  CheckpointManifest manifest;
  try {
    manifest = read_checkpoint_manifest(checkpoint);
  } catch (const StoreError& error) {
    verdict.damage.push_back(error.what());
    return verdict;
  }
  verdict.step = manifest.point.step;
  verdict.files = manifest.files.size() + manifest.texts.size();
  verdict.bytes = checkpoint_bytes(manifest);

  std::optional<CheckpointReader> reader;
  std::string not_whole;
  int64_t tensor_bytes = 0;
  try {
    reader.emplace(checkpoint);
    verdict.tensors = reader->tensors().size();
    for (const PieceInfo& tensor : reader->tensors())
      tensor_bytes += tensor.length * dtype_size(tensor.dtype);
  } catch (const StoreError& error) {
    not_whole = error.what();
  }

  Tasks tasks(threads, verdict.bytes + tensor_bytes, progress);
  tasks.done(0);  // so that something is seen while the first file is read
  keep(tasks.run(verdict.files,
                 [&](size_t file) {
                   std::string damage = damage_of_file(checkpoint, manifest, file);
                   const size_t texts = manifest.files.size();
                   tasks.done(file < texts ? manifest.files[file].bytes
                                           : manifest.texts[file - texts].bytes);
                   return damage;
                 }),
       verdict.damage);
  if (!not_whole.empty()) verdict.damage.push_back(not_whole);
  if (!verdict.whole()) return verdict;
  keep(tasks.run(verdict.tensors,
                 [&](size_t i) -> std::string {
                   try {
                     return not_finite(*reader, reader->tensors()[i], tasks);
                   } catch (const StoreError& error) {
                     return error.what();
                   }
                 }),
       verdict.damage);
  return verdict;
}

}  // namespace zerolab
