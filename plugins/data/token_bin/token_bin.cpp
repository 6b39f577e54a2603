// Packed tokens, mapped from files that may be larger than memory (layouts: zerolab/token_file.h).
//
// Training windows begin every `stride` tokens of each file, or anywhere (windows "random", drawn
// from the seed and the sample's index). An epoch has each window once. With `weights`, the files'
// shares of an epoch are these, and an epoch is as long as it takes until each window of each file
// has come once: the others come again meanwhile. Random windows number as many as there are places
// to begin.
// Validation windows do not overlap: all of `validation_path`, or the last 1 - train_fraction of
// each training file, which then does not train.
//
// documents "separate": the target after an end of text, the next document's first token, is not
// counted. Attention still sees the documents before in a window.
//
// Tokens beyond the vocabulary: up to 64 MB of files are read when they are opened, larger ones
// window by window as they are used.

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "zerolab/data.h"
#include "zerolab/error.h"
#include "zerolab/model.h"
#include "zerolab/plugin.h"
#include "zerolab/random.h"
#include "zerolab/token_file.h"
#include "zerolab/tokenizer.h"

#include "token_bin_options.h"
#include "token_source.h"
#include "window_map.h"

namespace token_bin {
namespace {

using zerolab::ConfigError;
using zerolab::Split;
using zerolab::TokenFile;
using zerolab::TokenLayout;

constexpr int64_t kCheckedAtOpen = int64_t{64} << 20;  // bytes

TokenLayout layout_of(const std::string& word) {
  if (word == "zerolab") return TokenLayout::kZerolab;
  if (word == "raw") return TokenLayout::kRaw;
  return word == "llmc" ? TokenLayout::kLlmc : TokenLayout::kAuto;
}

/// Runs `body`; its errors begin with the option's name.
template <class Body>
void in_option(const char* option, const Body& body) {
  try {
    body();
  } catch (zerolab::Error& error) {
    error.in(option);
    throw;
  }
}

class TokenBin : public zerolab::Data {
 public:
  using Options = TokenBinOptions;
  explicit TokenBin(const Options& options)
      : options_(options), vocabulary_(options.vocab_size, options.end_of_text) {}

  void open(const zerolab::DataContext& context) override {
    sequence_length_ = context.sequence_length;
    const TokenLayout layout = layout_of(options_.layout);
    in_option("data.path", [&] {
      for (const std::string& path : options_.path) add(TokenFile::open(path, layout));
    });
    in_option("data.validation_path", [&] {
      for (const std::string& path : options_.validation_path) add(TokenFile::open(path, layout));
    });
    check_special_tokens();
    // Before the parts are cut: what these files are is a better reason than what is too short.
    for (size_t i = 0; i < sources_.size(); ++i) {
      in_option(is_training(i) ? "data.path" : "data.validation_path", [&] { check(sources_[i]); });
    }
    make_tokenizer();
    cut(context.seed);
  }

  int64_t vocab_size() const override { return vocabulary_.size(); }
  int64_t size(Split split) const override { return windows(split).size(); }
  void sample(Split split, int64_t index, std::span<int64_t> tokens,
              std::span<int64_t> targets) const override {
    const WindowMap::Place place = windows(split).at(index);
    sources_[place.source].read(place.first, vocab_size(), tokens, targets);
    if (options_.documents == "separate") {
      for (size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] == vocabulary_.end_of_text()) targets[i] = zerolab::kIgnoredTarget;
      }
    }
    if (options_.padding_token >= 0)
      std::replace(targets.begin(), targets.end(), options_.padding_token, zerolab::kIgnoredTarget);
  }

  std::string decode(std::span<const int64_t> tokens) const override {
    return tokenizer_ == nullptr ? std::string() : tokenizer_->decode(tokens);
  }
  std::vector<int64_t> encode(std::string_view text) const override {
    if (tokenizer_ == nullptr && options_.tokenizer == "auto" && vocabulary_.tokenizer() == "gpt2")
      throw ConfigError(
          "the tokens are GPT-2's, which give and take text by the file of their ranks; set "
          "data.bpe_ranks=FILE (tools/setup makes data/gpt2.tiktoken).");
    if (tokenizer_ == nullptr)
      throw ConfigError(
          "data.tokenizer: the token files alone turn no text into tokens; set data.tokenizer to "
          "\"byte\", or to \"gpt2\" and data.bpe_ranks to the file of its ranks.");
    std::vector<int32_t> tokens;
    tokenizer_->encode(text, tokens);
    return {tokens.begin(), tokens.end()};
  }
  int64_t end_of_text() const override { return vocabulary_.end_of_text(); }

  void validate_on(const std::string& path) override {
    const int64_t before = vocab_size();
    // A copy learns of the file: one that does not fit changes nothing.
    Vocabulary vocabulary = vocabulary_;
    TokenSource source(TokenFile::open(path, layout_of(options_.layout)));
    vocabulary.agree(source.file());
    if (vocabulary.size() != before)
      throw ConfigError("'" + path + "' has a vocabulary of " + std::to_string(vocabulary.size()) +
                        " tokens, but training's has " + std::to_string(before) +
                        "; make the file with the same tokenizer.");
    check(source);
    const WindowRule rule{sequence_length_, sequence_length_};
    if (WindowMap::num_windows(rule, source.num_tokens()) == 0)
      throw ConfigError("'" + path + "' has " + std::to_string(source.num_tokens()) +
                        " tokens, but a window has " + std::to_string(sequence_length_ + 1) +
                        "; give a longer file.");
    const Part whole{sources_.size(), 0, source.num_tokens()};
    sources_.push_back(std::move(source));
    validation_ = WindowMap({whole}, rule);
  }

 private:
  const WindowMap& windows(Split split) const {
    return split == Split::kTrain ? training_ : validation_;
  }
  bool is_training(size_t source) const { return source < options_.path.size(); }

  void add(TokenFile file) {
    vocabulary_.agree(file);
    sources_.emplace_back(std::move(file));
  }

  void check(TokenSource& source) {
    if (source.num_bytes() > unchecked_budget_) return;
    unchecked_budget_ -= source.num_bytes();
    source.check_all(vocab_size());
  }

  void check_special_tokens() const {
    for (const auto& [name, token] : {std::pair{"data.end_of_text", end_of_text()},
                                      std::pair{"data.padding_token", options_.padding_token}}) {
      if (token >= vocab_size())
        throw ConfigError(std::string(name) + " must be below the vocabulary's " +
                          std::to_string(vocab_size()) + " tokens, is " + std::to_string(token) +
                          "; set it to one of them, or raise data.vocab_size.");
    }
    if (options_.documents == "separate" && vocabulary_.end_of_text() < 0)
      throw ConfigError(
          "data.documents: no file says which token ends a document; set data.end_of_text.");
  }

  void make_tokenizer() {
    const bool automatic = options_.tokenizer == "auto";
    const std::string name = automatic ? vocabulary_.tokenizer() : options_.tokenizer;
    if (name == "byte") tokenizer_ = zerolab::make_byte_tokenizer();
    if (name == "gpt2" && !options_.bpe_ranks.empty())
      in_option("data.bpe_ranks",
                [&] { tokenizer_ = zerolab::make_gpt2_tokenizer(options_.bpe_ranks); });
    if (tokenizer_ == nullptr) return;
    // GPT-2's may be padded, and a tokenizer that the headers name is right at any size.
    const bool may_be_larger = name == "gpt2" || name == vocabulary_.tokenizer();
    const int64_t size = tokenizer_->vocab_size();
    if (size != vocab_size() && (size > vocab_size() || !may_be_larger))
      throw ConfigError("data.tokenizer: \"" + name + "\" has " + std::to_string(size) +
                        " tokens, but the vocabulary of the token files " +
                        std::to_string(vocab_size()) +
                        "; set data.vocab_size=" + std::to_string(size) +
                        " if it made them, else data.tokenizer to the one that did, or to "
                        "\"none\".");
  }

  void cut(uint64_t seed) {
    const bool separate = !options_.validation_path.empty();
    const int64_t T = sequence_length_, stride = options_.stride > 0 ? options_.stride : T;
    const WindowRule rule{T, options_.windows == "random" ? 0 : stride,
                          zerolab::mix_key({seed, zerolab::name_key("data/token_bin")})};
    std::vector<Part> training, validation;
    for (size_t i = 0; i < sources_.size(); ++i) {
      const int64_t length = sources_[i].num_tokens();
      if (!is_training(i)) {
        validation.push_back({i, 0, length});
        continue;
      }
      const int64_t trains =
          separate ? length
                   : static_cast<int64_t>(static_cast<double>(length) * options_.train_fraction);
      if (WindowMap::num_windows(rule, trains) == 0) refuse_short(i, trains);
      training.push_back({i, 0, trains});
      if (!separate) validation.push_back({i, trains, length - trains});
    }
    training_ = WindowMap(std::move(training), rule, options_.weights);
    validation_ = WindowMap(std::move(validation), {T, T});
    if (validation_.size() > 0) return;
    const std::string needed = "at least " + std::to_string(T + 1) +
                               " tokens of one file (batch.sequence_length and one more)";
    throw ConfigError(separate ? "data.validation_path: a window takes " + needed +
                                     ", and no file has them; give a longer file."
                               : "data.path: a validation window takes " + needed +
                                     ", and the last 1 - data.train_fraction of no file has them; "
                                     "give longer files, validation_path or a smaller "
                                     "train_fraction.");
  }

  [[noreturn]] void refuse_short(size_t source, int64_t trains) const {
    throw ConfigError("data.path: '" + sources_[source].file().path() + "' has " +
                      std::to_string(sources_[source].num_tokens()) + " tokens, of which " +
                      std::to_string(trains) + " train, but a window takes at least " +
                      std::to_string(sequence_length_ + 1) +
                      " (batch.sequence_length and one more); give a longer file or a shorter "
                      "sequence_length.");
  }

  Options options_;
  Vocabulary vocabulary_;
  std::deque<TokenSource> sources_;  // training files, validation files, those of validate_on()
  std::unique_ptr<zerolab::Tokenizer> tokenizer_;
  WindowMap training_, validation_;
  int64_t sequence_length_ = 0, unchecked_budget_ = kCheckedAtOpen;
};

}  // namespace
}  // namespace token_bin

ZEROLAB_PLUGIN(zerolab::entry<token_bin::TokenBin>(
    "data/token_bin", "1.0.0", "packed tokens: our files, nanoGPT's, llm.c's, and mixtures"));
