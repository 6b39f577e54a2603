#include "store/manifest.h"

#include <algorithm>
#include <tuple>

#include "zerolab/error.h"

#include "store/file_layer.h"
#include "store/input_file.h"
#include "store/json_text.h"
#include "store/manifest_fields.h"
#include "store/xxh128.h"

namespace zerolab {

namespace {

/// Grows a JSON text: a member or an element a line, indented by its depth.
class JsonLines {
 public:
  void open(char bracket) {
    text_ += bracket;
    ++depth_;
    empty_ = true;
  }
  void close(char bracket) {
    --depth_;
    if (!empty_) new_line();
    text_ += bracket;
    empty_ = false;
  }
  /// What is appended to the result is the element.
  std::string& element() {
    if (!empty_) text_ += ',';
    empty_ = false;
    new_line();
    return text_;
  }
  std::string& member(std::string_view key) { return element() += json_quoted(key) + ": "; }
  void member(std::string_view key, int64_t value) { member(key) += std::to_string(value); }
  void member(std::string_view key, const std::string& value) { member(key) += json_quoted(value); }
  std::string& text() { return text_; }

 private:
  void new_line() {
    text_ += '\n';
    text_.append(2 * depth_, ' ');
  }
  std::string text_;
  size_t depth_ = 0;
  bool empty_ = true;
};

std::string whole_numbers(const std::vector<int64_t>& numbers) {
  std::string text = "[";
  for (const int64_t number : numbers) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(number);
  }
  return text + "]";
}

/// The tensors that pieces belong to, by their numbers in the manifest. Pieces that differ about
/// shape or dtype stay apart: which one is right is not for the writer to say.
class TensorNumbers {
 public:
  size_t of(const PieceInfo& piece) {
    const auto [at, is_new] = numbers_.emplace(
        std::tie(piece.parameter, piece.state, piece.shape, piece.dtype), tensors_.size());
    if (is_new) tensors_.push_back(&piece);
    return at->second;
  }
  void write(JsonLines& out) const {
    out.member("tensors");
    out.open('[');
    for (const PieceInfo* tensor : tensors_) {
      out.element() += "{\"parameter\": " + json_quoted(tensor->parameter) +
                       ", \"state\": " + json_quoted(tensor->state) +
                       ", \"shape\": " + whole_numbers(tensor->shape) +
                       ", \"dtype\": " + json_quoted(dtype_name(tensor->dtype)) + "}";
    }
    out.close(']');
  }

 private:
  std::map<std::tuple<std::string, std::string, std::vector<int64_t>, TensorDtype>, size_t>
      numbers_;
  std::vector<const PieceInfo*> tensors_;
};

void write_file(JsonLines& out, const SealedFile& file, TensorNumbers& tensors) {
  out.open('{');
  out.member("name", file.name);
  out.member("bytes", file.bytes);
  out.member("xxh128", file.xxh128);
  out.member("pieces");
  out.open('[');
  for (const SealedPiece& piece : file.pieces) {
    out.element() += "[" + std::to_string(tensors.of(piece.info)) + ", " +
                     std::to_string(piece.info.offset) + ", " + std::to_string(piece.info.length) +
                     ", " + whole_numbers(piece.chunks.begin) + "]";
  }
  out.close(']');
  out.member("local");
  out.open('[');
  for (const SealedLocal& local : file.local) {
    out.element() += "{\"name\": " + json_quoted(local.info.name) +
                     ", \"dtype\": " + json_quoted(dtype_name(local.info.dtype)) +
                     ", \"length\": " + std::to_string(local.info.length) +
                     ", \"chunks\": " + whole_numbers(local.chunks.begin) + "}";
  }
  out.close(']');
  out.close('}');
}

void write_run(JsonLines& out, const SavedRun& run) {
  out.member("run");
  out.open('{');
  out.member("name", run.name);
  out.member("ranks", run.ranks);
  out.member("threads_per_rank", run.threads_per_rank);
  out.member("total_batch_size", run.total_batch_size);
  out.member("micro_batch_size", run.micro_batch_size);
  out.member("gradient_accumulation_steps", run.gradient_accumulation_steps);
  if (!run.data_xxh128.empty()) out.member("data_xxh128", run.data_xxh128);
  out.close('}');
}

void write_training(JsonLines& out, const TrainingPoint& point) {
  out.member("training");
  out.open('{');
  out.member("applied_updates", point.applied_updates);
  out.member("skipped_steps", point.skipped_steps);
  out.member("tokens", point.tokens);
  out.member("next_sample", point.next_sample);
  out.member("seed") += std::to_string(point.seed);
  append_json_number(out.member("val_loss"), point.val_loss);
  out.member("precision");
  out.open('{');
  for (const auto& [name, value] : point.precision) append_json_number(out.member(name), value);
  out.close('}');
  out.member("recent_losses") += '[';
  for (size_t i = 0; i < point.recent_losses.size(); ++i) {
    if (i > 0) out.text() += ", ";
    append_json_number(out.text(), point.recent_losses[i]);
  }
  out.text() += ']';
  out.member("skips_in_a_row", point.skips_in_a_row);
  out.member("rollbacks", point.rollbacks);
  out.close('}');
}

void write_plugins(JsonLines& out, const std::map<std::string, SavedPlugin>& plugins) {
  out.member("plugins");
  out.open('{');
  for (const auto& [kind, plugin] : plugins) {
    out.member(kind) += "{\"id\": " + json_quoted(plugin.id) +
                        ", \"version\": " + json_quoted(plugin.version) +
                        ", \"xxh128\": " + json_quoted(plugin.xxh128) + "}";
  }
  out.close('}');
}

/// The last line but one and the bracket: all that stands after the bytes it is the checksum of.
std::string closing_lines(std::string_view above) {
  return "  \"xxh128_of_the_above\": \"" + xxh128(above) + "\"\n}\n";
}

/// All of a file. Returns 0, or the errno of the call that failed.
int read_whole(const std::filesystem::path& file, std::string& text) {
  const InputFile in(file);
  if (in.error() != 0) return in.error();
  text.resize(static_cast<size_t>(in.size()));
  return in.read_at(0, text.data(), text.size());
}

}  // namespace

int64_t checkpoint_bytes(const CheckpointManifest& manifest) {
  int64_t bytes = 0;
  for (const SealedFile& file : manifest.files) bytes += file.bytes;
  for (const SavedText& text : manifest.texts) bytes += text.bytes;
  return bytes;
}

std::string write_checkpoint_manifest(const CheckpointManifest& manifest) {
  TensorNumbers tensors;
  for (const SealedFile& file : manifest.files)
    for (const SealedPiece& piece : file.pieces) tensors.of(piece.info);

  JsonLines out;
  out.open('{');
  out.member("format", std::string(kCheckpointFormat));
  out.member("format_version", kCheckpointFormatVersion);
  out.member("step", manifest.point.step);
  out.member("created", manifest.created);
  write_run(out, manifest.run);
  write_training(out, manifest.point);
  write_plugins(out, manifest.plugins);
  tensors.write(out);
  out.member("files");
  out.open('[');
  for (const SealedFile& file : manifest.files) {
    out.element();
    write_file(out, file, tensors);
  }
  out.close(']');
  out.member("texts");
  out.open('[');
  for (const SavedText& text : manifest.texts) {
    out.element() += "{\"name\": " + json_quoted(text.name) +
                     ", \"bytes\": " + std::to_string(text.bytes) +
                     ", \"xxh128\": " + json_quoted(text.xxh128) + "}";
  }
  out.close(']');
  out.text() += ",\n";
  return out.text() + closing_lines(out.text());
}

CheckpointManifest parse_checkpoint_manifest(const std::string& text,
                                             const std::filesystem::path& file) {
  // Compared as bytes: another spelling of the same lines is damage too.
  const size_t closing_size = closing_lines("").size();
  const std::string_view above =
      std::string_view(text).substr(0, text.size() - std::min(text.size(), closing_size));
  if (std::string_view(text).substr(above.size()) != closing_lines(above)) {
    throw StoreError(file.string() +
                     ": is damaged: its checksum is wrong or cut off; take another checkpoint.");
  }
  return manifest_of_fields(text, file.string());
}

CheckpointManifest read_checkpoint_manifest(const std::filesystem::path& checkpoint) {
  const std::filesystem::path file = checkpoint / kManifestName;
  std::string text;
  if (const int error = read_whole(file, text)) {
    throw StoreError(file.string() + ": cannot be read: " + errno_text(error) +
                     "; without it this is no complete checkpoint, so take another one.");
  }
  return parse_checkpoint_manifest(text, file);
}

SavedText saved_text(const std::string& name, const std::string& text) {
  return {name, static_cast<int64_t>(text.size()), xxh128(text)};
}

std::string read_saved_text(const std::filesystem::path& checkpoint, const SavedText& text) {
  const std::filesystem::path file = checkpoint / text.name;
  std::string read;
  if (const int error = read_whole(file, read)) {
    throw StoreError(file.string() + ": cannot be read: " + errno_text(error) +
                     "; the checkpoint is damaged, so take another one.");
  }
  const SavedText found = saved_text(text.name, read);
  if (found.bytes != text.bytes || found.xxh128 != text.xxh128) {
    throw StoreError(file.string() + ": is not as it was saved: its " +
                     (found.bytes != text.bytes ? "size" : "checksum") +
                     " is another; the checkpoint is damaged, so take another one.");
  }
  return read;
}

std::string write_sealed_file(const SealedFile& sealed) {
  TensorNumbers tensors;
  JsonLines out;
  out.open('{');
  out.member("file");
  write_file(out, sealed, tensors);
  tensors.write(out);
  out.close('}');
  return out.text();
}

SealedFile parse_sealed_file(const std::string& text) {
  return sealed_file_of_fields(text);
}

}  // namespace zerolab
