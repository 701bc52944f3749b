// Element types as numbers: kernels/shared/numbers.h, which the device has too, with the compiler's names for types.
#include "compiler/ops/number.h"

#include <cstring>

#include "compiler/ops/ops.h"
#include "kernels/shared/numbers.h"

namespace tamp::ops {

namespace {

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

// The bits of the float that a half is. Without branches, so that the compiler can make vectors of the loop.
uint32_t wide_bits(Half half) {
  constexpr uint32_t kInfinite = 0x1fU << 23, kNormal = 1U << 23, kBias = 112U << 23, kQuiet = 1U << 22;
  const uint32_t sign = (half.bits & 0x8000U) << 16, rest = (half.bits & 0x7fffU) << 13, units = rest + kBias + kNormal;
  float scaled;  // a subnormal half is 2^-14 less than the normal one with its fraction
  std::memcpy(&scaled, &units, sizeof scaled);
  const uint32_t finite = rest >= kNormal ? rest + kBias : bits_of(scaled - 0x1p-14F);
  const uint32_t special = rest | 0xffU << 23 | (rest > kInfinite ? kQuiet : 0);
  return sign | (rest >= kInfinite ? special : finite);
}

uint32_t wide_bits(Bfloat bfloat) {
  const uint32_t bits = static_cast<uint32_t>(bfloat.bits) << 16;
  return bits | ((bits & 0x7fffffffU) > 0xffU << 23 ? 1U << 22 : 0);
}

template <class Stored>
Bytes widened(const Bytes& elements) {
  const size_t count = elements.size() / sizeof(Stored);
  Bytes wide = zero_bytes(count * sizeof(float));
  const std::byte* const from = elements.data();
  std::byte* const to = wide.data();
  for (size_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, from + i * sizeof stored, sizeof stored);
    const uint32_t bits = wide_bits(stored);
    std::memcpy(to + i * sizeof bits, &bits, sizeof bits);
  }
  return wide;
}

}  // namespace

Bytes f32_bytes(DType dtype, const Bytes& elements) {
  if (dtype == DType::f16) return widened<Half>(elements);
  if (dtype == DType::bf16) return widened<Bfloat>(elements);
  Bytes wide;
  with_storage(dtype, [&](auto stored) {
    const size_t count = elements.size() / sizeof stored;
    wide.resize(count * sizeof(float));
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(&stored, elements.data() + i * sizeof stored, sizeof stored);
      const auto value = decode<float>(stored);
      std::memcpy(wide.data() + i * sizeof value, &value, sizeof value);
    }
  });
  return wide;
}

double real_of(Half x) { return rk::widened<5, 10>(x.bits); }
double real_of(Bfloat x) { return rk::widened<8, 7>(x.bits); }
Half half_of(double x) { return Half{static_cast<uint16_t>(rk::narrowed<5, 10>(x))}; }
Bfloat bfloat_of(double x) { return Bfloat{static_cast<uint16_t>(rk::narrowed<8, 7>(x))}; }

double round_real(double x, DType to) { return rk::rounded(x, static_cast<uint32_t>(to)); }

int64_t wrap_whole(int64_t x, DType to) {
  TAMP_CHECK(!is_float(to), "wrap_whole to a float type");
  return rk::wrapped(x, static_cast<uint32_t>(to));
}

int64_t whole_of_real(double x, DType to) { return rk::whole_of_real(x, static_cast<uint32_t>(to)); }

double real_of_whole(int64_t x, DType from, DType to) {
  if (from == DType::u64) {
    const auto bits = static_cast<uint64_t>(x);
    return to == DType::f32 ? static_cast<double>(static_cast<float>(bits)) : round_real(static_cast<double>(bits), to);
  }
  return to == DType::f32 ? static_cast<double>(static_cast<float>(x)) : round_real(static_cast<double>(x), to);
}

}  // namespace tamp::ops
