#include "store/journal_reader.h"

#include <cmath>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "store/file_layer.h"

namespace zerolab {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// Takes a line's values out as the parser meets them: a tree for each line would cost a long run's
/// reader minutes. Everything but one flat object of numbers and infinities is refused.
class RowParser : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// Of all rows so far.
  std::vector<std::string> columns;

  /// False if the line is no row; then `row` is undefined.
  bool parse(std::string_view line, MetricsRow& row) {
    row_ = &row;
    row.assign(columns.size(), kNone);
    inside_ = false;
    new_keys_.clear();
    if (!nlohmann::json::sax_parse(line.begin(), line.end(), this)) return false;
    step_ = number_of("step");
    if (!(step_ >= 0) || std::isinf(step_)) return false;
    for (auto& [key, value] : new_keys_) {
      place_.emplace(key, columns.size());
      columns.push_back(std::move(key));
      row.push_back(value);
    }
    return true;
  }

  /// Of the row that was parsed last.
  double step() const { return step_; }

  bool null() override { return put(kNone); }
  bool boolean(bool) override { return false; }
  bool number_integer(number_integer_t value) override { return put(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return put(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& text) override {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (text == "Infinity") return put(kInfinity);
    return text == "-Infinity" && put(-kInfinity);
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return !std::exchange(inside_, true); }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return false; }
  bool end_array() override { return false; }
  bool key(string_t& text) override {
    key_ = std::move(text);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool put(double value) {
    if (!inside_) return false;
    const auto found = place_.find(key_);
    if (found != place_.end()) {
      (*row_)[found->second] = value;
    } else {
      new_keys_.emplace_back(key_, value);  // a column only if the whole line is a row
    }
    return true;
  }

  double number_of(const std::string& name) const {
    const auto found = place_.find(name);
    if (found != place_.end()) return (*row_)[found->second];
    for (const auto& [key, value] : new_keys_) {
      if (key == name) return value;
    }
    return kNone;
  }

  MetricsRow* row_ = nullptr;
  bool inside_ = false;
  double step_ = kNone;
  std::string key_;
  std::vector<std::pair<std::string, double>> new_keys_;
  std::unordered_map<std::string, size_t> place_;
};

/// Calls `take` with each line that ends with a line feed, which is part of it.
template <typename Take>
void for_each_line(std::string_view text, const Take& take) {
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string_view::npos;
       begin = end + 1) {
    take(text.substr(begin, end + 1 - begin));
  }
}

}  // namespace

JournalRows read_journal(const std::filesystem::path& file) {
  const std::string text = read_text_file(file);
  JournalRows journal;
  RowParser parser;
  MetricsRow row;
  size_t num_damaged = 0;
  for_each_line(text, [&](std::string_view line) {
    if (!parser.parse(line, row)) {
      ++num_damaged;
      return;
    }
    journal.rows.push_back(row);
    journal.num_damaged = num_damaged;
  });
  for (MetricsRow& each : journal.rows) each.resize(parser.columns.size(), kNone);
  journal.columns = std::move(parser.columns);
  return journal;
}

CutJournal cut_journal(const std::string& text, int64_t finished_steps) {
  CutJournal cut;
  RowParser parser;
  MetricsRow row;
  bool later = false;
  for_each_line(text, [&](std::string_view line) {
    if (parser.parse(line, row)) later = parser.step() > static_cast<double>(finished_steps);
    (later ? cut.later : cut.kept) += line;
  });
  return cut;
}

}  // namespace zerolab
