// The places of the true elements of x, in their order, then -1; and how many true elements there are. One rTask: every thread has a piece
// of x, counts the true elements of its piece, and writes their places behind those of the pieces before.
// Example: x has 1000 elements, so pieces of 4 for 256 threads: thread 5 has elements 20 to 23. If threads 0 to 4 count 7 true elements,
// thread 5 writes its places from number 7 on.
#pragma once

#include "kernels/vdevice/cells.cuh"
#include "kernels/vdevice/sync.cuh"

namespace rk {

struct TypedNonZeroArgs {  // in tables
  TensorRef places, count, in;
  int32_t place_step, in_step;
  uint32_t extent;
};

// Shared memory: a number for each thread.
template <class Veu>
RK_BODY void typed_non_zero(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const TypedNonZeroArgs& args = task.template arguments<TypedNonZeroArgs>();
  const uint8_t* const in = reinterpret_cast<const uint8_t*>(task.address(args.in));
  uint64_t* const places = reinterpret_cast<uint64_t*>(task.address(args.places));
  uint32_t* const found = task.template work_as<uint32_t>();
  const auto is_true = [&](uint32_t i) { return load_cell(in + static_cast<int64_t>(i) * args.in_step) != 0; };
  const auto put = [&](uint32_t i, int64_t place) {
    store_cell(places + static_cast<int64_t>(i) * args.place_step, static_cast<uint64_t>(place));
  };
  constexpr uint32_t kThreads = Veu::kComputeThreads;
  const uint32_t piece = (args.extent + kThreads - 1) / kThreads;
  const uint32_t first = min(threadIdx.x * piece, args.extent), last = min(first + piece, args.extent);
  uint32_t own = 0;
#pragma unroll 4
  for (uint32_t i = first; i < last; ++i) own += is_true(i) ? 1 : 0;
  found[threadIdx.x] = own;
  sync_compute<Veu>();
  uint32_t before = 0, all = 0;
#pragma unroll 8
  for (uint32_t t = 0; t < kThreads; ++t) {
    const uint32_t other = found[t];
    before += t < threadIdx.x ? other : 0;
    all += other;
  }
#pragma unroll 1
  for (uint32_t i = first; i < last; ++i) {
    if (is_true(i)) put(before++, i);
  }
#pragma unroll 1
  for (uint32_t i = all + threadIdx.x; i < args.extent; i += kThreads) put(i, -1);
  if (threadIdx.x == 0) store_cell(reinterpret_cast<uint64_t*>(task.address(args.count)), static_cast<uint64_t>(all));
}

}  // namespace rk
