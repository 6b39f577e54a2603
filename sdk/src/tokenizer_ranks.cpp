#include "tokenizer_ranks.h"

#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "zerolab/error.h"

namespace zerolab {
namespace {

uint64_t load8(const char* data) {
  uint64_t word;
  std::memcpy(&word, data, sizeof word);
  return word;
}

uint64_t load4(const char* data) {
  uint32_t word;
  std::memcpy(&word, data, sizeof word);
  return word;
}

uint64_t mixed(uint64_t a, uint64_t b) {
  const uint64_t product = (a ^ 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9 + b;
  return (product ^ (product >> 29)) * 0x94d049bb133111eb;
}

std::string base64_decoded(std::string_view text) {
  std::string bytes;
  uint32_t bits = 0;
  int num_bits = 0;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  if (text.size() % 4 != 0) return {};
  for (const char c : text.substr(0, text.size() - padding)) {
    int value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = c - 'A';
    } else if (c >= 'a' && c <= 'z') {
      value = c - 'a' + 26;
    } else if (c >= '0' && c <= '9') {
      value = c - '0' + 52;
    } else if (c == '+' || c == '/') {
      value = c == '+' ? 62 : 63;
    } else {
      return {};
    }
    bits = (bits << 6) | static_cast<uint32_t>(value);
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      bytes += static_cast<char>((bits >> num_bits) & 0xff);
    }
  }
  return bytes;
}

std::string file_text(const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    throw ConfigError("'" + file +
                      "' does not exist; give the ranks of GPT-2's BPE, which tools/setup puts "
                      "into data/gpt2.tiktoken.");
  }
  std::ostringstream content;
  content << std::ifstream(file, std::ios::binary).rdbuf();
  std::string text = std::move(content).str();
  if (text.empty()) {
    throw ConfigError("'" + file +
                      "' is empty, or cannot be read as a file of BPE ranks; give "
                      "data/gpt2.tiktoken, which tools/setup makes.");
  }
  return text;
}

}  // namespace

uint64_t hash_bytes(const char* data, size_t size) {
  uint64_t hash = size;
  if (size >= 8) {
    for (size_t i = 8; i < size; i += 8) hash = mixed(load8(data + i - 8), hash);
    hash = mixed(load8(data + size - 8), hash);
  } else if (size >= 4) {
    hash = mixed(load4(data) | (load4(data + size - 4) << 32), hash);
  } else if (size > 0) {
    const auto byte = [&](size_t at) { return uint64_t{static_cast<unsigned char>(data[at])}; };
    hash = mixed(byte(0) | (byte(size / 2) << 8) | (byte(size - 1) << 16), hash);
  }
  return hash ^ (hash >> 32);
}

BpeRanks::BpeRanks(const std::string& file, int32_t num_ranks) {
  rank_of_byte_.fill(kNone);
  size_t num_slots = 2;
  while (num_slots < 2 * static_cast<size_t>(num_ranks)) num_slots *= 2;
  slots_.resize(num_slots);
  place_of_rank_.resize(static_cast<size_t>(num_ranks));
  read(file, num_ranks);
}

void BpeRanks::read(const std::string& file, int32_t num_ranks) {
  const std::string text = file_text(file);
  int64_t line_number = 0;
  const auto refuse = [&](const std::string& what) {
    throw ConfigError("'" + file + "' line " + std::to_string(line_number) + " " + what +
                      "; it is no file of " + std::to_string(num_ranks) +
                      " BPE ranks, or a damaged one: run tools/setup, which makes "
                      "data/gpt2.tiktoken.");
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line(text.data() + at, end - at);
    at = end + 1;
    ++line_number;
    const size_t blank = line.find(' ');
    if (blank == line.npos) refuse("is not \"base64-of-bytes rank\"");
    const std::string bytes = base64_decoded(line.substr(0, blank));
    if (bytes.empty()) refuse("does not begin with base64");
    int32_t value = 0;
    const char* const line_end = line.data() + line.size();
    const auto [next, error] = std::from_chars(line.data() + blank + 1, line_end, value);
    if (error != std::errc() || next != line_end || value < 0 || value >= num_ranks) {
      refuse("has no rank from 0 to " + std::to_string(num_ranks - 1));
    }
    auto& place = place_of_rank_[static_cast<size_t>(value)];
    if (place.second != 0) refuse("has the rank " + std::to_string(value) + " a second time");
    if (rank(bytes.data(), bytes.size()) != kNone) refuse("has the same bytes as another line");
    place = {static_cast<uint32_t>(all_bytes_.size()), static_cast<uint32_t>(bytes.size())};
    all_bytes_ += bytes;
    longest_ = std::max(longest_, bytes.size());
    insert(place.first, place.second, value);
  }
  if (line_number != num_ranks) refuse("is the last, of " + std::to_string(num_ranks));
  for (int byte = 0; byte < 256; ++byte) {
    if (rank_of_byte_[static_cast<size_t>(byte)] == kNone) {
      refuse("is the last, and no line has the single byte " + std::to_string(byte));
    }
  }
}

void BpeRanks::insert(uint32_t offset, uint32_t size, int32_t rank) {
  if (size == 1) rank_of_byte_[static_cast<unsigned char>(all_bytes_[offset])] = rank;
  const uint64_t hash = hash_bytes(all_bytes_.data() + offset, size);
  size_t at = hash & (slots_.size() - 1);
  while (slots_[at].size != 0) at = (at + 1) & (slots_.size() - 1);
  slots_[at] = {static_cast<uint32_t>(hash >> 32), offset, size, rank};
}

int32_t BpeRanks::rank(const char* data, size_t size, uint64_t hash) const {
  if (size > longest_) return kNone;
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t at = hash & (slots_.size() - 1); slots_[at].size != 0;
       at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.tag == tag && slot.size == size &&
        std::memcmp(all_bytes_.data() + slot.offset, data, size) == 0) {
      return slot.rank;
    }
  }
  return kNone;
}

std::string_view BpeRanks::bytes(int32_t rank) const {
  const auto [offset, size] = place_of_rank_[static_cast<size_t>(rank)];
  return std::string_view(all_bytes_).substr(offset, size);
}

}  // namespace zerolab
