#pragma once
// Cuts text into the pieces that GPT-2's tokens never cross. What its pattern matches, one after
// the other:
//
//   '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// written by hand, because a match of a general engine costs more than everything else. Letters
// and numbers are those of the installed PCRE2's Unicode; \s is Unicode's White_Space. Bytes that
// are no UTF-8 form pieces of their own, and text ends before them.
//
// Ranks: local; from any thread.
// Errors: Error if PCRE2 knows no Unicode.
// Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), 2.2.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace zerolab {

enum class CharacterClass : uint8_t { kLetter, kNumber, kSpace, kOther, kInvalid };

class PieceSplitter {
 public:
  PieceSplitter();
  /// Where the piece that begins at `at` (below text.size()) ends.
  size_t piece_end(std::string_view text, size_t at) const;
  /// Whether both halves of a text cut at `at` give the pieces of the whole, whatever follows and
  /// precedes them: a piece certainly begins here, and what is behind changes none before.
  bool is_cut(std::string_view text, size_t at) const;

 private:
  struct Character {
    CharacterClass of;
    size_t length;
  };
  Character character(std::string_view text, size_t at) const;
  size_t run_end(std::string_view text, size_t at, CharacterClass of) const;

  const CharacterClass* class_of_;  // by code point
};

}  // namespace zerolab
