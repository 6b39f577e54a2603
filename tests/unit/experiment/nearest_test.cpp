#include "catch.h"
#include "experiment/experiment.h"

using zerolab::nearest;

TEST_CASE("a mistyped key finds the one that was meant", "[experiment]") {
  const std::vector<std::string> keys = {"name",
                                         "seed",
                                         "steps",
                                         "threads",
                                         "device",
                                         "gradient_clipping",
                                         "micro_batch_size",
                                         "total_batch_size",
                                         "lr",
                                         "min_lr"};
  CHECK(nearest("stps", keys) == "steps");    // a letter is missing
  CHECK(nearest("stepss", keys) == "steps");  // one too many
  CHECK(nearest("sseed", keys) == "seed");
  CHECK(nearest("nmae", keys) == "name");      // two are swapped
  CHECK(nearest("Device", keys) == "device");  // capitals
  CHECK(nearest("micro-batch-size", keys) == "micro_batch_size");
  CHECK(nearest("rl", keys) == "lr");
  CHECK(nearest("gradient_cliping", keys) == "gradient_clipping");
}

TEST_CASE("a part of a key, or a key with more around it, finds the key", "[experiment]") {
  const std::vector<std::string> keys = {"steps", "gradient_clipping", "warmup_steps"};
  CHECK(nearest("clipping", keys) == "gradient_clipping");
  CHECK(nearest("warmup", keys) == "warmup_steps");
  CHECK(nearest("num_steps", keys) == "steps");
}

TEST_CASE("a word like none of the keys finds nothing", "[experiment]") {
  CHECK(nearest("colour", {"steps", "seed", "threads"}).empty());
  CHECK(nearest("x", {"y", "lr"}).empty());
  CHECK(nearest("", {"y"}).empty());
  CHECK(nearest("steps", {}).empty());
  CHECK(nearest(std::string(100000, 'a'), {"steps"}).empty());
}

TEST_CASE("of two near words the nearer one is found, whatever the order", "[experiment]") {
  CHECK(nearest("beta3", {"betas", "beta33"}) == "betas");
  CHECK(nearest("warmup_step", {"warmup_stop_x", "warmup_steps"}) == "warmup_steps");
  CHECK(nearest("warmup_step", {"warmup_steps", "warmup_stop_x"}) == "warmup_steps");
}
