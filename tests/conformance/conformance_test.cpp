// The implementers' checklists of the SDK's headers, held against every plugin that was built.

#include <cmath>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "zerolab/data.h"
#include "zerolab/model.h"
#include "zerolab/optimizer.h"
#include "zerolab/precision.h"
#include "zerolab/scheduler.h"
#include "zerolab/sharding.h"

#include "catch.h"
#include "installed.h"

namespace {

/// A text for data plugins that want a file.
std::string text_file() {
  static const std::string path = [] {
    const auto file = std::filesystem::temp_directory_path() /
                      ("zerolab-conformance-" + std::to_string(getpid()) + ".txt");
    std::ofstream out(file);
    // Record separators: what is printable throughout is no file of packed tokens.
    for (int i = 0; i < 200; ++i) out << "All the world's a stage, line " << i << ".\x1e\n";
    return file.string();
  }();
  return path;
}

struct RemoveTextFile {
  ~RemoveTextFile() { std::filesystem::remove(text_file()); }
} g_remove_text_file;

}  // namespace

zerolab::OptionValues small_options(const std::string& id) {
  const size_t slash = id.find('/');
  const auto kind = *zerolab::kind_from_name(id.substr(0, slash));
  const zerolab::OptionSchema& schema = *host().schema(kind, id.substr(slash + 1));
  zerolab::OptionValues values = schema.defaults();
  for (const auto& [option, value] : {std::pair<const char*, int64_t>{"num_layers", 2},
                                      {"num_heads", 2},
                                      {"embedding_dim", 16}}) {
    if (schema.find(option) != nullptr) values[option] = value;
  }
  for (const zerolab::OptionField& field : schema.fields()) {
    if (!field.required || !field.is_path) continue;
    if (field.type == zerolab::OptionType::kStringList) {
      values[field.name] = std::vector<std::string>{text_file()};
    } else {
      values[field.name] = text_file();
    }
  }
  return values;
}

TEST_CASE("every plugin describes its options and its defaults pass its own checks") {
  CHECK_FALSE(host().records().empty());
  for (const zerolab::PluginRecord& record : host().records()) {
    INFO(record.id());
    CHECK_FALSE(record.version.empty());
    CHECK_FALSE(record.summary.empty());
    const zerolab::OptionSchema& schema = *host().schema(record.kind, record.name);
    for (const zerolab::OptionField& field : schema.fields()) {
      INFO(field.name);
      CHECK_FALSE(field.doc.empty());
      zerolab::OptionValue value = field.default_value;
      if (!field.required) CHECK(zerolab::OptionSchema::check_value(field, value).empty());
    }
    zerolab::Problems problems;
    schema.check(small_options(record.id()), problems);
    CHECK(problems.empty());
  }
}

TEST_CASE("every scheduler is a pure, finite function that stays at its last value") {
  constexpr int64_t kSteps = 500;
  const int count =
      for_each_installed<zerolab::Scheduler>([](const std::string& name, const auto& make) {
        INFO("scheduler " << name);
        const auto one = make(), other = make();
        one->open({kSteps});
        other->open({kSteps});
        for (int64_t s = kSteps - 1; s >= 0; --s) {
          CHECK(std::isfinite(one->lr(s)));
          CHECK(one->lr(s) >= 0);
          CHECK(one->lr(s) == one->lr(s));
        }
        for (int64_t s = 0; s < kSteps; ++s) CHECK(one->lr(s) == other->lr(s));  // in another order
        CHECK(one->lr(kSteps + 100) == one->lr(kSteps - 1));
      });
  CHECK(count > 0);
}

namespace {
constexpr int64_t kTokens = 12;
}

TEST_CASE("every data plugin is a pure map to tokens of its vocabulary") {
  const int count =
      for_each_installed<zerolab::Data>([](const std::string& name, const auto& make) {
        INFO("data " << name);
        const auto one = make(), other = make();
        one->open({kTokens, 7});
        other->open({kTokens, 7});
        for (const auto split : {zerolab::Split::kTrain, zerolab::Split::kValidation}) {
          REQUIRE(one->size(split) >= 1);
          for (const int64_t index : {one->size(split) - 1, one->size(split) / 2, int64_t{0}}) {
            std::vector<int64_t> tokens(kTokens), targets(kTokens), tokens2(kTokens),
                targets2(kTokens);
            one->sample(split, index, tokens, targets);
            other->sample(split, 0, tokens2, targets2);
            other->sample(split, index, tokens2, targets2);
            CHECK(tokens == tokens2);
            CHECK(targets == targets2);
            for (int64_t t : tokens) CHECK((t >= 0 && t < one->vocab_size()));
            for (int64_t t : targets)
              CHECK((t == zerolab::kIgnoredTarget || (t >= 0 && t < one->vocab_size())));
          }
        }
      });
  CHECK(count > 0);
}

TEST_CASE("every precision has a fixed policy and a power-of-two loss scale") {
  const int count =
      for_each_installed<zerolab::Precision>([](const std::string& name, const auto& make) {
        INFO("precision " << name);
        const auto precision = make();
        const zerolab::PrecisionPolicy before = precision->policy();
        const auto resumed = make();
        for (const bool finite : {true, false, true, false, false, true}) {
          int exponent = 0;
          CHECK(std::frexp(precision->loss_scale(), &exponent) == 0.5);
          precision->observe(finite);
          resumed->restore(precision->state());
          CHECK(resumed->loss_scale() == precision->loss_scale());
          CHECK(resumed->state() == precision->state());
        }
        CHECK(precision->policy().parameter_dtype == before.parameter_dtype);
        CHECK(precision->policy().gradient_dtype == before.gradient_dtype);
        CHECK(precision->policy().autocast_dtype == before.autocast_dtype);
      });
  CHECK(count > 0);
}

TEST_CASE("every optimizer is elementwise and leaves padding alone") {
  const int count =
      for_each_installed<zerolab::Optimizer>([](const std::string& name, const auto& make) {
        const auto one = make(), other = make();
        check_optimizer(name, *one, *other);
      });
  CHECK(count > 0);
}

TEST_CASE("every model sums its loss, reaches all its parameters and keeps no state") {
  const int count =
      for_each_installed<zerolab::Model>([](const std::string& name, const auto& make) {
        const auto model = make();
        check_model(name, *model);
      });
  CHECK(count > 0);
}
