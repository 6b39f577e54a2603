#include "train/exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace zerolab {

std::vector<std::vector<int64_t>> gather_lists(Communicator& ranks, std::vector<int64_t> mine) {
  const auto lengths =
      ranks.gather_control(std::vector<int64_t>{static_cast<int64_t>(mine.size())});
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::vector<std::vector<int64_t>> lists(lengths.size());
  if (longest == 0) return lists;
  mine.resize(static_cast<size_t>(longest));
  const auto all = ranks.gather_control(mine);
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    const auto first = all.begin() + static_cast<int64_t>(rank) * longest;
    lists[rank].assign(first, first + lengths[rank]);
  }
  return lists;
}

std::vector<std::string> gather_texts(Communicator& ranks, const std::string& mine) {
  std::vector<int64_t> list{static_cast<int64_t>(mine.size())};
  append_text(list, mine);
  std::vector<std::string> texts;
  for (const auto& other : gather_lists(ranks, std::move(list))) {
    texts.push_back(text_at(other, 1, other.front()));
  }
  return texts;
}

int64_t words_for(int64_t characters) {
  return (characters + 7) / 8;
}

void append_text(std::vector<int64_t>& list, const std::string& text) {
  const size_t begin = list.size();
  list.resize(begin + static_cast<size_t>(words_for(static_cast<int64_t>(text.size()))));
  if (!text.empty()) std::memcpy(list.data() + begin, text.data(), text.size());
}

std::string text_at(const std::vector<int64_t>& list, size_t begin, int64_t characters) {
  std::string text(static_cast<size_t>(characters), '\0');
  if (characters > 0) std::memcpy(text.data(), list.data() + begin, text.size());
  return text;
}

}  // namespace zerolab
