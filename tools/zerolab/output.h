#pragma once
// Text for standard output. No colours and no locale: the same bytes on a terminal and in a pipe.

#include <string>
#include <vector>

namespace zerolab {

/// Writes `text` at once. A reader that has gone away (`zerolab ... | head -1`) is no error.
/// Errors: Error if the text cannot be written (a full disk).
void print(const std::string& text);

/// Columns as wide as their widest cell, two blanks between them; the last is not padded, and every
/// row is one line.
std::string table(std::vector<std::vector<std::string>> rows);

}  // namespace zerolab
