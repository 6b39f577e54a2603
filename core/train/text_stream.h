#pragma once
// Text that comes token by token, given on in whole characters.
// Ranks: local.

#include <string>
#include <string_view>

namespace zerolab {

class TextStream {
 public:
  /// Takes bytes and gives what is complete of all that came: the last bytes are kept if they begin
  /// a UTF-8 character that needs more. Bytes that are no UTF-8 pass as they are.
  std::string add(std::string_view bytes);
  /// What was kept, at the end of the text.
  std::string rest();

 private:
  std::string kept_;
};

}  // namespace zerolab
