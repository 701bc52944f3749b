// Synchronisation inside a vEU (Barrier, sync_compute) and between vEUs (signal, poll).
//
// How one rTask's stores reach the loads of another: the compute threads store an rTask's results. sync_compute orders the stores before
// thread 0's releasing red, which adds to the event. On the reading vEU the waiter polls the event, acquires, and then arrives on the
// slot's `inputs` barrier. The compute threads wait for that barrier before they load. Each of these steps is a release/acquire pair of the
// PTX memory model, and causality order is transitive over the pairs.
#pragma once

#include "kernels/vdevice/platform.cuh"

namespace rk {

#if defined(TAMP_CUDA_ON_CPU)
using Barrier = cuda_on_cpu::Barrier;
#else
// An mbarrier in shared memory. sm_75 has no mbarriers: there the word holds {pending:16, count:16, phase:32}, lowest bits first.
struct alignas(8) Barrier {
  uint64_t word;
};
#endif

// All compute threads of the vEU; orders their memory accesses. Named barrier 1: the service warps stay out.
template <class Veu>
RK_INLINE void sync_compute() {
#if defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::named_barrier(1, Veu::kComputeThreads);
#elif defined(__CUDA_ARCH__)
  asm volatile("bar.sync 1, %0;" ::"n"(Veu::kComputeThreads) : "memory");
#endif
}

// Synchronises kThreads compute threads, whole warps, among themselves by named barrier `id`, which is 2 or more (0 and 1 are taken).
template <int kThreads>
RK_INLINE void sync_group(int id) {
#if defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::named_barrier(static_cast<uint32_t>(id), kThreads);
#elif defined(__CUDA_ARCH__)
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
#endif
}

// Synchronises all threads of the vEU, once, after the barriers are made; also shows the barriers to the async proxy.
RK_INLINE void sync_all() {
#if defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::named_barrier(0, blockDim.x);
#elif defined(__CUDA_ARCH__)
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  __syncthreads();
#endif
}

RK_INLINE void init(Barrier& barrier, uint32_t count) {
#if defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::init(barrier, count);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(smem_address(&barrier)), "r"(count) : "memory");
#elif defined(__CUDA_ARCH__)
  barrier.word = count | (count << 16);
#endif
}

RK_INLINE void arrive(Barrier& barrier) {
#if defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::arrive(barrier);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared.b64 state, [%0];\n\t}" ::"r"(smem_address(&barrier)) : "memory");
#elif defined(__CUDA_ARCH__)
  uint32_t* const words = reinterpret_cast<uint32_t*>(&barrier);
  __threadfence_block();
  const uint32_t before = atomicSub(&words[0], 1u);
  if ((before & 0xffffu) == 1u) {
    words[0] = (before & 0xffff0000u) | (before >> 16);
    __threadfence_block();
    atomicAdd(&words[1], 1u);
  }
#endif
}

// When a warp, or all compute threads, are done, one of these threads arrives on the mbarrier, after the threads have synchronised. One
// arrival is enough, since causality order is transitive. But racecheck of compute-sanitizer trusts only threads that arrived themselves
// and reports races of the others. With -DTAMP_EACH_THREAD_ARRIVES each thread arrives; nothing else differs (docs/sanitizers.md).
#if defined(TAMP_EACH_THREAD_ARRIVES)
inline constexpr bool kEachArrives = true;
#else
inline constexpr bool kEachArrives = false;
#endif
template <class Veu>
inline constexpr uint32_t kWarpsArrive = static_cast<uint32_t>(kEachArrives ? Veu::kComputeThreads : Veu::kComputeThreads / kWarp);

RK_INLINE bool passed(Barrier& barrier, uint32_t parity) {
#if defined(TAMP_CUDA_ON_CPU)
  return cuda_on_cpu::passed(barrier, parity);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint32_t done;
  asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
               : "=r"(done)
               : "r"(smem_address(&barrier)), "r"(parity)
               : "memory");
  return done != 0;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t done;
  asm volatile("{\n\t.reg .pred p;\n\tmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
               : "=r"(done)
               : "r"(smem_address(&barrier)), "r"(parity)
               : "memory");
  return done != 0;
#elif defined(__CUDA_ARCH__)
  const volatile uint32_t* const words = reinterpret_cast<const volatile uint32_t*>(&barrier);
  const bool done = (words[1] & 1u) != parity;
  __threadfence_block();
  return done;
#else
  return true;
#endif
}

RK_INLINE uint64_t now_ns() {
#if defined(__CUDA_ARCH__)
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
#else
  return 0;
#endif
}

// Waits for the barrier's phase of this parity to complete. All arrivals come from the same vEU, so only a bug in a body can make the
// wait endless; after kBarrierBudgetNs the kernel traps (the stand-in finds such a deadlock exactly).
inline constexpr uint64_t kBarrierBudgetNs = 60ull * 1000 * 1000 * 1000;
RK_BODY void wait_long(Barrier& barrier, uint32_t parity) {
  uint32_t spins = 0;
  uint64_t start = 0;
  while (!passed(barrier, parity)) {
    if ((++spins & 0xffffu) != 0) continue;
    if (start == 0) start = now_ns();
#if defined(__CUDA_ARCH__)
    if (now_ns() - start > kBarrierBudgetNs) __trap();
#endif
  }
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// Only five instructions, since bodies have many waits. A try takes 20 ns at least, so 2^32 tries take more than kBarrierBudgetNs.
RK_INLINE void wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n\t.reg .pred done, more;\n\t.reg .u32 left;\n\tmov.u32 left, 0xffffffff;\n\t"
      "AGAIN:\n\tmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n\t@done bra DONE;\n\t"
      "sub.u32 left, left, 1;\n\tsetp.ne.u32 more, left, 0;\n\t@more bra AGAIN;\n\ttrap;\n\tDONE:\n\t}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
#endif
RK_INLINE void wait(Barrier& barrier, uint32_t parity) {
#if defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::wait(barrier, parity);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  wait(smem_address(&barrier), parity);
#elif defined(__CUDA_ARCH__)
  // The usual short wait is inlined; the rare long wait is one function for all callers.
#pragma unroll 1
  for (int i = 0; i < 64; ++i) {
    if (passed(barrier, parity)) return;
  }
  wait_long(barrier, parity);
#endif
}

// The same for a whole warp, which leaves it together: lanes may see the phase complete at different times, and bar.sync,
// ldmatrix and mma.sync want the warp converged.
// With VOTES the lanes vote on each try, so that they do not part: bringing them together again takes some sixty clocks. Not all programs
// wait like this (Veu::kVotes): where waits are long, as in resnet50 at batch 8, lanes that vote after each try leave them later.
template <bool VOTES = false>
RK_INLINE void wait_warp(Barrier& barrier, uint32_t parity) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (VOTES) {
    asm volatile(
        "{\n\t.reg .pred done, more;\n\t.reg .u32 left;\n\tmov.u32 left, 0xffffffff;\n\t"
        "AGAIN:\n\tmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n\tvote.sync.all.pred done, done, 0xffffffff;\n\t@done bra DONE;\n\t"
        "sub.u32 left, left, 1;\n\tsetp.ne.u32 more, left, 0;\n\t@more bra AGAIN;\n\ttrap;\n\tDONE:\n\t}" ::"r"(smem_address(&barrier)),
        "r"(parity)
        : "memory");
    return;
  }
#endif
  wait(barrier, parity);
#if defined(__CUDA_ARCH__)
  __syncwarp();
#endif
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// Such a wait for two barriers, in as few instructions as there can be, for the loop of a product: no branch is taken where both phases are
// complete. It has no limit of its own: whoever waits for the end of the rTask has one (run_waiter, load_phase_weights).
RK_INLINE void wait_warp_for_both(Barrier& a, uint32_t a_parity, Barrier& b, uint32_t b_parity) {
  asm volatile(
      "{\n\t.reg .pred done, also;\n\t"
      "AGAIN:\n\tmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n\tmbarrier.try_wait.parity.shared.b64 also, [%2], %3;\n\t"
      "and.pred done, done, also;\n\tvote.sync.all.pred done, done, 0xffffffff;\n\t@!done bra AGAIN;\n\t}" ::"r"(smem_address(&a)),
      "r"(a_parity), "r"(smem_address(&b)), "r"(b_parity)
      : "memory");
}
#endif

// Between a thread's own accesses to shared memory and copies into the same bytes, whoever starts these later: by cp.async.bulk, or by
// another warp's cp.async where there is none.
RK_INLINE void proxy_fence_shared() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#elif defined(__CUDA_ARCH__)
  __threadfence_block();
#endif
}

// How long weights stay in L2: the share `kept` of their lines until the next run, the other lines no longer than there is room for all
// else (0: L2 is told nothing). Without that they would drive out code and activations, even where L2 is as large as all of them together.
RK_INLINE uint64_t weights_policy(float kept) {
  uint64_t policy = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (kept > 0.0f)
    asm("createpolicy.fractional.L2::evict_last.L2::evict_first.b64 %0, %1;" : "=l"(policy) : "f"(kept));
  else
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
#else
  (void)kept;
#endif
  return policy;
}

// How many lanes of the loader warp copy weights, and how these lanes wait for an empty stage.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kCopyLanes = kWarp;
#else
constexpr int kCopyLanes = 1;
#endif
RK_INLINE void wait_to_copy(Barrier& empty, uint32_t parity) {
  if constexpr (kCopyLanes > 1)
    wait_warp(empty, parity);
  else
    wait(empty, parity);
}

// Copies `bytes` (a multiple of 16) of weights to shared memory and arrives on `full` when they are there. kCopyLanes lanes
// of one warp call it; `full` was made with that count. Weights only: on sm_90 the copy goes through the async proxy.
RK_INLINE void copy_weights(void* smem, const void* gmem, uint32_t bytes, Barrier& full, uint64_t policy) {
  (void)policy;
#if defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::copy_weights(smem, gmem, bytes, full);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const uint32_t barrier = smem_address(&full);
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n\t}" ::"r"(barrier), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
                   smem_address(smem)),
               "l"(gmem), "r"(bytes), "r"(barrier), "l"(policy)
               : "memory");
#elif defined(__CUDA_ARCH__)
  for (uint32_t at = static_cast<uint32_t>(lane_id()) * 16u; at < bytes; at += kWarp * 16u) {
    void* const to = static_cast<char*>(smem) + at;
    const void* const from = static_cast<const char*>(gmem) + at;
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem_address(to)), "l"(from) : "memory");
#else
    *static_cast<float4*>(to) = __ldg(static_cast<const float4*>(from));
#endif
  }
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(smem_address(&full)) : "memory");
#else
  arrive(full);
#endif
#endif
}

// --- between vEUs --------------------------------------------------------------------------------------------------

RK_INLINE uint32_t poll(const uint32_t* event) {
#if defined(__CUDA_ARCH__)
  uint32_t seen;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(event) : "memory");
  return seen;
#elif defined(TAMP_CUDA_ON_CPU)
  return cuda_on_cpu::poll(event);
#else
  return *event;
#endif
}

// How the waiter looks at events: any number of times with poll_event, then once acquire_events. Loads after that see all stores that came
// before the signals which it counted. Since PTX 8.6 there is a fence that only acquires, an instruction that drops the SM's L1. Before,
// each look drops it: a fence that acquires and releases takes 640 clocks.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && \
    (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 8))
#define RK_FENCE_ACQUIRES
#endif
RK_INLINE uint32_t poll_event(const uint32_t* event) {
#if defined(__CUDA_ARCH__) && !defined(RK_FENCE_ACQUIRES)
  uint32_t seen;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(event) : "memory");
  return seen;
#else
  return poll(event);
#endif
}
RK_INLINE void acquire_events() {
#if defined(RK_FENCE_ACQUIRES)
  asm volatile("fence.acquire.gpu;" ::: "memory");
#endif
}
// Adds 1 to the event, with release: whoever acquires it sees all that was stored before.
RK_INLINE void signal(uint32_t* event) {
#if defined(__CUDA_ARCH__)
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(event) : "memory");
#elif defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::signal(event);
#endif
}

// --- inside a warp -------------------------------------------------------------------------------------------------

RK_INLINE float warp_sum(float v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(kFullMask, v, step);
  return v;
}

}  // namespace rk
