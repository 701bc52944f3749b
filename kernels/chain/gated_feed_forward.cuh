// The gated feed-forward part of a transformer for a tile of rows (its field calls it SwiGLU):
//   y[r][h] = silu(sum over k of x[r][k] * gate[k][h]) * sum over k of x[r][k] * up[k][h]
//   z[r][c] = residual[r][c] + sum over h of y[r][h] * down[h][c]
//
// A rTask is a tile of 16 * TILES rows. It keeps x and y in shared memory as operands, and so needs no other rTask's results; all weights
// come through the ring of weight stages, in the order in which they are used.
//
// Rows are the rows of an instruction (mma's operand A), columns its columns. A step is 16 k of two times eight columns for each of the
// eight warps. In the first product these are eight columns of `gate` and the same of `up`, so that a lane has both factors of its values
// of y; in the second they are sixteen columns of z. A block of 64 columns of y takes all steps of k, one of 128 columns of z all steps
// of y's columns.
//
// Weights of a step: warp, lane, then {B[2 t][g] and B[2 t + 1][g], B[2 t + 8][g] and B[2 t + 9][g]} of lane 4 g + t for the first eight
// columns, and the same for the second eight. A chunk is a fixed number of steps; blocks follow each other without a gap. Weights of
// columns and k that do not exist are zeros.
//
// Example: K 96, 200 columns of y, C 96, TILES 2. The first product has 4 blocks of 6 steps, the second one block of 13. Lane 13 of warp 5
// has, in block 1 of the first, columns 64 + 5 * 8 + 13 % 4 * 2 = 106 and 107 of rows 3, 11, 19 and 27; in the second columns 82 and 83,
// 90 and 91 of z.
#pragma once

#include "kernels/chain/gated_feed_forward_numbers.cuh"
#include "kernels/vdevice/pairs.cuh"

namespace rk {

struct GatedFeedForwardArgs {  // in tables
  TensorRef in, residual, out;            // residual: or null
  int32_t in_row, residual_row, out_row;  // elements from a row to the next
  int32_t rows;                           // of all tiles
  int32_t k, columns;                     // of x, a multiple of four; of z, a multiple of two
  int32_t in_steps, inner_steps;          // of a block of either product
  int32_t inner_blocks, outer_blocks;
  int32_t chunk_steps;
};

// The rows of x as operands, zeros behind the last row and the last column.
template <class In, class Value, int ROWS, int THREADS>
RK_INLINE void store_gated_rows(char* to, const In* in, const GatedFeedForwardArgs& args, int first_row) {
  constexpr int kThreads = THREADS / ROWS, kBatch = 4;  // threads of a row
  const int row = static_cast<int>(threadIdx.x) / kThreads, part = static_cast<int>(threadIdx.x) % kThreads;
  const int vectors = args.in_steps * kGatedDepth / 4, at = row * gated_pitch(args.in_steps);
  const int there = first_row + row < args.rows ? args.k / 4 : 0;
  const In* const from = in + static_cast<int64_t>(first_row + row) * args.in_row;
#pragma unroll 1
  for (int v = part; v < vectors; v += kBatch * kThreads) {
    Raw4<In> raw[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      raw[i] = {};
      if (v + i * kThreads < there) raw[i] = load_raw4(from + (v + i * kThreads) * 4);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (v + i * kThreads >= vectors) continue;
      const float4 x = raw[i].floats();
      store_shared2(to, at + (v + i * kThreads) * 8, {float_of(pair_of<Value>(x.x, x.y)), float_of(pair_of<Value>(x.z, x.w))});
    }
  }
}

// A warp's sums of a block: of rows 16 i + g and 16 i + g + 8, columns 2 t and 2 t + 1 of the first and of the second eight.
template <class Veu, class Value, int TILES>
struct GatedProduct {
  static constexpr int kBatch = 4;  // steps whose operands are loaded together

  WeightStages<Veu> weights;
  int chunk_steps, left;  // steps of a chunk; of the one that is there
  int lane_weights;       // byte of the lane in a step
  float sum[TILES][2][4];

  RK_INLINE GatedProduct(const Task<Veu>& task, int chunk_steps_)
      : weights(task.weight_stages()), chunk_steps(chunk_steps_), left(chunk_steps_) {
    lane_weights = computed_now((warp_id() * kWarp + lane_id()) * 16);
    weights.acquire();
  }
  RK_INLINE float2 pair(int tile, int eight, int half) const { return {sum[tile][eight][2 * half], sum[tile][eight][2 * half + 1]}; }

  // The sums of the next block, whose operand has rows of `pitch` bytes.
  RK_INLINE void multiply(const char* rows, int pitch, int steps) {
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][0][e] = sum[i][1][e] = 0.0f;
    }
    int at = lane_id() % 16 * pitch + lane_id() / 16 * 16;
#pragma unroll 1
    while (steps > 0) {
      if (left == 0) {
        weights.release();
        weights.acquire();
        left = chunk_steps;
      }
      int n = min(steps, left);
      steps -= n;
      int place = weights.base + (chunk_steps - left) * kGatedStepBytes + lane_weights;
      left -= n;
#pragma unroll 1
      for (; n >= kBatch; n -= kBatch) add<kBatch>(rows, at, pitch, place);
#pragma unroll 1
      for (; n > 0; --n) add<1>(rows, at, pitch, place);
    }
  }

 private:
  template <int COUNT>
  RK_INLINE void add(const char* rows, int& at, int pitch, int& place) {
    uint32_t a[COUNT][TILES][4];
    float4 b[COUNT];
#pragma unroll
    for (int s = 0; s < COUNT; ++s) {
      b[s] = load_shared4(weights.stages, place);
#pragma unroll
      for (int i = 0; i < TILES; ++i) ldmatrix4(a[s][i], rows, at + i * 16 * pitch);
      place += kGatedStepBytes;
      at += kGatedDepth * 2;
    }
#pragma unroll
    for (int s = 0; s < COUNT; ++s) {
      const uint32_t first[2] = {bits_of(b[s].x), bits_of(b[s].y)}, second[2] = {bits_of(b[s].z), bits_of(b[s].w)};
#pragma unroll
      for (int i = 0; i < TILES; ++i) {
        mma_pairs<Value>(sum[i][0], a[s][i], first);
        mma_pairs<Value>(sum[i][1], a[s][i], second);
      }
    }
  }
};

// In, Value, Out, Added: x, the operands, z, and the residual.
template <class Veu, class In, class Value, class Out, class Added, int TILES>
RK_BODY void gated_feed_forward(const Task<Veu>& task) {
  const auto& args = task.template arguments<GatedFeedForwardArgs>();
  const int first_row = static_cast<int>(task.index) * 16 * TILES, rows = args.rows - first_row;
  const int in_pitch = gated_pitch(args.in_steps), inner_pitch = gated_pitch(args.inner_steps);
  const int row = lane_id() / 4, column = lane_id() % 4 * 2;  // of the lane's first pair
  char* const x = as_shared(task.work);
  char* const y = x + 16 * TILES * in_pitch;
  store_gated_rows<In, Value, 16 * TILES, Veu::kComputeThreads>(x, values_at<In>(task, args.in), args, first_row);
  GatedProduct<Veu, Value, TILES> product(task, args.chunk_steps);
  sync_compute<Veu>();

#pragma unroll 1
  for (int block = 0; block < args.inner_blocks; ++block) {
    product.multiply(x, in_pitch, args.in_steps);
    const int to = block * kGatedInner + warp_id() * 8 + column;
    if (to >= args.inner_steps * kGatedDepth) continue;
#pragma unroll
    for (int i = 0; i < 2 * TILES; ++i) {
      const float2 gate = product.pair(i / 2, 0, i % 2), up = product.pair(i / 2, 1, i % 2);
      store_shared_word(y, (row + 8 * i) * inner_pitch + to * 2, pair_of<Value>(silu(gate.x) * up.x, silu(gate.y) * up.y));
    }
  }
  sync_compute<Veu>();

  Out* const out = values_at<Out>(task, args.out);
  const Added* const residual = values_at<Added>(task, args.residual);
#pragma unroll 1
  for (int block = 0; block < args.outer_blocks; ++block) {
    const int c = block * kGatedOuter + warp_id() * 16 + column;
    const auto is_there = [&](int i, int eight) { return row + 8 * i < rows && c + 8 * eight < args.columns; };
    Raw2<Added> added[2 * TILES][2];  // on its way while the block is multiplied
#pragma unroll
    for (int i = 0; i < 4 * TILES; ++i) {
      added[i / 2][i % 2] = {};
      if (residual != nullptr && is_there(i / 2, i % 2))
        added[i / 2][i % 2] = load_raw2(residual + static_cast<int64_t>(first_row + row + i / 2 * 8) * args.residual_row + c + i % 2 * 8);
    }
    product.multiply(y, inner_pitch, args.inner_steps);
#pragma unroll
    for (int i = 0; i < 4 * TILES; ++i) {
      const float2 sums = product.pair(i / 4, i % 2, i / 2 % 2), r = added[i / 2][i % 2].floats();
      if (is_there(i / 2, i % 2))
        store2(out + static_cast<int64_t>(first_row + row + i / 2 * 8) * args.out_row + c + i % 2 * 8, {sums.x + r.x, sums.y + r.y});
    }
  }
  product.weights.release();
}

}  // namespace rk
