// y = exp(x - max) / sum of exp(x - max) over every row, or its logarithm. Three walks over the row: maximum, sum, y. Between the walks
// a thread keeps its own elements in shared memory if the row is short enough (`kept_per_thread`). Rows, lanes and parts: rows.cuh.
// Example: a row of 200 elements and 32 parts. Part 5 has elements 5, 37, .. 197; what it keeps of element 133, its fifth, lies 4 * 256
// floats behind what it keeps of element 5.
//
// softmax_quantised: y = rounded(softmax(factor * x) / divisor; low, high).
#pragma once

#include "kernels/reduce/rows.cuh"
#include "kernels/vdevice/epilogue.cuh"

namespace rk {

struct SoftmaxArgs {  // in tables
  RowsArgs rows;
  uint32_t kept_per_thread;  // elements per thread in shared memory, in whole batches; 0: none, x is read again
  int32_t log;
  float factor, divisor, low, high;  // of softmax_quantised
};

enum SoftmaxPass : int { kFindLargest, kAddUp, kWrite, kSoftmaxPasses };

template <class Veu, bool kFlat, bool kQuantised>
RK_INLINE void softmax_of(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  constexpr uint32_t kBatch = 4;  // loads under way per thread
  const SoftmaxArgs& args = task.template arguments<SoftmaxArgs>();
  const RowsArgs& rows = args.rows;
  const RowThread t = row_thread<Veu>(rows);
  float* const shared = task.template work_as<float>();
  float* const kept = shared + Veu::kComputeThreads + threadIdx.x;
  const uint32_t reduced = rows.reduced;
  const int32_t in_stride = rows.reduced_in[0], out_stride = rows.reduced_out[0];
  const bool keeps = args.kept_per_thread != 0, log = args.log != 0;
  const uint32_t limit = (task.index + 1) * rows.rows_per_rtask;
  const uint32_t end = limit < rows.rows ? limit : rows.rows;
#pragma unroll 1
  for (uint32_t row0 = task.index * rows.rows_per_rtask; row0 < end; row0 += t.lanes) {
    const bool live = row0 + t.lane < end;
    const uint32_t row = live ? row0 + t.lane : end - 1;  // lanes without a row repeat the last, and store nothing
    const float* const in = task.address(rows.in) + nest_offset(rows.kept_in, rows.kept_divisors, rows.kept_rank, row);
    float* const out = task.address(rows.out) + nest_offset(rows.kept_out, rows.kept_divisors, rows.kept_rank, row);
    float largest = -INFINITY, sum = 0.0f;
    // One loop for the three walks, so that there is one copy of its code. Elements that do not exist are -inf, which changes neither the
    // maximum nor the sum.
#pragma unroll 1
    for (int pass = 0; pass < kSoftmaxPasses; ++pass) {
      const float log_sum = pass == kWrite && log ? logf(sum) : 0.0f;
      const float scale = 1.0f / sum;
#pragma unroll 1
      for (uint32_t r = t.part, k = 0; r < reduced; r += kBatch * t.parts, k += kBatch) {
        float x[kBatch];
        bool exists[kBatch];
#pragma unroll
        for (uint32_t b = 0; b < kBatch; ++b) exists[b] = r + b * t.parts < reduced;
        if (keeps && pass != kFindLargest) {
#pragma unroll
          for (uint32_t b = 0; b < kBatch; ++b) x[b] = kept[(k + b) * Veu::kComputeThreads];
        } else {
#pragma unroll
          for (uint32_t b = 0; b < kBatch; ++b) {
            x[b] = load1(in + reduced_offset<kFlat>(rows, rows.reduced_in, in_stride, exists[b] ? r + b * t.parts : r));
            if constexpr (kQuantised) x[b] *= args.factor;
          }
        }
#pragma unroll
        for (uint32_t b = 0; b < kBatch; ++b) x[b] = exists[b] ? x[b] : -INFINITY;
        if (pass == kFindLargest) {
          largest = nan_max(largest, nan_max(nan_max(x[0], x[1]), nan_max(x[2], x[3])));
          if (!keeps) continue;
#pragma unroll
          for (uint32_t b = 0; b < kBatch; ++b) kept[(k + b) * Veu::kComputeThreads] = x[b];
          continue;
        }
        float e[kBatch];
#pragma unroll
        for (uint32_t b = 0; b < kBatch; ++b) e[b] = expf(x[b] - largest);
        if (pass == kAddUp) {
#pragma unroll
          for (uint32_t b = 0; b < kBatch; ++b) sum += exists[b] ? e[b] : 0.0f;
          continue;
        }
#pragma unroll
        for (uint32_t b = 0; b < kBatch; ++b) {
          if (!exists[b] || !live) continue;
          const int64_t to = reduced_offset<kFlat>(rows, rows.reduced_out, out_stride, r + b * t.parts);
          const float y = log ? x[b] - largest - log_sum : e[b] * scale;
          store1(out + to, kQuantised ? rounded(y / args.divisor, args.low, args.high) : y);
        }
      }
      if (pass == kFindLargest) largest = combine_parts<Veu>(shared, t, largest, [](float a, float b) { return nan_max(a, b); });
      if (pass == kAddUp) sum = combine_parts<Veu>(shared, t, sum, [](float a, float b) { return a + b; });
    }
  }
}

template <class Veu, bool kFlat>
RK_BODY void softmax(const Task<Veu>& task) {
  softmax_of<Veu, kFlat, false>(task);
}

template <class Veu, bool kFlat>
RK_BODY void softmax_quantised(const Task<Veu>& task) {
  softmax_of<Veu, kFlat, true>(task);
}

}  // namespace rk
