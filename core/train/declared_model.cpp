#include "train/declared_model.h"

#include <algorithm>

#include <fnmatch.h>

#include "zerolab/error.h"

namespace zerolab {
namespace {

constexpr size_t kListed = 4;  // words that an error names

std::vector<std::string> names_of(const ParameterInfo& info) {
  std::vector<std::string> names = {info.name};
  names.insert(names.end(), info.aliases.begin(), info.aliases.end());
  return names;
}

std::vector<std::string> all_names(const Parameters& parameters) {
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters.size(); ++i) {
    for (std::string& name : names_of(parameters.info(i))) names.push_back(std::move(name));
  }
  return names;
}

[[noreturn]] void refuse(const std::string& pattern, const Parameters& parameters) {
  const std::vector<std::string> names = all_names(parameters);
  const std::string near = nearest(pattern, names);
  throw ConfigError(
      "key 'freeze': no parameter's name is like '" + pattern + "'; " +
      (near.empty() ? "the model's are " + first_of(names) : "the nearest is '" + near + "'") +
      " (* stands for any characters, ? for one).");
}

/// Whether there is one.
bool freeze_like(const std::string& pattern, Parameters& parameters) {
  bool found = false;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::vector<std::string> names = names_of(parameters.info(i));
    const bool like = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    });
    if (like) parameters.freeze(i);
    found = found || like;
  }
  return found;
}

}  // namespace

std::string first_of(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < std::min(words.size(), kListed); ++i)
    text += (text.empty() ? "'" : ", '") + words[i] + "'";
  if (words.size() > kListed) text += " and " + std::to_string(words.size() - kListed) + " more";
  return text;
}

void freeze_parameters(const std::vector<std::string>& patterns, Parameters& parameters) {
  for (const std::string& pattern : patterns) {
    if (!freeze_like(pattern, parameters)) refuse(pattern, parameters);
  }
  if (patterns.empty() || parameters.total_numel(true) > 0) return;
  throw ConfigError(
      "key 'freeze': freezes every parameter of the model, and nothing is left to train; leave "
      "some out.");
}

void declare_model(Model& model, const Experiment& experiment, int64_t vocab_size,
                   Parameters& parameters) {
  model.declare(parameters, {vocab_size, experiment.batch.sequence_length});
  freeze_parameters(experiment.freeze, parameters);
}

}  // namespace zerolab
