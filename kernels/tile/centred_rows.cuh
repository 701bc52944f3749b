// Normalisation of rows that threads have in registers: 2^n threads share a row, and each has kEach groups of four values of it.
#pragma once

#include "kernels/vdevice/task.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

// The sum over the 2^log2 threads of a row. `shared` has a word for each warp, and nobody else writes it before the next barrier.
template <class Veu>
RK_INLINE float sum_of_row(float* shared, uint32_t log2, float v) {
#pragma unroll
  for (uint32_t step = 0; step < kWarpLog2; ++step) {
    const float other = __shfl_xor_sync(kFullMask, v, 1 << step);
    if (step < log2) v += other;
  }
  if (log2 <= kWarpLog2) return v;
  const uint32_t warp = static_cast<uint32_t>(warp_id()), warps = 1u << (log2 - kWarpLog2);
  shared[warp] = v;
  sync_compute<Veu>();
  const float* const mine = shared + (warp & ~(warps - 1));
  float sum = mine[0];
#pragma unroll 1
  for (uint32_t w = 1; w < warps; ++w) sum += mine[w];
  return sum;
}
RK_INLINE float4 scaled4(const float4& v, float factor, const float4& scale, const float4& bias) {
  return float4{v.x * factor * scale.x + bias.x, v.y * factor * scale.y + bias.y, v.z * factor * scale.z + bias.z,
                v.w * factor * scale.w + bias.w};
}

// Takes the mean of a row from its elements, unless args.centered is 0, and returns what they are to be multiplied with. Vectors that do
// not exist are zero and stay so. `shared` has two words for each warp. The squares use the second half: a thread that passes their barrier
// has read the first half, since all threads come to this barrier after reading. The barrier of the next row's mean keeps that row's sums
// from these squares. Without a mean only the second half is used, so the caller has a barrier between two rows if rows have more threads
// than a warp.
template <class Veu, int kEach, class Args>
RK_INLINE float center_row(float* shared, uint32_t log2, const Args& args, const bool (&exists)[kEach], float4 (&x)[kEach]) {
  float sum = 0.0f;
  if (args.centered != 0) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum += sum_of4(x[i]);
    const float mean = sum_of_row<Veu>(shared, log2, sum) * args.inverse_count;
    sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (exists[i]) x[i] = float4{x[i].x - mean, x[i].y - mean, x[i].z - mean, x[i].w - mean};
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) sum += sum_of4(float4{x[i].x * x[i].x, x[i].y * x[i].y, x[i].z * x[i].z, x[i].w * x[i].w});
  sum = sum_of_row<Veu>(shared + Veu::kComputeThreads / kWarp, log2, sum);
  return rsqrtf(sum * args.inverse_count + args.epsilon);
}

}  // namespace rk
