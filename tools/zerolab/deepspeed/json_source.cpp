#include "json_source.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <utility>

#include "zerolab/error.h"

namespace zerolab {
namespace {

constexpr int kDeepest = 64;  // levels; nothing that DeepSpeed reads has more than ten
constexpr size_t kLongestShown = 40;

/// Reads characters for the parser and counts them, so that the place of a key is known.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, size_t* count) : at_(at), count_(count) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() { return ++at_, ++*count_, *this; }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  size_t* count_;
};

/// "line:column" of a byte offset, both from 1.
std::string position(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return std::to_string(line) + ":" + std::to_string(before.size() - start + 1);
}

std::string escaped(const std::string& text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

bool is_bare(const std::string& key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

/// Watches the parser: notes where keys stand, refuses the second of a name.
class KeyWatch {
 public:
  KeyWatch(std::string_view text, const std::string& name,
           std::map<std::string, std::string>& positions)
      : text_(text), name_(name), positions_(positions) {}

  size_t* count() { return &count_; }

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth > kDeepest) {
      throw ConfigError(name_ + ":" + position(text_, count_) + ": is nested deeper than " +
                        std::to_string(kDeepest) +
                        " levels, which no DeepSpeed configuration is; give another file.");
    }
    if (event == Event::object_start) open_.push_back({pending_, {}});
    if (event == Event::key) enter(parsed.get<std::string>());
    if (event == Event::object_end) {
      pending_ = open_.back().path;
      open_.pop_back();
    }
    return true;
  }

 private:
  struct Object {
    std::string path;
    std::set<std::string> keys;
  };

  void enter(const std::string& key) {
    // The parser has just read the closing quote.
    const std::string here = position(text_, count_ - std::min(count_, key.size() + 2));
    pending_ = join_path(open_.back().path, key);
    if (!open_.back().keys.insert(key).second) {
      throw ConfigError(name_ + ":" + here + ": key '" + pending_ + "' is given twice, first at " +
                        positions_[pending_] + "; DeepSpeed refuses that, too: keep one.");
    }
    positions_[pending_] = here;
  }

  std::string_view text_;
  const std::string& name_;
  std::map<std::string, std::string>& positions_;
  size_t count_ = 0;
  std::string pending_;  ///< path of the key whose value comes next
  std::vector<Object> open_;
};

/// The parser's words without its own name and place, and without bytes that a terminal may not
/// know.
std::string reason(const std::string& what) {
  const size_t column = what.find("column ");
  const size_t colon = what.find(": ", column == std::string::npos ? 0 : column);
  std::string text = colon == std::string::npos ? what : what.substr(colon + 2);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

}  // namespace

std::string join_path(const std::string& path, const std::string& key) {
  return (path.empty() ? "" : path + ".") + (is_bare(key) ? key : escaped(key));
}

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (text.size() > kLongestShown) text = text.substr(0, kLongestShown - 3) + "...";
  return text;
}

JsonSource JsonSource::parse(std::string_view text, const std::string& name) {
  JsonSource source;
  source.name_ = name;
  KeyWatch watch(text, name, source.positions_);
  try {
    source.root_ =
        Json::parse(CountingIterator(text.data(), watch.count()),
                    CountingIterator(text.data() + text.size(), watch.count()), std::ref(watch),
                    /*allow_exceptions=*/true, /*ignore_comments=*/true);
  } catch (const Json::exception& error) {
    const size_t read = *watch.count();
    throw ConfigError(name + ":" + position(text, read - std::min<size_t>(read, 1)) +
                      ": is not JSON (// and /* */ comments are accepted, other extensions of it "
                      "are not): " +
                      reason(error.what()) + ".");
  }
  if (!source.root_.is_object()) {
    throw ConfigError(name + ":1:1: holds " + std::string(source.root_.type_name()) +
                      ", not an object; a DeepSpeed configuration begins with '{'.");
  }
  source.index("", source.root_);
  return source;
}

void JsonSource::index(const std::string& path, const Json& value) {
  if (!path.empty()) {
    values_[path] = &value;
    if (!value.is_object() || value.empty()) leaves_.push_back(path);
  }
  if (!value.is_object()) return;
  for (const auto& [key, child] : value.items()) index(join_path(path, key), child);
}

const Json* JsonSource::find(const std::string& path) const {
  const auto found = values_.find(path);
  return found == values_.end() ? nullptr : found->second;
}

std::string JsonSource::where(const std::string& path) const {
  const auto found = positions_.find(path);
  return name_ + ":" + (found == positions_.end() ? "" : found->second + ": ") + "key '" + path +
         "'";
}

}  // namespace zerolab
