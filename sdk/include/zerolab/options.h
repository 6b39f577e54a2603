#pragma once
// Options of a plugin, described once. From the description come validation with file positions,
// defaults, `zerolab plugins inspect`, the skeleton TOML and the catalogue. A plugin never
// parses TOML.
//
//   struct Options {
//     int64_t warmup_steps = 100;
//     double min_lr = 0;
//     static void describe(zerolab::Describe<Options>& d) {
//       d.field("warmup_steps", &Options::warmup_steps, "linear warmup").unit("steps").at_least(0);
//       d.field("min_lr", &Options::min_lr, "learning rate at the last step").at_least(0);
//     }
//     void check(zerolab::Problems& problems) const {   // optional: what one field cannot say
//       if (min_lr > 1) problems.add("min_lr", "must not exceed 1");
//     }
//   };
//
// A field may be narrowed: at_least, at_most, above, below; unit; one_of(words); length(entries of
// a list); required() (no default); path() (made absolute by the host); size() ("25MB" is
// accepted); keeps_results() (may change on resume). A problem that check() adds names a field
// that exists; its position is printed.

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "zerolab/export.h"

namespace zerolab {

/// A value of an option. An integer is accepted where a float is wanted, never the reverse.
using OptionValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                                 std::vector<double>, std::vector<std::string>>;

/// The order is that of OptionValue's alternatives.
enum class OptionType : uint32_t {
  kBool,
  kInt,
  kFloat,
  kString,
  kIntList,
  kFloatList,
  kStringList
};

/// Fully resolved values by option name, defaults included.
using OptionValues = std::map<std::string, OptionValue, std::less<>>;

/// "an integer", "a list of floats", ... for messages.
ZEROLAB_API std::string_view option_type_name(OptionType type);
/// The value as TOML text ("0.1", "[0.9, 0.95]", "\"char\""); a float always keeps a point or an
/// exponent.
ZEROLAB_API std::string to_toml(const OptionValue& value);

/// One option: what it is called, what it may be, what it is unless said.
struct OptionField {
  std::string name;
  OptionType type = OptionType::kBool;
  std::string doc;
  std::string unit;  ///< "steps", "bytes", "sequences"; empty for a plain number
  OptionValue default_value;
  bool required = false;  ///< has no default; the experiment must give it
  bool is_path = false;   ///< relative to the file that gives it; the host makes it absolute
  bool is_size = false;   ///< a count of elements, or a string such as "25MB" (4 bytes an element)
  bool affects_results = true;  ///< may not change on resume
  std::optional<double> minimum, maximum;
  bool minimum_exclusive = false, maximum_exclusive = false;
  std::optional<size_t> list_length;
  std::vector<std::string> allowed;  ///< words, for strings
};

/// What a plugin's own checks found: the option it is about (its position is printed) and a
/// sentence.
class ZEROLAB_API Problems {
 public:
  struct Problem {
    std::string option, message;
  };
  void add(std::string option, std::string message) {
    list_.push_back({std::move(option), std::move(message)});
  }
  bool empty() const { return list_.empty(); }
  const std::vector<Problem>& list() const { return list_; }

 private:
  std::vector<Problem> list_;
};

/// The type-erased description of a plugin's Options struct.
class ZEROLAB_API OptionSchema {
 public:
  const std::vector<OptionField>& fields() const { return fields_; }
  const OptionField* find(std::string_view name) const;
  /// The defaults of every field that is not required.
  OptionValues defaults() const;
  /// Empty if `value` suits `field` (type, range, words, length); otherwise what is wrong and what
  /// is allowed, without a position ("must be at least 0, is -3"). Widens an int to a float, and a
  /// size string to a count, in place.
  static std::string check_value(const OptionField& field, OptionValue& value);
  /// The struct's own cross-field checks on resolved values.
  void check(const OptionValues& values, Problems& problems) const;
  /// Writes resolved values into an Options struct made by the plugin.
  void assign(void* options, const OptionValues& values) const;

 private:
  template <class Options>
  friend class Describe;
  std::vector<OptionField> fields_;
  std::vector<std::function<void(void*, const OptionValue&)>> setters_;
  std::function<void(const OptionSchema&, const OptionValues&, Problems&)> check_;
};

/// "25MB", "1.5 GiB", "512KB" to bytes (MB = 2^20, as DeepSpeed and PyTorch use it); nullopt if not
/// a size.
ZEROLAB_API std::optional<int64_t> parse_bytes(std::string_view text);

/// Narrows the field that was just described.
class ZEROLAB_API FieldBuilder {
 public:
  explicit FieldBuilder(OptionField& field) : field_(field) {}
  FieldBuilder& unit(std::string text) { return field_.unit = std::move(text), *this; }
  FieldBuilder& at_least(double low) { return field_.minimum = low, *this; }
  FieldBuilder& at_most(double high) { return field_.maximum = high, *this; }
  FieldBuilder& above(double low) {
    return field_.minimum = low, field_.minimum_exclusive = true, *this;
  }
  FieldBuilder& below(double high) {
    return field_.maximum = high, field_.maximum_exclusive = true, *this;
  }
  FieldBuilder& one_of(std::vector<std::string> words) {
    return field_.allowed = std::move(words), *this;
  }
  FieldBuilder& length(size_t count) { return field_.list_length = count, *this; }
  FieldBuilder& required() { return field_.required = true, *this; }
  FieldBuilder& path() { return field_.is_path = true, *this; }
  FieldBuilder& size() { return field_.is_size = true, *this; }
  FieldBuilder& keeps_results() { return field_.affects_results = false, *this; }

 private:
  OptionField& field_;
};

template <class Options>
concept ChecksItself = requires(const Options& o, Problems& p) {
  o.check(p);
};

/// Builds the schema of `Options`; the defaults are the struct's own.
template <class Options>
class Describe {
 public:
  /// One field; the kind of value follows from the member's type.
  template <class T>
  FieldBuilder field(std::string name, T Options::*member, std::string doc) {
    static_assert(
        std::is_same_v<T, bool> || std::is_same_v<T, int64_t> || std::is_same_v<T, double> ||
            std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<int64_t>> ||
            std::is_same_v<T, std::vector<double>> || std::is_same_v<T, std::vector<std::string>>,
        "an option is a bool, int64_t, double, std::string or a vector of the last three");
    OptionField f;
    f.name = std::move(name);
    f.doc = std::move(doc);
    f.default_value = defaults_.*member;
    f.type = static_cast<OptionType>(f.default_value.index());
    schema_.fields_.push_back(std::move(f));
    schema_.setters_.push_back([member](void* options, const OptionValue& value) {
      static_cast<Options*>(options)->*member = std::get<T>(value);
    });
    return FieldBuilder(schema_.fields_.back());
  }

  static OptionSchema schema() {
    Describe d;
    Options::describe(d);
    if constexpr (ChecksItself<Options>) {
      d.schema_.check_ = [](const OptionSchema& schema, const OptionValues& values,
                            Problems& problems) {
        Options options;
        schema.assign(&options, values);
        options.check(problems);
      };
    }
    return std::move(d.schema_);
  }

 private:
  Options defaults_{};
  OptionSchema schema_;
};

/// For a plugin without options.
struct NoOptions {
  static void describe(Describe<NoOptions>&) {}
};

}  // namespace zerolab
