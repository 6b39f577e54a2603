#pragma once
// How a shared library offers plugins. In one .cpp of the plugin, at namespace scope:
//
//   ZEROLAB_PLUGIN(zerolab::entry<Cosine>("scheduler/cosine", "1.0.0", "warmup, half a cosine"));
//
// Several entries, separated by commas, make one file offer several plugins. The macro writes
// two things: the manifest, a TOML text in the ELF section ".zerolab" that the host reads before
// it loads the file (`readelf -p .zerolab x.so` shows it), and the one exported symbol,
// zerolab_plugin.
//
// A plugin class has `struct Options` (options.h; zerolab::NoOptions if there are none), a
// constructor that takes one, and derives from its kind's interface.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <c10/core/Scalar.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/TensorOptions.h>
#include <torch/headeronly/version.h>

#include "zerolab/kind.h"
#include "zerolab/options.h"
#include "zerolab/version.h"

#ifndef ZEROLAB_TORCH_BUILD_ID
#define ZEROLAB_TORCH_BUILD_ID "unknown"
#endif
#ifndef ZEROLAB_BUILD_TYPE
#define ZEROLAB_BUILD_TYPE "unknown"
#endif

namespace zerolab {

/// Revision of each kind's interface; the manifest states it, the host compares it.
inline constexpr std::array<uint32_t, 6> kKindRevisions = {1, 1, 1, 1, 1, 1};

/// One plugin of a library. `create` returns the kind's interface pointer; its virtual destructor
/// ends it.
struct PluginEntry {
  std::string_view id, version, summary, source;
  Kind kind = Kind::kModel;
  const OptionSchema& (*schema)() = nullptr;
  void* (*create)(const OptionValues& values) = nullptr;
};

inline constexpr uint32_t kPluginMagic = 0x5a4c4142;  // "ZLAB"

/// What the exported symbol returns.
struct PluginTable {
  uint32_t magic = kPluginMagic;
  uint32_t struct_size = sizeof(PluginTable);
  const PluginEntry* entries = nullptr;
  size_t num_entries = 0;
};
using PluginEntryPoint = const PluginTable* (*)();
inline constexpr const char* kPluginSymbol = "zerolab_plugin";
inline constexpr const char* kManifestSection = ".zerolab";

namespace detail {

constexpr bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

template <class Plugin>
const OptionSchema& schema_of() {
  static const OptionSchema schema = Describe<typename Plugin::Options>::schema();
  return schema;
}

template <class Plugin, class Interface>
void* create(const OptionValues& values) {
  typename Plugin::Options options;
  schema_of<Plugin>().assign(&options, values);
  return static_cast<Interface*>(new Plugin(options));
}

}  // namespace detail

class Model;
class Data;
class Optimizer;
class Sharding;
class Precision;
class Scheduler;

namespace detail {
template <Kind kind>
struct InterfaceOf;
template <>
struct InterfaceOf<Kind::kModel> {
  using type = Model;
};
template <>
struct InterfaceOf<Kind::kData> {
  using type = Data;
};
template <>
struct InterfaceOf<Kind::kOptimizer> {
  using type = Optimizer;
};
template <>
struct InterfaceOf<Kind::kSharding> {
  using type = Sharding;
};
template <>
struct InterfaceOf<Kind::kPrecision> {
  using type = Precision;
};
template <>
struct InterfaceOf<Kind::kScheduler> {
  using type = Scheduler;
};
}  // namespace detail

/// Describes a plugin. `id` is "kind/name" with the name from [a-z0-9_]+; texts hold no quotes,
/// backslashes or line breaks. A wrong id or kind does not compile.
template <class Plugin>
consteval PluginEntry entry(std::string_view id, std::string_view version, std::string_view summary,
                            std::string_view source = "") {
  const size_t slash = id.find('/');
  if (slash == std::string_view::npos || id.substr(0, slash) != kind_name(Plugin::kKind)) {
    throw "the id must be 'kind/name', with the kind of the interface that the class derives from";
  }
  if (slash + 1 == id.size()) throw "the id has no name";
  for (char c : id.substr(slash + 1)) {
    if (!detail::is_name_char(c)) throw "a plugin's name is made of [a-z0-9_]";
  }
  for (std::string_view text : {version, summary, source}) {
    for (char c : text) {
      if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 32)
        throw "no quotes, backslashes or line breaks here";
    }
  }
  using Interface = typename detail::InterfaceOf<Plugin::kKind>::type;
  return {id,
          version,
          summary,
          source,
          Plugin::kKind,
          &detail::schema_of<Plugin>,
          &detail::create<Plugin, Interface>};
}

// --- the manifest ---

namespace detail {

constexpr uint64_t fold(uint64_t hash, uint64_t value) {
  for (int i = 0; i < 8; ++i) hash = (hash ^ ((value >> (8 * i)) & 255)) * 1099511628211ULL;
  return hash;
}

/// Sizes and alignments of the LibTorch types that cross the boundary by layout.
constexpr uint64_t layout_fingerprint() {
  uint64_t h = 1469598103934665603ULL;
  for (uint64_t v : {sizeof(c10::TensorImpl), alignof(c10::TensorImpl), sizeof(c10::StorageImpl),
                     alignof(c10::StorageImpl), sizeof(c10::TensorOptions), sizeof(c10::Scalar),
                     sizeof(c10::Device)}) {
    h = fold(h, v);
  }
  return h;
}

#define ZEROLAB_DETAIL_STRING(x) #x
#define ZEROLAB_DETAIL_VALUE(x) ZEROLAB_DETAIL_STRING(x)

constexpr std::string_view kSanitizers =
#if defined(__SANITIZE_ADDRESS__)
    "address";
#elif defined(__SANITIZE_THREAD__)
    "thread";
#else
    "none";
#endif

#ifdef _GLIBCXX_DEBUG
inline constexpr std::string_view kGlibcxxDebug = "true";
#else
inline constexpr std::string_view kGlibcxxDebug = "false";
#endif

/// Writes the manifest to `out` (null: only measures); returns its length.
constexpr size_t write_manifest(const PluginEntry* entries, size_t count, char* out) {
  size_t n = 0;
  const auto put = [&](std::string_view text) {
    for (char c : text) {
      if (out != nullptr) out[n] = c;
      ++n;
    }
  };
  const auto text = [&](std::string_view key, std::string_view value) {
    put(key), put(" = \""), put(value), put("\"\n");
  };
  const auto word = [&](std::string_view key, std::string_view value) {
    put(key), put(" = "), put(value), put("\n");
  };
  put("[build]\n");
  text("sdk_abi",
       ZEROLAB_DETAIL_VALUE(ZEROLAB_SDK_ABI_MAJOR) "." ZEROLAB_DETAIL_VALUE(ZEROLAB_SDK_ABI_MINOR));
  text("torch", ZEROLAB_DETAIL_VALUE(TORCH_VERSION_MAJOR) "." ZEROLAB_DETAIL_VALUE(
                    TORCH_VERSION_MINOR) "." ZEROLAB_DETAIL_VALUE(TORCH_VERSION_PATCH));
  char hex[16] = {};
  for (int i = 0; i < 16; ++i)
    hex[i] = "0123456789abcdef"[(layout_fingerprint() >> (60 - 4 * i)) & 15];
  text("layout", {hex, 16});
  text("cxx11_abi", ZEROLAB_DETAIL_VALUE(_GLIBCXX_USE_CXX11_ABI));
  word("glibcxx_debug", kGlibcxxDebug);
  text("sanitizers", kSanitizers);
  text("compiler", __VERSION__);
  text("build_type", ZEROLAB_BUILD_TYPE);
  text("torch_build_id", ZEROLAB_TORCH_BUILD_ID);
  for (size_t i = 0; i < count; ++i) {
    const PluginEntry& e = entries[i];
    put("[[plugin]]\n");
    text("id", e.id), text("version", e.version), text("summary", e.summary),
        text("source", e.source);
    const uint32_t revision = kKindRevisions[static_cast<size_t>(e.kind)];
    const char digits[2] = {static_cast<char>('0' + revision / 10),
                            static_cast<char>('0' + revision % 10)};
    word("kind_revision",
         revision < 10 ? std::string_view(digits + 1, 1) : std::string_view(digits, 2));
  }
  return n;
}

template <size_t size>
consteval std::array<char, size + 1> manifest(const PluginEntry* entries, size_t count) {
  std::array<char, size + 1> text{};
  write_manifest(entries, count, text.data());
  return text;
}

}  // namespace detail
}  // namespace zerolab

#define ZEROLAB_PLUGIN(...)                                                                       \
  namespace {                                                                                     \
  constexpr ::zerolab::PluginEntry kZerolabEntries[] = {__VA_ARGS__};                             \
  constexpr size_t kZerolabCount = sizeof(kZerolabEntries) / sizeof(kZerolabEntries[0]);          \
  [[gnu::section(".zerolab"), gnu::used, gnu::retain]] constinit const auto kZerolabManifest =    \
      ::zerolab::detail::manifest<::zerolab::detail::write_manifest(                              \
          kZerolabEntries, kZerolabCount, nullptr)>(kZerolabEntries, kZerolabCount);              \
  }                                                                                               \
  extern "C" __attribute__((visibility("default"))) const ::zerolab::PluginTable*                 \
  zerolab_plugin();                                                                               \
  extern "C" const ::zerolab::PluginTable* zerolab_plugin() {                                     \
    static const ::zerolab::PluginTable kTable{                                                   \
        ::zerolab::kPluginMagic, sizeof(::zerolab::PluginTable), kZerolabEntries, kZerolabCount}; \
    return &kTable;                                                                               \
  }                                                                                               \
  static_assert(true)
