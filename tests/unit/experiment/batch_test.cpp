#include "zerolab/error.h"

#include "catch.h"
#include "experiment/batch_sizes.h"
#include "fake_catalogue.h"

using namespace zerolab;
using namespace zerolab::test;

namespace {

std::string with_batch(const std::string& sizes) {
  std::string text = sound();
  const std::string usual = "micro_batch_size = 2\n";
  return text.replace(text.find(usual), usual.size(), sizes);
}

BatchConfig batch(const Folder& folder, const std::string& sizes, int num_ranks) {
  return resolve(folder.write("exp.toml", with_batch(sizes)), {}, num_ranks).batch;
}

std::string batch_error(const Folder& folder, const std::string& sizes, int num_ranks) {
  return config_error(folder.write("exp.toml", with_batch(sizes)), {}, num_ranks);
}

}  // namespace

TEST_CASE("of two batch sizes the third follows", "[experiment]") {
  const Folder folder;
  for (const char* sizes :
       {"micro_batch_size = 4\ngradient_accumulation_steps = 3\n",
        "micro_batch_size = 4\ntotal_batch_size = 24\n",
        "gradient_accumulation_steps = 3\ntotal_batch_size = 24\n",
        "micro_batch_size = 4\ngradient_accumulation_steps = 3\ntotal_batch_size = 24\n"}) {
    const BatchConfig b = batch(folder, sizes, 2);
    CHECK(b.micro_batch_size == 4);
    CHECK(b.gradient_accumulation_steps == 3);
    CHECK(b.total_batch_size == 24);
  }
}

TEST_CASE("of one batch size, accumulation is one", "[experiment]") {
  const Folder folder;
  BatchConfig b = batch(folder, "micro_batch_size = 4\n", 3);
  CHECK(b.gradient_accumulation_steps == 1);
  CHECK(b.total_batch_size == 12);
  b = batch(folder, "total_batch_size = 12\n", 3);
  CHECK(b.micro_batch_size == 4);
  CHECK(b.gradient_accumulation_steps == 1);
}

TEST_CASE("batch sizes that contradict each other are refused with the arithmetic",
          "[experiment]") {
  const Folder folder;
  CHECK(batch_error(
            folder,
            "micro_batch_size = 4\ngradient_accumulation_steps = 3\ntotal_batch_size = 13\n", 2) ==
        "exp.toml:6:20: key 'batch.total_batch_size': is 13, but micro_batch_size 4 * "
        "gradient_accumulation_steps 3 * "
        "2 ranks = 24; change one, or leave one out and it follows");
  CHECK(batch_error(folder, "micro_batch_size = 4\ntotal_batch_size = 10\n", 1) ==
        "exp.toml:5:20: key 'batch.total_batch_size': is 10, which must be a multiple of "
        "micro_batch_size 4 * 1 rank = 4");
  CHECK(batch_error(folder, "gradient_accumulation_steps = 3\ntotal_batch_size = 10\n", 2) ==
        "exp.toml:5:20: key 'batch.total_batch_size': is 10, which must be a multiple of "
        "gradient_accumulation_steps 3 * "
        "2 ranks = 6");
  CHECK(batch_error(folder, "total_batch_size = 10\n", 3) ==
        "exp.toml:4:20: key 'batch.total_batch_size': is 10, which must be a multiple of "
        "gradient_accumulation_steps 1 * "
        "3 ranks = 3");
}

TEST_CASE("batch sizes that say too little are refused at the table", "[experiment]") {
  const Folder folder;
  for (const char* sizes : {"", "gradient_accumulation_steps = 3\n"}) {
    CHECK(has(batch_error(folder, sizes, 2),
              "exp.toml:2:2: key 'batch.micro_batch_size': is missing: give it alone, or two of "));
  }
}

TEST_CASE("batch sizes beyond 64 bits are refused, not wrapped around", "[experiment]") {
  const Folder folder;
  const std::string huge = "micro_batch_size = 5000000000000000000\n";
  CHECK(batch_error(folder, huge, 2) ==
        "exp.toml:4:20: key 'batch.micro_batch_size': must be at least 1 and at most 16777216, is "
        "5000000000000000000; follows from other keys if left out");
  zerolab::BatchSizes sizes;
  sizes.micro = 5000000000000000000;
  const auto problem = zerolab::complete_batch_sizes(sizes, 2);
  REQUIRE(problem);
  CHECK(has(problem->message, "= more than 64 bits hold"));
}

TEST_CASE("single batch sizes have ranges", "[experiment]") {
  const Folder folder;
  CHECK(
      batch_error(folder, "micro_batch_size = 0\n", 1) ==
      "exp.toml:4:20: key 'batch.micro_batch_size': must be at least 1 and at most 16777216, is 0; "
      "follows from other keys if left out");
  CHECK(has(batch_error(folder, "micro_batch_size = 1\nreduce_every = \"week\"\n", 1),
            "key 'batch.reduce_every': must be \"micro_batch\" or \"step\", is \"week\"; default "
            "\"micro_batch\""));
  CHECK(batch(folder, "micro_batch_size = 1\nreduce_every = \"step\"\n", 1).reduce_every == "step");
}

TEST_CASE("a host table that is no table is refused", "[experiment]") {
  const Folder folder;
  CHECK(config_error(folder.write("exp.toml", sound()), {"batch=3"}) ==
        "override 'batch=3': key 'batch': must be a table, is an integer");
}
