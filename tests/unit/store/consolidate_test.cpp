#include "store/consolidate.h"

#include "zerolab/error.h"

#include "catch.h"
#include "faulty_files.h"
#include "scratch.h"
#include "store/safetensors.h"
#include "store/whole_file.h"
#include "whole_samples.h"

namespace zerolab {
namespace {

using Catch::Matchers::Contains;
namespace fs = std::filesystem;

const std::string kHdf5 = "whole.h5", kSafe = "whole.safetensors";

ConsolidateRequest request_of(const std::string& file) {
  return {file, file == kHdf5 ? WholeFormat::kHdf5 : WholeFormat::kSafetensors, true, false};
}

std::string value_of(const SealedPiece& piece, const fs::path& file) {
  std::string bytes(static_cast<size_t>(piece.info.length * dtype_size(piece.info.dtype)), '\0');
  read_elements(file, piece.info, piece.chunks, 0, piece.info.length, bytes.data());
  return bytes;
}

}  // namespace

TEST_CASE("a consolidated HDF5 file holds every tensor whole, with type, shape and every bit") {
  const ScratchFolder scratch;
  const std::vector<WholeSample> samples = whole_samples();
  const CheckpointReader checkpoint(save_whole("run", samples));
  const ConsolidatedFile written = consolidate(checkpoint, request_of(kHdf5), {});
  CHECK(written.tensors == static_cast<int64_t>(samples.size()));
  CHECK(written.bytes == static_cast<int64_t>(fs::file_size(kHdf5)));
  CHECK_FALSE(fs::exists(kHdf5 + ".partial"));
  const std::vector<SealedPiece> found = find_whole_tensors(kHdf5);
  REQUIRE(found.size() == samples.size());
  for (const SealedPiece& piece : found) {
    const WholeSample& sample = sample_of(samples, piece.info.parameter, piece.info.state);
    CHECK(piece.info.dtype == sample.info.dtype);
    CHECK(piece.info.shape == sample.info.shape);
    CHECK((value_of(piece, kHdf5) == sample.bytes));
  }
}

TEST_CASE("a consolidated HDF5 file is the one that a single rank would have written") {
  const ScratchFolder scratch;
  const std::vector<WholeSample> samples = whole_samples();
  const CheckpointReader checkpoint(save_whole("run", samples));
  consolidate(checkpoint, request_of(kHdf5), {});
  std::vector<PieceData> pieces;
  for (const PieceInfo& tensor : checkpoint.tensors()) {
    const WholeSample& sample = sample_of(samples, tensor.parameter, tensor.state);
    pieces.push_back({sample.info, sample.bytes.data()});
  }
  write_checkpoint_file(real_files(), "single.h5", {7, 0, 1}, pieces, {});
  CHECK((read_file(kHdf5) == read_file("single.h5")));
}

TEST_CASE("a consolidated safetensors file holds parameters, and states only if asked for") {
  const ScratchFolder scratch;
  const std::vector<WholeSample> samples = whole_samples();
  const CheckpointReader checkpoint(save_whole("run", samples));
  ConsolidateRequest request = request_of(kSafe);
  request.states = GENERATE(false, true);
  consolidate(checkpoint, request, {});
  const SafetensorsHeader header = read_safetensors_header(kSafe);
  CHECK(header.metadata.at("format") == "pt");
  CHECK(header.metadata.at("step") == "7");
  CHECK(header.metadata.at("run") == "sample");
  CHECK(header.metadata.at("model") == "model/any 1.2.0");
  CHECK(header.metadata.at(kStatesKey) == (request.states ? "exp_avg" : ""));
  CHECK(header.tensors.size() == samples.size() - (request.states ? 0 : 1));
  for (const SafeTensor& tensor : header.tensors) {
    const bool is_state = tensor.name == "wte.weight.exp_avg";
    const WholeSample& sample =
        is_state ? sample_of(samples, "wte.weight", "exp_avg") : sample_of(samples, tensor.name);
    std::string bytes(static_cast<size_t>(tensor.bytes), '\0');
    read_safetensors(kSafe, header, tensor, 0, tensor.bytes / dtype_size(tensor.dtype),
                     bytes.data());
    CHECK(tensor.dtype == sample.info.dtype);
    CHECK(tensor.shape == sample.info.shape);
    CHECK((bytes == sample.bytes));
  }
}

TEST_CASE("damage in a checkpoint is named by file and tensor, and no consolidated file is left") {
  const ScratchFolder scratch;
  const fs::path folder = save_whole("run", whole_samples());
  damage(folder, 1, "long");
  const CheckpointReader checkpoint(folder);
  const std::string file = GENERATE(kHdf5, kSafe);
  CHECK_THROWS_WITH(consolidate(checkpoint, request_of(file), {}),
                    Contains("rank-0001.h5") && Contains("'long'") && Contains("checksum"));
  CHECK_FALSE(fs::exists(file));
  CHECK_FALSE(fs::exists(file + ".partial"));
}

TEST_CASE(
    "a file that is there is overwritten only if that is asked for, and whole or not at all") {
  const ScratchFolder scratch;
  const CheckpointReader checkpoint(save_whole("run", whole_samples()));
  ConsolidateRequest request = request_of(GENERATE(kHdf5, kSafe));
  std::ofstream(request.file) << "mine";
  std::ofstream(request.file.string() + ".partial") << "of a killed process";
  CHECK_THROWS_WITH(consolidate(checkpoint, request, {}), Contains("is there already"));
  CHECK(read_file(request.file) == "mine");
  request.overwrite = true;
  consolidate(checkpoint, request, {});
  CHECK(fs::file_size(request.file) > 1000);
  CHECK_FALSE(fs::exists(request.file.string() + ".partial"));
}

TEST_CASE("whichever call fails while it is written, a consolidated file is an error or whole") {
  const ScratchFolder scratch;
  const CheckpointReader checkpoint(
      save_whole("run", {whole_sample("w", "parameter", {4}, TensorDtype::kFloat32, 4)}));
  ConsolidateRequest request = request_of(GENERATE(kHdf5, kSafe));
  request.overwrite = true;
  FaultyFiles counting(0);
  consolidate(checkpoint, request, {}, counting);
  REQUIRE(counting.num_calls() >= 5);
  const std::string whole = read_file(request.file);
  for (int call = 1; call <= counting.num_calls(); ++call) {
    CAPTURE(call);
    std::ofstream(request.file) << "before";
    FaultyFiles faulty(call);
    CHECK_THROWS_AS(consolidate(checkpoint, request, {}, faulty), StoreError);
    // The last call syncs the folder, when the file has its name.
    CHECK((read_file(request.file) == (call == counting.num_calls() ? whole : "before")));
    CHECK_FALSE(fs::exists(request.file.string() + ".partial"));
  }
}

TEST_CASE("progress of consolidating counts all bytes of values, to the last") {
  const ScratchFolder scratch;
  const CheckpointReader checkpoint(save_whole("run", whole_samples()));
  int64_t last = 0, all = 0, calls = 0;
  consolidate(checkpoint, request_of(kSafe), [&](int64_t done, int64_t total) {
    CHECK(done > last);
    last = done;
    all = total;
    ++calls;
  });
  CHECK(last == all);
  CHECK(calls > 9);
}

}  // namespace zerolab
