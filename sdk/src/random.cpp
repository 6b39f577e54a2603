#include "zerolab/random.h"

#include <ATen/CPUGeneratorImpl.h>

namespace zerolab {
namespace {

/// Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014 (the
/// finalizer of splitmix64).
uint64_t splitmix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t mix_key(std::initializer_list<uint64_t> parts) {
  uint64_t key = 0;
  for (uint64_t part : parts) key = splitmix(key ^ splitmix(part));
  return key;
}

uint64_t name_key(std::string_view name) {
  uint64_t hash = 14695981039346656037ULL;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

at::Generator make_generator(uint64_t key) {
  return at::make_generator<at::CPUGeneratorImpl>(key);
}

}  // namespace zerolab
