#pragma once
// The options of data/token_bin.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "zerolab/options.h"

namespace token_bin {

struct TokenBinOptions {
  std::vector<std::string> path, validation_path;
  std::vector<double> weights;
  std::string layout = "auto";
  double train_fraction = 0.9;
  int64_t vocab_size = 0;
  int64_t end_of_text = -1;
  std::string windows = "sliding";
  int64_t stride = 0;
  std::string documents = "ignore";
  int64_t padding_token = -1;
  std::string tokenizer = "auto";
  std::string bpe_ranks;

  static void describe(zerolab::Describe<TokenBinOptions>& d) {
    using O = TokenBinOptions;
    d.field("path", &O::path, "the training files").required().path();
    d.field("validation_path", &O::validation_path,
            "the validation files; none: the end of each training file")
        .path();
    d.field("weights", &O::weights, "share of each training file; none: by size").above(0);
    d.field("layout", &O::layout, "auto: by the first bytes, else raw (two bytes a token)")
        .one_of({"auto", "zerolab", "raw", "llmc"});
    d.field("train_fraction", &O::train_fraction,
            "without validation_path: this first part of each file trains, the rest validates")
        .at_least(1e-6)
        .at_most(1 - 1e-6);
    d.field("vocab_size", &O::vocab_size,
            "0: as the headers say; raw files have none and are taken for GPT-2's, 50257")
        .at_least(0)
        .at_most(1LL << 31);
    d.field("end_of_text", &O::end_of_text,
            "token that ends a document; -1: as the headers say, or GPT-2's")
        .at_least(-1);
    d.field("windows", &O::windows, "sliding: every stride tokens; random: anywhere")
        .one_of({"sliding", "random"});
    d.field("stride", &O::stride, "of sliding training windows; 0: the sequence length")
        .unit("tokens")
        .at_least(0);
    d.field("documents", &O::documents,
            "separate: the first token of a document is no target for the one before")
        .one_of({"ignore", "separate"});
    d.field("padding_token", &O::padding_token, "never counts as a target; -1: none").at_least(-1);
    d.field("tokenizer", &O::tokenizer, "for text in and out; auto: as the headers say")
        .one_of({"auto", "none", "byte", "gpt2"});
    d.field("bpe_ranks", &O::bpe_ranks, "ranks of tokenizer gpt2").path();
  }

  void check(zerolab::Problems& problems) const {
    if (path.empty()) problems.add("path", "must name at least one file");
    if (!weights.empty() && weights.size() != path.size())
      problems.add("weights", "must have one entry for each file of path (" +
                                  std::to_string(path.size()) + "), has " +
                                  std::to_string(weights.size()));
    if (stride > 0 && windows == "random")
      problems.add("stride", "must be 0 with windows = \"random\", is " + std::to_string(stride));
    if (tokenizer == "gpt2" && bpe_ranks.empty())
      problems.add("tokenizer", "\"gpt2\" needs bpe_ranks, the file of its ranks");
    if (vocab_size == 0) return;
    for (const auto& [name, token] :
         {std::pair{"end_of_text", end_of_text}, std::pair{"padding_token", padding_token}}) {
      if (token >= vocab_size)
        problems.add(name, "must be below vocab_size (" + std::to_string(vocab_size) + "), is " +
                               std::to_string(token));
    }
  }
};

}  // namespace token_bin
