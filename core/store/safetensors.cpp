#include "store/safetensors.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <set>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "zerolab/error.h"

#include "store/file_layer.h"
#include "store/input_file.h"
#include "store/json_text.h"

namespace zerolab {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kMetadata = "__metadata__";
constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMostHeaderBytes = 100'000'000;  // what other readers accept

/// By TensorDtype.
constexpr std::array<std::string_view, 7> kDtypeWords = {"F32", "F64", "F16", "BF16",
                                                         "I64", "I32", "U8"};

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw StoreError(path.string() + ": " + what + ".");
}

/// Bytes of a tensor's values; -1 if its shape is impossible.
int64_t bytes_of(const SafeTensor& tensor) {
  int64_t bytes = dtype_size(tensor.dtype);
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) bytes = 0;
  for (const int64_t size : tensor.shape)
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return -1;
  return bytes;
}

/// Those of the largest elements come first, so each begins at a multiple of its element's size.
void place(std::vector<SafeTensor>& tensors, const fs::path& path) {
  std::sort(tensors.begin(), tensors.end(), [](const SafeTensor& a, const SafeTensor& b) {
    return std::make_pair(-dtype_size(a.dtype), std::string_view(a.name)) <
           std::make_pair(-dtype_size(b.dtype), std::string_view(b.name));
  });
  std::set<std::string_view> names = {kMetadata};
  int64_t at = 0;
  for (SafeTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second)
      fail(path, "cannot be written: two tensors would have the name '" + tensor.name + "'");
    tensor.begin = at;
    tensor.bytes = bytes_of(tensor);
    if (tensor.bytes < 0 || __builtin_add_overflow(at, tensor.bytes, &at))
      fail(path, "cannot be written: the shape of '" + tensor.name + "' is impossible");
  }
}

std::string header_text(const std::vector<SafeTensor>& tensors,
                        const std::map<std::string, std::string>& metadata, const fs::path& path) {
  std::string text = "{" + json_quoted(kMetadata) + ":{";
  for (const auto& [key, value] : metadata) {
    if (text.back() != '{') text += ',';
    text += json_quoted(key) + ":" + json_quoted(value);
  }
  text += '}';
  for (const SafeTensor& tensor : tensors) {
    text += "," + json_quoted(tensor.name) + R"(:{"dtype":")";
    text += kDtypeWords.at(static_cast<size_t>(tensor.dtype));
    text += R"(","shape":[)";
    for (size_t i = 0; i < tensor.shape.size(); ++i)
      text += (i > 0 ? "," : "") + std::to_string(tensor.shape[i]);
    text += "],\"data_offsets\":[" + std::to_string(tensor.begin) + "," +
            std::to_string(tensor.begin + tensor.bytes) + "]}";
  }
  text += '}';
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  if (static_cast<int64_t>(text.size()) > kMostHeaderBytes)
    fail(path, "cannot be written: its header would be larger than safetensors readers accept");
  std::string length;
  for (int i = 0; i < kLengthBytes; ++i)
    length += static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i));
  return length + text;
}

/// Everything that can fail once the file is there. Returns 0 or an errno.
int fill(FileLayer& files, int descriptor, const std::string& header,
         const std::vector<SafeTensor>& tensors, const ReadSafeTensor& read) {
  if (const int error = write_all(files, descriptor, header); error != 0) return error;
  std::vector<char> block;
  for (const SafeTensor& tensor : tensors) {
    const int64_t each = dtype_size(tensor.dtype), length = tensor.bytes / each;
    for (int64_t first = 0; first < length; first += kChunkBytes / each) {
      const int64_t count = std::min(length - first, kChunkBytes / each);
      block.resize(static_cast<size_t>(count * each));
      read(tensor, first, count, block.data());
      if (const int error = write_all(files, descriptor, {block.data(), block.size()}); error != 0)
        return error;
    }
  }
  return files.sync(descriptor) != 0 ? errno : 0;
}

SafeTensor tensor_of(const std::string& name, const Json& fields, const fs::path& path) try {
  SafeTensor tensor;
  tensor.name = name;
  const auto word = fields.at("dtype").get<std::string>();
  const auto found =
      std::find(kDtypeWords.begin(), kDtypeWords.end(), word == "BOOL" ? "U8" : word);
  if (found == kDtypeWords.end())
    fail(path, "tensor '" + name + "' is of the type " + word + ", which is not supported");
  tensor.dtype = static_cast<TensorDtype>(found - kDtypeWords.begin());
  tensor.shape = fields.at("shape").get<std::vector<int64_t>>();
  const auto [begin, end] = fields.at("data_offsets").get<std::pair<int64_t, int64_t>>();
  tensor.begin = begin;
  tensor.bytes = bytes_of(tensor);
  if (begin < 0 || tensor.bytes < 0 || end < begin || end - begin != tensor.bytes)
    fail(path, "tensor '" + name + "' has another size than its shape");
  return tensor;
} catch (const Json::exception&) {
  fail(path, "tensor '" + name + "' is not described as safetensors describe one");
}

std::map<std::string, std::string> metadata_of(const Json& header) {
  std::map<std::string, std::string> metadata;
  const auto found = header.find(kMetadata);
  if (found == header.end() || !found->is_object()) return metadata;
  for (const auto& [key, value] : found->items())
    if (value.is_string()) metadata[key] = value.get<std::string>();
  return metadata;
}

/// The header's text. Its length is believed only as far as the file reaches.
std::string read_header_text(const InputFile& file, const fs::path& path) {
  std::array<unsigned char, kLengthBytes> bytes{};
  uint64_t length = 0;
  if (file.read_at(0, bytes.data(), bytes.size()) == 0)
    for (size_t i = bytes.size(); i-- > 0;) length = length << 8 | bytes[i];
  if (length == 0 || length > static_cast<uint64_t>(kMostHeaderBytes) ||
      static_cast<int64_t>(length) > file.size() - kLengthBytes) {
    fail(path, "is no safetensors file, or is cut off");
  }
  std::string text(static_cast<size_t>(length), '\0');
  if (const int error = file.read_at(kLengthBytes, text.data(), text.size()); error != 0)
    fail(path, "cannot be read: " + errno_text(error));
  return text;
}

}  // namespace

int64_t write_safetensors(FileLayer& files, const fs::path& path, std::vector<SafeTensor> tensors,
                          const std::map<std::string, std::string>& metadata,
                          const ReadSafeTensor& read) {
  place(tensors, path);
  const std::string header = header_text(tensors, metadata, path);
  const int descriptor = files.create(path);
  if (descriptor < 0) fail(path, "cannot be made: " + errno_text(errno));
  int error = 0;
  try {
    error = fill(files, descriptor, header, tensors, read);
  } catch (...) {  // of `read`, or out of memory
    ::close(descriptor);
    ::unlink(path.c_str());
    throw;
  }
  if (::close(descriptor) != 0 && error == 0) error = errno;
  if (error != 0) {
    ::unlink(path.c_str());
    fail(path, "cannot be written: " + errno_text(error));
  }
  const int64_t values = tensors.empty() ? 0 : tensors.back().begin + tensors.back().bytes;
  return static_cast<int64_t>(header.size()) + values;
}

SafetensorsHeader read_safetensors_header(const fs::path& path) {
  const InputFile file(path);
  if (file.error() != 0) fail(path, "cannot be opened: " + errno_text(file.error()));
  const std::string text = read_header_text(file, path);
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) fail(path, "is no safetensors file: its header is no JSON object");
  SafetensorsHeader header;
  header.bytes = kLengthBytes + static_cast<int64_t>(text.size());
  header.metadata = metadata_of(json);
  for (const auto& [name, fields] : json.items()) {
    if (name == kMetadata) continue;
    header.tensors.push_back(tensor_of(name, fields, path));
    if (header.tensors.back().begin > file.size() - header.bytes - header.tensors.back().bytes)
      fail(path, "is cut off: it ends before tensor '" + name + "' does");
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const SafeTensor& a, const SafeTensor& b) { return a.begin < b.begin; });
  return header;
}

void read_safetensors(const fs::path& path, const SafetensorsHeader& header,
                      const SafeTensor& tensor, int64_t first, int64_t count, void* out) {
  const InputFile file(path);
  const int64_t each = dtype_size(tensor.dtype);
  int error = file.error();
  if (error == 0) {
    error = file.read_at(header.bytes + tensor.begin + first * each, out,
                         static_cast<size_t>(count * each));
  }
  if (error != 0) fail(path, "tensor '" + tensor.name + "' cannot be read: " + errno_text(error));
}

}  // namespace zerolab
