#include "fake_catalogue.h"

#include <fstream>
#include <sstream>

#include <unistd.h>

#include "zerolab/error.h"

#include "catch.h"

namespace zerolab::test {
namespace {

namespace fs = std::filesystem;

struct Ramp {
  double lr = 3e-4, min_lr = 0;
  int64_t warmup_steps = 100;
  std::vector<double> betas = {0.9, 0.95};
  std::string mode = "linear", path;
  std::vector<std::string> tags;
  static void describe(Describe<Ramp>& d) {
    d.field("lr", &Ramp::lr, "learning rate").above(0);
    d.field("min_lr", &Ramp::min_lr, "learning rate at the end").at_least(0);
    d.field("warmup_steps", &Ramp::warmup_steps, "steps up to lr").unit("steps").at_least(0);
    d.field("betas", &Ramp::betas, "two decays").length(2).at_least(0).below(1);
    d.field("mode", &Ramp::mode, "the shape").one_of({"linear", "square"});
    d.field("path", &Ramp::path, "a table of rates").path();
    d.field("tags", &Ramp::tags, "words");
  }
  void check(Problems& problems) const {
    if (min_lr > lr) problems.add("min_lr", "must not exceed lr");
  }
};

struct Flat {
  double lr = 1e-3;
  static void describe(Describe<Flat>& d) { d.field("lr", &Flat::lr, "learning rate").above(0); }
};

struct Whole {
  int64_t bucket = 1 << 20, shared = 1;
  static void describe(Describe<Whole>& d) {
    d.field("bucket", &Whole::bucket, "elements of a bucket").at_least(1).size();
    d.field("shared", &Whole::shared, "known to both");
  }
  void check(Problems& problems) const {
    if (bucket < shared) problems.add("bucket", "must not be below shared");
  }
};

struct Split {
  int64_t shared = 2, depth = 1;
  static void describe(Describe<Split>& d) {
    d.field("shared", &Split::shared, "known to both");
    d.field("depth", &Split::depth, "levels").at_least(1).at_most(9);
  }
};

struct PlainModel {
  int64_t width = 0;
  bool bias = false;
  static void describe(Describe<PlainModel>& d) {
    d.field("width", &PlainModel::width, "channels").at_least(1).required();
    d.field("bias", &PlainModel::bias, "whether sums have one");
  }
};

struct PlainData {
  std::string path = "default.txt";
  std::vector<std::string> parts;
  static void describe(Describe<PlainData>& d) {
    d.field("path", &PlainData::path, "a text").path();
    d.field("parts", &PlainData::parts, "further texts").path();
  }
};

struct PlainOptimizer {
  double weight_decay = 0.1;
  static void describe(Describe<PlainOptimizer>& d) {
    d.field("weight_decay", &PlainOptimizer::weight_decay, "pull to zero").at_least(0);
  }
};

}  // namespace

FakeCatalogue::FakeCatalogue() {
  schemas_[{Kind::kScheduler, "ramp"}] = Describe<Ramp>::schema();
  schemas_[{Kind::kScheduler, "flat"}] = Describe<Flat>::schema();
  schemas_[{Kind::kSharding, "whole"}] = Describe<Whole>::schema();
  schemas_[{Kind::kSharding, "split"}] = Describe<Split>::schema();
  schemas_[{Kind::kModel, "plain"}] = Describe<PlainModel>::schema();
  schemas_[{Kind::kData, "plain"}] = Describe<PlainData>::schema();
  schemas_[{Kind::kOptimizer, "plain"}] = Describe<PlainOptimizer>::schema();
  schemas_[{Kind::kPrecision, "plain"}] = Describe<NoOptions>::schema();
}

const OptionSchema* FakeCatalogue::schema(Kind kind, std::string_view name) {
  const std::pair<Kind, std::string> id(kind, name);
  if (id == refused_) throw PluginError("refused: built for another world");
  const auto found = schemas_.find(id);
  return found != schemas_.end() ? &found->second : nullptr;
}

std::vector<std::string> FakeCatalogue::names(Kind kind) {
  std::vector<std::string> names;
  for (const auto& [id, schema] : schemas_) {
    if (id.first == kind) names.push_back(id.second);
  }
  return names;
}

std::string FakeCatalogue::missing_message(Kind kind, std::string_view name) {
  return "no plugin " + std::string(kind_name(kind)) + "/" + std::string(name) + " in /nowhere";
}

Folder::Folder() : before_(fs::current_path()) {
  std::string name = (fs::temp_directory_path() / "zerolab-experiment-XXXXXX").string();
  REQUIRE(mkdtemp(name.data()) != nullptr);
  path_ = fs::canonical(name);
  fs::create_directory(path_ / "cwd");
  fs::current_path(path_ / "cwd");
}

Folder::~Folder() {
  fs::current_path(before_);
  fs::remove_all(path_);
}

fs::path Folder::write(const std::string& name, const std::string& text) const {
  const fs::path file = path_ / name;
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
  return file;
}

std::string sound(const std::string& extra, const std::string& top) {
  return "steps = 10\n" + top +
         "[batch]\nsequence_length = 8\nmicro_batch_size = 2\n"
         "[model]\nplugin = \"plain\"\nwidth = 4\n"
         "[data]\nplugin = \"plain\"\n"
         "[optimizer]\nplugin = \"plain\"\n"
         "[precision]\nplugin = \"plain\"\n"
         "[scheduler]\nplugin = \"ramp\"\n"
         "[sharding]\nplugin = \"whole\"\n" +
         extra;
}

Experiment resolve(const fs::path& file, const std::vector<std::string>& overrides, int num_ranks) {
  FakeCatalogue catalogue;
  return ExperimentFile::load(file, overrides).resolve(catalogue, num_ranks);
}

std::string config_error(const fs::path& file, const std::vector<std::string>& overrides,
                         int num_ranks) {
  try {
    resolve(file, overrides, num_ranks);
  } catch (const ConfigError& error) {
    // Files as if the experiment's folder were the current one.
    std::string text = error.what();
    const std::string folder = file.parent_path().string() + "/";
    for (size_t at = 0; (at = text.find(folder, at)) != std::string::npos;)
      text.erase(at, folder.size());
    return text;
  }
  FAIL("nothing was wrong with " << file);
  return {};
}

bool has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  UNSCOPED_INFO("not in: " << text);
  return false;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) all.push_back(line);
  return all;
}

}  // namespace zerolab::test
