// Legend: R ranks, S elements of a slice.
#include "zerolab/communicator.h"

#include <cmath>
#include <cstring>
#include <mutex>
#include <random>
#include <stdexcept>

#include <ATen/ATen.h>

#include "zerolab/error.h"

#include "catch.h"
#include "distributed/world.h"

using zerolab::CollectiveKind;
using zerolab::Communicator;
using zerolab::PeerError;
using zerolab::run_on_threads;

namespace {

/// Catch's own assertions may not be used on several threads at once.
void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("does not hold: " + what);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

/// What `rank` contributes: neighbours differ by up to 2^60, so that each order of adding rounds
/// differently.
std::vector<float> numbers_of(int rank, int64_t length) {
  std::mt19937 random(static_cast<unsigned>(1000 + rank));
  std::vector<float> numbers(static_cast<size_t>(length));
  for (float& x : numbers) {
    const int exponent = static_cast<int>(random() % 60) - 30;
    x = std::ldexp(static_cast<float>(random() % 20001) / 10000.0F - 1.0F, exponent);
  }
  return numbers;
}

at::Tensor tensor_of(const std::vector<float>& numbers) {
  return at::tensor(numbers, at::kFloat);
}

/// The documented order, written down once more: rank i adds rank i + 2^k, rounding each time.
float sum_along_tree(std::vector<float> x, bool as_bf16) {
  for (size_t stride = 1; stride < x.size(); stride *= 2) {
    for (size_t i = 0; i + stride < x.size(); i += 2 * stride) {
      x[i] += x[i + stride];
      if (as_bf16) x[i] = static_cast<float>(c10::BFloat16(x[i]));
    }
  }
  return x[0];
}

at::Tensor expected_slice(int rank, int num_ranks, int64_t length, bool as_bf16) {
  std::vector<std::vector<float>> all;
  for (int r = 0; r < num_ranks; ++r) {
    at::Tensor x = tensor_of(numbers_of(r, length * num_ranks));
    if (as_bf16) x = x.to(at::kBFloat16).to(at::kFloat);
    all.emplace_back(x.const_data_ptr<float>(), x.const_data_ptr<float>() + x.numel());
  }
  std::vector<float> sums;
  for (int64_t i = rank * length; i < (rank + 1) * length; ++i) {
    std::vector<float> column;
    for (const auto& numbers : all) column.push_back(numbers[static_cast<size_t>(i)]);
    sums.push_back(sum_along_tree(column, as_bf16));
  }
  return tensor_of(sums);
}

/// Runs `body` on every rank and gives back the message of the PeerError that each one got.
std::vector<std::string> peer_errors(int num_ranks,
                                     const std::function<void(Communicator&)>& body) {
  std::vector<std::string> messages(static_cast<size_t>(num_ranks), "no error");
  const auto listening = [&](Communicator& world) {
    try {
      body(world);
    } catch (const PeerError& error) {
      messages[static_cast<size_t>(world.rank())] = error.what();
      throw;
    }
  };
  CHECK_THROWS_AS(run_on_threads(num_ranks, listening), PeerError);
  return messages;
}

}  // namespace

TEST_CASE("reduce_scatter adds along the tree over ranks, bit for bit, again and again") {
  const int num_ranks = GENERATE(1, 2, 3, 4);
  const int64_t length = GENERATE(1, 7, 4099);
  run_on_threads(num_ranks, [&](Communicator& world) {
    const at::Tensor in = tensor_of(numbers_of(world.rank(), length * num_ranks));
    const at::Tensor kept = in.clone(), out = at::empty({length}), again = at::empty({length});
    world.reduce_scatter(out, in)->wait();
    require(same_bits(out, expected_slice(world.rank(), num_ranks, length, false)),
            "the tree's order");
    require(same_bits(in, kept), "the input is untouched");
    world.reduce_scatter(again, in)->wait();
    require(same_bits(out, again), "the same bits on a rerun");
    const at::Tensor own = in.narrow(0, world.rank() * length, length);
    world.reduce_scatter(own, in)->wait();
    require(same_bits(own, out), "into this rank's own slice");
  });
}

TEST_CASE("reduce_scatter of bfloat16 adds in float32 and rounds each addition") {
  const int num_ranks = GENERATE(2, 3, 4);
  constexpr int64_t kLength = 513;
  run_on_threads(num_ranks, [&](Communicator& world) {
    const at::Tensor in =
        tensor_of(numbers_of(world.rank(), kLength * num_ranks)).to(at::kBFloat16);
    const at::Tensor out = at::empty({kLength}, at::kBFloat16);
    world.reduce_scatter(out, in)->wait();
    const at::Tensor expected = expected_slice(world.rank(), num_ranks, kLength, true);
    require(same_bits(out, expected.to(at::kBFloat16)), "bfloat16 sums");
  });
}

TEST_CASE("all_gather puts the ranks' pieces one after the other") {
  const int num_ranks = GENERATE(1, 2, 3, 4);
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16, at::kLong);
  constexpr int64_t kLength = 33;
  run_on_threads(num_ranks, [&](Communicator& world) {
    const at::Tensor expected = at::arange(num_ranks * kLength).to(dtype);
    const auto own = [&](const at::Tensor& whole) {
      return whole.narrow(0, world.rank() * kLength, kLength);
    };
    const at::Tensor out = at::zeros({num_ranks * kLength}, dtype);
    world.all_gather(out, own(expected).clone())->wait();
    require(same_bits(out, expected), "gathered from elsewhere");
    const at::Tensor in_place = at::zeros({num_ranks * kLength}, dtype);
    own(in_place).copy_(own(expected));
    world.all_gather(in_place, own(in_place))->wait();
    require(same_bits(in_place, expected), "gathered from its own slice");
  });
}

TEST_CASE("all_to_all hands piece r to rank r, and broadcast gives everyone the root's") {
  const int num_ranks = GENERATE(1, 2, 3, 4);
  run_on_threads(num_ranks, [&](Communicator& world) {
    const int rank = world.rank();
    const at::Tensor in = at::arange(num_ranks * 2) + 100 * rank,
                     out = at::zeros({num_ranks * 2}, at::kLong);
    world.all_to_all(out, in)->wait();
    for (int r = 0; r < num_ranks; ++r) {
      require(out[2 * r].item<int64_t>() == 100 * r + 2 * rank, "first of a piece");
      require(out[2 * r + 1].item<int64_t>() == 100 * r + 2 * rank + 1, "second of a piece");
    }
    for (int root = 0; root < num_ranks; ++root) {
      const at::Tensor tensor = at::full({5}, rank, at::kFloat);
      world.broadcast(tensor, root);
      require(same_bits(tensor, at::full({5}, root, at::kFloat)), "the root's tensor");
    }
  });
}

TEST_CASE("empty tensors travel too") {
  const int num_ranks = GENERATE(1, 2, 3);
  run_on_threads(num_ranks, [&](Communicator& world) {
    const at::Tensor out = at::empty({0}), in = at::empty({0});
    world.reduce_scatter(out, in)->wait();
    world.all_gather(out, in)->wait();
    world.all_to_all(out, in)->wait();
    world.broadcast(out, 0);
    world.barrier();
    require(world.payload_bytes() == 0, "nothing moved");
  });
}

TEST_CASE("several collectives and control gathers may be under way at once") {
  const int num_ranks = GENERATE(2, 3, 4);
  constexpr int64_t kLength = 200003;
  run_on_threads(num_ranks, [&](Communicator& world) {
    std::vector<at::Tensor> outs;
    std::vector<std::unique_ptr<zerolab::Work>> works;
    for (int i = 0; i < 5; ++i) {
      outs.push_back(at::zeros({num_ranks * kLength}));
      works.push_back(world.all_gather(
          outs.back(),
          at::full({kLength}, 10.0F * static_cast<float>(i) + static_cast<float>(world.rank()))));
      const auto all = world.gather_control(std::vector<double>{world.rank() + 0.5});
      require(all[static_cast<size_t>(num_ranks - 1)] == num_ranks - 0.5, "control beside data");
    }
    for (size_t i = works.size(); i-- > 0;) {
      works[i]->wait();
      for (int r = 0; r < num_ranks; ++r) {
        const at::Tensor piece = outs[i].narrow(0, r * kLength, kLength);
        require((piece == 10.0F * static_cast<float>(i) + static_cast<float>(r)).all().item<bool>(),
                "waited backwards");
      }
    }
  });
}

TEST_CASE("counters hold exactly the bytes that a rank sends") {
  const int num_ranks = GENERATE(1, 2, 3, 4);
  constexpr int64_t kLength = 1000;
  run_on_threads(num_ranks, [&](Communicator& world) {
    const at::Tensor whole = at::ones({num_ranks * kLength}), slice = at::ones({kLength});
    const at::Tensor half = at::ones({kLength}, at::kBFloat16),
                     whole_half = at::ones({num_ranks * kLength}, at::kBFloat16);
    const auto bytes = [&](CollectiveKind kind) { return world.counters(kind).bytes; };
    const int64_t others = num_ranks - 1;
    world.reduce_scatter(slice, whole)->wait();
    require(bytes(CollectiveKind::kReduceScatter) == others * kLength * 4, "reduce_scatter");
    world.all_gather(whole_half, half)->wait();
    require(bytes(CollectiveKind::kAllGather) == others * kLength * 2, "all_gather");
    world.all_to_all(at::empty_like(whole), whole)->wait();
    require(bytes(CollectiveKind::kAllToAll) == others * kLength * 4, "all_to_all");
    world.broadcast(slice, 0);
    require(bytes(CollectiveKind::kBroadcast) == (world.rank() == 0 ? others * kLength * 4 : 0),
            "broadcast");
    world.reset_counters();
    require(world.payload_bytes() == 0, "after a reset");
  });
}

TEST_CASE("a control gather of any length comes rank after rank") {
  const int num_ranks = GENERATE(1, 2, 3, 4);
  const int64_t length = GENERATE(0, 1, 27, 28, 1000);
  run_on_threads(num_ranks, [&](Communicator& world) {
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < length; ++i) numbers.push_back(world.rank() * 10000 + i);
    const auto all = world.gather_control(numbers);
    require(static_cast<int64_t>(all.size()) == num_ranks * length, "length");
    for (size_t i = 0; i < all.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      require(all[i] == (at / length) * 10000 + at % length, "order");
    }
  });
}

TEST_CASE("ranks that call different collectives all learn which") {
  const int num_ranks = GENERATE(2, 3, 4);
  const int odd = num_ranks - 1;
  const at::Tensor small = at::ones({4}), in = at::ones({4 * num_ranks});
  std::function<void(Communicator&)> usual = [&](Communicator& world) {
    world.reduce_scatter(at::empty({4}), in.clone(), "gradients of bucket 3")->wait();
  };
  std::function<void(Communicator&)> other;
  std::string expected;
  SECTION("another operation") {
    other = [&](Communicator& world) {
      world.all_gather(at::empty({4 * num_ranks}), small)->wait();
    };
    expected = "all_gather of 4 Float";
  }
  SECTION("another size") {
    other = [&](Communicator& world) {
      world.reduce_scatter(at::empty({5}), at::ones({5 * num_ranks}))->wait();
    };
    expected = "reduce_scatter of " + std::to_string(5 * num_ranks) + " Float";
  }
  SECTION("another dtype") {
    other = [&](Communicator& world) {
      world.reduce_scatter(at::empty({4}, at::kBFloat16), in.to(at::kBFloat16))->wait();
    };
    expected = "reduce_scatter of " + std::to_string(4 * num_ranks) + " BFloat16";
  }
  SECTION("another purpose") {
    other = [&](Communicator& world) {
      world.reduce_scatter(at::empty({4}), in.clone(), "gradients of bucket 4")->wait();
    };
    expected =
        "reduce_scatter of " + std::to_string(4 * num_ranks) + " Float (gradients of bucket 4)";
  }
  SECTION("a purpose that takes more than its room") {
    const std::string purpose = "gathered for " + std::string(187, 'x');  // of 200 characters
    other = [&world_size = num_ranks, &small, purpose](Communicator& world) {
      world.all_gather(at::empty({4 * world_size}), small, purpose + std::string(100, 'y'))->wait();
    };
    expected = "all_gather of 4 Float (" + purpose;
  }
  SECTION("a control gather") {
    other = [&](Communicator& world) { world.gather_control(std::vector<int64_t>(100)); };
    expected = "control of 100";
  }
  const auto messages = peer_errors(
      num_ranks, [&](Communicator& world) { (world.rank() == odd ? other : usual)(world); });
  for (const std::string& message : messages) {
    INFO(message);
    CHECK(message.find("rank 0 calls reduce_scatter of " + std::to_string(4 * num_ranks) +
                       " Float (gradients of bucket 3)") != std::string::npos);
    CHECK(message.find("rank " + std::to_string(odd) + " calls " + expected) != std::string::npos);
  }
}

TEST_CASE("a rank that throws ends the others, and its exception is the one that comes out") {
  const int num_ranks = GENERATE(2, 3, 4);
  const auto body = [&](Communicator& world) {
    world.barrier();
    if (world.rank() == 1) throw std::runtime_error("the disk is full");
    for (;;) world.all_gather(at::empty({num_ranks * 10}), at::ones({10}))->wait();
  };
  CHECK_THROWS_WITH(run_on_threads(num_ranks, body), "the disk is full");
}

TEST_CASE("after a peer is gone every further call fails at once, with the same sentence") {
  std::vector<std::string> messages;
  const auto body = [&](Communicator& world) {
    if (world.rank() == 1) throw std::runtime_error("gone");
    for (int i = 0; i < 3; ++i) {
      try {
        for (;;) world.all_gather(at::empty({20}), at::ones({10}))->wait();
      } catch (const PeerError& error) {
        messages.emplace_back(error.what());
      }
    }
  };
  CHECK_THROWS_WITH(run_on_threads(2, body), "gone");
  REQUIRE(messages.size() == 3);
  INFO(messages[0]);
  CHECK(messages[0].find("lost the connection to rank 1 in ") == 0);
  CHECK(messages[1] == messages[0]);
  CHECK(messages[2] == messages[0]);
}

TEST_CASE("giving up a collective before its end makes the group unusable, not wrong") {
  std::string message;
  const auto body = [&](Communicator& world) {
    const at::Tensor out = at::empty({20}), in = at::ones({10});
    world.all_gather(out, in);
    if (world.rank() == 1) return;
    try {
      world.barrier();
    } catch (const PeerError& error) {
      message = error.what();
      throw;
    }
  };
  CHECK_THROWS_AS(run_on_threads(2, body), PeerError);
  CHECK(message == "all_gather was given up before its end");
}
