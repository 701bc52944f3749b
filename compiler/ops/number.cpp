// Element types as numbers: kernels/shared/numbers.h, which the device has too, with the compiler's names for types.
#include "compiler/ops/number.h"

#include <cstring>

#include "compiler/ops/ops.h"
#include "kernels/shared/numbers.h"

namespace tamp::ops {

Bytes f32_bytes(DType dtype, const Bytes& elements) {
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
