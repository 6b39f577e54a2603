#include "zerolab/error.h"

namespace zerolab {

Error::Error(const std::string& message, ExitCode code)
    : std::runtime_error(message), message_(message), code_(code) {}
Error::~Error() = default;

void Error::in(const std::string& context) {
  message_ = context + ": " + message_;
}

// Out of line, so that each type's identity lives in the SDK alone and a catch works across
// libraries.
ConfigError::~ConfigError() = default;
PluginError::~PluginError() = default;
StoreError::~StoreError() = default;
PeerError::~PeerError() = default;
DivergedError::~DivergedError() = default;

}  // namespace zerolab
