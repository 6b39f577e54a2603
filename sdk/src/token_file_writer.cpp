#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "zerolab/error.h"
#include "zerolab/token_file.h"

#include "token_header.h"

namespace zerolab {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

std::string advice(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free some space there, or write elsewhere";
    case EACCES:
    case EPERM:
    case EROFS:
      return "let this user write there, or write elsewhere";
    case ENOENT:
    case ENOTDIR:
      return "make its folder first";
    default:
      return "look at the disk, or write elsewhere";
  }
}

TokenHeader make_header(const TokenFileInfo& info) {
  TokenHeader header{};
  std::copy(kTokenMagic.begin(), kTokenMagic.end(), header.magic.begin());
  header.version = kTokenVersion;
  header.bytes_per_token = static_cast<uint32_t>(info.bytes_per_token);
  header.num_tokens = static_cast<uint64_t>(info.num_tokens);
  header.vocab_size = static_cast<uint64_t>(info.vocab_size);
  header.end_of_text = info.end_of_text;
  std::copy(info.tokenizer.begin(), info.tokenizer.end(), header.tokenizer.begin());
  header.checksum = checksum_of(header);
  return header;
}

void check_info(const std::string& path, const TokenFileInfo& info) {
  if (info.vocab_size < 1 || info.vocab_size > (int64_t{1} << 31))
    throw PluginError("the vocabulary of '" + path + "' must have 1 to 2^31 tokens, has " +
                      std::to_string(info.vocab_size) + ".");
  if (info.end_of_text < -1 || info.end_of_text >= info.vocab_size)
    throw PluginError("the end of text of '" + path + "' must be -1 or below the vocabulary's " +
                      std::to_string(info.vocab_size) + " tokens, is " +
                      std::to_string(info.end_of_text) + ".");
  if (info.tokenizer.size() >= sizeof TokenHeader::tokenizer)
    throw PluginError("the tokenizer's name '" + info.tokenizer +
                      "' must be shorter than 64 bytes.");
}

}  // namespace

struct TokenFileWriter::State {
  std::string path, partial;
  TokenFileInfo info;
  int descriptor = -1;
  std::vector<char> buffer;

  ~State() {
    if (descriptor >= 0) ::close(descriptor);
    if (!partial.empty()) ::unlink(partial.c_str());
  }

  [[noreturn]] void refuse(int error) const {
    throw StoreError("'" + path + "' cannot be written: " + std::generic_category().message(error) +
                     "; " + advice(error) + ".");
  }

  /// Beside the file, so that a rename publishes it; no other process has the same name.
  void create() {
    struct stat about {};
    if (::stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode))
      throw StoreError("'" + path +
                       "' cannot be written: it is there and is no regular file; "
                       "give another name.");
    const std::string stem = path + ".partial-" + std::to_string(::getpid());
    for (int number = 0;; ++number) {
      partial = stem;
      if (number > 0) partial.append("-").append(std::to_string(number));
      descriptor = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (descriptor >= 0) return;
      const int error = errno;
      partial.clear();  // not ours
      if (error != EEXIST) refuse(error);
    }
  }

  void flush() {
    const char* at = buffer.data();
    const char* end = at + buffer.size();
    while (at != end) {
      const ssize_t written = ::write(descriptor, at, static_cast<size_t>(end - at));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) refuse(written < 0 ? errno : EIO);
      at += written;
    }
    buffer.clear();
  }

  template <class Token>
  void put(std::span<const int32_t> tokens) {
    while (!tokens.empty()) {
      if (buffer.size() + sizeof(Token) > kBufferBytes) flush();
      const size_t n = std::min(tokens.size(), (kBufferBytes - buffer.size()) / sizeof(Token));
      const size_t before = buffer.size();
      buffer.resize(before + n * sizeof(Token));
      for (size_t i = 0; i < n; ++i) {
        const auto token = static_cast<Token>(tokens[i]);
        std::memcpy(buffer.data() + before + i * sizeof(Token), &token, sizeof token);
      }
      tokens = tokens.subspan(n);
    }
  }

  void write_header() {
    const TokenHeader header = make_header(info);
    const ssize_t written = ::pwrite(descriptor, &header, sizeof header, 0);
    if (written != static_cast<ssize_t>(sizeof header)) refuse(written < 0 ? errno : EIO);
  }

  void sync_folder() const {
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    const int opened =
        ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened < 0) refuse(errno);
    // Some file systems cannot and say so with EINVAL; nothing more can be done there.
    const int error = ::fsync(opened) != 0 && errno != EINVAL ? errno : 0;
    ::close(opened);
    if (error != 0) refuse(error);
  }
};

TokenFileWriter::TokenFileWriter(const std::string& path, const TokenFileInfo& info)
    : state_(std::make_unique<State>()) {
  check_info(path, info);
  state_->path = path;
  state_->info = info;
  state_->info.num_tokens = 0;
  state_->info.bytes_per_token = info.vocab_size <= kLargestShortVocabulary ? 2 : 4;
  state_->buffer.reserve(kBufferBytes);
  state_->create();
  state_->buffer.resize(sizeof(TokenHeader));  // zeros: no header until the end
}

TokenFileWriter::~TokenFileWriter() = default;

void TokenFileWriter::append(std::span<const int32_t> tokens) {
  State& s = *state_;
  for (const int32_t token : tokens) {
    if (token >= 0 && token < s.info.vocab_size) continue;
    throw PluginError("the token " + std::to_string(token) + " for '" + s.path +
                      "' is outside of the vocabulary's " + std::to_string(s.info.vocab_size) +
                      " tokens.");
  }
  if (s.info.bytes_per_token == 2) {
    s.put<uint16_t>(tokens);
  } else {
    s.put<uint32_t>(tokens);
  }
  s.info.num_tokens += static_cast<int64_t>(tokens.size());
}

void TokenFileWriter::finish() {
  State& s = *state_;
  s.flush();
  if (::fsync(s.descriptor) != 0) s.refuse(errno);
  s.write_header();
  if (::fsync(s.descriptor) != 0) s.refuse(errno);
  if (::close(std::exchange(s.descriptor, -1)) != 0) s.refuse(errno);
  if (::rename(s.partial.c_str(), s.path.c_str()) != 0) s.refuse(errno);
  s.partial.clear();
  s.sync_folder();
}

int64_t TokenFileWriter::num_tokens() const {
  return state_->info.num_tokens;
}

}  // namespace zerolab
