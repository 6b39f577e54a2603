// The part of checkpoint_report.h about differences.

#include <algorithm>

#include <nlohmann/json.hpp>

#include "checkpoint_report.h"
#include "output.h"
#include "store/json_text.h"
#include "train/verdict.h"

namespace zerolab {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

constexpr size_t kMostListed = 20;

std::string name_of(const TensorComparison& tensor) {
  return tensor_name(tensor.parameter, tensor.state);
}

bool worse(const TensorComparison* a, const TensorComparison* b) {
  if (a->same_form() != b->same_form()) return !a->same_form();
  return a->found.largest > b->found.largest;
}

/// Those to list: all in their order, or those that differ, the worst first.
std::vector<const TensorComparison*> listed(const CheckpointDiff& diff, bool all) {
  std::vector<const TensorComparison*> tensors;
  for (const TensorComparison& tensor : diff.tensors)
    if (all || !tensor.identical()) tensors.push_back(&tensor);
  if (!all) std::stable_sort(tensors.begin(), tensors.end(), worse);
  return tensors;
}

std::string tensors_text(const CheckpointDiff& diff, bool all) {
  const std::vector<const TensorComparison*> tensors = listed(diff, all);
  if (tensors.empty()) return "";
  Rows rows = {{"TENSOR", "ELEMENTS", "DIFFER", "LARGEST DIFFERENCE", "FIRST"}};
  for (const TensorComparison* tensor : tensors) {
    if (!all && rows.size() > kMostListed) break;
    const std::string elements = std::to_string(tensor->elements);
    if (!tensor->same_form()) {
      rows.push_back(
          {name_of(*tensor), elements, tensor->form_a + " in A, " + tensor->form_b + " in B"});
    } else if (tensor->identical()) {
      rows.push_back({name_of(*tensor), elements, "bit-identical"});
    } else {
      rows.push_back({name_of(*tensor), elements, std::to_string(tensor->found.differing),
                      number_text(tensor->found.largest, false),
                      std::to_string(tensor->found.first)});
    }
  }
  std::string text = table(rows);
  if (rows.size() <= tensors.size()) {
    text += "and " + std::to_string(tensors.size() + 1 - rows.size()) +
            " tensors more; --all lists every one\n";
  }
  return text + "\n";
}

/// A number that is not there, or NaN.
std::string or_dash(const std::string& number) {
  return number.empty() || number == "null" ? "-" : number;
}

std::string counters_text(const CheckpointDiff& diff) {
  if (diff.counters.empty()) return "";
  Rows rows = {{"COUNTER", "A", "B", ""}};
  for (const CounterDifference& counter : diff.counters) {
    rows.push_back({counter.name, or_dash(counter.a), or_dash(counter.b),
                    counter.is_state ? "" : "(a result, not counted as a difference)"});
  }
  return table(rows) + "\n";
}

std::string only_text(const std::vector<std::string>& names, const char* where, bool all) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!all && i == kMostListed) {
      return text + "and " + std::to_string(names.size() - i) + " tensors more only in " + where +
             "; --all lists every one\n";
    }
    text += std::string("only in ") + where + ": " + names[i] + "\n";
  }
  return text;
}

size_t num_differing(const CheckpointDiff& diff) {
  return static_cast<size_t>(std::count_if(diff.tensors.begin(), diff.tensors.end(),
                                           [](const auto& t) { return !t.identical(); }));
}

size_t num_counters(const CheckpointDiff& diff) {
  return static_cast<size_t>(std::count_if(diff.counters.begin(), diff.counters.end(),
                                           [](const auto& c) { return c.is_state; }));
}

}  // namespace

std::string difference_sentence(const CheckpointDiff& diff) {
  const size_t all = diff.tensors.size(), only = diff.only_a.size() + diff.only_b.size();
  if (diff.bit_identical()) return std::to_string(all) + " tensors are bit-identical";
  double largest = 0;
  for (const TensorComparison& tensor : diff.tensors)
    largest = std::max(largest, tensor.found.largest);
  std::string text = std::to_string(num_differing(diff)) + " of " + std::to_string(all) +
                     " tensors differ, by " + number_text(largest, false) + " at most";
  if (only > 0) text += ", " + std::to_string(only) + " are in one of them only";
  const size_t counters = num_counters(diff);
  if (counters > 0) {
    text += ", and " + std::to_string(counters) +
            (counters == 1 ? " counter differs" : " counters differ");
  }
  return text;
}

std::string diff_text(const CheckpointDiff& diff, const std::string& a, const std::string& b,
                      bool all) {
  std::string text = "A: " + a + "\nB: " + b + "\n\n";
  text += tensors_text(diff, all);
  const std::string only = only_text(diff.only_a, "A", all) + only_text(diff.only_b, "B", all);
  text += only + (only.empty() ? "" : "\n") + counters_text(diff);
  if (!diff.equal()) return text;
  return text + (diff.bit_identical() ? "identical: " : "within the tolerance: ") +
         difference_sentence(diff) + "\n";
}

std::string diff_json(const CheckpointDiff& diff, const std::string& a, const std::string& b) {
  Json json = {{"a", a},
               {"b", b},
               {"tolerance", diff.tolerance},
               {"bit_identical", diff.bit_identical()},
               {"equal", diff.equal()},
               {"only_a", diff.only_a},
               {"only_b", diff.only_b},
               {"counters", Json::array()},
               {"tensors", Json::array()}};
  for (const CounterDifference& counter : diff.counters) {
    json["counters"].push_back({{"name", counter.name},
                                {"a", counter.a},
                                {"b", counter.b},
                                {"is_state", counter.is_state}});
  }
  for (const TensorComparison& tensor : diff.tensors) {
    std::string largest;
    append_json_number(largest, tensor.found.largest);
    json["tensors"].push_back({{"parameter", tensor.parameter},
                               {"state", tensor.state},
                               {"form_a", tensor.form_a},
                               {"form_b", tensor.form_b},
                               {"elements", tensor.elements},
                               {"bit_identical", tensor.identical()},
                               {"differing", tensor.found.differing},
                               {"first", tensor.found.first},
                               {"largest_difference", Json::parse(largest)}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace zerolab
