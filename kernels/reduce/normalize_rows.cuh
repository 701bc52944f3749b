// Layer normalisation: as normalize.cuh, for rows of neighbouring elements in whole groups of four (vectors), with one row of scale and
// bias for all rows. 2^n threads share a row; each has kEach vectors of it in registers. The mean, then the squares around the mean, are
// added up by shuffles and, if a row has more threads than a warp, over the warps in shared memory, always in the same order. Threads of
// one warp need no barrier. The code is short, since code that runs once a layer costs more than its arithmetic. Limits: x and y are of
// types In and Out, fp32 or 16 bits each; scale and bias are fp32. normalize_rows_of takes rows in the order of a table,
// and normalize_rows_side_by_side several for each row. normalize_rows_quantised stores rounded(y / divisor; low, high),
// and may read and write bytes (normalize_rows_bytes.cuh).
// Example: 24 rows of 96 elements. A row is 24 vectors for 8 threads with 3 vectors each, and 256 threads have all rows at the same time.
// Thread 77 has row 77 / 8 = 9 and vectors 5, 13 and 21 of it.
#pragma once

#include "kernels/reduce/numbers.cuh"
#include "kernels/tile/centred_rows.cuh"
#include "kernels/vdevice/epilogue.cuh"
#include "kernels/vdevice/task.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

struct NormalizeRowsArgs {                                            // in tables
  TensorRef in, out, scale, bias;                                     // the last two may be null
  int32_t kept_in[kNormalizeRowsRank], kept_out[kNormalizeRowsRank];  // strides of rows, outermost dimension first
  Divisor kept_divisors[kNormalizeRowsRank - 1];
  uint32_t kept_rank, rows, rows_per_rtask;
  uint32_t vectors;       // of a row
  uint32_t threads_log2;  // of a row
  float inverse_count, epsilon;
  int32_t centered;
  int32_t factors_await;  // not 0: scale or bias is no constant, and is there when the inputs are
  TensorRef table;        // of a table: int32, where each row of the input begins; kept_in does not count then
  // normalize_rows_side_by_side: rows of the input in a row, whose places follow each other in the table, and vectors of each.
  uint32_t pieces;
  Divisor piece;
  float divisor, low, high;   // normalize_rows_quantised
  float in_low{}, out_low{};  // the same: the numbers that bytes of 0 stand for, in Unsigned8
};

// Where the rows of the input are: in their order, in that of a table, or several side by side in that of a table.
enum NormalizedRows : int { kRowsInOrder, kRowsOfTable, kRowsSideBySide };

// reciprocal: of args.divisor.
RK_INLINE float4 quantised4(const NormalizeRowsArgs& args, float reciprocal, const float4& v) {
  const auto one = [&](float x) { return rounded(quotient(x, args.divisor, reciprocal), args.low, args.high); };
  return float4{one(v.x), one(v.y), one(v.z), one(v.w)};
}

// Bytes stand for whole numbers from `low` on.
template <class Value>
RK_INLINE float4 above_low4(const float4& v, float low) {
  if constexpr (sizeof(Value) > 1) return v;
  return float4{v.x + low, v.y + low, v.z + low, v.w + low};
}

template <class Veu, int kEach, class In, class Out, NormalizedRows kRows, bool kQuantised = false>
RK_INLINE void normalize_some_rows(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const NormalizeRowsArgs& args = task.template arguments<NormalizeRowsArgs>();
  float* const shared = task.template work_as<float>();
  const uint32_t log2 = args.threads_log2, vectors = args.vectors, group = threadIdx.x >> log2;
  const uint32_t first = threadIdx.x & ((1u << log2) - 1);  // of the thread's vectors
  const uint32_t limit = (task.index + 1) * args.rows_per_rtask;
  const uint32_t end = limit < args.rows ? limit : args.rows;
  const float* const scales = task.address(args.scale);
  const float* const biases = task.address(args.bias);
#pragma unroll 1
  for (uint32_t row = task.index * args.rows_per_rtask + group; row - group < end; row += Veu::kComputeThreads >> log2) {
    uint32_t rest = row;
    int32_t from = 0, to = 0;  // enough within a tensor
#pragma unroll 1
    for (int d = static_cast<int>(args.kept_rank) - 1; d >= 0; --d) {
      uint32_t at = rest;
      if (d > 0) rest = divide(rest, args.kept_divisors[d - 1], at);
      from += static_cast<int32_t>(at) * args.kept_in[d];
      to += static_cast<int32_t>(at) * args.kept_out[d];
    }
    if (kRows == kRowsOfTable && row < end) from = __float_as_int(load_weight1(task.address(args.table) + row));
    const In* const in = values_at<const In>(task, args.in) + from;
    Out* const out = values_at<Out>(task, args.out) + to;
    // All loads are under way before anything is added up. Those of scale and bias come first: constants do not wait for the inputs, and
    // else all SMs would read the same lines at the moment at which the rows come. Elements that do not exist are zero, and the mean is
    // not subtracted from them.
    float4 x[kEach], scale[kEach], bias[kEach];
    bool exists[kEach];
    int32_t at[kEach];  // of rows side by side
    if (args.factors_await != 0) task.await_inputs();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const uint32_t vector = first + (static_cast<uint32_t>(i) << log2);
      exists[i] = row < end && vector < vectors;
      bias[i] = float4{0, 0, 0, 0};
      scale[i] = float4{1, 1, 1, 1};
      if (exists[i] && scales != nullptr) scale[i] = load4(scales + vector * 4);
      if (exists[i] && biases != nullptr) bias[i] = load4(biases + vector * 4);
      if (kRows == kRowsSideBySide && exists[i]) {
        uint32_t inside;
        const uint32_t number = divide(vector, args.piece, inside);
        at[i] = __float_as_int(load_weight1(task.address(args.table) + (row * args.pieces + number))) + static_cast<int32_t>(inside) * 4;
      }
    }
    task.await_inputs();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      x[i] = float4{0, 0, 0, 0};
      if (exists[i])
        x[i] = load4(in + (kRows == kRowsSideBySide ? at[i] : static_cast<int32_t>((first + (static_cast<uint32_t>(i) << log2)) * 4)));
      if (sizeof(In) == 1 && exists[i]) x[i] = above_low4<In>(x[i], args.in_low);
    }
    const float factor = center_row<Veu>(shared, log2, args, exists, x);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float4 y = scaled4(x[i], factor, scale[i], bias[i]);
      if (!exists[i]) continue;
      store4(out + (first + (static_cast<uint32_t>(i) << log2)) * 4,
             kQuantised ? above_low4<Out>(quantised4(args, 1.0f / args.divisor, y), -args.out_low) : y);
    }
    if (log2 > kWarpLog2 && args.centered == 0) sync_compute<Veu>();  // see center_row
  }
}

template <class Veu, int kEach, class In = float, class Out = float>
RK_BODY void normalize_rows(const Task<Veu>& caller) {
  normalize_some_rows<Veu, kEach, In, Out, kRowsInOrder>(caller);
}

template <class Veu, int kEach, class In = float, class Out = float>
RK_BODY void normalize_rows_quantised(const Task<Veu>& caller) {
  normalize_some_rows<Veu, kEach, In, Out, kRowsInOrder, true>(caller);
}

template <class Veu, int kEach, class In = float, class Out = float>
RK_BODY void normalize_rows_of(const Task<Veu>& caller) {
  normalize_some_rows<Veu, kEach, In, Out, kRowsOfTable>(caller);
}

template <class Veu, int kEach, class In = float, class Out = float>
RK_BODY void normalize_rows_side_by_side(const Task<Veu>& caller) {
  normalize_some_rows<Veu, kEach, In, Out, kRowsSideBySide>(caller);
}

}  // namespace rk
