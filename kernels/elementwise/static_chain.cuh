// y = chain(x0, x1, ..) where nvcc knows the chain, for the short chains that are frequent in networks (Add, Relu, Add then Relu, a
// transposing copy, ..). All loads of a turn are issued before the first is used, and a few instructions of arithmetic follow,
// while elementwise.cuh spends time on reading its program. Each chain is a body of its own, of about 1 KB.
//
// The output is walked as rows of groups of four neighbouring elements; the rows of an operand lie `row` elements apart, 0 where
// it is broadcast. A group of an input is one vector, or, where bit i of kScalars says so, four elements `step` apart. A thread
// does kGroups groups at a time.
//
// kPartial: the last group of a row has fewer than four elements (78 channels, pixels 80 apart). The vector's other lanes load numbers that
// lie behind the row and belong to no tensor. The body computes with these numbers, and does not store the results.
// Example: such a row has 20 groups. Group 45 is row 2, column 5: elements 2 * 80 + 5 * 4 = 180 to 183. Column 19 stores 78 - 76 = 2.
//
// static_chain_16bit: the same where kNarrow says that some operands are of type Value in memory. static_chain_long and
// static_chain_long_16bit: with more constants, as a function between two quantisations has (gelu as exporters write it: 13 steps).
// static_chain_bytes.cuh: where operands are whole numbers in bytes.
#pragma once

#include "kernels/elementwise/numbers.cuh"
#include "kernels/tile/static_steps.cuh"
#include "kernels/vdevice/task.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

struct StaticChainArgs {  // in tables
  TensorRef out;
  TensorRef inputs[kStaticInputs];
  int32_t out_row;
  int32_t in_rows[kStaticInputs], in_steps[kStaticInputs];
  Divisor row_groups;     // groups of a row
  uint32_t row_elements;  // kPartial only
  uint32_t groups, groups_per_rtask;
  float constants[kStaticConstants];
};
struct LongChainArgs {  // in tables
  TensorRef out;
  TensorRef inputs[kStaticInputs];
  int32_t out_row;
  int32_t in_rows[kStaticInputs], in_steps[kStaticInputs];
  Divisor row_groups;     // groups of a row
  uint32_t row_elements;  // kPartial only
  uint32_t groups, groups_per_rtask;
  float constants[kLongConstants];
};

// The group `column` of a row that starts at `from`.
template <class In>
RK_INLINE float4 static_scalars(const In* from, uint32_t column, int32_t step) {
  const uint32_t at = column * 4 * static_cast<uint32_t>(step), s = static_cast<uint32_t>(step);
  return float4{load1(from + at), load1(from + (at + s)), load1(from + (at + 2 * s)), load1(from + (at + 3 * s))};
}

// The same of a row of `elements`, whose last group may be partial: for missing elements the last element is loaded again.
template <class In>
RK_INLINE float4 static_scalars_below(const In* from, uint32_t column, int32_t step, uint32_t elements) {
  const uint32_t at = column * 4, last = elements - 1, s = static_cast<uint32_t>(step);
  return float4{load1(from + at * s), load1(from + min(at + 1, last) * s), load1(from + min(at + 2, last) * s),
                load1(from + min(at + 3, last) * s)};
}

// The first `count` elements of a vector, at most four.
template <class Out>
RK_INLINE void static_store(Out* to, uint32_t count, const float4& value) {
  if (count >= 4) return store4(to, value);
  store1(to, value.x);
  if (count > 1) store1(to + 1, value.y);
  if (count > 2) store1(to + 2, value.z);
}

// The groups of input `i`, element by element where it is `scalar`; `near`: all rows read the same.
template <bool kPartial, int kGroups, class Args, class In>
RK_INLINE void static_load(const Args& args, const In* from, int i, bool scalar, bool near, const uint32_t (&row)[kGroups],
                           const uint32_t (&column)[kGroups], float4 (&to)[kGroups]) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const uint32_t start = row[g] * static_cast<uint32_t>(args.in_rows[i]);
    if (scalar && kPartial)
      to[g] = static_scalars_below(from + start, column[g], args.in_steps[i], args.row_elements);
    else if (scalar)
      to[g] = static_scalars(from + start, column[g], args.in_steps[i]);
    else if (near)
      to[g] = load4_near(from + column[g] * 4);
    else
      to[g] = load4(from + (start + column[g] * 4));
  }
}

// The types of operands in memory: Value where kNarrow says so, else fp32.
template <class Value, uint32_t kNarrow>
struct ChainOperands {
  using Out = std::conditional_t<(kNarrow & kNarrowOut) != 0, Value, float>;

  // Calls `load` with where input `i` begins.
  template <class Veu, class Args, class Load>
  RK_INLINE static void with(const Task<Veu>& task, const Args& args, int i, const Load& load) {
    if ((kNarrow >> i & 1u) != 0)
      load(values_at<Value>(task, args.inputs[i]));
    else
      load(values_at<float>(task, args.inputs[i]));
  }
  // What numbers in memory stand for, and the other way round.
  template <class Args, int kGroups>
  RK_INLINE static void raise(const Args&, int, float4 (&)[kGroups]) {}
  template <class Args>
  RK_INLINE static float4 lowered(const Args&, const float4& v) {
    return v;
  }
};

template <class Veu, class Args, class Operands, int kInputs, uint32_t kScalars, uint32_t kNear, int kTemporaries, bool kPartial,
          int kGroups, uint64_t... kSteps>
RK_INLINE void static_chain_of(const Task<Veu>& caller) {
  using Out = typename Operands::Out;
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const Args& args = task.template arguments<Args>();
  const uint32_t end = min((task.index + 1) * args.groups_per_rtask, args.groups);
  task.await_inputs();
#pragma unroll 1
  for (uint32_t first = task.index * args.groups_per_rtask + threadIdx.x; first < end; first += kGroups * Veu::kComputeThreads) {
    StaticValues<kInputs, kTemporaries, kGroups> values;
    uint32_t row[kGroups], column[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {  // past the end the last group is loaded again, and not stored
      row[g] = divide(min(first + g * Veu::kComputeThreads, end - 1), args.row_groups, column[g]);
    }
#pragma unroll
    for (int i = 0; i < kInputs; ++i) {
      const bool scalar = (kScalars >> i & 1u) != 0, near = (kNear >> i & 1u) != 0;
      Operands::with(task, args, i,
                     [&](const auto* from) { static_load<kPartial>(args, from, i, scalar, near, row, column, values.inputs[i]); });
    }
#pragma unroll
    for (int i = 0; i < kInputs; ++i) Operands::raise(args, i, values.inputs[i]);
    (static_step<kSteps, kGroups>(args, values), ...);
    Out* const out = values_at<Out>(task, args.out);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if (first + g * Veu::kComputeThreads >= end) continue;
      Out* const to = out + (row[g] * static_cast<uint32_t>(args.out_row) + column[g] * 4);
      if constexpr (kPartial)
        static_store(to, args.row_elements - column[g] * 4, Operands::lowered(args, values.acc[g]));
      else
        store4(to, Operands::lowered(args, values.acc[g]));
    }
  }
}

template <class Veu, int kInputs, uint32_t kScalars, uint32_t kNear, int kTemporaries, bool kPartial, int kGroups, uint64_t... kSteps>
RK_BODY void static_chain(const Task<Veu>& task) {
  static_chain_of<Veu, StaticChainArgs, ChainOperands<float, 0>, kInputs, kScalars, kNear, kTemporaries, kPartial, kGroups, kSteps...>(
      task);
}

template <class Veu, class Value, uint32_t kNarrow, int kInputs, uint32_t kScalars, uint32_t kNear, int kTemporaries, bool kPartial,
          int kGroups, uint64_t... kSteps>
RK_BODY void static_chain_16bit(const Task<Veu>& task) {
  static_chain_of<Veu, StaticChainArgs, ChainOperands<Value, kNarrow>, kInputs, kScalars, kNear, kTemporaries, kPartial, kGroups,
                  kSteps...>(task);
}

template <class Veu, int kInputs, uint32_t kScalars, uint32_t kNear, int kTemporaries, bool kPartial, int kGroups, uint64_t... kSteps>
RK_BODY void static_chain_long(const Task<Veu>& task) {
  static_chain_of<Veu, LongChainArgs, ChainOperands<float, 0>, kInputs, kScalars, kNear, kTemporaries, kPartial, kGroups, kSteps...>(task);
}

template <class Veu, class Value, uint32_t kNarrow, int kInputs, uint32_t kScalars, uint32_t kNear, int kTemporaries, bool kPartial,
          int kGroups, uint64_t... kSteps>
RK_BODY void static_chain_long_16bit(const Task<Veu>& task) {
  static_chain_of<Veu, LongChainArgs, ChainOperands<Value, kNarrow>, kInputs, kScalars, kNear, kTemporaries, kPartial, kGroups, kSteps...>(
      task);
}

}  // namespace rk
