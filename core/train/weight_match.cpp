#include "train/weight_match.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "zerolab/error.h"

#include "train/declared_model.h"

namespace zerolab {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

/// The end of a name, from the beginning of one of its words.
bool ends_with_words(std::string_view name, std::string_view suffix) {
  if (suffix.starts_with('.')) suffix.remove_prefix(1);
  return name == suffix || (name.ends_with(suffix) && name.size() > suffix.size() &&
                            name[name.size() - suffix.size() - 1] == '.');
}

bool holds_numbers(TensorDtype dtype) {
  return dtype != TensorDtype::kInt64 && dtype != TensorDtype::kInt32 &&
         dtype != TensorDtype::kUInt8;
}

/// One layout held against a source.
class LayoutTrial {
 public:
  using Names = std::map<std::string, size_t, std::less<>>;

  LayoutTrial(const WeightLayout& layout, const TensorSource& source, const Names& names,
              const Parameters& parameters)
      : layout_(layout), source_(source), names_(names), parameters_(parameters) {
    match_.layout = layout.name;
    match_.origins.resize(parameters.size());
    find_prefix();
    for (const ForeignWeight& weight : layout.weights) find(weight);
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (first_names_[i].empty() || !match_.origins[i].empty() || misshapen_.count(i) > 0)
        continue;
      missing_.push_back(first_names_[i]);
    }
    for (const auto& [name, tensor] : names) {
      if (used_.count(tensor) == 0 && !is_ignored(name)) left_over_.push_back(name);
    }
  }

  size_t num_differences() const { return missing_.size() + left_over_.size() + shapes_.size(); }
  WeightMatch& match() { return match_; }

  std::string differences() const {
    std::string text;
    const auto add = [&text](const std::string& phrase) {
      text += (text.empty() ? "" : "; ") + phrase;
    };
    const auto count = [](const std::vector<std::string>& list) {
      return std::to_string(list.size()) + (list.size() == 1 ? " weight is " : " weights are ");
    };
    if (!missing_.empty()) add(count(missing_) + "missing (" + first_of(missing_) + ")");
    if (!left_over_.empty()) add(count(left_over_) + "left over (" + first_of(left_over_) + ")");
    if (!shapes_.empty()) add(count(shapes_) + "of another kind (" + shapes_text() + ")");
    return text;
  }

 private:
  /// Which is left out of names if the source has none that begins so.
  void find_prefix() {
    first_names_.resize(parameters_.size());
    if (layout_.name.empty() || layout_.weights.empty()) return;
    const std::string& first = layout_.weights.front().name;
    prefix_ = first.substr(0, first.find('.') + 1);
    const auto& weights = layout_.weights;
    const auto common = std::count_if(weights.begin(), weights.end(), [&](const auto& weight) {
      return weight.name.starts_with(prefix_);
    });
    if (common < 2) prefix_.clear();
    const auto at = names_.lower_bound(prefix_);
    if (at != names_.end() && at->first.starts_with(prefix_)) prefix_.clear();
  }

  std::string name_of(const ForeignWeight& weight) const {
    const bool cut = !prefix_.empty() && weight.name.starts_with(prefix_);
    return cut ? weight.name.substr(prefix_.size()) : weight.name;
  }

  void find(const ForeignWeight& weight) {
    const size_t i = parameter_of(weight, layout_, parameters_);
    const ParameterInfo& info = parameters_.info(i);
    if (info.numel == 0) return;
    const std::string name = name_of(weight);
    if (first_names_[i].empty()) first_names_[i] = name;
    const auto found = names_.find(name);
    if (found == names_.end()) return;
    used_.insert(found->second);
    std::vector<int64_t> shape = info.shape;
    if (weight.transposed) std::reverse(shape.begin(), shape.end());
    const PieceInfo& tensor = source_.tensors[found->second].info;
    if (tensor.shape == shape && holds_numbers(tensor.dtype)) {
      match_.origins[i].push_back({found->second, weight.transposed});
      return;
    }
    misshapen_.insert(i);
    shapes_.push_back("'" + name + "' is " +
                      (tensor.shape == shape ? "of " + std::string(dtype_name(tensor.dtype))
                                             : shape_text(tensor.shape) + " where the model has " +
                                                   shape_text(shape)));
  }

  bool is_ignored(const std::string& name) const {
    const auto& suffixes = layout_.ignored_suffixes;
    return std::any_of(suffixes.begin(), suffixes.end(),
                       [&](const std::string& suffix) { return ends_with_words(name, suffix); });
  }

  std::string shapes_text() const {
    constexpr size_t kListed = 3;
    std::string text;
    for (size_t i = 0; i < std::min(shapes_.size(), kListed); ++i)
      text += (text.empty() ? "" : ", ") + shapes_[i];
    if (shapes_.size() > kListed) text += ", ...";
    return text;
  }

  const WeightLayout& layout_;
  const TensorSource& source_;
  const Names& names_;
  const Parameters& parameters_;
  std::string prefix_;
  WeightMatch match_;
  std::vector<std::string> first_names_;  // by parameter; empty: it is not looked for
  std::vector<std::string> missing_, left_over_, shapes_;
  std::set<size_t> used_, misshapen_;  // tensors; parameters
};

std::string as_layout(const std::string& layout) {
  return layout.empty() ? "under the model's own names" : "in the layout '" + layout + "'";
}

}  // namespace

WeightLayout own_layout(const Parameters& parameters) {
  WeightLayout layout;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterInfo& info = parameters.info(i);
    layout.weights.push_back({info.name, info.name});
    for (const std::string& alias : info.aliases) layout.weights.push_back({alias, info.name});
  }
  return layout;
}

size_t parameter_of(const ForeignWeight& weight, const WeightLayout& layout,
                    const Parameters& parameters) {
  const int64_t index = parameters.find(weight.parameter);
  if (index >= 0) return static_cast<size_t>(index);
  throw PluginError("the model's layout '" + layout.name + "' has a weight '" + weight.name +
                    "' that stands for '" + weight.parameter + "', which is no parameter");
}

WeightMatch match_weights(const TensorSource& source, const Parameters& parameters,
                          const std::vector<WeightLayout>& layouts, const std::string& title) {
  LayoutTrial::Names names;
  for (size_t i = 0; i < source.tensors.size(); ++i) {
    const PieceInfo& info = source.tensors[i].info;
    if (info.state == kParameterState && info.length > 0) names.emplace(info.parameter, i);
  }
  std::vector<WeightLayout> all = {own_layout(parameters)};
  all.insert(all.end(), layouts.begin(), layouts.end());
  std::optional<LayoutTrial> closest;
  for (const WeightLayout& layout : all) {
    LayoutTrial trial(layout, source, names, parameters);
    if (closest && trial.num_differences() == 0 && closest->num_differences() == 0 &&
        trial.match().origins != closest->match().origins) {
      throw ConfigError(title + ": fits the model both " + as_layout(closest->match().layout) +
                        " and " + as_layout(layout.name) +
                        ", which mean different weights; rename the file's weights as the model "
                        "names them.");
    }
    if (!closest || trial.num_differences() < closest->num_differences())
      closest.emplace(std::move(trial));
  }
  if (closest->num_differences() == 0) return std::move(closest->match());
  throw ConfigError(
      title + ": does not fit the model: " + as_layout(closest->match().layout) +
      (all.size() > 1 ? ", which comes closest, " : ", ") + closest->differences() +
      "; choose the model's options, batch.sequence_length and the data's vocabulary as "
      "those weights were made with.");
}

}  // namespace zerolab
