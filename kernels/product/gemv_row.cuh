// The product of gemv_of_rows.cuh for one row of K values:
//   out[n] = act(bias[n] + residual[n] + factor * sum over k of x[k] * weight[k][n])     x, factor as there
// A warp has every eighth 32 k, of all columns of the rTask. So a weight is read from shared memory once, nobody waits for another warp's
// part of x, and one barrier is left: behind it the sums of the warps are added up. All that is known before x is done before x is awaited:
// what is left then is a few hundred instructions, each of which waits for the one before it.
//
// Weights of 16 bits (CHUNK_K > 0): tensor cores multiply, by mma_f16. A chunk of the ring is CHUNK_K k of COLUMNS columns; the first one's
// weights are in registers when x comes. x is split into two fp16 numbers, the second one being what the first one leaves of it, which are
// rows 0 and 8 of operand A; the other rows are zeros. So 22 bits of x count. A warp multiplies its x by the power of two that brings their
// largest to 2^14..2^15, so that none is too large for fp16, and none that matters too small. In a chunk a column's 32 k lie side by side,
// 64 bytes, and then those of the next column: 512 bytes for eight columns, of which lane 4 n + t reads k 8 t to 8 t + 7 of column n.
// ONE: all weights of the rTask are one chunk. Else the second one's are in registers, too, if they fit (kGemvRowHeld).
//
// Weights of fp32 (CHUNK_K 0): a thread keeps its fours of k in registers and multiplies them by these k of all columns. A chunk is
// weight[column][k], all of k.
//
// Behind the weights of the last k of COLUMNS columns lie for each column its scale, its bias, and with kGemvCentred the sums of its
// weights for each warp (gemv_row_info). With kGemvCentred a warp subtracts its first x, not the mean of all, which nobody knows yet. What
// that makes of the sum is corrected in the end: sum (x - mean) w = over all warps sum (x - first) w + (first - mean) sum w. It loses no
// digits that matter: the deviation of n values is at least 1 / sqrt(n) of how far any of them is from their mean.
//
// Quantised weights lie in cells of 8 or 4 bits (CELL, gemv_cell.cuh), which lie as those of 16 bits do. They are read from the ring where
// they are multiplied: a short loop, where registers would need long code. FACTORS: the normalisation's scale is not in the weights, whose
// steps it would undo; a thread multiplies its x by it.
//
// GemvArgs: chunks counts the COLUMNS columns of a rTask; piece_k is K up to whole fours or 32; chunk_k, column_bytes and turns are not
// used. ACTIVATION is the epilogue's, RESIDUAL a GemvResidual. The other template arguments are gemv_of_rows.cuh's.
//
// Example: K = 768, COLUMNS 24, CHUNK_K 768. rTask 5 has columns 120 to 143. Warp 1 has k 32 to 63, 288 to 319 and 544 to 575; its lane 9
// awaits k 292 to 295. Lane 13 has k 40 to 47 of columns 123, 131 and 139 in registers, and of the warp's other 32 k the same. In the end
// thread 7 adds up eight warps' sums of column 127.
#pragma once

#include "kernels/product/gemv_cell.cuh"
#include "kernels/product/gemv_of_rows.cuh"
#include "kernels/vdevice/mma.cuh"

namespace rk {

template <int NORM>
struct GemvRowInfo {
  static constexpr int kFloats = gemv_row_info(NORM);  // of a column in a chunk
};

// The x of a warp, less `shift`: their number, sum and sum of squares.
struct alignas(16) GemvRowStats {
  float sum, squares, shift, count;
};

// Subtracts from the warp's x the first of them; returns that.
template <class Veu, int K, int TURNS, int HELD>
RK_INLINE float gemv_row_shift(float4 (&x)[HELD]) {
  const float shift = __shfl_sync(kFullMask, x[0].x, 0);
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
    const float4 v = {x[turn].x - shift, x[turn].y - shift, x[turn].z - shift, x[turn].w - shift};
    x[turn] = gemv_first<K % 4 == 0>(v, K - gemv_k<Veu>(turn));
  }
  return shift;
}

// How many x are this warp's.
template <int K>
RK_INLINE float gemv_row_count() {
  constexpr int kOfAll = kComputeWarps * kGemvBlockK;  // k of which each warp has as many
  return static_cast<float>(K / kOfAll * kGemvBlockK + min(max(K % kOfAll - warp_id() * kGemvBlockK, 0), kGemvBlockK));
}

// Leaves what the normalisation needs to know of the warp's x.
template <int NORM, int TURNS, int HELD>
RK_INLINE void gemv_row_stats(const float4 (&x)[HELD], float shift, float count, GemvRowStats* stats) {
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
    if constexpr (NORM == kGemvCentred) sum += sum_of4(x[turn]);
    squares += gemv_squares4(x[turn]);
  }
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    if constexpr (NORM == kGemvCentred) sum += __shfl_xor_sync(kFullMask, sum, step);
    squares += __shfl_xor_sync(kFullMask, squares, step);
  }
  if (lane_id() == 0) stats[warp_id()] = GemvRowStats{sum, squares, shift, count};
}

// What the normalisation makes of the sums: the factor of the row, and how far what each warp subtracted is from the row's mean.
struct GemvRowNorm {
  float factor = 1.0f;
  float off[kComputeWarps];
};
template <int NORM>
RK_INLINE GemvRowNorm gemv_row_total(const GemvOfRowsArgs& args, const GemvRowStats* stats) {
  static_assert(NORM != kGemvAsIs);
  GemvRowNorm norm;
  GemvRowStats of[kComputeWarps];
#pragma unroll
  for (int w = 0; w < kComputeWarps; ++w) of[w] = stats[w];
  float mean = 0.0f, part[kComputeWarps];
  if constexpr (NORM == kGemvCentred) {
#pragma unroll
    for (int w = 0; w < kComputeWarps; ++w) part[w] = fmaf(of[w].shift, of[w].count, of[w].sum);
    mean = sum_of8(part) * args.inverse_k;
  }
#pragma unroll
  for (int w = 0; w < kComputeWarps; ++w) {
    part[w] = of[w].squares;
    if constexpr (NORM == kGemvCentred) {
      norm.off[w] = of[w].shift - mean;
      part[w] = fmaf(norm.off[w], fmaf(norm.off[w], of[w].count, 2.0f * of[w].sum), part[w]);
    }
  }
  const float squares = sum_of8(part);
  norm.factor = rsqrtf(fmaf(squares, args.inverse_k, args.epsilon));
  return norm;
}

// --- weights of 16 bits ----------------------------------------------------------------------------------------------------

// Leaves the warp's x in shared memory as operand A of mma_f16: for each four of k two pairs in fp16, behind each what these leave of it.
// Returns what the sums have to be multiplied by. EXACT: all x are fp16 numbers.
template <class Veu, int K, int TURNS, bool EXACT, int HELD>
RK_INLINE float gemv_row_split(const float4 (&x)[HELD], uint4* to) {
  constexpr int kBlocks = (K + kGemvBlockK - 1) / kGemvBlockK;
  float scale = 1.0f, inverse = 1.0f;
  [[maybe_unused]] bool is_infinite = false;
  if constexpr (!EXACT) {
    uint32_t largest = 0;  // without its sign, floats are in the order of their bits
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
      const float4 v = {fabsf(x[turn].x), fabsf(x[turn].y), fabsf(x[turn].z), fabsf(x[turn].w)};
      largest = max(largest, max(max(__float_as_uint(v.x), __float_as_uint(v.y)), max(__float_as_uint(v.z), __float_as_uint(v.w))));
    }
    const uint32_t exponent = __reduce_max_sync(kFullMask, largest) >> 23;
    is_infinite = exponent == 0xffu;
    const uint32_t up = min(2 * 127 + 14 - exponent, 240u);  // so that its inverse is no subnormal number
    scale = __uint_as_float(up << 23), inverse = __uint_as_float((2 * 127 - up) << 23);
  }
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
    const int four = gemv_k<Veu>(turn) / 4;
    if (four >= kBlocks * (kGemvBlockK / 4)) continue;
    const float4 v = {x[turn].x * scale, x[turn].y * scale, x[turn].z * scale, x[turn].w * scale};
    uint4 pairs = {halves_of(v.x, v.y), 0u, halves_of(v.z, v.w), 0u};
    if constexpr (!EXACT) {
      const float2 a = floats_of_halves(pairs.x), b = floats_of_halves(pairs.z);
      pairs.y = halves_of(v.x - a.x, v.y - a.y), pairs.w = halves_of(v.z - b.x, v.w - b.y);
      if (is_infinite) pairs.y = pairs.w = 0u;  // infinity less infinity
    }
    to[four] = pairs;
  }
  __syncwarp();
  return inverse;
}

// A chunk's weights as operands B, of the warp's 32 k. MOST: 32 k of the longest chunk.
template <int COLUMNS, int MOST>
struct GemvRowWeights {
  static constexpr int kTiles = COLUMNS / 8, kBlocks = (MOST + kComputeWarps - 1) / kComputeWarps;
  uint4 of[kBlocks][kTiles];

  // Whether 32 k number i of the warp are within a chunk of `blocks`. What is known beforehand costs nothing.
  RK_INLINE static bool has(int i, int blocks) { return (i + 1) * kComputeWarps <= blocks || i * kComputeWarps + warp_id() < blocks; }
  RK_INLINE void load(const char* stage, int blocks) {
    const uint4* const from = reinterpret_cast<const uint4*>(stage) + warp_id() * kTiles * kWarp + lane_id();
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        of[i][t] = uint4{0u, 0u, 0u, 0u};
        if (has(i, blocks)) of[i][t] = from[(i * kComputeWarps * kTiles + t) * kWarp];
      }
    }
  }
};

// The warp's sums of the columns of a chunk, as mma_f16 has them: two of eight columns, which do not wait for each other.
template <int COLUMNS>
struct GemvRowSums {
  float of[COLUMNS / 8][2][4];

  RK_INLINE void clear() {
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) of[i / 8][i / 4 % 2][i % 4] = 0.0f;
  }
};

// Adds x * weights of a chunk of `blocks` 32 k. `x`: of the chunk's first k. Only lanes 0 to 3 have rows 0 and 8 of operand A.
template <int COLUMNS, int MOST>
RK_INLINE void gemv_row_multiply(const GemvRowWeights<COLUMNS, MOST>& weights, const uint4* x, int blocks, GemvRowSums<COLUMNS>& sums) {
  const int lane = lane_id();
  const uint4* const from = x + warp_id() * (kGemvBlockK / 4) + lane * 2;
#pragma unroll
  for (int i = 0; i < GemvRowWeights<COLUMNS, MOST>::kBlocks; ++i) {
    uint4 pairs[2] = {};
    if (lane < 4 && GemvRowWeights<COLUMNS, MOST>::has(i, blocks)) {
      pairs[0] = from[i * kComputeWarps * (kGemvBlockK / 4)];
      pairs[1] = from[i * kComputeWarps * (kGemvBlockK / 4) + 1];
    }
#pragma unroll
    for (int t = 0; t < COLUMNS / 8; ++t) {
      mma_f16(sums.of[t][0], {pairs[0].x, pairs[0].y, pairs[0].z, pairs[0].w}, {weights.of[i][t].x, weights.of[i][t].y});
      mma_f16(sums.of[t][1], {pairs[1].x, pairs[1].y, pairs[1].z, pairs[1].w}, {weights.of[i][t].z, weights.of[i][t].w});
    }
  }
}

// The sum of x in fp16 and that of what is left. Where a weight is infinite, the latter is an infinity of either sign or no number.
RK_INLINE float gemv_row_whole(float high, float low) { return fabsf(low) < INFINITY ? high + low : high; }

// Leaves the warp's sums: lanes 0 to 3 have two each of eight columns.
template <int COLUMNS>
RK_INLINE void gemv_row_leave(const GemvRowSums<COLUMNS>& sums, float factor, float* to) {
  if (lane_id() >= 4) return;
#pragma unroll
  for (int t = 0; t < COLUMNS / 8; ++t) {
    const auto& [first, second] = sums.of[t];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float v = gemv_row_whole(first[c] + second[c], first[2 + c] + second[2 + c]);
      to[(t * 8 + lane_id() * 2 + c) * kComputeWarps + warp_id()] = v * factor;
    }
  }
}

// --- quantised weights ---------------------------------------------------------------------------------------------------

// Multiplies the warp's x by `factors`.
template <int TURNS, int HELD>
RK_INLINE void gemv_row_scale(float4 (&x)[HELD], const float4 (&factors)[HELD]) {
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
    const float4 &v = x[turn], &f = factors[turn];
    x[turn] = float4{v.x * f.x, v.y * f.y, v.z * f.z, v.w * f.w};
  }
}

// Leaves the warp's x as operands, and returns what the sums have to be multiplied by.
template <class Veu, int K, int TURNS, int CELL, int HELD>
RK_INLINE float gemv_row_operands(const float4 (&x)[HELD], const GemvCellRow& row) {
  constexpr int kFours = (K + kGemvBlockK - 1) / kGemvBlockK * (kGemvBlockK / 4);
  uint32_t largest = 0;
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) largest = max(largest, magnitude_of4(x[turn]));
  const HalfScale scale(__reduce_max_sync(kFullMask, largest));
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
    const int four = gemv_k<Veu>(turn) / 4;
    row.template leave<CELL>(scale, x[turn], four, four < kFours);
  }
  __syncwarp();
  return scale.inverse;
}

// Adds x times the weights of a chunk of `blocks` 32 k, the first of which is `first` of the row.
template <int COLUMNS, int CELL>
RK_INLINE void gemv_row_add_cells(const char* stage, const GemvCellRow& row, int first, int blocks, float (&sums)[(COLUMNS + 8) / 16][2]) {
  constexpr int kTiles = COLUMNS / kGemvCellColumns, kBytes = gemv_cell_bytes(CELL);
#pragma unroll 2
  for (int block = warp_id(); block < blocks; block += kComputeWarps) {
    const char* const from = stage + block * kTiles * kBytes;
    const uint4 x = pairs_of_lane(row, first + block);
    const float2 base = row.bases[first + block];
#pragma unroll
    for (int t = 0; t + 1 < kTiles; t += 2) {
      GemvCells<CELL, true> cells;
      cells.load(from + t * kBytes, lane_id());
      cells.multiply(x, base, sums[t / 2]);
    }
    if constexpr (kTiles % 2 != 0) {
      GemvCells<CELL, false> cell;
      cell.load(from + (kTiles - 1) * kBytes, lane_id());
      cell.multiply(x, base, sums[kTiles / 2]);
    }
  }
}

// --- weights of fp32 -------------------------------------------------------------------------------------------------------

// The sum of x * weights of the thread's fours, for all columns of a chunk.
template <class Veu, int COLUMNS, int TURNS, int HELD>
RK_INLINE void gemv_row_chunk(const char* stage, const float4 (&x)[HELD], int fours, float (&sum)[COLUMNS]) {
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
    const int four = gemv_k<Veu>(turn) / 4;
    if (four >= fours) break;
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) gemv_add(sum[c], x[turn], *reinterpret_cast<const float4*>(stage + (c * fours + four) * 16));
  }
}

// --- the body ----------------------------------------------------------------------------------------------------------------

// What lies behind a column's weights in a chunk, as registers.
template <int FLOATS>
RK_INLINE void load_info(const char* from, float (&to)[FLOATS]) {
  if constexpr (FLOATS == 2) {
    const float2 v = *reinterpret_cast<const float2*>(from);
    to[0] = v.x, to[1] = v.y;
  } else {
#pragma unroll
    for (int i = 0; i < FLOATS; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(from + i * 4);
      to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
    }
  }
}

// A rTask's work space: x as operands (only of weights of 16 bits), the sums [column][warp], what the warps know of their x, and what lies
// behind the weights of each column [column][kInfo].
struct GemvRowSpace {
  uint4* halves;
  float* sums;
  GemvRowStats* stats;
  float* infos;

  RK_INLINE GemvRowSpace(uint4* work, int halves_count, int columns)
      : halves(work),
        sums(reinterpret_cast<float*>(work + halves_count)),
        stats(reinterpret_cast<GemvRowStats*>(sums + columns * kComputeWarps)),
        infos(reinterpret_cast<float*>(stats + kComputeWarps)) {}
  // Of COUNT floats of a chunk.
  template <int COUNT>
  RK_INLINE void keep_info(int chunk, const char* info) const {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < COUNT; i += kComputeWarps * kWarp)
      if (i + thread < COUNT) infos[chunk * COUNT + i + thread] = reinterpret_cast<const float*>(info)[i + thread];
  }
};

// Multiplies x by quantised weights, and leaves the sums of the warp.
template <class Veu, int K, int COLUMNS, int CHUNK_K, int CELL, int NORM, int TURNS, int HELD>
RK_INLINE void gemv_row_multiply_cells(WeightPipe<Veu>& weights, const float4 (&x)[HELD], int chunks, const GemvRowSpace& space) {
  constexpr int kAll = (K + kGemvBlockK - 1) / kGemvBlockK, kMost = CHUNK_K / kGemvBlockK, kPairs = (COLUMNS + 8) / 16;
  const GemvCellRow row(space.halves, kAll);
  const float factor = gemv_row_operands<Veu, K, TURNS, CELL>(x, row);
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    float sums[kPairs][2] = {};
#pragma unroll 1
    for (int block = 0; block < kAll; block += kMost) {
      const char* const stage = weights.acquire();
      gemv_row_add_cells<COLUMNS, CELL>(stage, row, block, min(kMost, kAll - block), sums);
      if (block + kMost >= kAll)
        space.template keep_info<COLUMNS * GemvRowInfo<NORM>::kFloats>(chunk, stage + gemv_row_weight_bytes(CELL, COLUMNS, CHUNK_K));
      weights.release();
    }
#pragma unroll
    for (int t = 0; t < COLUMNS / kGemvCellColumns; ++t) {
      const int column = chunk * COLUMNS + t * kGemvCellColumns + lane_id() / 4;
      if (lane_id() % 4 == 0) space.sums[column * kComputeWarps + warp_id()] = sums[t / 2][t % 2] * factor;
    }
    __syncwarp();
  }
}

// The first chunks of a rTask in registers: one, or two where there are more. Who has them needs nothing of the ring when x comes, and the
// ring goes on.
template <int COLUMNS, int MOST, bool ONE>
struct GemvRowHeld {
  using Weights = GemvRowWeights<COLUMNS, MOST>;
  static constexpr int kCount = !ONE && 2 * Weights::kBlocks * Weights::kTiles <= kGemvRowHeld ? 2 : 1;
  Weights of[kCount];
};

// Takes the first chunks, and what lies behind the weights of a rTask's only one.
template <class Veu, int K, int COLUMNS, int CHUNK_K, bool ONE, int INFO, class Held>
RK_INLINE void gemv_row_hold(WeightPipe<Veu>& weights, Held& held, float (&own_info)[INFO], const GemvRowSpace& space) {
  constexpr int kAll = (K + kGemvBlockK - 1) / kGemvBlockK, kChunk = CHUNK_K / kGemvBlockK, kFirst = kChunk < kAll ? kChunk : kAll;
  const char* const stage = weights.acquire();
  held.of[0].load(stage, kFirst);
  const char* const info = stage + COLUMNS * CHUNK_K * 2;
  if constexpr (ONE) {
    load_info(info + min(static_cast<int>(threadIdx.x), COLUMNS - 1) * INFO * 4, own_info);
  } else if constexpr (kFirst == kAll) {
    space.template keep_info<COLUMNS * INFO>(0, info);
  }
  weights.release_after_loads();
  if constexpr (Held::kCount > 1) {
    const char* const second = weights.acquire();
    held.of[1].load(second, gemv_row_second(kAll, kChunk));
    if constexpr (2 * kChunk >= kAll) space.template keep_info<COLUMNS * INFO>(kFirst == kAll ? 1 : 0, second + COLUMNS * CHUNK_K * 2);
    weights.release_after_loads();
  }
}

// Multiplies x by weights of 16 bits, the first of which are in `held`, and leaves the sums of the warp. EXACT: as for gemv_row_split.
template <class Veu, int K, int COLUMNS, int CHUNK_K, bool ONE, int NORM, int TURNS, bool EXACT, int MOST, int HELD>
RK_INLINE void gemv_row_multiply_16bit(WeightPipe<Veu>& weights, GemvRowHeld<COLUMNS, MOST, ONE>& held, const float4 (&x)[HELD],
                                       float shift, int chunks, const GemvRowSpace& space) {
  constexpr int kAll = (K + kGemvBlockK - 1) / kGemvBlockK, kFirst = MOST < kAll ? MOST : kAll;
  const float scale = gemv_row_split<Veu, K, TURNS, EXACT>(x, space.halves);
  GemvRowSums<COLUMNS> of_columns;
  of_columns.clear();
  gemv_row_multiply(held.of[0], space.halves, kFirst, of_columns);
  if constexpr (NORM != kGemvAsIs) gemv_row_stats<NORM, TURNS>(x, shift, gemv_row_count<K>(), space.stats);  // while the products are made
  [[maybe_unused]] int block = kFirst, chunk = 0;  // of the next chunk; the columns' number
  // Leaves the sums of columns whose k are all multiplied; whether they are the last.
  const auto ends = [&] {
    if (!ONE && block < kAll) return false;
    gemv_row_leave<COLUMNS>(of_columns, scale, space.sums + chunk * COLUMNS * kComputeWarps);
    if (ONE || ++chunk == chunks) return true;
    of_columns.clear();
    block = 0;
    return false;
  };
  if (ends()) return;
  if constexpr (GemvRowHeld<COLUMNS, MOST, ONE>::kCount > 1) {
    constexpr int kSecond = gemv_row_second(kAll, MOST);
    gemv_row_multiply(held.of[1], space.halves + (kFirst < kAll ? kFirst * (kGemvBlockK / 4) : 0), kSecond, of_columns);
    block += MOST;
    if (ends()) return;
  }
#pragma unroll 1
  do {
    const int here = min(MOST, kAll - block);
    const char* const stage = weights.acquire();
    held.of[0].load(stage, here);
    gemv_row_multiply(held.of[0], space.halves + block * (kGemvBlockK / 4), here, of_columns);
    block += MOST;
    if (block >= kAll) space.template keep_info<COLUMNS * GemvRowInfo<NORM>::kFloats>(chunk, stage + COLUMNS * CHUNK_K * 2);
    weights.release();
  } while (!ends());
}

// The same with weights of fp32.
template <class Veu, int K, int COLUMNS, int NORM, int TURNS, int HELD>
RK_INLINE void gemv_row_multiply_fp32(WeightPipe<Veu>& weights, const GemvArgs& args, const float4 (&x)[HELD], float shift, int chunks,
                                      const GemvRowSpace& space) {
  if constexpr (NORM != kGemvAsIs) gemv_row_stats<NORM, TURNS>(x, shift, gemv_row_count<K>(), space.stats);
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const char* const stage = weights.acquire();
    float sum[COLUMNS] = {};
    gemv_row_chunk<Veu, COLUMNS, TURNS>(stage, x, args.piece_k / 4, sum);
    space.template keep_info<COLUMNS * GemvRowInfo<NORM>::kFloats>(chunk, stage + COLUMNS * args.piece_k * 4);
    weights.release();
    const float of_warp = gemv_own_sum(sum);
    constexpr int kLanes = kWarp / COLUMNS;  // with the same sum
    if (lane_id() % kLanes == 0) space.sums[(chunk * COLUMNS + lane_id() / kLanes) * kComputeWarps + warp_id()] = of_warp;
  }
}

// The output and the residual of column n; none behind the last one.
template <class Out, int RESIDUAL, class Veu>
RK_INLINE GemvOutput<Out> gemv_row_output(const Task<Veu>& task, const GemvArgs& args, int n) {
  GemvOutput<Out> own = {nullptr, nullptr, 0.0f, 0.0f, 0.0f};
  if (n >= args.channels) return own;
  own.out = values_at<Out>(task, args.out) + n * args.out_stride;
  if constexpr (RESIDUAL != kGemvNoResidual)
    own.added = values_at<Out>(task, args.epilogue.residual) + n * args.epilogue.residual_strides[1];
  return own;
}

template <class Veu, int K, int COLUMNS, int CHUNK_K, bool ONE, int CELL, bool FACTORS, int ACTIVATION, int RESIDUAL, class Out,
          class Value, uint32_t NARROW_IN, int INPUTS, uint32_t SCALARS, int NORM, int TURNS, uint32_t WORDS, class Steps>
RK_BODY void gemv_row(const Task<Veu>& caller) {
  using Fours = GemvFours<1, TURNS>;
  constexpr bool kNarrow = CHUNK_K > 0, kIsPacked = CELL != kCellHalves, kPlain = RESIDUAL == kGemvNoResidual, kWhole = SCALARS == 0;
  static_assert(COLUMNS <= kWarp && COLUMNS % (kNarrow ? 8 : 1) == 0 && Veu::kComputeThreads == kComputeWarps * kWarp);
  constexpr int kInfo = GemvRowInfo<NORM>::kFloats, kTurns = Fours::kTurns, kHeld = (TURNS + kTurns - 1) / kTurns * kTurns;
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const GemvOfRowsArgs& all = task.template arguments<GemvOfRowsArgs>();
  const GemvArgs& args = all.gemv;
  constexpr int kAll = (K + kGemvBlockK - 1) / kGemvBlockK;  // 32 k each
  const int chunks = ONE ? 1 : args.chunks, columns = chunks * COLUMNS;
  const int thread = static_cast<int>(threadIdx.x), first = static_cast<int>(task.index) * columns;
  const GemvRowSpace space(task.template work_as<uint4>(), kNarrow ? gemv_row_operand(CELL, kAll) : 0, columns);
  GemvOutput<Out> own = gemv_row_output<Out, RESIDUAL>(task, args, thread < columns ? first + thread : args.channels);
  GemvOperands<Veu, Value, NARROW_IN, INPUTS, SCALARS, WORDS, 1, TURNS> operands(task, all);
  constexpr uint32_t kAllOperands = (1u << INPUTS) - 1;
  constexpr bool kWaited = (WORDS & kAllOperands) != kAllOperands;  // for the Waits, before anything is read
  // Whatever can be done before x is there: the first chunks' weights are in registers, and their stages are free again. x is looked for
  // first: where a rTask begins late, it is there by then.
  auto polled = operands.poll(all);
  WeightPipe<Veu> weights = task.weights;
  weights.stages = as_shared(weights.stages);  // once: said of two chunks, nvcc 13.0 left out all that followed the second one
  constexpr int kChunk = kNarrow ? CHUNK_K / kGemvBlockK : 1;
  using Held = GemvRowHeld<kNarrow ? COLUMNS : 8, kChunk, ONE>;
  [[maybe_unused]] Held held;
  [[maybe_unused]] float own_info[kInfo];  // of the thread's column, of a rTask of one chunk
  if constexpr (kNarrow && !kIsPacked) gemv_row_hold<Veu, K, COLUMNS, CHUNK_K, ONE>(weights, held, own_info, space);
  [[maybe_unused]] float4 factors[FACTORS ? kHeld : 1];
  if constexpr (FACTORS) {
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
      const int k = gemv_k<Veu>(turn);
      factors[turn] = load_weight4(task.address(all.factors) + (k < kAll * kGemvBlockK ? k : 0));  // they have zeros up to whole 32 k
    }
  }
  if (kWaited) task.await_inputs();
  const uint32_t seen = gemv_begin_residual<WORDS, kWaited>(task, args, own);
  float4 x[kHeld];
#pragma unroll
  for (int turn = 0; turn < kHeld; turn += kTurns) {
    if (turn > 0) operands.place(all, 0, turn);
    float4 inputs[INPUTS][Fours::kCount], made[Fours::kCount];
    if (turn > 0)
      operands.load(all, turn, inputs);
    else
      operands.load(all, turn, polled, inputs);
    Steps::make(all, inputs, made);
#pragma unroll
    for (int g = 0; g < kTurns; ++g) x[turn + g] = gemv_first<kWhole>(made[g], K - gemv_k<Veu>(turn + g));
  }
  [[maybe_unused]] float shift = 0.0f;
  if constexpr (NORM == kGemvCentred) shift = gemv_row_shift<Veu, K, TURNS>(x);

  if constexpr (kIsPacked) {
    if constexpr (NORM != kGemvAsIs) gemv_row_stats<NORM, TURNS>(x, shift, gemv_row_count<K>(), space.stats);  // of x without the factors
    if constexpr (FACTORS) gemv_row_scale<TURNS>(x, factors);
    gemv_row_multiply_cells<Veu, K, COLUMNS, CHUNK_K, CELL, NORM, TURNS>(weights, x, chunks, space);
  } else if constexpr (kNarrow) {
    // What f(in0, ..) makes of fp16 numbers is in0 itself, or none.
    constexpr bool kExact = std::is_same_v<Value, Half> && NARROW_IN == 1 && Steps::kNone && NORM == kGemvAsIs;
    gemv_row_multiply_16bit<Veu, K, COLUMNS, CHUNK_K, ONE, NORM, TURNS, kExact>(weights, held, x, shift, chunks, space);
  } else {
    gemv_row_multiply_fp32<Veu, K, COLUMNS, NORM, TURNS>(weights, args, x, shift, chunks, space);
  }
  sync_compute<Veu>();
  gemv_await_rest<kPlain, WORDS, kWaited>(task, args);
  if (thread >= columns) return;

  GemvRowNorm norm;
  if constexpr (NORM != kGemvAsIs) norm = gemv_row_total<NORM>(all, space.stats);
  const auto finish_column = [&](int n, uint32_t seen_residual, const float* info) {
    float v = gemv_row_sum(space.sums, n);
    if constexpr (NORM == kGemvCentred) {
#pragma unroll
      for (int w = 0; w < kComputeWarps; ++w) v = fmaf(norm.off[w], info[kGemvRowSums + w], v);
    }
    v = fmaf(v, info[0] * norm.factor, info[1]);
    if constexpr (!kPlain) gemv_end_residual<WORDS, kWaited>(task, args, seen_residual, own);
    if constexpr (RESIDUAL == kGemvBefore) v += own.residual;
    v = activate(ACTIVATION, v, args.epilogue.a, args.epilogue.b);
    if constexpr (RESIDUAL == kGemvAfter) v += own.residual;
    gemv_store_value<WORDS>(task, all, own, v);
  };
  if constexpr (ONE) {
    finish_column(thread, seen, own_info);
  } else {
    uint32_t seen_here = seen;
#pragma unroll 1
    for (int n = thread;;) {
      finish_column(n, seen_here, space.infos + n * kInfo);
      n += kComputeWarps * kWarp;
      if (n >= columns) break;
      own = gemv_row_output<Out, RESIDUAL>(task, args, first + n);
      seen_here = gemv_begin_residual<WORDS, kWaited>(task, args, own);
    }
  }
}

}  // namespace rk
