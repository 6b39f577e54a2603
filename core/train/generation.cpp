#include "train/generation.h"

#include <algorithm>
#include <chrono>
#include <span>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "train/autocast_scope.h"

namespace zerolab {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double rate(int64_t count, double seconds) {
  return count > 0 && seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

/// The tokens that the model sees, and what it keeps of those that it has read.
class Context {
 public:
  Context(GenerationParts parts, const GenerationRequest& request)
      : parts_(parts), cached_(request.use_cache && parts.model.has_cache()) {
    const auto prompt = static_cast<int64_t>(request.prompt.size());
    // Memory for no more tokens than there will be.
    capacity_ = std::min(parts.window, prompt + request.max_tokens);
    tokens_ = request.prompt;
    if (prompt > parts.window) drop_former_part();
    cache_.capacity = capacity_;
  }

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }

  void add(int64_t token) {
    tokens_.push_back(token);
    if (size() > parts_.window) drop_former_part();
  }

  /// [V] of the token after the last.
  at::Tensor logits() {
    parts_.units.begin(false, 0);
    at::Tensor logits_V;
    if (cached_) {
      logits_V = parts_.model.next_logits(tensor(cache_.length), parts_.units, cache_)[0];
    } else {
      logits_V = parts_.model.logits(tensor(0), parts_.units).select(1, size() - 1)[0];
    }
    parts_.units.end();
    return logits_V.to(at::kFloat).contiguous();
  }

 private:
  /// Positions begin at 0 again: nothing that was kept of the tokens counts any more.
  void drop_former_part() {
    const int64_t kept = std::max<int64_t>(1, parts_.window / 2);
    tokens_.erase(tokens_.begin(), tokens_.end() - kept);
    cache_ = {};
    cache_.capacity = capacity_;
  }

  /// [1, T] tokens from number `first` on.
  at::Tensor tensor(int64_t first) const {
    const auto options = at::TensorOptions().dtype(at::kLong);
    at::Tensor tokens_BT = at::empty({1, size() - first}, options);
    std::copy(tokens_.begin() + first, tokens_.end(), tokens_BT.mutable_data_ptr<int64_t>());
    return tokens_BT;
  }

  GenerationParts parts_;
  bool cached_;
  int64_t capacity_ = 0;
  std::vector<int64_t> tokens_;
  KeyValueCache cache_;
};

int64_t next_token(const at::Tensor& logits_V, const GenerationRequest& request, int64_t position) {
  const std::span<const float> logits(logits_V.const_data_ptr<float>(),
                                      static_cast<size_t>(logits_V.numel()));
  const std::vector<double> probabilities = next_token_probabilities(logits, request.sampling);
  return choose_token(probabilities, sampling_number(request.seed, request.sample, position));
}

}  // namespace

double Generation::prompt_tokens_per_sec() const {
  return rate(prompt_tokens, prompt_seconds);
}

double Generation::tokens_per_sec() const {
  return rate(passes, seconds);
}

int generation_threads(int64_t num_parameters, int cores) {
  constexpr int64_t kParametersPerThread = 50'000'000;  // some 20 ms of reading memory
  return static_cast<int>(
      std::clamp<int64_t>(num_parameters / kParametersPerThread, 1, std::max(1, cores)));
}

Generation generate(GenerationParts parts, const GenerationRequest& request,
                    const std::function<bool(int64_t token)>& on_token) {
  const at::NoGradGuard no_grad;
  // To cast every weight for every token would take longer than the token does.
  const AutocastScope autocast(parts.precision.autocast_dtype, WeightCopies::kKept);
  Generation result;
  Context context(parts, request);
  auto started = Clock::now();
  result.prompt_tokens = context.size();
  at::Tensor logits_V = context.logits();
  result.prompt_seconds = seconds_since(started);
  started = Clock::now();
  while (static_cast<int64_t>(result.tokens.size()) < request.max_tokens) {
    if (!result.tokens.empty()) {
      context.add(result.tokens.back());
      logits_V = context.logits();
      ++result.passes;
    }
    const int64_t token = next_token(logits_V, request, static_cast<int64_t>(result.tokens.size()));
    if (token == request.end_of_text) {
      result.end = Generation::End::kEndOfText;
      break;
    }
    result.tokens.push_back(token);
    if (!on_token || on_token(token)) continue;
    result.end = Generation::End::kStopped;
    break;
  }
  result.seconds = seconds_since(started);
  return result;
}

}  // namespace zerolab
