// y = chain(x0, x1, ..): every element of the output, in the output's memory order. The chain is data: up to 16 steps that a
// small loop interprets on four elements at a time. One body serves add, copies, transposes, broadcasts and fused chains.
//
// The flattened output is cut into groups of four elements. With `grouped` the four lie next to each other in the innermost
// dimension, else each is decoded for itself. Inputs [0, prefetched) are copied by cp.async into `work` kChainStages - 1 groups
// ahead; the others are loaded where they are used. `work` is units of one float4 per thread: kChainStages per prefetched
// input, then one per temporary. The result of the step before is in registers (operand kAcc).
#pragma once

#include "kernels/elementwise/functions.cuh"
#include "kernels/vdevice/task.cuh"

namespace rk {

constexpr int kChainStages = 4;
constexpr int kChainRank = 8;
constexpr int kChainInputs = 8;
constexpr int kChainSteps = 16;
constexpr int kChainConstants = 24;

// Operand codes of a step: the result of the step before, a temporary, an input, a constant.
constexpr uint32_t kAcc = 0, kFirstTemp = 1, kFirstInput = 32, kFirstConstant = 64;

struct ChainStep {
  uint8_t op, x, y, z;
  uint8_t to;  // temporary that keeps the result, as an operand code; 0 = none
};

struct ElementwiseArgs {
  TensorRef out;
  TensorRef inputs[kChainInputs];
  int32_t out_strides[kChainRank];
  int32_t in_strides[kChainInputs][kChainRank];
  Divisor divisors[kChainRank - 1];  // extents of dimensions 1..
  uint32_t elements;
  uint32_t groups_per_rtask;
  uint8_t rank;
  uint8_t prefetched;
  uint8_t steps;
  uint8_t grouped;
  uint8_t out_vector;   // groups are 16-byte aligned vectors in the output
  uint16_t in_vectors;  // bit i: likewise in input i
  ChainStep chain[kChainSteps];
  float constants[kChainConstants];
};
static_assert(sizeof(ElementwiseArgs) <= 768, "an argument slot has 768 bytes");

RK_INLINE int64_t chain_offset(const ElementwiseArgs& args, const int32_t* strides, uint32_t element) {
  int64_t offset = 0;
  for (int d = args.rank - 1; d > 0; --d) {
    uint32_t at;
    element = divide(element, args.divisors[d - 1], at);
    offset += static_cast<int64_t>(at) * strides[d];
  }
  return offset + static_cast<int64_t>(element) * strides[0];
}

// Starts the copy of elements [element, element + count) of input `i` to four floats in shared memory.
template <class Veu>
RK_INLINE void chain_fetch(const Task<Veu>& task, const ElementwiseArgs& args, int i, uint32_t element, uint32_t count, float* to) {
  const float* const from = task.address(args.inputs[i]);
  const int32_t* const strides = args.in_strides[i];
  if (!args.grouped) {
    for (uint32_t j = 0; j < count; ++j) cp_async4(to + j, from + chain_offset(args, strides, element + j), true);
    return;
  }
  const float* const first = from + chain_offset(args, strides, element);
  if (count == 4 && (args.in_vectors >> i & 1u) != 0) return cp_async16(to, first, true);
  const int64_t stride = args.rank > 0 ? strides[args.rank - 1] : 0;
  for (uint32_t j = 0; j < count; ++j) cp_async4(to + j, first + j * stride, true);
}

template <class Veu>
RK_INLINE float* chain_unit(const Task<Veu>& task, int unit) {
  return reinterpret_cast<float*>(task.work) + (unit * Veu::kComputeThreads + static_cast<int>(threadIdx.x)) * 4;
}

template <class Veu>
RK_INLINE void chain_prefetch(const Task<Veu>& task, const ElementwiseArgs& args, uint32_t group, uint32_t end, int stage) {
  if (group < end) {
    const uint32_t left = args.elements - group * 4;
    for (int i = 0; i < args.prefetched; ++i) {
      chain_fetch(task, args, i, group * 4, left < 4 ? left : 4, chain_unit(task, i * kChainStages + stage));
    }
  }
  cp_async_commit();
}

template <class Veu>
RK_INLINE float4 chain_direct(const Task<Veu>& task, const ElementwiseArgs& args, int i, uint32_t element, uint32_t count) {
  const float* const from = task.address(args.inputs[i]);
  const int32_t* const strides = args.in_strides[i];
  float4 v{0, 0, 0, 0};
  v.x = load1(from + chain_offset(args, strides, element));
  if (count > 1) v.y = load1(from + chain_offset(args, strides, element + 1));
  if (count > 2) v.z = load1(from + chain_offset(args, strides, element + 2));
  if (count > 3) v.w = load1(from + chain_offset(args, strides, element + 3));
  return v;
}

template <class Veu>
RK_INLINE float4 chain_operand(const Task<Veu>& task, const ElementwiseArgs& args, uint32_t code, const float4& acc, int stage,
                               uint32_t element, uint32_t count) {
  if (code == kAcc) return acc;
  if (code >= kFirstConstant) {
    const float v = args.constants[code - kFirstConstant];
    return float4{v, v, v, v};
  }
  if (code < kFirstInput) return *reinterpret_cast<const float4*>(chain_unit(task, args.prefetched * kChainStages + static_cast<int>(code - kFirstTemp)));
  const int input = static_cast<int>(code - kFirstInput);
  if (input < args.prefetched) return *reinterpret_cast<const float4*>(chain_unit(task, input * kChainStages + stage));
  return chain_direct(task, args, input, element, count);
}

template <class Veu>
RK_INLINE void chain_store(const Task<Veu>& task, const ElementwiseArgs& args, uint32_t element, uint32_t count, const float4& v) {
  float* const out = task.address(args.out);
  if (args.out_vector && count == 4) return store4(out + chain_offset(args, args.out_strides, element), v);
  store1(out + chain_offset(args, args.out_strides, element), v.x);
  if (count > 1) store1(out + chain_offset(args, args.out_strides, element + 1), v.y);
  if (count > 2) store1(out + chain_offset(args, args.out_strides, element + 2), v.z);
  if (count > 3) store1(out + chain_offset(args, args.out_strides, element + 3), v.w);
}

template <class Veu>
RK_BODY void elementwise(const Task<Veu>& task) {
  const ElementwiseArgs& args = task.template arguments<ElementwiseArgs>();
  const uint32_t groups = (args.elements + 3) / 4;
  const uint32_t begin = task.index * args.groups_per_rtask + threadIdx.x;
  const uint32_t limit = (task.index + 1) * args.groups_per_rtask;
  const uint32_t end = limit < groups ? limit : groups;

#pragma unroll 1
  for (int s = 0; s < kChainStages - 1; ++s) chain_prefetch(task, args, begin + s * Veu::kComputeThreads, end, s);
  int stage = 0;
#pragma unroll 1
  for (uint32_t group = begin; group < end; group += Veu::kComputeThreads) {
    chain_prefetch(task, args, group + (kChainStages - 1) * Veu::kComputeThreads, end, (stage + kChainStages - 1) % kChainStages);
    cp_async_wait<kChainStages - 1>();
    const uint32_t element = group * 4;
    const uint32_t left = args.elements - element;
    const uint32_t count = left < 4 ? left : 4;
    float4 acc{0, 0, 0, 0};
#pragma unroll 1
    for (int s = 0; s < args.steps; ++s) {
      const ChainStep step = args.chain[s];
      const float4 x = chain_operand(task, args, step.x, acc, stage, element, count);
      const float4 y = chain_operand(task, args, step.y, acc, stage, element, count);
      const float4 z = chain_operand(task, args, step.z, acc, stage, element, count);
      acc = chain_function(step.op, x, y, z);
      if (step.to != 0) *reinterpret_cast<float4*>(chain_unit(task, args.prefetched * kChainStages + step.to - static_cast<int>(kFirstTemp))) = acc;
    }
    chain_store(task, args, element, count, acc);
    stage = (stage + 1) % kChainStages;
  }
  cp_async_wait<0>();
}

}  // namespace rk
