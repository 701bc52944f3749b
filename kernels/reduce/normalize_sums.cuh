// Sums that are normalised, as normalize_rows.cuh does it, and quantised once more:
//   sums = chain(x0, x1, ..)    behind a product its bias and a residual, each with a rounding mostly
//   out  = rounded((normalised(sums) * scale + bias) / divisor; low, high) * step
// The chain's steps are template arguments. Where bit i of kNear is set, input i is one row of fp32 for all rows; the others are rows of
// type In that lie as those of the sums do. kKeeps: somebody else reads the sums, so they are stored, in type Sum.
// normalize_rows_summed_bytes (normalize_sums_bytes.cuh): inputs, sums and the result may be whole numbers in bytes.
#pragma once

#include "kernels/reduce/normalize_rows.cuh"
#include "kernels/tile/static_steps.cuh"

namespace rk {

struct NormalizeSumsArgs {  // in tables
  NormalizeRowsArgs rows;   // `in` is the first input that is no near one
  TensorRef sums;           // null unless kKeeps
  TensorRef inputs[kSummedInputs];
  float constants[kLongConstants];
  float step;
  float lows[kSummedInputs]{}, sums_low{};  // the numbers that bytes of 0 stand for, in Unsigned8; that of the result is in `rows`
};

// Inputs of one type in memory.
template <class In>
struct SummedInputs {
  // Calls `load` with where input `i` begins.
  template <class Veu, class Load>
  RK_INLINE static void at(const Task<Veu>& task, const TensorRef& input, int, const Load& load) {
    load(values_at<const In>(task, input));
  }
  // What the loaded values stand for.
  template <int kGroups>
  RK_INLINE static void raise_by(float, int, float4 (&)[kGroups]) {}
};

template <class Veu, int kEach, class Inputs, class Sum, class Out, int kInputs, uint32_t kNear, int kTemporaries, bool kKeeps,
          uint64_t... kSteps>
RK_INLINE void normalize_some_sums(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const NormalizeSumsArgs& all = task.template arguments<NormalizeSumsArgs>();
  const NormalizeRowsArgs& args = all.rows;
  float* const shared = task.template work_as<float>();
  const uint32_t log2 = args.threads_log2, vectors = args.vectors, group = threadIdx.x >> log2;
  const uint32_t first = threadIdx.x & ((1u << log2) - 1);  // of the thread's vectors
  const uint32_t end = min((task.index + 1) * args.rows_per_rtask, args.rows);
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
    float4 scale[kEach], bias[kEach];
    StaticValues<kInputs, kTemporaries, kEach> values;
    bool exists[kEach];
    // Constants do not wait for the inputs.
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const uint32_t vector = first + (static_cast<uint32_t>(i) << log2);
      exists[i] = row < end && vector < vectors;
      bias[i] = float4{0, 0, 0, 0};
      scale[i] = float4{1, 1, 1, 1};
      if (exists[i] && scales != nullptr) scale[i] = load4(scales + vector * 4);
      if (exists[i] && biases != nullptr) bias[i] = load4(biases + vector * 4);
#pragma unroll
      for (int k = 0; k < kInputs; ++k) {
        values.inputs[k][i] = float4{0, 0, 0, 0};
        if ((kNear >> k & 1u) != 0 && exists[i]) values.inputs[k][i] = load4(values_at<const float>(task, all.inputs[k]) + vector * 4);
      }
    }
    task.await_inputs();
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      if ((kNear >> k & 1u) != 0) continue;
      Inputs::at(task, all.inputs[k], k, [&](const auto* values_of) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          const int32_t element = from + static_cast<int32_t>((first + (static_cast<uint32_t>(i) << log2)) * 4);
          if (exists[i]) values.inputs[k][i] = load4(values_of + element);
        }
      });
    }
#pragma unroll
    for (int k = 0; k < kInputs; ++k) Inputs::raise_by(all.lows[k], k, values.inputs[k]);
    (static_step<kSteps, kEach>(all, values), ...);
    float4(&x)[kEach] = values.acc;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int32_t element = from + static_cast<int32_t>((first + (static_cast<uint32_t>(i) << log2)) * 4);
      if (kKeeps && exists[i]) store4(values_at<Sum>(task, all.sums) + element, above_low4<Sum>(x[i], -all.sums_low));
      if (!exists[i]) x[i] = float4{0, 0, 0, 0};
    }
    const float factor = center_row<Veu>(shared, log2, args, exists, x);
    Out* const out = values_at<Out>(task, args.out) + to;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float4 y = quantised4(args, scaled4(x[i], factor, scale[i], bias[i]));
      if (exists[i])
        store4(out + (first + (static_cast<uint32_t>(i) << log2)) * 4,
               above_low4<Out>(float4{y.x * all.step, y.y * all.step, y.z * all.step, y.w * all.step}, -args.out_low));
    }
    if (log2 > kWarpLog2 && args.centered == 0) sync_compute<Veu>();  // see center_row
  }
}

template <class Veu, int kEach, class In, class Sum, class Out, int kInputs, uint32_t kNear, int kTemporaries, bool kKeeps,
          uint64_t... kSteps>
RK_BODY void normalize_rows_summed(const Task<Veu>& caller) {
  normalize_some_sums<Veu, kEach, SummedInputs<In>, Sum, Out, kInputs, kNear, kTemporaries, kKeeps, kSteps...>(caller);
}

}  // namespace rk
