// zerolab generate: text from a trained model, token by token.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <ATen/Parallel.h>

#include "zerolab/error.h"

#include "distributed/stop_signals.h"
#include "output.h"
#include "train/generation.h"
#include "train/text_stream.h"
#include "trained_model_flags.h"

namespace zerolab {
namespace {

struct GenerateFlags : TrainedModelFlags {
  std::string prompt, prompt_file, prompt_tokens;
  SamplingOptions sampling;
  int64_t max_tokens = 256, num_samples = 1;
  uint64_t seed = 0;
  const CLI::Option* seed_given = nullptr;
  bool no_cache = false, ignore_end_of_text = false, json = false;
};

struct Prompt {
  std::string text;
  std::vector<int64_t> tokens;
};

// --- the prompt ---------------------------------------------------------------------------------

std::string read_prompt_file(const std::string& file) {
  if (file == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::ifstream in(file, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (in.bad() || !in.is_open()) {
    throw ConfigError("--prompt-file: '" + file +
                      "' cannot be read; give a text file, or - for "
                      "standard input.");
  }
  return text;
}

std::vector<int64_t> parse_tokens(const std::string& text, int64_t vocab_size) {
  std::vector<int64_t> tokens;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const bool number = !word.empty() && word.size() < 18 &&
                        word.find_first_not_of("0123456789") == std::string::npos;
    const int64_t token = number ? std::stoll(word) : -1;
    if (token < 0 || token >= vocab_size) {
      throw ConfigError("--prompt-tokens: '" + word + "' is no token; give numbers from 0 to " +
                        std::to_string(vocab_size - 1) +
                        " with commas between them, such as 1,2,3.");
    }
    tokens.push_back(token);
    begin = end + 1;
  }
  return tokens;
}

/// What stands before the text when nothing is asked for.
std::vector<int64_t> document_begin(const Data& data) {
  if (data.end_of_text() >= 0) return {data.end_of_text()};
  throw ConfigError(has_text(data)
                        ? "generate: this vocabulary has no token that begins a text; give a "
                          "beginning with --prompt \"...\"."
                        : "generate: this vocabulary has no token that begins a sequence; give a "
                          "beginning with --prompt-tokens 1,2,3.");
}

Prompt read_prompt(const GenerateFlags& flags, const Data& data) {
  Prompt prompt;
  if (!flags.prompt_tokens.empty()) {
    prompt.tokens = parse_tokens(flags.prompt_tokens, data.vocab_size());
    prompt.text = data.decode(prompt.tokens);
    return prompt;
  }
  prompt.text = flags.prompt_file.empty() ? flags.prompt : read_prompt_file(flags.prompt_file);
  if (!prompt.text.empty()) {
    try {
      prompt.tokens = data.encode(prompt.text);
    } catch (Error& error) {
      error.in(has_text(data) ? "the prompt" : "the prompt (--prompt-tokens 1,2,3 takes numbers)");
      throw;
    }
  }
  if (prompt.tokens.empty()) prompt.tokens = document_begin(data);
  return prompt;
}

// --- one sample ---------------------------------------------------------------------------------

/// Prints tokens as they come: as text, or as numbers where they stand for none.
class Printer {
 public:
  Printer(const Data& data, bool text) : data_(data), text_(text) {}
  void begin(const Prompt& prompt) const {
    if (text_) print(prompt.text);
  }
  void add(int64_t token) {
    if (text_) {
      const std::string text = stream_.add(data_.decode(std::span(&token, 1)));
      if (!text.empty()) print(text);
    } else {
      print((first_ ? "" : " ") + std::to_string(token));
    }
    first_ = false;
  }
  void end() { print(stream_.rest() + "\n"); }

 private:
  const Data& data_;
  bool text_, first_ = true;
  TextStream stream_;
};

const char* end_word(Generation::End end) {
  if (end == Generation::End::kEndOfText) return "end_of_text";
  return end == Generation::End::kStopped ? "stopped" : "max_tokens";
}

std::string sample_json(const Generation& made, const GenerationRequest& request,
                        const Prompt& prompt, const Data& data) {
  const nlohmann::json line = {{"prompt", prompt.text},
                               {"prompt_tokens", request.prompt},
                               {"text", data.decode(made.tokens)},
                               {"tokens", made.tokens},
                               {"end", end_word(made.end)},
                               {"seed", request.seed},
                               {"sample", request.sample},
                               {"seconds", made.prompt_seconds + made.seconds},
                               {"tokens_per_sec", made.tokens_per_sec()},
                               {"prompt_tokens_per_sec", made.prompt_tokens_per_sec()}};
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void tell_speed(const Generation& made) {
  const double seconds = made.prompt_seconds + made.seconds;
  std::fprintf(stderr, "%zu tokens in %.2f s", made.tokens.size(), seconds);
  if (made.passes > 0) std::fprintf(stderr, ", %.0f tok/s", made.tokens_per_sec());
  std::fprintf(stderr, "; prompt of %lld read at %.0f tok/s\n",
               static_cast<long long>(made.prompt_tokens), made.prompt_tokens_per_sec());
}

/// False if the user stopped it.
bool make_sample(const GenerateFlags& flags, TrainedModel& trained, const Prompt& prompt,
                 const GenerationRequest& request) {
  const Data& data = *trained.data;
  const GenerationParts parts{*trained.model, trained.units, trained.precision,
                              trained.experiment.batch.sequence_length};
  if (flags.json) {
    const Generation made =
        generate(parts, request, [](int64_t) { return !StopSignals::requested(); });
    print(sample_json(made, request, prompt, data));
    return made.end != Generation::End::kStopped;
  }
  Printer printer(data, has_text(data));
  printer.begin(prompt);
  const Generation made = generate(parts, request, [&](int64_t token) {
    printer.add(token);
    return !StopSignals::requested();
  });
  printer.end();
  tell_speed(made);
  return made.end != Generation::End::kStopped;
}

/// Those of training are too many for one token at a time; those that the user names stay.
void choose_threads(const GenerateFlags& flags, const TrainedModel& trained) {
  const bool named =
      std::any_of(flags.overrides.begin(), flags.overrides.end(),
                  [](const std::string& text) { return text.starts_with("threads="); });
  if (named) return;
  at::set_num_threads(generation_threads(trained.parameters.total_numel(), usable_cores()));
}

void generate_samples(const GenerateFlags& flags) {
  flags.sampling.check();
  const std::unique_ptr<TrainedModel> trained = load_trained_model(flags);
  choose_threads(flags, *trained);
  const Prompt prompt = read_prompt(flags, *trained->data);
  GenerationRequest request{prompt.tokens, flags.sampling};
  request.seed = flags.seed_given->count() > 0 ? flags.seed : trained->experiment.seed;
  request.max_tokens = flags.max_tokens;
  request.use_cache = !flags.no_cache;
  if (!flags.ignore_end_of_text) request.end_of_text = trained->data->end_of_text();
  const StopSignals signals(true);
  for (int64_t sample = 0; sample < flags.num_samples; ++sample) {
    request.sample = sample;
    if (sample > 0 && !flags.json) print("---\n");
    if (!make_sample(flags, *trained, prompt, request)) return;
  }
}

// --- the command line ---------------------------------------------------------------------------

constexpr int64_t kMost = int64_t{1} << 40;

void add_prompt_flags(CLI::App& verb, GenerateFlags& flags) {
  CLI::Option* const prompt =
      verb.add_option("--prompt", flags.prompt, "the text to go on with")->type_name("TEXT");
  CLI::Option* const file =
      verb.add_option("--prompt-file", flags.prompt_file, "read it from a file; -: standard input")
          ->type_name("FILE");
  verb.add_option("--prompt-tokens", flags.prompt_tokens,
                  "the tokens to go on with, for data without text: 1,2,3")
      ->type_name("TOKENS")
      ->excludes(prompt)
      ->excludes(file);
  file->excludes(prompt);
}

void add_sampling_flags(CLI::App& verb, GenerateFlags& flags) {
  verb.add_option("--temperature", flags.sampling.temperature,
                  "divides logits: below 1 more cautious, above 1 wilder; 0: always the likeliest "
                  "token")
      ->type_name("X")
      ->capture_default_str();
  verb.add_option("--top-k", flags.sampling.top_k, "choose among the k likeliest tokens; 0: all")
      ->type_name("N")
      ->capture_default_str();
  verb.add_option("--top-p", flags.sampling.top_p,
                  "choose among the likeliest tokens that make up this probability; 1: all")
      ->type_name("P")
      ->capture_default_str();
  flags.seed_given =
      verb.add_option("--seed", flags.seed, "another seed, another text (default: the run's seed)")
          ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()))
          ->type_name("N");
  verb.add_option("--max-tokens", flags.max_tokens, "tokens to generate at most")
      ->check(CLI::Range(int64_t{1}, kMost))
      ->type_name("N")
      ->capture_default_str();
  verb.add_option("--num-samples", flags.num_samples, "texts to generate, one after the other")
      ->check(CLI::Range(int64_t{1}, kMost))
      ->type_name("N")
      ->capture_default_str();
}

}  // namespace

void add_generate(CLI::App& app, CommandLine&) {
  CLI::App* const verb = app.add_subcommand("generate", "Let a trained model go on with a text");
  const auto flags = std::make_shared<GenerateFlags>();
  flags->dtype = "fp32";
  add_trained_model_flags(*verb, *flags);
  add_prompt_flags(*verb, *flags);
  add_sampling_flags(*verb, *flags);
  verb->add_flag("--no-cache", flags->no_cache, "compute every token anew: slower");
  verb->add_flag("--ignore-end-of-text", flags->ignore_end_of_text,
                 "go on where the model ends a document");
  verb->add_flag("--json", flags->json, "print one JSON object a text, when it is complete");
  verb->footer(
      "The text goes to standard output as it is made, its speed to standard error. Ctrl-C ends it "
      "after the current token. The same seed gives the same text, with the cache and without; "
      "in 16 bits (--dtype) the two may part, because sums are rounded otherwise.\n\n"
      "The model sees batch.sequence_length tokens at most. When they are full, the latter half is "
      "kept and read anew, and generation goes on from there, with the cache and without; of a "
      "longer prompt the latest half window counts.\n\n"
      "One thread works for each 50 million parameters, whatever the run trained with; threads=N "
      "sets another number.\n\n"
      "Examples:\n"
      "  zerolab generate runs/experiment-1 --prompt \"To be\" --temperature 0.8 --top-k 40\n"
      "  zerolab generate runs/experiment-1@best --prompt-file begin.txt --num-samples 3 --json\n"
      "  zerolab generate runs/experiment-1 --prompt-tokens 1,2,3 --temperature 0");
  verb->callback([flags] { with_plain_errors([&] { generate_samples(*flags); }); });
}

}  // namespace zerolab
