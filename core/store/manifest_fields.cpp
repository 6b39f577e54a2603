#include "store/manifest_fields.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "zerolab/error.h"

#include "store/chunk_grid.h"

namespace zerolab {

namespace {

using nlohmann::json;

/// A value with the way to it, which its errors name.
class Field {
 public:
  Field(const json& value, std::string where, std::string way = {})
      : value_(value), where_(std::move(where)), way_(std::move(way)) {}

  [[noreturn]] void fail(const std::string& has_to_be) const {
    throw StoreError(where_ + ": " + (way_.empty() ? "it" : "'" + way_ + "'") + " has to " +
                     has_to_be + "; nobody can use this checkpoint, so take another one.");
  }

  bool has(const std::string& key) const { return value_.contains(key); }
  Field member(const std::string& key) const {
    if (!value_.is_object()) fail("be an object");
    const auto at = value_.find(key);
    if (at == value_.end()) fail("have '" + key + "'");
    return {*at, where_, way_.empty() ? key : way_ + "." + key};
  }
  std::map<std::string, Field> members() const {
    if (!value_.is_object()) fail("be an object");
    std::map<std::string, Field> all;
    for (const auto& item : value_.items()) all.emplace(item.key(), member(item.key()));
    return all;
  }
  std::vector<Field> elements() const {
    if (!value_.is_array()) fail("be a list");
    std::vector<Field> all;
    all.reserve(value_.size());
    for (size_t i = 0; i < value_.size(); ++i)
      all.emplace_back(value_[i], where_, way_ + "[" + std::to_string(i) + "]");
    return all;
  }

  std::string text() const {
    if (!value_.is_string()) fail("be a text");
    return value_.get<std::string>();
  }
  /// A text that is the name of a file in the checkpoint's own folder.
  std::string file_name() const {
    const std::string name = text();
    if (name.empty() || name.front() == '.' ||
        name.find_first_of(std::string("/\0", 2)) != std::string::npos)
      fail("be a file's name, without a folder");
    return name;
  }
  int64_t whole(int64_t least = 0, int64_t most = std::numeric_limits<int64_t>::max()) const {
    // Numbers without a sign are unsigned, however small.
    if (value_.is_number_unsigned()) {
      const auto number = value_.get<uint64_t>();
      if (number <= static_cast<uint64_t>(most) && static_cast<int64_t>(number) >= least)
        return static_cast<int64_t>(number);
    }
    fail("be a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  uint64_t seed() const {
    if (!value_.is_number_unsigned()) fail("be a whole number below 2^64");
    return value_.get<uint64_t>();
  }
  double number() const {
    if (value_.is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (value_ == "Infinity") return std::numeric_limits<double>::infinity();
    if (value_ == "-Infinity") return -std::numeric_limits<double>::infinity();
    if (!value_.is_number()) fail("be a number, null, \"Infinity\" or \"-Infinity\"");
    return value_.get<double>();
  }
  std::vector<int64_t> wholes(int64_t most = std::numeric_limits<int64_t>::max()) const {
    std::vector<int64_t> all;
    for (const Field& element : elements()) all.push_back(element.whole(0, most));
    return all;
  }

 private:
  const json& value_;
  std::string where_, way_;
};

TensorDtype dtype(const Field& field) {
  try {
    return dtype_from_name(field.text());
  } catch (const StoreError&) {
    field.fail("be a known dtype");
  }
}

/// Elements of a tensor, whose bytes have to fit into a number.
int64_t num_elements(const Field& field, const std::vector<int64_t>& shape, TensorDtype dtype) {
  int64_t count = 1;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (const int64_t size : shape) {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &count) ||
        __builtin_mul_overflow(count, dtype_size(dtype), &bytes))
      field.fail("be smaller than memory can be");
  }
  return count;
}

ChunkPlaces chunks(const Field& field, int64_t length, TensorDtype dtype, int64_t file_bytes) {
  const int64_t expected = ChunkGrid(dtype, length).num_chunks;
  ChunkPlaces places{field.wholes(file_bytes)};
  if (static_cast<int64_t>(places.begin.size()) != expected)
    field.fail("have " + std::to_string(expected) + " addresses");
  return places;
}

/// Whole tensors: offset 0 and all their elements.
std::vector<PieceInfo> tensors(const Field& list) {
  std::vector<PieceInfo> all;
  for (const Field& field : list.elements()) {
    PieceInfo tensor{field.member("parameter").text(),
                     field.member("state").text(),
                     field.member("shape").wholes(),
                     dtype(field.member("dtype")),
                     0,
                     0};
    tensor.length = num_elements(field.member("shape"), tensor.shape, tensor.dtype);
    all.push_back(std::move(tensor));
  }
  return all;
}

SealedPiece piece(const Field& field, const std::vector<PieceInfo>& tensors, int64_t file_bytes) {
  const std::vector<Field> parts = field.elements();
  if (parts.size() != 4) field.fail("be [tensor, offset, length, [addresses]]");
  if (tensors.empty()) field.fail("be of a tensor");
  const int64_t last = static_cast<int64_t>(tensors.size()) - 1;
  SealedPiece piece{tensors[static_cast<size_t>(parts[0].whole(0, last))], {}};
  piece.info.offset = parts[1].whole(0, piece.info.length);
  piece.info.length = parts[2].whole(0, piece.info.length - piece.info.offset);
  piece.chunks = chunks(parts[3], piece.info.length, piece.info.dtype, file_bytes);
  return piece;
}

SealedLocal local(const Field& field, int64_t file_bytes) {
  SealedLocal local{{field.member("name").text(), dtype(field.member("dtype")), 0}, {}};
  local.info.length = field.member("length").whole(0, file_bytes);
  local.chunks = chunks(field.member("chunks"), local.info.length, local.info.dtype, file_bytes);
  return local;
}

SealedFile file(const Field& field, const std::vector<PieceInfo>& tensors) {
  SealedFile file{field.member("name").file_name(),
                  field.member("bytes").whole(),
                  field.member("xxh128").text(),
                  {},
                  {}};
  for (const Field& element : field.member("pieces").elements())
    file.pieces.push_back(piece(element, tensors, file.bytes));
  for (const Field& element : field.member("local").elements())
    file.local.push_back(local(element, file.bytes));
  return file;
}

SavedRun run(const Field& field) {
  constexpr int kMost = std::numeric_limits<int>::max();
  SavedRun run;
  run.name = field.member("name").text();
  run.ranks = static_cast<int>(field.member("ranks").whole(1, kMost));
  run.threads_per_rank = static_cast<int>(field.member("threads_per_rank").whole(0, kMost));
  run.total_batch_size = field.member("total_batch_size").whole();
  run.micro_batch_size = field.member("micro_batch_size").whole();
  run.gradient_accumulation_steps = field.member("gradient_accumulation_steps").whole();
  if (field.has("data_xxh128")) run.data_xxh128 = field.member("data_xxh128").text();
  return run;
}

TrainingPoint training(const Field& field, int64_t step) {
  TrainingPoint point;
  point.step = step;
  point.applied_updates = field.member("applied_updates").whole();
  point.skipped_steps = field.member("skipped_steps").whole();
  point.tokens = field.member("tokens").whole();
  point.next_sample = field.member("next_sample").whole();
  point.seed = field.member("seed").seed();
  point.val_loss = field.member("val_loss").number();
  point.skips_in_a_row = field.member("skips_in_a_row").whole();
  point.rollbacks = field.member("rollbacks").whole();
  for (const auto& [name, value] : field.member("precision").members())
    point.precision[name] = value.number();
  for (const Field& loss : field.member("recent_losses").elements())
    point.recent_losses.push_back(loss.number());
  return point;
}

json parse_json(const std::string& text, const std::string& where) {
  json parsed = json::parse(text, nullptr, false);
  if (parsed.is_discarded()) throw StoreError(where + ": is not JSON; take another checkpoint.");
  return parsed;
}

/// Before any other field: a newer format may have other ones.
void check_format(const Field& root, const std::string& where) {
  if (root.member("format").text() != kCheckpointFormat)
    root.member("format").fail(std::string("be \"") + kCheckpointFormat + "\"");
  const int64_t version = root.member("format_version").whole();
  if (version == kCheckpointFormatVersion) return;
  throw StoreError(where + ": is of format version " + std::to_string(version) +
                   ", and this zerolab reads version " + std::to_string(kCheckpointFormatVersion) +
                   "; use the zerolab that wrote it, or a newer one.");
}

}  // namespace

CheckpointManifest manifest_of_fields(const std::string& text, const std::string& where) {
  const json parsed = parse_json(text, where);
  const Field root(parsed, where);
  check_format(root, where);
  CheckpointManifest manifest;
  manifest.point = training(root.member("training"), root.member("step").whole());
  manifest.run = run(root.member("run"));
  manifest.created = root.member("created").text();
  for (const auto& [kind, plugin] : root.member("plugins").members()) {
    manifest.plugins[kind] = {plugin.member("id").text(), plugin.member("version").text(),
                              plugin.member("xxh128").text()};
  }
  const std::vector<PieceInfo> all_tensors = tensors(root.member("tensors"));
  for (const Field& element : root.member("files").elements())
    manifest.files.push_back(file(element, all_tensors));
  for (const Field& element : root.member("texts").elements()) {
    manifest.texts.push_back({element.member("name").file_name(), element.member("bytes").whole(),
                              element.member("xxh128").text()});
  }
  return manifest;
}

SealedFile sealed_file_of_fields(const std::string& text) {
  const std::string where = "What a rank says about its file of a checkpoint";
  const json parsed = parse_json(text, where);
  const Field root(parsed, where);
  return file(root.member("file"), tensors(root.member("tensors")));
}

}  // namespace zerolab
