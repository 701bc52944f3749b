// y = exp(x - max) / sum of exp(x - max) over every row, or its logarithm. Three walks over the row; a thread keeps its own
// elements in shared memory in between if the row is short enough (`kept_per_thread`).
#pragma once

#include "kernels/reduce/rows.cuh"

namespace rk {

struct SoftmaxArgs {
  RowsArgs rows;
  uint32_t kept_per_thread;  // elements per thread in shared memory; 0: none, x is read again
  int32_t log;
};
static_assert(sizeof(SoftmaxArgs) <= 768, "an argument slot has 768 bytes");

// f(element number of this thread, index in the row, x) for this thread's elements, loads kBatch at a time.
template <class F>
RK_INLINE void for_row_elements(const RowsArgs& rows, const RowThread& t, const float* in, F f) {
  constexpr int kBatch = 4;
  uint32_t k = 0;
#pragma unroll 1
  for (uint32_t r = t.part; r < rows.reduced; r += kBatch * t.parts, k += kBatch) {
    float x[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) x[b] = r + b * t.parts < rows.reduced ? load1(in + reduced_in_offset(rows, r + b * t.parts)) : 0.0f;
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (r + b * t.parts < rows.reduced) f(k + b, r + b * t.parts, x[b]);
    }
  }
}

// The same from what the thread keeps.
template <class Veu, class F>
RK_INLINE void for_kept_elements(const RowsArgs& rows, const RowThread& t, const float* kept, F f) {
#pragma unroll 2
  for (uint32_t r = t.part, k = 0; r < rows.reduced; r += t.parts, ++k) f(k, r, kept[k * Veu::kComputeThreads]);
}

template <class Veu>
RK_BODY void softmax(const Task<Veu>& task) {
  const SoftmaxArgs& args = task.template arguments<SoftmaxArgs>();
  const RowsArgs& rows = args.rows;
  const RowThread t = row_thread<Veu>(rows);
  float* const shared = reinterpret_cast<float*>(task.work);
  float* const kept = shared + Veu::kComputeThreads + threadIdx.x;
  const bool keeps = args.kept_per_thread != 0;
  const uint32_t limit = (task.index + 1) * rows.rows_per_rtask;
  const uint32_t end = limit < rows.rows ? limit : rows.rows;
#pragma unroll 1
  for (uint32_t row0 = task.index * rows.rows_per_rtask; row0 < end; row0 += t.lanes) {
    const bool live = row0 + t.lane < end;
    const uint32_t row = live ? row0 + t.lane : end - 1;  // lanes without a row repeat the last, and store nothing
    const float* const in = task.address(rows.in) + nest_offset(rows.kept_in, rows.kept_divisors, rows.kept_rank, row);
    float* const out = task.address(rows.out) + nest_offset(rows.kept_out, rows.kept_divisors, rows.kept_rank, row);

    float largest = -INFINITY;
    for_row_elements(rows, t, in, [&](uint32_t k, uint32_t, float x) {
      largest = nan_max(largest, x);
      if (keeps) kept[k * Veu::kComputeThreads] = x;
    });
    largest = combine_parts<Veu>(shared, t, largest, [](float a, float b) { return nan_max(a, b); });

    float sum = 0.0f;
    const auto add = [&](uint32_t, uint32_t, float x) { sum += expf(x - largest); };
    if (keeps) for_kept_elements<Veu>(rows, t, kept, add);
    else for_row_elements(rows, t, in, add);
    sum = combine_parts<Veu>(shared, t, sum, [](float a, float b) { return a + b; });
    if (!live) continue;

    const float log_sum = logf(sum);
    const auto write = [&](uint32_t, uint32_t r, float x) {
      store1(out + reduced_out_offset(rows, r), args.log ? x - largest - log_sum : expf(x - largest) / sum);
    };
    if (keeps) for_kept_elements<Veu>(rows, t, kept, write);
    else for_row_elements(rows, t, in, write);
  }
}

}  // namespace rk
