// Writes one checkpoint file as a training run does, reads it back in two ways, and prints what
// each took as JSON. tools/bench/checkpoint calls it.
//
// Usage: checkpoint_write FOLDER (gpt|big). The file is removed again.
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "store/checkpoint_file.h"

namespace {

using zerolab::PieceData;

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
};

/// GPT-2's tensors: 12 layers, 320 wide, 50257 tokens, 256 places. 31 M parameters.
std::vector<Tensor> gpt() {
  constexpr int64_t kWidth = 320;
  std::vector<Tensor> tensors = {{"wte", {50257, kWidth}}, {"wpe", {256, kWidth}}};
  const std::vector<Tensor> layer = {{"ln_1.weight", {kWidth}},
                                     {"ln_1.bias", {kWidth}},
                                     {"attn.qkv.weight", {3 * kWidth, kWidth}},
                                     {"attn.qkv.bias", {3 * kWidth}},
                                     {"attn.out.weight", {kWidth, kWidth}},
                                     {"attn.out.bias", {kWidth}},
                                     {"ln_2.weight", {kWidth}},
                                     {"ln_2.bias", {kWidth}},
                                     {"mlp.in.weight", {4 * kWidth, kWidth}},
                                     {"mlp.in.bias", {4 * kWidth}},
                                     {"mlp.out.weight", {kWidth, 4 * kWidth}},
                                     {"mlp.out.bias", {kWidth}}};
  for (int i = 0; i < 12; ++i) {
    for (const Tensor& t : layer)
      tensors.push_back({"h." + std::to_string(i) + "." + t.name, t.shape});
  }
  tensors.push_back({"ln_f.weight", {kWidth}});
  tensors.push_back({"ln_f.bias", {kWidth}});
  return tensors;
}

std::vector<Tensor> tensors_of(std::string_view set) {
  if (set == "gpt") return gpt();
  if (set == "big") return {{"all", {31 << 20}}};
  throw std::invalid_argument("usage: checkpoint_write FOLDER (gpt|big)");
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void run(const std::filesystem::path& folder, std::string_view set) {
  std::vector<PieceData> pieces;
  int64_t elements = 0;
  for (const Tensor& tensor : tensors_of(set)) {
    int64_t length = 1;
    for (const int64_t size : tensor.shape) length *= size;
    for (const char* state : {"parameter", "exp_avg", "exp_avg_sq"}) {
      pieces.push_back(
          {{tensor.name, state, tensor.shape, zerolab::TensorDtype::kFloat32, 0, length}, nullptr});
      elements += length;
    }
  }
  std::vector<uint32_t> values(static_cast<size_t>(elements));
  uint32_t seed = 1;
  for (uint32_t& value : values) value = seed = seed * 1664525 + 1013904223;
  const uint32_t* next = values.data();
  for (PieceData& piece : pieces) {
    piece.data = next;
    next += piece.info.length;
  }

  const std::filesystem::path file = folder / "rank-0000.h5";
  auto start = std::chrono::steady_clock::now();
  const zerolab::SealedFile sealed =
      zerolab::write_checkpoint_file(zerolab::real_files(), file, {}, pieces, {});
  const double write = seconds_since(start);
  start = std::chrono::steady_clock::now();
  const std::string damage = zerolab::find_damage(folder, sealed);
  const double verify = seconds_since(start);
  start = std::chrono::steady_clock::now();
  uint32_t* to = values.data();
  for (const zerolab::SealedPiece& piece : sealed.pieces) {
    zerolab::read_elements(file, piece.info, piece.chunks, 0, piece.info.length, to);
    to += piece.info.length;
  }
  const double read = seconds_since(start);
  std::filesystem::remove(file);
  if (!damage.empty()) throw std::runtime_error(damage);
  std::printf(
      "{\"tensors\": %zu, \"value_bytes\": %lld, \"file_bytes\": %lld, \"write_seconds\": %.4f, "
      "\"verify_seconds\": %.4f, \"read_seconds\": %.4f}\n",
      pieces.size(), static_cast<long long>(4 * elements), static_cast<long long>(sealed.bytes),
      write, verify, read);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? argv[1] : "", argc == 3 ? argv[2] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "checkpoint_write: %s\n", error.what());
    return 1;
  }
}
