// What reductions and softmax share: the kept elements ("rows") and the reduced ones, each a nest of dimensions with strides,
// and the split of the compute threads into `lanes` rows side by side with `parts` threads on each. Neighbouring threads are neighbouring
// lanes (lanes_first) if rows lie next to each other in memory (channels-last pooling), neighbouring parts if the reduced elements do.
// Example: 256 threads, 8 lanes, 32 parts. With lanes_first thread 77 is lane 77 % 8 = 5, part 77 / 8 = 9; else lane 77 / 32 = 2, part
// 77 % 32 = 13. Part 9 of a row takes reduced elements 9, 41, 73, ..
#pragma once

#include "kernels/reduce/numbers.cuh"
#include "kernels/vdevice/task.cuh"

namespace rk {

struct RowsArgs {  // in tables
  TensorRef in, out;
  int32_t kept_in[kRowsRank], kept_out[kRowsRank];  // outermost dimension first
  int32_t reduced_in[kRowsRank], reduced_out[kRowsRank];
  Divisor kept_divisors[kRowsRank - 1], reduced_divisors[kRowsRank - 1];
  uint32_t rows, reduced;
  uint32_t rows_per_rtask;
  uint8_t kept_rank, reduced_rank;
  uint8_t lanes_log2;
  uint8_t lanes_first;
};

RK_INLINE int64_t nest_offset(const int32_t* strides, const Divisor* divisors, int rank, uint32_t index) {
  int64_t offset = 0;
  if (rank <= 1) return static_cast<int64_t>(index) * strides[0];
#pragma unroll 1
  for (int d = rank - 1; d > 0; --d) {
    uint32_t at;
    index = divide(index, divisors[d - 1], at);
    offset += static_cast<int64_t>(at) * strides[d];
  }
  return offset + static_cast<int64_t>(index) * strides[0];
}

// Where reduced element `index` lies. kFlat: the reduced elements are one dimension, as most are.
template <bool kFlat>
RK_INLINE int64_t reduced_offset(const RowsArgs& r, const int32_t* strides, int32_t stride, uint32_t index) {
  return kFlat ? static_cast<int64_t>(index) * stride : nest_offset(strides, r.reduced_divisors, r.reduced_rank, index);
}

// This thread's place among lanes and parts.
struct RowThread {
  uint32_t lane, part, lanes, parts;
};
template <class Veu>
RK_INLINE RowThread row_thread(const RowsArgs& r) {
  const uint32_t lanes = 1u << r.lanes_log2;
  const uint32_t parts = Veu::kComputeThreads >> r.lanes_log2;
  if (r.lanes_first) return {threadIdx.x & (lanes - 1), threadIdx.x >> r.lanes_log2, lanes, parts};
  return {threadIdx.x / parts, threadIdx.x & (parts - 1), lanes, parts};
}

// The larger or smaller number, or NaN if one of the two is NaN.
RK_INLINE float nan_max(float a, float b) { return a != a || a > b ? a : b; }
RK_INLINE float nan_min(float a, float b) { return a != a || a < b ? a : b; }

// Combines the parts' values of every lane, always in the same order, eight at a time (a step costs a barrier); all compute
// threads get their lane's result. `shared` holds one T per thread. Example: 32 parts become 4 and then 1; in the first step part 3
// combines the values of parts 3, 7, 11, .., 31.
template <class Veu, class T, class F>
RK_INLINE T combine_parts(T* shared, const RowThread& t, T v, F combine) {
  T* const mine = shared + t.part * t.lanes + t.lane;
  *mine = v;
#pragma unroll 1
  for (uint32_t parts = t.parts; parts > 1;) {
    const uint32_t left = parts > 8 ? parts / 8 : 1;
    sync_compute<Veu>();
    if (t.part < left) {
#pragma unroll
      for (uint32_t i = 1; i < 8; ++i) {
        if (i * left < parts) v = combine(v, mine[i * left * t.lanes]);
      }
      *mine = v;
    }
    parts = left;
  }
  sync_compute<Veu>();
  const T result = shared[t.lane];
  sync_compute<Veu>();
  return result;
}

}  // namespace rk
