// The gated feed-forward part of a transformer for a tile of rows (its field calls it SwiGLU):
//   y[r][h] = silu(sum over k of x[r][k] * gate[k][h]) * sum over k of x[r][k] * up[k][h]
//   z[r][c] = residual[r][c] + sum over h of y[r][h] * down[h][c]
//
// A rTask is a tile of 16 * TILES rows. It keeps x and y in shared memory as operands, and so needs no other rTask's results; all weights
// come through the ring of weight stages, in the order in which they are used.
//
// Rows are the rows of an instruction (mma's operand A), columns its columns. A unit is 16 k of two times eight columns for each of the
// eight warps. In the first product these are eight columns of `gate` and the same of `up`, so that a lane has both factors of its values
// of y; in the second they are sixteen columns of z. A step is four units. A block of 64 columns of y takes all steps of k, one of 128
// columns of z all steps of y's columns.
//
// Weights of a unit: warp, lane, then {B[2 t][g] and B[2 t + 1][g], B[2 t + 8][g] and B[2 t + 9][g]} of lane 4 g + t for the first eight
// columns, and the same for the second eight. A chunk is a fixed number of steps; blocks follow each other without a gap. Weights of
// columns and k that do not exist are zeros.
//
// Example: K 96, 200 columns of y, C 96, TILES 2. The first product has 4 blocks of 2 steps, the second one block of 4. Lane 13 of warp 5
// has, in block 1 of the first, columns 64 + 5 * 8 + 13 % 4 * 2 = 106 and 107 of rows 3, 11, 19 and 27; in the second columns 82 and 83,
// 90 and 91 of z.
#pragma once

#include "kernels/chain/gated_feed_forward_numbers.cuh"
#include "kernels/vdevice/pairs.cuh"

namespace rk {

struct GatedFeedForwardArgs {             // in tables
  TensorRef in, residual, out;            // residual: or null
  int32_t in_row, residual_row, out_row;  // elements from a row to the next
  int32_t rows;                           // of all tiles
  int32_t chunk_steps;
  int32_t k, inner, columns;  // of x, a multiple of four; of y; of z, a multiple of two
};

// The rows of x as operands, zeros behind the last row and the last column.
template <class In, class Value, int ROWS, int THREADS>
RK_INLINE void store_gated_rows(char* to, const In* in, const GatedFeedForwardArgs& args, const GatedSizes& sizes, int first_row) {
  constexpr int kThreads = THREADS / ROWS, kBatch = 4;  // threads of a row; vectors of a thread that are on their way together
  const int row = static_cast<int>(threadIdx.x) / kThreads, part = static_cast<int>(threadIdx.x) % kThreads;
  const int vectors = sizes.in_steps() * kGatedDepth / 4, there = first_row + row < args.rows ? sizes.k / 4 : 0;
  const In* const from = in + (first_row + row) * args.in_row;
#pragma unroll 1
  for (int v = part; v < vectors; v += kBatch * kThreads) {
    Raw4<In> raw[kBatch] = {};
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (v + i * kThreads < there) raw[i] = load_raw4(from + (v + i * kThreads) * 4);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (v + i * kThreads >= vectors) continue;
      const float4 x = raw[i].floats();
      store_shared2(to, row * sizes.in_pitch() + (v + i * kThreads) * 8,
                    {float_of(pair_of<Value>(x.x, x.y)), float_of(pair_of<Value>(x.z, x.w))});
    }
  }
}

// A warp's sums of a block: of rows 16 i + g and 16 i + g + 8, columns 2 t and 2 t + 1 of the first and of the second eight.
template <class Veu, class Value, int TILES>
struct GatedProduct {
  WeightStages<Veu> weights;
  int chunk_steps, left;  // steps of a chunk; of the one that is there
  int lane_weights;       // byte of the lane in a unit
  float sum[TILES][2][4];

  RK_INLINE GatedProduct(const Task<Veu>& task, int chunk_steps_)
      : weights(task.weight_stages()), chunk_steps(chunk_steps_), left(chunk_steps_) {
    lane_weights = computed_now((warp_id() * kWarp + lane_id()) * 16);
    weights.acquire();
  }
  // Of row g + 8 * eighth.
  RK_INLINE float2 pair(int eighth, int eight) const {
    const float(&of)[4] = sum[eighth / 2][eight];
    return {of[eighth % 2 * 2], of[eighth % 2 * 2 + 1]};
  }

  // The sums of the next block, whose operand has rows of `pitch` bytes.
  RK_INLINE void multiply(const char* rows, int pitch, int steps) {
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][0][e] = sum[i][1][e] = 0.0f;
    }
    int at = lane_id() % 16 * pitch + lane_id() / 16 * 16;
#pragma unroll 1
    for (; steps > 0; --steps, --left, at += kGatedDepth * 2) {
      if (left == 0) {
        weights.release();
        weights.acquire();
        left = chunk_steps;
      }
      add(rows, at, pitch, weights.base + (chunk_steps - left) * kGatedStepBytes + lane_weights);
    }
  }

 private:
  RK_INLINE void add(const char* rows, int at, int pitch, int place) {
    uint32_t a[kGatedUnits][TILES][4];
    float4 b[kGatedUnits];
#pragma unroll
    for (int u = 0; u < kGatedUnits; ++u) {
      b[u] = load_shared4(weights.stages, place + u * kGatedUnitBytes);
#pragma unroll
      for (int i = 0; i < TILES; ++i) ldmatrix4(a[u][i], rows, at + i * 16 * pitch + u * 32);
    }
#pragma unroll
    for (int u = 0; u < kGatedUnits; ++u) {
      const uint32_t first[2] = {bits_of(b[u].x), bits_of(b[u].y)}, second[2] = {bits_of(b[u].z), bits_of(b[u].w)};
#pragma unroll
      for (int i = 0; i < TILES; ++i) {
        mma_pairs<Value>(sum[i][0], a[u][i], first);
        mma_pairs<Value>(sum[i][1], a[u][i], second);
      }
    }
  }
};

// In, Value, Out, Added: x, the operands, z, and the residual.
template <class Veu, class In, class Value, class Out, class Added, int TILES>
RK_BODY void gated_feed_forward(const Task<Veu>& task) {
  const auto& args = task.template arguments<GatedFeedForwardArgs>();
  const GatedSizes sizes{args.k, args.inner, args.columns};
  const int first_row = static_cast<int>(task.index) * 16 * TILES, rows = args.rows - first_row;
  const int row = lane_id() / 4, column = lane_id() % 4 * 2;  // of the lane's first pair
  char *const x = as_shared(task.work), *const y = x + 16 * TILES * sizes.in_pitch();
  store_gated_rows<In, Value, 16 * TILES, Veu::kComputeThreads>(x, values_at<In>(task, args.in), args, sizes, first_row);
  GatedProduct<Veu, Value, TILES> product(task, args.chunk_steps);
  sync_compute<Veu>();

#pragma unroll 1
  for (int block = 0; block < sizes.inner_steps(); ++block) {
    product.multiply(x, sizes.in_pitch(), sizes.in_steps());
    const int to = (block * kGatedInner + warp_id() * 8 + column) * 2;
#pragma unroll
    for (int i = 0; i < 2 * TILES; ++i) {
      const float2 gate = product.pair(i, 0), up = product.pair(i, 1);
      store_shared_word(y, (row + 8 * i) * sizes.inner_pitch() + to, pair_of<Value>(silu(gate.x) * up.x, silu(gate.y) * up.y));
    }
  }
  sync_compute<Veu>();

  Out* const out = values_at<Out>(task, args.out) + (first_row + row) * args.out_row;
  const Added* const residual = values_at<Added>(task, args.residual);
#pragma unroll 1
  for (int block = 0; block < sizes.outer_blocks(); ++block) {
    const int first_column = block * kGatedOuter + warp_id() * 16 + column;
    // Pair i: its column, and whether it is there.
    const auto column_of = [&](int i) { return first_column + i % 2 * 8; };
    const auto exists = [&](int i) { return row + i / 2 * 8 < rows && column_of(i) < sizes.columns; };
    Raw2<Added> added[4 * TILES] = {};  // on its way while the block is multiplied
#pragma unroll
    for (int i = 0; i < 4 * TILES; ++i) {
      if (residual != nullptr && exists(i))
        added[i] = load_raw2(residual + (first_row + row + i / 2 * 8) * args.residual_row + column_of(i));
    }
    product.multiply(y, sizes.inner_pitch(), sizes.inner_steps());
#pragma unroll
    for (int i = 0; i < 4 * TILES; ++i) {
      const float2 sums = product.pair(i / 2, i % 2), more = added[i].floats();
      if (exists(i)) store2(out + i / 2 * 8 * args.out_row + column_of(i), {sums.x + more.x, sums.y + more.y});
    }
  }
  product.weights.release();
}

}  // namespace rk
