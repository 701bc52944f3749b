#include "compiler/frontend/narrow_types.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "compiler/support/error.h"

namespace tamp::frontend {
namespace {

// The fields of a small float: sign, exponent, fraction.
struct FloatFields {
  int exponent_bits, fraction_bits, bias;
};

FloatFields fields_of(NarrowType type) {
  switch (type) {
    case NarrowType::e4m3fn: return {4, 3, 7};
    case NarrowType::e4m3fnuz: return {4, 3, 8};
    case NarrowType::e5m2: return {5, 2, 15};
    case NarrowType::e5m2fnuz: return {5, 2, 16};
    case NarrowType::e2m1: return {2, 1, 1};
    default: TAMP_CHECK(false, "no float of sign, exponent and fraction");
  }
}

// What a bit pattern stands for.
float number_of(NarrowType type, int pattern) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  if (type == NarrowType::e8m0) return pattern == 0xff ? kNan : std::ldexp(1.0F, pattern - 127);  // no sign and no fraction
  const FloatFields fields = fields_of(type);
  const int fraction = pattern & ((1 << fields.fraction_bits) - 1);
  const int exponent = pattern >> fields.fraction_bits & ((1 << fields.exponent_bits) - 1);
  const bool is_negative = (pattern >> (fields.fraction_bits + fields.exponent_bits) & 1) != 0;
  if ((type == NarrowType::e4m3fnuz || type == NarrowType::e5m2fnuz) && pattern == 0x80) return kNan;
  if (type == NarrowType::e4m3fn && (pattern & 0x7f) == 0x7f) return kNan;
  if (type == NarrowType::e5m2 && exponent == 31) {
    const float infinity = std::numeric_limits<float>::infinity();
    return fraction != 0 ? kNan : is_negative ? -infinity : infinity;
  }
  const int whole = exponent == 0 ? fraction : fraction + (1 << fields.fraction_bits);
  const float size = std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - fields.bias - fields.fraction_bits);
  return is_negative ? -size : size;
}

template <class Number>
Bytes unpacked_as(NarrowType type, const Bytes& packed, int64_t count, const auto& number_of_pattern) {
  const auto bits = static_cast<size_t>(bits_of(type)), in_byte = 8 / bits;
  std::array<Number, 256> numbers{};
  for (size_t pattern = 0; pattern < size_t{1} << bits; ++pattern) numbers[pattern] = number_of_pattern(static_cast<int>(pattern));
  Bytes bytes = zero_bytes(static_cast<size_t>(count) * sizeof(Number));
  auto* const out = reinterpret_cast<Number*>(bytes.data());
  const size_t mask = (size_t{1} << bits) - 1;
  for (size_t i = 0, at = 0; i < static_cast<size_t>(count); ++at) {
    auto byte = static_cast<size_t>(packed[at]);
    for (const size_t end = std::min(i + in_byte, static_cast<size_t>(count)); i < end; ++i, byte >>= bits) out[i] = numbers[byte & mask];
  }
  return bytes;
}

}  // namespace

NarrowType narrow_of_onnx(int onnx_type) {
  const bool is_narrow = onnx_type >= static_cast<int>(NarrowType::e4m3fn) && onnx_type <= static_cast<int>(NarrowType::i2);
  return is_narrow ? static_cast<NarrowType>(onnx_type) : NarrowType::none;
}

int64_t bits_of(NarrowType type) {
  switch (type) {
    case NarrowType::u4:
    case NarrowType::i4:
    case NarrowType::e2m1: return 4;
    case NarrowType::u2:
    case NarrowType::i2: return 2;
    default: return 8;
  }
}

bool is_float(NarrowType type) {
  return type != NarrowType::none && type != NarrowType::u4 && type != NarrowType::i4 && type != NarrowType::u2 && type != NarrowType::i2;
}

DType held_as(NarrowType type) {
  if (is_float(type)) return DType::f32;
  return type == NarrowType::u4 || type == NarrowType::u2 ? DType::u8 : DType::i8;
}

float lowest_of(NarrowType type) { return type == NarrowType::i4 ? -8.0F : type == NarrowType::i2 ? -2.0F : 0.0F; }

float highest_of(NarrowType type) {
  switch (type) {
    case NarrowType::u4: return 15.0F;
    case NarrowType::i4: return 7.0F;
    case NarrowType::u2: return 3.0F;
    case NarrowType::i2: return 1.0F;
    default: TAMP_CHECK(false, "no narrow integer");
  }
}

int64_t packed_bytes_of(NarrowType type, int64_t count) {
  const int64_t in_byte = 8 / bits_of(type);
  return (count + in_byte - 1) / in_byte;
}

Bytes unpacked(NarrowType type, const Bytes& packed, int64_t count) {
  if (is_float(type)) return unpacked_as<float>(type, packed, count, [&](int pattern) { return number_of(type, pattern); });
  const int half = 1 << (bits_of(type) - 1);
  const bool has_sign = held_as(type) == DType::i8;
  return unpacked_as<uint8_t>(type, packed, count,
                              [&](int pattern) { return static_cast<uint8_t>(has_sign ? (pattern ^ half) - half : pattern); });
}

}  // namespace tamp::frontend
