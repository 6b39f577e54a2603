// Boost.DLL 1.74 uses std::vector without including it, so <vector> stands before it.
#include <vector>
#define BOOST_DLL_USE_STD_FS
#include <boost/dll/shared_library.hpp>
//
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include <cxxabi.h>
#include <dlfcn.h>

#include "zerolab/error.h"

#include "host/loaded_library.h"

namespace zerolab {
namespace {

constexpr size_t kMaxEntries = 1024;
constexpr uint32_t kMaxTableBytes = 4096;

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& what) {
  throw PluginError(file.string() + " " + what + ".");
}

/// The loader's message without the file's name, and with a C++ symbol readable.
std::string readable(std::string message, const std::filesystem::path& file) {
  const std::string prefix = file.string() + ": ";
  if (message.starts_with(prefix)) message.erase(0, prefix.size());
  const size_t start = message.find("_Z");
  if (start == std::string::npos) return message;
  const size_t end = std::min(message.find_first_of(" \t,;:)", start), message.size());
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(message.substr(start, end - start).c_str(), nullptr, nullptr, &status),
      &std::free);
  return status == 0 ? message.replace(start, end - start, name.get()) : message;
}

/// Whether an address belongs to the mapping of `file`: a symbol lookup also searches the libraries
/// that a plugin depends on.
bool lies_in(const void* address, const std::filesystem::path& file) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return false;
  std::error_code failed;
  return std::filesystem::equivalent(info.dli_fname, file, failed) && !failed;
}

bool is_sound(const PluginEntry& entry) {
  return entry.id.data() != nullptr && entry.version.data() != nullptr &&
         entry.summary.data() != nullptr && static_cast<size_t>(entry.kind) < kKinds.size() &&
         entry.schema != nullptr && entry.create != nullptr;
}

const PluginTable& checked_table(const PluginTable* table, const std::filesystem::path& file) {
  if (table == nullptr || !lies_in(table, file)) {
    refuse(file, "gives a plugin table that does not lie in it; use ZEROLAB_PLUGIN to write it");
  }
  if (table->magic != kPluginMagic || table->struct_size < sizeof(PluginTable) ||
      table->struct_size > kMaxTableBytes || table->entries == nullptr || table->num_entries == 0 ||
      table->num_entries > kMaxEntries) {
    refuse(file, "gives a plugin table that makes no sense; rebuild it against this zerolab's SDK");
  }
  for (size_t i = 0; i < table->num_entries; ++i) {
    if (!is_sound(table->entries[i])) {
      refuse(file, "has an incomplete entry number " + std::to_string(i) +
                       " in its plugin table; rebuild it against this zerolab's SDK");
    }
  }
  return *table;
}

const PluginTable& table_of(const boost::dll::shared_library& library,
                            const std::filesystem::path& file) {
  if (!library.has(kPluginSymbol)) {
    refuse(file, std::string("has a manifest but no symbol ") + kPluginSymbol +
                     "; write ZEROLAB_PLUGIN(...) in one of its sources");
  }
  const auto& entry_point = library.get<const PluginTable*()>(kPluginSymbol);
  if (!lies_in(reinterpret_cast<const void*>(&entry_point), file)) {
    refuse(file, std::string("has no symbol ") + kPluginSymbol +
                     " of its own, only that of a library it depends on");
  }
  const PluginTable* table = nullptr;
  try {
    table = entry_point();
  } catch (const std::exception& error) {
    refuse(file, std::string("failed while it was asked for its plugins: ") + error.what());
  } catch (...) {
    refuse(file, "failed while it was asked for its plugins, with an exception of an unknown type");
  }
  return checked_table(table, file);
}

void load(boost::dll::shared_library& library, const std::filesystem::path& file) {
  using boost::dll::load_mode::rtld_local;
  using boost::dll::load_mode::rtld_now;
  boost::dll::fs::error_code failed;
  library.load(file, failed, rtld_now | rtld_local);
  if (!failed) return;
  // The error code says "bad file descriptor" whatever happened; the loader's own message is still
  // there.
  const char* const reason = ::dlerror();
  refuse(file, "cannot be loaded: " + readable(reason ? reason : failed.message(), file) +
                   "; rebuild it against this zerolab's SDK");
}

struct Loaded {
  boost::dll::shared_library library;
  const PluginTable* table = nullptr;
};

}  // namespace

const PluginTable& load_plugin_table(const std::filesystem::path& file) {
  // Never destroyed, so no library is ever closed; reachable, so a leak checker has nothing to say.
  static auto& loaded = *new std::map<std::filesystem::path, Loaded>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Loaded& kept = loaded[file];
  if (kept.table != nullptr) return *kept.table;
  if (!kept.library.is_loaded()) load(kept.library, file);
  // The library is kept even if its table is refused: its constructors have run.
  kept.table = &table_of(kept.library, file);
  return *kept.table;
}

}  // namespace zerolab
