#pragma once
// What a mistyped command line is told.

#include <string>

#include <CLI/CLI.hpp>

namespace zerolab {

/// One sentence for a parse error, with the nearest verb or flag if the word that was not
/// understood is near to one.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace zerolab
