#include "store/element_values.h"

#include <cmath>
#include <limits>
#include <vector>

#include "catch.h"

namespace zerolab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <typename Value>
ElementDifferences compare(TensorDtype dtype, const std::vector<Value>& a,
                           const std::vector<Value>& b) {
  REQUIRE(dtype_size(dtype) == static_cast<int64_t>(sizeof(Value)));
  return compare_elements(dtype, a.data(), b.data(), static_cast<int64_t>(a.size()));
}

template <typename Value>
int64_t first_bad(TensorDtype dtype, const std::vector<Value>& values) {
  return first_not_finite(dtype, values.data(), static_cast<int64_t>(values.size()));
}

}  // namespace

TEST_CASE("differing elements are counted, and the largest difference is found") {
  const auto found = compare<float>(TensorDtype::kFloat32, {1, 2, 3, 4, 5}, {1, 2.5F, 3, 0, 5.25F});
  CHECK(found.differing == 3);
  CHECK(found.first == 1);
  CHECK(found.largest == 4);
  const auto equal = compare<double>(TensorDtype::kFloat64, {1, kNan}, {1, kNan});
  CHECK(equal.differing == 0);
  CHECK(equal.first == -1);
  CHECK(equal.largest == 0);
}

TEST_CASE("another zero or another NaN differs by 0, a number and none by infinity") {
  CHECK(compare<double>(TensorDtype::kFloat64, {0.0}, {-0.0}).differing == 1);
  CHECK(compare<double>(TensorDtype::kFloat64, {0.0}, {-0.0}).largest == 0);
  CHECK(compare<double>(TensorDtype::kFloat64, {kNan}, {-kNan}).differing == 1);
  CHECK(compare<double>(TensorDtype::kFloat64, {kNan}, {-kNan}).largest == 0);
  CHECK(compare<double>(TensorDtype::kFloat64, {1}, {kNan}).largest == kInfinity);
  CHECK(compare<double>(TensorDtype::kFloat64, {kInfinity}, {kNan}).largest == kInfinity);
  CHECK(compare<double>(TensorDtype::kFloat64, {kInfinity}, {-kInfinity}).largest == kInfinity);
}

TEST_CASE("numbers of 16 bits are worth what IEEE 754 and bfloat16 say") {
  const auto half = [](uint16_t bits) {
    return compare<uint16_t>(TensorDtype::kFloat16, {bits}, {0}).largest;
  };
  CHECK(half(0x3c00) == 1);
  CHECK(half(0xc000) == 2);
  CHECK(half(0x7bff) == 65504);
  CHECK(half(0x0001) == std::ldexp(1, -24));
  CHECK(half(0x0400) == std::ldexp(1, -14));
  CHECK(half(0x3555) == 0.333251953125);
  const auto brain = [](uint16_t bits) {
    return compare<uint16_t>(TensorDtype::kBFloat16, {bits}, {0}).largest;
  };
  CHECK(brain(0x3f80) == 1);
  CHECK(brain(0xc040) == 3);
  CHECK(brain(0x0001) == std::ldexp(1, -133));
}

TEST_CASE("whole numbers differ by their exact distance") {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  CHECK(
      compare<int64_t>(TensorDtype::kInt64, {(int64_t{1} << 60) + 1}, {int64_t{1} << 60}).largest ==
      1);
  CHECK(compare<int64_t>(TensorDtype::kInt64, {kLeast}, {0}).largest == std::ldexp(1, 63));
  CHECK(compare<int32_t>(TensorDtype::kInt32, {-3}, {4}).largest == 7);
  CHECK(compare<uint8_t>(TensorDtype::kUInt8, {255}, {0}).largest == 255);
}

TEST_CASE("the first element that is infinite or no number is found in every type") {
  CHECK(first_bad<float>(TensorDtype::kFloat32, {1, -2, 3.4e38F, 0}) == -1);
  CHECK(first_bad<float>(TensorDtype::kFloat32, {1, -INFINITY, NAN}) == 1);
  CHECK(first_bad<double>(TensorDtype::kFloat64, {1, 1e308, kNan}) == 2);
  CHECK(first_bad<uint16_t>(TensorDtype::kFloat16, {0x7bff, 0xfbff}) == -1);
  CHECK(first_bad<uint16_t>(TensorDtype::kFloat16, {0x7c00}) == 0);
  CHECK(first_bad<uint16_t>(TensorDtype::kBFloat16, {0x7f7f, 0xffc0}) == 1);
  CHECK(first_bad<int64_t>(TensorDtype::kInt64, {-1, 0x7ff0000000000000}) == -1);
  CHECK(first_bad<uint8_t>(TensorDtype::kUInt8, {255}) == -1);
}

}  // namespace zerolab
