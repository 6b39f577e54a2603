#pragma once
// The content of one section of an ELF64 shared library, read without loading it.
//
// Every field of the file is untrusted: offsets and sizes are compared with the file's size
// before they are used, and what is read is bounded. Special files (a pipe, a device) are
// refused without being opened for reading.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace zerolab {

/// The bytes of section `name`; nullopt if the library has no such section.
/// Errors: PluginError, one sentence naming the file: unreadable, no ELF file, another machine's,
/// no shared library, damaged.
std::optional<std::string> read_elf_section(const std::filesystem::path& file,
                                            std::string_view name);

}  // namespace zerolab
