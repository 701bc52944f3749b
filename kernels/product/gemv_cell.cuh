// Weights as they lie in the ring of gemv_row.cuh and row_feed_forward.cuh: cells of 8 columns by 32 k, or of 16 columns by 16 k, of which
// a lane has eight weights. It wants them as four pairs of fp16, operands B of mma_f16: of the first kind all of one column, of the second
// kind two pairs of one column and two of another.
//
// kCellHalves: 16 bytes for each lane, one lane's behind the other's.
// Quantised weights that are step * (low + u), u a whole number of 8 or 4 bits, one step and low for each column of a cell: first the u of
// all lanes, 8 or 4 bytes each, then for each column its step in fp16; with kCellBytesFrom and kCellNibblesFrom behind each step -low, else
// low is -128 or -8. A lane's u lie so that pairs come out of a word by one mask: with four bits the pairs (0, 4), (1, 5), (2, 6), (3, 7)
// are neighbours in k, with bytes (0, 2) and (1, 3) of each word.
// 0x6400 | u is 1024 + u in fp16, and (0x6400 | 16 u) / 16 - 64 is u. So a pair of weights takes a mask, a sum and a product, and the
// product is rounded as DequantizeLinear of fp16 rounds it.
//
// Example: u = 5 with step 0.25 and low -8 is -0.75. Lane 13 of a cell of nibbles reads word 13, and the step at byte 128 + 2 * 3.
#pragma once

#include "kernels/product/numbers.cuh"
#include "kernels/vdevice/half.cuh"

namespace rk {

// Both halves of the lower 16 bits, and of the upper ones.
RK_INLINE uint32_t lower_twice(uint32_t pair) { return pair & 0xffffu | pair << 16; }
RK_INLINE uint32_t upper_twice(uint32_t pair) { return pair >> 16 | pair & 0xffff0000u; }

// A lane's eight weights of a cell, as they lie there. WIDE: a cell of 16 columns by 16 k.
template <int CELL, bool WIDE>
struct GemvCellWeights {
  static constexpr bool kIsBytes = CELL == kCellBytes || CELL == kCellBytesFrom,
                        kHasLow = CELL == kCellBytesFrom || CELL == kCellNibblesFrom;
  static constexpr int kWords = kIsBytes ? 2 : 1, kSteps = WIDE ? 2 : 1, kRegisters = kWords + kSteps;
  uint32_t words[kWords], steps[kSteps];

  RK_INLINE void clear() {
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = 0u;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) steps[i] = 0u;
  }
  RK_INLINE void load(const char* cell, int lane) {
    if constexpr (kIsBytes) {
      const uint2 v = reinterpret_cast<const uint2*>(cell)[lane];
      words[0] = v.x, words[1] = v.y;
    } else {
      words[0] = reinterpret_cast<const uint32_t*>(cell)[lane];
    }
    const char* const behind = cell + kWarp * kWords * 4;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int column = lane / 4 + i * 8;
      steps[i] = kHasLow ? reinterpret_cast<const uint32_t*>(behind)[column] : reinterpret_cast<const uint16_t*>(behind)[column];
    }
  }
  RK_INLINE uint4 halves() const {
    const uint4 first = parts<0>(), second = parts<kSteps - 1>();
    return {first.x, first.y, second.z, second.w};
  }

 private:
  // The four pairs with step number STEP; what is not used costs nothing.
  template <int STEP>
  RK_INLINE uint4 parts() const {
    constexpr uint32_t kMagic = 0x64006400u;  // 1024
    const uint32_t step = lower_twice(steps[STEP]);
    uint32_t low = kIsBytes ? 0xe480e480u : 0xe408e408u;  // -1024 - 128, -1024 - 8
    if constexpr (kHasLow) low = add_halves(0xe400e400u, upper_twice(steps[STEP]) ^ 0x80008000u);
    uint4 made;
    if constexpr (kIsBytes) {
      made.x = add_halves(words[0] & 0x00ff00ffu | kMagic, low);
      made.y = add_halves(words[0] >> 8 & 0x00ff00ffu | kMagic, low);
      made.z = add_halves(words[1] & 0x00ff00ffu | kMagic, low);
      made.w = add_halves(words[1] >> 8 & 0x00ff00ffu | kMagic, low);
    } else {
      uint32_t low_of_high = 0xd480d480u;  // -64 - 8
      if constexpr (kHasLow) low_of_high = add_halves(0xd400d400u, upper_twice(steps[STEP]) ^ 0x80008000u);
      constexpr uint32_t kSixteenth = 0x2c002c00u;
      made.x = add_halves(words[0] & 0x000f000fu | kMagic, low);
      made.y = multiply_add_halves(words[0] & 0x00f000f0u | kMagic, kSixteenth, low_of_high);
      made.z = add_halves(words[0] >> 8 & 0x000f000fu | kMagic, low);
      made.w = multiply_add_halves(words[0] >> 8 & 0x00f000f0u | kMagic, kSixteenth, low_of_high);
    }
    return {multiply_halves(made.x, step), multiply_halves(made.y, step), multiply_halves(made.z, step), multiply_halves(made.w, step)};
  }
};

template <bool WIDE>
struct GemvCellWeights<kCellHalves, WIDE> {
  static constexpr int kRegisters = 4;
  uint4 of;

  RK_INLINE void clear() { of = uint4{0u, 0u, 0u, 0u}; }
  RK_INLINE void load(const char* cell, int lane) { of = reinterpret_cast<const uint4*>(cell)[lane]; }
  RK_INLINE const uint4& halves() const { return of; }
};

// The same, unpacked when it is loaded.
template <int CELL, bool WIDE>
struct GemvCellHalves {
  uint4 of;

  RK_INLINE void clear() { of = uint4{0u, 0u, 0u, 0u}; }
  RK_INLINE void load(const char* cell, int lane) {
    GemvCellWeights<CELL, WIDE> packed;
    packed.load(cell, lane);
    of = packed.halves();
  }
  RK_INLINE const uint4& halves() const { return of; }
};

}  // namespace rk
