// What each part of a DeepSpeed configuration becomes.

#include <string>
#include <utility>

#include "catch.h"
#include "imported.h"

using import_test::error_of;
using import_test::has;
using import_test::imported;
using import_test::values;
using import_test::verdict;
using zerolab::DeepSpeedImport;
using zerolab::KeyVerdict;

namespace {

std::string with_stage(int stage, const std::string& more = "") {
  return "{\"zero_optimization\": {\"stage\": " + std::to_string(stage) + more + "}}";
}

}  // namespace

TEST_CASE("an empty configuration becomes the smallest experiment that runs") {
  const DeepSpeedImport import = imported("{}");
  CHECK(import.keys.empty());
  CHECK(zerolab::remarks_text(import).empty());
  auto found = values(import);
  CHECK(found["name"] == "\"ds\"");
  CHECK(found["steps"] == "100");
  CHECK(found["model.plugin"] == "\"gpt\"");
  CHECK(found["data.plugin"] == "\"synthetic\"");
  CHECK(found["batch.micro_batch_size"] == "1");
  CHECK(found["optimizer.plugin"] == "\"adamw\"");
  CHECK(found["scheduler.plugin"] == "\"constant\"");
  CHECK(found["precision.plugin"] == "\"fp32\"");
  CHECK(found["sharding.plugin"] == "\"ddp\"");
  CHECK(has(import.toml, "chosen here"));
}

TEST_CASE("tables come in the order of the house, each once") {
  const std::string toml =
      imported(
          "{\"scheduler\": {\"type\": \"WarmupCosineLR\"}, \"zero_optimization\": {\"stage\": 3,"
          "\"mics_shard_size\": 4}}")
          .toml;
  size_t before = 0;
  for (const char* table :
       {"\n[model]", "\n[data]", "\n[batch]", "\n[optimizer]", "\n[scheduler]",
        "\n[scheduler.cosine]", "\n[precision]", "\n[sharding]", "\n[sharding.hsdp]"}) {
    CAPTURE(table);
    const size_t at = toml.find(table);
    REQUIRE(at != std::string::npos);
    CHECK(at > before);
    CHECK(toml.find(table, at + 1) == std::string::npos);
    before = at;
  }
}

TEST_CASE("each stage is its strategy") {
  const char* const strategies[] = {"\"ddp\"", "\"zero1\"", "\"zero2\"", "\"zero3\""};
  for (int stage = 0; stage <= 3; ++stage) {
    const DeepSpeedImport import = imported(with_stage(stage));
    CHECK(values(import)["sharding.plugin"] == strategies[stage]);
    CHECK(verdict(import, "zero_optimization.stage").as == "sharding.plugin");
  }
  CHECK(values(imported("{\"zero_optimization\": true}"))["sharding.plugin"] == "\"zero1\"");
  CHECK(has(error_of(with_stage(4)),
            "ds.json:1:24: key 'zero_optimization.stage': must be an "
            "integer of at least 0 and at most 3, is 4"));
}

TEST_CASE("groups of ranks are hsdp in stage 3, and nothing before it") {
  for (const char* key : {"mics_shard_size", "zero_hpz_partition_size"}) {
    CAPTURE(key);
    const std::string path = std::string("zero_optimization.") + key;
    const auto four = imported(with_stage(3, std::string(", \"") + key + "\": 4"));
    auto found = values(four);
    CHECK(found["sharding.plugin"] == "\"hsdp\"");
    CHECK(found["sharding.hsdp.shard_size"] == "4");
    CHECK(found["sharding.hsdp.stage"] == "3");
    CHECK(verdict(four, path).as == "sharding.hsdp.shard_size");

    const auto six = imported(with_stage(3, std::string(", \"") + key + "\": 6"));
    CHECK(values(six)["sharding.plugin"] == "\"hsdp\"");
    CHECK(values(six).count("sharding.hsdp.shard_size") == 0);
    CHECK_FALSE(verdict(six, path).honoured);

    const auto earlier = imported(with_stage(2, std::string(", \"") + key + "\": 4"));
    CHECK(values(earlier)["sharding.plugin"] == "\"zero2\"");
    CHECK(has(verdict(earlier, path).remark, "stage 3 only"));

    const auto one = imported(with_stage(3, std::string(", \"") + key + "\": 1"));
    CHECK(values(one)["sharding.plugin"] == "\"zero3\"");
  }
}

TEST_CASE("bucket sizes are element counts, also where they are written as floats") {
  auto found = values(imported(with_stage(
      2,
      ", \"reduce_bucket_size\": 5e8, \"allgather_bucket_size\": 200000000, \"overlap_comm\": "
      "false")));
  CHECK(found["sharding.reduce_bucket_size"] == "500000000");
  CHECK(found["sharding.allgather_bucket_size"] == "200000000");
  CHECK(found["sharding.overlap_comm"] == "false");
  CHECK(has(error_of(with_stage(2, ", \"reduce_bucket_size\": 1.5")), "must be an integer"));
  CHECK(has(error_of(with_stage(2, ", \"reduce_bucket_size\": \"5e8\"")), "is \"5e8\""));
  CHECK(has(error_of(with_stage(2, ", \"reduce_bucket_size\": 1e300")), "must be an integer"));
  CHECK(has(error_of(with_stage(2, ", \"reduce_bucket_size\": 18446744073709551615")),
            "must be an integer"));
}

TEST_CASE("the persistence threshold goes to the strategy that shards parameters") {
  const std::string threshold = ", \"stage3_param_persistence_threshold\": 1e5";
  CHECK(values(imported(with_stage(3, threshold)))["sharding.zero3.param_persistence_threshold"] ==
        "100000");
  CHECK(values(imported(with_stage(2, threshold)))["sharding.zero3.param_persistence_threshold"] ==
        "100000");
  CHECK(values(imported(with_stage(
            3, threshold +
                   ", \"mics_shard_size\": 2")))["sharding.hsdp.param_persistence_threshold"] ==
        "100000");
  const auto both = imported(with_stage(3, threshold + ", \"param_persistence_threshold\": 7"));
  CHECK_FALSE(verdict(both, "zero_optimization.param_persistence_threshold").honoured);
}

TEST_CASE("quantized weights and gradients are the int8 wire, one of them alone is named") {
  const auto both = imported(
      with_stage(3, ", \"zero_quantized_weights\": true, \"zero_quantized_gradients\": true"));
  CHECK(values(both)["sharding.wire_dtype"] == "\"int8\"");
  CHECK(verdict(both, "zero_optimization.zero_quantized_weights").as == "sharding.wire_dtype");
  for (const char* more :
       {", \"zero_quantized_weights\": true",
        ", \"zero_quantized_weights\": true, \"zero_quantized_gradients\": false"}) {
    const auto one = imported(with_stage(3, more));
    CHECK(values(one).count("sharding.wire_dtype") == 0);
    CHECK(has(verdict(one, "zero_optimization.zero_quantized_weights").remark,
              "only one of them is asked for"));
  }
  const auto loco =
      imported(with_stage(3,
                          ", \"zero_quantized_weights\": true, \"zero_quantized_gradients\": true, "
                          "\"zeropp_loco_param\": {\"err_beta\": 0.8, \"reset_T\": 1024}"));
  CHECK(values(loco)["sharding.wire_error_feedback"] == "true");
}

TEST_CASE("communication_data_type is the wire's, where the wire knows it") {
  CHECK(values(imported("{\"communication_data_type\": \"bf16\"}"))["sharding.wire_dtype"] ==
        "\"bf16\"");
  const auto fp16 = imported("{\"communication_data_type\": \"fp16\"}");
  CHECK(values(fp16).count("sharding.wire_dtype") == 0);
  CHECK_FALSE(verdict(fp16, "communication_data_type").honoured);
  const auto taken = imported(
      "{\"communication_data_type\": \"bf16\", \"zero_optimization\": {\"zero_quantized_weights\": "
      "true, \"zero_quantized_gradients\": true}}");
  CHECK(values(taken)["sharding.wire_dtype"] == "\"int8\"");
  CHECK_FALSE(verdict(taken, "communication_data_type").honoured);
}

TEST_CASE("optimizer states go to the host, not to NVMe; parameters stay") {
  const auto cpu = imported(
      with_stage(2, ", \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}"));
  CHECK(values(cpu)["sharding.offload"] == "\"host\"");
  CHECK_FALSE(verdict(cpu, "zero_optimization.offload_optimizer.pin_memory").honoured);
  const auto nvme = imported(with_stage(3, ", \"offload_optimizer\": {\"device\": \"nvme\"}"));
  CHECK(values(nvme).count("sharding.offload") == 0);
  CHECK_FALSE(verdict(nvme, "zero_optimization.offload_optimizer.device").honoured);
  CHECK(values(imported(with_stage(2, ", \"cpu_offload\": true")))["sharding.offload"] ==
        "\"host\"");
  const auto parameters = imported(
      with_stage(3, ", \"offload_param\": {\"device\": \"cpu\"}, \"offload_optimizer\": null"));
  CHECK_FALSE(verdict(parameters, "zero_optimization.offload_param.device").honoured);
  CHECK(verdict(parameters, "zero_optimization.offload_optimizer").honoured);
}

TEST_CASE("two batch numbers are two, three leave the accumulation to the ranks") {
  auto found =
      values(imported("{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 4}"));
  CHECK(found["batch.total_batch_size"] == "32");
  CHECK(found["batch.micro_batch_size"] == "4");
  CHECK(found.count("batch.gradient_accumulation_steps") == 0);

  const auto three = imported(
      "{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 4, "
      "\"gradient_accumulation_steps\": 2}");
  CHECK(values(three) == found);
  CHECK(has(verdict(three, "gradient_accumulation_steps").remark, "2 at --ranks 4"));

  found = values(imported("{\"train_batch_size\": 32}"));
  CHECK(found["batch.total_batch_size"] == "32");
  CHECK(found["batch.gradient_accumulation_steps"] == "1");
  CHECK(found.count("batch.micro_batch_size") == 0);

  found = values(imported("{\"train_micro_batch_size_per_gpu\": 8}"));
  CHECK(found["batch.micro_batch_size"] == "8");
  CHECK(found["batch.gradient_accumulation_steps"] == "1");
}

TEST_CASE("batch numbers that no number of GPUs satisfies are refused") {
  CHECK(has(error_of("{\"train_batch_size\": 10, \"train_micro_batch_size_per_gpu\": 4}"),
            "ds.json:1:2: key 'train_batch_size': is 10, but must be "
            "train_micro_batch_size_per_gpu 4 times a number of GPUs"));
  CHECK(has(error_of("{\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 4, "
                     "\"gradient_accumulation_steps\": 2}"),
            "train_micro_batch_size_per_gpu 4 * gradient_accumulation_steps 2"));
  CHECK(has(error_of("{\"train_batch_size\": 0}"), "at least 1"));
}

TEST_CASE("Adam's parameters are adamw's options, with DeepSpeed's default of the decay") {
  const auto import = imported(
      "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.001, \"betas\": [0.8, 0.999], "
      "\"eps\": 1e-8, \"torch_adam\": false}}}");
  auto found = values(import);
  CHECK(found["optimizer.plugin"] == "\"adamw\"");
  CHECK(found["optimizer.betas"] == "[0.8, 0.999]");
  CHECK(found["optimizer.weight_decay"] == "0.0");
  CHECK(std::stod(found["scheduler.lr"]) == 1e-3);
  CHECK(verdict(import, "optimizer.params.lr").as == "scheduler.lr");
  CHECK(has(error_of("{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": [0.9, 1]}}}"),
            "a list of 2 numbers, each of at least 0.0 and below 1.0"));
}

TEST_CASE("Adam with L2 decay is adam, with decoupled decay adamw") {
  const auto l2 = imported(
      "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false, "
      "\"weight_decay\": 0.1}}}");
  CHECK(values(l2)["optimizer.plugin"] == "\"adam\"");
  CHECK(values(l2)["optimizer.weight_decay"] == "0.1");
  CHECK(verdict(l2, "optimizer.params.adam_w_mode").as == "optimizer.plugin");
  const auto decoupled =
      imported("{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": true}}}");
  CHECK(values(decoupled)["optimizer.plugin"] == "\"adamw\"");
  // AdamW decays apart from the gradient, whatever the key says.
  const auto adamw =
      imported("{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"adam_w_mode\": false}}}");
  CHECK(values(adamw)["optimizer.plugin"] == "\"adamw\"");
}

TEST_CASE("SGD and Lion are sgd and lion") {
  const auto sgd = imported(
      "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.5, \"momentum\": 0.9, "
      "\"dampening\": 0, \"nesterov\": true, \"weight_decay\": 0.01}}}");
  auto found = values(sgd);
  CHECK(found["optimizer.plugin"] == "\"sgd\"");
  CHECK(found["optimizer.sgd.momentum"] == "0.9");
  CHECK(found["optimizer.sgd.dampening"] == "0.0");
  CHECK(found["optimizer.sgd.nesterov"] == "true");
  CHECK(found["optimizer.weight_decay"] == "0.01");
  for (const KeyVerdict& key : sgd.keys) CHECK(key.honoured);
  const auto lion =
      imported("{\"optimizer\": {\"type\": \"Lion\", \"params\": {\"betas\": [0.95, 0.98]}}}");
  found = values(lion);
  CHECK(found["optimizer.plugin"] == "\"lion\"");
  CHECK(found["optimizer.betas"] == "[0.95, 0.98]");
  CHECK(found["optimizer.weight_decay"] == "0.0");
}

TEST_CASE("another optimizer is stood in for, and only its learning rate is kept") {
  const auto lamb = imported(
      "{\"optimizer\": {\"type\": \"Lamb\", \"params\": {\"lr\": 0.01, \"betas\": [0.5, 0.5], "
      "\"max_coeff\": 0.3}}}");
  CHECK_FALSE(verdict(lamb, "optimizer.type").honoured);
  CHECK_FALSE(verdict(lamb, "optimizer.params.betas").honoured);
  CHECK_FALSE(verdict(lamb, "optimizer.params.max_coeff").honoured);
  CHECK(verdict(lamb, "optimizer.params.lr").honoured);
  CHECK(values(lamb).count("optimizer.betas") == 0);
}

TEST_CASE("WarmupLR is constant with a warmup, whose maximum is the learning rate") {
  const auto import = imported(
      "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.5}}, \"scheduler\": {\"type\": "
      "\"WarmupLR\", \"params\": {\"warmup_min_lr\": 0, \"warmup_max_lr\": 0.25, "
      "\"warmup_num_steps\": 250}}}");
  auto found = values(import);
  CHECK(found["scheduler.plugin"] == "\"constant\"");
  CHECK(std::stod(found["scheduler.lr"]) == 0.25);
  CHECK(found["scheduler.warmup_steps"] == "250");
  CHECK(found["steps"] == "350");
  CHECK_FALSE(verdict(import, "optimizer.params.lr").honoured);
  CHECK(has(verdict(import, "scheduler.type").remark, "logarithmic"));
}

TEST_CASE("schedules that decay are lines and cosines over the given steps") {
  const std::string params = "\"params\": {\"total_num_steps\": 50, \"warmup_num_steps\": 10";
  auto found = values(imported("{\"scheduler\": {\"type\": \"WarmupDecayLR\", " + params + "}}}"));
  CHECK(found["steps"] == "50");
  CHECK(found["scheduler.plugin"] == "\"linear\"");
  CHECK(found["scheduler.linear.decay_steps"] == "50");
  CHECK(found["scheduler.linear.min_lr"] == "0.0");
  CHECK(std::stod(found["scheduler.lr"]) == 1e-3);

  found = values(imported(
      "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.5}}, \"scheduler\": {\"type\": "
      "\"WarmupCosineLR\", " +
      params + ", \"cos_min_ratio\": 0.5, \"warmup_type\": \"linear\"}}}"));
  CHECK(found["scheduler.plugin"] == "\"cosine\"");
  CHECK(found["scheduler.cosine.decay_steps"] == "50");
  CHECK(found["scheduler.cosine.min_lr"] == "0.25");
  CHECK(std::stod(found["scheduler.lr"]) == 0.5);

  found = values(imported(
      "{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 10, "
      "\"warmup_num_steps\": 10}}}"));
  CHECK(found["scheduler.plugin"] == "\"constant\"");
  CHECK(found["steps"] == "10");
}

TEST_CASE("another schedule is stood in for") {
  const auto cycle = imported(
      "{\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_max_lr\": 0.1, "
      "\"warmup_max_lr\": 1}}}");
  CHECK(values(cycle)["scheduler.plugin"] == "\"constant\"");
  for (const KeyVerdict& key : cycle.keys) CHECK_FALSE(key.honoured);
}

TEST_CASE("each lower precision is a plugin of its own") {
  for (const auto& [table, plugin] : {std::pair<std::string, std::string>{"bf16", "bf16"},
                                      {"bfloat16", "bf16"},
                                      {"fp16", "fp16"},
                                      {"torch_autocast", "amp_bf16"},
                                      {"amp", "amp_fp16"}}) {
    CAPTURE(table);
    const auto on = imported("{\"" + table + "\": {\"enabled\": true}}");
    CHECK(values(on)["precision.plugin"] == "\"" + plugin + "\"");
    CHECK(verdict(on, table + ".enabled").honoured);
    const auto off = imported("{\"" + table + "\": {\"enabled\": false}}");
    CHECK(values(off)["precision.plugin"] == "\"fp32\"");
  }
  const auto half = imported("{\"torch_autocast\": {\"enabled\": true, \"dtype\": \"float16\"}}");
  CHECK(values(half)["precision.plugin"] == "\"amp_fp16\"");
  CHECK(has(error_of("{\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}}"),
            "as is bf16.enabled"));
}

TEST_CASE("a dynamic loss scale is fp16's, with DeepSpeed's defaults") {
  auto found = values(imported("{\"fp16\": {\"enabled\": true}}"));
  CHECK(found.count("precision.fp16.init_scale") == 0);  // 2^16 in both
  CHECK(found["precision.fp16.growth_interval"] == "1000");
  CHECK(found["precision.fp16.hysteresis"] == "2");
  const auto given = imported(
      "{\"fp16\": {\"enabled\": true, \"loss_scale\": 0, \"initial_scale_power\": 10, "
      "\"loss_scale_window\": 50, \"hysteresis\": 3, \"consecutive_hysteresis\": false, "
      "\"min_loss_scale\": 4}}");
  found = values(given);
  CHECK(found["precision.fp16.init_scale"] == "1024.0");
  CHECK(found["precision.fp16.growth_interval"] == "50");
  CHECK(found["precision.fp16.hysteresis"] == "3");
  CHECK(found["precision.fp16.min_scale"] == "4.0");
  for (const KeyVerdict& key : given.keys) CHECK(key.honoured);
  const auto odd = imported("{\"fp16\": {\"enabled\": true, \"min_loss_scale\": 3}}");
  CHECK_FALSE(verdict(odd, "fp16.min_loss_scale").honoured);
  const auto unused = imported("{\"fp16\": {\"enabled\": false, \"loss_scale\": 128}}");
  CHECK(verdict(unused, "fp16.loss_scale").honoured);
}

TEST_CASE("a static loss scale is one that neither grows nor falls") {
  const auto fixed =
      imported("{\"fp16\": {\"enabled\": true, \"loss_scale\": 128, \"hysteresis\": 4}}");
  auto found = values(fixed);
  CHECK(found["precision.fp16.init_scale"] == "128.0");
  CHECK(found["precision.fp16.min_scale"] == "128.0");
  CHECK(found["precision.fp16.growth_interval"] == "1099511627776");
  CHECK(found.count("precision.fp16.hysteresis") == 0);
  const auto odd = imported("{\"fp16\": {\"enabled\": true, \"loss_scale\": 100}}");
  CHECK_FALSE(verdict(odd, "fp16.loss_scale").honoured);
  CHECK(values(odd)["precision.fp16.growth_interval"] == "1000");
}

TEST_CASE("the dtype of gradients is the precision's, where it has it") {
  const auto with = [](const std::string& table, const std::string& dtype) {
    return imported("{\"" + table +
                    "\": {\"enabled\": true}, \"data_types\": {"
                    "\"grad_accum_dtype\": \"" +
                    dtype + "\"}}");
  };
  CHECK(values(with("bf16", "bf16"))["precision.gradient_dtype"] == "\"bf16\"");
  CHECK(values(with("fp16", "fp16"))["precision.gradient_dtype"] == "\"fp16\"");
  CHECK(values(with("bf16", "fp32")).count("precision.gradient_dtype") == 0);
  CHECK_FALSE(verdict(with("bf16", "fp16"), "data_types.grad_accum_dtype").honoured);
}
