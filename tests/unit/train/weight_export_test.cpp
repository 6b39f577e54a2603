#include "train/weight_export.h"

#include <fstream>
#include <memory>

#include <ATen/ops/empty.h>

#include "zerolab/error.h"

#include "catch.h"
#include "store/consolidate.h"
#include "store/safetensors.h"
#include "train/weight_match.h"
#include "train/weight_reader.h"
#include "train/weight_source.h"
#include "unit/store/scratch.h"
#include "weights.h"

namespace {

namespace fs = std::filesystem;
using zerolab::TensorDtype;
using zerolab::WeightLayout;

/// The small model; how large its vocabulary is was told when it was declared.
class SmallModel : public zerolab::Model {
 public:
  void declare(zerolab::Parameters& parameters, const zerolab::ModelContext& context) override {
    declare_small(parameters, context.vocab_size);
  }
  at::Tensor loss(const zerolab::Batch&, zerolab::Units&) override { return {}; }
  at::Tensor logits(const at::Tensor&, zerolab::Units&) override { return {}; }
  std::vector<WeightLayout> weight_layouts() const override {
    WeightLayout turned{"turned",
                        {{"x.embed", "words"},
                         {"x.a", "square", true},
                         {"x.b", "wide", true},
                         {"x.n", "norm"},
                         {"lm_head", "head"}},
                        {},
                        {}};
    WeightLayout plain = turned;
    plain.name = "plain";
    for (zerolab::ForeignWeight& weight : plain.weights) weight.transposed = false;
    return {turned, plain};
  }
};

zerolab::SavedModel saved_model() {
  return zerolab::declare_as_saved([] { return std::make_unique<SmallModel>(); }, {}, own_weights(),
                                   "RUN");
}

/// Every parameter of the model as it stands in a source.
std::vector<at::Tensor> values_of(const zerolab::TensorSource& source) {
  const zerolab::SavedModel saved = saved_model();
  const auto match =
      zerolab::match_weights(source, *saved.parameters, saved.model->weight_layouts(), "FILE");
  zerolab::WeightReader reader(source);
  std::vector<at::Tensor> values;
  for (size_t i = 0; i < saved.parameters->size(); ++i) {
    values.push_back(at::empty({saved.parameters->info(i).numel}));
    reader.read(match.origins[i].front(), 0, values.back());
  }
  return values;
}

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].equal(b[i])) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("the vocabulary's size is the one that gives the shapes of what was saved") {
  CHECK(saved_model().parameters->info(0).shape == std::vector<int64_t>{5, 3});
  zerolab::TensorSource source = own_weights();
  source.tensors.pop_back();
  CHECK_THROWS_AS(
      zerolab::declare_as_saved([] { return std::make_unique<SmallModel>(); }, {}, source, "RUN"),
      zerolab::ConfigError);
}

TEST_CASE("what is written in a layout is read back as it was, bit for bit") {
  const zerolab::ScratchFolder scratch;
  for (const std::string layout : {"", "turned", "plain"}) {
    CAPTURE(layout);
    const fs::path file = scratch.path() / (layout + ".safetensors");
    const auto written =
        zerolab::export_weights({file, layout, {}, false, {}}, saved_model(), own_weights());
    CHECK(written.bytes == static_cast<int64_t>(fs::file_size(file)));
    CHECK(written.tensors == (layout.empty() ? 4 : 5));  // strict readers want the tied one twice
    const zerolab::TensorSource read = zerolab::open_weights(file);
    CHECK(equal(values_of(read), values_of(own_weights())));
    const auto match = zerolab::match_weights(read, *saved_model().parameters,
                                              SmallModel().weight_layouts(), "FILE");
    CHECK(match.layout == layout);
  }
}

TEST_CASE("a turned matrix is written as its rows were columns") {
  const zerolab::ScratchFolder scratch;
  const fs::path file = scratch.path() / "w.safetensors";
  zerolab::export_weights({file, "turned", {}, false, {}}, saved_model(), own_weights());
  const zerolab::TensorSource source = zerolab::open_weights(file);
  for (const zerolab::SourceTensor& tensor : source.tensors) {
    if (tensor.info.parameter != "x.b") continue;
    CHECK(tensor.info.shape == std::vector<int64_t>{3, 6});
    std::vector<float> values(18);
    tensor.read(0, 18, values.data());
    CHECK(values[0] == 300);
    CHECK(values[1] == 303);
    CHECK(values[6] == 301);
  }
}

TEST_CASE("pieces of a turned matrix are read as its whole is") {
  zerolab::TensorSource source;
  add_tensor(source, "m", {3, 4});
  zerolab::WeightReader reader(source);
  const at::Tensor whole = at::empty({12}), piece = at::empty({5});
  reader.read({0, true}, 0, whole);
  reader.read({0, true}, 4, piece);
  CHECK(piece.equal(whole.narrow(0, 4, 5)));
  CHECK(whole.data_ptr<float>()[1] == 4);
}

TEST_CASE("another dtype is rounded on the way out, and exact on the way in") {
  const zerolab::ScratchFolder scratch;
  for (const TensorDtype dtype : {TensorDtype::kBFloat16, TensorDtype::kFloat16}) {
    const fs::path file =
        scratch.path() / (std::string(zerolab::dtype_name(dtype)) + ".safetensors");
    zerolab::export_weights({file, "turned", dtype, false, {}}, saved_model(), own_weights());
    const zerolab::TensorSource read = zerolab::open_weights(file);
    CHECK(read.tensors.front().info.dtype == dtype);
    const auto as = dtype == TensorDtype::kBFloat16 ? at::kBFloat16 : at::kHalf;
    std::vector<at::Tensor> rounded = values_of(own_weights());
    for (at::Tensor& values : rounded) values = values.to(as).to(at::kFloat);
    CHECK(equal(values_of(read), rounded));
  }
}

TEST_CASE("a file that is there stays unless it may be written over") {
  const zerolab::ScratchFolder scratch;
  const fs::path file = scratch.path() / "w.safetensors";
  std::ofstream(file) << "mine";
  CHECK_THROWS_AS(zerolab::export_weights({file, "", {}, false, {}}, saved_model(), own_weights()),
                  zerolab::ConfigError);
  CHECK(fs::file_size(file) == 4);
  zerolab::export_weights({file, "", {}, true, {}}, saved_model(), own_weights());
  CHECK(fs::file_size(file) > 4);
}

TEST_CASE("a layout that the model does not have is refused with those that it has") {
  try {
    zerolab::find_layout("pickle", saved_model());
    FAIL("it was found");
  } catch (const zerolab::ConfigError& error) {
    CHECK(std::string(error.what()).find("no layout 'pickle'; it has turned, plain") !=
          std::string::npos);
  }
}

TEST_CASE("a file that is none of weights is refused with what can be named") {
  const zerolab::ScratchFolder scratch;
  std::ofstream(scratch.path() / "model.pt") << "x";
  const auto refusal = [&](const std::string& name) -> std::string {
    try {
      zerolab::find_weights((scratch.path() / name).string(), "key 'init_from': ");
    } catch (const zerolab::ConfigError& error) {
      return error.what();
    }
    return "it was found";
  };
  CHECK(refusal("model.pt").find("weights are read from .safetensors files") != std::string::npos);
  CHECK(refusal("nothing").find("is not there; name a run's folder") != std::string::npos);
  CHECK(refusal("").find("holds no model.safetensors") != std::string::npos);
}

TEST_CASE("an index finds each tensor in its file, and says which is missing") {
  const zerolab::ScratchFolder scratch;
  const auto part = [&](const std::string& name, const std::string& layout) {
    zerolab::export_weights({scratch.path() / name, layout, {}, false, {}}, saved_model(),
                            own_weights());
  };
  part("model-1.safetensors", "");
  part("model-2.safetensors", "turned");
  const fs::path index = scratch.path() / "model.safetensors.index.json";
  std::ofstream(index) << R"({"weight_map": {"words": "model-1.safetensors",
    "x.b": "model-2.safetensors"}})";
  CHECK(zerolab::find_weights(scratch.path().string(), "") == index);
  const zerolab::TensorSource source = zerolab::open_weights(index);
  REQUIRE(source.tensors.size() == 2);
  CHECK(source.tensors[1].info.parameter == "x.b");
  CHECK(source.tensors[1].info.shape == std::vector<int64_t>{3, 6});
  std::ofstream(index) << R"({"weight_map": {"nothing": "model-1.safetensors"}})";
  CHECK_THROWS_AS(zerolab::open_weights(index), zerolab::StoreError);
  std::ofstream(index) << R"({"weight_map": {"words": "../model-1.safetensors"}})";
  CHECK_THROWS_AS(zerolab::open_weights(index), zerolab::StoreError);
}

TEST_CASE("an index of a file with optimizer states finds the weights in it") {
  const zerolab::ScratchFolder scratch;
  const auto write = [](const zerolab::SafeTensor& tensor, int64_t, int64_t, void* out) {
    *static_cast<float*>(out) = tensor.name == "w" ? 1.0F : 2.0F;
  };
  zerolab::write_safetensors(
      zerolab::real_files(), scratch.path() / "part.safetensors",
      {{"w", TensorDtype::kFloat32, {1}, 0, 0}, {"w.mean", TensorDtype::kFloat32, {1}, 0, 0}},
      {{zerolab::kStatesKey, "mean"}}, write);
  const fs::path index = scratch.path() / "model.safetensors.index.json";
  std::ofstream(index) << R"({"weight_map": {"w": "part.safetensors"}})";
  const zerolab::TensorSource source = zerolab::open_weights(index);
  REQUIRE(source.tensors.size() == 1);
  CHECK(source.tensors[0].info.state == zerolab::kParameterState);
  float value = 0;
  source.tensors[0].read(0, 1, &value);
  CHECK(value == 1);
}
