#include "store/manifest.h"

#include <cmath>
#include <cstring>
#include <fstream>

#include "zerolab/error.h"

#include "catch.h"
#include "scratch.h"
#include "store/xxh128.h"

namespace zerolab {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

bool same_bits(double a, double b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

SealedFile sealed_file(int rank) {
  const PieceInfo weight{"blocks.0.weight",     "parameter",    {3000000, 2},
                         TensorDtype::kFloat32, rank * 3000000, 3000000};
  const PieceInfo moment{"blocks.0.weight",      "first \"moment\"", {3000000, 2},
                         TensorDtype::kBFloat16, rank * 3000000,     3000000};
  const PieceInfo scalar{"temperature", "parameter", {}, TensorDtype::kFloat64, 0, 1};
  const PieceInfo empty{"nothing", "parameter", {0, 4}, TensorDtype::kInt32, 0, 0};
  SealedFile file{"rank-000" + std::to_string(rank) + ".h5", 90000000, xxh128("abc"), {}, {}};
  file.pieces.push_back({weight, {{2048, 8390660}}});
  file.pieces.push_back({moment, {{20000000}}});
  if (rank == 1) file.pieces.push_back({scalar, {{70000000}}});
  if (rank == 1) file.pieces.push_back({empty, {}});
  file.local.push_back({{"residual/é", TensorDtype::kUInt8, 3}, {{80000000}}});
  return file;
}

CheckpointManifest sample() {
  CheckpointManifest manifest;
  TrainingPoint& point = manifest.point;
  point.step = 500;
  point.applied_updates = 498;
  point.skipped_steps = 2;
  point.tokens = 1234567890123456789;
  point.next_sample = 16000;
  point.seed = 0xffffffffffffffff;
  point.precision = {{"loss_scale", 65536}, {"good_steps", 0.1}};
  point.recent_losses = {4.174387269895637,
                         -0.0,
                         1e300,
                         5e-324,
                         std::numeric_limits<double>::infinity(),
                         -std::numeric_limits<double>::infinity(),
                         9007199254740993.0 * 1024};
  point.skips_in_a_row = 2;
  point.rollbacks = 1;
  manifest.run = {"tiny \"one\"", 2, 3, 24, 4, 3, xxh128("samples")};
  manifest.created = "2026-11-30T18:51:04Z";
  manifest.plugins["model"] = {"model/some", "1.2.0", xxh128("so")};
  manifest.plugins["data"] = {"data/other", "0.1.0", xxh128("os")};
  manifest.files = {sealed_file(0), sealed_file(1)};
  manifest.texts = {{"config.resolved.toml", 10, xxh128("steps = 3\n")}};
  return manifest;
}

void check_same(const PieceInfo& a, const PieceInfo& b) {
  CHECK(a.parameter == b.parameter);
  CHECK(a.state == b.state);
  CHECK(a.shape == b.shape);
  CHECK(a.dtype == b.dtype);
  CHECK(a.offset == b.offset);
  CHECK(a.length == b.length);
}

void check_same(const SealedFile& a, const SealedFile& b) {
  CHECK(a.name == b.name);
  CHECK(a.bytes == b.bytes);
  CHECK(a.xxh128 == b.xxh128);
  REQUIRE(a.pieces.size() == b.pieces.size());
  for (size_t i = 0; i < a.pieces.size(); ++i) {
    check_same(a.pieces[i].info, b.pieces[i].info);
    CHECK(a.pieces[i].chunks.begin == b.pieces[i].chunks.begin);
  }
  REQUIRE(a.local.size() == b.local.size());
  for (size_t i = 0; i < a.local.size(); ++i) {
    CHECK(a.local[i].info.name == b.local[i].info.name);
    CHECK(a.local[i].info.dtype == b.local[i].info.dtype);
    CHECK(a.local[i].info.length == b.local[i].info.length);
    CHECK(a.local[i].chunks.begin == b.local[i].chunks.begin);
  }
}

bool refused(const std::string& text) {
  try {
    parse_checkpoint_manifest(text, "manifest.json");
  } catch (const StoreError&) {
    return true;
  }
  return false;
}

/// The sample's text with a part replaced, under a checksum that is right.
std::string forged(const std::string& part, const std::string& by) {
  std::string text = write_checkpoint_manifest(sample());
  text.erase(text.rfind("  \"xxh128_of_the_above\""));
  const size_t at = text.find(part);
  if (at == std::string::npos) throw std::runtime_error("no " + part + " in\n" + text);
  text.replace(at, part.size(), by);
  return text + "  \"xxh128_of_the_above\": \"" + xxh128(text) + "\"\n}\n";
}

}  // namespace

TEST_CASE("a manifest reads back as it was written, numbers to the bit") {
  const CheckpointManifest saved = sample();
  const CheckpointManifest read =
      parse_checkpoint_manifest(write_checkpoint_manifest(saved), "manifest.json");
  CHECK(read.point.step == 500);
  CHECK(read.point.applied_updates == 498);
  CHECK(read.point.skipped_steps == 2);
  CHECK(read.point.tokens == 1234567890123456789);
  CHECK(read.point.next_sample == 16000);
  CHECK(read.point.seed == 0xffffffffffffffff);
  CHECK(std::isnan(read.point.val_loss));
  CHECK(read.point.precision == saved.point.precision);
  REQUIRE(read.point.recent_losses.size() == saved.point.recent_losses.size());
  for (size_t i = 0; i < saved.point.recent_losses.size(); ++i)
    CHECK(same_bits(read.point.recent_losses[i], saved.point.recent_losses[i]));
  CHECK(read.point.skips_in_a_row == 2);
  CHECK(read.point.rollbacks == 1);
  CHECK(read.run.name == "tiny \"one\"");
  CHECK(read.run.ranks == 2);
  CHECK(read.run.threads_per_rank == 3);
  CHECK(read.run.total_batch_size == 24);
  CHECK(read.run.micro_batch_size == 4);
  CHECK(read.run.gradient_accumulation_steps == 3);
  CHECK(read.run.data_xxh128 == xxh128("samples"));
  CHECK(read.created == "2026-11-30T18:51:04Z");
  REQUIRE(read.plugins.size() == 2);
  CHECK(read.plugins.at("model").id == "model/some");
  CHECK(read.plugins.at("data").version == "0.1.0");
  CHECK(read.plugins.at("data").xxh128 == xxh128("os"));
  REQUIRE(read.files.size() == 2);
  check_same(read.files[0], saved.files[0]);
  check_same(read.files[1], saved.files[1]);
  REQUIRE(read.texts.size() == 1);
  CHECK(read.texts[0].name == "config.resolved.toml");
  CHECK(read.texts[0].bytes == 10);
  CHECK(read.texts[0].xxh128 == xxh128("steps = 3\n"));
  CHECK(write_checkpoint_manifest(read) == write_checkpoint_manifest(saved));
}

TEST_CASE("a validation loss is kept to the bit") {
  CheckpointManifest saved = sample();
  saved.point.val_loss = 1.8814570903778076;
  CHECK(same_bits(parse_checkpoint_manifest(write_checkpoint_manifest(saved), "m").point.val_loss,
                  1.8814570903778076));
}

TEST_CASE("an empty manifest reads back too") {
  const CheckpointManifest read =
      parse_checkpoint_manifest(write_checkpoint_manifest({}), "manifest.json");
  CHECK(read.files.empty());
  CHECK(read.plugins.empty());
  CHECK(read.point.step == 0);
}

TEST_CASE("a rank's sealed file reads back as it was written") {
  check_same(parse_sealed_file(write_sealed_file(sealed_file(1))), sealed_file(1));
  CHECK_THROWS_AS(parse_sealed_file("{}"), StoreError);
  CHECK_THROWS_AS(parse_sealed_file("not JSON"), StoreError);
}

TEST_CASE("pieces that differ about a tensor's shape are both written as they are") {
  CheckpointManifest saved = sample();
  saved.files[1].pieces[0].info.shape = {2, 3000000};
  const CheckpointManifest read =
      parse_checkpoint_manifest(write_checkpoint_manifest(saved), "manifest.json");
  CHECK(read.files[0].pieces[0].info.shape == std::vector<int64_t>{3000000, 2});
  CHECK(read.files[1].pieces[0].info.shape == std::vector<int64_t>{2, 3000000});
}

TEST_CASE("the last line is the checksum of what stands above it") {
  const std::string text = write_checkpoint_manifest(sample());
  const size_t last = text.rfind("  \"xxh128_of_the_above\": \"");
  CHECK(text.substr(last) ==
        "  \"xxh128_of_the_above\": \"" + xxh128(text.substr(0, last)) + "\"\n}\n");
  CHECK_THAT(text, StartsWith("{\n  \"format\": \"zerolab-checkpoint\",\n  \"format_version\": 1,\n"
                              "  \"step\": 500,\n"));
}

TEST_CASE("any single flipped bit of a manifest is refused") {
  std::string text = write_checkpoint_manifest(sample());
  int64_t accepted = 0;
  for (char& byte : text) {
    for (int bit = 0; bit < 8; ++bit) {
      byte = static_cast<char>(byte ^ (1 << bit));
      accepted += !refused(text);
      byte = static_cast<char>(byte ^ (1 << bit));
    }
  }
  CHECK(accepted == 0);
  CHECK_FALSE(refused(text));
}

TEST_CASE("a manifest that was cut off anywhere, or goes on, is refused") {
  const std::string text = write_checkpoint_manifest(sample());
  int64_t accepted = 0;
  for (size_t size = 0; size < text.size(); ++size) accepted += !refused(text.substr(0, size));
  CHECK(accepted == 0);
  for (const char* more : {"\n", " ", "}", "{}\n"}) CHECK(refused(text + more));
  CHECK(refused(text + std::string(1, '\0')));
}

TEST_CASE("a damaged manifest is refused with its file and what to do") {
  std::string text = write_checkpoint_manifest(sample());
  text[40] = '?';
  CHECK_THROWS_WITH(
      parse_checkpoint_manifest(text, "runs/a-1/checkpoints/step-000000500/manifest.json"),
      StartsWith("runs/a-1/checkpoints/step-000000500/manifest.json: is damaged") &&
          Contains("take another checkpoint"));
}

TEST_CASE("a newer format is refused before anything else is looked at") {
  CHECK_THROWS_WITH(
      parse_checkpoint_manifest(forged("\"format_version\": 1", "\"format_version\": 2"), "m"),
      Contains("format version 2") && Contains("reads version 1"));
}

TEST_CASE("a field that is missing, of another type or out of range is refused by its name") {
  struct Case {
    const char *part, *by, *named;
  };
  const Case cases[] = {
      {"\"zerolab-checkpoint\"", "\"zerolab-metrics\"", "'format'"},
      {"  \"step\": 500,\n", "", "'step'"},
      {"\"step\": 500", "\"step\": -1", "'step'"},
      {"\"step\": 500", "\"step\": 1.5", "'step'"},
      {"\"step\": 500", "\"step\": 9223372036854775808", "'step'"},
      {"\"ranks\": 2", "\"ranks\": 0", "'run.ranks'"},
      {"\"ranks\": 2", "\"ranks\": 4294967297", "'run.ranks'"},
      {"\"seed\": 18446744073709551615", "\"seed\": 18446744073709551616", "'training.seed'"},
      {"\"val_loss\": null", "\"val_loss\": \"nan\"", "'training.val_loss'"},
      {"\"loss_scale\": 65536", "\"loss_scale\": {}", "'training.precision.loss_scale'"},
      {"[4.174387269895637", "[[]", "'training.recent_losses[0]'"},
      {"\"id\": \"data/other\"", "\"id\": 3", "'plugins.data.id'"},
      {"\"name\": \"rank-0000.h5\"", "\"name\": \"../rank-0000.h5\"", "'files[0].name'"},
      {"\"name\": \"rank-0001.h5\"", "\"name\": \"/etc/passwd\"", "'files[1].name'"},
      {"\"name\": \"config.resolved.toml\"", "\"name\": \"..\"", "'texts[0].name'"},
      {"\"dtype\": \"float32\"", "\"dtype\": \"float31\"", "'tensors[0].dtype'"},
      {"[3000000, 2]", "[3000000, -2]", "'tensors[0].shape[1]'"},
      {"[3000000, 2]", "[4611686018427387904, 2]", "'tensors[0].shape'"},
      {"[0, 0, 3000000, [2048", "[9, 0, 3000000, [2048", "'files[0].pieces[0][0]'"},
      {"[0, 0, 3000000, [2048", "[0, 3000001, 3000000, [2048", "'files[0].pieces[0][2]'"},
      {"[0, 0, 3000000, [2048", "[0, 0, 6000001, [2048", "'files[0].pieces[0][2]'"},
      {"[2048, 8390660]", "[2048]", "'files[0].pieces[0][3]'"},
      {"[2048, 8390660]", "[2048, 90000001]", "'files[0].pieces[0][3][1]'"},
      {"[0, 0, 3000000, [2048, 8390660]]", "[0, 0, 3000000]", "'files[0].pieces[0]'"},
      {"\"length\": 3", "\"length\": -3", "'files[0].local[0].length'"},
  };
  for (const Case& wrong : cases) {
    CAPTURE(wrong.part, wrong.by);
    CHECK_THROWS_AS(parse_checkpoint_manifest(forged(wrong.part, wrong.by), "m.json"), StoreError);
    CHECK_THROWS_WITH(parse_checkpoint_manifest(forged(wrong.part, wrong.by), "m.json"),
                      StartsWith("m.json: ") && Contains(wrong.named));
  }
  // So that the cases above fail for their own reasons.
  CHECK_FALSE(refused(forged("\"step\": 500", "\"step\": 501")));
}

TEST_CASE("a manifest that is not there is named, and so is a folder in its place") {
  const ScratchFolder folder;
  CHECK_THROWS_WITH(read_checkpoint_manifest("step-000000001"),
                    Contains("step-000000001/manifest.json") && Contains("No such file"));
  std::filesystem::create_directories("step-000000001/manifest.json");
  CHECK_THROWS_AS(read_checkpoint_manifest("step-000000001"), StoreError);
}

TEST_CASE("a text that is not as it was saved is refused by its name") {
  const ScratchFolder folder;
  const SavedText saved = saved_text("config.resolved.toml", "steps = 3\n");
  CHECK_THROWS_WITH(read_saved_text(folder.path(), saved),
                    Contains("config.resolved.toml") && Contains("No such file"));
  std::ofstream("config.resolved.toml") << "steps = 3\n";
  CHECK(read_saved_text(folder.path(), saved) == "steps = 3\n");
  std::ofstream("config.resolved.toml") << "steps = 4\n";
  CHECK_THROWS_WITH(read_saved_text(folder.path(), saved),
                    Contains("config.resolved.toml") && Contains("checksum"));
  std::ofstream("config.resolved.toml") << "steps = 33\n";
  CHECK_THROWS_WITH(read_saved_text(folder.path(), saved), Contains("size"));
}

}  // namespace zerolab
