// Element types as numbers, for the reference and the device alike: a value is computed as a double or, for integers and bool, as an
// int64_t (u64: uint64_t), and rounded or wrapped to its element type when it is stored.
//
// A float that does not fit an integer type becomes the integer that x86's conversion gives (ONNX leaves this open; numpy's test data
// have x86's values). bool is stored as a byte, and any byte but 0 reads as true.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/shared/functions.h"

namespace rk {

// The numbers of DType (compiler/ir/dtype.h).
enum ElementType : uint32_t { kF32, kF64, kF16, kBf16, kI8, kI16, kI32, kI64, kU8, kU16, kU32, kU64, kBool };

RK_FUNCTION uint64_t bits_of_double(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
RK_FUNCTION double double_of_bits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// `widened` makes a double of a float of kExponent and kFraction bits (f16: 5 and 10, bf16: 8 and 7); `narrowed` goes the other way round,
// to nearest, ties to even, and to infinity beyond the range. It narrows straight from double, since by way of float it would round twice.
template <int kExponent, int kFraction>
RK_FUNCTION double widened(uint32_t bits) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  const uint64_t sign = static_cast<uint64_t>(bits >> (kExponent + kFraction) & 1u) << 63;
  const uint32_t exponent = bits >> kFraction & ((1u << kExponent) - 1), fraction = bits & ((1u << kFraction) - 1);
  if (exponent == 0) {  // zero or a subnormal number: `fraction` times the smallest one
    const double unit = double_of_bits(static_cast<uint64_t>(1023 + 1 - kBias - kFraction) << 52);
    const double magnitude = static_cast<double>(fraction) * unit;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint64_t wide = exponent == (1u << kExponent) - 1 ? 0x7ff : exponent + 1023 - kBias;
  return double_of_bits(sign | wide << 52 | static_cast<uint64_t>(fraction) << (52 - kFraction));
}
template <int kExponent, int kFraction>
RK_FUNCTION uint32_t narrowed(double x) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr uint64_t kInfinite = ((uint64_t{1} << kExponent) - 1) << kFraction;
  if (x != x) return static_cast<uint32_t>(kInfinite | uint64_t{1} << (kFraction - 1));
  const uint64_t bits = bits_of_double(x);
  const uint32_t sign = static_cast<uint32_t>(bits >> 63) << (kExponent + kFraction);
  const int wide = static_cast<int>(bits >> 52 & 0x7ff);
  if (wide == 0x7ff) return sign | static_cast<uint32_t>(kInfinite);
  if (wide == 0) return sign;  // far below the smallest
  const uint64_t significand = (bits & 0xfffffffffffffull) | uint64_t{1} << 52;
  const int exponent = wide - 1023 + kBias;
  int shift = 52 - kFraction;
  if (exponent <= 0) shift += 1 - exponent < 60 - shift ? 1 - exponent : 60 - shift;
  uint64_t kept = significand >> shift;
  const uint64_t rest = significand & ((uint64_t{1} << shift) - 1), half = uint64_t{1} << (shift - 1);
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  if (exponent > 0) kept += static_cast<uint64_t>(exponent - 1) << kFraction;  // the leading one of `kept` adds 1 to the exponent
  return sign | static_cast<uint32_t>(kept < kInfinite ? kept : kInfinite);
}

// Rounds towards zero; numbers that do not fit become the smallest integer of 64 (32) bits.
RK_FUNCTION int64_t truncated64(double x) {
  return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? static_cast<int64_t>(x) : INT64_MIN;
}
RK_FUNCTION int64_t truncated32(double x) { return x > -2147483649.0 && x < 2147483648.0 ? static_cast<int64_t>(x) : INT32_MIN; }

// The low bits of a whole number, as an integer type sees them; bool: whether it is not 0.
RK_FUNCTION int64_t wrapped(int64_t x, uint32_t type) {
  switch (type) {
    case kI8: return static_cast<int8_t>(x);
    case kI16: return static_cast<int16_t>(x);
    case kI32: return static_cast<int32_t>(x);
    case kU8: return static_cast<uint8_t>(x);
    case kU16: return static_cast<uint16_t>(x);
    case kU32: return static_cast<uint32_t>(x);
    case kBool: return x != 0 ? 1 : 0;
    default: return x;
  }
}

// A float as an element of an integer type: towards zero; bool: whether it is not 0 (NaN is not).
RK_FUNCTION int64_t whole_of_real(double x, uint32_t type) {
  if (type == kBool) return x != 0 ? 1 : 0;
  if (type == kI64 || type == kU32) return wrapped(truncated64(x), type);
  if (type != kU64) return wrapped(truncated32(x), type);
  if (x >= 9223372036854775808.0 && x < 18446744073709551616.0) return static_cast<int64_t>(static_cast<uint64_t>(x));
  return truncated64(x);
}

// The nearest value that a float type holds.
RK_FUNCTION double rounded(double x, uint32_t type) {
  switch (type) {
    case kF32: return static_cast<double>(static_cast<float>(x));
    case kF16: return widened<5, 10>(narrowed<5, 10>(x));
    case kBf16: return widened<8, 7>(narrowed<8, 7>(x));
    default: return x;
  }
}

// A number x of type T (double, int64_t, uint64_t) as the element of type `type` that it becomes: the bits, in the low bytes.
template <class T>
RK_FUNCTION uint64_t element_bits(T x, uint32_t type) {
  switch (type) {
    case kF32: {  // rounds once, also from 64-bit integers
      const float narrow = static_cast<float>(x);
      uint32_t bits;
      memcpy(&bits, &narrow, sizeof bits);
      return bits;
    }
    case kF64: return bits_of_double(static_cast<double>(x));
    case kF16: return narrowed<5, 10>(static_cast<double>(x));
    case kBf16: return narrowed<8, 7>(static_cast<double>(x));
    default: break;
  }
  if constexpr (functions::kIsReal<T>)
    return static_cast<uint64_t>(whole_of_real(x, type));
  else
    return static_cast<uint64_t>(wrapped(static_cast<int64_t>(x), type));
}

// The bits of an element as a number of type T. T = double reads elements of any type; an integer T reads no float types.
template <class T>
RK_FUNCTION T number_of_bits(uint64_t bits, uint32_t type) {
  if constexpr (functions::kIsReal<T>) {
    switch (type) {
      case kF32: {
        const auto narrow = static_cast<uint32_t>(bits);
        float x;
        memcpy(&x, &narrow, sizeof x);
        return static_cast<T>(x);
      }
      case kF64: return double_of_bits(bits);
      case kF16: return widened<5, 10>(static_cast<uint32_t>(bits));
      case kBf16: return widened<8, 7>(static_cast<uint32_t>(bits));
      case kU64: return static_cast<T>(bits);
      default: return static_cast<T>(wrapped(static_cast<int64_t>(bits), type));
    }
  } else {
    return static_cast<T>(wrapped(static_cast<int64_t>(bits), type));
  }
}

// The result of one step of a chain, rounded or wrapped to type `type`, as the next step reads it.
template <class T>
RK_FUNCTION T settled(T x, uint32_t type) {
  if constexpr (functions::kIsReal<T>)
    return type == kBool ? static_cast<T>(x != T(0) ? 1 : 0) : rounded(x, type);
  else
    return static_cast<T>(wrapped(static_cast<int64_t>(x), type));
}

}  // namespace rk
