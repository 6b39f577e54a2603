#include "train/text_stream.h"

#include <algorithm>
#include <utility>

namespace zerolab {
namespace {

/// Bytes of the character that begins so; 1 for what begins none.
size_t character_length(unsigned char lead) {
  if (lead >= 0xf0 && lead < 0xf5) return 4;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  return lead >= 0xc2 && lead < 0xe0 ? 2 : 1;
}

/// Bytes at the end that begin a character and do not end it.
size_t incomplete_bytes(std::string_view text) {
  for (size_t n = 1; n <= std::min<size_t>(3, text.size()); ++n) {
    const auto byte = static_cast<unsigned char>(text[text.size() - n]);
    if ((byte & 0xc0) == 0x80) continue;  // continues one
    return character_length(byte) > n ? n : 0;
  }
  return 0;
}

}  // namespace

std::string TextStream::add(std::string_view bytes) {
  std::string text = std::exchange(kept_, {});
  text += bytes;
  const size_t complete = text.size() - incomplete_bytes(text);
  kept_ = text.substr(complete);
  text.resize(complete);
  return text;
}

std::string TextStream::rest() {
  return std::exchange(kept_, {});
}

}  // namespace zerolab
