// Layer normalisation of many rows: as normalize_rows.cuh, for rTasks whose rows do not all fit beside each other. There, the next rows are
// asked for when the present ones are stored, and a vEU waits for memory most of the time. Here 2^n threads of a warp have kRows rows at a
// time, without a barrier, and the loads of the next kRows are under way while these are worked on. A thread has kEach groups of eight
// values (octets) of each row, which is a load of 16 bytes where values have 16 bits. kRing: see normalize_rows.cuh. Limits: rows lie at
// one distance from each other and have 32 * kEach octets at most; x and y are of types In and Out, fp32 or 16 bits each; scale and bias
// are fp32. Example: 48 rows of 768 elements. A row is 96 octets, three for each thread of a warp; 8 warps with 2 rows each take three
// turns. Thread 77 is thread 13 of warp 2, with rows 2, 10, then 18, 26, then 34, 42, and octets 13, 45 and 77 of each.
#pragma once

#include "kernels/reduce/numbers.cuh"
#include "kernels/vdevice/task.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

struct NormalizeTurnsArgs {        // in tables
  TensorRef in, out, scale, bias;  // the last two may be null, and are with kRing
  uint32_t in_row, out_row;        // elements from one row to the next
  uint32_t rows, rows_per_rtask;
  uint32_t octets;        // of a row
  uint32_t threads_log2;  // of a row
  float inverse_count, epsilon;
  int32_t centered;
};

// The sums over the 2^log2 threads of each row.
template <int kRows>
RK_INLINE void sums_of_rows(uint32_t log2, float (&v)[kRows]) {
#pragma unroll
  for (uint32_t step = 0; step < kWarpLog2; ++step) {
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const float other = __shfl_xor_sync(kFullMask, v[k], 1 << step);
      if (step < log2) v[k] += other;
    }
  }
}

// Eight values of a row of scale or bias, which may be missing.
RK_INLINE void load_factors(const float* from, uint32_t octet, bool exists, float missing, float (&v)[8]) {
  Raw8<float> raw{float4{missing, missing, missing, missing}, float4{missing, missing, missing, missing}};
  if (exists && from != nullptr) raw = load_raw8(from + octet * 8);
  raw.floats(v);
}

// Subtracts from the values of rows their mean. exists: which octets of a row do.
template <int kRows, int kEach>
RK_INLINE void centre_rows(uint32_t log2, const bool (&exists)[kEach], const NormalizeTurnsArgs& args, float (&x)[kRows][kEach][8]) {
  float sum[kRows];
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    sum[k] = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum[k] += sum_of8(x[k][i]);
  }
  sums_of_rows(log2, sum);
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    const float mean = sum[k] * args.inverse_count;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) x[k][i][j] = exists[i] ? x[k][i][j] - mean : 0.0f;
    }
  }
}
template <int kRows, int kEach>
RK_INLINE void sum_squares_of_rows(uint32_t log2, const float (&x)[kRows][kEach][8], float (&sum)[kRows]) {
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    sum[k] = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[k] += x[k][i][j] * x[k][i][j];
    }
  }
  sums_of_rows(log2, sum);
}

template <class Veu, int kEach, int kRows, bool kRing, class In = float, class Out = float>
RK_BODY void normalize_turns(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const NormalizeTurnsArgs& args = task.template arguments<NormalizeTurnsArgs>();
  const uint32_t log2 = args.threads_log2, first = threadIdx.x & ((1u << log2) - 1), step = Veu::kComputeThreads >> log2;
  const uint32_t begin = task.index * args.rows_per_rtask, end = min(begin + args.rows_per_rtask, args.rows);
  const uint32_t in_row = args.in_row, out_row = args.out_row;
  const In* const in = values_at<const In>(task, args.in);
  Out* const out = values_at<Out>(task, args.out);
  const float* const scales = task.address(args.scale);
  const float* const biases = task.address(args.bias);
  bool exists[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) exists[i] = first + (static_cast<uint32_t>(i) << log2) < args.octets;
  // Octets that do not exist stay zero. Rows that do not exist keep what was there, and nobody stores it.
  Raw8<In> raw[kRows][kEach] = {};
  const auto load = [&](uint32_t row) {
#pragma unroll
    for (int k = 0; k < kRows; ++k, row += step) {
      const In* const from = in + (row * in_row + first * 8);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (row < end && exists[i]) raw[k][i] = load_raw8(from + (static_cast<uint32_t>(i * 8) << log2));
      }
    }
  };
  uint32_t row = begin + (threadIdx.x >> log2);
  if constexpr (!kRing) {
    task.await_inputs();
    load(row);
  }
  float scale[kEach][8], bias[kEach][8];
  WeightPipe<Veu> weights = task.weights;
  const float* const constants = kRing ? as_shared(reinterpret_cast<const float*>(weights.acquire())) : nullptr;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const uint32_t octet = first + (static_cast<uint32_t>(i) << log2);
    if constexpr (kRing) {
      const float4* const from = reinterpret_cast<const float4*>(constants + octet * 8);
      const float4 none{0.0f, 0.0f, 0.0f, 0.0f};
      Raw8<float>{exists[i] ? from[0] : none, exists[i] ? from[1] : none}.floats(scale[i]);
      Raw8<float>{exists[i] ? from[args.octets * 2] : none, exists[i] ? from[args.octets * 2 + 1] : none}.floats(bias[i]);
    } else {
      load_factors(scales, octet, exists[i], 1.0f, scale[i]);
      load_factors(biases, octet, exists[i], 0.0f, bias[i]);
    }
  }
  if constexpr (kRing) {
    weights.release_after_loads();
    task.await_inputs();
    load(row);
  }
#pragma unroll 1
  for (uint32_t turn = begin; turn < end; turn += kRows * step, row += kRows * step) {
    float x[kRows][kEach][8], squares[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) raw[k][i].floats(x[k][i]);
    }
    load(row + kRows * step);
    if (args.centered != 0) centre_rows(log2, exists, args, x);
    sum_squares_of_rows(log2, x, squares);
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const uint32_t to_row = row + static_cast<uint32_t>(k) * step;
      const float factor = rsqrtf(squares[k] * args.inverse_count + args.epsilon);
      Out* const to = out + (to_row * out_row + first * 8);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        float y[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) y[j] = x[k][i][j] * factor * scale[i][j] + bias[i][j];
        if (to_row < end && exists[i]) store8(to + (static_cast<uint32_t>(i * 8) << log2), y);
      }
    }
  }
}

}  // namespace rk
