// What a body gets: its rTask index, its rOperator's arguments, memory, and the ring of weight stages.
//
// A body is   template <class Veu, ...> RK_BODY void body(const rk::Task<Veu>& task)
// run by the Veu::kComputeThreads compute threads of one vEU (threadIdx.x < kComputeThreads). Rules:
//   - `task.work` is shared memory of the body's Phase::work_bytes, free of earlier users, 128-byte aligned;
//   - between its threads it synchronises with sync_compute<Veu>() only (never __syncthreads: the service warps do not
//     take part), __syncwarp and the warp functions of this folder;
//   - it consumes exactly Phase::ring.chunks_per_rtask chunks of the ring, in order; every compute warp acquires and releases each chunk;
//   - with Phase::boxes it starts before the rTask's Waits have passed, must not read activations before its first
//     inputs.acquire(), and consumes exactly the chunks that the waiter copies;
//   - before it returns, it waits for all its cp.async groups. The interpreter synchronises the compute threads after the body.
#pragma once

#include "kernels/vdevice/launch.cuh"
#include "kernels/vdevice/memory.cuh"

namespace rk {

constexpr uint32_t kNullBase = 0xffffffffu;  // in tables
// A place in device memory: base 0 = arena, 1 = weights, 2.. = the model's inputs, then its outputs.
struct TensorRef {  // in tables
  uint32_t base = kNullBase;
  uint32_t unused = 0;
  int64_t offset_bytes = 0;
};

// The consumer's side of the weight ring. Chunk number `next` counts from the start of the kernel.
// Example: with 4 stages chunk 13 is in stage 1, in round 3 of the ring, so its `full` barrier is awaited with parity 1.
template <class Veu>
struct WeightPipe {
  const char* stages;
  Barrier* full;
  Barrier* empty;
  uint32_t next;

  // The next chunk, 128-byte aligned, when it has arrived.
  RK_INLINE const char* acquire() {
    const uint32_t stage = next % Veu::kWeightStages;
    wait_warp<Veu::kVotes>(full[stage], (next / Veu::kWeightStages) & 1u);
    return stages + stage * Veu::kWeightStageBytes;
  }
  // This warp has read the chunk that acquire() gave last, and used what it has read. Every lane calls it.
  RK_INLINE void release() {
    __syncwarp();
    if (kEachArrives || lane_id() == 0) arrive(empty[next % Veu::kWeightStages]);
    ++next;
  }
  // The same for a warp whose loads from the chunk may still be under way. The arrival alone does not wait for them: they stand behind the
  // vEU's loads from global memory, for a thousand cycles and more where these are many, and the next chunk may come 600 cycles after the
  // arrival. It comes through the async proxy, for which a fence is needed.
  RK_INLINE void release_after_loads() {
    proxy_fence_shared();
    release();
  }
};

// The same for bodies that take many chunks: stage and parity are kept instead of computed from `next` each time. The current chunk
// begins `base` bytes after `stages`. Bodies consume the ring of input stages (Phase::boxes) through this struct only. After the first
// acquire() of an input stage, the body may read everything that the rTask's Waits are for.
template <int STAGES, int STAGE_BYTES, bool VOTES>
struct StagePipe {
  char* stages;
  Barrier* full;
  Barrier* empty;
  uint32_t stage, parity;
  int base;

  RK_INLINE StagePipe(char* stages_, Barrier* full_, Barrier* empty_, uint32_t next)
      : stages(stages_), full(full_), empty(empty_), stage(next % STAGES), parity(next / STAGES & 1u), base(0) {}
  RK_INLINE void acquire() {
    wait_warp<VOTES>(full[stage], parity);
    base = static_cast<int>(stage) * STAGE_BYTES;
  }
  RK_INLINE void release() {
    __syncwarp();
    if (kEachArrives || lane_id() == 0) arrive(empty[stage]);
    pass();
  }
  // To the next chunk without a release: a copy of this StagePipe releases it later.
  RK_INLINE void pass() {
    if (++stage == STAGES) {
      stage = 0;
      parity ^= 1u;
    }
  }
};
template <class Veu>
using WeightStages = StagePipe<Veu::kWeightStages, Veu::kWeightStageBytes, Veu::kVotes>;
template <class Veu>
using InputStages = StagePipe<(Veu::kInputStages > 0 ? Veu::kInputStages : 1), Veu::kInputStageBytes, Veu::kVotes>;

// Where a rTask's part of the ring of input stages begins; chunks count from the start of the kernel.
struct InputRing {
  char* stages;
  Barrier* full;
  Barrier* empty;
  uint32_t next;
};

template <class Veu>
struct Task {
  uint32_t index;    // rTask index within its phase
  const void* args;  // the body's argument struct, in shared memory
  char* work;
  const uint64_t* bases;    // addresses of TensorRef::base, in shared memory; see `base`
  WeightPipe<Veu> weights;  // a body copies it before use
  const Launch* launch;     // for exchange.cuh, as are `epoch` and `record`
  uint32_t epoch;           // of this run, from 1
  uint32_t record;
  InputRing inputs{};  // with Phase::boxes
  // With Phase::awaits_inputs the body begins before the rTask's Waits have passed. It calls await_inputs, every lane of a warp, before it
  // reads or writes what the Waits are for: all but its arguments and the ring of weights. A further call returns at once.
  Barrier* awaited = nullptr;
  uint32_t awaited_phase = 0;
  RK_INLINE void await_inputs() const {
    if (awaited == nullptr) return;
    wait_warp<Veu::kVotes>(*awaited, awaited_phase);
#if defined(TAMP_CUDA_ON_CPU)
    __syncwarp();  // as wait_warp does on a GPU, so that a call by some lanes alone does not pass on the stand-in either
#endif
  }

  RK_INLINE WeightStages<Veu> weight_stages() const {
    return {const_cast<char*>(weights.stages), weights.full, weights.empty, weights.next};
  }
  RK_INLINE InputStages<Veu> input_stages() const { return {inputs.stages, inputs.full, inputs.empty, inputs.next}; }
  template <class Args>
  RK_INLINE const Args& arguments() const {
    return *as_shared(static_cast<const Args*>(args));
  }
  template <class T>
  RK_INLINE T* work_as() const {
    return as_shared(reinterpret_cast<T*>(work));
  }
  // The first Veu::kSharedBases are in shared memory. A program with more has behind them the place of all, in the kernel's parameter.
  RK_INLINE uint64_t base(uint32_t number) const {
    if constexpr (Veu::kBases > Veu::kSharedBases) {
      if (number >= Veu::kSharedBases) return reinterpret_cast<const uint64_t*>(as_shared(bases)[Veu::kSharedBases])[number];
    }
    return as_shared(bases)[number];
  }
  RK_INLINE float* address(const TensorRef& ref) const {
    return ref.base == kNullBase ? nullptr : reinterpret_cast<float*>(base(ref.base) + static_cast<uint64_t>(ref.offset_bytes));
  }
};

}  // namespace rk
