// static_chain_blocks for large maps: items of eight elements, whose copies to shared memory are under way while the items before them are
// computed. A thread copies for itself, so threads wait for nothing but their own copies. All functions are computed side by side.
//
// A slot of `work` has an item of each thread and each input: 16 bytes a thread, of f32 twice, of bytes 8. kSlots - 1 items of a thread are
// under way; the slot that is copied to is the one whose item is stored already. Inputs of kNear (static_chain_blocks) are loaded through
// L1 where they are used. kRank: of the loop; 1: all elements of all operands are neighbours, 2: one block.
//
// Example: kSlots 8, 256 threads, inputs of halves and of bytes: a slot has 4096 + 2048 bytes. Item 2 of thread 5 has its bytes from
// 2 * 6144 + 4096 + 5 * 8 = 16424 on.
#pragma once

#include "kernels/elementwise/static_chain_blocks.cuh"
#include "kernels/vdevice/pairs.cuh"

namespace rk {

// to = f(x, y, z), as chain_function.
template <uint32_t kOp, int kGroups>
RK_INLINE void ahead_function(const float4 (&x)[kGroups], const float4 (&y)[kGroups], const float4 (&z)[kGroups], float4 (&to)[kGroups]) {
#define RK_ROW(name, arity, attributes, types, result, speed, price, onnx, formula) \
  if constexpr (kOp == kOp_##name && Speed::speed != Speed::rare)                   \
    map_groups(x, y, z, to, [](float a, float b, float c) { return functions::of_##name<float>(a, b, c); });
  RK_FUNCTIONS(RK_ROW)
#undef RK_ROW
}
template <uint64_t kStep, int kGroups, class Args, class Values>
RK_INLINE void ahead_step(const Args& args, Values& values) {
  float4 x[kGroups], y[kGroups], z[kGroups];
  static_operand<static_step_byte(kStep, 1)>(args, values, x);
  static_operand<static_step_byte(kStep, 2)>(args, values, y);
  static_operand<static_step_byte(kStep, 3)>(args, values, z);
  ahead_function<static_step_byte(kStep, 0)>(x, y, z, values.acc);
  static_keep<kStep, kGroups>(values);
}

// An item of an input. `slot`: where the input's part of the slot begins.
template <int kThreads, class In>
RK_INLINE void ahead_copy(char* slot, const In* from) {
  const uint32_t thread = threadIdx.x;
  if constexpr (sizeof(In) == 1) {
    cp_async8(slot + thread * 8, from);
  } else {
    cp_async16(slot + thread * 16, from, true);
    if constexpr (sizeof(In) == 4) cp_async16(slot + (kThreads + thread) * 16, from + 4, true);
  }
}
template <int kThreads, class In>
RK_INLINE void ahead_read(const char* slot, float4 (&to)[2]) {
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (sizeof(In) == 1) {
    const float2 v = load_shared2(slot, thread * 8);
    to[0] = floats_of_bytes<In>(bits_of(v.x));
    to[1] = floats_of_bytes<In>(bits_of(v.y));
  } else if constexpr (sizeof(In) == 2) {
    const float4 v = load_shared4(slot, thread * 16);
    to[0] = Raw4<In>{{bits_of(v.x), bits_of(v.y)}}.floats();
    to[1] = Raw4<In>{{bits_of(v.z), bits_of(v.w)}}.floats();
  } else {
    to[0] = load_shared4(slot, thread * 16);
    to[1] = load_shared4(slot, (kThreads + thread) * 16);
  }
}
template <class Out>
RK_INLINE void ahead_store(Out* to, float low, const float4 (&v)[2]) {
  const float4 first = block_lowered<Out>(low, v[0]), second = block_lowered<Out>(low, v[1]);
  if constexpr (sizeof(Out) == 1) {
    *as_global(reinterpret_cast<uint2*>(to)) = uint2{bytes_of(first), bytes_of(second)};
  } else if constexpr (sizeof(Out) == 2) {
    *as_global(reinterpret_cast<uint4*>(to)) = uint4{pair_of<Out>(first.x, first.y), pair_of<Out>(first.z, first.w),
                                                     pair_of<Out>(second.x, second.y), pair_of<Out>(second.z, second.w)};
  } else {
    store4(to, first);
    store4(to + 4, second);
  }
}

template <int kRank>
RK_INLINE BlockPlace ahead_place(const BlockChainArgs& args, uint32_t item) {
  if constexpr (kRank == 1) return {0, 0, item};
  if constexpr (kRank == 3) return block_place(args, item);
  BlockPlace place = {};
  place.row = divide(item, args.row_groups, place.column);
  return place;
}

// Where the parts of input `i` of a slot begin; of input kInputs: a slot's bytes.
template <class Operands, uint32_t kNear>
RK_INLINE constexpr int ahead_offset(int i, int threads) {
  int bytes = 0;
  for (int before = 0; before < i; ++before) bytes += (kNear >> before & 1u) != 0 ? 0 : 8 * Operands::value_bytes(before) * threads;
  return bytes;
}

template <class Veu, class Value, uint32_t kNarrow, uint32_t kSigned, uint32_t kUnsigned, int kInputs, uint32_t kNear, int kTemporaries,
          int kRank, int kSlots, uint64_t... kSteps>
RK_BODY void static_chain_ahead(const Task<Veu>& caller) {
  using Operands = ByteOperands<Value, kNarrow, kSigned, kUnsigned>;
  using Out = typename Operands::template TypeOf<kNarrowOut>;
  constexpr int kThreads = Veu::kComputeThreads, kSlotBytes = ahead_offset<Operands, kNear>(kInputs, kThreads);
  static_assert((kSlots & (kSlots - 1)) == 0);
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const BlockChainArgs& args = task.template arguments<BlockChainArgs>();
  const uint32_t end = min((task.index + 1) * args.groups_per_rtask, args.groups);
  char* const work = task.template work_as<char>();
  const auto copy = [&](uint32_t item, uint32_t slot) {
    if (item < end) {
      const BlockPlace at = ahead_place<kRank>(args, item);
#pragma unroll
      for (int i = 0; i < kInputs; ++i) {
        if ((kNear >> i & 1u) != 0) continue;
        Operands::at(task, args.inputs[i], i, [&](const auto* from) {
          ahead_copy<kThreads>(work + slot * kSlotBytes + ahead_offset<Operands, kNear>(i, kThreads),
                               from + (at.start(args.in_blocks[i], args.in_rows[i]) + at.column * 8));
        });
      }
    }
    cp_async_commit();
  };
  task.await_inputs();
  uint32_t item = task.index * args.groups_per_rtask + threadIdx.x;
#pragma unroll 1
  for (uint32_t slot = 0; slot + 1 < kSlots; ++slot) copy(item + slot * kThreads, slot);
#pragma unroll 1
  for (uint32_t slot = 0; item < end; item += kThreads, slot = (slot + 1) % kSlots) {
    StaticValues<kInputs, kTemporaries, 2> values;
    const BlockPlace at = ahead_place<kRank>(args, item);
#pragma unroll
    for (int i = 0; i < kInputs; ++i) {
      if ((kNear >> i & 1u) == 0) continue;
      Operands::at(task, args.inputs[i], i, [&](const auto* from) {
        const auto* const row = from + (at.start(args.in_blocks[i], 0) + at.column * 8);
        values.inputs[i][0] = load4_near(row);
        values.inputs[i][1] = load4_near(row + 4);
      });
    }
    cp_async_wait<kSlots - 2>();
    copy(item + (kSlots - 1) * kThreads, (slot + kSlots - 1) % kSlots);
#pragma unroll
    for (int i = 0; i < kInputs; ++i) {
      if ((kNear >> i & 1u) != 0) continue;
      Operands::at(task, args.inputs[i], i, [&](const auto* from) {
        ahead_read<kThreads, std::remove_cv_t<std::remove_pointer_t<decltype(from)>>>(
            work + slot * kSlotBytes + ahead_offset<Operands, kNear>(i, kThreads), values.inputs[i]);
      });
    }
#pragma unroll
    for (int i = 0; i < kInputs; ++i) Operands::raise_by(args.in_lows[i], i, values.inputs[i]);
    (ahead_step<kSteps, 2>(args, values), ...);
    ahead_store(values_at<Out>(task, args.out) + (at.start(args.out_block, args.out_row) + at.column * 8), args.out_low, values.acc);
  }
  cp_async_wait<0>();
}

}  // namespace rk
