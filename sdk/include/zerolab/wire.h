#pragma once
// Wire formats: what float32 values are sent as. Sums are made in float32 along the fixed tree
// whatever the wire.
//
//   fp32   the values, as they are: of any dtype
//   bf16   rounded to nearest even. Each value keeps a relative error of at most 2^-8 (2^-9 of the
//          next power of two), below 2^-126 an absolute one of at most 2^-134. NaN stays NaN; what
//          rounds beyond bfloat16's largest (3.39e38) becomes infinite.
//   int8   blocks of 256 values, each with one float32 scale = largest magnitude / 127, but at
//          least 2^-126 (0 for a block of zeros); |error| <= scale * (1/2 + 2^-15), the rounding
//          of products in float32 included. Values must be finite to arrive as such: a block that
//          holds an infinity or a NaN arrives as NaN.
//
// A block never crosses a slice, so that what one rank sends to another is one run of bytes:
// n values take n + 4 * ceil(n / 256) bytes in int8, first the n values and then the scales in the
// order of the blocks, unaligned. Bytes are in the machine's own order.
//
// Shapes: 1-D and contiguous; n values, R ranks, S = n / R values of a slice.
// Errors: PluginError for tensors of other lengths, dtypes or layouts than stated.
// Source: Wang et al., "ZeRO++", arXiv 2306.10209, sections 3.1 (qwZ) and 3.3 (qgZ).

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "zerolab/communicator.h"
#include "zerolab/export.h"

namespace zerolab {

enum class WireDtype { kFloat32, kBFloat16, kInt8 };
inline constexpr int64_t kWireBlock = 256;  ///< values that share a scale in int8

/// "fp32", "bf16" or "int8". Errors: ConfigError for another word.
ZEROLAB_API WireDtype parse_wire_dtype(std::string_view word);

/// The wire of values of a dtype: those of 16 bits travel as they are.
ZEROLAB_API WireDtype wire_for(WireDtype wire, at::ScalarType dtype);

/// Bytes that n values of one slice take on the wire.
ZEROLAB_API int64_t wire_bytes(WireDtype wire, int64_t n);

/// [hot] [local] values[n] float32 to bytes[wire_bytes(n)] uint8, and back; both on one device.
/// Bit-identical wherever the slice begins and whatever the number of threads.
ZEROLAB_API void wire_encode(WireDtype wire, const at::Tensor& values, const at::Tensor& bytes);
ZEROLAB_API void wire_decode(WireDtype wire, const at::Tensor& bytes, const at::Tensor& values);

/// Memory of one transfer, allocated at its first use and kept; what a transfer does not need
/// stays undefined. One transfer at a time: from its start to its wait() the buffers are its own.
struct ZEROLAB_API WireBuffers {
  at::Tensor send, received;  ///< uint8 (what reduce_scatter receives in kFloat32: the values')
  /// Memory for a reduce_scatter of in[n], for an all_gather to out[n], over R ranks: what the
  /// functions below say that these take.
  static WireBuffers for_reduce_scatter(WireDtype wire, int64_t n, int ranks,
                                        at::ScalarType dtype = at::kFloat);
  static WireBuffers for_all_gather(WireDtype wire, int64_t n, int ranks);
  int64_t bytes() const;
  /// Views of it for a transfer of n values over so many ranks, where this was made for a longer
  /// one.
  WireBuffers part(WireDtype wire, int64_t n, int ranks) const;
};
/// What WireBuffers will take: a reduce_scatter of in[n], an all_gather to out[n], over R ranks.
ZEROLAB_API int64_t reduce_scatter_buffer_bytes(WireDtype wire, int64_t n, int ranks);
ZEROLAB_API int64_t all_gather_buffer_bytes(WireDtype wire, int64_t n, int ranks);
/// Payload that one rank sends; counted as reduce_scatter in fp32, else as all_to_all, and as
/// all_gather.
ZEROLAB_API int64_t reduce_scatter_sent_bytes(WireDtype wire, int64_t n, int ranks);
ZEROLAB_API int64_t all_gather_sent_bytes(WireDtype wire, int64_t n, int ranks);

/// [collective] [hot] As Communicator::reduce_scatter (out may be this rank's slice of in), through
/// a wire: each rank encodes its R slices, an all-to-all moves them, and what arrives is decoded
/// and added along the fixed tree in wait(). `residual` [n] float32, if defined, is error feedback:
/// it is added before encoding, and keeps what encoding lost, so that what many transfers leave
/// out stays within one rounding instead of adding up. Where encoding gave an infinity or a NaN it
/// stays as it was. Unused where nothing is lost: in fp32, or with one rank, where this is a copy.
/// Values are float32 (in kFloat32 of any dtype); buffers, in, out and residual stay alive until
/// wait(). `label` as in Communicator.
ZEROLAB_API std::unique_ptr<Work> wire_reduce_scatter(Communicator& ranks, WireDtype wire,
                                                      const at::Tensor& out, const at::Tensor& in,
                                                      WireBuffers& buffers,
                                                      const at::Tensor& residual,
                                                      std::string_view label);
/// [collective] [hot] As Communicator::all_gather, through a wire. What this rank sends is decoded
/// here, too: every rank gets the same bits (so `in` must not be this rank's slice of `out` where
/// its exact values are still needed). With one rank, and a wire that rounds, the values are
/// rounded as well. `in` is free again at once unless the wire is fp32.
ZEROLAB_API std::unique_ptr<Work> wire_all_gather(Communicator& ranks, WireDtype wire,
                                                  const at::Tensor& out, const at::Tensor& in,
                                                  WireBuffers& buffers, std::string_view label);

}  // namespace zerolab
