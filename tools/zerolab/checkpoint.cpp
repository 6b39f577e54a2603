// zerolab checkpoint inspect, verify, diff, consolidate: what a checkpoint holds, whether it is as
// it was saved, and what became of its numbers.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "zerolab/error.h"

#include "checkpoint_report.h"
#include "output.h"
#include "store/checkpoint_folder.h"
#include "store/consolidate.h"
#include "store/tensor_source.h"
#include "train/resumption.h"
#include "verbs.h"

namespace zerolab {
namespace {

namespace fs = std::filesystem;

struct CheckpointFlags {
  std::string checkpoint, other;  ///< RUN[@STEP], a checkpoint's folder, or for diff a file
  bool json = false, all = false, parameters_only = false;
  double tolerance = 0;
  std::string file, format;  ///< of consolidate
  bool states = false, force = false;
};

// --- what the user named ------------------------------------------------------------------------

/// A checkpoint's own folder, complete or not, rather than a run's.
bool is_checkpoint(const fs::path& path) {
  const fs::path folder = path.has_filename() ? path : path.parent_path();
  std::error_code error;
  if (fs::exists(folder / kManifestName, error)) return true;
  return folder.filename().string().starts_with("step-") && fs::is_directory(folder, error) &&
         !fs::exists(folder / "checkpoints", error);
}

/// The checkpoints' folders, the newest first; one if a step is named.
/// Errors: ConfigError if there is none.
std::vector<fs::path> folders_of(const std::string& text) {
  if (is_checkpoint(text)) return {text};
  const CheckpointName name = parse_checkpoint_name(text);
  const CheckpointFolder folder(name.run);
  std::vector<fs::path> folders;
  for (const int64_t step : candidate_steps(name)) folders.push_back(folder.path(step));
  if (folders.empty()) {
    throw ConfigError(name.run.string() +
                      ": has no complete checkpoint; a run saves some if its experiment says so "
                      "([checkpoint] every = 500).");
  }
  return folders;
}

bool names_a_run(const std::string& text) {
  return !is_checkpoint(text) && parse_checkpoint_name(text).newest();
}

// --- progress -----------------------------------------------------------------------------------

/// One line of standard error that is written over, if it is a terminal and there is much to do.
class Progress {
 public:
  explicit Progress(std::string doing) : doing_(std::move(doing)) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }

  void operator()(int64_t done, int64_t total) {
    constexpr int64_t kMuch = 256 << 20;  // about a second's work
    if (total < kMuch || !is_terminal_) return;
    const auto now = std::chrono::steady_clock::now();
    if (shown_ && now - last_ < std::chrono::milliseconds(200)) return;
    last_ = now;
    shown_ = true;
    std::fprintf(stderr, "\r%s: %d %% of %s\033[K", doing_.c_str(),
                 static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total)),
                 size_text(total).c_str());
  }

 private:
  const std::string doing_;
  const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

// --- inspect ------------------------------------------------------------------------------------

/// The first that can be read: of a run whose newest checkpoint is damaged, the one before.
/// Errors: StoreError of the first if none can be.
size_t first_readable(const std::vector<fs::path>& folders) {
  std::string first_error;
  for (size_t i = 0; i < folders.size(); ++i) {
    try {
      const CheckpointReader checkpoint(folders[i]);
      return i;
    } catch (const StoreError& error) {
      if (first_error.empty()) first_error = error.what();
    }
  }
  throw StoreError(first_error);
}

void inspect(const CheckpointFlags& flags) {
  const std::vector<fs::path> folders = folders_of(flags.checkpoint);
  const fs::path folder = folders[first_readable(folders)];
  const CheckpointReader checkpoint(folder);
  CheckpointInspection inspection{folder, checkpoint, {}};
  if (names_a_run(flags.checkpoint))
    inspection.all = list_checkpoints(parse_checkpoint_name(flags.checkpoint).run);
  print(flags.json ? inspection_json(inspection) : inspection_text(inspection));
}

// --- verify -------------------------------------------------------------------------------------

void verify(const CheckpointFlags& flags) {
  if (flags.all && !names_a_run(flags.checkpoint)) {
    throw ConfigError("--all verifies every checkpoint of a run, but '" + flags.checkpoint +
                      "' names one of them; name the run's folder, or leave --all out.");
  }
  std::vector<fs::path> folders = folders_of(flags.checkpoint);
  if (!flags.all) folders.resize(1);
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  CheckpointVerdicts verdicts;
  for (const fs::path& folder : folders) {
    Progress progress("verifying " + folder.filename().string());
    verdicts.emplace_back(folder, verify_checkpoint(folder, threads, std::ref(progress)));
  }
  print(flags.json ? verdicts_json(verdicts) : verdicts_text(verdicts));
  const auto damaged = std::count_if(verdicts.begin(), verdicts.end(),
                                     [](const auto& each) { return !each.second.whole(); });
  if (damaged == 0) return;
  throw StoreError(flags.checkpoint + ": " + std::to_string(damaged) + " of " +
                   std::to_string(verdicts.size()) +
                   (verdicts.size() == 1 ? " checkpoint" : " checkpoints") +
                   " cannot be trusted, see above; resume from another one.");
}

// --- diff ---------------------------------------------------------------------------------------

TensorSource open_source(const std::string& text) {
  std::error_code error;
  const bool is_file = fs::is_regular_file(text, error);
  if (is_file && text.ends_with(".safetensors")) return open_safetensors(text);
  if (is_file) return open_whole_file(text);
  return open_checkpoint_tensors(folders_of(text).front());
}

void diff(const CheckpointFlags& flags) {
  if (!(flags.tolerance >= 0))
    throw ConfigError("--tolerance must be 0 or more; it is the largest difference to accept.");
  const TensorSource a = open_source(flags.checkpoint), b = open_source(flags.other);
  CheckpointDiff found;
  {
    Progress progress("comparing");
    found = diff_tensors(a, b, flags.tolerance, flags.parameters_only, std::ref(progress));
  }
  print(flags.json ? diff_json(found, flags.checkpoint, flags.other)
                   : diff_text(found, flags.checkpoint, flags.other, flags.all));
  if (found.equal()) return;
  throw Error(flags.checkpoint + " and " + flags.other + ": " + difference_sentence(found) + ".");
}

// --- consolidate --------------------------------------------------------------------------------

WholeFormat format_of(const CheckpointFlags& flags) {
  if (flags.format == "hdf5") return WholeFormat::kHdf5;
  if (flags.format == "safetensors" || flags.file.ends_with(".safetensors"))
    return WholeFormat::kSafetensors;
  if (flags.file.ends_with(".h5") || flags.file.ends_with(".hdf5")) return WholeFormat::kHdf5;
  throw ConfigError("'" + flags.file +
                    "' does not say its format; give it the ending .h5 or .safetensors, or use "
                    "--to hdf5 or --to safetensors.");
}

void consolidate(const CheckpointFlags& flags) {
  const ConsolidateRequest request{flags.file, format_of(flags), flags.states, flags.force};
  std::error_code error;
  if (!flags.force && fs::exists(fs::symlink_status(request.file, error)))
    throw ConfigError(flags.file + ": is there already; choose another name, or use --force.");
  const fs::path folder = folders_of(flags.checkpoint).front();
  const CheckpointReader checkpoint(folder);
  ConsolidatedFile written;
  {
    Progress progress("writing " + request.file.filename().string());
    written = zerolab::consolidate(checkpoint, request, std::ref(progress));
  }
  print(flags.file + ": step " + std::to_string(checkpoint.manifest().point.step) + ", " +
        std::to_string(written.tensors) + " tensors, " + size_text(written.bytes) + "\n");
}

// --- the command line ---------------------------------------------------------------------------

constexpr const char* kNames =
    "RUN is a run's folder, and means its newest complete checkpoint; RUN@500 is that of step 500, "
    "RUN@best that of the lowest validation loss. A checkpoint's own folder "
    "(RUN/checkpoints/step-000000500) will do too.\n\n";

void add_checkpoint_name(CLI::App& verb, std::string& text) {
  verb.add_option("checkpoint", text, "a run's folder, RUN@500, RUN@best, or a checkpoint's folder")
      ->type_name("RUN[@STEP]")
      ->required();
}

void add_inspect(CLI::App& parent, const std::shared_ptr<CheckpointFlags>& flags) {
  CLI::App* const verb =
      parent.add_subcommand("inspect", "Show what a checkpoint holds, and what made it");
  add_checkpoint_name(*verb, flags->checkpoint);
  verb->add_flag("--json", flags->json, "print one JSON object");
  verb->footer(
      std::string(kNames) +
      "Shown are the step, how the run was cut, plugins with the hashes of their libraries, "
      "training counters, precision state, files, and every tensor with its optimizer states; for "
      "a run also all of its checkpoints, and the newest that can be read in full. Only the "
      "manifest is read: whether the files are as they "
      "were saved, `zerolab checkpoint verify` says.\n\n"
      "Examples:\n"
      "  zerolab checkpoint inspect runs/experiment-1\n"
      "  zerolab checkpoint inspect runs/experiment-1@best --json");
  verb->callback([flags] { inspect(*flags); });
}

void add_verify_checkpoint(CLI::App& parent, const std::shared_ptr<CheckpointFlags>& flags) {
  CLI::App* const verb =
      parent.add_subcommand("verify", "Read every byte and say whether it is as it was saved");
  add_checkpoint_name(*verb, flags->checkpoint);
  verb->add_flag("--all", flags->all, "every complete checkpoint of the run");
  verb->add_flag("--json", flags->json, "print one JSON object");
  verb->footer(
      std::string(kNames) +
      "Every file is compared with the checksum that its manifest has, every tensor has to be "
      "there from its first element to its last, and no number in it may be infinite or NaN. What "
      "is wrong is named by file and tensor, a line each.\n\n"
      "Exit code 0: whole. 4: damaged.\n\n"
      "Examples:\n"
      "  zerolab checkpoint verify runs/experiment-1 --all\n"
      "  zerolab checkpoint verify runs/experiment-1@best --json");
  verb->callback([flags] { verify(*flags); });
}

void add_diff(CLI::App& parent, const std::shared_ptr<CheckpointFlags>& flags) {
  CLI::App* const verb =
      parent.add_subcommand("diff", "Compare two checkpoints element by element");
  verb->add_option("a", flags->checkpoint, "one: RUN[@STEP], a checkpoint's folder, or a file")
      ->type_name("A")
      ->required();
  verb->add_option("b", flags->other, "the other")->type_name("B")->required();
  verb->add_option("--tolerance", flags->tolerance,
                   "largest absolute difference that counts as equal")
      ->type_name("X")
      ->capture_default_str();
  verb->add_flag("--parameters", flags->parameters_only,
                 "compare parameters only: no optimizer states, no counters");
  verb->add_flag("--all", flags->all, "list every tensor, not only the worst that differ");
  verb->add_flag("--json", flags->json, "print one JSON object with every tensor");
  verb->footer(
      std::string(kNames) +
      "A file that `zerolab checkpoint consolidate` wrote, and any .safetensors file, will do as "
      "well; it has no counters. How a run was cut makes no difference: tensors are compared "
      "whole. "
      "State that belongs to a rank is compared rank by rank. Neither side has to fit into "
      "memory.\n\n"
      "Elements differ if their bits do; a largest difference of 0 means another zero or another "
      "NaN. Counters (step, tokens, loss scale ...) are part of a checkpoint and are listed if "
      "they "
      "differ; a validation loss is listed, and does not count.\n\n"
      "Exit code 0: identical to the last bit, or within the tolerance. 1: they differ.\n\n"
      "Examples:\n"
      "  zerolab checkpoint diff runs/experiment-1@500 runs/experiment-2@500\n"
      "  zerolab checkpoint diff runs/a-1 runs/b-1 --tolerance 1e-5 --parameters\n"
      "  zerolab checkpoint diff runs/a-1 model.safetensors --parameters");
  verb->callback([flags] { diff(*flags); });
}

void add_consolidate(CLI::App& parent, const std::shared_ptr<CheckpointFlags>& flags) {
  CLI::App* const verb =
      parent.add_subcommand("consolidate", "Write one file with the whole tensors of a checkpoint");
  add_checkpoint_name(*verb, flags->checkpoint);
  verb->add_option("-o,--output", flags->file, "the file to write")->type_name("FILE")->required();
  verb->add_option("--to", flags->format, "hdf5 or safetensors (default: by the file's ending)")
      ->check(CLI::IsMember({"hdf5", "safetensors"}))
      ->type_name("FORMAT");
  verb->add_flag("--states", flags->states,
                 "safetensors: optimizer states too, as PARAMETER.STATE; HDF5 always has them");
  verb->add_flag("--force", flags->force, "overwrite a file that is there");
  verb->footer(
      std::string(kNames) +
      "HDF5: what a run on one rank would have saved, read as core/store/FORMAT.md says. "
      "Safetensors: parameters under their own names, for Python's loaders; weights that are tied "
      "are there once. Values keep their type and every bit. Checksums are compared on the way; if "
      "one is wrong, its file and tensor are named and nothing is written.\n\n"
      "Examples:\n"
      "  zerolab checkpoint consolidate runs/experiment-1@best -o model.safetensors\n"
      "  zerolab checkpoint consolidate runs/experiment-1 -o whole.h5 --force");
  verb->callback([flags] { consolidate(*flags); });
}

}  // namespace

void add_checkpoint(CLI::App& app, CommandLine&) {
  CLI::App* const verb = app.add_subcommand(
      "checkpoint", "Look into checkpoints, verify, compare and consolidate them");
  verb->require_subcommand(0, 1);
  const auto flags = std::make_shared<CheckpointFlags>();
  add_inspect(*verb, flags);
  add_verify_checkpoint(*verb, flags);
  add_diff(*verb, flags);
  add_consolidate(*verb, flags);
  verb->footer(
      "Examples:\n"
      "  zerolab checkpoint inspect runs/experiment-1\n"
      "  zerolab checkpoint verify runs/experiment-1 --all\n"
      "  zerolab checkpoint diff runs/experiment-1@500 runs/experiment-2@500\n"
      "  zerolab checkpoint consolidate runs/experiment-1@best -o model.safetensors");
  verb->callback([verb] {
    if (verb->get_subcommands().empty()) {
      throw ConfigError(
          "zerolab checkpoint needs a verb: inspect, verify, diff or consolidate; see: zerolab "
          "checkpoint --help.");
    }
  });
}

}  // namespace zerolab
