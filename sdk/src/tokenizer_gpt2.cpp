// GPT-2's tokenizer: text is cut into pieces (tokenizer_split.h), each piece is merged by itself
// (tokenizer_ranks.h). Threads take stretches of text between two places where a cut changes
// nothing.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "zerolab/error.h"
#include "zerolab/tokenizer.h"

#include "tokenizer_ranks.h"
#include "tokenizer_split.h"

namespace zerolab {
namespace {

constexpr int32_t kNumRanks = 50256;
constexpr int32_t kEndOfText = kNumRanks;
constexpr std::string_view kEndOfTextWords = "<|endoftext|>";
constexpr size_t kSmallestShare = 1 << 16;  // bytes; below that a thread costs more than it gives

/// Tokens of pieces that were merged before: words repeat. A new piece takes the place of an old
/// one, so that it never grows. A short text is not worth making room.
class MergedPieces {
 public:
  explicit MergedPieces(size_t text_bytes)
      : entries_(text_bytes < kSmallestShare / 2 ? 0 : kNumEntries) {}
  /// Returns false if the piece is not here.
  bool append(std::string_view piece, uint64_t hash, std::vector<int32_t>& tokens) const {
    if (entries_.empty()) return false;
    const Entry& entry = entries_[hash % kNumEntries];
    if (entry.size != piece.size() || std::memcmp(entry.bytes, piece.data(), piece.size()) != 0) {
      return false;
    }
    tokens.insert(tokens.end(), entry.tokens, entry.tokens + entry.num_tokens);
    return true;
  }
  void keep(std::string_view piece, uint64_t hash, std::span<const int32_t> tokens) {
    if (entries_.empty() || piece.size() > sizeof Entry::bytes ||
        tokens.size() > std::size(Entry{}.tokens))
      return;
    Entry& entry = entries_[hash % kNumEntries];
    entry.size = static_cast<uint8_t>(piece.size());
    entry.num_tokens = static_cast<uint8_t>(tokens.size());
    std::memcpy(entry.bytes, piece.data(), piece.size());
    std::transform(tokens.begin(), tokens.end(), entry.tokens,
                   [](int32_t token) { return static_cast<uint16_t>(token); });
  }

 private:
  static constexpr size_t kNumEntries = 8191;
  struct Entry {
    uint8_t size = 0, num_tokens = 0;
    char bytes[30];
    uint16_t tokens[16];
  };
  std::vector<Entry> entries_;
};

/// A stretch of text that can be encoded by itself, and whether the end of a document follows.
struct Stretch {
  std::string_view text;
  bool ends_document = false;
};

class Gpt2Tokenizer : public Tokenizer {
 public:
  Gpt2Tokenizer(const std::string& ranks_file, bool special_tokens)
      : ranks_(ranks_file, kNumRanks), special_tokens_(special_tokens) {}

  std::string name() const override { return "gpt2"; }
  int64_t vocab_size() const override { return kNumRanks + 1; }
  int64_t end_of_text() const override { return kEndOfText; }

  void encode(std::string_view text, std::vector<int32_t>& tokens, int threads) const override {
    const auto most = static_cast<int>(text.size() / kSmallestShare) + 1;
    const int num_threads = std::clamp(threads, 1, most);
    const std::vector<Stretch> stretches = stretches_of(text, num_threads);
    if (num_threads == 1) {
      encode_all(stretches, text.size(), tokens);
    } else {
      encode_on_threads(stretches, tokens, num_threads);
    }
  }

  std::string decode(std::span<const int64_t> tokens) const override {
    std::string text;
    for (const int64_t token : tokens) {
      if (token >= 0 && token < kNumRanks) text += ranks_.bytes(static_cast<int32_t>(token));
      if (token == kEndOfText) text += kEndOfTextWords;
    }
    return text;
  }

  size_t last_cut(std::string_view text) const override {
    for (size_t at = text.size(); at > 1;) {
      if (splitter_.is_cut(text, --at)) return at;
    }
    return 0;
  }

 private:
  /// Several for each thread if there are several, so that none waits long for the last.
  std::vector<Stretch> stretches_of(std::string_view text, int num_threads) const {
    const size_t share = num_threads == 1
                             ? text.size()
                             : std::max(kSmallestShare, text.size() / size_t(num_threads) / 4);
    std::vector<Stretch> stretches;
    while (!text.empty()) {
      const size_t words = special_tokens_ ? text.find(kEndOfTextWords) : text.npos;
      cut(text.substr(0, words), share, stretches);
      if (words == text.npos) break;
      stretches.push_back({text.substr(words, 0), true});
      text.remove_prefix(words + kEndOfTextWords.size());
    }
    return stretches;
  }

  void cut(std::string_view text, size_t share, std::vector<Stretch>& stretches) const {
    while (text.size() > share) {
      size_t at = share;
      while (at < text.size() && !splitter_.is_cut(text, at)) ++at;
      stretches.push_back({text.substr(0, at)});
      text.remove_prefix(at);
    }
    if (!text.empty()) stretches.push_back({text});
  }

  void encode_all(std::span<const Stretch> stretches, size_t text_bytes,
                  std::vector<int32_t>& tokens) const {
    MergedPieces merged(text_bytes);
    for (const Stretch& stretch : stretches) encode_stretch(stretch, merged, tokens);
  }

  void encode_stretch(const Stretch& stretch, MergedPieces& merged,
                      std::vector<int32_t>& tokens) const {
    const std::string_view text = stretch.text;
    for (size_t at = 0; at < text.size();) {
      const size_t end = splitter_.piece_end(text, at);
      encode_piece(text.substr(at, end - at), merged, tokens);
      at = end;
    }
    if (stretch.ends_document) tokens.push_back(kEndOfText);
  }

  void encode_piece(std::string_view piece, MergedPieces& merged,
                    std::vector<int32_t>& tokens) const {
    const uint64_t hash = hash_bytes(piece.data(), piece.size());
    const int32_t whole = ranks_.rank(piece.data(), piece.size(), hash);
    if (whole != BpeRanks::kNone) {
      tokens.push_back(whole);
    } else if (!merged.append(piece, hash, tokens)) {
      const size_t before = tokens.size();
      ranks_.merge(piece, tokens);
      merged.keep(piece, hash, std::span(tokens).subspan(before));
    }
  }

  void encode_on_threads(const std::vector<Stretch>& stretches, std::vector<int32_t>& tokens,
                         int num_threads) const {
    std::vector<std::vector<int32_t>> parts(stretches.size());
    std::atomic<size_t> next{0};
    std::mutex mutex;
    std::exception_ptr failure;
    const auto work = [&] {
      try {
        MergedPieces merged(kSmallestShare);
        for (size_t i = next++; i < stretches.size(); i = next++) {
          encode_stretch(stretches[i], merged, parts[i]);
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    };
    {
      std::vector<std::jthread> threads;
      for (int i = 1; i < num_threads; ++i) threads.emplace_back(work);
      work();
    }
    if (failure) std::rethrow_exception(failure);
    size_t total = tokens.size();
    for (const auto& part : parts) total += part.size();
    tokens.reserve(total);
    for (const auto& part : parts) tokens.insert(tokens.end(), part.begin(), part.end());
  }

  const BpeRanks ranks_;
  const PieceSplitter splitter_;
  const bool special_tokens_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_gpt2_tokenizer(const std::string& ranks_file, bool special_tokens) {
  return std::make_unique<Gpt2Tokenizer>(ranks_file, special_tokens);
}

}  // namespace zerolab
