// Legend: R ranks, S values of a slice.
#include "zerolab/wire.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>

#include <ATen/ATen.h>

#include "zerolab/error.h"

#include "catch.h"
#include "distributed/world.h"

using zerolab::CollectiveKind;
using zerolab::Communicator;
using zerolab::run_on_threads;
using zerolab::WireBuffers;
using zerolab::WireDtype;

namespace {

const WireDtype kWires[] = {WireDtype::kFloat32, WireDtype::kBFloat16, WireDtype::kInt8};

/// Catch's own assertions may not be used on several threads at once.
void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("does not hold: " + what);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

/// What `rank` contributes: neighbours differ by up to 2^12.
at::Tensor numbers_of(int rank, int64_t length) {
  std::mt19937 random(static_cast<unsigned>(500 + rank));
  std::vector<float> numbers(static_cast<size_t>(length));
  for (float& x : numbers) {
    x = std::ldexp(static_cast<float>(random() % 20001) / 10000.0F - 1.0F,
                   static_cast<int>(random() % 12) - 6);
  }
  return at::tensor(numbers, at::kFloat);
}

at::Tensor through(WireDtype wire, const at::Tensor& values) {
  const at::Tensor bytes = at::zeros({zerolab::wire_bytes(wire, values.numel())}, at::kByte);
  const at::Tensor result = at::empty_like(values);
  zerolab::wire_encode(wire, values, bytes);
  zerolab::wire_decode(wire, bytes, result);
  return result;
}

/// What reduce_scatter should give `rank`: every rank's slice for it, through the wire, and added
/// in the documented order.
at::Tensor expected_sum(WireDtype wire, int rank, int num_ranks, int64_t length) {
  std::vector<at::Tensor> x;
  for (int r = 0; r < num_ranks; ++r)
    x.push_back(through(wire, numbers_of(r, num_ranks * length).narrow(0, rank * length, length)));
  for (size_t stride = 1; stride < x.size(); stride *= 2) {
    for (size_t i = 0; i + stride < x.size(); i += 2 * stride) x[i] = x[i] + x[i + stride];
  }
  return x[0];
}

int64_t held(const WireBuffers& buffers) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : {buffers.send, buffers.received})
    bytes += tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
  return bytes;
}

}  // namespace

TEST_CASE("wire_reduce_scatter adds what each rank's bytes say along the tree, bit for bit") {
  const int num_ranks = GENERATE(1, 2, 3, 4);
  const int64_t length = GENERATE(1, 300, 20011);
  run_on_threads(num_ranks, [&](Communicator& world) {
    for (const WireDtype wire : kWires) {
      const at::Tensor in = numbers_of(world.rank(), num_ranks * length), kept = in.clone();
      const at::Tensor out = at::empty({length});
      const at::Tensor expected =
          num_ranks == 1 ? kept : expected_sum(wire, world.rank(), num_ranks, length);
      WireBuffers buffers;
      wire_reduce_scatter(world, wire, out, in, buffers, {}, "sum")->wait();
      require(same_bits(out, expected), "the sum");
      require(same_bits(in, kept), "the input is untouched");
      const at::Tensor own = in.narrow(0, world.rank() * length, length);
      wire_reduce_scatter(world, wire, own, in, buffers, {}, "sum again")->wait();
      require(same_bits(own, expected), "into this rank's own slice");
    }
  });
}

TEST_CASE("wire_all_gather gives every rank the same bits, those of what was sent") {
  const int num_ranks = GENERATE(1, 2, 3, 4);
  const int64_t length = GENERATE(1, 300, 20011);
  run_on_threads(num_ranks, [&](Communicator& world) {
    for (const WireDtype wire : kWires) {
      std::vector<at::Tensor> pieces;
      for (int r = 0; r < num_ranks; ++r) pieces.push_back(through(wire, numbers_of(r, length)));
      const at::Tensor expected = at::cat(pieces), out = at::zeros({num_ranks * length});
      const at::Tensor in = numbers_of(world.rank(), length), kept = in.clone();
      WireBuffers buffers;
      wire_all_gather(world, wire, out, in, buffers, "gather")->wait();
      require(same_bits(out, expected), "gathered from elsewhere");
      require(same_bits(in, kept), "the input is untouched");
      const at::Tensor in_place = at::zeros({num_ranks * length});
      const at::Tensor own = in_place.narrow(0, world.rank() * length, length).copy_(kept);
      wire_all_gather(world, wire, in_place, own, buffers, "gather again")->wait();
      require(same_bits(in_place, expected), "gathered from its own slice");
    }
  });
}

TEST_CASE("bytes sent and bytes of the buffers are those foretold, and the buffers are kept") {
  const int num_ranks = GENERATE(1, 2, 3, 4);
  const int64_t length = GENERATE(0, 1, 257, 1000);
  run_on_threads(num_ranks, [&](Communicator& world) {
    const int64_t n = num_ranks * length;
    const at::Tensor whole = at::ones({n}), slice = at::ones({length});
    for (const WireDtype wire : kWires) {
      WireBuffers reduce, gather;
      world.reset_counters();
      wire_reduce_scatter(world, wire, slice, whole, reduce, {}, "sum")->wait();
      const auto kind =
          wire == WireDtype::kFloat32 ? CollectiveKind::kReduceScatter : CollectiveKind::kAllToAll;
      const int64_t sent = zerolab::reduce_scatter_sent_bytes(wire, n, num_ranks);
      require(world.payload_bytes() == sent, "bytes of reduce_scatter");
      require(world.counters(kind).bytes == sent, "counted where the header says");
      require(held(reduce) == zerolab::reduce_scatter_buffer_bytes(wire, n, num_ranks),
              "buffers of reduce_scatter");
      world.reset_counters();
      wire_all_gather(world, wire, whole, slice, gather, "gather")->wait();
      require(world.payload_bytes() == zerolab::all_gather_sent_bytes(wire, n, num_ranks),
              "bytes of all_gather");
      require(held(gather) == zerolab::all_gather_buffer_bytes(wire, n, num_ranks),
              "buffers of all_gather");
      const WireBuffers before = reduce, before_gather = gather;
      wire_reduce_scatter(world, wire, slice, whole, reduce, {}, "sum")->wait();
      wire_all_gather(world, wire, whole, slice, gather, "gather")->wait();
      require(before.send.is_same(reduce.send) && before.received.is_same(reduce.received) &&
                  before_gather.received.is_same(gather.received),
              "the same memory again");
    }
  });
}

TEST_CASE("int8 moves at most 0.27 of fp32's bytes, and 0.52 of bf16's") {
  for (const int64_t n : {4096, 1000000}) {
    const auto sent = [&](WireDtype wire) {
      return static_cast<double>(zerolab::reduce_scatter_sent_bytes(wire, n, 4));
    };
    CHECK(sent(WireDtype::kInt8) <= 0.27 * sent(WireDtype::kFloat32));
    CHECK(sent(WireDtype::kInt8) <= 0.52 * sent(WireDtype::kBFloat16));
  }
}

TEST_CASE("with error feedback, the sum of many transfers stays within one rounding") {
  const int num_ranks = GENERATE(2, 3, 4);
  const WireDtype wire = GENERATE(WireDtype::kBFloat16, WireDtype::kInt8);
  constexpr int64_t kLength = 1000;
  constexpr int kRounds = 64;
  run_on_threads(num_ranks, [&](Communicator& world) {
    const int64_t n = num_ranks * kLength;
    const at::Tensor in = numbers_of(world.rank(), n);
    const at::Tensor residual = at::zeros({n}), out = at::empty({kLength});
    at::Tensor with = at::zeros({kLength}, at::kDouble), without = with.clone(), exact = with;
    for (int r = 0; r < num_ranks; ++r) {
      const at::Tensor slice = numbers_of(r, n).narrow(0, world.rank() * kLength, kLength);
      exact = exact + slice.to(at::kDouble) * kRounds;
    }
    WireBuffers buffers;
    for (int round = 0; round < kRounds; ++round) {
      wire_reduce_scatter(world, wire, out, in, buffers, residual, "with")->wait();
      with += out;
      wire_reduce_scatter(world, wire, out, in, buffers, {}, "without")->wait();
      without += out;
    }
    // Numbers are below 32, and what is left out is at most half of it: a quantum is 32 / 127 in
    // int8, and 2^-3 in bf16. One rank leaves out half a quantum.
    const double quantum = wire == WireDtype::kInt8 ? 33.0 / 127 : 0.125;
    const auto off = [&](const at::Tensor& sum) {
      return (sum - exact).abs().max().item<double>();
    };
    require(off(with) <= num_ranks * quantum / 2 * 1.01, "with error feedback");
    require(off(without) > num_ranks * quantum, "without it, the error adds up");
    require(residual.abs().max().item<double>() <= quantum / 2 * 1.01, "what is left to send");
  });
}

TEST_CASE("an infinity on one rank reaches the sum, and leaves error feedback as it was") {
  const int num_ranks = GENERATE(2, 3, 4);
  const WireDtype wire = GENERATE(WireDtype::kBFloat16, WireDtype::kInt8);
  constexpr int64_t kLength = 600;
  run_on_threads(num_ranks, [&](Communicator& world) {
    const at::Tensor in = at::full({num_ranks * kLength}, 0.3F), out = at::empty({kLength});
    const at::Tensor residual = at::full_like(in, 0.01F);
    if (world.rank() == 1) in[300] = std::numeric_limits<float>::infinity();
    WireBuffers buffers;
    wire_reduce_scatter(world, wire, out, in, buffers, residual, "overflow")->wait();
    require(out.isfinite().all().item<bool>() == (world.rank() != 0), "seen by the slice's owner");
    require(out.narrow(0, 0, 256).isfinite().all().item<bool>(), "not beyond its block");
    require(residual.isfinite().all().item<bool>(), "the residual stays finite");
    require(world.rank() != 1 || residual[300].item<float>() == 0.01F, "and as it was");
    require(residual[0].item<float>() != 0.01F, "elsewhere it moves on");
  });
}

TEST_CASE("transfers with buffers of their own may be under way at once") {
  const int num_ranks = GENERATE(2, 3, 4);
  constexpr int64_t kLength = 50021;
  run_on_threads(num_ranks, [&](Communicator& world) {
    for (const WireDtype wire : kWires) {
      const at::Tensor in = numbers_of(world.rank(), num_ranks * kLength);
      const at::Tensor sum = at::empty({kLength}), whole = at::empty({num_ranks * kLength});
      WireBuffers reduce, gather;
      auto reducing = wire_reduce_scatter(world, wire, sum, in, reduce, {}, "sum");
      auto gathering =
          wire_all_gather(world, wire, whole, in.narrow(0, 0, kLength), gather, "gather");
      gathering->wait();
      reducing->wait();
      require(same_bits(sum, expected_sum(wire, world.rank(), num_ranks, kLength)), "the sum");
      const at::Tensor last = numbers_of(num_ranks - 1, num_ranks * kLength).narrow(0, 0, kLength);
      require(same_bits(whole.narrow(0, (num_ranks - 1) * kLength, kLength), through(wire, last)),
              "the gathered values");
    }
  });
}

TEST_CASE("ranks with different wires learn what each of them sends") {
  std::string message;
  const auto body = [&](Communicator& world) {
    WireBuffers buffers;
    const WireDtype wire = world.rank() == 0 ? WireDtype::kInt8 : WireDtype::kBFloat16;
    try {
      wire_all_gather(world, wire, at::empty({20}), at::ones({10}), buffers, "unit head")->wait();
    } catch (const zerolab::PeerError& error) {
      if (world.rank() == 0) message = error.what();
      throw;
    }
  };
  CHECK_THROWS_AS(run_on_threads(2, body), zerolab::PeerError);
  INFO(message);
  CHECK(message.find("rank 0 calls all_gather of 14 Byte (unit head)") != std::string::npos);
  CHECK(message.find("rank 1 calls all_gather of 20 Byte (unit head)") != std::string::npos);
}

TEST_CASE("tensors that a wire would round and are not float32, or of other lengths, are refused") {
  const auto alone = zerolab::make_single_communicator();
  WireBuffers buffers;
  const at::Tensor x = at::zeros({8});
  for (const WireDtype wire : kWires) {
    CHECK_THROWS_AS(wire_all_gather(*alone, wire, at::zeros({9}), x, buffers, ""),
                    zerolab::PluginError);
    const auto reduce_16_bits = [&] {
      wire_reduce_scatter(*alone, wire, at::zeros({8}, at::kBFloat16), x.to(at::kBFloat16), buffers,
                          {}, "");
    };
    if (wire == WireDtype::kFloat32) {
      CHECK_NOTHROW(reduce_16_bits());
    } else {
      CHECK_THROWS_AS(reduce_16_bits(), zerolab::PluginError);
    }
    CHECK_THROWS_AS(
        wire_reduce_scatter(*alone, wire, at::zeros({8}), x.to(at::kBFloat16), buffers, {}, ""),
        zerolab::PluginError);
  }
}
