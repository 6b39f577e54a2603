#pragma once
// Plugins that exist only as descriptions, and experiment files in a folder of their own.

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "zerolab/options.h"

#include "experiment/experiment.h"

namespace zerolab::test {

/// Schedulers "ramp" (lr, min_lr, warmup_steps, betas, mode, path; the end may not be above lr) and
/// "flat" (lr); shardings "whole" (bucket, shared) and "split" (shared, depth); one plugin "plain"
/// of each other kind: model with a required width, data with a path, optimizer with weight_decay,
/// precision with nothing.
class FakeCatalogue : public PluginCatalogue {
 public:
  FakeCatalogue();
  const OptionSchema* schema(Kind kind, std::string_view name) override;
  std::vector<std::string> names(Kind kind) override;
  std::string missing_message(Kind kind, std::string_view name) override;
  void refuse(Kind kind, const std::string& name) { refused_ = {kind, name}; }

 private:
  std::map<std::pair<Kind, std::string>, OptionSchema> schemas_;
  std::pair<Kind, std::string> refused_;
};

/// A folder that is gone afterwards; the current folder during the test is another one inside it
/// ("cwd").
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  /// Writes a file (and its folders) and returns its path.
  std::filesystem::path write(const std::string& name, const std::string& text) const;

 private:
  std::filesystem::path path_, before_;
};

/// A sound experiment: 10 steps, sequences of 8 tokens, micro-batches of 2. `extra` goes to the
/// end, after [sharding].
std::string sound(const std::string& extra = "", const std::string& top = "");

/// Loads and resolves.
Experiment resolve(const std::filesystem::path& file,
                   const std::vector<std::string>& overrides = {}, int num_ranks = 1);

/// The message with which load or resolve ends; without the folder of `file` in
/// its paths. Fails the test if neither throws a ConfigError.
std::string config_error(const std::filesystem::path& file,
                         const std::vector<std::string>& overrides = {}, int num_ranks = 1);

bool has(const std::string& text, const std::string& part);

/// The lines of a text.
std::vector<std::string> lines(const std::string& text);

template <class T>
T option(const Experiment& experiment, Kind kind, const std::string& name) {
  return std::get<T>(experiment.plugin(kind).options.at(name));
}

}  // namespace zerolab::test
