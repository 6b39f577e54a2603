// The wire formats from LibTorch's operators, for devices other than the CPU; the same bits as
// wire_codec.cpp.
//
// Legend: L slices, S values of a slice, B blocks of a slice, W bytes of a slice.

#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/round.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "wire_codec.h"

namespace zerolab::wire_codec {
namespace {

struct Slices {
  int64_t num, length, blocks;  ///< L, S, B
  at::Tensor bytes_LW;

  Slices(WireDtype wire, const at::Tensor& bytes, int64_t values, int slices)
      : num(slices),
        length(values / slices),
        blocks((length + kWireBlock - 1) / kWireBlock),
        bytes_LW(bytes.view({num, wire_bytes(wire, length)})) {}
  at::Tensor rounded_LS() const { return bytes_LW.narrow(1, 0, length); }
  at::Tensor scale_bytes() const { return bytes_LW.narrow(1, length, 4 * blocks); }
  /// [L, B, 256], the last block of a slice filled up with zeros.
  at::Tensor in_blocks(const at::Tensor& x_LS, at::ScalarType dtype) const {
    const at::Tensor padded = at::zeros({num, blocks * kWireBlock}, x_LS.options().dtype(dtype));
    padded.narrow(1, 0, length).copy_(x_LS);
    return padded.view({num, blocks, kWireBlock});
  }
  at::Tensor from_blocks(const at::Tensor& x_LBK) const {
    return x_LBK.view({num, blocks * kWireBlock}).narrow(1, 0, length);
  }
};

void encode_int8(const Slices& s, const at::Tensor& x) {
  const at::Tensor x_LBK = s.in_blocks(x.view({s.num, s.length}), at::kFloat);
  const at::Tensor largest_LB1 = x_LBK.abs().amax({-1}, true);
  // A tensor of 127: some devices multiply by the reciprocal when they divide by a number.
  at::Tensor scale = largest_LB1.div(at::full_like(largest_LB1, 127));
  scale.clamp_(kSmallestScale, kLargestScale);
  scale.masked_fill_(largest_LB1.eq(0), 0);
  scale.masked_fill_(at::isfinite(largest_LB1).logical_not_(),
                     std::numeric_limits<float>::quiet_NaN());
  const at::Tensor rounded = x_LBK.mul(scale.reciprocal()).round_();
  rounded.masked_fill_(scale.gt(0).logical_not_(), 0);
  s.rounded_LS().copy_(s.from_blocks(rounded.to(at::kChar)).view(at::kByte));
  s.scale_bytes().copy_(scale.view({s.num, s.blocks}).view(at::kByte));
}

at::Tensor decode_int8(const Slices& s) {
  const at::Tensor scale = s.scale_bytes().contiguous().view(at::kFloat).view({s.num, s.blocks, 1});
  const at::Tensor rounded = s.in_blocks(s.rounded_LS().view(at::kChar), at::kFloat);
  return s.from_blocks(rounded.mul_(scale));
}

}  // namespace

void decode_by_operators(WireDtype wire, const at::Tensor& bytes, const at::Tensor& values,
                         int slices) {
  const at::NoGradGuard no_grad;
  if (values.numel() == 0) return;
  const Slices s(wire, bytes, values.numel(), slices);
  switch (wire) {
    case WireDtype::kFloat32:
      values.view(at::kByte).copy_(bytes);
      break;
    case WireDtype::kBFloat16:
      values.copy_(at::empty({values.numel()}, values.options().dtype(at::kBFloat16))
                       .view(at::kByte)
                       .copy_(bytes)
                       .view(at::kBFloat16));
      break;
    case WireDtype::kInt8:
      values.view({s.num, s.length}).copy_(decode_int8(s));
      break;
  }
}

void encode_by_operators(WireDtype wire, const at::Tensor& values, const at::Tensor& residual,
                         const at::Tensor& bytes, int slices) {
  const at::NoGradGuard no_grad;
  if (values.numel() == 0) return;
  const at::Tensor x = residual.defined() ? values.add(residual) : values;
  const Slices s(wire, bytes, values.numel(), slices);
  switch (wire) {
    case WireDtype::kFloat32:
      bytes.copy_(x.view(at::kByte));
      break;
    case WireDtype::kBFloat16:
      bytes.copy_(x.to(at::kBFloat16).view(at::kByte));
      break;
    case WireDtype::kInt8:
      encode_int8(s, x);
      break;
  }
  if (!residual.defined()) return;
  const at::Tensor decoded = at::empty({values.numel()}, values.options());
  decode_by_operators(wire, bytes, decoded, slices);
  residual.copy_(at::where(at::isfinite(decoded), x.sub(decoded), residual));
}

}  // namespace zerolab::wire_codec
