#pragma once
// A DeepSpeed configuration as an experiment: the text of a TOML file, and what became of each key.

#include <string>
#include <string_view>
#include <vector>

#include "deepspeed_config.h"

namespace zerolab {

struct DeepSpeedImport {
  std::string toml;  ///< a whole experiment, which `zerolab show-config` accepts as it is
  std::vector<KeyVerdict> keys;  ///< each key of the configuration once, in its order
};

/// `json`: the configuration's text. `name`: what messages call the file; the experiment is named
/// after it. Errors: ConfigError with name:line:column for a syntax error, a key that is given
/// twice, and for values that DeepSpeed itself refuses.
DeepSpeedImport import_deepspeed(std::string_view json, const std::string& name);

/// What a user has to know: the keys that are honoured otherwise, without effect, or not honoured,
/// those of one reason together. Empty if there are none. A line each, indented below headings.
std::string remarks_text(const DeepSpeedImport& import);

}  // namespace zerolab
