// y = chain(x0, x1, ..): every element of the output, in the output's memory order. The chain is data: up to 16 steps that a
// small loop interprets on four elements at a time. One body serves add, copies, transposes, broadcasts and fused chains.
//
// The flattened output is cut into groups of four elements. With `grouped` the four lie next to each other in the innermost
// dimension, else each is decoded for itself. A thread does kGroups groups at a time, so that decoding a step and waiting for
// memory are paid once for all of them. Inputs [0, prefetched) come to `work` by cp.async, the others are loaded where they are
// used. `work` has units of one float4 per thread: kGroups per prefetched input, then kGroups per temporary. The result of the
// step before is in registers (operand kAcc). Operands that kNarrow names are of type Value in memory; such inputs come to `work` as
// floats, by loads.
// Example: kGroups 4, 256 threads, 2 prefetched inputs. In the first turn of rTask 0 thread 5 has groups 5, 261, 517 and 773; group 261 is
// elements 1044 to 1047. The first temporary has units 2 * 4 = 8 to 11; its part for group 261 is float4 (8 + 1) * 256 + 5 = 2309 of
// `work`.
#pragma once

#include "kernels/elementwise/numbers.cuh"
#include "kernels/tile/numbers.cuh"
#include "kernels/vdevice/functions.cuh"
#include "kernels/vdevice/task.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

struct ChainStep {  // in tables
  uint8_t op, x, y, z;
  uint8_t to;  // temporary that keeps the result, as an operand code; 0 = none
};

struct ElementwiseArgs {  // in tables
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
  uint8_t out_vector;   // groups are aligned vectors in the output
  uint16_t in_vectors;  // bit i: likewise in input i
  ChainStep chain[kChainSteps];
  float constants[kChainConstants];
};

RK_INLINE int64_t chain_offset(const ElementwiseArgs& args, const int32_t* strides, uint32_t element) {
  if (args.rank <= 1) return static_cast<int64_t>(element) * strides[0];
  int64_t offset = 0;
#pragma unroll 1
  for (int d = args.rank - 1; d > 0; --d) {
    uint32_t at;
    element = divide(element, args.divisors[d - 1], at);
    offset += static_cast<int64_t>(at) * strides[d];
  }
  return offset + static_cast<int64_t>(element) * strides[0];
}

// Starts the copy of elements [element, element + count) of input `i`, at `from`, to four floats in shared memory.
template <class In>
RK_INLINE void chain_fetch(const ElementwiseArgs& args, int i, const In* from, uint32_t element, uint32_t count, float* to) {
  const int32_t* const strides = args.in_strides[i];
  int64_t offset = chain_offset(args, strides, element);
  if (count == 4 && (args.in_vectors >> i & 1u) != 0) {
    if constexpr (sizeof(In) == 2)
      *reinterpret_cast<float4*>(to) = load4(from + offset);
    else
      cp_async16(to, from + offset, true);
    return;
  }
  const int64_t step = args.rank > 0 ? strides[args.rank - 1] : 0;
#pragma unroll 1
  for (uint32_t j = 0; j < count; ++j) {
    if constexpr (sizeof(In) == 2)
      to[j] = load1(from + offset);
    else
      cp_async4(to + j, from + offset, true);
    if (args.grouped)
      offset += step;
    else
      offset = chain_offset(args, strides, element + j + 1);
  }
}

template <class Veu>
RK_INLINE float4* chain_unit(const Task<Veu>& task, int unit) {
  return task.template work_as<float4>() + unit * Veu::kComputeThreads + static_cast<int>(threadIdx.x);
}

// This thread's groups in one turn: group g has number `first` + g * compute threads, and exists if that is below `end`.
struct ChainTurn {
  uint32_t first, end, elements;

  template <class Veu>
  RK_INLINE uint32_t element(int g) const {
    return (first + static_cast<uint32_t>(g) * Veu::kComputeThreads) * 4;
  }
  template <class Veu>
  RK_INLINE uint32_t count(int g) const {  // elements of the group
    if (first + static_cast<uint32_t>(g) * Veu::kComputeThreads >= end) return 0;
    const uint32_t left = elements - element<Veu>(g);
    return left < 4 ? left : 4;
  }
};

// Input `i` without prefetching, one element after the other: see turn_groups.
template <class Veu, int kGroups, class In>
RK_INLINE void chain_direct(const ElementwiseArgs& args, const In* from, int i, const ChainTurn& turn, float4 (&to)[kGroups]) {
#pragma unroll 1
  for (int j = 0; j < 4 * kGroups; ++j) {
    const uint32_t at = static_cast<uint32_t>(j) % 4;
    float x = 0.0f;
    if (at < turn.count<Veu>(j / 4)) x = load1(from + chain_offset(args, args.in_strides[i], turn.element<Veu>(j / 4) + at));
    turn_groups(to, x);
  }
}

template <class Veu, class Value, uint32_t kNarrow, int kGroups>
RK_INLINE void chain_operand(const Task<Veu>& task, const ElementwiseArgs& args, uint32_t code, const ChainTurn& turn,
                             const float4 (&acc)[kGroups], float4 (&to)[kGroups]) {
  if (code == kUnused) return;
  const int input = static_cast<int>(code) - static_cast<int>(kFirstInput);
  int unit = -1;
  if (code >= kFirstTemp && code < kFirstInput) unit = args.prefetched + static_cast<int>(code - kFirstTemp);
  if (code >= kFirstInput && input < args.prefetched) unit = input;
  if (unit >= 0) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) to[g] = *chain_unit(task, unit * kGroups + g);
  } else if (code == kAcc) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) to[g] = acc[g];
  } else if (code >= kFirstConstant) {
    const float v = args.constants[code - kFirstConstant];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) to[g] = float4{v, v, v, v};
  } else if (kNarrow != 0 && (kNarrow >> input & 1u) != 0) {
    chain_direct<Veu>(args, values_at<Value>(task, args.inputs[input]), input, turn, to);
  } else {
    chain_direct<Veu>(args, values_at<float>(task, args.inputs[input]), input, turn, to);
  }
}

// Offsets of the first elements of all groups. The groups must be whole.
template <class Veu, int kGroups>
RK_INLINE void chain_offsets(const ElementwiseArgs& args, const int32_t* strides, const ChainTurn& turn, int64_t (&to)[kGroups]) {
  uint32_t left[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    left[g] = turn.element<Veu>(g);
    to[g] = 0;
  }
#pragma unroll 1
  for (int d = args.rank - 1; d > 0; --d) {
    const int64_t stride = strides[d];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      uint32_t at;
      left[g] = divide(left[g], args.divisors[d - 1], at);
      to[g] += static_cast<int64_t>(at) * stride;
    }
  }
#pragma unroll
  for (int g = 0; g < kGroups; ++g) to[g] += static_cast<int64_t>(left[g]) * strides[0];
}

// The groups of input `i`. Where all are vectors (`whole`: they have four elements), all loads are issued before the first is used.
template <class Veu, int kGroups, class In>
RK_INLINE void chain_fetch_input(const Task<Veu>& task, const ElementwiseArgs& args, int i, const In* from, const ChainTurn& turn,
                                 bool whole) {
  if (whole && (args.in_vectors >> i & 1u) != 0) {
    int64_t at[kGroups];
    chain_offsets<Veu>(args, args.in_strides[i], turn, at);
    if constexpr (sizeof(In) == 2) {
      float4 v[kGroups];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) v[g] = load4(from + at[g]);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) *chain_unit(task, i * kGroups + g) = v[g];
    } else {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) cp_async16(chain_unit(task, i * kGroups + g), from + at[g], true);
    }
    return;
  }
#pragma unroll 1
  for (int g = 0; g < kGroups; ++g) {
    const uint32_t count = turn.count<Veu>(g);
    if (count > 0) chain_fetch(args, i, from, turn.element<Veu>(g), count, &chain_unit(task, i * kGroups + g)->x);
  }
}

template <class Veu, class Value, uint32_t kNarrow, int kGroups>
RK_INLINE void chain_fetch_all(const Task<Veu>& task, const ElementwiseArgs& args, const ChainTurn& turn) {
  const bool whole = turn.count<Veu>(kGroups - 1) == 4;
#pragma unroll 1
  for (int i = 0; i < args.prefetched; ++i) {
    if (kNarrow != 0 && (kNarrow >> i & 1u) != 0)
      chain_fetch_input<Veu, kGroups>(task, args, i, values_at<Value>(task, args.inputs[i]), turn, whole);
    else
      chain_fetch_input<Veu, kGroups>(task, args, i, values_at<float>(task, args.inputs[i]), turn, whole);
  }
  cp_async_commit();
  cp_async_wait<0>();
}

template <class Veu, int kGroups, class Out>
RK_INLINE void chain_store(const ElementwiseArgs& args, Out* out, const ChainTurn& turn, float4 (&v)[kGroups]) {
  if (args.out_vector && turn.count<Veu>(kGroups - 1) == 4) {
    int64_t at[kGroups];
    chain_offsets<Veu>(args, args.out_strides, turn, at);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) store4(out + at[g], v[g]);
    return;
  }
#pragma unroll 1
  for (int g = 0; g < kGroups; ++g) {
    const uint32_t element = turn.element<Veu>(g), count = turn.count<Veu>(g);
    float4 mine = v[0];
    turn_groups(v, mine);
    if (args.out_vector && count == 4) {
      store4(out + chain_offset(args, args.out_strides, element), mine);
      continue;
    }
#pragma unroll 1
    for (uint32_t j = 0; j < count; ++j) {
      store1(out + chain_offset(args, args.out_strides, element + j), mine.x);
      mine = float4{mine.y, mine.z, mine.w, mine.x};
    }
  }
}

template <class Veu, int kGroups, class Value = float, uint32_t kNarrow = 0>
RK_BODY void elementwise(const Task<Veu>& caller) {
  using Out = std::conditional_t<(kNarrow & kNarrowOut) != 0, Value, float>;
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const ElementwiseArgs& args = task.template arguments<ElementwiseArgs>();
  const uint32_t groups = (args.elements + 3) / 4;
  const uint32_t limit = (task.index + 1) * args.groups_per_rtask;
  const uint32_t end = limit < groups ? limit : groups;
  task.await_inputs();
#pragma unroll 1
  for (uint32_t first = task.index * args.groups_per_rtask + threadIdx.x; first < end; first += kGroups * Veu::kComputeThreads) {
    const ChainTurn turn{first, end, args.elements};
    chain_fetch_all<Veu, Value, kNarrow, kGroups>(task, args, turn);
    float4 acc[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) acc[g] = float4{0, 0, 0, 0};
#pragma unroll 1
    for (int s = 0; s < args.steps; ++s) {
      const ChainStep step = args.chain[s];
      float4 x[kGroups] = {}, y[kGroups] = {}, z[kGroups] = {};
      chain_operand<Veu, Value, kNarrow>(task, args, step.x, turn, acc, x);
      chain_operand<Veu, Value, kNarrow>(task, args, step.y, turn, acc, y);
      chain_operand<Veu, Value, kNarrow>(task, args, step.z, turn, acc, z);
      chain_function<kGroups>(step.op, x, y, z, acc);
      if (step.to == 0) continue;
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        *chain_unit(task, (args.prefetched + step.to - static_cast<int>(kFirstTemp)) * kGroups + g) = acc[g];
    }
    chain_store<Veu>(args, values_at<Out>(task, args.out), turn, acc);
  }
}

}  // namespace rk
