// y = chain(x0, x1, ..) element by element, for operands of any element type: what kernels/elementwise/elementwise.cuh does for f32. The
// arithmetic is the reference's (compiler/ops/elementwise.cpp): T is double for floats, int64_t for integers and bool, uint64_t for u64,
// and each step's result is rounded or wrapped to its element type. Each chain is a body of its own; a thread does one element at a
// time. This body is right for all types and not fast for any.
//
// typed_map_turns: the same for cheap chains over many elements. The element types are template arguments as well, and a thread has
// kAtOnce elements at a time, all of whose loads are issued before the first is used.
#pragma once

#include "kernels/typed/numbers.cuh"
#include "kernels/vdevice/cells.cuh"
#include "kernels/vdevice/functions.cuh"

namespace rk {

struct TypedMapArgs {  // in tables
  TensorRef out;
  TensorRef inputs[kMapInputs];
  Nest nest;
  int32_t out_strides[kNestRank];
  int32_t in_strides[kMapInputs][kNestRank];
  uint8_t types[kMapInputs + 1];  // ElementType of the output, then of the inputs
  uint32_t elements, elements_per_rtask;
  float constants[kMapConstants];  // attributes
};

// A step as a template argument: function, x, y, z, type of the result, from the lowest byte on.
// Example: 0x07ff212019 is function 0x19 = 25 (add) of input 0 (0x20) and input 1 (0x21), no z (0xff), with a result of type 7 (kI64).
RK_INLINE constexpr uint32_t map_step_byte(uint64_t step, int byte) { return static_cast<uint32_t>(step >> (8 * byte)) & 255u; }

// The formula of function kOp.
template <uint32_t kOp, class T>
RK_INLINE T map_function(T x, T y, T z) {
#define RK_ROW(name, arity, attributes, types, result, speed, price, onnx, formula) \
  if constexpr (kOp == kOp_##name) return functions::of_##name<T>(x, y, z);
  RK_FUNCTIONS(RK_ROW)
#undef RK_ROW
  return T{};
}

template <uint32_t kCode, class T>
RK_INLINE T map_operand(const TypedMapArgs& args, const T* results, const T* inputs) {
  if constexpr (kCode < kMapFirstInput)
    return results[kCode];
  else if constexpr (kCode < kMapFirstConstant)
    return inputs[kCode - kMapFirstInput];
  else if constexpr (kCode < kMapFirstConstant + kMapConstants)
    return static_cast<T>(args.constants[kCode - kMapFirstConstant]);
  else
    return T{};
}

template <class T, int kInputs, uint64_t... kSteps>
RK_INLINE T map_chain(const TypedMapArgs& args, const T (&inputs)[kInputs]) {
  T results[sizeof...(kSteps)];
  int s = 0;
  ((results[s++] = settled(map_function<map_step_byte(kSteps, 0), T>(map_operand<map_step_byte(kSteps, 1), T>(args, results, inputs),
                                                                     map_operand<map_step_byte(kSteps, 2), T>(args, results, inputs),
                                                                     map_operand<map_step_byte(kSteps, 3), T>(args, results, inputs)),
                           map_step_byte(kSteps, 4))),
   ...);
  return results[sizeof...(kSteps) - 1];
}

template <class Veu, class T, int kInputs, uint64_t... kSteps>
RK_BODY void typed_map(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const TypedMapArgs& args = task.template arguments<TypedMapArgs>();
  const uint32_t end = min((task.index + 1) * args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t element = task.index * args.elements_per_rtask + threadIdx.x; element < end; element += Veu::kComputeThreads) {
    int64_t to = 0, from[kInputs] = {};
    for_each_coordinate(args.nest, element, [&](int d, uint32_t at) {
      to += static_cast<int64_t>(at) * args.out_strides[d];
      for (int i = 0; i < kInputs; ++i) from[i] += static_cast<int64_t>(at) * args.in_strides[i][d];
    });
    T inputs[kInputs];
    for (int i = 0; i < kInputs; ++i) inputs[i] = load_number<T>(task.address(args.inputs[i]), from[i], args.types[i + 1]);
    store_number(task.address(args.out), to, args.types[0], map_chain<T, kInputs, kSteps...>(args, inputs));
  }
}

// kTypes: ElementType of the output, then of the inputs, four bits each, from the lowest on.
RK_INLINE constexpr uint32_t map_type(uint64_t types, int operand) { return static_cast<uint32_t>(types >> (4 * operand)) & 15u; }

template <uint64_t kTypes, class Veu, class T, int kInputs, int kAtOnce>
RK_INLINE void map_load(const Task<Veu>& task, const TypedMapArgs& args, const int32_t (&from)[kInputs][kAtOnce],
                        T (&to)[kAtOnce][kInputs]) {
#pragma unroll
  for (int i = 0; i < kInputs; ++i) {
    const void* const array = task.address(args.inputs[i]);
#pragma unroll
    for (int e = 0; e < kAtOnce; ++e) to[e][i] = load_number<T>(array, from[i][e], map_type(kTypes, i + 1));
  }
}

template <class Veu, int kAtOnce, uint64_t kTypes, class T, int kInputs, uint64_t... kSteps>
RK_BODY void typed_map_turns(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const TypedMapArgs& args = task.template arguments<TypedMapArgs>();
  const uint32_t end = min((task.index + 1) * args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t first = task.index * args.elements_per_rtask + threadIdx.x; first < end; first += kAtOnce * Veu::kComputeThreads) {
    uint32_t left[kAtOnce];
    int32_t to[kAtOnce] = {}, from[kInputs][kAtOnce] = {};
#pragma unroll
    for (int e = 0; e < kAtOnce; ++e) left[e] = min(first + e * Veu::kComputeThreads, end - 1);  // past the end the last one again
#pragma unroll 1
    for (int d = static_cast<int>(args.nest.rank) - 1; d >= 0; --d) {
      const Divisor extent = args.nest.divisors[d > 0 ? d - 1 : 0];
#pragma unroll
      for (int e = 0; e < kAtOnce; ++e) {
        uint32_t at = left[e];
        if (d > 0) left[e] = divide(left[e], extent, at);
        to[e] += static_cast<int32_t>(at) * args.out_strides[d];
#pragma unroll
        for (int i = 0; i < kInputs; ++i) from[i][e] += static_cast<int32_t>(at) * args.in_strides[i][d];
      }
    }
    T inputs[kAtOnce][kInputs];
    map_load<kTypes>(task, args, from, inputs);
#pragma unroll
    for (int e = 0; e < kAtOnce; ++e) {
      if (first + e * Veu::kComputeThreads >= end) continue;
      store_number(task.address(args.out), to[e], map_type(kTypes, 0), map_chain<T, kInputs, kSteps...>(args, inputs[e]));
    }
  }
}

}  // namespace rk
