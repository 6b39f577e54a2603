#include "plan_report.h"

#include <algorithm>
#include <charconv>

#include <nlohmann/json.hpp>

namespace zerolab {
namespace {

using Json = nlohmann::ordered_json;

std::string fixed(double value, int decimals) {
  char text[64];
  const auto end =
      std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, decimals);
  return {text, end.ptr};
}

/// One unit for all figures of a plan, so that they can be compared at a glance.
struct Unit {
  double bytes = 1e9;
  const char* word = "GB";
  std::string operator()(int64_t n) const { return fixed(static_cast<double>(n) / bytes, 1); }
  std::string named(int64_t n) const { return (*this)(n) + " " + word; }
};

int64_t total(const PlanRow& row, const PlanTable& table) {
  return row.footprint->held.total() + table.activation_bytes;
}

Unit unit_for(const Plan& plan) {
  int64_t largest = 0;
  for (const PlanTable& table : plan.tables) {
    for (const PlanRow& row : table.rows) {
      if (!row.footprint) continue;
      largest = std::max({largest, total(row, table), row.footprint->moved_bytes()});
    }
  }
  if (largest >= 10'000'000'000) return {1e9, "GB"};
  if (largest >= 10'000'000) return {1e6, "MB"};
  return {1e3, "KB"};
}

/// Kinds of collectives that any strategy uses.
std::vector<CollectiveKind> used_kinds(const Plan& plan) {
  std::vector<CollectiveKind> used;
  for (size_t i = 0; i < kNumCollectiveKinds; ++i) {
    const auto kind = static_cast<CollectiveKind>(i);
    const bool any = std::any_of(plan.tables.begin(), plan.tables.end(), [&](const PlanTable& t) {
      return std::any_of(t.rows.begin(), t.rows.end(), [&](const PlanRow& row) {
        return row.footprint && row.footprint->of(kind).bytes > 0;
      });
    });
    if (any) used.push_back(kind);
  }
  return used;
}

std::string upper(std::string word) {
  for (char& c : word) c = c == '_' ? '-' : (c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c);
  return word;
}

using Cells = std::vector<std::string>;

Cells heading(const Plan& plan, const std::vector<CollectiveKind>& kinds) {
  Cells cells = {"PARAMETERS", "GRADIENTS", "OPTIMIZER",   "STATES",
                 "BUCKETS",    "GATHERED",  "ACTIVATIONS", "TOTAL"};
  for (CollectiveKind kind : kinds) cells.push_back(upper(collective_name(kind)));
  cells.push_back("MOVED");
  if (plan.bandwidth) cells.push_back("SECONDS");
  return cells;
}

double seconds(const PlanRow& row, const Plan& plan) {
  return static_cast<double>(row.footprint->moved_bytes()) / static_cast<double>(*plan.bandwidth);
}

Cells figures(const PlanRow& row, const PlanTable& table, const Plan& plan, const Unit& unit,
              const std::vector<CollectiveKind>& kinds) {
  const HeldBytes& held = row.footprint->held;
  Cells cells;
  for (int64_t n : {held.parameters, held.gradients, held.optimizer, held.states(), held.buckets,
                    held.gathered, table.activation_bytes, total(row, table)}) {
    cells.push_back(unit(n));
  }
  for (CollectiveKind kind : kinds) cells.push_back(unit(row.footprint->of(kind).bytes));
  cells.push_back(unit(row.footprint->moved_bytes()));
  if (plan.bandwidth) cells.push_back(fixed(seconds(row, plan), 3));
  return cells;
}

std::string lines(const PlanTable& table, const Plan& plan, const Unit& unit,
                  const std::vector<CollectiveKind>& kinds) {
  const Cells top = heading(plan, kinds);
  std::vector<size_t> widths;
  for (const std::string& cell : top) widths.push_back(cell.size());
  std::vector<Cells> rows;
  size_t name_width = 8;
  for (const PlanRow& row : table.rows) {
    name_width = std::max(name_width, row.name.size());
    rows.push_back(row.footprint ? figures(row, table, plan, unit, kinds) : Cells{});
    for (size_t i = 0; i < rows.back().size(); ++i) {
      widths[i] = std::max(widths[i], rows.back()[i].size());
    }
  }
  const auto line = [&](const std::string& mark, std::string name, const Cells& cells) {
    name.resize(name_width, ' ');
    std::string text = mark + name;
    for (size_t i = 0; i < cells.size(); ++i) {
      text += "  " + std::string(widths[i] - cells[i].size(), ' ') + cells[i];
    }
    return text;
  };
  std::string text = line("    ", "STRATEGY", top) + "\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const PlanRow& row = table.rows[i];
    text += line(row.own ? "  * " : "    ", row.name, rows[i]);
    if (!row.footprint) {
      std::string sentence = row.why_not;
      std::replace(sentence.begin(), sentence.end(), '\n', ' ');
      text += "  " + sentence;
    }
    text += "\n";
  }
  return text;
}

std::string verdict(const PlanTable& table, const Plan& plan, const Unit& unit) {
  const PlanRow* best = cheapest(table.rows, table.activation_bytes, plan.memory);
  const std::string within = plan.memory ? " that fits " + unit.named(*plan.memory) : "";
  if (best != nullptr) {
    return "  cheapest" + within + ": " + best->name + " (moves " +
           unit.named(best->footprint->moved_bytes()) + " a step, holds " +
           unit.named(total(*best, table)) + ")\n";
  }
  const PlanRow* least = smallest(table.rows);
  if (least == nullptr) return "";
  return "  nothing fits " + unit.named(*plan.memory) + ": the smallest is " + least->name +
         " with " + unit.named(total(*least, table)) + "\n";
}

/// What reduce_every = "step" would save, by strategy.
std::string savings(const PlanTable& table, const Unit& unit) {
  std::string list;
  for (const PlanRow& row : table.rows) {
    if (row.saved_by_reducing_every_step == 0) continue;
    list += (list.empty() ? "" : ", ") + row.name + " " + unit(row.saved_by_reducing_every_step);
  }
  if (list.empty()) return "";
  return "  batch.reduce_every = \"step\" would move less, in " + std::string(unit.word) + ": " +
         list + "\n";
}

std::string title(const PlanTable& table) {
  const auto count = [](int64_t n, const std::string& word) {
    return std::to_string(n) + " " + word + (n == 1 ? "" : word.ends_with('h') ? "es" : "s");
  };
  std::string text = count(table.num_ranks, "rank") + ": micro_batch_size " +
                     std::to_string(table.micro_batch_size) + ", " +
                     count(table.micro_batches, "micro-batch") + " a step";
  if (table.fitted_ranks != table.num_ranks) {
    text += ", as on " + count(table.fitted_ranks, "rank") +
            ": the batch sizes do not fit so many; " +
            std::to_string(table.micro_batch_size * table.micro_batches * table.num_ranks) +
            " sequences a step";
  }
  return text + "\n";
}

std::string assumptions(const Plan& plan, const Unit& unit) {
  const bool masters = plan.precision.parameter_dtype != at::kFloat;
  std::string text = plan.experiment + ": " + std::to_string(plan.parameters) + " parameters";
  if (plan.trainable != plan.parameters) {
    text += ", " + std::to_string(plan.trainable) + " of them trained";
  }
  text += ", " + plan.plugins + "\n";
  text += "dtypes: parameters " + dtype_word(plan.precision.parameter_dtype) + ", gradients " +
          dtype_word(plan.precision.gradient_dtype) + ", optimizer " +
          (masters ? "fp32 masters and " : "") + std::to_string(plan.num_states) +
          " fp32 states a parameter, activations " + dtype_word(compute_dtype(plan.precision)) +
          "\n";
  text += std::string("figures: ") + unit.word + " (" +
          (unit.bytes == 1e9   ? "1e9"
           : unit.bytes == 1e6 ? "1e6"
                               : "1e3") +
          " bytes) of one rank; states = parameters + gradients + optimizer; activations are an "
          "estimate from the declared matrices" +
          (plan.activation_checkpointing ? ", with activation checkpointing" : "") +
          "; moved: sent to other ranks in one step\n";
  if (plan.bandwidth) {
    text += "seconds: bytes moved at " + fixed(static_cast<double>(*plan.bandwidth) / 1e9, 1) +
            " GB/s, without latency and as if nothing were computed meanwhile\n";
  }
  return text;
}

Json row_json(const PlanRow& row, const PlanTable& table, const Plan& plan) {
  Json json = {{"strategy", row.name}, {"own", row.own}};
  if (!row.footprint) {
    json["why_not"] = row.why_not;
    return json;
  }
  const HeldBytes& held = row.footprint->held;
  json["held"] = {{"parameters", held.parameters}, {"gradients", held.gradients},
                  {"optimizer", held.optimizer},   {"states", held.states()},
                  {"buckets", held.buckets},       {"gathered", held.gathered}};
  json["total_bytes"] = total(row, table);
  json["moved"] = Json::object();
  for (size_t i = 0; i < kNumCollectiveKinds; ++i) {
    const auto kind = static_cast<CollectiveKind>(i);
    if (kind == CollectiveKind::kControl) continue;
    const CollectiveTraffic& traffic = row.footprint->of(kind);
    json["moved"][collective_name(kind)] = {{"calls", traffic.calls}, {"bytes", traffic.bytes}};
  }
  json["moved_bytes"] = row.footprint->moved_bytes();
  json["saved_by_reducing_every_step"] = row.saved_by_reducing_every_step;
  if (plan.bandwidth) json["seconds"] = seconds(row, plan);
  if (plan.memory) json["fits"] = total(row, table) <= *plan.memory;
  return json;
}

Json table_json(const PlanTable& table, const Plan& plan) {
  Json json = {{"ranks", table.num_ranks},
               {"batch_fits", table.fitted_ranks == table.num_ranks},
               {"batch_sizes_of_ranks", table.fitted_ranks},
               {"micro_batch_size", table.micro_batch_size},
               {"micro_batches", table.micro_batches},
               {"activation_bytes_estimated", table.activation_bytes},
               {"strategies", Json::array()}};
  for (const PlanRow& row : table.rows) json["strategies"].push_back(row_json(row, table, plan));
  const PlanRow* best = cheapest(table.rows, table.activation_bytes, plan.memory);
  json["cheapest"] = best != nullptr ? Json(best->name) : Json(nullptr);
  return json;
}

}  // namespace

std::string dtype_word(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "fp32";
    case at::kBFloat16:
      return "bf16";
    case at::kHalf:
      return "fp16";
    default:
      return c10::toString(dtype);
  }
}

at::ScalarType compute_dtype(const PrecisionPolicy& precision) {
  return precision.autocast_dtype.value_or(precision.parameter_dtype);
}

std::string plan_text(const Plan& plan) {
  const Unit unit = unit_for(plan);
  const std::vector<CollectiveKind> kinds = used_kinds(plan);
  std::string text = assumptions(plan, unit);
  for (const PlanTable& table : plan.tables) {
    text += "\n" + title(table) + lines(table, plan, unit, kinds) + verdict(table, plan, unit) +
            savings(table, unit);
  }
  return text;
}

std::string plan_json(const Plan& plan) {
  const auto or_null = [](const std::optional<int64_t>& n) { return n ? Json(*n) : Json(nullptr); };
  Json json = {{"experiment", plan.experiment},
               {"parameters", plan.parameters},
               {"trainable_parameters", plan.trainable},
               {"parameter_dtype", dtype_word(plan.precision.parameter_dtype)},
               {"gradient_dtype", dtype_word(plan.precision.gradient_dtype)},
               {"compute_dtype", dtype_word(compute_dtype(plan.precision))},
               {"optimizer_states", plan.num_states},
               {"activation_checkpointing", plan.activation_checkpointing},
               {"reduce_every", plan.reduce_every},
               {"memory_bytes", or_null(plan.memory)},
               {"bandwidth_bytes_per_second", or_null(plan.bandwidth)},
               {"plans", Json::array()}};
  for (const PlanTable& table : plan.tables) json["plans"].push_back(table_json(table, plan));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace zerolab
