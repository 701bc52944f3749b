// Quantised weights in the ring of gemv_row.cuh and row_feed_forward.cuh, and their products by one row x on tensor cores.
//
// A weight is step * (low + u), u a whole number of 8 or 4 bits, with one step and low for each 32 k of a column. A cell is 8 columns by
// 32 k: first the u of all lanes, of which lane 4 n + t has those of column n and k 8 t to 8 t + 7, in 8 or 4 bytes; then for each column
// its step in fp16. With kCellBytesFrom and kCellNibblesFrom -low follows each step, else low is -128 or -8. The u lie so that a mask makes
// a pair of k neighbours of a word: of four bits pairs (0, 4), (1, 5), (2, 6) and (3, 7), of bytes (0, 2) and (1, 3).
//
// The bits 0x6400 | u are 1024 + u as fp16, and 0x6400 | 16 u are 1024 + 16 u. That is what tensor cores multiply: operand A are two
// cells, 16 columns, operand B is x, as two fp16 numbers whose sum it is (gemv_row.cuh), in its columns 0 and 1. Where a u is times 16, x
// is divided by 16 there. What the 1024 make of x is known before any weight is, for each 32 k: their `base`, with which the sum begins. So
// eight weights take four masks, and the step is multiplied into the sum of 32 k, in fp32. Of an infinite x, all sums are no numbers.
//
// Example: u = 5 with step 0.25 and low -8 is -0.75. Lane 13 of a cell of nibbles reads word 13, and the step at byte 128 + 2 * 3. Of 32 k
// whose x are 1, base is -(1032 * 16 + 72 * 16): 1024 + 8 for each lower nibble, 64 + 8 for each upper one.
#pragma once

#include "kernels/product/numbers.cuh"
#include "kernels/vdevice/half.cuh"
#include "kernels/vdevice/mma.cuh"

namespace rk {

template <int CELL>
struct GemvCellForm {
  static_assert(CELL != kCellHalves);
  static constexpr bool kIsBytes = CELL == kCellBytes || CELL == kCellBytesFrom;
  static constexpr bool kHasLow = CELL == kCellBytesFrom || CELL == kCellNibblesFrom;
  static constexpr int kBytes = gemv_cell_bytes(CELL);
  // What is taken from a sum for each x: where its u is not times 16, and where it is.
  static constexpr float kLow = kHasLow ? 0.0f : kIsBytes ? 128.0f : 8.0f;
  static constexpr float kFirst = 1024.0f + kLow, kSecond = (kIsBytes ? 1024.0f : 64.0f) + kLow;
};

// The power of two that brings the largest of some magnitudes, as bits, to 2^14..2^15, and its inverse.
struct HalfScale {
  float scale, inverse;
  bool is_infinite;

  RK_INLINE explicit HalfScale(uint32_t largest) {
    const uint32_t exponent = largest >> 23;
    is_infinite = exponent == 0xffu;
    const uint32_t up = min(2 * 127 + 14 - exponent, 240u);  // so that its inverse is no subnormal number
    scale = __uint_as_float(up << 23), inverse = __uint_as_float((2 * 127 - up) << 23);
  }
  // Two values in fp16, and what these leave of them.
  RK_INLINE uint2 split(float first, float second) const {
    const float a = first * scale, b = second * scale;
    const uint32_t high = halves_of(a, b);
    const float2 v = floats_of_halves(high);
    return {high, is_infinite ? 0u : halves_of(a - v.x, b - v.y)};  // infinity less infinity
  }
};

RK_INLINE uint32_t magnitude_of(float x) { return __float_as_uint(fabsf(x)); }
RK_INLINE uint32_t magnitude_of4(const float4& v) {
  return max(max(magnitude_of(v.x), magnitude_of(v.y)), max(magnitude_of(v.z), magnitude_of(v.w)));
}

// x as operand B: for each 32 k two times four lanes' pairs, the fp16 numbers and what these leave of x, and what sums begin with: base,
// and with a low of its own the sum of x.
struct GemvCellRow {
  uint4* pairs;   // 8 for each 32 k
  float2* bases;  // behind them

  RK_INLINE GemvCellRow(uint4* space, int blocks) : pairs(space), bases(reinterpret_cast<float2*>(space + blocks * 8)) {}

  // Leaves k 4 `four` to 4 four + 3. By eight lanes for each 32 k; those who are not `there` leave nothing.
  template <int CELL>
  RK_INLINE void leave(const HalfScale& scale, const float4& v, int four, bool is_there) const {
    using Form = GemvCellForm<CELL>;
    constexpr float kDivide = Form::kIsBytes ? 1.0f : 0.0625f;
    const uint2 first = scale.split(v.x, v.y), second = scale.split(v.z * kDivide, v.w * kDivide);
    const float2 a = floats_of_halves(first.x), b = floats_of_halves(first.y), c = floats_of_halves(second.x),
                 d = floats_of_halves(second.y);
    const float ab = (a.x + b.x) + (a.y + b.y), cd = ((c.x + d.x) + (c.y + d.y)) / kDivide;
    float2 made = {-(ab * Form::kFirst + cd * Form::kSecond), ab + cd};
#pragma unroll
    for (int step = 4; step > 0; step /= 2) {
      made.x += __shfl_xor_sync(kFullMask, made.x, step);
      if constexpr (Form::kHasLow) made.y += __shfl_xor_sync(kFullMask, made.y, step);
    }
    if (!is_there) return;
    uint2* const to = reinterpret_cast<uint2*>(pairs) + four / 8 * 16 + four % 8;
    to[0] = uint2{first.x, second.x};
    to[8] = uint2{first.y, second.y};
    if (four % 8 == 0) bases[four / 8] = made;
  }
};

// A lane's part of a cell.
template <int CELL>
struct GemvCellWeights {
  using Form = GemvCellForm<CELL>;
  uint32_t pairs[4], info;

  RK_INLINE void load(const char* cell, int lane) {
    constexpr uint32_t kMagic = 0x64006400u;
    if constexpr (Form::kIsBytes) {
      const uint2 v = reinterpret_cast<const uint2*>(cell)[lane];
      pairs[0] = v.x & 0x00ff00ffu | kMagic;
      pairs[1] = v.x >> 8 & 0x00ff00ffu | kMagic;
      pairs[2] = v.y & 0x00ff00ffu | kMagic;
      pairs[3] = v.y >> 8 & 0x00ff00ffu | kMagic;
    } else {
      const uint32_t v = reinterpret_cast<const uint32_t*>(cell)[lane], w = v >> 8;
      pairs[0] = v & 0x000f000fu | kMagic;
      pairs[1] = v & 0x00f000f0u | kMagic;
      pairs[2] = w & 0x000f000fu | kMagic;
      pairs[3] = w & 0x00f000f0u | kMagic;
    }
    const char* const behind = cell + kWarp * (Form::kIsBytes ? 8 : 4);
    info = Form::kHasLow ? reinterpret_cast<const uint32_t*>(behind)[lane / 4] : reinterpret_cast<const uint16_t*>(behind)[lane / 4];
  }
  RK_INLINE void clear() { pairs[0] = pairs[1] = pairs[2] = pairs[3] = info = 0u; }
  // Adds what a sum of 32 k is.
  RK_INLINE void add(float whole, float sum_of_x, float& to) const {
    const float2 v = floats_of_halves(info);
    if constexpr (Form::kHasLow) whole = fmaf(-v.y, sum_of_x, whole);
    to = fmaf(v.x, whole, to);
  }
};

// Adds x times the weights of two cells to sums[0] and sums[1]: in lanes 4 n the sums of column n of each. x: the pairs of this lane and
// the base of the cells' 32 k.
template <int CELL>
RK_INLINE void multiply_cells(const GemvCellWeights<CELL>& first, const GemvCellWeights<CELL>& second, const uint4& x, const float2& base,
                              float (&sums)[2]) {
  float made[4] = {base.x, 0.0f, base.x, 0.0f};
  mma_f16(made, {first.pairs[0], second.pairs[0], first.pairs[1], second.pairs[1]}, {x.x, x.y});
  mma_f16(made, {first.pairs[2], second.pairs[2], first.pairs[3], second.pairs[3]}, {x.z, x.w});
  first.add(made[0] + made[1], base.y, sums[0]);
  second.add(made[2] + made[3], base.y, sums[1]);
}

// This lane's x of 32 k.
RK_INLINE uint4 pairs_of_lane(const GemvCellRow& row, int block) {
  uint4 pairs = {0u, 0u, 0u, 0u};
  if (lane_id() < 8) pairs = row.pairs[block * 8 + lane_id()];
  return pairs;
}

}  // namespace rk
