#include "verify_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <nlohmann/json.hpp>

#include "output.h"

namespace zerolab {
namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr size_t kMostListed = 20;

bool is_parameter(const TensorDifference& tensor) {
  return tensor.state == "parameter";
}

/// NaN is worse than any number, and a missing tensor worse than that.
std::pair<int, double> badness(const TensorDifference& tensor) {
  if (!tensor.unlike.empty()) return {2, 0};
  return std::isnan(tensor.largest) ? std::pair{1, 0.0} : std::pair{0, tensor.largest};
}

bool compares_with_itself(const Verification& result) {
  return !result.repeats || result.sharding == result.against;
}

/// Names of the two runs.
std::pair<std::string, std::string> labels(const Verification& result) {
  return compares_with_itself(result) ? std::pair{result.against, result.against + " again"}
                                      : std::pair{result.against, result.sharding};
}

std::string step_verdict(const StepTrace& own, const StepTrace& reference) {
  const bool same = same_number(own.loss, reference.loss) &&
                    same_number(own.grad_norm, reference.grad_norm) &&
                    own.skipped == reference.skipped;
  return std::string(same ? "identical" : "differs") + (own.skipped ? ", skipped" : "");
}

std::string step_table(const Verification& result) {
  const auto [first, second] = labels(result);
  Rows rows = {{"step", "loss, " + first, "loss, " + second, "gradient norm, " + first,
                "gradient norm, " + second, ""}};
  for (size_t i = 0; i < result.own.steps.size(); ++i) {
    const StepTrace &a = result.reference.steps[i], &b = result.own.steps[i];
    const bool loss_exact = !same_number(a.loss, b.loss);
    const bool norm_exact = !same_number(a.grad_norm, b.grad_norm);
    rows.push_back({std::to_string(i + 1), number_text(a.loss, loss_exact),
                    number_text(b.loss, loss_exact), number_text(a.grad_norm, norm_exact),
                    number_text(b.grad_norm, norm_exact), step_verdict(b, a)});
  }
  const double a = result.reference.val_loss, b = result.own.val_loss;
  const bool exact = !same_number(a, b);
  rows.push_back({"validation", number_text(a, exact), number_text(b, exact), "", "",
                  exact ? "differs" : "identical"});
  return table(rows);
}

std::string tensor_rows(const std::vector<TensorDifference>& tensors) {
  Rows rows = {{"parameter", "state", "elements", "differing", "largest difference"}};
  for (const TensorDifference& t : tensors) {
    rows.push_back({t.parameter, is_parameter(t) ? "" : t.state, std::to_string(t.numel),
                    t.unlike.empty() ? std::to_string(t.num_differing) : t.unlike,
                    t.unlike.empty() ? number_text(t.largest, false) : ""});
  }
  return table(rows);
}

std::string counted(int64_t number, const std::string& noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

std::string tensor_section(const Verification& result, bool all) {
  std::vector<TensorDifference> differing;
  int64_t parameters = 0, differing_parameters = 0;
  for (const TensorDifference& t : result.tensors) {
    parameters += is_parameter(t);
    differing_parameters += is_parameter(t) && t.differs();
    if (t.differs()) differing.push_back(t);
  }
  const auto states = static_cast<int64_t>(result.tensors.size()) - parameters;
  const auto differing_states = static_cast<int64_t>(differing.size()) - differing_parameters;
  std::string text = counted(parameters, "parameter") + ", " + counted(states, "state") + ": ";
  if (differing.empty()) {
    text += "identical\n";
  } else {
    text += counted(differing_parameters, "parameter") + " and " +
            counted(differing_states, "state") + " differ\n";
  }
  if (result.num_not_compared > 0) {
    text += counted(result.num_not_compared, "state") + " of '" + result.sharding +
            "' without a counterpart: not compared\n";
  }
  if (all) return text + tensor_rows(result.tensors);
  if (differing.empty()) return text;
  std::stable_sort(differing.begin(), differing.end(),
                   [](const auto& a, const auto& b) { return badness(a) > badness(b); });
  const size_t unlisted = differing.size() - std::min(differing.size(), kMostListed);
  differing.resize(differing.size() - unlisted);
  text += tensor_rows(differing);
  if (unlisted > 0) text += "and " + std::to_string(unlisted) + " more; --all lists them\n";
  return text;
}

std::string verdict_word(const Verification& result) {
  const bool proven = result.problem().empty();
  if (!proven)
    return result.repeats && result.reference.disagreement.empty() ? "different" : "unproven";
  return result.first_difference().empty() ? "identical" : "within tolerance";
}

/// "on 3 ranks, in 5 steps".
std::string extent(const Verification& result) {
  return "on " + counted(result.num_ranks, "rank") + ", in " +
         counted(static_cast<int64_t>(result.own.steps.size()), "step");
}

std::string verdict_line(const Verification& result) {
  const std::string word = verdict_word(result);
  if (word == "identical" && compares_with_itself(result)) {
    return "identical: '" + result.sharding + "' repeats itself bit for bit " + extent(result) +
           "; it is its own reference, so nothing else is proven\n";
  }
  if (word == "identical") {
    return "identical: '" + result.sharding + "' gives the same bits as '" + result.against + "' " +
           extent(result) + "\n";
  }
  if (word != "within tolerance") return "";
  return "within tolerance: the wire format of '" + result.sharding +
         "' rounds; losses differ from those of '" + result.against + "' by at most " +
         number_text(result.largest_loss_difference(), false) + " relative, " +
         number_text(result.tolerance, false) + " allowed, " + extent(result) + "\n";
}

nlohmann::json number_or_null(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

}  // namespace

std::string verification_text(const Verification& result, bool all) {
  std::string text = "\n" + step_table(result) + "\n" + tensor_section(result, all);
  if (const std::string verdict = verdict_line(result); !verdict.empty()) text += "\n" + verdict;
  return text;
}

std::string verification_json(const Verification& result) {
  nlohmann::json steps = nlohmann::json::array(), tensors = nlohmann::json::array();
  for (size_t i = 0; i < result.own.steps.size(); ++i) {
    const StepTrace &a = result.reference.steps[i], &b = result.own.steps[i];
    steps.push_back({{"step", i + 1},
                     {"loss", number_or_null(b.loss)},
                     {"reference_loss", number_or_null(a.loss)},
                     {"grad_norm", number_or_null(b.grad_norm)},
                     {"reference_grad_norm", number_or_null(a.grad_norm)},
                     {"skipped", b.skipped},
                     {"reference_skipped", a.skipped}});
  }
  for (const TensorDifference& t : result.tensors) {
    tensors.push_back({{"parameter", t.parameter},
                       {"state", t.state},
                       {"elements", t.numel},
                       {"differing", t.num_differing},
                       {"largest_difference", number_or_null(t.largest)},
                       {"unlike", t.unlike}});
  }
  const nlohmann::json object = {
      {"name", result.name},
      {"sharding", result.sharding},
      {"against", result.against},
      {"ranks", result.num_ranks},
      {"threads", result.threads},
      {"verdict", verdict_word(result)},
      {"problem", result.problem()},
      {"reference_repeats", result.repeats},
      {"tolerance", result.tolerance},
      {"largest_loss_difference", number_or_null(result.largest_loss_difference())},
      {"val_loss", number_or_null(result.own.val_loss)},
      {"reference_val_loss", number_or_null(result.reference.val_loss)},
      {"steps", steps},
      {"tensors", tensors},
  };
  return object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace zerolab
