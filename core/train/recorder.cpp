#include "train/recorder.h"

#include <algorithm>
#include <cmath>

#include "store/journal_reader.h"
#include "train/byte_report.h"

namespace zerolab {

Recorder::Recorder(RunFolder& folder, std::FILE* out, int64_t steps, int64_t finished_steps)
    : folder_(folder), progress_(out, steps, finished_steps) {
  folder.open_metrics(metric_columns());
}

void Recorder::on_step(const StepRecord& record) {
  folder_.append(metric_row(record));
  progress_.print(record);
}

void Recorder::on_rollback(int64_t step, const std::string& reason) {
  folder_.rewind(step);
  progress_.print_rollback(step, reason);
}

RunSummary store_summary(const RunResult& r) {
  RunSummary summary;
  summary.numbers = {{"steps", static_cast<double>(r.last.step)},
                     {"seconds", r.seconds},
                     {"final_loss", r.last.loss},
                     {"val_loss", r.val_loss},
                     {"tokens_per_sec", r.tokens_per_sec},
                     {"skipped_steps", static_cast<double>(r.skipped_steps)},
                     {"parameters", static_cast<double>(r.parameters)},
                     {"peak_memory_bytes", static_cast<double>(r.last.peak_memory_bytes)},
                     {"peak_tensor_bytes", static_cast<double>(r.last.peak_tensor_bytes)},
                     {"checkpoints", static_cast<double>(r.checkpoints)},
                     {"checkpoint_stall_seconds", r.checkpoint_stall_seconds},
                     {"checkpoint_seconds", r.checkpoint_seconds}};
  for (auto& number : byte_numbers(r)) summary.numbers.push_back(std::move(number));
  summary.texts = {{"status", "finished"}};
  return summary;
}

StepRecord last_recorded_step(const std::filesystem::path& journal) {
  StepRecord record;
  const JournalRows rows = read_journal(journal);
  if (rows.rows.empty()) return record;
  const auto value = [&](const char* column) {
    const auto found = std::find(rows.columns.begin(), rows.columns.end(), column);
    return found == rows.columns.end()
               ? std::nan("")
               : rows.rows.back()[static_cast<size_t>(found - rows.columns.begin())];
  };
  record.step = static_cast<int64_t>(value("step"));
  record.loss = value("loss");
  record.lr = value("lr");
  record.grad_norm = value("grad_norm");
  record.tokens = static_cast<int64_t>(value("tokens"));
  record.val_loss = value("val_loss");
  record.evaluated = !std::isnan(record.val_loss);
  return record;
}

}  // namespace zerolab
