#include <cstdlib>

#include "zerolab/version.h"

#include "catch.h"
#include "store/run_folder.h"

namespace zerolab {

TEST_CASE("the environment says which versions, which machine, how many cores") {
  const auto environment = collect_environment();
  CHECK(environment.at("zerolab_version") == ZEROLAB_VERSION);
  for (const char* key : {"libtorch_version", "compiler", "cpu_model", "os", "architecture"}) {
    INFO(key);
    CHECK_FALSE(environment.at(key).empty());
  }
  CHECK(std::stoi(environment.at("cpu_cores")) >= 1);
  CHECK(std::stoi(environment.at("cpu_cores_usable")) >= 1);
}

TEST_CASE("the environment holds the variables that change a run, and no others") {
  setenv("OMP_NUM_THREADS", "3", 1);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  setenv("MKL_SECRET_TOKEN", "hunter2", 1);
  setenv("AWS_SECRET_ACCESS_KEY", "hunter2", 1);
  unsetenv("SLURM_JOB_ID");
  const auto environment = collect_environment();
  CHECK(environment.at("env.OMP_NUM_THREADS") == "3");
  CHECK(environment.at("env.CUDA_VISIBLE_DEVICES").empty());
  CHECK(environment.count("env.SLURM_JOB_ID") == 0);
  for (const auto& [key, value] : environment) CHECK(value != "hunter2");
  unsetenv("OMP_NUM_THREADS");
  unsetenv("CUDA_VISIBLE_DEVICES");
  unsetenv("MKL_SECRET_TOKEN");
  unsetenv("AWS_SECRET_ACCESS_KEY");
}

}  // namespace zerolab
