// No key of a DeepSpeed configuration is lost, whatever it is and however it is written.

#include <algorithm>
#include <string>
#include <vector>

#include "catch.h"
#include "deepspeed/known_keys.h"
#include "imported.h"

using import_test::error_of;
using import_test::has;
using import_test::imported;
using import_test::values;
using import_test::verdict;
using zerolab::DeepSpeedImport;
using zerolab::Json;
using zerolab::KeyVerdict;

TEST_CASE("auto is named and left out") {
  const auto import = imported(
      "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\", "
      "\"gradient_accumulation_steps\": \"auto\", \"gradient_clipping\": \"auto\", "
      "\"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": \"auto\", \"loss_scale\": 0}, "
      "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\", \"betas\": \"auto\", "
      "\"weight_decay\": \"auto\"}}, "
      "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": \"auto\", "
      "\"warmup_max_lr\": \"auto\", \"warmup_num_steps\": \"auto\"}}, "
      "\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": \"auto\", "
      "\"stage3_param_persistence_threshold\": \"auto\"}}");
  for (const KeyVerdict& key : import.keys) {
    CAPTURE(key.key);
    CHECK(key.honoured == (key.key == "optimizer.type" || key.key == "scheduler.type" ||
                           key.key == "zero_optimization.stage"));
  }
  auto found = values(import);
  CHECK(found["batch.micro_batch_size"] == "1");
  CHECK(found.count("gradient_clipping") == 0);
  CHECK(found.count("optimizer.weight_decay") == 0);
  CHECK(found.count("scheduler.warmup_steps") == 0);
  CHECK(found.count("sharding.reduce_bucket_size") == 0);
  CHECK(has(verdict(import, "optimizer.params.lr").remark, "give scheduler.lr yourself"));
}

TEST_CASE("typing errors are named with the nearest key, misplaced keys with their table") {
  const auto import = imported(
      "{\"gradient_cliping\": 1, \"zero_optimisation\": {\"stage\": 2}, \"stage\": 2, "
      "\"zero_optimization\": {\"overlap_com\": true}, \"entirely_new\": {\"x\": 1}}");
  CHECK(has(verdict(import, "gradient_cliping").remark, "did you mean 'gradient_clipping'?"));
  CHECK(has(verdict(import, "zero_optimisation.stage").remark, "'zero_optimization'?"));
  CHECK(has(verdict(import, "stage").remark, "belongs in 'zero_optimization'"));
  CHECK(has(verdict(import, "zero_optimization.overlap_com").remark,
            "'zero_optimization.overlap_comm'?"));
  CHECK_FALSE(has(verdict(import, "entirely_new.x").remark, "did you mean"));
  for (const KeyVerdict& key : import.keys) CHECK_FALSE(key.honoured);
}

TEST_CASE("what asks for nothing is no complaint") {
  const auto import = imported(
      "{\"wall_clock_breakdown\": false, \"tensorboard\": {\"enabled\": false, \"job_name\": "
      "\"x\"}, "
      "\"gradient_predivide_factor\": 1, \"prescale_gradients\": false, \"wandb\": {}, "
      "\"zero_optimization\": {\"contiguous_gradients\": true, \"stage\": 1}}");
  for (const KeyVerdict& key : import.keys) {
    CAPTURE(key.key);
    CHECK(key.honoured);
  }
  const auto on =
      imported("{\"wall_clock_breakdown\": true, \"tensorboard\": {\"enabled\": true}}");
  for (const KeyVerdict& key : on.keys) CHECK_FALSE(key.honoured);
}

namespace {

/// A configuration with every key that is known, each with `value`.
Json with_every_key(const Json& value) {
  Json all = Json::object();
  std::vector<std::string> paths(zerolab::translated_keys().begin(),
                                 zerolab::translated_keys().end());
  for (const zerolab::KnownKey& key : zerolab::known_keys()) paths.push_back(key.path);
  std::sort(paths.begin(), paths.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  for (const std::string& path : paths) {
    std::string pointer = "/" + path;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    const Json::json_pointer at(pointer);
    if (!all.contains(at)) all[at] = value;
  }
  return all;
}

size_t leaves(const Json& value) {
  if (!value.is_object() || value.empty()) return 1;
  size_t sum = 0;
  for (const auto& child : value) sum += leaves(child);
  return sum;
}

}  // namespace

TEST_CASE(
    "every known key has exactly one verdict, whatever is said of it, and is no typing error") {
  for (const Json& value : {Json(nullptr), Json("auto")}) {
    const Json all = with_every_key(value);
    const DeepSpeedImport import = imported(all.dump());
    CHECK(import.keys.size() == leaves(all));
    CHECK(import.keys.size() > 150);
    for (const KeyVerdict& key : import.keys) {
      CAPTURE(key.key, key.remark);
      CHECK_FALSE(has(key.remark, "no key that DeepSpeed documents"));
      CHECK_FALSE(key.remark.empty());
    }
  }
}

TEST_CASE("keys of any characters stay inside their comment") {
  const auto import =
      imported("{\"a\\n[b]\": 1, \"\\u202e\\u0007\": {\"c.d\": 2}, \"c\": {\"d\": 3}}");
  CHECK(import.keys.size() == 3);
  CHECK(import.keys[0].key == "\"a\\n[b]\"");
  CHECK(import.keys[1].key == "\"\\u202e\\u0007\".\"c.d\"");
  CHECK_FALSE(has(import.toml, "\n[b]"));
  for (const char c : import.toml) CHECK((c == '\n' || (c >= ' ' && c <= '~')));
  CHECK(values(zerolab::import_deepspeed("{}", "dir/we\"ird\nname.json"))["name"] ==
        "\"we-ird-name\"");
}

TEST_CASE("comments are read over, and syntax errors have a place") {
  CHECK(values(imported("{ // why\n /* and */ \"gradient_clipping\": 1}"))["gradient_clipping"] ==
        "1.0");
  CHECK(has(error_of("{\n  \"gradient_clipping\": 1,\n}"), "ds.json:3:1: is not JSON"));
  CHECK(has(error_of(""), "ds.json:1:1: is not JSON"));
  CHECK(has(error_of("[1]"), "holds array, not an object"));
  CHECK(has(error_of("{\"gradient_clipping\": 1e999}"), "is not JSON"));
  CHECK(has(error_of("{\"fp16\": true}"), "key 'fp16': must be an object, is true"));
  CHECK(has(error_of(std::string(5000, '[')), "nested deeper than 64"));
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "{\"a\":";
  CHECK(has(error_of(deep), "nested deeper than 64"));
}

TEST_CASE("a key that is given twice is refused with both places") {
  CHECK(has(error_of("{\"steps_per_print\": 1,\n \"fp16\": {},\n \"steps_per_print\": 2}"),
            "ds.json:3:2: key 'steps_per_print' is given twice, first at 1:2"));
  CHECK(has(error_of("{\"fp16\": {\"enabled\": true, \"enabled\": true}}"),
            "key 'fp16.enabled' is given twice"));
  // The same name in two tables, or in two entries of a list, is no second time.
  CHECK(imported("{\"fp16\": {\"enabled\": false}, \"bf16\": {\"enabled\": false}, "
                 "\"x\": [{\"a\": 1}, {\"a\": 2}]}")
            .keys.size() == 3);
}
