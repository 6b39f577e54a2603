#include "zerolab/wire.h"

#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "zerolab/error.h"

#include "wire_codec.h"

namespace zerolab {
namespace {

void check(bool holds, const char* operation, const at::Tensor& from, const at::Tensor& to) {
  if (holds) return;
  throw PluginError(std::string(operation) + " was given " + std::to_string(from.numel()) + " " +
                    c10::toString(from.scalar_type()) + " for " + std::to_string(to.numel()) + " " +
                    c10::toString(to.scalar_type()) +
                    "; tensors must be 1-D, contiguous, on one device and of the lengths and "
                    "dtypes that zerolab/wire.h states");
}

bool is_vector(const at::Tensor& tensor, at::ScalarType dtype, int64_t length,
               const at::Device& device) {
  return tensor.dim() == 1 && tensor.is_contiguous() && tensor.scalar_type() == dtype &&
         tensor.numel() == length && tensor.device() == device;
}

/// Two vectors of what travels (float32 unless the wire leaves it as it is), the one `parts` times
/// as long as the other.
void check_parts(const char* operation, WireDtype wire, const at::Tensor& whole,
                 const at::Tensor& part, int parts) {
  const int64_t length = part.numel();
  const at::ScalarType dtype = wire == WireDtype::kFloat32 ? part.scalar_type() : at::kFloat;
  check(is_vector(whole, dtype, parts * length, part.device()) &&
            is_vector(part, dtype, length, part.device()),
        operation, whole, part);
}

/// Memory for `length` elements, there already after the first call.
void allocate(at::Tensor& buffer, int64_t length, at::ScalarType dtype, const at::Device& device) {
  if (buffer.defined() && is_vector(buffer, dtype, length, device)) return;
  buffer = at::empty({length}, at::TensorOptions().dtype(dtype).device(device));
}

/// A collective, and what becomes of the bytes that it brings.
template <class Decode>
class DecodeWork : public Work {
 public:
  DecodeWork(std::unique_ptr<Work> transfer, Decode decode)
      : transfer_(std::move(transfer)), decode_(std::move(decode)) {}
  void wait() override {
    transfer_->wait();
    decode_();
  }
  void abandon(const std::string& reason) override { transfer_->abandon(reason); }

 private:
  std::unique_ptr<Work> transfer_;
  Decode decode_;
};

template <class Decode>
std::unique_ptr<Work> then(std::unique_ptr<Work> transfer, Decode decode) {
  return std::make_unique<DecodeWork<Decode>>(std::move(transfer), std::move(decode));
}

}  // namespace

WireDtype parse_wire_dtype(std::string_view word) {
  if (word == "fp32") return WireDtype::kFloat32;
  if (word == "bf16") return WireDtype::kBFloat16;
  if (word == "int8") return WireDtype::kInt8;
  throw ConfigError("wire_dtype = \"" + std::string(word) +
                    "\" is not a wire format: choose \"fp32\", \"bf16\" or \"int8\"");
}

WireDtype wire_for(WireDtype wire, at::ScalarType dtype) {
  return dtype == at::kFloat ? wire : WireDtype::kFloat32;
}

int64_t wire_bytes(WireDtype wire, int64_t n) {
  switch (wire) {
    case WireDtype::kFloat32:
      return n * 4;
    case WireDtype::kBFloat16:
      return n * 2;
    case WireDtype::kInt8:
      break;
  }
  return n + (n + kWireBlock - 1) / kWireBlock * int64_t{sizeof(float)};
}

void wire_encode(WireDtype wire, const at::Tensor& values, const at::Tensor& bytes) {
  const int64_t n = values.numel();
  check(is_vector(values, at::kFloat, n, bytes.device()) &&
            is_vector(bytes, at::kByte, wire_bytes(wire, n), bytes.device()),
        "wire_encode", values, bytes);
  wire_codec::encode(wire, values, {}, bytes, 1);
}

void wire_decode(WireDtype wire, const at::Tensor& bytes, const at::Tensor& values) {
  const int64_t n = values.numel();
  check(is_vector(values, at::kFloat, n, bytes.device()) &&
            is_vector(bytes, at::kByte, wire_bytes(wire, n), bytes.device()),
        "wire_decode", bytes, values);
  wire_codec::decode(wire, bytes, values, 1);
}

WireBuffers WireBuffers::for_reduce_scatter(WireDtype wire, int64_t n, int ranks,
                                            at::ScalarType dtype) {
  const int64_t bytes = reduce_scatter_buffer_bytes(wire, n, ranks);
  WireBuffers buffers;
  if (bytes == 0) return buffers;
  if (wire == WireDtype::kFloat32) {
    buffers.received = at::empty({n}, at::TensorOptions().dtype(dtype));
  } else {
    buffers.send = at::empty({bytes / 2}, at::TensorOptions().dtype(at::kByte));
    buffers.received = at::empty_like(buffers.send);
  }
  return buffers;
}

WireBuffers WireBuffers::for_all_gather(WireDtype wire, int64_t n, int ranks) {
  const int64_t bytes = all_gather_buffer_bytes(wire, n, ranks);
  WireBuffers buffers;
  if (bytes > 0) buffers.received = at::empty({bytes}, at::TensorOptions().dtype(at::kByte));
  return buffers;
}

int64_t WireBuffers::bytes() const {
  int64_t total = 0;
  for (const at::Tensor* t : {&send, &received}) {
    if (t->defined()) total += static_cast<int64_t>(t->nbytes());
  }
  return total;
}

WireBuffers WireBuffers::part(WireDtype wire, int64_t n, int ranks) const {
  const int64_t length = wire == WireDtype::kFloat32 ? n : ranks * wire_bytes(wire, n / ranks);
  const auto start = [length](const at::Tensor& t) {
    return t.defined() ? t.narrow(0, 0, length) : t;
  };
  return {start(send), start(received)};
}

int64_t reduce_scatter_buffer_bytes(WireDtype wire, int64_t n, int ranks) {
  if (ranks == 1) return 0;
  return wire == WireDtype::kFloat32 ? 4 * n : 2 * ranks * wire_bytes(wire, n / ranks);
}

int64_t all_gather_buffer_bytes(WireDtype wire, int64_t n, int ranks) {
  return wire == WireDtype::kFloat32 ? 0 : ranks * wire_bytes(wire, n / ranks);
}

int64_t reduce_scatter_sent_bytes(WireDtype wire, int64_t n, int ranks) {
  return (ranks - 1) * wire_bytes(wire, n / ranks);
}

int64_t all_gather_sent_bytes(WireDtype wire, int64_t n, int ranks) {
  return (ranks - 1) * wire_bytes(wire, n / ranks);
}

std::unique_ptr<Work> wire_reduce_scatter(Communicator& ranks, WireDtype wire,
                                          const at::Tensor& out, const at::Tensor& in,
                                          WireBuffers& buffers, const at::Tensor& residual,
                                          std::string_view label) {
  const int size = ranks.size();
  check_parts("wire_reduce_scatter", wire, in, out, size);
  if (size == 1) return ranks.reduce_scatter(out, in, label);
  if (wire == WireDtype::kFloat32) {
    allocate(buffers.received, in.numel(), in.scalar_type(), in.device());
    return ranks.reduce_scatter(out, in, label, buffers.received);
  }
  if (residual.defined()) check_parts("wire_reduce_scatter's residual", wire, residual, in, 1);
  const int64_t bytes = size * wire_bytes(wire, out.numel());
  allocate(buffers.send, bytes, at::kByte, in.device());
  allocate(buffers.received, bytes, at::kByte, in.device());
  wire_codec::encode(wire, in, residual, buffers.send, size);
  const at::Tensor received = buffers.received;
  return then(ranks.all_to_all(received, buffers.send, label),
              [wire, received, out, size] { wire_codec::decode_sum(wire, received, out, size); });
}

std::unique_ptr<Work> wire_all_gather(Communicator& ranks, WireDtype wire, const at::Tensor& out,
                                      const at::Tensor& in, WireBuffers& buffers,
                                      std::string_view label) {
  const int size = ranks.size();
  check_parts("wire_all_gather", wire, out, in, size);
  if (wire == WireDtype::kFloat32) return ranks.all_gather(out, in, label);
  // This rank's bytes are sent from where they belong in what it receives.
  const int64_t bytes = wire_bytes(wire, in.numel());
  allocate(buffers.received, size * bytes, at::kByte, in.device());
  const at::Tensor received = buffers.received;
  const at::Tensor own = received.narrow(0, ranks.rank() * bytes, bytes);
  wire_codec::encode(wire, in, {}, own, 1);
  return then(ranks.all_gather(received, own, label),
              [wire, received, out, size] { wire_codec::decode(wire, received, out, size); });
}

}  // namespace zerolab
