#include <cmath>
#include <numbers>

#include "warmup_decay_checks.h"

using namespace warmup_decay_test;

TEST_CASE("scheduler/cosine has exact end points and never rises after the warmup") {
  check_end_points("scheduler/cosine");
}

TEST_CASE("scheduler/cosine follows the closed form between its end points") {
  check_closed_form("scheduler/cosine", [](double progress) {
    return (1 + std::cos(std::numbers::pi * progress)) / 2;
  });
}

TEST_CASE("scheduler/cosine with decay_steps reaches min_lr there and holds it") {
  check_decay_steps("scheduler/cosine");
}

TEST_CASE("scheduler/cosine holds min_lr after a decay of one step, right behind the warmup") {
  check_one_step_of_decay("scheduler/cosine");
}

TEST_CASE("scheduler/cosine that outlasts the run keeps the last value of the run") {
  check_longer_than_the_run("scheduler/cosine");
}

TEST_CASE("scheduler/cosine trains at lr when nothing is left for the decay") {
  check_no_decay("scheduler/cosine");
}

TEST_CASE("scheduler/cosine refuses a warmup as long as the run and says both numbers") {
  check_warmup_too_long("scheduler/cosine");
}

TEST_CASE("scheduler/cosine refuses options that contradict each other") {
  check_options("scheduler/cosine");
}
