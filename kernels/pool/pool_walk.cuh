// Pooling of large maps: as pool_strip.cuh, for rTasks that would make many turns there. A window of 3 x 3 on channels-last tensors. An
// item is the channels of 16 bytes of kPixels neighbouring output pixels in `lines` rows below each other, and a thread walks down these:
// it loads two rows of the input in a turn and keeps what the next windows share of them, so that an input is loaded once per strip, not
// once for each row of windows. The loads of the next kAhead turns are under way while a turn is worked on. Neighbouring strips share
// columns, which come from L1. Example: kStride 2, kPixels 2, lines 14, pad 1. Item (strip 3, rows 28 to 41) begins at input column 11.
// Turn 0 loads rows 54 and 55 and keeps 55; turn 1 loads rows 56 and 57, stores output row 28 (input rows 55 to 57) and keeps 57; turn 14
// stores row 41.
//
// Columns are combined first, then rows, for every pixel in the same order. If the window has a NaN, the result is NaN. Value is the type
// of x and y in memory.
#pragma once

#include "kernels/pool/pool_strip.cuh"

namespace rk {

struct PoolWalkArgs {                     // in tables
  WindowArgs window;                      // `rows` divides by the number of items below each other
  int32_t counted_from;                   // an average counts the taps from this coordinate on
  int32_t counted_height, counted_width;  // and below these
  int32_t lines, out_height;
};

// The channels of an item at one pixel: 16 bytes, or 8 of whole numbers in bytes (pool_bytes.cuh).
template <class Value>
struct PoolCell {
  static constexpr int kChannels = 16 / sizeof(Value);
  uint4 words;

  RK_INLINE void clear() { words = uint4{0, 0, 0, 0}; }
  RK_INLINE void load(const Value* p) { words = *as_global(reinterpret_cast<const uint4*>(p)); }  // may hit L1
  RK_INLINE void floats(float (&v)[kChannels]) const {
    if constexpr (kChannels == 8) {
      Raw8<Value>{words}.floats(v);
    } else {
      v[0] = __uint_as_float(words.x), v[1] = __uint_as_float(words.y), v[2] = __uint_as_float(words.z), v[3] = __uint_as_float(words.w);
    }
  }
  RK_INLINE static void store(Value* p, const float (&v)[kChannels]) {
    if constexpr (kChannels == 8)
      store8(p, v);
    else
      store4(p, float4{v[0], v[1], v[2], v[3]});
  }
};

template <bool kAverage>
RK_INLINE float pool_two(float a, float b) {
  return kAverage ? a + b : max_nan(a, b);
}

// Two rows of the input, from row y on; a maximum takes the nearest input in [low, high] for what is outside, an average nothing.
template <bool kAverage, int kColumns, class Value>
RK_INLINE void pool_load_rows(const WindowArgs& w, const Value* in, int32_t y, int32_t low, int32_t high,
                              const uint32_t (&across)[kColumns], uint32_t inside, PoolCell<Value> (&cells)[2][kColumns]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int32_t at = y + r, row = min(max(at, low), high);
    const Value* const from = in + static_cast<uint32_t>(row) * static_cast<uint32_t>(w.in_strides[2]);
#pragma unroll
    for (int x = 0; x < kColumns; ++x) {
      if (!kAverage) {
        cells[r][x].load(from + across[x]);
        continue;
      }
      cells[r][x].clear();
      if (at >= low && at <= high && (inside >> x & 1u) != 0) cells[r][x].load(from + across[x]);
    }
  }
}

template <class Veu, int kStride, int kPixels, int kAhead, bool kAverage, class Value = float>
RK_BODY void pool_walk(const Task<Veu>& caller) {
  constexpr int kColumns = (kPixels - 1) * kStride + 3, kKept = 3 - kStride, kStored = 2 / kStride, kChannels = PoolCell<Value>::kChannels;
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const PoolWalkArgs& args = task.template arguments<PoolWalkArgs>();
  const WindowArgs& w = args.window;
  const uint32_t end = min((task.index + 1) * w.items_per_rtask, w.items);
  task.await_inputs();
#pragma unroll 1
  for (uint32_t number = task.index * w.items_per_rtask + threadIdx.x; number < end; number += Veu::kComputeThreads) {
    uint32_t block, strip, part;
    const uint32_t batch = divide(divide(divide(number, w.channel_blocks, block), w.column_blocks, strip), w.rows, part);
    const int32_t first = static_cast<int32_t>(strip) * kPixels, line = static_cast<int32_t>(part) * args.lines;
    const int32_t lines = min(args.lines, args.out_height - line), left = first * kStride - w.pad[1], top = line * kStride - w.pad[0];
    // What the windows of the item reach of the input.
    const int32_t low = max(top, 0), high = min(top + (lines - 1) * kStride + 2, w.height - 1);
    const int32_t right = min((w.out_width - 1) * kStride - w.pad[1] + 2, w.width - 1);
    const Value* const in = values_at<Value>(task, w.in) + (batch * static_cast<uint32_t>(w.in_strides[0]) + block * kChannels);
    Value* const out = values_at<Value>(task, w.out) + (batch * static_cast<uint32_t>(w.out_strides[0]) + block * kChannels +
                                                        static_cast<uint32_t>(line * w.out_strides[2] + first * w.out_strides[3]));
    uint32_t across[kColumns], inside = 0;
    int32_t columns[kPixels];  // that are counted
#pragma unroll
    for (int x = 0; x < kColumns; ++x) {
      const int32_t at = min(max(left + x, 0), right);
      across[x] = static_cast<uint32_t>(at * w.in_strides[3]);
      inside |= at == left + x ? 1u << x : 0u;
    }
#pragma unroll
    for (int p = 0; p < kPixels; ++p) columns[p] = pool_counted<3>(left + p * kStride, args.counted_from, args.counted_width);

    const int32_t turns = (lines + kStored - 1) / kStored + 1;
    PoolCell<Value> cells[kAhead][2][kColumns];
    int32_t y = top + kKept - 2;  // of the turn's rows of the input
#pragma unroll
    for (int a = 0; a < kAhead; ++a) pool_load_rows<kAverage>(w, in, y + 2 * a, low, high, across, inside, cells[a]);
    float kept[kKept][kPixels][kChannels] = {};
    int32_t stored = -kStored;  // rows of the output; turn 0 stores none
#pragma unroll 1
    for (int32_t turn = 0; turn < turns; turn += kAhead) {
#pragma unroll
      for (int a = 0; a < kAhead; ++a, y += 2, stored += kStored) {
        if (turn + a >= turns) break;
        float rows[2][kPixels][kChannels];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
          for (int x = 0; x < kColumns; ++x) {
            float v[kChannels];
            cells[a][r][x].floats(v);
#pragma unroll
            for (int p = 0; p < kPixels; ++p) {
              const int tap = x - p * kStride;
              if (tap < 0 || tap > 2) continue;
#pragma unroll
              for (int c = 0; c < kChannels; ++c) rows[r][p][c] = tap == 0 ? v[c] : pool_two<kAverage>(rows[r][p][c], v[c]);
            }
          }
        }
        if (turn + a + kAhead < turns) pool_load_rows<kAverage>(w, in, y + 2 * kAhead, low, high, across, inside, cells[a]);
#pragma unroll
        for (int s = 0; s < kStored; ++s) {
          const int32_t down = stored + s;
          const int32_t taken = kAverage ? pool_counted<3>(top + down * kStride, args.counted_from, args.counted_height) : 0;
#pragma unroll
          for (int p = 0; p < kPixels; ++p) {
            float v[kChannels];
            const float share = kAverage ? reciprocal_fast(static_cast<float>(taken * columns[p])) : 1.0f;
#pragma unroll
            for (int c = 0; c < kChannels; ++c) {
              // Stride 1: kept 0, kept 1, row 0; then kept 1, row 0, row 1. Stride 2: kept 0, row 0, row 1.
              const float above = kStride == 2 ? kept[0][p][c] : kept[s][p][c];
              const float middle = kStride == 2 ? rows[0][p][c] : s == 0 ? kept[kKept - 1][p][c] : rows[0][p][c];
              const float below = kStride == 2 ? rows[1][p][c] : rows[s][p][c];
              v[c] = pool_two<kAverage>(pool_two<kAverage>(above, middle), below);
              if (kAverage) v[c] *= share;
            }
            if (down < 0 || down >= lines || first + p >= w.out_width) continue;
            PoolCell<Value>::store(out + static_cast<uint32_t>(down * w.out_strides[2] + p * w.out_strides[3]), v);
          }
        }
#pragma unroll
        for (int k = 0; k < kKept; ++k) {
#pragma unroll
          for (int p = 0; p < kPixels; ++p) {
#pragma unroll
            for (int c = 0; c < kChannels; ++c) kept[k][p][c] = rows[2 - kKept + k][p][c];
          }
        }
      }
    }
  }
}

}  // namespace rk
