#include "host/elf_section.h"

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "zerolab/error.h"

namespace zerolab {
namespace {

constexpr uint64_t kMaxSections = 1 << 16;
constexpr uint64_t kMaxSegments = 1 << 12;
constexpr uint64_t kMaxNameBytes = 16 << 20;    // the table of section names
constexpr uint64_t kMaxContentBytes = 1 << 20;  // the section that is asked for

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
#error "the plugin host knows x86-64 and aarch64"
#endif

std::string machine_name(Elf64_Half machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "aarch64";
    case EM_386:
      return "32-bit x86";
    case EM_ARM:
      return "32-bit ARM";
    case EM_RISCV:
      return "RISC-V";
    case EM_PPC64:
      return "POWER";
    default:
      return "machine number " + std::to_string(machine);
  }
}

/// A regular file open for reading at offsets; every read is checked against its size.
class ElfFile {
 public:
  explicit ElfFile(const std::filesystem::path& path) : path_(path) {
    // Without O_NONBLOCK, opening a pipe somebody left in the folder would wait for a writer.
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) refuse(std::string("cannot be opened: ") + std::strerror(errno));
    struct stat status {};
    const bool known = ::fstat(descriptor_, &status) == 0;
    if (!known || !S_ISREG(status.st_mode)) {
      ::close(descriptor_);
      refuse("is no regular file");
    }
    size_ = static_cast<uint64_t>(status.st_size);
  }
  ~ElfFile() { ::close(descriptor_); }
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;

  uint64_t size() const { return size_; }

  [[noreturn]] void refuse(const std::string& what) const {
    throw PluginError(path_.string() + " " + what + ".");
  }
  [[noreturn]] void damaged(const std::string& what) const {
    refuse("is a damaged or truncated library (" + what + "); build or install it again");
  }
  bool holds(uint64_t offset, uint64_t count) const {
    return offset <= size_ && count <= size_ - offset;
  }

  void read(uint64_t offset, void* out, uint64_t count, const char* what) const {
    if (!holds(offset, count)) damaged(std::string(what) + " lies outside the file");
    auto* to = static_cast<char*>(out);
    while (count > 0) {
      const ssize_t got = ::pread(descriptor_, to, count, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) refuse(std::string("cannot be read: ") + std::strerror(errno));
      if (got == 0) damaged(std::string(what) + " lies outside the file");
      to += got;
      offset += static_cast<uint64_t>(got);
      count -= static_cast<uint64_t>(got);
    }
  }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

Elf64_Ehdr read_header(const ElfFile& file) {
  if (file.size() == 0) file.refuse("is empty, so no plugin; build or install it again");
  char magic[SELFMAG] = {};
  file.read(0, magic, std::min<uint64_t>(SELFMAG, file.size()), "the ELF header");
  if (std::memcmp(magic, ELFMAG, SELFMAG) != 0) {
    file.refuse("is no shared library (it does not begin as an ELF file does)");
  }
  Elf64_Ehdr header{};
  file.read(0, &header, sizeof header, "the ELF header");
  constexpr unsigned char kOrder =
      std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  if (header.e_ident[EI_CLASS] != ELFCLASS64) file.refuse("is no 64-bit ELF file");
  if (header.e_ident[EI_DATA] != kOrder) file.refuse("has the byte order of another machine");
  if (header.e_ident[EI_VERSION] != EV_CURRENT || header.e_version != EV_CURRENT) {
    file.damaged("an unknown ELF version");
  }
  if (header.e_machine != kMachine) {
    file.refuse("is built for " + machine_name(header.e_machine) + ", and this machine is " +
                machine_name(kMachine));
  }
  if (header.e_type != ET_DYN) file.refuse("is an ELF file but no shared library");
  return header;
}

/// A segment beyond the end of the file would be mapped all the same, and kill the process when it
/// is touched.
void check_segments(const ElfFile& file, const Elf64_Ehdr& header) {
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 ||
      header.e_phnum > kMaxSegments) {
    file.damaged("no usable program headers");
  }
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  file.read(header.e_phoff, segments.data(), segments.size() * sizeof(Elf64_Phdr),
            "the program header table");
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_LOAD) continue;
    if (!file.holds(segment.p_offset, segment.p_filesz)) {
      file.damaged("a segment lies outside the file");
    }
  }
}

/// Empty for a library that was stripped of its section headers.
std::vector<Elf64_Shdr> read_section_headers(const ElfFile& file, const Elf64_Ehdr& header) {
  if (header.e_shoff == 0) return {};
  if (header.e_shentsize != sizeof(Elf64_Shdr)) file.damaged("section headers of a strange size");
  uint64_t count = header.e_shnum;
  if (count == 0) {  // more sections than e_shnum can say: the first header has their number
    Elf64_Shdr first{};
    file.read(header.e_shoff, &first, sizeof first, "the section header table");
    count = first.sh_size;
  }
  if (count == 0 || count > kMaxSections) file.damaged("a strange number of sections");
  if (!file.holds(header.e_shoff, count * sizeof(Elf64_Shdr))) {
    file.damaged("the section header table lies outside the file");
  }
  std::vector<Elf64_Shdr> sections(count);
  file.read(header.e_shoff, sections.data(), count * sizeof(Elf64_Shdr),
            "the section header table");
  return sections;
}

std::string read_names(const ElfFile& file, const Elf64_Ehdr& header,
                       const std::vector<Elf64_Shdr>& sections) {
  uint64_t index = header.e_shstrndx;
  if (index == SHN_XINDEX) index = sections.front().sh_link;
  if (index >= sections.size()) file.damaged("no table of section names");
  const Elf64_Shdr& table = sections[index];
  if (table.sh_type != SHT_STRTAB || table.sh_size > kMaxNameBytes) {
    file.damaged("no usable table of section names");
  }
  if (!file.holds(table.sh_offset, table.sh_size)) {
    file.damaged("the table of section names lies outside the file");
  }
  std::string names(table.sh_size, '\0');
  file.read(table.sh_offset, names.data(), names.size(), "the table of section names");
  return names;
}

bool has_name(const Elf64_Shdr& section, const std::string& names, std::string_view name) {
  const uint64_t start = section.sh_name;
  return start < names.size() && name.size() < names.size() - start &&
         std::string_view(names).substr(start, name.size()) == name &&
         names[start + name.size()] == '\0';
}

}  // namespace

std::optional<std::string> read_elf_section(const std::filesystem::path& path,
                                            std::string_view name) {
  const ElfFile file(path);
  const Elf64_Ehdr header = read_header(file);
  check_segments(file, header);
  const std::vector<Elf64_Shdr> sections = read_section_headers(file, header);
  if (sections.empty()) return std::nullopt;
  const std::string names = read_names(file, header, sections);
  for (const Elf64_Shdr& section : sections) {
    if (!has_name(section, names, name)) continue;
    const std::string what = "section " + std::string(name);
    if (section.sh_type != SHT_PROGBITS || (section.sh_flags & SHF_COMPRESSED) != 0) {
      file.damaged(what + " has no plain content");
    }
    if (section.sh_size > kMaxContentBytes) file.damaged(what + " is larger than 1 MiB");
    if (!file.holds(section.sh_offset, section.sh_size)) {
      file.damaged(what + " lies outside the file");
    }
    std::string content(section.sh_size, '\0');
    file.read(section.sh_offset, content.data(), content.size(), "the section");
    return content;
  }
  return std::nullopt;
}

}  // namespace zerolab
