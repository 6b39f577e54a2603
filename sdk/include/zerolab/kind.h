#pragma once
// The six kinds of plugin: the one vocabulary of TOML tables, headers, folders, tests and
// commands.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace zerolab {

enum class Kind : uint32_t { kModel, kData, kOptimizer, kSharding, kPrecision, kScheduler };

inline constexpr std::array<Kind, 6> kKinds = {Kind::kModel,    Kind::kData,      Kind::kOptimizer,
                                               Kind::kSharding, Kind::kPrecision, Kind::kScheduler};

/// The word of a kind: "model", "data", "optimizer", "sharding", "precision" or "scheduler".
constexpr std::string_view kind_name(Kind kind) {
  constexpr std::array<std::string_view, 6> kNames = {"model",    "data",      "optimizer",
                                                      "sharding", "precision", "scheduler"};
  return kNames[static_cast<size_t>(kind)];
}

constexpr std::optional<Kind> kind_from_name(std::string_view name) {
  for (Kind kind : kKinds) {
    if (kind_name(kind) == name) return kind;
  }
  return std::nullopt;
}

}  // namespace zerolab
