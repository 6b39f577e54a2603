#include "store/safetensors.h"

#include <nlohmann/json.hpp>

#include "zerolab/error.h"

#include "catch.h"
#include "scratch.h"

namespace zerolab {
namespace {

using Catch::Matchers::Contains;

const std::string kFile = "w.safetensors";

/// The n-th element of any tensor has n in each of its bytes.
void count_up(const SafeTensor& tensor, int64_t first, int64_t count, void* out) {
  const int64_t each = dtype_size(tensor.dtype);
  for (int64_t i = 0; i < count * each; ++i)
    static_cast<char*>(out)[i] = static_cast<char>(first + i / each);
}

std::vector<SafeTensor> some_tensors() {
  return {{"b", TensorDtype::kBFloat16, {3}, 0, 0},
          {"z", TensorDtype::kFloat32, {2, 2}, 0, 0},
          {"a", TensorDtype::kUInt8, {5}, 0, 0},
          {"one", TensorDtype::kInt64, {}, 0, 0},
          {"none", TensorDtype::kFloat32, {0, 4}, 0, 0}};
}

void put(const std::string& header, const std::string& values) {
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i));
  std::ofstream(kFile, std::ios::binary) << length << header << values;
}

}  // namespace

TEST_CASE("a safetensors file is the header's length, a JSON header, and values without gaps") {
  const ScratchFolder scratch;
  const int64_t bytes =
      write_safetensors(real_files(), kFile, some_tensors(), {{"step", "7"}}, count_up);
  const std::string file = read_file(kFile);
  CHECK(bytes == static_cast<int64_t>(file.size()));
  size_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(file[i]);
  CHECK(length % 8 == 0);
  REQUIRE(file.size() == 8 + length + 8 + 16 + 6 + 5);
  CHECK(nlohmann::json::parse(file.substr(8, length)) == nlohmann::json::parse(R"({
    "__metadata__": {"step": "7"},
    "one": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]},
    "none": {"dtype": "F32", "shape": [0, 4], "data_offsets": [8, 8]},
    "z": {"dtype": "F32", "shape": [2, 2], "data_offsets": [8, 24]},
    "b": {"dtype": "BF16", "shape": [3], "data_offsets": [24, 30]},
    "a": {"dtype": "U8", "shape": [5], "data_offsets": [30, 35]}})"));
  const std::string values(file.substr(8 + length));
  CHECK(values == std::string(8, 0) + std::string(4, 0) + std::string(4, 1) + std::string(4, 2) +
                      std::string(4, 3) + std::string("\0\0\1\1\2\2\0\1\2\3\4", 11));
}

TEST_CASE("a safetensors file reads back with names, types, shapes, metadata and values") {
  const ScratchFolder scratch;
  write_safetensors(real_files(), kFile, some_tensors(), {{"quote", "\"\\\n"}}, count_up);
  const SafetensorsHeader header = read_safetensors_header(kFile);
  CHECK(header.metadata == std::map<std::string, std::string>{{"quote", "\"\\\n"}});
  REQUIRE(header.tensors.size() == 5);
  for (const SafeTensor& tensor : header.tensors) {
    if (tensor.name != "z") continue;
    CHECK(tensor.dtype == TensorDtype::kFloat32);
    CHECK(tensor.shape == std::vector<int64_t>{2, 2});
    std::string values(8, '?');
    read_safetensors(kFile, header, tensor, 1, 2, values.data());
    CHECK(values == std::string(4, 1) + std::string(4, 2));
  }
}

TEST_CASE("two safetensors of one name are refused before anything is written") {
  const ScratchFolder scratch;
  const std::string name = GENERATE("same", "__metadata__");
  const SafeTensor tensor{name, TensorDtype::kUInt8, {1}, 0, 0};
  CHECK_THROWS_WITH(write_safetensors(real_files(), kFile, {tensor, tensor}, {}, count_up),
                    Contains("'" + name + "'"));
  CHECK(scratch.empty());
}

TEST_CASE("values that cannot be read leave no safetensors file") {
  const ScratchFolder scratch;
  const auto fail = [](const SafeTensor&, int64_t, int64_t, void*) { throw StoreError("gone"); };
  CHECK_THROWS_WITH(write_safetensors(real_files(), kFile, some_tensors(), {}, fail), "gone");
  CHECK(scratch.empty());
}

TEST_CASE("what is no safetensors file, or is cut off, is an error that names it") {
  const ScratchFolder scratch;
  CHECK_THROWS_WITH(read_safetensors_header(kFile), Contains(kFile));
  const auto refused = [&](const std::string& header, const std::string& values) {
    CAPTURE(header);
    put(header, values);
    CHECK_THROWS_AS(read_safetensors_header(kFile), StoreError);
  };
  refused("", "");
  refused("[]", "");
  refused("{", "");
  refused(R"({"a": 1})", "");
  refused(R"({"a": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}})", "1");
  refused(R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 1]}})", "12");
  refused(R"({"a": {"dtype": "U8", "shape": [-1], "data_offsets": [0, 1]}})", "12");
  refused(R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}})", "1");
  refused(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [9223372036854775806,
      9223372036854775807]}})",
          "1");
  std::ofstream(kFile, std::ios::binary) << std::string(8, '\x7f') << "{}";
  CHECK_THROWS_AS(read_safetensors_header(kFile), StoreError);
}

}  // namespace zerolab
