#pragma once
// Lists and texts of any length between ranks, over the control channel.
// Ranks: collective.

#include <cstdint>
#include <string>
#include <vector>

#include "zerolab/communicator.h"

namespace zerolab {

/// Each rank's list; they may differ in length.
std::vector<std::vector<int64_t>> gather_lists(Communicator& ranks, std::vector<int64_t> mine);
/// Each rank's text.
std::vector<std::string> gather_texts(Communicator& ranks, const std::string& mine);

/// A text in a list: eight characters a number.
void append_text(std::vector<int64_t>& list, const std::string& text);
std::string text_at(const std::vector<int64_t>& list, size_t begin, int64_t characters);
/// Numbers that so many characters take.
int64_t words_for(int64_t characters);

}  // namespace zerolab
