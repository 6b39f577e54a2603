#include "train/byte_report.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "train/progress.h"

namespace zerolab {
namespace {

struct Category {
  const char* words;  ///< in a table
  const char* name;   ///< in a summary
  int64_t RankBytes::*bytes;
};
constexpr Category kCategories[] = {
    {"parameters per rank", "parameter_bytes", &RankBytes::parameters},
    {"gradients per rank", "gradient_bytes", &RankBytes::gradients},
    {"optimizer state per rank", "optimizer_bytes", &RankBytes::optimizer},
    {"buckets per rank", "bucket_bytes", &RankBytes::buckets},
    {"gathered per rank", "gathered_bytes", &RankBytes::gathered},
    {"bytes moved per rank and step", "bytes_moved_per_step", &RankBytes::moved},
};

bool updated(const RunResult& r) {
  return r.last.step > r.skipped_steps;
}

/// Without an update a run says nothing about what one moves.
bool comparable(const RunResult& r, const Category& category) {
  return r.predicted && (category.bytes != &RankBytes::moved || updated(r));
}

std::string bytes_table(const RunResult& r) {
  std::string text = fmt::format("  {:<30} {:>16} {:>16}\n", "bytes", "predicted", "counted");
  for (const Category& category : kCategories) {
    const int64_t counted = r.counted.*category.bytes;
    const std::string predicted =
        comparable(r, category) ? fmt::format("{}", (*r.predicted).*category.bytes) : "-";
    text += fmt::format("  {:<30} {:>16} {:>16}  {}\n", category.words, predicted, counted,
                        format_bytes(static_cast<double>(counted)));
  }
  return text;
}

/// One sentence on what was predicted wrongly; nothing if all holds.
std::string mismatch(const RunResult& r) {
  if (!r.predicted) return "  the strategy states no footprint: nothing was predicted\n";
  std::string text;
  for (const Category& category : kCategories) {
    const int64_t predicted = (*r.predicted).*category.bytes, counted = r.counted.*category.bytes;
    if (!comparable(r, category) || predicted == counted) continue;
    const int64_t off = std::abs(counted - predicted);
    text += fmt::format("  {}: {} byte{} {} than the strategy predicted\n", category.words, off,
                        off == 1 ? "" : "s", counted > predicted ? "more" : "less");
  }
  return text;
}

/// Nothing on one rank.
std::string collectives_table(const RunResult& r) {
  std::string rows;
  for (size_t i = 0; i < r.collectives.size(); ++i) {
    const CollectiveRecord& c = r.collectives[i];
    if (c.calls == 0) continue;
    rows += fmt::format("  {:<30} {:>16.1f} {:>16.0f} {:>9.4f} {:>9.4f}\n", kCollectiveWords[i],
                        c.calls, c.bytes, c.seconds, c.exposed_seconds);
  }
  if (rows.empty()) return rows;
  return fmt::format("  {:<30} {:>16} {:>16} {:>9} {:>9}\n", "collectives, mean a step", "calls",
                     "bytes", "seconds", "exposed") +
         rows;
}

}  // namespace

std::vector<std::string> collective_columns() {
  std::vector<std::string> names;
  for (const char* kind : kCollectiveWords) {
    for (const char* what : {"calls", "bytes", "seconds", "exposed_seconds"}) {
      names.push_back(fmt::format("{}_{}", kind, what));
    }
  }
  return names;
}

void append_values(const CollectiveRecords& records, std::vector<double>& values) {
  for (const CollectiveRecord& c : records) {
    values.insert(values.end(), {c.calls, c.bytes, c.seconds, c.exposed_seconds});
  }
}

std::string byte_report(const RunResult& r) {
  std::string text = bytes_table(r) + mismatch(r) + collectives_table(r);
  if (r.saved_by_reducing_every_step > 0) {
    text += fmt::format("  batch.reduce_every = \"step\" would move {} bytes less a step ({})\n",
                        r.saved_by_reducing_every_step,
                        format_bytes(static_cast<double>(r.saved_by_reducing_every_step)));
  }
  return text;
}

std::vector<std::pair<std::string, double>> byte_numbers(const RunResult& r) {
  std::vector<std::pair<std::string, double>> numbers;
  for (const Category& category : kCategories) {
    numbers.emplace_back(category.name, static_cast<double>(r.counted.*category.bytes));
  }
  for (const Category& category : kCategories) {
    numbers.emplace_back(fmt::format("predicted_{}", category.name),
                         r.predicted ? static_cast<double>((*r.predicted).*category.bytes)
                                     : std::numeric_limits<double>::quiet_NaN());
  }
  numbers.emplace_back("saved_by_reducing_every_step",
                       static_cast<double>(r.saved_by_reducing_every_step));
  std::vector<double> means;
  append_values(r.collectives, means);
  const std::vector<std::string> names = collective_columns();
  for (size_t i = 0; i < names.size(); ++i) numbers.emplace_back(names[i] + "_per_step", means[i]);
  return numbers;
}

}  // namespace zerolab
