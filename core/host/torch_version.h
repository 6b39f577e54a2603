#pragma once
// The LibTorch that this process really loaded. The loader takes whichever library the run path
// or LD_LIBRARY_PATH offers first; another version than the headers' would read tensors wrongly
// without an error.

#include <cstdint>
#include <string>

namespace zerolab {

/// "2.11.0" from LibTorch's packed version: a byte each for major, minor and patch at the top.
std::string torch_version_text(uint64_t packed);

/// The sentence if `loaded` (packed; 0 if it could not be asked) is not the version this host was
/// built with; empty if it is.
std::string torch_mismatch(uint64_t loaded);

/// [setup] Errors: PluginError if the loaded LibTorch has another version than the host was built
/// with.
void require_built_torch();

}  // namespace zerolab
