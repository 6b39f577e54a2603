#include "train/text_stream.h"

#include "catch.h"

using zerolab::TextStream;

namespace {

/// All that comes out, and whether each part of it began and ended between characters.
std::string streamed(const std::string& text, size_t piece) {
  TextStream stream;
  std::string out;
  for (size_t i = 0; i < text.size(); i += piece) {
    const std::string part = stream.add(text.substr(i, piece));
    if (!part.empty()) CHECK((static_cast<unsigned char>(part[0]) & 0xc0) != 0x80);
    out += part;
  }
  CHECK(stream.rest().empty());
  return out;
}

}  // namespace

TEST_CASE("text comes out in whole characters however it is cut") {
  const std::string text = "a\u00df\u20ac\U0001f600b\u4e2d\u6587\u00e9";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    INFO("pieces of " << piece);
    CHECK(streamed(text, piece) == text);
  }
}

TEST_CASE("a character is held back until its last byte is there") {
  TextStream stream;
  CHECK(stream.add("x\xf0") == "x");
  CHECK(stream.add("\x9f\x98").empty());
  CHECK(stream.add("\x80y") == "\xf0\x9f\x98\x80y");
}

TEST_CASE("bytes that are no UTF-8 pass as they are, and none is lost") {
  TextStream stream;
  CHECK(stream.add("\x80\xbf\xff\xc0") == "\x80\xbf\xff\xc0");  // nothing that could be completed
  CHECK(stream.add("\xe2\x82") == "");
  CHECK(stream.add("z") == "\xe2\x82z");  // it was not completed after all
  CHECK(stream.add("\xe2\x82") == "");
  CHECK(stream.rest() == "\xe2\x82");
  CHECK(stream.rest().empty());
}
