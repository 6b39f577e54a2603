#include "train/foreign_settings.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "zerolab/error.h"

namespace zerolab {

std::string foreign_differences(const std::filesystem::path& weights, const WeightLayout& layout) {
  const std::filesystem::path path = weights.parent_path() / "config.json";
  std::ifstream file(path);
  if (layout.settings.empty() || !file) return {};
  const auto config = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    throw ConfigError(path.string() +
                      ": is no JSON object; write it anew, or move the weights to a folder of "
                      "their own.");
  }
  std::string differences;
  for (const ForeignSetting& setting : layout.settings) {
    const auto found = config.find(setting.name);
    if (found == config.end()) continue;
    const bool agreed = std::any_of(
        setting.accepted.begin(), setting.accepted.end(),
        [&](const std::string& value) { return *found == nlohmann::json::parse(value); });
    if (agreed) continue;
    differences += (differences.empty() ? "" : ", ") + setting.name + " = " + found->dump() +
                   " (the model: " + setting.accepted.front() + ")";
  }
  return differences;
}

}  // namespace zerolab
