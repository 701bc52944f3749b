// What a body gets: its rTask index, its rOperator's arguments, memory, and the ring of weight stages.
//
// A body is   template <class Veu, ...> RK_BODY void body(const rk::Task<Veu>& task)
// run by the Veu::kComputeThreads compute threads of one vEU (threadIdx.x < kComputeThreads). Rules:
//   - `task.work` is shared memory of the body's Phase::work_bytes, free of earlier users, 128-byte aligned;
//   - between its threads it synchronises with sync_compute<Veu>() only (never __syncthreads: the service warps do not
//     take part), __syncwarp and the warp functions of this folder;
//   - it consumes exactly Phase::ring.chunks_per_rtask chunks of the ring, in order, every compute warp each of them;
//   - when it returns, all its cp.async groups are waited for. The interpreter synchronises the compute threads after it.
#pragma once

#include "kernels/vdevice/launch.cuh"
#include "kernels/vdevice/memory.cuh"

namespace rk {

// A place in device memory: base 0 = arena, 1 = weights, 2.. = the model's inputs, then its outputs.
struct TensorRef {
  uint32_t base;
  uint32_t unused;
  int64_t offset_bytes;
};
constexpr uint32_t kNullBase = 0xffffffffu;

// Division by a number fixed at compile time of the model: q = (x * multiplier) >> 32 >> shift, exact for x < 2^31.
struct Divisor {
  uint32_t divisor;
  uint32_t multiplier;  // 0: the divisor is 1
  uint32_t shift;
};
RK_INLINE uint32_t divide(uint32_t x, const Divisor& d) {
#if defined(__CUDA_ARCH__)
  return d.multiplier == 0 ? x : __umulhi(x, d.multiplier) >> d.shift;
#else
  return d.multiplier == 0 ? x : static_cast<uint32_t>((static_cast<uint64_t>(x) * d.multiplier) >> 32) >> d.shift;
#endif
}
RK_INLINE uint32_t divide(uint32_t x, const Divisor& d, uint32_t& remainder) {
  const uint32_t q = divide(x, d);
  remainder = x - q * d.divisor;
  return q;
}

// The consumer's side of the weight ring. Chunk number `next` counts from the start of the kernel.
template <class Veu>
struct WeightPipe {
  const char* stages;
  Barrier* full;
  Barrier* empty;
  uint32_t next;

  // The next chunk, 128-byte aligned, when it has arrived.
  RK_INLINE const char* acquire() {
    const uint32_t stage = next % Veu::kWeightStages;
    wait_warp(full[stage], (next / Veu::kWeightStages) & 1u);
    return stages + stage * Veu::kWeightStageBytes;
  }
  // This warp has read the chunk that acquire() gave last. Every lane calls it.
  RK_INLINE void release() {
    __syncwarp();
    if (lane_id() == 0) arrive(empty[next % Veu::kWeightStages]);
    ++next;
  }
};

template <class Veu>
struct Task {
  uint32_t index;    // rTask index within its phase
  const void* args;  // the body's argument struct, in shared memory
  char* work;
  const uint64_t* bases;    // addresses of TensorRef::base, in shared memory
  WeightPipe<Veu> weights;  // a body copies it before use
  const Launch* launch;     // for exchange.cuh, as are:
  uint32_t epoch;           // of this run, from 1
  uint32_t record;

  template <class Args>
  RK_INLINE const Args& arguments() const {
    return *as_shared(static_cast<const Args*>(args));
  }
  template <class T>
  RK_INLINE T* work_as() const {
    return as_shared(reinterpret_cast<T*>(work));
  }
  RK_INLINE float* address(const TensorRef& ref) const {
    return ref.base == kNullBase ? nullptr : reinterpret_cast<float*>(as_shared(bases)[ref.base] + static_cast<uint64_t>(ref.offset_bytes));
  }
};

}  // namespace rk
