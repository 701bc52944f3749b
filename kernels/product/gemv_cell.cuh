// Quantised weights in the ring of gemv_row.cuh and row_feed_forward.cuh, and their products by one row x on tensor cores.
//
// A weight is step * (low + u), u a whole number of 8 or 4 bits, with one step and low for each 32 k of a column. A cell is 8 columns by
// 32 k: first the u of all lanes, of which lane 4 n + t has those of column n and k 8 t to 8 t + 7, in 8 or 4 bytes; then for each column
// its step in fp16. With kCellBytesFrom and kCellNibblesFrom -low follows each step, else low is -128 or -8. The u lie so that a mask makes
// a pair of k neighbours of a word or of the word turned by eight bits: of four bits pairs (0, 4), (1, 5), (2, 6) and (3, 7), of bytes (0,
// 2) and (1, 3), all of them two bits further up. Two cells of the same 32 k are interleaved, so that a lane reads both at once: its u of
// one and of the other, a column's step in one and in the other.
//
// The bits 0x5c00 | u << 2 are 256 + u as fp16, and 0x4c00 | u << 6 are 16 + u. That is what tensor cores multiply: operand A are two
// cells, 16 columns, operand B is x, as two fp16 numbers whose sum it is (gemv_row.cuh), in its columns 0 and 1. What the 256 and 16 make
// of x is known before any weight is, for each 32 k: their `base`, with which the sum begins. So eight weights take four masks, and the
// step is multiplied into the sum of 32 k, in fp32. The base costs digits: sums are as exact as those of fp32 less five bits. Of an
// infinite x, all sums are no numbers.
//
// Example: u = 5 with step 0.25 and low -8 is -0.75. Lane 13 of a cell of nibbles reads word 13, and the step at byte 128 + 2 * 3; of
// two cells words 26 and 27, and the steps at bytes 256 + 4 * 3. Of 32 k whose x are 1, base is -(264 * 16 + 24 * 16): 256 + 8 for every
// other pair, 16 + 8 for the others.
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
  // What is taken from a sum for each x of pairs 0 and 2, and of pairs 1 and 3.
  static constexpr float kLow = kHasLow ? 0.0f : kIsBytes ? 128.0f : 8.0f;
  static constexpr float kFirst = 256.0f + kLow, kSecond = (kIsBytes ? 256.0f : 16.0f) + kLow;
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
    const uint2 first = scale.split(v.x, v.y), second = scale.split(v.z, v.w);
    const float2 a = floats_of_halves(first.x), b = floats_of_halves(first.y), c = floats_of_halves(second.x),
                 d = floats_of_halves(second.y);
    const float ab = (a.x + b.x) + (a.y + b.y), cd = (c.x + d.x) + (c.y + d.y);
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

// bits & mask | magic, one instruction: an instruction has one constant at most, so the second one has to be in a register.
RK_INLINE uint32_t masked_pair(uint32_t bits, uint32_t mask, uint32_t magic) {
#if defined(__CUDA_ARCH__)
  uint32_t made;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(made) : "r"(bits), "r"(mask), "r"(magic));
  return made;
#else
  return (bits & mask) | magic;
#endif
}

// A lane's part of a cell.
template <int CELL>
struct GemvCellWeights {
  using Form = GemvCellForm<CELL>;
  uint32_t pairs[4];
  float step, low;  // low: what is taken from each u, where it is not the same for all

  RK_INLINE void take(uint32_t first, [[maybe_unused]] uint32_t second) {
    const uint32_t turned = first >> 8 | first << 24;
    if constexpr (Form::kIsBytes) {
      pairs[0] = masked_pair(first, 0x03fc03fcu, 0x5c005c00u), pairs[1] = masked_pair(turned, 0x03fc03fcu, 0x5c005c00u);
      pairs[2] = masked_pair(second, 0x03fc03fcu, 0x5c005c00u);
      pairs[3] = masked_pair(second >> 8 | second << 24, 0x03fc03fcu, 0x5c005c00u);
    } else {
      pairs[0] = masked_pair(first, 0x003c003cu, 0x5c005c00u), pairs[1] = masked_pair(first, 0x03c003c0u, 0x4c004c00u);
      pairs[2] = masked_pair(turned, 0x003c003cu, 0x5c005c00u), pairs[3] = masked_pair(turned, 0x03c003c0u, 0x4c004c00u);
    }
  }
  RK_INLINE void clear() {
    pairs[0] = pairs[1] = pairs[2] = pairs[3] = 0u;
    step = low = 0.0f;
  }
  // Adds what a sum of 32 k is.
  RK_INLINE void add(float whole, [[maybe_unused]] float sum_of_x, float& to) const {
    if constexpr (Form::kHasLow) whole = fmaf(-low, sum_of_x, whole);
    to = fmaf(step, whole, to);
  }
};

// One cell, or with TWO a lane's parts of two that lie side by side: each access reads both.
template <int CELL, bool TWO>
struct GemvCells {
  using Form = GemvCellForm<CELL>;
  static constexpr int kBytes = (TWO ? 2 : 1) * Form::kBytes;
  GemvCellWeights<CELL> first, second;

  RK_INLINE void load(const char* from, int lane) {
    const char* const steps = from + kWarp * (TWO ? 2 : 1) * (Form::kIsBytes ? 8 : 4);
    if constexpr (TWO) {
      if constexpr (Form::kIsBytes) {
        const uint4 v = reinterpret_cast<const uint4*>(from)[lane];
        first.take(v.x, v.y), second.take(v.z, v.w);
      } else {
        const uint2 v = reinterpret_cast<const uint2*>(from)[lane];
        first.take(v.x, 0u), second.take(v.y, 0u);
      }
      if constexpr (Form::kHasLow) {
        const uint2 v = reinterpret_cast<const uint2*>(steps)[lane / 4];
        const float2 a = floats_of_halves(v.x), b = floats_of_halves(v.y);
        first.step = a.x, first.low = a.y, second.step = b.x, second.low = b.y;
      } else {
        const float2 a = floats_of_halves(reinterpret_cast<const uint32_t*>(steps)[lane / 4]);
        first.step = a.x, second.step = a.y;
      }
    } else {
      if constexpr (Form::kIsBytes) {
        const uint2 v = reinterpret_cast<const uint2*>(from)[lane];
        first.take(v.x, v.y);
      } else {
        first.take(reinterpret_cast<const uint32_t*>(from)[lane], 0u);
      }
      if constexpr (Form::kHasLow) {
        const float2 a = floats_of_halves(reinterpret_cast<const uint32_t*>(steps)[lane / 4]);
        first.step = a.x, first.low = a.y;
      } else {
        first.step = floats_of_halves(reinterpret_cast<const uint16_t*>(steps)[lane / 4]).x;
      }
      second.clear();
    }
  }
  // Adds x times the weights to sums[0] and sums[1]: in lanes 4 n the sums of column n of each cell. x: the pairs of this lane and the base
  // of the cells' 32 k.
  RK_INLINE void multiply(const uint4& x, const float2& base, float (&sums)[2]) const {
    float made[4] = {base.x, 0.0f, base.x, 0.0f};
    mma_f16(made, {first.pairs[0], second.pairs[0], first.pairs[1], second.pairs[1]}, {x.x, x.y});
    mma_f16(made, {first.pairs[2], second.pairs[2], first.pairs[3], second.pairs[3]}, {x.z, x.w});
    first.add(made[0] + made[1], base.y, sums[0]);
    if constexpr (TWO) second.add(made[2] + made[3], base.y, sums[1]);
  }
};

// This lane's x of 32 k.
RK_INLINE uint4 pairs_of_lane(const GemvCellRow& row, int block) {
  uint4 pairs = {0u, 0u, 0u, 0u};
  if (lane_id() < 8) pairs = row.pairs[block * 8 + lane_id()];
  return pairs;
}

}  // namespace rk
