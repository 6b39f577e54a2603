#include "host/torch_version.h"

#include <dlfcn.h>

#include <torch/headeronly/version.h>

#include "zerolab/error.h"

namespace zerolab {
namespace {

constexpr uint64_t kVersionBits = ~((uint64_t{1} << 40) - 1);  // major, minor, patch; not the tag

struct LoadedTorch {
  uint64_t packed = 0;
  std::string file;
};

/// Asked by name, so that a LibTorch without the function gets a sentence instead of a loader
/// error.
LoadedTorch loaded_torch() {
  void* const symbol = ::dlsym(RTLD_DEFAULT, "aoti_torch_abi_version");
  if (symbol == nullptr) return {};
  LoadedTorch torch;
  torch.packed = reinterpret_cast<uint64_t (*)()>(symbol)();
  Dl_info info{};
  if (::dladdr(symbol, &info) != 0 && info.dli_fname != nullptr) torch.file = info.dli_fname;
  return torch;
}

}  // namespace

std::string torch_version_text(uint64_t packed) {
  return std::to_string(packed >> 56) + "." + std::to_string((packed >> 48) & 255) + "." +
         std::to_string((packed >> 40) & 255);
}

std::string torch_mismatch(uint64_t loaded) {
  if ((loaded & kVersionBits) == (TORCH_ABI_VERSION & kVersionBits)) return "";
  const std::string found = loaded == 0 ? "one of unknown version" : torch_version_text(loaded);
  return "this zerolab was built with LibTorch " + torch_version_text(TORCH_ABI_VERSION) +
         ", but " + found +
         " was loaded; check LD_LIBRARY_PATH, or build zerolab again with that LibTorch";
}

void require_built_torch() {
  const LoadedTorch torch = loaded_torch();
  const std::string mismatch = torch_mismatch(torch.packed);
  if (mismatch.empty()) return;
  throw PluginError(mismatch + (torch.file.empty() ? "." : " (loaded: " + torch.file + ")."));
}

}  // namespace zerolab
