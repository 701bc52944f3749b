#include "kernels/narrow.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>

namespace tamp::kernels {
namespace {

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

constexpr uint32_t kInfinity = 0x7f800000U, kOneHalf = 0x3f000000U;  // bits of floats,
constexpr uint32_t kHalfOverflow = 0x47800000U;                      // of 2^16, more than any half,
constexpr uint32_t kHalfNormal = 0x38800000U;                        // and of 2^-14, the smallest half that is normal

// The bits above the lowest `count`, rounded to nearest, ties to even.
uint32_t rounded(uint32_t bits, uint32_t count) { return (bits + (1U << (count - 1)) - 1 + (bits >> count & 1U)) >> count; }

// Millions of weights pass through here: no calls of the mathematical library, and choices without branches, which vectors can make.
uint16_t half_bits(float x) {
  const uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000U, magnitude = bits & 0x7fffffffU;
  const uint32_t normal = rounded(magnitude - (112U << 23), 13);  // may carry into the exponent, up to infinity
  // A subnormal half counts units of 2^-24, and so does the last place of floats from 0.5 to 1: adding 0.5 rounds to these units.
  const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5F) - kOneHalf;
  const uint32_t finite = magnitude >= kHalfNormal ? normal : subnormal;
  const uint32_t half = sign | (magnitude >= kHalfOverflow ? 0x7c00U : finite);
  return static_cast<uint16_t>(magnitude > kInfinity ? 0x7e00U : half);
}

}  // namespace

uint16_t half_of(float x) { return half_bits(x); }

uint32_t narrow_pair(Precision precision, float low, float high) {
  if (precision == Precision::fp16) return half_of(low) | static_cast<uint32_t>(half_of(high)) << 16;
  return bfloat_of(low) | static_cast<uint32_t>(bfloat_of(high)) << 16;
}

void halves_of(const float* values, int64_t count, float factor, uint16_t* halves) {
  for (int64_t i = 0; i < count; ++i) halves[i] = half_bits(values[i] * factor);
}

float float_of_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16, rest = static_cast<uint32_t>(half & 0x7fffU) << 13;
  if ((half & 0x7c00U) == 0x7c00U) return float_of(sign | kInfinity | rest);  // infinite or NaN
  return float_of(sign | bits_of(float_of(rest) * 0x1p112F));
}

uint16_t bfloat_of(float x) {
  const uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffffU) > kInfinity) return static_cast<uint16_t>(bits >> 16 | 0x40U);
  return static_cast<uint16_t>(rounded(bits, 16));
}

float float_of_bfloat(uint16_t bfloat) { return float_of(static_cast<uint32_t>(bfloat) << 16); }

namespace {

bool halves_hold_largest(float largest) {
  constexpr float kLargest = 65504, kSmallest = 0x1p-10F;
  return largest == 0 || (largest <= kLargest && largest >= kSmallest);
}

// The bits of the largest magnitude. Magnitudes are in the order of their bits, so the compiler can make vectors of this loop.
uint32_t largest_bits(const float* values, int64_t count) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, bits_of(values[i]) & 0x7fffffffU);
  return most;
}

std::span<const float> floats_in(const Bytes& bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// largest_bits of constants.
class LargestBits {
 public:
  uint32_t of(const TensorData& floats) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = bits_.find(floats.life()); found != bits_.end()) return found->second;
    }
    const std::shared_ptr<const Bytes> bytes = floats.hold();
    const std::span<const float> values = floats_in(*bytes);
    const uint32_t bits = largest_bits(values.data(), std::ssize(values));
    const std::lock_guard lock(mutex_);
    return bits_[floats.life()] = bits;
  }

 private:
  std::mutex mutex_;
  std::map<std::weak_ptr<const void>, uint32_t, std::owner_less<>> bits_;
};

}  // namespace

bool halves_hold(const TensorData& floats, float factor) {
  static LargestBits largest;
  const uint32_t most = largest.of(floats);
  if (most < kInfinity) return halves_hold_largest(std::abs(float_of(most) * factor));
  const std::shared_ptr<const Bytes> bytes = floats.hold();
  const std::span<const float> values = floats_in(*bytes);
  return halves_hold(values.data(), std::ssize(values), factor);
}

bool halves_hold(const float* values, int64_t count, float factor) {
  const uint32_t most = largest_bits(values, count);
  if (most < kInfinity) return halves_hold_largest(std::abs(float_of(most) * factor));
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float magnitude = std::abs(values[i] * factor);
    if (std::isfinite(magnitude))
      largest = std::max(largest, magnitude);
    else if (std::isfinite(values[i]))
      return false;
  }
  return halves_hold_largest(largest);
}

int half_exponent(std::span<const float> values) {
  const uint32_t most = largest_bits(values.data(), std::ssize(values));
  float largest = float_of(most);
  if (most >= kInfinity) {
    largest = 0;
    for (const float v : values) {
      if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
    }
  }
  int exponent = 0;
  std::frexp(largest, &exponent);                                                // largest < 2^exponent
  return std::max(exponent - 15, std::numeric_limits<float>::min_exponent - 1);  // the power is a normal number
}

float half_scale(std::span<const float> values) {
  constexpr float kMostSteps = 255, kRounded = 0x1p-19F;  // of some roundings to fp32
  const float largest = float_of(largest_bits(values.data(), std::ssize(values)));
  const float power = std::ldexp(1.0F, half_exponent(values));
  const bool is_one = std::all_of(values.begin(), values.end(), [&](float v) { return v == 0 || std::abs(v) == largest; });
  if (!std::isnormal(largest) || is_one) return power;  // one magnitude is rounded alike everywhere
  for (float steps = 2; steps <= kMostSteps; ++steps) {
    const float per_step = steps / largest;
    const bool all = std::isfinite(per_step) && std::all_of(values.begin(), values.end(), [&](float v) {
                       const float multiple = v * per_step;
                       return std::abs(multiple - std::rint(multiple)) <= kRounded * std::abs(multiple);
                     });
    if (all && std::isnormal(largest / steps)) return largest / steps;
  }
  return power;
}

std::optional<float> byte_scale(std::span<const float> values) {
  const float largest = float_of(largest_bits(values.data(), std::ssize(values)));
  if (largest == 0) return 1.0F;
  // One magnitude alone, which is rounded alike everywhere (half_scale): one step.
  const bool is_one = std::all_of(values.begin(), values.end(), [&](float v) { return v == 0 || std::abs(v) == largest; });
  const float step = is_one ? largest : half_scale(values), per_step = 1 / step;
  if (!std::isnormal(step) || !std::isfinite(per_step)) return std::nullopt;
  for (const float v : values) {
    const float multiple = v * per_step, whole = std::rint(multiple);
    const bool is_step = std::abs(multiple - whole) <= 0x1p-10F && whole >= -128 && whole <= 127;
    if (!is_step) return std::nullopt;
  }
  return step;
}

}  // namespace tamp::kernels
