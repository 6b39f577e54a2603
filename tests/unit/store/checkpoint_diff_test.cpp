#include "store/checkpoint_diff.h"

#include "zerolab/error.h"

#include "catch.h"
#include "scratch.h"
#include "whole_samples.h"

namespace zerolab {
namespace {

using Catch::Matchers::Contains;

float& float_at(WholeSample& sample, int64_t element) {
  return reinterpret_cast<float*>(sample.bytes.data())[element];
}

CheckpointDiff compare(const TensorSource& a, const TensorSource& b, double tolerance = 0,
                       bool parameters_only = false) {
  return diff_tensors(a, b, tolerance, parameters_only, {});
}

const TensorComparison& comparison_of(const CheckpointDiff& diff, const std::string& parameter,
                                      const std::string& state = kParameterState) {
  for (const TensorComparison& tensor : diff.tensors)
    if (tensor.parameter == parameter && tensor.state == state) return tensor;
  throw std::runtime_error("no comparison of " + parameter);
}

}  // namespace

TEST_CASE("a checkpoint is identical to itself, to a copy, and to its consolidated files") {
  const ScratchFolder scratch;
  const auto folder = save_whole("run", whole_samples());
  const TensorSource own = open_checkpoint_tensors(folder);
  const TensorSource copy = open_checkpoint_tensors(save_whole("copy", whole_samples()));
  const CheckpointReader reader(folder);
  consolidate(reader, {"w.h5", WholeFormat::kHdf5, true, false}, {});
  consolidate(reader, {"w.safetensors", WholeFormat::kSafetensors, true, false}, {});
  for (const TensorSource& other :
       {copy, open_whole_file("w.h5"), open_safetensors("w.safetensors")}) {
    const CheckpointDiff diff = compare(own, other);
    CHECK(diff.bit_identical());
    CHECK(diff.equal());
    CHECK(diff.tensors.size() == whole_samples().size());
  }
}

TEST_CASE("elements that differ are counted over all blocks, with the first and the largest") {
  const ScratchFolder scratch;
  std::vector<WholeSample> changed = whole_samples();
  WholeSample& tensor = changed.back();
  REQUIRE(tensor.info.parameter == "long");
  const int64_t first = kChunkBytes / 4 + 5, last = tensor.info.length - 1;
  float_at(tensor, first) += 0.5F;
  float_at(tensor, last) -= 2.0F;
  const CheckpointDiff diff = compare(open_checkpoint_tensors(save_whole("a", whole_samples())),
                                      open_checkpoint_tensors(save_whole("b", changed)));
  CHECK_FALSE(diff.equal());
  const TensorComparison& found = comparison_of(diff, "long");
  CHECK(found.found.differing == 2);
  CHECK(found.found.first == first);
  CHECK(found.found.largest == Approx(2.0));
  CHECK(comparison_of(diff, "wte.weight").identical());
}

TEST_CASE("a tolerance accepts differences up to itself, and no others") {
  const ScratchFolder scratch;
  std::vector<WholeSample> changed = whole_samples();
  float_at(changed.back(), 3) = 0.0F;
  const double distance = float_at(whole_samples().back(), 3);
  REQUIRE(distance > 0);
  const TensorSource a = open_checkpoint_tensors(save_whole("a", whole_samples()));
  const TensorSource b = open_checkpoint_tensors(save_whole("b", changed));
  CHECK(compare(a, b, distance).equal());
  CHECK_FALSE(compare(a, b, distance).bit_identical());
  CHECK_FALSE(compare(a, b, distance / 2).equal());
}

TEST_CASE("tensors that only one side has, or has in another form, differ at any tolerance") {
  const ScratchFolder scratch;
  std::vector<WholeSample> other = whole_samples();
  other[0].info.shape = {7, 30};
  other[2].info.dtype = TensorDtype::kBFloat16;
  other[3].info.parameter = "renamed";
  const CheckpointDiff diff = compare(open_checkpoint_tensors(save_whole("a", whole_samples())),
                                      open_checkpoint_tensors(save_whole("b", other)), 1e30);
  CHECK_FALSE(diff.equal());
  CHECK(diff.only_a == std::vector<std::string>{"'brain' (parameter)"});
  CHECK(diff.only_b == std::vector<std::string>{"'renamed' (parameter)"});
  CHECK(comparison_of(diff, "wte.weight").form_a == "float32 [30, 7]");
  CHECK(comparison_of(diff, "wte.weight").form_b == "float32 [7, 30]");
  CHECK(comparison_of(diff, "half").form_b == "bfloat16 [5, 1, 3]");
}

TEST_CASE("counters that differ are listed, and a validation loss does not count") {
  const ScratchFolder scratch;
  TrainingPoint point;
  point.val_loss = 2.5;
  const TensorSource plain = open_checkpoint_tensors(save_whole("a", whole_samples()));
  const CheckpointDiff result =
      compare(plain, open_checkpoint_tensors(save_whole("b", whole_samples(), point)));
  REQUIRE(result.counters.size() == 1);
  CHECK(result.counters[0].name == "val_loss");
  CHECK(result.bit_identical());
  point.tokens = 64;
  point.precision["loss_scale"] = 1024;
  const TensorSource later = open_checkpoint_tensors(save_whole("c", whole_samples(), point));
  const CheckpointDiff state = compare(plain, later, 1e30);
  CHECK(state.counters.size() == 3);
  CHECK_FALSE(state.bit_identical());
  CHECK_FALSE(state.equal());
  CHECK(compare(plain, later, 0, true).bit_identical());
}

TEST_CASE("only parameters are compared if that is asked for") {
  const ScratchFolder scratch;
  const auto folder = save_whole("run", whole_samples());
  consolidate(CheckpointReader(folder), {"p.safetensors", WholeFormat::kSafetensors, false, false},
              {});
  const TensorSource own = open_checkpoint_tensors(folder);
  const TensorSource file = open_safetensors("p.safetensors");
  CHECK(compare(own, file, 0, true).bit_identical());
  const CheckpointDiff all = compare(own, file);
  CHECK(all.only_a == std::vector<std::string>{"'wte.weight' (exp_avg)"});
  CHECK_FALSE(all.equal());
}

TEST_CASE("damage on either side is an error that names file and tensor") {
  const ScratchFolder scratch;
  const auto folder = save_whole("run", whole_samples());
  const TensorSource whole = open_checkpoint_tensors(save_whole("copy", whole_samples()));
  damage(folder, 0, "long");
  const TensorSource damaged = open_checkpoint_tensors(folder);
  CHECK_THROWS_WITH(compare(whole, damaged), Contains("rank-0000.h5") && Contains("'long'"));
  CHECK_THROWS_WITH(compare(damaged, whole), Contains("rank-0000.h5") && Contains("'long'"));
}

TEST_CASE("a file that holds parts of tensors is refused in place of whole ones") {
  const ScratchFolder scratch;
  const auto folder = save_whole("run", whole_samples());
  CHECK_THROWS_WITH(open_whole_file(folder / "rank-0000.h5"), Contains("consolidate"));
  std::ofstream("text.h5") << "no HDF5";
  CHECK_THROWS_WITH(open_whole_file("text.h5"), Contains("text.h5"));
}

}  // namespace zerolab
