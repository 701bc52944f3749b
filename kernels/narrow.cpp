#include "kernels/narrow.h"

#include <cmath>
#include <cstring>

namespace tamp::kernels {

uint16_t half_of(float x) {
  const float magnitude = std::abs(x);
  if (std::isnan(x)) return 0x7e00U;
  if (magnitude >= 65520.0F) return std::signbit(x) ? 0xfc00U : 0x7c00U;
  int exponent = 0;
  std::frexp(magnitude, &exponent);               // magnitude < 2^exponent
  const int unit = std::max(exponent - 11, -24);  // ten bits behind the first, and the smallest is 2^-24
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -unit)));
  // Counted in units of its binade the bits carry over into the exponent by themselves.
  const uint32_t bits = units < 1024 ? units : (static_cast<uint32_t>(unit + 24) << 10) + units;
  return static_cast<uint16_t>(bits | (std::signbit(x) ? 0x8000U : 0U));
}

uint16_t bfloat_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7f800000U) != 0x7f800000U) bits += 0x7fffU + (bits >> 16 & 1U);
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace tamp::kernels
