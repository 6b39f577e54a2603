// zerolab import as a user meets it: what it prints where, what it writes, and that the experiment
// that it writes runs as it is.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "catch.h"

namespace {

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Outcome {
  int code = -1;
  std::string out, err;
};

/// The program in a folder that goes away with the test.
class Shell {
 public:
  Shell() {
    std::string name = (fs::temp_directory_path() / "zerolab-import-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
  }
  ~Shell() { fs::remove_all(folder_); }
  Shell(const Shell&) = delete;
  Shell& operator=(const Shell&) = delete;

  fs::path operator/(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  Outcome operator()(const std::string& arguments) const {
    const std::string command = "cd '" + folder_.string() +
                                "' && ZEROLAB_PLUGIN_PATH= XDG_DATA_HOME=none '" ZEROLAB_TEST_BINARY
                                "' " +
                                arguments + " >.out 2>.err </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(folder_ / ".out"),
            read(folder_ / ".err")};
  }
  /// Names in the folder, but for the output of the last command.
  size_t files() const {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      count += name != ".out" && name != ".err";
    }
    return count;
  }

 private:
  fs::path folder_;
};

const std::string kPlugins = " --plugin-path '" ZEROLAB_TEST_PLUGIN_DIR "'";

/// With every key that reaches the experiment.
std::string full_config(int stage, const std::string& more) {
  return R"({
  "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8,
                                            "weight_decay": 0.1}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 3, "warmup_num_steps": 1,
                                                     "cos_min_ratio": 0.1}},
  "bf16": {"enabled": true}, "steps_per_print": 10,
  "zero_optimization": {"stage": )" +
         std::to_string(stage) + R"(, "reduce_bucket_size": 5e8, "allgather_bucket_size": 1e6,
    "overlap_comm": true, "stage3_param_persistence_threshold": 1000,
    "offload_optimizer": {"device": "cpu"})" +
         more + "}\n}\n";
}

}  // namespace

TEST_CASE("an imported experiment passes show-config and runs as it is") {
  const struct {
    int stage;
    const char *more, *plugin, *ranks;
  } cases[] = {{0, "", "ddp", "1"},
               {1, "", "zero1", "2"},
               {2, "", "zero2", "2"},
               {3, "", "zero3", "2"},
               {3, R"(, "mics_shard_size": 2)", "hsdp", "2"},
               {3,
                R"(, "zero_quantized_weights": true, "zero_quantized_gradients": true,
                   "zeropp_loco_param": {"err_beta": 0.8}, "zero_hpz_partition_size": 1)",
                "zero3", "2"}};
  for (const auto& c : cases) {
    CAPTURE(c.stage, c.more);
    const Shell zerolab;
    zerolab.write("ds_config.json", full_config(c.stage, c.more));
    const Outcome import = zerolab("import deepspeed ds_config.json -o experiment.toml");
    REQUIRE(import.code == 0);
    const Outcome shown = zerolab("show-config experiment.toml" + kPlugins);
    CAPTURE(shown.err);
    CHECK(shown.code == 0);
    CHECK(has(shown.out, std::string("\"") + c.plugin + "\""));
    const Outcome run = zerolab("run experiment.toml threads=1 --run-dir result --ranks " +
                                std::string(c.ranks) + kPlugins);
    CAPTURE(run.err);
    CHECK(run.code == 0);
    CHECK(fs::exists(zerolab / "result/summary.json"));
  }
}

TEST_CASE("an import of nothing runs, too, and so does one that Hugging Face's Trainer fills in") {
  for (const char* config :
       {"{}", R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
                  "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
                  "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
                  "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto"}},
                  "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}})"}) {
    CAPTURE(config);
    const Shell zerolab;
    zerolab.write("ds.json", config);
    REQUIRE(zerolab("import deepspeed ds.json -o e.toml").code == 0);
    const Outcome run = zerolab(
        "run e.toml threads=1 steps=1001 batch.sequence_length=2 "
        "model.embedding_dim=2 data.vocab_size=8 evaluation.num_samples=1"
        " --run-dir result" +
        kPlugins);
    CAPTURE(run.err);
    CHECK(run.code == 0);
  }
}

TEST_CASE("remarks go to standard error, the experiment to standard output or to a file") {
  const Shell zerolab;
  zerolab.write("ds.json", R"({"steps_per_print": 10, "bf16": {"enabled": true}})");
  const Outcome piped = zerolab("import deepspeed ds.json");
  CHECK(piped.code == 0);
  CHECK(has(piped.out, "[sharding]"));
  CHECK(has(piped.err, "Not honoured:\n  steps_per_print: "));
  CHECK(has(piped.err, "  bf16.enabled -> precision.plugin: "));
  CHECK(zerolab.files() == 1);

  const Outcome written = zerolab("import deepspeed ds.json -o e.toml");
  CHECK(written.code == 0);
  CHECK(has(written.out, "wrote e.toml"));
  CHECK(written.err == piped.err);
  CHECK(read(zerolab / "e.toml") == piped.out);
  CHECK(zerolab.files() == 2);
}

TEST_CASE("--json is for a script") {
  const Shell zerolab;
  zerolab.write("ds.json", R"({"steps_per_print": 10, "gradient_clipping": 1})");
  const Outcome outcome = zerolab("import deepspeed ds.json --json");
  CHECK(outcome.code == 0);
  CHECK(outcome.err.empty());
  const auto json = nlohmann::json::parse(outcome.out);
  CHECK(json["toml"] == zerolab("import deepspeed ds.json").out);
  CHECK(json["honoured"][0]["key"] == "gradient_clipping");
  CHECK(json["honoured"][0]["as"] == "gradient_clipping");
  CHECK(json["not_honoured"][0]["key"] == "steps_per_print");
  CHECK(json["not_honoured"].size() == 1);
}

TEST_CASE("a file that is there stays, unless it is to be replaced") {
  const Shell zerolab;
  zerolab.write("ds.json", "{}");
  zerolab.write("e.toml", "mine");
  const Outcome refused = zerolab("import deepspeed ds.json -o e.toml");
  CHECK(refused.code == 2);
  CHECK(has(refused.err, "e.toml: exists already"));
  CHECK(has(refused.err, "--force"));
  CHECK(read(zerolab / "e.toml") == "mine");
  CHECK(zerolab("import deepspeed ds.json -o e.toml --force").code == 0);
  CHECK(has(read(zerolab / "e.toml"), "[sharding]"));
  CHECK(zerolab("import deepspeed ds.json -o /dev/null --force").code == 2);
  CHECK(zerolab("import deepspeed ds.json -o . --force").code == 2);
  CHECK(zerolab("import deepspeed ds.json -o no/folder/e.toml").code == 4);
  CHECK(zerolab.files() == 2);
}

TEST_CASE("a configuration that cannot be read is one sentence, and nothing is written") {
  const Shell zerolab;
  zerolab.write("broken.json", "{\n  \"fp16\" {}\n}");
  zerolab.write("twice.json", R"({"fp16": {}, "fp16": {}})");
  fs::create_directory(zerolab / "folder");
  const struct {
    const char *file, *says;
  } cases[] = {{"missing.json", "missing.json: cannot be read: No such file"},
               {"folder", "folder: cannot be read: Is a directory"},
               {"broken.json", "broken.json:2:10: is not JSON"},
               {"twice.json", "twice.json:1:14: key 'fp16' is given twice, first at 1:2"}};
  for (const auto& c : cases) {
    CAPTURE(c.file);
    const Outcome outcome = zerolab("import deepspeed " + std::string(c.file) + " -o e.toml");
    CAPTURE(outcome.err);
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    CHECK(has(outcome.err, c.says));
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
    CHECK_FALSE(fs::exists(zerolab / "e.toml"));
  }
}

TEST_CASE("import lists its formats") {
  const Shell zerolab;
  CHECK(has(zerolab("import --help").out, "deepspeed   zerolab import deepspeed"));
  CHECK(has(zerolab("import deepspeed --help").out, "--force"));
  const Outcome bare = zerolab("import");
  CHECK(bare.code == 2);
  CHECK(has(bare.err, "needs a format: deepspeed"));
  CHECK(has(zerolab("import deepsped x.json").err, "did you mean 'deepspeed'?"));
}
