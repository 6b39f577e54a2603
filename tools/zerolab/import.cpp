// zerolab import: experiments from the configurations of other programs.

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "zerolab/error.h"

#include "deepspeed/deepspeed_import.h"
#include "output.h"
#include "store/file_layer.h"
#include "verbs.h"

namespace zerolab {
namespace {

constexpr size_t kLargestFile = 4 << 20;  // bytes; a data file given by mistake is not read whole

struct ImportFlags {
  std::string file, output;
  bool force = false, json = false;
};

std::string read_whole(const std::string& file) {
  const auto fail = [&](const std::string& why) {
    return ConfigError(file + ": cannot be read: " + why + ".");
  };
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in) throw fail(std::strerror(errno));
  std::string text(kLargestFile + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || (in.gcount() == 0 && errno != 0)) throw fail(std::strerror(errno));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kLargestFile) throw fail("it has more than 4 MB, too much for a configuration");
  return text;
}

void check_output(const ImportFlags& flags) {
  std::error_code unreadable;
  const auto status = std::filesystem::symlink_status(flags.output, unreadable);
  if (status.type() == std::filesystem::file_type::not_found) return;
  if (status.type() != std::filesystem::file_type::regular) {
    throw ConfigError(flags.output + ": is there and is no regular file; give -o another name.");
  }
  if (!flags.force) {
    throw ConfigError(flags.output +
                      ": exists already; give -o another name, or --force to replace it.");
  }
}

Json verdict_json(const KeyVerdict& key) {
  if (!key.honoured) return {{"key", key.key}, {"why", key.remark}};
  Json json = {{"key", key.key}, {"as", nullptr}, {"remark", key.remark}};
  if (!key.as.empty()) json["as"] = key.as;
  return json;
}

std::string json_text(const DeepSpeedImport& import) {
  Json json = {{"toml", import.toml}, {"honoured", Json::array()}, {"not_honoured", Json::array()}};
  for (const KeyVerdict& key : import.keys) {
    json[key.honoured ? "honoured" : "not_honoured"].push_back(verdict_json(key));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void import_from_deepspeed(const ImportFlags& flags) {
  if (!flags.output.empty()) check_output(flags);
  const DeepSpeedImport import = import_deepspeed(read_whole(flags.file), flags.file);
  if (!flags.output.empty()) {
    write_file(real_files(), std::filesystem::absolute(flags.output), import.toml);
  }
  if (flags.json) return print(json_text(import));
  if (flags.output.empty()) {
    print(import.toml);
  } else {
    print("wrote " + flags.output + "; to check it: zerolab show-config " + flags.output + "\n");
  }
  std::cerr << remarks_text(import);
}

void add_import_deepspeed(CLI::App& verb) {
  CLI::App* const format =
      verb.add_subcommand("deepspeed", "From a DeepSpeed configuration, ds_config.json");
  const auto flags = std::make_shared<ImportFlags>();
  format->add_option("config", flags->file, "the DeepSpeed configuration, a JSON file")
      ->type_name("CONFIG")
      ->required();
  CLI::Option* const output =
      format
          ->add_option("-o,--output", flags->output,
                       "write the experiment here (default: standard output)")
          ->type_name("FILE");
  format->add_flag("--force", flags->force, "replace the file of -o")->needs(output);
  format->add_flag("--json", flags->json,
                   "print {\"toml\", \"honoured\", \"not_honoured\"} for a script");
  format->footer(
      "Every key of the configuration is honoured, honoured with a remark, or named as not "
      "honoured, in the\nexperiment's first lines and on standard error. What DeepSpeed does not "
      "say (model, data, steps) is\nthe smallest choice that runs, marked \"chosen here\".\n\n"
      "Examples:\n"
      "  zerolab import deepspeed ds_config.json -o experiment.toml\n"
      "  zerolab import deepspeed ds_config.json --json | jq '.not_honoured[].key'");
  format->callback([flags] { import_from_deepspeed(*flags); });
}

}  // namespace

void add_import(CLI::App& app, CommandLine&) {
  CLI::App* const verb =
      app.add_subcommand("import", "Turn another program's configuration into an experiment");
  verb->require_subcommand(0, 1);
  add_import_deepspeed(*verb);
  verb->footer(
      "Formats:\n"
      "  deepspeed   zerolab import deepspeed ds_config.json -o experiment.toml");
  verb->callback([verb] {
    if (verb->get_subcommands().empty()) {
      throw ConfigError("zerolab import needs a format: deepspeed; see: zerolab import --help.");
    }
  });
}

}  // namespace zerolab
