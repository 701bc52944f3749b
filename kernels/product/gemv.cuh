// Product of a few rows with a large matrix, bound by the reading of the matrix:
//   out[m][n] = act(bias[n] + residual[m][n] + sum over k of in[m][k] * weight[k][n])     m < rows <= ROWS
// A rTask is 8 * COLUMNS columns n, COLUMNS of them per warp. The weights stream through the ring, a chunk being weight[column][chunk_k];
// the lanes of a warp share the k of a column. The rows of `in` are copied to shared memory in pieces of piece_k, which take turns in two
// places. In shared memory they are fp32, and so are the sums. In is the type of `in` in memory, Out that of out and the residual.
// VECTOR: 4 of k are one aligned access, and k is a multiple of 4. PLAIN: no residual, and no activation but relu, as most classifiers
// end; code for any other epilogue would be long.
//
// NARROW: weights are fp16 numbers, and a column's sum has to be multiplied by its scale. A warp then takes 256 of k at once instead of
// 128. A lane's 8 weights are 4 of the first 128 and 4 of the others, so that both reads of `in` are free of bank conflicts.
//
// Example: COLUMNS 4, ROWS 2. Warp 2 of rTask 3 has columns (3 * 8 + 2) * 4 = 104 to 107. Lane 20 reads k 80 to 83 of every 128 (NARROW:
// 80 to 83 and 208 to 211 of every 256), which are bytes 320 to 335 of the 512 that the warp reads of a column. In the end lane 20 has
// sum number 20 / 4 = 5, row 1 and column 105, which it stores; lanes 21 to 23 have the same sum.
#pragma once

#include "kernels/product/numbers.cuh"
#include "kernels/vdevice/epilogue.cuh"
#include "kernels/vdevice/half.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

inline constexpr int kGemvWarpK = kWarp * kGemvLaneK;

struct GemvColumn {
  float scale, bias;  // 1 and 0 where there are none
};

struct GemvArgs {  // in tables
  TensorRef in;
  TensorRef out;
  EpilogueArgs epilogue;                              // residual_strides[1] only; the bias is in `columns`
  TensorRef columns;                                  // GemvColumn[channels]
  int64_t in_rows[8], out_rows[8], residual_rows[8];  // offset of each row; the first is 0
  int32_t in_stride, out_stride;                      // of k and of n
  int32_t rows, channels, k;
  int32_t chunk_k, chunks, column_bytes;  // k of a chunk, chunks of a rTask; column_bytes: in a chunk, a multiple of kGemvStepBytes
  int32_t piece_k, chunks_per_piece;      // piece_k = chunks_per_piece * chunk_k
  int32_t turns;                          // blocks of 8 * COLUMNS columns that a rTask takes one after another; gemv.cuh: 1
};

// Starts the copy of in[row][first, first + piece_k) for all rows. Behind the end of k zeros are stored.
template <class Veu, int ROWS, bool VECTOR, class In>
RK_INLINE void gemv_copy(const GemvArgs& args, const In* in, float* to, int first) {
  constexpr int kWidth = VECTOR ? 4 : 1;
  [[maybe_unused]] constexpr int kUnrolled = sizeof(In) == 2 ? 4 : 1;  // loads under way together; copies are in any case
  const int piece_k = args.piece_k, k_end = args.k - first;
#pragma unroll 1
  for (int m = 0; m < ROWS; ++m) {
    const bool row_valid = ROWS == 1 || m < args.rows;
    const In* const row = in + (ROWS > 1 && row_valid ? args.in_rows[m] : 0) + first * args.in_stride;
#pragma unroll(kUnrolled)
    for (int k = static_cast<int>(threadIdx.x) * kWidth; k < piece_k; k += Veu::kComputeThreads * kWidth) {
      const bool valid = row_valid && k < k_end;
      if constexpr (sizeof(In) == 2 && VECTOR)
        *reinterpret_cast<float4*>(to + m * piece_k + k) = valid ? load4(row + k) : float4{0.0f, 0.0f, 0.0f, 0.0f};
      else if constexpr (sizeof(In) == 2)
        to[m * piece_k + k] = valid ? load1(row + k * args.in_stride) : 0.0f;
      else if constexpr (VECTOR)
        cp_async16(to + m * piece_k + k, row + k, valid);
      else
        cp_async4(to + m * piece_k + k, row + k * args.in_stride, valid);
    }
  }
}

// A step of gemv_own_sum: of 2 * LEFT sums a lane keeps LEFT, and gives the others to the lane that keeps those. By templates, since nvcc
// did not unroll a loop over LEFT for 16 sums and more, which then lay in local memory.
template <int LEFT, int COUNT>
RK_INLINE void gemv_halve_sums(float (&sum)[COUNT]) {
  constexpr int kStep = kWarp / 2 * LEFT * 2 / COUNT;
  const bool upper = (lane_id() & kStep) != 0;
#pragma unroll
  for (int i = 0; i < LEFT; ++i) {
    const float other = __shfl_xor_sync(kFullMask, upper ? sum[i] : sum[LEFT + i], kStep);
    sum[i] = (upper ? sum[LEFT + i] : sum[i]) + other;
  }
  if constexpr (LEFT > 1) gemv_halve_sums<LEFT / 2>(sum);
}

// Adds each of the COUNT sums over all lanes; a lane gets sum number lane / (32 / COUNT). Each step halves the number of sums that a lane
// still adds up.
template <int COUNT>
RK_INLINE float gemv_own_sum(float (&sum)[COUNT]) {
  if constexpr (COUNT > 1) gemv_halve_sums<COUNT / 2>(sum);
#pragma unroll
  for (int step = kWarp / COUNT / 2; step > 0; step /= 2) sum[0] += __shfl_xor_sync(kFullMask, sum[0], step);
  return sum[0];
}

// What the lane needs for its output besides the sum, fetched while the weights arrive.
template <class Out>
struct GemvOutput {
  Out* out;          // null: none of the outputs is this lane's
  const Out* added;  // the residual's value; null: there is none
  float scale, bias, residual;
};
// All but the residual: it reads constants alone. `block`: of 8 * COLUMNS columns.
template <class Out, int ROWS, int COLUMNS, bool PLAIN, class Veu>
RK_INLINE GemvOutput<Out> gemv_output(const Task<Veu>& task, const GemvArgs& args, int block) {
  constexpr int kLanes = kWarp / (ROWS * COLUMNS);  // with the same sum
  const int number = lane_id() / kLanes, m = ROWS > 1 ? number / COLUMNS : 0;
  const int n = (block * (Veu::kComputeThreads / kWarp) + warp_id()) * COLUMNS + number % COLUMNS;
  GemvOutput<Out> own = {nullptr, nullptr, 0.0f, 0.0f, 0.0f};
  if (lane_id() % kLanes != 0 || (ROWS > 1 && m >= args.rows) || n >= args.channels) return own;
  const uint2 column = load_weight2(reinterpret_cast<const GemvColumn*>(task.address(args.columns)) + n);
  own.scale = __uint_as_float(column.x);
  own.bias = __uint_as_float(column.y);
  const Out* const residual = PLAIN ? nullptr : values_at<Out>(task, args.epilogue.residual);
  if (residual != nullptr) own.added = residual + args.residual_rows[m] + n * args.epilogue.residual_strides[1];
  own.out = values_at<Out>(task, args.out) + (ROWS > 1 ? args.out_rows[m] : 0) + n * args.out_stride;
  return own;
}

template <class Out>
RK_INLINE void gemv_residual(GemvOutput<Out>& own) {
  if (own.added != nullptr) own.residual = load1(own.added);
}

// Adds up the lanes' sums; that of the output that is this lane's, with its bias.
template <class Out, int COUNT>
RK_INLINE float gemv_result(const GemvOutput<Out>& own, float (&sum)[COUNT]) {
  return fmaf(gemv_own_sum(sum), own.scale, own.bias);
}

template <bool PLAIN, class Out>
RK_INLINE float gemv_finish(const GemvArgs& args, const GemvOutput<Out>& own, float v) {
  if (!PLAIN) return finish(args.epilogue, v, own.residual);
  return args.epilogue.activation == kRelu ? relu(v) : v;
}

template <bool PLAIN, class Out, int COUNT>
RK_INLINE void gemv_store(const GemvArgs& args, const GemvOutput<Out>& own, float (&sum)[COUNT]) {
  const float v = gemv_finish<PLAIN>(args, own, gemv_result(own, sum));
  if (own.out != nullptr) store1(own.out, v);
}

RK_INLINE float4 gemv_four(uint32_t low, uint32_t high) {
  const float2 a = floats_of_halves(low), b = floats_of_halves(high);
  return float4{a.x, a.y, b.x, b.y};
}

RK_INLINE void gemv_add(float& sum, const float4& a, const float4& b) {
  sum = fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// sum += x * w over one chunk; sum[m * COLUMNS + c] is that of row m and column c.
template <int ROWS, int COLUMNS, bool NARROW>
RK_INLINE void gemv_chunk(const float* x, const char* w, int column_bytes, int piece_k, float (&sum)[ROWS * COLUMNS]) {
  constexpr int kFours = NARROW ? 2 : 1;                                                             // fours of k that a lane takes at once
  [[maybe_unused]] constexpr int kSteps = !NARROW && ROWS * COLUMNS < 4 ? 4 / (ROWS * COLUMNS) : 1;  // loads under way
#pragma unroll(kSteps)
  for (int at = 0; at < column_bytes; at += kGemvStepBytes, x += kFours * kGemvWarpK) {
    float4 b[COLUMNS][kFours];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      const char* const from = w + c * column_bytes + at;
      if constexpr (NARROW) {
        const uint4 pairs = *reinterpret_cast<const uint4*>(from);
        b[c][0] = gemv_four(pairs.x, pairs.y);
        b[c][1] = gemv_four(pairs.z, pairs.w);
      } else {
        b[c][0] = *reinterpret_cast<const float4*>(from);
      }
    }
#pragma unroll
    for (int m = 0; m < ROWS; ++m) {
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        const float4 a = *reinterpret_cast<const float4*>(x + m * piece_k + i * kGemvWarpK);
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) gemv_add(sum[m * COLUMNS + c], a, b[c][i]);
      }
    }
  }
}

template <class Veu, int ROWS, int COLUMNS, bool NARROW, bool VECTOR, bool PLAIN, class In = float, class Out = float>
RK_BODY void gemv(const Task<Veu>& caller) {
  static_assert(ROWS * COLUMNS <= kWarp && ROWS <= 8);
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const GemvArgs& args = task.template arguments<GemvArgs>();
  const In* const in = values_at<In>(task, args.in);
  float* const pieces = task.template work_as<float>();
  const int chunk_k = args.chunk_k, chunks = args.chunks, piece_k = args.piece_k, column_bytes = args.column_bytes;
  WeightPipe<Veu> weights = task.weights;
  float sum[ROWS * COLUMNS] = {};
  GemvOutput<Out> own{};

  task.await_inputs();
  // One turn comes before the first piece and only starts the copy of that piece.
#pragma unroll 1
  for (int chunk = -args.chunks_per_piece, side = 1; chunk < chunks; side ^= 1) {
    const int next = chunk + args.chunks_per_piece;
    cp_async_wait<0>();
    sync_compute<Veu>();  // this piece has arrived for all threads, and no thread still reads the other piece
    if (next < chunks) gemv_copy<Veu, ROWS, VECTOR>(args, in, pieces + (side ^ 1) * ROWS * piece_k, next * chunk_k);
    cp_async_commit();
    if (next == 0) {
      own = gemv_output<Out, ROWS, COLUMNS, PLAIN>(task, args, static_cast<int>(task.index));
      gemv_residual(own);
    }
    const float* x = pieces + side * ROWS * piece_k + lane_id() * kGemvLaneK;
#pragma unroll 1
    for (chunk = next == 0 ? next : chunk; chunk < min(next, chunks); ++chunk, x += chunk_k) {
      const char* const stage = as_shared(weights.acquire());
      gemv_chunk<ROWS, COLUMNS, NARROW>(x, stage + warp_id() * COLUMNS * column_bytes + lane_id() * 16, column_bytes, piece_k, sum);
      weights.release();
    }
  }

  gemv_store<PLAIN>(args, own, sum);
}

}  // namespace rk
