#include "tokenizer_split.h"

#include <memory>
#include <string>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "zerolab/error.h"

#include "utf8.h"

namespace zerolab {
namespace {

constexpr char32_t kNumPoints = 0x110000;

/// Sets the class of every code point in `all` (all of them as UTF-8) that `pattern` matches.
void mark(std::string_view all, const char* pattern, CharacterClass of,
          std::vector<CharacterClass>& classes) {
  int code = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> compiled(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                    PCRE2_UTF | PCRE2_UCP, &code, &offset, nullptr),
      pcre2_code_free);
  if (compiled == nullptr) {
    throw Error("the installed PCRE2 cannot compile '" + std::string(pattern) + "' (code " +
                std::to_string(code) + "); install one with Unicode support.");
  }
  pcre2_jit_compile(compiled.get(), PCRE2_JIT_COMPLETE);  // without it, slower
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(compiled.get(), nullptr), pcre2_match_data_free);
  size_t at = 0;
  while (pcre2_match(compiled.get(), reinterpret_cast<PCRE2_SPTR>(all.data()), all.size(), at,
                     PCRE2_NO_UTF_CHECK, match.get(), nullptr) > 0) {
    const PCRE2_SIZE* const found = pcre2_get_ovector_pointer(match.get());
    char32_t point = 0;
    for (at = found[0]; at < found[1];) {
      at += utf8_character(all, at, point);
      classes[point] = of;
    }
  }
}

std::vector<CharacterClass> make_classes() {
  std::string all;
  all.reserve(4 * size_t{kNumPoints});
  for (char32_t point = 0; point < kNumPoints; ++point) {
    if (point < 0xd800 || point > 0xdfff) append_utf8(point, all);
  }
  std::vector<CharacterClass> classes(kNumPoints, CharacterClass::kOther);
  mark(all, "\\p{L}+", CharacterClass::kLetter, classes);
  mark(all, "\\p{N}+", CharacterClass::kNumber, classes);
  // Not PCRE2's \s, which takes U+180E as well.
  constexpr struct {
    char32_t first, last;
  } kSpaces[] = {{0x09, 0x0d},     {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},
                 {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f},
                 {0x205f, 0x205f}, {0x3000, 0x3000}};
  for (const auto& [first, last] : kSpaces) {
    for (char32_t point = first; point <= last; ++point) classes[point] = CharacterClass::kSpace;
  }
  return classes;
}

/// Bytes of 's, 'd, 'm, 't, 'll, 've or 're at `at`, where an apostrophe is; else 0.
size_t contraction(std::string_view text, size_t at) {
  const char first = at + 1 < text.size() ? text[at + 1] : '\0';
  const char second = at + 2 < text.size() ? text[at + 2] : '\0';
  switch (first) {
    case 's':
    case 'd':
    case 'm':
    case 't':
      return 2;
    case 'l':
      return second == 'l' ? 3 : 0;
    case 'v':
    case 'r':
      return second == 'e' ? 3 : 0;
    default:
      return 0;
  }
}

}  // namespace

PieceSplitter::PieceSplitter() {
  static const std::vector<CharacterClass> classes = make_classes();
  class_of_ = classes.data();
}

inline PieceSplitter::Character PieceSplitter::character(std::string_view text, size_t at) const {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {class_of_[byte], 1};
  char32_t point = 0;
  const size_t length = utf8_character(text, at, point);
  if (length == 0) return {CharacterClass::kInvalid, 1};
  return {class_of_[point], length};
}

inline size_t PieceSplitter::run_end(std::string_view text, size_t at, CharacterClass of) const {
  while (at < text.size()) {
    const Character next = character(text, at);
    if (next.of != of) break;
    at += next.length;
  }
  return at;
}

size_t PieceSplitter::piece_end(std::string_view text, size_t at) const {
  Character first = character(text, at);
  size_t start = at;
  if (text[at] == ' ' && at + 1 < text.size()) {
    const Character next = character(text, at + 1);
    if (next.of != CharacterClass::kSpace && next.of != CharacterClass::kInvalid) {
      first = next;
      start = at + 1;
    }
  } else if (text[at] == '\'') {
    const size_t length = contraction(text, at);
    if (length > 0) return at + length;
  }
  if (first.of != CharacterClass::kSpace) {
    return run_end(text, start + first.length, first.of);
  }
  // A run of white space leaves its last character to the word behind it, if it has others.
  size_t last = at, end = at;
  while (end < text.size()) {
    const Character next = character(text, end);
    if (next.of == CharacterClass::kInvalid) return end;
    if (next.of != CharacterClass::kSpace) return last > at ? last : end;
    last = end;
    end += next.length;
  }
  return end;
}

bool PieceSplitter::is_cut(std::string_view text, size_t at) const {
  if (at == 0 || at >= text.size()) return false;
  // White space behind something else: only white space itself continues into white space, and
  // no piece but white space depends on what follows it.
  const auto here = static_cast<unsigned char>(text[at]);
  if (here >= 0x80 || class_of_[here] != CharacterClass::kSpace) return false;
  size_t before = at - 1;
  while (before > 0 && at - before < 4 && (static_cast<unsigned char>(text[before]) & 0xc0) == 0x80)
    --before;
  const Character previous = character(text, before);
  return before + previous.length != at || previous.of != CharacterClass::kSpace;
}

}  // namespace zerolab
