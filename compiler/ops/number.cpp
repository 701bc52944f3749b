// Rounding between element types. f16 and bf16 are rounded straight from double (a detour over float would round twice).
#include "compiler/ops/number.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tamp::ops {
namespace {

// x on the grid of a float type with `fraction_bits` explicit bits, smallest normal 2^min_exponent and largest value
// below 2^(max_exponent + 1).
double round_to_grid(double x, int fraction_bits, int min_exponent, int max_exponent) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), min_exponent);
  const double ulp = std::ldexp(1.0, exponent - fraction_bits);
  const double rounded = std::nearbyint(x / ulp) * ulp;
  if (std::fabs(rounded) >= std::ldexp(1.0, max_exponent + 1)) return std::copysign(HUGE_VAL, x);
  return rounded;
}

double round_f16(double x) { return round_to_grid(x, 10, -14, 15); }
double round_bf16(double x) { return round_to_grid(x, 7, -126, 127); }

// x86's conversion to a signed integer of `bits` bits: the smallest one stands for everything that does not fit.
int64_t truncate_or_min(double x, int bits) {
  const double limit = std::ldexp(1.0, bits - 1);
  if (x > -limit - 1 && x < limit) return static_cast<int64_t>(x);
  if (x == -limit) return static_cast<int64_t>(x);  // 2^63 + 1 is no double
  return static_cast<int64_t>(-limit);
}

}  // namespace

double real_of(Half x) {
  const int exponent = (x.bits >> 10) & 0x1f;
  const int fraction = x.bits & 0x3ff;
  const double sign = (x.bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 0x1f) return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction + 0x400, exponent - 25);
}

double real_of(Bfloat x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

Half half_of(double x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return Half{0x7e00};
  const double magnitude = std::fabs(round_f16(x));
  if (std::isinf(magnitude)) return Half{static_cast<uint16_t>(sign | 0x7c00)};
  if (magnitude < std::ldexp(1.0, -14)) return Half{static_cast<uint16_t>(sign | static_cast<int>(std::ldexp(magnitude, 24)))};
  const int exponent = std::ilogb(magnitude);
  const int fraction = static_cast<int>(std::ldexp(magnitude, 10 - exponent)) - 0x400;
  return Half{static_cast<uint16_t>(sign | ((exponent + 15) << 10) | fraction)};
}

Bfloat bfloat_of(double x) {
  if (std::isnan(x)) return Bfloat{0x7fc0};
  return Bfloat{static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(round_bf16(x))) >> 16)};
}

double round_real(double x, DType to) {
  if (to == DType::f32) return static_cast<float>(x);
  if (to == DType::f16) return round_f16(x);
  if (to == DType::bf16) return round_bf16(x);
  return x;
}

int64_t wrap_whole(int64_t x, DType to) {
  switch (to) {
    case DType::i8: return static_cast<int8_t>(x);
    case DType::i16: return static_cast<int16_t>(x);
    case DType::i32: return static_cast<int32_t>(x);
    case DType::u8: return static_cast<uint8_t>(x);
    case DType::u16: return static_cast<uint16_t>(x);
    case DType::u32: return static_cast<uint32_t>(x);
    case DType::boolean: return x != 0 ? 1 : 0;
    case DType::i64:
    case DType::u64: return x;
    case DType::f32:
    case DType::f64:
    case DType::f16:
    case DType::bf16: break;
  }
  TAMP_CHECK(false, "wrap_whole to a float type");
}

int64_t whole_of_real(double x, DType to) {
  if (to == DType::boolean) return x != 0 ? 1 : 0;  // NaN is not 0
  if (to == DType::i64 || to == DType::u32) return wrap_whole(truncate_or_min(x, 64), to);
  if (to != DType::u64) return wrap_whole(truncate_or_min(x, 32), to);
  const double two63 = std::ldexp(1.0, 63);
  if (x >= two63 && x < 2 * two63) return static_cast<int64_t>(static_cast<uint64_t>(x));
  return truncate_or_min(x, 64);
}

double real_of_whole(int64_t x, DType from, DType to) {
  if (from == DType::u64) {
    const auto bits = static_cast<uint64_t>(x);
    return to == DType::f32 ? static_cast<double>(static_cast<float>(bits)) : round_real(static_cast<double>(bits), to);
  }
  return to == DType::f32 ? static_cast<double>(static_cast<float>(x)) : round_real(static_cast<double>(x), to);
}

}  // namespace tamp::ops
