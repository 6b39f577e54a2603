#pragma once
// The one function that libzerolab_nccl.so exports. The host finds it by name, so it links no
// CUDA.

#include <memory>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "distributed/gloo_communicator.h"
#include "distributed/world.h"

namespace zerolab {

struct NcclRequest {
  c10::intrusive_ptr<c10d::Store> store;  ///< null with one rank
  RankEnvironment environment;
  double timeout_s = 0;
  std::unique_ptr<ControlChannel> control;  ///< null with one rank
};

/// [collective] [setup] Makes the GPU of this rank (its local rank's) the current device, and a
/// communicator between them. Errors: ConfigError if no GPU is visible or too few; PeerError if the
/// others are gone. Owns: the caller gets the result.
using NcclFactory = Communicator* (*)(NcclRequest& request);
inline constexpr const char* kNcclFactorySymbol = "zerolab_make_nccl_communicator";
inline constexpr const char* kNcclLibrary = "libzerolab_nccl.so";

/// [collective] [setup] Loads the library from `../lib` beside this program and calls its factory.
/// Errors: ConfigError if it is not there or does not load; those of the factory.
std::unique_ptr<Communicator> make_nccl_communicator(NcclRequest request);

}  // namespace zerolab
