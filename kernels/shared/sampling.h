// How a token is drawn from scores, for the reference and the device alike: the same token from the same scores everywhere, whatever the
// order in which elements are looked at. So all that is added up is whole numbers.
//
// Of a score its distance to the largest one counts, in steps of 2^-24 and up to 64: farther than that, or NaN, is never drawn. An
// element's mass is exp(-distance) in steps of 2^-40. Kept are elements up to a distance: with top-k the least at which k are kept, then
// with top-p the least at which so much of the mass is kept. (Equal distances are kept or not together.) Of the kept ones in their order,
// with a random number from 0 to their mass, the token is the one that the number falls on.
//
// Example: scores 2, 1, 1, -70 at temperature 1. Distances are 0, 1, 1 (times 2^24), and too far; masses 1, 0.368, 0.368, 0. top-k 2 keeps
// three of them. A random number of 0.6 of the mass 1.736 is 1.04, which falls on the second.
#pragma once

#include <cstdint>

#include "kernels/shared/functions.h"

namespace rk::sampling {

inline constexpr uint32_t kTooFar = 1u << 30;
inline constexpr int kDistanceBits = 30, kMassBits = 40;

// A score of a word that was seen is divided by the penalty, or multiplied where it is negative.
RK_FUNCTION float penalised(float score, bool seen, float penalty) {
  if (!seen) return score;
  return score > 0 ? score / penalty : score * penalty;
}

// Of scores that are divided by the temperature.
RK_FUNCTION uint32_t distance(float score, float largest) {
  const float below = largest - score;
  if (!(below < 64.0f)) return kTooFar;  // NaN, too
  return static_cast<uint32_t>(below * 16777216.0f);
}

// 2^40 * exp(-distance / 2^24), by whole numbers alone: 2^(whole + fraction), the second by a polynomial in steps of 2^-30.
RK_FUNCTION uint64_t mass(uint32_t distance) {
  if (distance >= kTooFar) return 0;
  const uint64_t exponent = (static_cast<uint64_t>(distance) * 0x171547653ull) >> 32;  // times log2(e), in steps of 2^-24
  const uint32_t halvings = static_cast<uint32_t>(exponent >> 24) + 1;
  const uint64_t fraction = (1u << 24) - (exponent & 0xffffffu);  // 2^-exponent is 2^(fraction - halvings)
  uint64_t power = 2016424;                                       // 1e-7 of the value off, and exact at both ends
  constexpr uint64_t kFactors[] = {9657144, 59932748, 257869505, 744266003, 1073741824};
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int n = 0; n < 5; ++n) power = ((power * fraction) >> 24) + kFactors[n];
  return halvings > 40 ? 0 : (power << 10) >> halvings;
}

// The part of a mass that top-p wants, at least 1.
RK_FUNCTION uint64_t wanted_mass(uint64_t total, float top_p) {
  const uint64_t share = static_cast<uint64_t>(top_p * 16777216.0f);
  const uint64_t part = (total >> 24) * share + (((total & 0xffffffu) * share) >> 24);
  return part > 0 ? part : 1;
}
RK_FUNCTION bool cuts_count(int64_t top_k, uint32_t words) { return top_k > 0 && top_k < static_cast<int64_t>(words); }
RK_FUNCTION bool cuts_mass(float top_p) { return top_p > 0 && top_p < 1; }

// Philox 4x32-10 (Salmon et al., 2011), of which two of four numbers are taken: key = the seed, counter = the number of the draw.
RK_FUNCTION uint64_t random_bits(uint64_t seed, uint64_t number) {
  uint32_t c[4] = {static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = static_cast<uint64_t>(c[0]) * 0xd2511f53u, b = static_cast<uint64_t>(c[2]) * 0xcd9e8d57u;
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(a)};
    for (int i = 0; i < 4; ++i) c[i] = next[i];
    key[0] += 0x9e3779b9u;
    key[1] += 0xbb67ae85u;
  }
  return static_cast<uint64_t>(c[1]) << 32 | c[0];
}

// The upper half of the product: bits / 2^64 of the total.
RK_FUNCTION uint64_t share_of(uint64_t bits, uint64_t total) {
  const uint64_t high = bits >> 32, low = bits & 0xffffffffu, total_high = total >> 32, total_low = total & 0xffffffffu;
  const uint64_t carried = ((low * total_low) >> 32) + (high * total_low & 0xffffffffu) + low * total_high;
  return high * total_high + (high * total_low >> 32) + (carried >> 32);
}

}  // namespace rk::sampling
