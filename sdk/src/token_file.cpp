// Source of the foreign layouts: nanoGPT, data/openwebtext/prepare.py (raw); llm.c,
// dev/data/data_common.py and llmc/dataloader.h (shards).

#include "zerolab/token_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "zerolab/error.h"
#include "zerolab/random.h"

#include "token_header.h"
#include "utf8.h"

namespace zerolab {

uint64_t checksum_of(const TokenHeader& header) {
  return name_key({reinterpret_cast<const char*>(&header), offsetof(TokenHeader, checksum)});
}

namespace {

constexpr int64_t kLlmcHeaderBytes = 1024;
constexpr const char* kAgain = "; copy it again, or write it again.";

/// What the first number of an llm.c shard says. Neither begins a raw file of GPT-2's tokens: its
/// lower half would be a token above 55,000.
struct LlmcFormat {
  int32_t magic, version;
  int bytes_per_token;
  int64_t vocab_size, end_of_text;
  const char* tokenizer;
};
constexpr LlmcFormat kLlmcFormats[] = {{20240520, 1, 2, 50257, 50256, "gpt2"},
                                       {20240801, 7, 4, 128256, 128000, "llama3"}};

/// A mapped file and how messages call it.
struct Bytes {
  std::string file;  // quoted
  const unsigned char* begin;
  int64_t size;
};

[[noreturn]] void refuse(const std::string& file, const std::string& sentence) {
  throw ConfigError(file + " " + sentence);
}

const char* layout_word(TokenLayout layout) {
  switch (layout) {
    case TokenLayout::kAuto:
      return "auto";
    case TokenLayout::kZerolab:
      return "zerolab";
    case TokenLayout::kRaw:
      return "raw";
    case TokenLayout::kLlmc:
      return "llmc";
  }
  return "";
}

int32_t llmc_number(const Bytes& bytes, size_t index) {
  int32_t number = 0;
  std::memcpy(&number, bytes.begin + 4 * index, sizeof number);
  return number;
}

const LlmcFormat* llmc_format(const Bytes& bytes) {
  if (bytes.size < 4) return nullptr;
  for (const LlmcFormat& format : kLlmcFormats) {
    if (llmc_number(bytes, 0) == format.magic) return &format;
  }
  return nullptr;
}

/// The layout by its magic, of which half is enough in a file that ends there.
TokenLayout recognised(const Bytes& bytes) {
  const size_t length = std::min(static_cast<size_t>(bytes.size), kTokenMagic.size());
  if (length >= 4 && std::memcmp(bytes.begin, kTokenMagic.data(), length) == 0)
    return TokenLayout::kZerolab;
  return llmc_format(bytes) != nullptr ? TokenLayout::kLlmc : TokenLayout::kRaw;
}

/// Whether its first bytes are printable characters and white space, as no raw tokens are: those
/// of characters or bytes have a zero in each second byte, and GPT-2's frequent ones a small
/// number.
bool looks_like_text(const Bytes& bytes) {
  constexpr int64_t kEnough = 4096;
  std::string_view text(reinterpret_cast<const char*>(bytes.begin),
                        static_cast<size_t>(std::min(bytes.size, kEnough)));
  if (bytes.size > kEnough) text = text.substr(0, utf8_unfinished_tail(text));
  for (size_t at = 0; at < text.size();) {
    char32_t point = 0;
    const size_t length = utf8_character(text, at, point);
    const bool space = point >= '\t' && point <= '\r';
    const bool control = point < 0x20 || (point >= 0x7f && point < 0xa0);
    if (length == 0 || (control && !space)) return false;
    at += length;
  }
  return true;
}

/// The header's count against the file's size. Nothing may overflow: the count is a stranger's.
void check_count(const Bytes& bytes, int64_t header_bytes, const TokenFileInfo& info) {
  const int64_t space = bytes.size - header_bytes;
  const int64_t there = space / info.bytes_per_token;
  const std::string counted = std::to_string(info.num_tokens) + " tokens of " +
                              std::to_string(info.bytes_per_token) + " bytes";
  if (info.num_tokens < 0)
    refuse(bytes.file,
           "is damaged: its header counts a negative number of tokens" + std::string(kAgain));
  if (info.num_tokens > there)
    refuse(bytes.file, "is cut: its header counts " + counted + ", but " + std::to_string(there) +
                           " are there" + kAgain);
  if (info.num_tokens < there || space % info.bytes_per_token != 0)
    refuse(bytes.file, "is too long: its header counts " + counted + ", but " +
                           std::to_string(space) + " bytes follow it" + kAgain);
}

void check_header_size(const Bytes& bytes, int64_t header_bytes, TokenLayout layout) {
  if (bytes.size >= header_bytes) return;
  refuse(bytes.file, "is cut: it has " + std::to_string(bytes.size) +
                         " bytes, but the header of layout \"" + layout_word(layout) + "\" has " +
                         std::to_string(header_bytes) + kAgain);
}

TokenFileInfo read_zerolab(const Bytes& bytes) {
  check_header_size(bytes, sizeof(TokenHeader), TokenLayout::kZerolab);
  TokenHeader header;
  std::memcpy(&header, bytes.begin, sizeof header);
  if (header.checksum != checksum_of(header))
    refuse(bytes.file,
           "is damaged: the checksum of its header is another than it says" + std::string(kAgain));
  if (header.version != kTokenVersion)
    refuse(bytes.file, "has version " + std::to_string(header.version) +
                           " of the zerolab layout, but this program reads version " +
                           std::to_string(kTokenVersion) +
                           "; write it again with this program's `zerolab tokenize`.");
  if (header.bytes_per_token != 2 && header.bytes_per_token != 4)
    refuse(bytes.file, "has tokens of " + std::to_string(header.bytes_per_token) +
                           " bytes, but they may have 2 or 4; write it again.");
  TokenFileInfo info;
  info.num_tokens = static_cast<int64_t>(header.num_tokens);
  info.vocab_size = static_cast<int64_t>(header.vocab_size);
  info.end_of_text = header.end_of_text;
  info.bytes_per_token = static_cast<int>(header.bytes_per_token);
  info.tokenizer.assign(header.tokenizer.begin(),
                        std::find(header.tokenizer.begin(), header.tokenizer.end(), '\0'));
  info.layout = TokenLayout::kZerolab;
  if (info.vocab_size < 0 || info.vocab_size > (int64_t{1} << 31) || info.end_of_text < -1 ||
      (info.vocab_size > 0 && info.end_of_text >= info.vocab_size))
    refuse(bytes.file, "has a header that contradicts itself: a vocabulary of " +
                           std::to_string(info.vocab_size) + " and an end of text " +
                           std::to_string(info.end_of_text) + "; write it again.");
  check_count(bytes, sizeof header, info);
  return info;
}

TokenFileInfo read_llmc(const Bytes& bytes) {
  const LlmcFormat& format = *llmc_format(bytes);
  check_header_size(bytes, kLlmcHeaderBytes, TokenLayout::kLlmc);
  if (const int32_t version = llmc_number(bytes, 1); version != format.version)
    refuse(bytes.file, "has version " + std::to_string(version) +
                           " of the llm.c layout, but with magic " + std::to_string(format.magic) +
                           " version " + std::to_string(format.version) +
                           " is known; write it again with a current llm.c.");
  TokenFileInfo info;
  info.num_tokens = llmc_number(bytes, 2);
  info.vocab_size = format.vocab_size;
  info.end_of_text = format.end_of_text;
  info.bytes_per_token = format.bytes_per_token;
  info.tokenizer = format.tokenizer;
  info.layout = TokenLayout::kLlmc;
  check_count(bytes, kLlmcHeaderBytes, info);
  return info;
}

TokenFileInfo read_raw(const Bytes& bytes) {
  TokenFileInfo info;
  info.num_tokens = bytes.size / 2;
  if (bytes.size % 2 != 0)
    refuse(bytes.file, "has " + std::to_string(bytes.size) +
                           " bytes, an odd size, but raw tokens have 2 bytes each; copy it again "
                           "if it was cut, or make tokens of a text with `zerolab tokenize`.");
  return info;
}

TokenFileInfo read_info(const Bytes& bytes, TokenLayout asked) {
  const TokenLayout found = recognised(bytes);
  if (asked != TokenLayout::kAuto && asked != found) {
    const char* why = found == TokenLayout::kRaw ? " (no magic begins it)" : " by its first bytes";
    refuse(bytes.file, std::string("has the layout \"") + layout_word(found) + "\"" + why +
                           ", not \"" + layout_word(asked) + "\"; set layout = \"auto\" or \"" +
                           layout_word(found) + "\".");
  }
  if (asked == TokenLayout::kAuto && found == TokenLayout::kRaw && looks_like_text(bytes))
    refuse(bytes.file,
           "looks like text; pack it with `zerolab tokenize FILE -o FILE.bin`, or, if it is raw "
           "tokens, say data.layout = \"raw\".");
  switch (found) {
    case TokenLayout::kZerolab:
      return read_zerolab(bytes);
    case TokenLayout::kLlmc:
      return read_llmc(bytes);
    default:
      return read_raw(bytes);
  }
}

/// Open until the end of a scope.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

Bytes map_file(const std::string& path) {
  const std::string file = "'" + path + "'";
  constexpr const char* kGive =
      "; give a file of packed tokens, such as `zerolab tokenize` writes.";
  // Without O_NONBLOCK, a pipe without a writer would hold us.
  const Descriptor descriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (descriptor.number < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) refuse(file, std::string("does not exist") + kGive);
    refuse(file, "cannot be read (" + std::generic_category().message(error) +
                     "); check its permissions.");
  }
  struct stat about {};
  if (::fstat(descriptor.number, &about) != 0)
    refuse(file,
           "cannot be read (" + std::generic_category().message(errno) + "); check its disk.");
  if (S_ISDIR(about.st_mode)) refuse(file, "is a folder; give a file of packed tokens in it.");
  if (!S_ISREG(about.st_mode)) refuse(file, std::string("is no regular file") + kGive);
  if (about.st_size == 0) refuse(file, std::string("is empty") + kGive);
  void* begin = ::mmap(nullptr, static_cast<size_t>(about.st_size), PROT_READ, MAP_SHARED,
                       descriptor.number, 0);
  if (begin == MAP_FAILED)
    refuse(file, "cannot be mapped (" + std::generic_category().message(errno) +
                     "); copy it to a local disk.");
  // Windows lie all over the file: reading ahead would fill memory with what is not asked for.
  ::madvise(begin, static_cast<size_t>(about.st_size), MADV_RANDOM);
  return {file, static_cast<const unsigned char*>(begin), static_cast<int64_t>(about.st_size)};
}

}  // namespace

TokenFile TokenFile::open(const std::string& path, TokenLayout layout) {
  const Bytes bytes = map_file(path);
  TokenFile file;  // unmaps, whatever is thrown
  file.path_ = path;
  file.mapping_ = bytes.begin;
  file.mapped_bytes_ = bytes.size;
  file.info_ = read_info(bytes, layout);
  file.start_ = bytes.size - file.info_.num_tokens * file.info_.bytes_per_token;
  if (file.info_.num_tokens == 0) refuse(bytes.file, "holds no tokens; give another file.");
  return file;
}

TokenFile::TokenFile(TokenFile&& other) noexcept {
  *this = std::move(other);
}

TokenFile& TokenFile::operator=(TokenFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(info_, other.info_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(start_, other.start_);
  return *this;
}

TokenFile::~TokenFile() {
  if (mapping_ == nullptr) return;
  ::munmap(const_cast<unsigned char*>(mapping_), static_cast<size_t>(mapped_bytes_));
}

void TokenFile::read(int64_t first, std::span<int64_t> out) const {
  const unsigned char* begin = mapping_ + start_ + first * info_.bytes_per_token;
  // Pages and headers are multiples of four bytes: the tokens lie aligned.
  if (info_.bytes_per_token == 2) {
    std::copy_n(reinterpret_cast<const uint16_t*>(begin), out.size(), out.begin());
  } else {
    std::copy_n(reinterpret_cast<const uint32_t*>(begin), out.size(), out.begin());
  }
  give_back(static_cast<int64_t>(out.size()) * info_.bytes_per_token);
}

void TokenFile::give_back(int64_t bytes_read) const {
  // A read maps what the kernel has around it, too, and all of it counts as this process's memory.
  // What is given back stays in the page cache.
  constexpr int64_t kAround = int64_t{64} << 10, kLimit = int64_t{64} << 20;
  if (touched_bytes_.fetch_add(bytes_read + kAround, std::memory_order_relaxed) < kLimit) return;
  touched_bytes_.store(0, std::memory_order_relaxed);
  ::madvise(const_cast<unsigned char*>(mapping_), static_cast<size_t>(mapped_bytes_),
            MADV_DONTNEED);
}

int64_t TokenFile::largest_token() const {
  // Piece by piece, and what was read is given back: it would count as memory of this process.
  constexpr int64_t kPieceBytes = int64_t{16} << 20;
  auto* memory = const_cast<unsigned char*>(mapping_);
  ::madvise(memory, static_cast<size_t>(mapped_bytes_), MADV_SEQUENTIAL);
  int64_t largest = 0;
  const auto scan = [&](const auto* begin, const auto* end) {
    if (begin != end) largest = std::max<int64_t>(largest, *std::max_element(begin, end));
  };
  for (int64_t at = 0; at < mapped_bytes_; at += kPieceBytes) {
    const int64_t end = std::min(at + kPieceBytes, mapped_bytes_);
    const unsigned char* begin = mapping_ + std::max(at, start_);
    if (info_.bytes_per_token == 2) {
      scan(reinterpret_cast<const uint16_t*>(begin),
           reinterpret_cast<const uint16_t*>(mapping_ + end));
    } else {
      scan(reinterpret_cast<const uint32_t*>(begin),
           reinterpret_cast<const uint32_t*>(mapping_ + end));
    }
    ::madvise(memory + at, static_cast<size_t>(end - at), MADV_DONTNEED);
  }
  ::madvise(memory, static_cast<size_t>(mapped_bytes_), MADV_RANDOM);
  return largest;
}

}  // namespace zerolab
