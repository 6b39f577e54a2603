#include "train/progress.h"

#include <algorithm>
#include <cmath>

#include "catch.h"

TEST_CASE("bytes are printed in powers of 1024") {
  CHECK(zerolab::format_bytes(0) == "0 B");
  CHECK(zerolab::format_bytes(999) == "999 B");
  CHECK(zerolab::format_bytes(1536) == "1.5 KB");
  CHECK(zerolab::format_bytes(25e6) == "25.0 MB");
}

TEST_CASE("durations are printed in their two largest units") {
  CHECK(zerolab::format_duration(12.4) == "12 s");
  CHECK(zerolab::format_duration(200) == "3 min 20 s");
  CHECK(zerolab::format_duration(3723) == "1 h 02 min");
}

TEST_CASE("a metrics row has a value for each column, in their order") {
  zerolab::StepRecord record;
  record.step = 3;
  record.loss = 1.5;
  record.skipped = true;
  const auto row = zerolab::metric_row(record);
  const auto& columns = zerolab::metric_columns();
  REQUIRE(row.size() == columns.size());
  CHECK(columns[0] == "step");
  CHECK(row[0] == 3);
  const auto value = [&](const std::string& name) {
    const auto found = std::find(columns.begin(), columns.end(), name);
    REQUIRE(found != columns.end());
    return row[static_cast<size_t>(found - columns.begin())];
  };
  CHECK(value("loss") == 1.5);
  CHECK(value("skipped") == 1);
  CHECK(std::isnan(value("val_loss")));
}
