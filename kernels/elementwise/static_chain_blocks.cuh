// static_chain where rows lie in blocks: those of an operand lie `row` elements apart in a block, and its blocks `block` elements. A gate
// per image and channel has the same row for all pixels of an image: row 0, and a block for each image. There is one body for short and
// long chains, and for operands of any type in memory.
//
// Bit i of kNear: all rows of a block read the same of input i, which L1 then has.
// Example: gates of 3 images of 5 pixels and 8 channels, 2 groups a row. Group 23 is row 11, column 1: block 2, row 1 of it. Its gates are
// elements 2 * 8 + 4 to 23.
#pragma once

#include "kernels/elementwise/static_chain.cuh"
#include "kernels/tile/byte_operands.cuh"

namespace rk {

struct BlockChainArgs {  // in tables
  TensorRef out;
  TensorRef inputs[kStaticInputs];
  int32_t out_row;
  int32_t in_rows[kStaticInputs], in_steps[kStaticInputs];
  Divisor row_groups;     // groups of a row
  uint32_t row_elements;  // kPartial only
  uint32_t groups, groups_per_rtask;
  float constants[kLongConstants];
  float in_lows[kStaticInputs], out_low;  // the numbers that bytes of 0 stand for, in Unsigned8
  Divisor block_rows;                     // rows of a block
  int32_t out_block, in_blocks[kStaticInputs];
};

// Where a group is.
struct BlockPlace {
  uint32_t block, row, column;
  RK_INLINE uint32_t start(int32_t block_stride, int32_t row_stride) const {
    return block * static_cast<uint32_t>(block_stride) + row * static_cast<uint32_t>(row_stride);
  }
};
template <class Args>
RK_INLINE BlockPlace block_place(const Args& args, uint32_t group) {
  BlockPlace place;
  place.block = divide(divide(group, args.row_groups, place.column), args.block_rows, place.row);
  return place;
}

template <class Out>
RK_INLINE float4 block_lowered(float low, const float4& v) {
  if constexpr (!std::is_same_v<Out, Unsigned8>) return v;
  return float4{v.x - low, v.y - low, v.z - low, v.w - low};
}

// The groups of input `i`, as static_load.
template <bool kPartial, int kGroups, class In>
RK_INLINE void block_load(const BlockChainArgs& args, const In* from, int i, bool scalar, bool near, const BlockPlace (&at)[kGroups],
                          float4 (&to)[kGroups]) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const In* const row = from + at[g].start(args.in_blocks[i], near ? 0 : args.in_rows[i]);
    if (scalar && kPartial)
      to[g] = static_scalars_below(row, at[g].column, args.in_steps[i], args.row_elements);
    else if (scalar)
      to[g] = static_scalars(row, at[g].column, args.in_steps[i]);
    else if (near)
      to[g] = load4_near(row + at[g].column * 4);
    else
      to[g] = load4(row + at[g].column * 4);
  }
}

template <class Veu, class Value, uint32_t kNarrow, uint32_t kSigned, uint32_t kUnsigned, int kInputs, uint32_t kScalars, uint32_t kNear,
          int kTemporaries, bool kPartial, int kGroups, uint64_t... kSteps>
RK_BODY void static_chain_blocks(const Task<Veu>& caller) {
  using Operands = ByteOperands<Value, kNarrow, kSigned, kUnsigned>;
  using Out = typename Operands::template TypeOf<kNarrowOut>;
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const BlockChainArgs& args = task.template arguments<BlockChainArgs>();
  const uint32_t end = min((task.index + 1) * args.groups_per_rtask, args.groups);
  task.await_inputs();
#pragma unroll 1
  for (uint32_t first = task.index * args.groups_per_rtask + threadIdx.x; first < end; first += kGroups * Veu::kComputeThreads) {
    StaticValues<kInputs, kTemporaries, kGroups> values;
    BlockPlace at[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g)  // past the end the last group is loaded again, and not stored
      at[g] = block_place(args, min(first + g * Veu::kComputeThreads, end - 1));
#pragma unroll
    for (int i = 0; i < kInputs; ++i) {
      const bool scalar = (kScalars >> i & 1u) != 0, near = (kNear >> i & 1u) != 0;
      Operands::at(task, args.inputs[i], i,
                   [&](const auto* from) { block_load<kPartial>(args, from, i, scalar, near, at, values.inputs[i]); });
    }
#pragma unroll
    for (int i = 0; i < kInputs; ++i) Operands::raise_by(args.in_lows[i], i, values.inputs[i]);
    (static_step<kSteps, kGroups>(args, values), ...);
    Out* const out = values_at<Out>(task, args.out);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if (first + g * Veu::kComputeThreads >= end) continue;
      Out* const to = out + (at[g].start(args.out_block, args.out_row) + at[g].column * 4);
      if constexpr (kPartial)
        static_store(to, args.row_elements - at[g].column * 4, block_lowered<Out>(args.out_low, values.acc[g]));
      else
        store4(to, block_lowered<Out>(args.out_low, values.acc[g]));
    }
  }
}

}  // namespace rk
