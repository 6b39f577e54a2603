#include "checkpoint_report.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "output.h"
#include "store/consolidate.h"
#include "store/json_text.h"
#include "train/verdict.h"

namespace zerolab {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

std::string or_dash(double value) {
  return std::isnan(value) ? "-" : number_text(value, false);
}

/// As the store writes numbers: NaN is null, infinities are texts.
Json json_number(double value) {
  std::string text;
  append_json_number(text, value);
  return Json::parse(text);
}

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// A parameter and what optimizers keep of it.
struct ParameterRow {
  const PieceInfo* parameter = nullptr;  // or the first state, if its value is not there
  std::vector<const PieceInfo*> states;
};

std::vector<ParameterRow> parameter_rows(const std::vector<PieceInfo>& tensors) {
  std::vector<ParameterRow> rows;
  for (const PieceInfo& tensor : tensors) {
    if (rows.empty() || rows.back().parameter->parameter != tensor.parameter)
      rows.push_back({&tensor, {}});
    rows.back().states.push_back(&tensor);
    if (tensor.state == kParameterState) rows.back().parameter = &tensor;
  }
  return rows;
}

/// "exp_avg, exp_avg_sq (bfloat16 [8])": with its form where it has another.
std::string states_text(const ParameterRow& row) {
  std::string text;
  for (const PieceInfo* state : row.states) {
    if (state == row.parameter) continue;
    text += (text.empty() ? "" : ", ") + state->state;
    if (form_text(*state) != form_text(*row.parameter)) text += " (" + form_text(*state) + ")";
  }
  return text.empty() ? "-" : text;
}

int64_t tensor_bytes(const std::vector<PieceInfo>& tensors) {
  int64_t bytes = 0;
  for (const PieceInfo& tensor : tensors) bytes += tensor.length * dtype_size(tensor.dtype);
  return bytes;
}

// --- inspect ------------------------------------------------------------------------------------

std::string list_text(const std::vector<ListedCheckpoint>& all) {
  Rows rows = {{"CHECKPOINT", "VAL_LOSS", "SIZE", "SAVED", "COMPLETE"}};
  for (const ListedCheckpoint& listed : all) {
    rows.push_back({listed.name, or_dash(listed.val_loss), size_text(listed.bytes),
                    listed.created.empty() ? "-" : listed.created,
                    listed.complete ? "yes" : "no: " + listed.problem});
  }
  return table(rows) + "\n";
}

std::string training_text(const CheckpointManifest& manifest) {
  const TrainingPoint& point = manifest.point;
  const SavedRun& run = manifest.run;
  std::string precision;
  for (const auto& [name, value] : point.precision)
    precision += (precision.empty() ? "" : ", ") + name + " " + number_text(value, true);
  Rows rows = {{"step", std::to_string(point.step) + ", " + std::to_string(point.applied_updates) +
                            " with an update, " + std::to_string(point.skipped_steps) + " skipped"},
               {"saved", manifest.created.empty() ? "-" : manifest.created},
               {"run", run.name},
               {"ranks", std::to_string(run.ranks) +
                             ", threads of each: " + std::to_string(run.threads_per_rank)},
               {"batch", std::to_string(run.total_batch_size) +
                             " sequences a step: " + std::to_string(run.micro_batch_size) +
                             " a micro-batch, " + std::to_string(run.gradient_accumulation_steps) +
                             " of them on each rank"},
               {"tokens", std::to_string(point.tokens)},
               {"next sample", std::to_string(point.next_sample)},
               {"seed", std::to_string(point.seed)},
               {"val_loss", or_dash(point.val_loss)},
               {"precision", precision.empty() ? "no state" : precision},
               {"guard", std::to_string(point.recent_losses.size()) + " losses remembered, " +
                             std::to_string(point.skips_in_a_row) + " skips in a row, " +
                             std::to_string(point.rollbacks) + " rollbacks"}};
  return table(rows) + "\n";
}

std::string plugins_text(const CheckpointManifest& manifest) {
  Rows rows = {{"PLUGIN", "VERSION", "XXH128 OF ITS LIBRARY"}};
  for (const auto& [kind, plugin] : manifest.plugins)
    rows.push_back({plugin.id, plugin.version, plugin.xxh128});
  return table(rows) + "\n";
}

std::string files_text(const CheckpointManifest& manifest) {
  Rows rows = {{"FILE", "SIZE", "PIECES", "LOCAL STATE"}};
  for (const SealedFile& file : manifest.files) {
    std::string local;
    for (const SealedLocal& state : file.local)
      local += (local.empty() ? "" : ", ") + state.info.name;
    rows.push_back({file.name, size_text(file.bytes), std::to_string(file.pieces.size()),
                    local.empty() ? "-" : local});
  }
  for (const SavedText& text : manifest.texts)
    rows.push_back({text.name, size_text(text.bytes), "-", "-"});
  return table(rows) + "\n";
}

std::string tensors_text(const std::vector<PieceInfo>& tensors) {
  Rows rows = {{"PARAMETER", "DTYPE AND SHAPE", "ELEMENTS", "STATES"}};
  int64_t elements = 0;
  const std::vector<ParameterRow> parameters = parameter_rows(tensors);
  for (const ParameterRow& row : parameters) {
    rows.push_back({row.parameter->parameter, form_text(*row.parameter),
                    std::to_string(row.parameter->length), states_text(row)});
    elements += row.parameter->length;
  }
  return table(rows) + std::to_string(parameters.size()) + " parameters of " +
         std::to_string(elements) + " elements, with their states " +
         std::to_string(tensors.size()) + " tensors of " + size_text(tensor_bytes(tensors)) + "\n";
}

Json listed_json(const ListedCheckpoint& listed) {
  return {
      {"name", listed.name},         {"step", listed.step < 0 ? Json(nullptr) : Json(listed.step)},
      {"complete", listed.complete}, {"problem", listed.problem},
      {"created", listed.created},   {"val_loss", json_number(listed.val_loss)},
      {"bytes", listed.bytes}};
}

Json training_json(const TrainingPoint& point) {
  Json json = {{"applied_updates", point.applied_updates},
               {"skipped_steps", point.skipped_steps},
               {"tokens", point.tokens},
               {"next_sample", point.next_sample},
               {"seed", point.seed},
               {"val_loss", json_number(point.val_loss)},
               {"precision", Json::object()},
               {"recent_losses", Json::array()},
               {"skips_in_a_row", point.skips_in_a_row},
               {"rollbacks", point.rollbacks}};
  for (const auto& [name, value] : point.precision) json["precision"][name] = json_number(value);
  for (const double loss : point.recent_losses) json["recent_losses"].push_back(json_number(loss));
  return json;
}

Json files_json(const CheckpointManifest& manifest) {
  Json json = Json::array();
  for (const SealedFile& file : manifest.files) {
    Json local = Json::array();
    for (const SealedLocal& state : file.local) {
      local.push_back({{"name", state.info.name},
                       {"dtype", dtype_name(state.info.dtype)},
                       {"elements", state.info.length}});
    }
    json.push_back({{"name", file.name},
                    {"bytes", file.bytes},
                    {"xxh128", file.xxh128},
                    {"pieces", file.pieces.size()},
                    {"local", local}});
  }
  for (const SavedText& text : manifest.texts)
    json.push_back({{"name", text.name}, {"bytes", text.bytes}, {"xxh128", text.xxh128}});
  return json;
}

}  // namespace

std::string size_text(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"kB", "MB", "GB", "TB", "PB"};
  if (bytes < 1000) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1e3;
  size_t unit = 0;
  for (; value >= 999.95 && unit + 1 < kUnits.size(); ++unit) value /= 1e3;
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, 1);
  return std::string(text, end.ptr) + " " + kUnits[unit];
}

std::string inspection_text(const CheckpointInspection& inspection) {
  const CheckpointManifest& manifest = inspection.checkpoint.manifest();
  return (inspection.all.empty() ? "" : list_text(inspection.all)) + inspection.folder.string() +
         ", " + size_text(checkpoint_bytes(manifest)) + "\n" + training_text(manifest) +
         plugins_text(manifest) + files_text(manifest) +
         tensors_text(inspection.checkpoint.tensors());
}

std::string inspection_json(const CheckpointInspection& inspection) {
  const CheckpointManifest& manifest = inspection.checkpoint.manifest();
  const SavedRun& run = manifest.run;
  Json json = {{"folder", inspection.folder.string()},
               {"step", manifest.point.step},
               {"created", manifest.created},
               {"run", run.name},
               {"ranks", run.ranks},
               {"threads_per_rank", run.threads_per_rank},
               {"total_batch_size", run.total_batch_size},
               {"micro_batch_size", run.micro_batch_size},
               {"gradient_accumulation_steps", run.gradient_accumulation_steps},
               {"training", training_json(manifest.point)},
               {"plugins", Json::object()},
               {"file_bytes", checkpoint_bytes(manifest)},
               {"files", files_json(manifest)},
               {"tensor_bytes", tensor_bytes(inspection.checkpoint.tensors())},
               {"tensors", Json::array()}};
  for (const auto& [kind, plugin] : manifest.plugins) {
    json["plugins"][kind] = {
        {"id", plugin.id}, {"version", plugin.version}, {"xxh128", plugin.xxh128}};
  }
  for (const PieceInfo& tensor : inspection.checkpoint.tensors()) {
    json["tensors"].push_back({{"parameter", tensor.parameter},
                               {"state", tensor.state},
                               {"dtype", dtype_name(tensor.dtype)},
                               {"shape", tensor.shape},
                               {"elements", tensor.length}});
  }
  if (!inspection.all.empty()) {
    json["checkpoints"] = Json::array();
    for (const auto& listed : inspection.all) json["checkpoints"].push_back(listed_json(listed));
  }
  return dump(json);
}

std::string verdicts_text(const CheckpointVerdicts& verdicts) {
  std::string text;
  for (const auto& [folder, verdict] : verdicts) {
    if (verdict.whole()) {
      text += "whole: " + folder.string() + ", step " + std::to_string(verdict.step) + ", " +
              std::to_string(verdict.files) + " files of " + size_text(verdict.bytes) + ", " +
              std::to_string(verdict.tensors) + " tensors, all finite\n";
    }
    for (const std::string& sentence : verdict.damage) text += "damaged: " + sentence + "\n";
  }
  return text;
}

std::string verdicts_json(const CheckpointVerdicts& verdicts) {
  Json json = {{"whole", true}, {"checkpoints", Json::array()}};
  for (const auto& [folder, verdict] : verdicts) {
    if (!verdict.whole()) json["whole"] = false;
    json["checkpoints"].push_back({{"folder", folder.string()},
                                   {"step", verdict.step < 0 ? Json(nullptr) : Json(verdict.step)},
                                   {"whole", verdict.whole()},
                                   {"files", verdict.files},
                                   {"tensors", verdict.tensors},
                                   {"bytes", verdict.bytes},
                                   {"damage", verdict.damage}});
  }
  return dump(json);
}

}  // namespace zerolab
