#include "experiment/experiment_tree.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "experiment/option_check.h"
#include "experiment/problem_report.h"
#include "experiment/toml_source.h"

namespace zerolab {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtends = "extends";

/// Takes a setting out of a table.
std::optional<Setting> take_setting(SettingTable& table, std::string_view key) {
  for (auto it = table.begin(); it != table.end(); ++it) {
    if (it->key != key) continue;
    Setting setting = std::move(*it);
    table.erase(it);
    return setting;
  }
  return std::nullopt;
}

class Reader {
 public:
  explicit Reader(ExperimentTree& tree)
      : home_(tree.file.parent_path()),
        sources_(tree.sources),
        root_(tree.root),
        report_(tree.sources) {}

  void read_file(const fs::path& shown);
  void apply_override(const std::string& text);
  void throw_if_any() const { report_.throw_if_any(); }

 private:
  void read_bases(const Setting& extends, const fs::path& shown_folder);
  bool closes_cycle(const Setting& extends, const fs::path& shown);

  fs::path home_;  ///< folder of the experiment
  std::vector<Source>& sources_;
  SettingTable& root_;
  ProblemReport report_;
  std::vector<std::pair<fs::path, fs::path>> open_;  ///< files being read: canonical, as shown
  size_t layer_ = 0;
};

void Reader::read_file(const fs::path& shown) {
  const fs::path path = fs::absolute(shown).lexically_normal();
  const size_t source = sources_.size();
  sources_.push_back(
      {shown.string(), path.lexically_proximate(home_).string(), path.parent_path(), false});
  SettingTable table;
  try {
    table = parse_toml(read_toml_file(path, source), source);
  } catch (const TomlSyntaxError& error) {
    report_.add(error.at(), "", error.what());
    return;
  }
  open_.emplace_back(fs::weakly_canonical(path), shown);
  if (const auto extends = take_setting(table, kExtends)) read_bases(*extends, shown.parent_path());
  open_.pop_back();
  set_layer(table, layer_++);
  merge_settings(root_, std::move(table));
}

void Reader::read_bases(const Setting& extends, const fs::path& shown_folder) {
  std::vector<std::string> files;
  if (const OptionValue* value = extends.option()) {
    if (const auto* file = std::get_if<std::string>(value)) files = {*file};
    if (const auto* list = std::get_if<std::vector<std::string>>(value)) files = *list;
    if (const auto* list = std::get_if<std::vector<int64_t>>(value); list && list->empty()) return;
  }
  if (files.empty()) {
    report_.add(extends.value_at, kExtends,
                "must be a file or a list of files, is " + extends.what() + "; default []");
    return;
  }
  for (const std::string& file : files) {
    const fs::path shown = (shown_folder / file).lexically_normal();
    std::error_code error;
    if (file.empty() || !fs::exists(shown, error)) {
      report_.add(extends.value_at, kExtends, "there is no file '" + shown.string() + "'");
    } else if (!closes_cycle(extends, shown)) {
      read_file(shown);
    }
  }
}

bool Reader::closes_cycle(const Setting& extends, const fs::path& shown) {
  const fs::path canonical = fs::weakly_canonical(shown);
  const auto begin = std::find_if(open_.begin(), open_.end(),
                                  [&](const auto& file) { return file.first == canonical; });
  if (begin == open_.end()) return false;
  std::string chain;
  for (auto file = begin; file != open_.end(); ++file) chain += file->second.string() + " -> ";
  report_.add(extends.value_at, kExtends, "goes in a circle: " + chain + shown.string());
  return true;
}

/// "a.b.c" to its keys; empty if one of them is no bare key.
std::vector<std::string> split_key(std::string_view dotted) {
  std::vector<std::string> keys;
  for (size_t begin = 0; begin <= dotted.size();) {
    const size_t end = std::min(dotted.find('.', begin), dotted.size());
    const std::string_view key = dotted.substr(begin, end - begin);
    const bool bare = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
      return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '-';
    });
    if (!bare) return {};
    keys.emplace_back(key);
    begin = end + 1;
  }
  return keys;
}

void Reader::apply_override(const std::string& text) {
  const Position at{sources_.size(), 1, 1};
  sources_.push_back({"override '" + text + "'", "override", fs::current_path(), true});
  const size_t equals = text.find('=');
  const std::vector<std::string> keys = split_key(std::string_view(text).substr(0, equals));
  if (equals == std::string::npos || keys.empty()) {
    report_.add(at, "", "must be dotted.key=VALUE, such as batch.micro_batch_size=4");
    return;
  }
  if (keys.front() == kExtends) {
    report_.add(at, kExtends, "is for files only: say it in the experiment file");
    return;
  }
  Setting setting;
  try {
    setting = parse_override_value(std::string_view(text).substr(equals + 1), at.source);
  } catch (const TomlSyntaxError& error) {
    report_.add(at, text.substr(0, equals), error.what());
    return;
  }
  setting.key = keys.back();
  for (size_t i = keys.size() - 1; i-- > 0;) {
    Setting outer{keys[i], at, at, 0, SettingTable{std::move(setting)}, {}};
    setting = std::move(outer);
  }
  SettingTable table{std::move(setting)};
  set_layer(table, layer_);
  merge_settings(root_, std::move(table));
}

}  // namespace

ExperimentTree read_experiment(const fs::path& file, const std::vector<std::string>& overrides) {
  ExperimentTree tree;
  tree.file = fs::absolute(file).lexically_normal();
  Reader reader(tree);
  reader.read_file(file);
  for (const std::string& text : overrides) reader.apply_override(text);
  reader.throw_if_any();
  return tree;
}

}  // namespace zerolab
