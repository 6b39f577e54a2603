// What a run's environment.json says about where it ran.

#include <cstdlib>
#include <fstream>
#include <string_view>

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <torch/version.h>

#include "zerolab/version.h"

#include "store/run_folder.h"

namespace zerolab {

namespace {

/// Variables that change numbers, speed or placement, by exact name: a pattern could let a
/// credential through.
constexpr const char* kRecordedVariables[] = {"OMP_NUM_THREADS",
                                              "OMP_PROC_BIND",
                                              "OMP_PLACES",
                                              "OMP_DYNAMIC",
                                              "GOMP_CPU_AFFINITY",
                                              "KMP_AFFINITY",
                                              "KMP_BLOCKTIME",
                                              "MKL_NUM_THREADS",
                                              "MKL_DYNAMIC",
                                              "MKL_CBWR",
                                              "MKL_ENABLE_INSTRUCTIONS",
                                              "ATEN_CPU_CAPABILITY",
                                              "ONEDNN_MAX_CPU_ISA",
                                              "ONEDNN_DEFAULT_FPMATH_MODE",
                                              "CUDA_VISIBLE_DEVICES",
                                              "CUBLAS_WORKSPACE_CONFIG",
                                              "NVIDIA_TF32_OVERRIDE",
                                              "PYTORCH_CUDA_ALLOC_CONF",
                                              "NCCL_ALGO",
                                              "NCCL_PROTO",
                                              "NCCL_P2P_DISABLE",
                                              "NCCL_IB_DISABLE",
                                              "NCCL_SOCKET_IFNAME",
                                              "GLOO_SOCKET_IFNAME",
                                              "WORLD_SIZE",
                                              "LOCAL_WORLD_SIZE",
                                              "OMPI_COMM_WORLD_SIZE",
                                              "SLURM_JOB_ID",
                                              "SLURM_JOB_NUM_NODES",
                                              "SLURM_NTASKS",
                                              "SLURM_CPUS_PER_TASK"};

/// The value of the first line "key : value" of a file; empty if there is none.
std::string line_value(const char* file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t colon = line.find(':');
    const size_t begin =
        colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    if (begin != std::string::npos)
      return line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
  }
  return {};
}

/// The distribution's name, as people say it ("Debian GNU/Linux 12 (bookworm)").
std::string distribution() {
  constexpr std::string_view kKey = "PRETTY_NAME=\"";
  std::ifstream in("/etc/os-release");
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, kKey.size(), kKey) == 0)
      return line.substr(kKey.size(), line.rfind('"') - kKey.size());
  }
  return {};
}

/// Cores that this process may use: fewer than the machine has under taskset, Slurm or in a
/// container.
int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
  return CPU_COUNT(&set);
}

constexpr const char* kCompiler =
#if defined(__clang__)
    "clang " __clang_version__;
#else
    "g++ " __VERSION__;
#endif

}  // namespace

std::map<std::string, std::string> collect_environment() {
  std::map<std::string, std::string> environment;
  environment["zerolab_version"] = ZEROLAB_VERSION;
  environment["libtorch_version"] = TORCH_VERSION;
  environment["compiler"] = kCompiler;
  environment["cpu_cores"] = std::to_string(sysconf(_SC_NPROCESSORS_ONLN));
  environment["cpu_cores_usable"] = std::to_string(usable_cores());
  environment["distribution"] = distribution();
  utsname system{};
  if (uname(&system) == 0) {
    environment["host"] = system.nodename;
    environment["os"] = std::string(system.sysname) + " " + system.release;
    environment["architecture"] = system.machine;
  }
  // 64-bit Arm names no model in cpuinfo.
  const std::string model = line_value("/proc/cpuinfo", "model name");
  environment["cpu_model"] = model.empty() ? environment["architecture"] : model;
  for (const char* name : kRecordedVariables) {
    if (const char* value = std::getenv(name)) environment[std::string("env.") + name] = value;
  }
  return environment;
}

}  // namespace zerolab
