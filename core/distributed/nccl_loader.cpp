#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include <dlfcn.h>

#include "zerolab/error.h"

#include "distributed/nccl/nccl_factory.h"

namespace zerolab {

std::unique_ptr<Communicator> make_nccl_communicator(NcclRequest request) {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const auto library = (program.parent_path() / "../lib" / kNcclLibrary).lexically_normal();
  if (!std::filesystem::exists(library)) {
    throw ConfigError(
        "device = \"cuda\" needs " + library.string() +
        ", which is not there: build with -DZEROLAB_CUDA=ON, or set device = \"cpu\"");
  }
  // Never closed: tensors and streams outlive every communicator.
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* symbol = handle ? ::dlsym(handle, kNcclFactorySymbol) : nullptr;
  if (!symbol) {
    const char* reason = ::dlerror();
    throw ConfigError("device = \"cuda\" needs " + library.string() + ", which does not load (" +
                      (reason ? reason : "no reason given") +
                      "): install the CUDA libraries of this LibTorch, or set device = \"cpu\"");
  }
  return std::unique_ptr<Communicator>(reinterpret_cast<NcclFactory>(symbol)(request));
}

}  // namespace zerolab
