#include "train/guard.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace zerolab {
namespace {

GuardAction action_of(const std::string& word) {
  if (word == "skip") return GuardAction::kSkip;
  if (word == "stop") return GuardAction::kStop;
  if (word == "rollback") return GuardAction::kRollback;
  return GuardAction::kNone;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

}  // namespace

std::string Guard::spike(double loss) const {
  if (config_.spike == "off" || static_cast<int64_t>(recent_.size()) < config_.window) return {};
  const auto count = static_cast<double>(recent_.size());
  double mean = 0, squares = 0;
  for (const double value : recent_) mean += value / count;
  for (const double value : recent_) squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt(squares / (count - 1));
  if (!(loss - mean > config_.z_score * deviation)) return {};
  return "the loss " + number(loss) + " is more than " + number(config_.z_score) +
         " standard deviations (" + number(deviation) + ") above the mean " + number(mean) +
         " of the last " + std::to_string(recent_.size()) + " accepted steps";
}

GuardVerdict Guard::look(double loss, bool gradient_finite, bool scaled) const {
  const GuardAction on_non_finite = action_of(config_.non_finite);
  if (!std::isfinite(loss)) return {on_non_finite, "the loss is not finite", true};
  if (!gradient_finite && scaled) return {GuardAction::kSkip, "", true};
  if (!gradient_finite) return {on_non_finite, "a gradient is not finite", true};
  if (std::string reason = spike(loss); !reason.empty()) {
    return {action_of(config_.spike), std::move(reason), false};
  }
  return {};
}

GuardVerdict Guard::judge(double loss, bool gradient_finite, bool scaled) {
  GuardVerdict verdict = look(loss, gradient_finite, scaled);
  if (verdict.action == GuardAction::kNone) {
    skips_ = 0;
    if (config_.spike == "off") return verdict;
    if (static_cast<int64_t>(recent_.size()) == config_.window) recent_.erase(recent_.begin());
    recent_.push_back(loss);
    return verdict;
  }
  ++skips_;
  if (verdict.action == GuardAction::kSkip && skips_ >= config_.max_skips) {
    verdict.action = GuardAction::kStop;
    verdict.reason =
        (verdict.reason.empty() ? "gradients overflow under loss scaling" : verdict.reason) +
        ", and so it was skipped step after step, " + std::to_string(skips_) +
        " in a row (guard.max_skips)";
  }
  return verdict;
}

void Guard::restore(std::vector<double> recent_losses, int64_t skips_in_a_row) {
  recent_ = std::move(recent_losses);
  const auto window = static_cast<size_t>(config_.window);  // another one, in a fork
  if (recent_.size() > window) {
    recent_.erase(recent_.begin(), recent_.end() - static_cast<std::ptrdiff_t>(window));
  }
  skips_ = skips_in_a_row;
}

}  // namespace zerolab
