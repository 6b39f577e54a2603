#include "host/elf_section.h"

#include <cstring>
#include <functional>
#include <random>

#include <elf.h>
#include <sys/stat.h>

#include "zerolab/error.h"

#include "catch.h"
#include "fixture.h"

using host_test::contains;
using host_test::message_of;
using zerolab::PluginError;
using zerolab::read_elf_section;

namespace {

/// A copy of the plain plugin with its ELF header changed.
std::string with_header(const std::function<void(Elf64_Ehdr&)>& change) {
  std::string bytes = host_test::read(host_test::library("zerolab_scheduler_plain"));
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  change(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

/// A copy with every section header changed.
std::string with_sections(const std::function<void(Elf64_Shdr&, size_t)>& change) {
  std::string bytes = with_header([](Elf64_Ehdr&) {});
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  for (size_t i = 0; i < header.e_shnum; ++i) {
    char* const at = bytes.data() + header.e_shoff + i * sizeof(Elf64_Shdr);
    Elf64_Shdr section;
    std::memcpy(&section, at, sizeof section);
    change(section, i);
    std::memcpy(at, &section, sizeof section);
  }
  return bytes;
}

std::string refusal(const std::filesystem::path& file) {
  return message_of<PluginError>([&] { read_elf_section(file, ".zerolab"); });
}

std::string refusal_of_bytes(std::string_view bytes) {
  const host_test::Folder folder;
  const std::string message = refusal(host_test::write(folder / "x.so", bytes));
  if (!message.empty()) CHECK(contains(message, (folder / "x.so").string()));
  return message;
}

}  // namespace

TEST_CASE("the manifest's section is read from a plugin's file") {
  const auto content = read_elf_section(host_test::library("zerolab_scheduler_plain"), ".zerolab");
  REQUIRE(content);
  CHECK(content->starts_with("[build]\n"));
  CHECK(contains(*content, "id = \"scheduler/plain\""));
}

TEST_CASE("a library without the section has none, also if another's name begins alike") {
  const auto file = host_test::library("zerolab_scheduler_plain");
  CHECK_FALSE(read_elf_section(file, ".zerola"));
  CHECK_FALSE(read_elf_section(file, ".zerolabs"));
  CHECK_FALSE(read_elf_section(file, ".no_such_section"));
  CHECK(read_elf_section(file, ".text"));
}

TEST_CASE("files that are no shared library are refused with a sentence") {
  CHECK(contains(refusal_of_bytes(""), "is empty"));
  CHECK(contains(refusal_of_bytes("hello, this is a text\n"), "is no shared library"));
  CHECK(contains(refusal_of_bytes("\x7f"), "is no shared library"));
  CHECK(contains(refusal_of_bytes("\x7f"
                                  "ELF"),
                 "damaged or truncated"));
  const host_test::Folder folder;
  CHECK(contains(refusal(folder / "missing.so"), "No such file"));
  CHECK(contains(refusal(folder.folder("folder.so")), "is no regular file"));
  REQUIRE(::mkfifo((folder / "pipe.so").c_str(), 0600) == 0);
  CHECK(contains(refusal(folder / "pipe.so"), "is no regular file"));
}

TEST_CASE("a library for another machine is refused, saying which") {
  CHECK(contains(refusal_of_bytes(with_header([](auto& h) { h.e_machine = EM_RISCV; })), "RISC-V"));
  CHECK(contains(refusal_of_bytes(with_header([](auto& h) { h.e_machine = 9999; })), "9999"));
  CHECK(contains(refusal_of_bytes(with_header([](auto& h) { h.e_ident[EI_CLASS] = ELFCLASS32; })),
                 "64-bit"));
  CHECK(contains(refusal_of_bytes(with_header([](auto& h) { h.e_ident[EI_DATA] = ELFDATA2MSB; })),
                 "byte order"));
  CHECK(contains(refusal_of_bytes(with_header([](auto& h) { h.e_type = ET_REL; })),
                 "no shared library"));
  CHECK(contains(refusal_of_bytes(with_header([](auto& h) { h.e_version = 7; })), "ELF version"));
}

TEST_CASE("offsets, sizes and counts that leave the file are refused") {
  constexpr uint64_t kHuge = ~uint64_t{0};
  for (uint64_t offset : {kHuge, kHuge - 63, kHuge / 2, uint64_t{1} << 40}) {
    CAPTURE(offset);
    CHECK(contains(refusal_of_bytes(with_header([&](auto& h) { h.e_shoff = offset; })),
                   "outside the file"));
    CHECK(contains(refusal_of_bytes(with_header([&](auto& h) { h.e_phoff = offset; })),
                   "outside the file"));
    CHECK_FALSE(
        refusal_of_bytes(with_sections([&](auto& s, size_t) { s.sh_offset = offset; })).empty());
    CHECK_FALSE(
        refusal_of_bytes(with_sections([&](auto& s, size_t) { s.sh_size = offset; })).empty());
    CHECK_FALSE(refusal_of_bytes(with_sections([&](auto& s, size_t) {
                  if (s.sh_type != SHT_STRTAB) s.sh_size = offset;
                })).empty());
  }
  CHECK_FALSE(refusal_of_bytes(with_header([](auto& h) { h.e_shnum = 65000; })).empty());
  CHECK_FALSE(refusal_of_bytes(with_header([](auto& h) { h.e_shentsize = 1; })).empty());
  CHECK_FALSE(refusal_of_bytes(with_header([](auto& h) { h.e_shstrndx = 60000; })).empty());
  CHECK_FALSE(refusal_of_bytes(with_header([](auto& h) { h.e_shstrndx = SHN_XINDEX; })).empty());
  CHECK_FALSE(refusal_of_bytes(with_header([](auto& h) { h.e_phnum = 0; })).empty());
}

TEST_CASE("a count of sections that stands in the first header is understood and bounded") {
  Elf64_Half count = 0;
  std::string bytes = with_header([&](auto& h) { count = h.e_shnum, h.e_shnum = 0; });
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  Elf64_Shdr first{};
  const host_test::Folder folder;
  for (uint64_t stated : {uint64_t{count}, uint64_t{0}, uint64_t{1} << 62}) {
    first.sh_size = stated;
    std::memcpy(bytes.data() + header.e_shoff, &first, sizeof first);
    const auto file = host_test::write(folder / "x.so", bytes);
    CHECK(refusal(file).empty() == (stated == count));
  }
}

TEST_CASE("names that leave the name table match nothing") {
  CHECK(refusal_of_bytes(with_sections([](auto& s, size_t) { s.sh_name = ~0U; })).empty());
}

TEST_CASE("a section without plain content is refused") {
  const auto only_progbits = [](auto&& change) {
    return with_sections([=](Elf64_Shdr& s, size_t) {
      if (s.sh_type == SHT_PROGBITS) change(s);
    });
  };
  CHECK(contains(refusal_of_bytes(only_progbits([](auto& s) { s.sh_type = SHT_NOBITS; })),
                 "no plain content"));
  CHECK(contains(refusal_of_bytes(only_progbits([](auto& s) { s.sh_flags |= SHF_COMPRESSED; })),
                 "no plain content"));
}

TEST_CASE("a truncated library is refused at every length") {
  const std::string whole = host_test::read(host_test::library("zerolab_scheduler_plain"));
  const host_test::Folder folder;
  const size_t step = std::max<size_t>(1, whole.size() / 300);
  size_t refused = 0, tried = 0;
  for (size_t length = 0; length < whole.size(); length += length < 300 ? 1 : step) {
    const auto file = host_test::write(folder / "x.so", std::string_view(whole).substr(0, length));
    ++tried;
    refused += refusal(file).empty() ? 0 : 1;
  }
  CHECK(tried > 500);
  CHECK(refused == tried);
}

TEST_CASE("flipped bytes in the headers end in a sentence or in a section, never in a crash") {
  const std::string whole = host_test::read(host_test::library("zerolab_scheduler_plain"));
  Elf64_Ehdr header;
  std::memcpy(&header, whole.data(), sizeof header);
  const size_t table_bytes = header.e_shnum * sizeof(Elf64_Shdr);
  const host_test::Folder folder;
  std::mt19937 random(20240607);
  size_t refused = 0, read = 0;
  for (int round = 0; round < 800; ++round) {
    std::string bytes = whole;
    const size_t flips = 1 + random() % 3;
    for (size_t i = 0; i < flips; ++i) {
      const bool in_header = random() % 3 == 0;
      const size_t at =
          in_header ? random() % sizeof header : header.e_shoff + random() % table_bytes;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 + random() % 255));
    }
    const auto file = host_test::write(folder / "x.so", bytes);
    (refusal(file).empty() ? read : refused) += 1;
  }
  CHECK(refused > 50);
  CHECK(read > 50);
}
