// zerolab tokenize: text files as one file of packed tokens, which data/token_bin reads.

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "zerolab/error.h"
#include "zerolab/token_file.h"
#include "zerolab/tokenizer.h"

#include "distributed/stop_signals.h"
#include "output.h"
#include "verbs.h"

namespace zerolab {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPart = 16 << 20;  // bytes read at a time: memory follows from it

struct TokenizeFlags {
  std::vector<std::string> files;
  std::string output, tokenizer = "gpt2", bpe_ranks, split_documents;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  bool json = false, force = false, no_end_of_text = false;
};

struct Totals {
  int64_t documents = 0, bytes = 0, tokens = 0;
  double seconds = 0;
};

// --- what was asked for -------------------------------------------------------------------------

std::string ranks_file(const TokenizeFlags& flags) {
  if (!flags.bpe_ranks.empty()) return flags.bpe_ranks;
  constexpr const char* kName = "data/gpt2.tiktoken";
  std::error_code error;
  if (fs::exists(kName, error)) return kName;
  // Beside the source tree's build folder.
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path beside = program.parent_path().parent_path().parent_path() / kName;
  if (!error && fs::exists(beside, error)) return beside.string();
  throw ConfigError(
      "tokenizer gpt2 needs the file of its ranks, and data/gpt2.tiktoken is not here; give "
      "--bpe-ranks FILE (tools/setup puts one into data/gpt2.tiktoken).");
}

std::unique_ptr<Tokenizer> tokenizer_for(const TokenizeFlags& flags) {
  if (flags.tokenizer == "byte") {
    if (!flags.bpe_ranks.empty()) {
      throw ConfigError("--bpe-ranks is for --tokenizer gpt2; leave one of them out.");
    }
    if (!flags.split_documents.empty()) {
      throw ConfigError(
          "--split-documents needs a token that ends a document, and the byte tokenizer has none; "
          "leave it out, or take --tokenizer gpt2.");
    }
    return make_byte_tokenizer();
  }
  if (flags.no_end_of_text && !flags.split_documents.empty()) {
    throw ConfigError(
        "--split-documents writes the token that --no-end-of-text forbids; leave one of them out.");
  }
  return make_gpt2_tokenizer(ranks_file(flags));
}

/// Opens a file for reading. Errors: ConfigError that names it.
std::ifstream opened(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw ConfigError("'" + path + "' does not exist; give text files.");
  }
  if (fs::is_directory(path, error)) {
    throw ConfigError("'" + path + "' is a folder; give the files in it.");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError("'" + path + "' cannot be read; check its permissions.");
  return file;
}

void check_output(const TokenizeFlags& flags) {
  std::error_code error;
  if (!flags.force && fs::exists(fs::symlink_status(flags.output, error))) {
    throw ConfigError(flags.output + ": is there already; choose another name, or use --force.");
  }
  for (const std::string& path : flags.files) {
    if (!fs::equivalent(path, flags.output, error)) continue;
    throw ConfigError("-o " + flags.output +
                      ": is one of the text files, which would be lost; choose another name.");
  }
}

/// Bytes of all files; that each can be read is known before anything is written.
int64_t total_size(const std::vector<std::string>& files) {
  int64_t total = 0;
  for (const std::string& path : files) {
    opened(path);
    std::error_code error;
    const auto size = fs::file_size(path, error);  // a pipe has none
    if (!error) total += static_cast<int64_t>(size);
  }
  return total;
}

// --- progress -----------------------------------------------------------------------------------

/// One line of standard error that is written over, if it is a terminal.
class Progress {
 public:
  explicit Progress(int64_t total) : total_(total) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  void show(const Totals& totals) {
    if (!is_terminal_ || totals.bytes == 0) return;
    shown_ = true;
    std::fprintf(stderr, "\rtokenizing: %.0f of %.0f MB, %lld tokens\033[K", totals.bytes / 1e6,
                 total_ / 1e6, static_cast<long long>(totals.tokens));
  }

 private:
  const int64_t total_;
  const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
};

// --- the work -----------------------------------------------------------------------------------

/// Takes a file's text in parts and writes tokens that do not depend on where the parts end.
class DocumentWriter {
 public:
  DocumentWriter(const TokenizeFlags& flags, const Tokenizer& tokenizer, TokenFileWriter& out)
      : flags_(flags), tokenizer_(tokenizer), out_(out) {
    if (!flags.no_end_of_text) end_of_text_ = tokenizer.end_of_text();
  }

  void add(std::string_view part, Totals& totals) {
    pending_ += part;
    const std::string& separator = flags_.split_documents;
    size_t done = 0;
    while (!separator.empty()) {
      const size_t end = pending_.find(separator, done);
      if (end == std::string::npos) break;
      encode(std::string_view(pending_).substr(done, end - done));
      end_document(totals);
      done = end + separator.size();
    }
    // The beginning of a separator may be all that is here of it.
    const size_t held = separator.empty() ? 0 : separator.size() - 1;
    const size_t safe = pending_.size() - std::min(held, pending_.size());
    if (safe > done) {
      const std::string_view rest = std::string_view(pending_).substr(done, safe - done);
      const size_t length = tokenizer_.last_cut(rest);
      encode(rest.substr(0, length));
      done += length;
    }
    pending_.erase(0, done);
  }

  void end_file(Totals& totals) {
    encode(pending_);
    pending_.clear();
    end_document(totals);
  }

 private:
  void encode(std::string_view text) {
    if (text.empty()) return;
    in_document_ = true;
    tokens_.clear();
    tokenizer_.encode(text, tokens_, flags_.threads);
    out_.append(tokens_);
  }
  /// An empty document is none.
  void end_document(Totals& totals) {
    if (!in_document_) return;
    in_document_ = false;
    ++totals.documents;
    if (end_of_text_ < 0) return;
    const int32_t token = static_cast<int32_t>(end_of_text_);
    out_.append({&token, 1});
  }

  const TokenizeFlags& flags_;
  const Tokenizer& tokenizer_;
  TokenFileWriter& out_;
  int64_t end_of_text_ = -1;
  std::string pending_;
  std::vector<int32_t> tokens_;
  bool in_document_ = false;
};

void add_file(const std::string& path, DocumentWriter& documents, Totals& totals,
              const std::function<void()>& progress) {
  std::ifstream file = opened(path);
  std::string part(kPart, '\0');
  while (file) {
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    const auto length = static_cast<size_t>(file.gcount());
    totals.bytes += static_cast<int64_t>(length);
    documents.add(std::string_view(part).substr(0, length), totals);
    progress();
  }
  if (file.bad()) throw ConfigError("'" + path + "' cannot be read to its end; check the disk.");
  documents.end_file(totals);
}

Totals write_tokens(const TokenizeFlags& flags, const Tokenizer& tokenizer) {
  const auto start = std::chrono::steady_clock::now();
  TokenFileInfo info;
  info.vocab_size = tokenizer.vocab_size();
  info.end_of_text = tokenizer.end_of_text();
  info.tokenizer = tokenizer.name();
  Totals totals;
  Progress progress(total_size(flags.files));
  const StopSignals signals(true);  // so that the unfinished file goes
  TokenFileWriter out(flags.output, info);
  DocumentWriter documents(flags, tokenizer, out);
  for (const std::string& path : flags.files) {
    add_file(path, documents, totals, [&] {
      totals.tokens = out.num_tokens();
      progress.show(totals);
      if (StopSignals::requested()) throw Error(flags.output + ": not written, as it was stopped.");
    });
  }
  totals.tokens = out.num_tokens();
  if (totals.tokens == 0) {
    throw ConfigError("'" + flags.files.front() + "'" +
                      (flags.files.size() > 1 ? " and the other files are" : " is") +
                      " empty; give files with text.");
  }
  out.finish();
  totals.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return totals;
}

std::string summary(const TokenizeFlags& flags, const Tokenizer& tokenizer, const Totals& totals) {
  const double bytes = static_cast<double>(totals.bytes),
               tokens = static_cast<double>(totals.tokens);
  const int bytes_per_token = tokenizer.vocab_size() > 65536 ? 4 : 2;
  if (flags.json) {
    nlohmann::ordered_json json;
    json["output"] = flags.output;
    json["tokenizer"] = tokenizer.name();
    json["vocab_size"] = tokenizer.vocab_size();
    json["bytes_per_packed_token"] = bytes_per_token;
    json["files"] = flags.files.size();
    json["documents"] = totals.documents;
    json["bytes"] = totals.bytes;
    json["tokens"] = totals.tokens;
    json["bytes_per_token"] = bytes / tokens;
    json["threads"] = flags.threads;
    json["seconds"] = totals.seconds;
    json["megabytes_per_second"] = bytes / 1e6 / totals.seconds;
    return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  char figures[160];
  std::snprintf(figures, sizeof figures, "%.2f bytes a token; %.2f s, %.1f MB/s\n", bytes / tokens,
                totals.seconds, bytes / 1e6 / totals.seconds);
  const auto counted = [](int64_t count, const std::string& word) {
    return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
  };
  return flags.output + ": " + counted(totals.tokens, "token") + " of " +
         std::to_string(8 * bytes_per_token) + " bits (" + tokenizer.name() + ", vocabulary " +
         std::to_string(tokenizer.vocab_size()) + ") from " +
         counted(static_cast<int64_t>(flags.files.size()), "file") + ", " +
         counted(totals.documents, "document") + ", " + counted(totals.bytes, "byte") + "\n" +
         figures;
}

void tokenize(const TokenizeFlags& flags) {
  check_output(flags);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_for(flags);
  const Totals totals = write_tokens(flags, *tokenizer);
  print(summary(flags, *tokenizer, totals));
}

constexpr const char* kFooter =
    R"(The output begins with a header that data/token_bin knows; tokens are packed in 2 bytes where
they fit, else 4. gpt2 writes end of text (50256) after each file, and takes "<|endoftext|>" in a
text as that token. Texts are read in parts: memory does not grow with them. The tokens are the
same on any number of threads. Nothing is left of an output that could not be finished.

Examples:
  zerolab tokenize book.txt -o corpus.bin
  zerolab tokenize texts/*.txt -o corpus.bin --threads 8
  zerolab tokenize stories.txt -o stories.bin --split-documents "<|end|>"
  zerolab tokenize image.raw -o bytes.bin --tokenizer byte --json)";

}  // namespace

void add_tokenize(CLI::App& app, CommandLine&) {
  CLI::App* const verb =
      app.add_subcommand("tokenize", "Write text files as one file of packed tokens");
  const auto flags = std::make_shared<TokenizeFlags>();
  verb->add_option("files", flags->files, "text files, in this order")
      ->type_name("FILE")
      ->required();
  verb->add_option("-o,--output", flags->output, "the file to write")
      ->type_name("FILE")
      ->required();
  verb->add_option("--tokenizer", flags->tokenizer, "gpt2 (BPE) or byte")
      ->check(CLI::IsMember({"gpt2", "byte"}))
      ->type_name("NAME")
      ->capture_default_str();
  verb->add_option("--bpe-ranks", flags->bpe_ranks,
                   "the ranks of gpt2 (default: data/gpt2.tiktoken here or beside the build)")
      ->type_name("FILE");
  verb->add_option("--threads", flags->threads, "threads (default: one for each processor)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--split-documents", flags->split_documents,
                   "text between the documents of a file; end of text takes its place")
      ->type_name("TEXT");
  verb->add_flag("--no-end-of-text", flags->no_end_of_text, "write none after a file");
  verb->add_flag("--force", flags->force, "overwrite a file that is there");
  verb->add_flag("--json", flags->json, "print one JSON object");
  verb->footer(kFooter);
  verb->callback([flags] { tokenize(*flags); });
}

}  // namespace zerolab
