// Numbers that are added to scores to mask keys, as large as floats are and of both signs. Scores vanish beside them, so that weights are
// known: all keys of a query that are masked by the same number, and no key by a larger one, have the same weight.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

namespace tamp::test {

// Rows number 0 to count - 1, one behind the other, each of another kind, `keys` numbers each. Kinds from kOfLargest on have different
// numbers that are almost the least ones.
inline constexpr size_t kHardMasks = 12, kOfLargest = 11;
inline std::vector<float> hard_masks(size_t count, size_t keys) {
  constexpr float kLeast = std::numeric_limits<float>::lowest(), kInfinite = std::numeric_limits<float>::infinity();
  // What is added to keys 0, 2, .. and to keys 1, 3, ..
  constexpr std::array<std::array<float, 2>, kHardMasks> kKinds = {{{kLeast, kLeast},
                                                                    {kLeast, 0},
                                                                    {kLeast, -kInfinite},
                                                                    {-1e30F, -1e30F},
                                                                    {1e30F, 1e30F},
                                                                    {-1e30F, -kInfinite},
                                                                    {-kLeast, -kLeast},
                                                                    {-kLeast, kLeast},
                                                                    {1e30F, 0},
                                                                    {-3e9F, -3e9F},
                                                                    {0.5F, -0.5F},
                                                                    {-2.6e38F, -3.2e38F}}};
  std::vector<float> masks;
  for (size_t i = 0; i < count * keys; ++i) masks.push_back(kKinds[i / keys % kHardMasks][i % keys % 2]);
  return masks;
}

}  // namespace tamp::test
