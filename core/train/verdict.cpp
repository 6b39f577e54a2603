#include "train/verdict.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

namespace zerolab {
namespace {

double relative_difference(double own, double reference) {
  if (same_number(own, reference)) return 0;
  const double difference = std::abs(own - reference) / std::abs(reference);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

std::string instead(const std::string& what, double own, double reference) {
  return fmt::format("{} is {} instead of {}", what, number_text(own, true),
                     number_text(reference, true));
}

std::string step_difference(const StepTrace& own, const StepTrace& reference) {
  if (!same_number(own.loss, reference.loss)) return instead("the loss", own.loss, reference.loss);
  if (!same_number(own.grad_norm, reference.grad_norm))
    return instead("the gradient norm", own.grad_norm, reference.grad_norm);
  if (own.skipped != reference.skipped)
    return own.skipped ? "the update is skipped" : "the update is not skipped";
  return {};
}

std::string tensor_difference(const TensorDifference& tensor) {
  const std::string title = tensor_title(tensor.parameter, tensor.state);
  if (!tensor.unlike.empty()) return fmt::format("{} {}", title, tensor.unlike);
  return fmt::format("{} differs in {} of {} elements, by at most {}", title, tensor.num_differing,
                     tensor.numel, number_text(tensor.largest, false));
}

/// The loss that is further away than allowed.
std::string loss_beyond(const RunTrace& own, const RunTrace& reference, double tolerance) {
  for (size_t i = 0; i < own.steps.size(); ++i) {
    const double a = own.steps[i].loss, b = reference.steps[i].loss;
    if (!(relative_difference(a, b) <= tolerance))
      return fmt::format("in step {} {}", i + 1, instead("the loss", a, b));
  }
  if (relative_difference(own.val_loss, reference.val_loss) <= tolerance) return {};
  return fmt::format("after {} steps {}", own.steps.size(),
                     instead("the validation loss", own.val_loss, reference.val_loss));
}

}  // namespace

std::string tensor_title(const std::string& parameter, const std::string& state) {
  if (state == "parameter") return fmt::format("parameter '{}'", parameter);
  return fmt::format("state '{}' of parameter '{}'", state, parameter);
}

std::string number_text(double value, bool exact) {
  if (std::isnan(value)) return "nan";  // its sign means nothing
  return exact ? fmt::format("{:.17g}", value) : fmt::format("{:.9g}", value);
}

bool same_number(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

std::string Verification::first_difference() const {
  for (size_t i = 0; i < own.steps.size(); ++i) {
    const std::string found = step_difference(own.steps[i], reference.steps[i]);
    if (!found.empty()) return fmt::format("in step {} {}", i + 1, found);
  }
  const std::string after = fmt::format("after {} steps ", own.steps.size());
  if (!own.disagreement.empty()) return own.disagreement;
  for (const TensorDifference& tensor : tensors) {
    if (tensor.differs()) return after + tensor_difference(tensor);
  }
  if (same_number(own.val_loss, reference.val_loss)) return {};
  return after + instead("the validation loss", own.val_loss, reference.val_loss);
}

double Verification::largest_loss_difference() const {
  double largest = relative_difference(own.val_loss, reference.val_loss);
  for (size_t i = 0; i < own.steps.size(); ++i) {
    largest = std::max(largest, relative_difference(own.steps[i].loss, reference.steps[i].loss));
  }
  return largest;
}

std::string Verification::problem() const {
  if (!reference.disagreement.empty()) {
    return fmt::format(
        "nothing can be proven: the ranks do not agree under the reference '{}': {}.", against,
        reference.disagreement);
  }
  const std::string difference = first_difference();
  if (difference.empty()) return {};
  if (!repeats) {
    return fmt::format(
        "nothing can be proven: the reference '{}' does not repeat itself on this machine: {}.",
        against, difference);
  }
  const std::string differs =
      fmt::format("sharding '{}' does not give what '{}' gives: ", sharding, against);
  if (tolerance == 0) return differs + difference + ".";
  if (!own.disagreement.empty()) return differs + own.disagreement + ".";
  const std::string beyond = loss_beyond(own, reference, tolerance);
  if (beyond.empty()) return {};
  return fmt::format("{}{}, where its wire format allows a relative difference of {}.", differs,
                     beyond, number_text(tolerance, false));
}

}  // namespace zerolab
