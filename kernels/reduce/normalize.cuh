// y = (x - mean) / sqrt(variance + epsilon) * scale + bias over every row; if not centred, the mean counts as 0. Three walks over the row:
// the mean, then the sum of squares around the mean (a difference of two large sums would lose digits), then y. Between the walks a thread
// keeps its own elements in shared memory if the row is short enough (`kept_per_thread`). Limits: x and y are of types In and Out, fp32 or
// 16 bits each; scale and bias are fp32. normalize_of takes rows, or several side by side as one, where a table says. Rows, lanes and
// parts: rows.cuh.
// Example: a row of 200 elements and 32 parts. Part 5 has elements 5, 37, .. 197; what it keeps of element 133, its fifth, lies 4 * 256
// floats behind what it keeps of element 5.
#pragma once

#include "kernels/reduce/rows.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

struct NormalizeArgs {  // in tables
  RowsArgs rows;
  TensorRef scale, bias;                                    // may be null
  int32_t kept_scale[kRowsRank], reduced_scale[kRowsRank];  // strides along the dimensions of `rows`
  int32_t kept_bias[kRowsRank], reduced_bias[kRowsRank];
  uint32_t kept_per_thread;  // elements per thread in shared memory, in whole batches; 0: none, x is read again
  int32_t centered;
  float epsilon;
  // normalize_of: int32, where the `pieces` rows of the input begin that are a row side by side, row by row, and their elements;
  // rows.kept_in does not count then.
  TensorRef table;
  uint32_t pieces;
  Divisor piece;
};

enum NormalizePass : int { kFindMean, kAddSquares, kWriteNormalized, kNormalizePasses };

// Where element `i` of a row lies that a table puts together: `pieces` are where its pieces begin.
RK_INLINE int64_t taken_offset(const float* pieces, const Divisor& piece, int32_t stride, uint32_t i) {
  uint32_t inside;
  const uint32_t number = divide(i, piece, inside);
  return __float_as_int(load_weight1(pieces + number)) + static_cast<int64_t>(inside) * stride;
}

template <class Veu, bool kFlat, class In, class Out, bool kTable>
RK_INLINE void normalize_some(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  constexpr uint32_t kBatch = 4;  // loads under way per thread
  const NormalizeArgs& args = task.template arguments<NormalizeArgs>();
  const RowsArgs& rows = args.rows;
  const RowThread t = row_thread<Veu>(rows);
  float* const shared = task.template work_as<float>();
  float* const kept = shared + Veu::kComputeThreads + threadIdx.x;
  const uint32_t reduced = rows.reduced;
  const int32_t in_stride = rows.reduced_in[0], out_stride = rows.reduced_out[0];
  const float* const scale0 = task.address(args.scale);
  const float* const bias0 = task.address(args.bias);
  const bool keeps = args.kept_per_thread != 0;
  const float count = static_cast<float>(reduced);
  const uint32_t limit = (task.index + 1) * rows.rows_per_rtask;
  const uint32_t end = limit < rows.rows ? limit : rows.rows;
#pragma unroll 1
  for (uint32_t row0 = task.index * rows.rows_per_rtask; row0 < end; row0 += t.lanes) {
    const bool live = row0 + t.lane < end;
    const uint32_t row = live ? row0 + t.lane : end - 1;  // lanes without a row repeat the last, and store nothing
    const In* const in =
        values_at<const In>(task, rows.in) + (kTable ? 0 : nest_offset(rows.kept_in, rows.kept_divisors, rows.kept_rank, row));
    Out* const out = values_at<Out>(task, rows.out) + nest_offset(rows.kept_out, rows.kept_divisors, rows.kept_rank, row);
    const int64_t scale_row = nest_offset(args.kept_scale, rows.kept_divisors, rows.kept_rank, row);
    const int64_t bias_row = nest_offset(args.kept_bias, rows.kept_divisors, rows.kept_rank, row);
    float mean = 0.0f, factor = 0.0f;
    // One loop for the three walks, so that there is one copy of its code.
#pragma unroll 1
    for (int pass = args.centered != 0 ? kFindMean : kAddSquares; pass < kNormalizePasses; ++pass) {
      const bool is_first = pass == kFindMean || (pass == kAddSquares && args.centered == 0);
      float sum = 0.0f;
#pragma unroll 1
      for (uint32_t r = t.part, k = 0; r < reduced; r += kBatch * t.parts, k += kBatch) {
        float x[kBatch];
        bool exists[kBatch];
#pragma unroll
        for (uint32_t b = 0; b < kBatch; ++b) exists[b] = r + b * t.parts < reduced;
        if (keeps && !is_first) {
#pragma unroll
          for (uint32_t b = 0; b < kBatch; ++b) x[b] = kept[(k + b) * Veu::kComputeThreads];
        } else {
#pragma unroll
          for (uint32_t b = 0; b < kBatch; ++b) {
            const uint32_t i = exists[b] ? r + b * t.parts : r;
            if constexpr (kTable)
              x[b] = load1(in + taken_offset(task.address(args.table) + row * args.pieces, args.piece, in_stride, i));
            else
              x[b] = load1(in + reduced_offset<kFlat>(rows, rows.reduced_in, in_stride, i));
          }
        }
        if (keeps && is_first) {
#pragma unroll
          for (uint32_t b = 0; b < kBatch; ++b) kept[(k + b) * Veu::kComputeThreads] = x[b];
        }
        if (pass != kWriteNormalized) {
#pragma unroll
          for (uint32_t b = 0; b < kBatch; ++b) {
            const float d = x[b] - mean;
            if (exists[b]) sum += pass == kFindMean ? x[b] : d * d;
          }
          continue;
        }
#pragma unroll
        for (uint32_t b = 0; b < kBatch; ++b) {
          if (!exists[b] || !live) continue;
          const uint32_t i = r + b * t.parts;
          float y = (x[b] - mean) * factor;
          if (scale0 != nullptr) y *= load1(scale0 + scale_row + reduced_offset<kFlat>(rows, args.reduced_scale, args.reduced_scale[0], i));
          if (bias0 != nullptr) y += load1(bias0 + bias_row + reduced_offset<kFlat>(rows, args.reduced_bias, args.reduced_bias[0], i));
          store1(out + reduced_offset<kFlat>(rows, rows.reduced_out, out_stride, i), y);
        }
      }
      if (pass == kWriteNormalized) continue;
      sum = combine_parts<Veu>(shared, t, sum, [](float a, float b) { return a + b; });
      if (pass == kFindMean) mean = sum / count;
      if (pass == kAddSquares) factor = 1.0f / sqrtf(sum / count + args.epsilon);
    }
  }
}

template <class Veu, bool kFlat, class In = float, class Out = float>
RK_BODY void normalize(const Task<Veu>& caller) {
  normalize_some<Veu, kFlat, In, Out, false>(caller);
}

template <class Veu, bool kFlat, class In = float, class Out = float>
RK_BODY void normalize_of(const Task<Veu>& caller) {
  normalize_some<Veu, kFlat, In, Out, true>(caller);
}

}  // namespace rk
