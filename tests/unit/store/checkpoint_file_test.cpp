#include "store/checkpoint_file.h"

#include <cstdlib>
#include <set>
#include <thread>

#include "zerolab/error.h"

#include "catch.h"
#include "checkpoint_samples.h"
#include "faulty_files.h"
#include "scratch.h"
#include "store/xxh128.h"

namespace zerolab {
namespace {

using Catch::Matchers::Contains;

template <typename Sealed>
std::string read_range(const Sealed& sealed, int64_t first, int64_t count) {
  // Guard bytes behind what is asked for.
  std::string out(static_cast<size_t>(count * dtype_size(sealed.info.dtype)) + 8, '#');
  read_elements("rank-0000.h5", sealed.info, sealed.chunks, first, count, out.data());
  CHECK(out.substr(out.size() - 8) == "########");
  out.resize(out.size() - 8);
  return out;
}

template <typename Sealed>
void check_values(const Sealed& sealed, const void* data) {
  const int64_t size = dtype_size(sealed.info.dtype), length = sealed.info.length;
  const std::string expected(static_cast<const char*>(data), static_cast<size_t>(length * size));
  CHECK((read_range(sealed, 0, length) == expected));
  const std::set<int64_t> firsts = {0, 1, length / 3, length / 2, length - 1};
  for (const int64_t first : firsts) {
    if (first < 0 || first >= length) continue;
    for (const int64_t count : {int64_t{0}, int64_t{1}, (length - first) / 2, length - first}) {
      CAPTURE(length, first, count);
      CHECK(
          (read_range(sealed, first, count) ==
           expected.substr(static_cast<size_t>(first * size), static_cast<size_t>(count * size))));
    }
  }
}

void check_round_trip(const SamplePieces& sample, const SealedFile& sealed) {
  CHECK(sealed.name == "rank-0000.h5");
  CHECK(sealed.bytes == static_cast<int64_t>(std::filesystem::file_size("rank-0000.h5")));
  CHECK(sealed.xxh128 == xxh128_of_file("rank-0000.h5"));
  CHECK(find_damage(".", sealed).empty());
  REQUIRE(sealed.pieces.size() == sample.pieces.size());
  for (size_t i = 0; i < sealed.pieces.size(); ++i) {
    CHECK(sealed.pieces[i].info.parameter == sample.pieces[i].info.parameter);
    CHECK(sealed.pieces[i].info.state == sample.pieces[i].info.state);
    CHECK(sealed.pieces[i].info.shape == sample.pieces[i].info.shape);
    CHECK(sealed.pieces[i].info.offset == sample.pieces[i].info.offset);
    check_values(sealed.pieces[i], sample.pieces[i].data);
  }
  REQUIRE(sealed.local.size() == sample.local.size());
  for (size_t i = 0; i < sealed.local.size(); ++i) {
    CHECK(sealed.local[i].info.name == sample.local[i].info.name);
    check_values(sealed.local[i], sample.local[i].data);
  }
}

std::string refusal_of(const SamplePieces& sample, FileLayer& files = real_files()) {
  try {
    sample.write(files);
  } catch (const StoreError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("types of tensors have names that read back") {
  for (const char* name :
       {"float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8"}) {
    CHECK(dtype_name(dtype_from_name(name)) == name);
  }
  CHECK(dtype_size(TensorDtype::kBFloat16) == 2);
  CHECK_THROWS_WITH(dtype_from_name("float"), Contains("'float'") && Contains("float32"));
}

TEST_CASE("pieces of every type, odd lengths and odd names come back as they were") {
  const ScratchFolder folder;
  const SamplePieces sample = small_sample();
  check_round_trip(sample, sample.write());
}

TEST_CASE("pieces of several chunks come back as they were, in any range") {
  const ScratchFolder folder;
  const SamplePieces sample = large_sample();
  const SealedFile sealed = sample.write();
  CHECK(sealed.pieces[0].chunks.begin.size() == 1);
  CHECK(sealed.pieces[1].chunks.begin.size() == 2);
  CHECK(sealed.pieces[2].chunks.begin.size() == 3);
  check_round_trip(sample, sealed);
  // Chunks are of one length, so none is mostly padding.
  CHECK(sealed.bytes < 5 * kChunkBytes + (128 << 10));
}

TEST_CASE("a checkpoint file without tensors is one too") {
  const ScratchFolder folder;
  check_round_trip(SamplePieces(), SamplePieces().write());
}

TEST_CASE("pieces without elements are left out") {
  const ScratchFolder folder;
  SamplePieces sample;
  sample.add("empty", "parameter", {0, 3}, TensorDtype::kFloat32, 0, 0);
  sample.add("a", "parameter", {3}, TensorDtype::kFloat32, 3, 0);
  sample.add("a", "parameter", {3}, TensorDtype::kFloat32, 0, 3);
  sample.add_local("none", TensorDtype::kFloat32, 0);
  const SealedFile sealed = sample.write();
  REQUIRE(sealed.pieces.size() == 1);
  CHECK(sealed.pieces[0].info.length == 3);
  CHECK(sealed.local.empty());
}

TEST_CASE("the same tensors give the same bytes") {
  const ScratchFolder folder;
  const SamplePieces sample = small_sample();
  CHECK(sample.write(real_files(), "a.h5").xxh128 == sample.write(real_files(), "b.h5").xxh128);
}

TEST_CASE("a checkpoint file that is there is not overwritten") {
  const ScratchFolder folder;
  std::ofstream("rank-0000.h5") << "mine";
  CHECK_THAT(refusal_of(small_sample()), Contains("rank-0000.h5: cannot be made: File exists."));
  CHECK(read_file("rank-0000.h5") == "mine");
}

TEST_CASE("pieces that cannot be are refused by name, and no file stays") {
  const ScratchFolder folder;
  SamplePieces sample;
  SECTION("outside of the tensor") {
    sample.add("wte", "exp_avg", {2, 3}, TensorDtype::kFloat32, 4, 3);
  }
  SECTION("before the tensor") {
    sample.add("wte", "exp_avg", {2, 3}, TensorDtype::kFloat32, -1, 3);
  }
  SECTION("of a tensor of more elements than there are numbers") {
    sample.add("wte", "exp_avg", {1ll << 40, 1ll << 40}, TensorDtype::kFloat32, 0, 1);
  }
  SECTION("twice") {
    sample.add("wte", "exp_avg", {2, 3}, TensorDtype::kFloat32, 0, 3);
    sample.add("wte", "exp_avg", {2, 3}, TensorDtype::kFloat32, 0, 3);
  }
  SECTION("without values") {
    sample.add("wte", "exp_avg", {2, 3}, TensorDtype::kFloat32, 0, 3);
    sample.pieces.back().data = nullptr;
  }
  CHECK_THAT(refusal_of(sample), Contains("rank-0000.h5") && Contains("'wte' (exp_avg)"));
  CHECK(folder.empty());
}

TEST_CASE("whichever call fails, a checkpoint file is an error and is gone") {
  const ScratchFolder folder;
  const SamplePieces sample = small_sample();
  int call = 1;
  for (; call < 1000; ++call) {
    FaultyFiles files(call);
    const std::string refusal = refusal_of(sample, files);
    CAPTURE(call);
    if (refusal.empty()) break;
    CHECK_THAT(refusal, Contains("rank-0000.h5") && Contains("No space left on device"));
    CHECK(folder.empty());
  }
  CHECK(call > 20);  // values and checksums of ten datasets alone
  CHECK(call < 1000);
  check_round_trip(sample, [&] {
    std::filesystem::remove("rank-0000.h5");
    return sample.write();
  }());
}

TEST_CASE("a disk that holds other bytes than were written is noticed") {
  class LyingFiles : public FileLayer {
   public:
    ssize_t write(int descriptor, const char* data, size_t size) override {
      std::string other(data, size);
      if (size > 1000) other[size / 2] ^= 1;
      return FileLayer::write(descriptor, other.data(), size);
    }
  } files;
  const ScratchFolder folder;
  CHECK_THAT(refusal_of(small_sample(), files), Contains("does not read back as it was written"));
  CHECK(folder.empty());
}

TEST_CASE("threads write checkpoint files of their own at the same time") {
  const ScratchFolder folder;
  const SamplePieces sample = small_sample();
  const std::string expected = sample.write(real_files(), "alone.h5").xxh128;
  std::vector<std::string> written(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < written.size(); ++i) {
    threads.emplace_back(
        [&, i] { written[i] = sample.write(real_files(), std::to_string(i) + ".h5").xxh128; });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(written == std::vector<std::string>(4, expected));
}

TEST_CASE("writes files for h5py_checkpoint_test.py", "[.][for-h5py]") {
  const char* const out = std::getenv("ZEROLAB_TEST_OUT");
  REQUIRE(out != nullptr);
  std::filesystem::current_path(out);
  for (const bool large : {false, true}) {
    const SamplePieces sample = large ? large_sample() : small_sample();
    const std::string name = large ? "large" : "small";
    sample.write(real_files(), name + ".h5");
    std::ofstream values(name + ".values", std::ios::binary);  // in the order of the file's pieces
    for (const PieceData& piece : sample.pieces)
      values.write(static_cast<const char*>(piece.data),
                   piece.info.length * dtype_size(piece.info.dtype));
  }
}

}  // namespace zerolab
