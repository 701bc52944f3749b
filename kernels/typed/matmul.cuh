// y = alpha * op(A) * op(B) of elements of any type: exact and wrapping for integers, in double for floats. A result is summed by LANES
// neighbours of a warp, each of which takes every LANES-th product: 1 where there are results for all threads of the GPU, else a whole
// warp. Example: A is 2 x 3 x 4, B is 2 x 4 x 5, all dense. Element 22 of the 2 x 3 x 5 results is batch 1, row 1, column 2: A is read from
// element 1 * 12 + 1 * 4 = 16 in steps of 1, B from 1 * 20 + 2 = 22 in steps of 5.
#pragma once

#include "kernels/vdevice/cells.cuh"

namespace rk {

struct TypedMatMulArgs {  // in tables
  TensorRef out, a, b;
  Nest nest;  // of the output: batches, rows, columns
  int32_t out_strides[kNestRank], a_strides[kNestRank], b_strides[kNestRank];
  int32_t a_step, b_step;  // along the sum
  uint32_t count;          // products in a sum
  uint32_t type;
  float alpha;
  uint32_t elements, elements_per_rtask;
};

template <class Veu, class T, int LANES>
RK_BODY void typed_matmul(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const TypedMatMulArgs& args = task.template arguments<TypedMatMulArgs>();
  const void* const a = task.address(args.a);
  const void* const b = task.address(args.b);
  const uint32_t end = min((task.index + 1) * args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t element = task.index * args.elements_per_rtask + threadIdx.x / LANES; element < end;
       element += Veu::kComputeThreads / LANES) {
    const uint32_t lane = threadIdx.x % LANES;
    auto [to, at_a, at_b] = nest_offsets(args.nest, element, args.out_strides, args.a_strides, args.b_strides).of;
    at_a += static_cast<int64_t>(lane) * args.a_step;
    at_b += static_cast<int64_t>(lane) * args.b_step;
    T sum{};
#pragma unroll 1
    for (uint32_t k = lane; k < args.count; k += LANES) {
      sum = functions::sum(sum, functions::product(load_number<T>(a, at_a, args.type), load_number<T>(b, at_b, args.type)));
      at_a += static_cast<int64_t>(args.a_step) * LANES;
      at_b += static_cast<int64_t>(args.b_step) * LANES;
    }
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) sum = functions::sum(sum, __shfl_xor_sync(kFullMask, sum, step));
    if constexpr (functions::kIsReal<T>) sum *= static_cast<T>(args.alpha);
    if (lane == 0) store_number(task.address(args.out), to, args.type, sum);
  }
}

}  // namespace rk
