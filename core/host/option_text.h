#pragma once
// The options of a plugin as text for people: what a value may be, and a table to paste into an
// experiment.

#include <string>
#include <string_view>

#include "zerolab/kind.h"
#include "zerolab/options.h"

namespace zerolab {

/// What a value may be beyond its type: "at least 0", "above 0 and below 1", "one of char, byte",
/// "2 values"; empty if anything of the type will do.
std::string option_range(const OptionField& field);

/// A TOML table of the kind with every option at its default, each below a comment with its
/// meaning, type, unit and range. It is a valid part of an experiment, except that required options
/// have a placeholder and say so.
std::string skeleton_toml(Kind kind, std::string_view name, const OptionSchema& schema);

}  // namespace zerolab
