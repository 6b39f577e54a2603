#include "store/journal_reader.h"

#include <cstring>
#include <random>

#include "zerolab/error.h"

#include "catch.h"
#include "run_sessions.h"

namespace zerolab {
namespace {

using Catch::Matchers::Contains;

JournalRows read_text(const std::string& text) {
  std::ofstream("journal", std::ios::binary) << text;
  return read_journal("journal");
}

std::vector<double> steps_of(const JournalRows& journal) {
  std::vector<double> steps;
  for (const MetricsRow& row : journal.rows) steps.push_back(row.front());
  return steps;
}

}  // namespace

TEST_CASE("any double comes back from the journal with the same bits, NaN as NaN") {
  const ScratchFolder folder;
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> values = {0.0,
                                -0.0,
                                infinity,
                                -infinity,
                                std::nan(""),
                                5e-324,
                                -2.2e-308,
                                std::numeric_limits<double>::max(),
                                9007199254740993.0,
                                1e22,
                                123456789012345680000.0,
                                0.1 + 0.2,
                                1.0 / 3};
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    values.push_back(value);
  }
  auto run = RunFolder::create("run", "", "", {});
  run->open_metrics({"step", "a", "b\"\\\n\xc3\xa9"});
  std::vector<MetricsRow> rows;
  for (size_t i = 0; i < values.size(); ++i) {
    rows.push_back({i + 1.0, values[i], values[values.size() - 1 - i]});
  }
  run->append({0, 1, 1});
  for (const MetricsRow& row : rows) run->append(row);
  const JournalRows journal = read_journal("run/metrics.jsonl");
  CHECK(journal.columns == std::vector<std::string>{"step", "a", "b\"\\\n\xc3\xa9"});
  CHECK(journal.num_damaged == 0);
  REQUIRE(journal.rows.size() == rows.size() + 1);
  CHECK(same_rows({journal.rows.begin() + 1, journal.rows.end()}, rows));
}

TEST_CASE("a journal's columns are its keys in the order in which they first appear") {
  const ScratchFolder folder;
  const JournalRows journal = read_text(
      "{\"step\": 1, \"b\": 2}\n{\"step\": 2, \"a\": null, \"b\": \"-Infinity\"}\n"
      "{\"step\": 3, \"c\": \"Infinity\", \"b\": 1e-3}\n");
  CHECK(journal.columns == std::vector<std::string>{"step", "b", "a", "c"});
  const double none = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  CHECK(same_rows(journal.rows,
                  {{1, 2, none, none}, {2, -infinity, none, none}, {3, 1e-3, none, infinity}}));
}

TEST_CASE("a last line that was cut off at any byte is passed over and not counted") {
  const ScratchFolder folder;
  const std::string whole = "{\"step\": 1, \"loss\": 2.5}\n",
                    last = "{\"step\": 2, \"loss\": 25}\n";
  for (size_t size = 0; size < last.size(); ++size) {
    const JournalRows journal = read_text(whole + last.substr(0, size));
    CAPTURE(size);
    CHECK(steps_of(journal) == std::vector<double>{1});
    CHECK(journal.num_damaged == 0);
  }
  CHECK(steps_of(read_text(whole + last)) == std::vector<double>{1, 2});
}

TEST_CASE("lines that are no rows are passed over; those before a row are counted") {
  const ScratchFolder folder;
  const std::string row = "{\"step\": 5}\n";
  for (const char* damaged :
       {"", "{", "{\"step\": 1", "{\"loss\": 1}", "{\"step\": \"one\"}", "{\"step\": null}",
        "{\"step\": \"Infinity\"}", "{\"step\": -1}", "{\"step\": 1, \"a\": [1]}",
        "{\"step\": 1, \"a\": {\"b\": 1}}", "{\"step\": 1, \"a\": true}", "[1]", "5",
        "{\"step\": 1}{\"step\": 2}", "\x01\x02", "{\"step\": 1, \"a\": 1e999}"}) {
    CAPTURE(damaged);
    const JournalRows before = read_text(std::string(damaged) + "\n" + row);
    CHECK(steps_of(before) == std::vector<double>{5});
    CHECK(before.columns == std::vector<std::string>{"step"});
    CHECK(before.num_damaged == 1);
    const JournalRows after = read_text(row + damaged + "\n" + damaged + "\n");
    CHECK(steps_of(after) == std::vector<double>{5});
    CHECK(after.num_damaged == 0);
  }
}

TEST_CASE("a journal that is missing is an error, an empty one is not") {
  const ScratchFolder folder;
  CHECK_THROWS_AS(read_journal("none.jsonl"), StoreError);
  CHECK_THROWS_WITH(read_journal("none.jsonl"),
                    Contains("none.jsonl") && Contains("No such file or directory"));
  CHECK_THROWS_AS(read_journal("."), StoreError);
  CHECK(read_text("").rows.empty());
}

TEST_CASE("a cut keeps lines as they are, and a damaged one with the row before it") {
  const std::string one = "{\"step\": 1, \"x\":  1.50 }\n", two = "{\"step\": 2}\n",
                    three = "{\"step\": 3}\n", damaged = "}{\n";
  const std::string text = damaged + one + damaged + two + damaged + three + "{\"step\": 4";
  CHECK(cut_journal(text, 1).kept == damaged + one + damaged);
  CHECK(cut_journal(text, 1).later == two + damaged + three);
  CHECK(cut_journal(text, 0).kept == damaged);
  CHECK(cut_journal(text, 3).later.empty());
  CHECK(cut_journal(text, 3).kept == damaged + one + damaged + two + damaged + three);
}

}  // namespace zerolab
