#include "warmup_decay_checks.h"

using namespace warmup_decay_test;

TEST_CASE("scheduler/linear has exact end points and never rises after the warmup") {
  check_end_points("scheduler/linear");
}

TEST_CASE("scheduler/linear follows the closed form between its end points") {
  check_closed_form("scheduler/linear", [](double progress) { return 1 - progress; });
}

TEST_CASE("scheduler/linear with decay_steps reaches min_lr there and holds it") {
  check_decay_steps("scheduler/linear");
}

TEST_CASE("scheduler/linear holds min_lr after a decay of one step, right behind the warmup") {
  check_one_step_of_decay("scheduler/linear");
}

TEST_CASE("scheduler/linear that outlasts the run keeps the last value of the run") {
  check_longer_than_the_run("scheduler/linear");
}

TEST_CASE("scheduler/linear trains at lr when nothing is left for the decay") {
  check_no_decay("scheduler/linear");
}

TEST_CASE("scheduler/linear refuses a warmup as long as the run and says both numbers") {
  check_warmup_too_long("scheduler/linear");
}

TEST_CASE("scheduler/linear refuses options that contradict each other") {
  check_options("scheduler/linear");
}
