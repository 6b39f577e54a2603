#include "store/element_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace zerolab {

namespace {

/// An IEEE-like number of 16 bits.
double small_float(uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7fff) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  double value = 0;
  if (exponent == (1 << exponent_bits) - 1) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

/// One type of elements: the unsigned number of its bits, the bits of its exponent (all of them set
/// where it is not finite; 0: always finite), and its distance.
template <typename WordType>
struct Elements {
  using Word = WordType;
  Word exponent;
  double (*distance)(Word a, Word b);
};

double distance_of(double a, double b) {
  if (std::isnan(a) && std::isnan(b)) return 0;
  const double distance = a == b ? 0 : std::abs(a - b);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

/// Exact before it is rounded, which a difference of doubles would not be.
template <typename Whole, typename Word>
double whole_distance(Word a, Word b) {
  const auto x = static_cast<Whole>(a), y = static_cast<Whole>(b);
  return static_cast<double>(x > y ? static_cast<Word>(a - b) : static_cast<Word>(b - a));
}

/// Calls f with the Elements of a type.
template <typename F>
auto with_elements(TensorDtype dtype, const F& f) {
  switch (dtype) {
    case TensorDtype::kFloat64:
      return f(Elements<uint64_t>{0x7ff0000000000000, [](uint64_t a, uint64_t b) {
                                    return distance_of(std::bit_cast<double>(a),
                                                       std::bit_cast<double>(b));
                                  }});
    case TensorDtype::kFloat16:
      return f(Elements<uint16_t>{0x7c00, [](uint16_t a, uint16_t b) {
                                    return distance_of(small_float(a, 5), small_float(b, 5));
                                  }});
    case TensorDtype::kBFloat16:
      return f(Elements<uint16_t>{0x7f80, [](uint16_t a, uint16_t b) {
                                    return distance_of(small_float(a, 8), small_float(b, 8));
                                  }});
    case TensorDtype::kInt64:
      return f(Elements<uint64_t>{0, whole_distance<int64_t, uint64_t>});
    case TensorDtype::kInt32:
      return f(Elements<uint32_t>{0, whole_distance<int32_t, uint32_t>});
    case TensorDtype::kUInt8:
      return f(Elements<uint8_t>{0, whole_distance<uint8_t, uint8_t>});
    case TensorDtype::kFloat32:
      break;
  }
  return f(Elements<uint32_t>{0x7f800000, [](uint32_t a, uint32_t b) {
                                return distance_of(std::bit_cast<float>(a),
                                                   std::bit_cast<float>(b));
                              }});
}

template <typename Word>
Word word_at(const void* elements, int64_t i) {
  Word word;
  std::memcpy(&word, static_cast<const char*>(elements) + i * static_cast<int64_t>(sizeof word),
              sizeof word);
  return word;
}

}  // namespace

int64_t first_not_finite(TensorDtype dtype, const void* elements, int64_t count) {
  return with_elements(dtype, [&](auto type) -> int64_t {
    using Word = typename decltype(type)::Word;
    if (type.exponent == 0) return -1;
    const auto is_bad = [&](int64_t i) {
      return (word_at<Word>(elements, i) & type.exponent) == type.exponent;
    };
    constexpr int64_t kBlock = 1024;  // a loop of known length and without a way out is vectorized
    int64_t begin = 0;
    for (; begin + kBlock <= count; begin += kBlock) {
      Word found = 0;
      for (int64_t i = 0; i < kBlock; ++i) found |= static_cast<Word>(is_bad(begin + i));
      if (found != 0) break;
    }
    for (int64_t i = begin; i < count; ++i) {
      if (is_bad(i)) return i;
    }
    return -1;
  });
}

ElementDifferences compare_elements(TensorDtype dtype, const void* a, const void* b,
                                    int64_t count) {
  ElementDifferences found;
  if (std::memcmp(a, b, static_cast<size_t>(count * dtype_size(dtype))) == 0) return found;
  with_elements(dtype, [&](auto type) {
    using Word = typename decltype(type)::Word;
    for (int64_t i = 0; i < count; ++i) {
      const Word x = word_at<Word>(a, i), y = word_at<Word>(b, i);
      if (x == y) continue;
      if (found.differing++ == 0) found.first = i;
      found.largest = std::max(found.largest, type.distance(x, y));
    }
  });
  return found;
}

}  // namespace zerolab
