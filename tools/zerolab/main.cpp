// zerolab: one binary, and plugins. Each verb has its own file.

#include <csignal>
#include <exception>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include <torch/headeronly/version.h>

#include "zerolab/error.h"
#include "zerolab/version.h"

#include "command_line.h"
#include "output.h"
#include "verbs.h"

namespace {

constexpr const char* kAbout =
    R"(zerolab trains language models from experiment files. Which model, data, optimizer, sharding,
precision and scheduler an experiment uses is one word each, and each word is a plugin.)";

constexpr const char* kExamples =
    R"(Examples:
  zerolab run experiment.toml                        train
  zerolab run experiment.toml --ranks 2              the same on two processes
  zerolab run experiment.toml sharding.plugin=NAME   with one word swapped
  zerolab resume runs/experiment-1                   go on where it stopped
  zerolab generate runs/experiment-1 --prompt "A"    let it go on with a text
  zerolab evaluate runs/experiment-1@best            loss, perplexity, bits per byte
  zerolab export runs/experiment-1 -o w.safetensors  its weights, for another program
  zerolab checkpoint verify runs/experiment-1        whether what it saved is whole
  zerolab verify experiment.toml --ranks 3           prove that its sharding changes nothing
  zerolab plan experiment.toml --ranks 1,8,64        what each sharding holds and moves
  zerolab tokenize texts/*.txt -o corpus.bin         text files as packed tokens, for data/token_bin
  zerolab show-config experiment.toml                every value, and where it comes from
  zerolab plugins list                               what is installed, and what was refused
  zerolab plugins inspect sharding/NAME --toml       a plugin's options, ready to paste

Exit codes: 0 finished, 1 error, 2 configuration, 3 plugin, 4 store, 5 another rank, 6 diverged,
75 stopped and can be resumed.)";

#define ZEROLAB_TEXT_OF(x) #x
#define ZEROLAB_TEXT(x) ZEROLAB_TEXT_OF(x)
constexpr const char* kVersion = "zerolab " ZEROLAB_VERSION " (SDK ABI " ZEROLAB_TEXT(
    ZEROLAB_SDK_ABI_MAJOR) "." ZEROLAB_TEXT(ZEROLAB_SDK_ABI_MINOR) ", LibTorch " TORCH_VERSION ")";

int fail(const std::string& message, zerolab::ExitCode code) {
  std::cerr << "zerolab: error: " << message << std::endl;
  return static_cast<int>(code);
}

int parse_and_run(CLI::App& app, zerolab::CommandLine& line, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) {
      std::cerr << app.help();
      return static_cast<int>(zerolab::ExitCode::kConfiguration);
    }
    return line.exit_code;
  } catch (const CLI::CallForVersion& version) {
    zerolab::print(std::string(version.what()) + "\n");
  } catch (const CLI::Success&) {  // --help of the verb that was reached
    zerolab::print(app.help());
  } catch (const CLI::ParseError& error) {
    return fail(zerolab::explain(app, error), zerolab::ExitCode::kConfiguration);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  // A reader that goes away (a pager, `head`) must not end a run: writing then fails, and print()
  // knows.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    zerolab::CommandLine line{{argv, argv + argc}, 0};
    CLI::App app(kAbout, "zerolab");
    app.set_version_flag("--version", kVersion, "print the version and the SDK's ABI");
    app.set_help_flag("-h,--help", "print this; each verb has its own");
    app.require_subcommand(0, 1);
    app.footer(kExamples);
    zerolab::add_run(app, line);
    zerolab::add_resume(app, line);
    zerolab::add_fork(app, line);
    zerolab::add_generate(app, line);
    zerolab::add_evaluate(app, line);
    zerolab::add_show_config(app, line);
    zerolab::add_verify(app, line);
    zerolab::add_plan(app, line);
    zerolab::add_checkpoint(app, line);
    zerolab::add_export(app, line);
    zerolab::add_tokenize(app, line);
    zerolab::add_plugins(app, line);
    zerolab::add_import(app, line);
    return parse_and_run(app, line, argc, argv);
  } catch (const zerolab::Error& error) {
    return fail(error.what(), error.exit_code());
  } catch (const std::exception& error) {
    return fail(error.what(), zerolab::ExitCode::kError);
  }
}
