// What lies between two levels of a network on sm_90a: a chain of levels, each of which takes a box of inputs that the level before stored,
// computes for a while, stores 4 KB a block, and signals. One block on each SM, with the warps that a vEU has: eight that compute, one that
// copies weights into a ring as far ahead as it may, one that waits for events and then copies the box.
//
//   nvcc -std=c++20 -O3 -arch=sm_90a -I . test/gpu/level_edges.cu -o build/level_edges && build/level_edges
//
// Prints, in clocks of a level (the median of all blocks and levels): the whole level; the release, from the last barrier of the stores until
// the red is under way; from there until the waiter has seen the last signal of all blocks; from there until the box is there.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/vdevice/mma.cuh"

namespace {

constexpr int kLevels = 200, kThreads = 320, kCompute = 256, kStages = 3, kStageBytes = 36 * 1024, kBox = 16 * 1024, kBlockBytes = 4096;

enum Hold { kNot = 0, kUntilSignal = 1, kUntilBox = 2, kUntilBoxIsThere = 3 };
enum Release { kRed = 0, kEachWarp = 1, kBulk = 2, kNoRelease = 3 };

struct Plan {
  int stages;    // of weights for each level
  int bytes;     // of a stage
  int hold;      // Hold
  int release;   // Release
  int counters;  // words that the signals of a level are spread over; a lane of the waiter polls each; 0: a flag for each block
  int box;       // bytes
  int work;      // clocks of computing a stage
  int held;      // how many of the last stages of a level are held
  int acquire;   // 0: polls are relaxed, and nothing is fenced (wrong in a network)
};

__device__ uint32_t events[kLevels * 32 * 8];
__device__ __align__(1024) char maps[2][132 * 2 * kBlockBytes + kBox];

__device__ void wait_for(uint64_t* barrier, int parity) {
  asm volatile("{\n\t.reg .pred p;\n\tAGAIN:\n\tmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n\t@!p bra AGAIN;\n\t}" ::"r"(
                   rk::smem_address(barrier)),
               "r"(parity)
               : "memory");
}
__device__ void arrive_at(uint64_t* barrier) {
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared.b64 state, [%0];\n\t}" ::"r"(rk::smem_address(barrier)) : "memory");
}
__device__ void copy(void* to, const void* from, int bytes, uint64_t* barrier) {
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n\t}" ::"r"(rk::smem_address(barrier)),
               "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(rk::smem_address(to)),
               "l"(from), "r"(bytes), "r"(rk::smem_address(barrier))
               : "memory");
}
__device__ int now() {
  int t;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t)::"memory");
  return t;
}
__device__ void compute_for(int clocks) {
  const int begin = now();
  while (now() - begin < clocks) {
  }
}

__device__ uint32_t poll(const uint32_t* word, int acquire) {
  uint32_t v;
  if (acquire)
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(word) : "memory");
  else
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(word) : "memory");
  return v;
}

struct Stamps {
  int begin, stored, released, seen, computed;
};

__global__ void __launch_bounds__(kThreads, 1) chain(Plan plan, int epoch, const char* weights, size_t weights_bytes, Stamps* stamps) {
  extern __shared__ __align__(1024) char smem[];
  __shared__ uint64_t full[kStages], empty[kStages], box_full, box_empty, signalled, box_started;
  __shared__ int seen_at[2];
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  char* const box = smem;
  char* const ring = smem + kBox;
  char* const work = ring + kStages * kStageBytes;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(rk::smem_address(full + i)));
      asm volatile("mbarrier.init.shared.b64 [%0], 8;" ::"r"(rk::smem_address(empty + i)));
    }
    for (uint64_t* barrier : {&box_full, &signalled, &box_started}) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(rk::smem_address(barrier)));
    asm volatile("mbarrier.init.shared.b64 [%0], 8;" ::"r"(rk::smem_address(&box_empty)));
  }
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  const int per_level = plan.release == kEachWarp ? 8 : 1;
  if (threadIdx.x == 256) {  // loader
    int chunk = 0;
    for (int level = 0; level < kLevels; ++level) {
      for (int s = 0; s < plan.stages; ++s, ++chunk) {
        const int stage = chunk % kStages, round = chunk / kStages;
        if (round > 0) wait_for(empty + stage, (round - 1) & 1);
        // The stage was last used by chunk - kStages: of which level? Held until that level's signal, or the next level's box, is under way.
        const int used = (chunk - kStages) / plan.stages;
        if (round > 0 && plan.hold != kNot && used == level - 1 && (chunk - kStages) % plan.stages >= plan.stages - plan.held) {
          if (plan.hold == kUntilSignal) wait_for(&signalled, used & 1);
          if (plan.hold == kUntilBox) wait_for(&box_started, (used + 1) & 1);
          if (plan.hold == kUntilBoxIsThere) wait_for(&box_full, (used + 1) & 1);
        }
        const size_t at = (static_cast<size_t>(level * 8 + block / 16) * plan.stages + s) * kStageBytes % weights_bytes;
        copy(ring + stage * kStageBytes, weights + at, plan.bytes, full + stage);
      }
    }
  } else if (threadIdx.x >= 288) {  // waiter
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int level = 0; level < kLevels; ++level) {
      if (level > 0) {
        wait_for(&box_empty, (level - 1) & 1);
        __syncwarp();
        if (plan.counters == 1) {
          if (lane == 0) {
            const uint32_t wanted = static_cast<uint32_t>(epoch * blocks * per_level);
            const uint32_t* const word = events + (level - 1) * 8 * 32;
            while (poll(word, plan.acquire) < wanted) {
            }
          }
        } else if (plan.counters > 1) {
          const int mine = lane < plan.counters ? lane : 0;
          const uint32_t wanted = static_cast<uint32_t>(epoch * (blocks / plan.counters + (mine < blocks % plan.counters)) * per_level);
          const uint32_t* const word = events + ((level - 1) * 8 + mine) * 32;
          while (!__all_sync(~0u, poll(word, plan.acquire) >= wanted)) {
          }
        } else {
          const uint32_t* const word = events + (level - 1) * 8 * 32 + lane * 4;
          const auto wanted = static_cast<uint32_t>(epoch);
          bool done = false;
          while (!__all_sync(~0u, done)) {
            uint4 v;
            if (plan.acquire)
              asm volatile("ld.acquire.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(word) : "memory");
            else
              asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(word) : "memory");
            done = v.x >= wanted && v.y >= wanted && v.z >= wanted && v.w >= wanted;
            if (lane == 0 && blocks > 128) done = done && poll(word + 128, plan.acquire) >= wanted && poll(word + 128 + blocks - 129, plan.acquire) >= wanted;
          }
        }
        if (lane == 0) {
          seen_at[level & 1] = now();
          if (plan.acquire) asm volatile("fence.proxy.async.global;" ::: "memory");
        }
      }
      if (lane == 0) {
        copy(box, maps[level & 1] + block * 7 % 33 * kBox, plan.box, &box_full);
        arrive_at(&box_started);
      }
    }
  } else if (threadIdx.x < kCompute) {
    int chunk = 0, before = now(), released = 0;
    for (int level = 0; level < kLevels; ++level) {
      wait_for(&box_full, level & 1);
      __syncwarp();
      const int there = now();
      float4 v = *reinterpret_cast<float4*>(box + threadIdx.x * 16);
      for (int s = 0; s < plan.stages; ++s, ++chunk) {
        wait_for(full + chunk % kStages, chunk / kStages & 1);
        __syncwarp();
        v.x += *reinterpret_cast<float*>(ring + chunk % kStages * kStageBytes + threadIdx.x * 16);
        compute_for(plan.work);
        __syncwarp();
        if (threadIdx.x % 32 == 0) {
          arrive_at(empty + chunk % kStages);
          if (s == plan.stages - 1) arrive_at(&box_empty);
        }
      }
      char* const to = maps[(level + 1) & 1] + block * kBlockBytes;
      if (plan.release == kBulk) {
        *reinterpret_cast<float4*>(work + threadIdx.x * 16) = v;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      } else {
        *reinterpret_cast<float4*>(to + threadIdx.x * 16) = v;
      }
      uint32_t* const event = plan.counters == 0 ? events + level * 8 * 32 + block : events + (level * 8 + block % plan.counters) * 32;
      int stored = 0;
      const int computed = now();
      if (plan.release == kEachWarp) {
        __syncwarp();
        stored = now();
        if (threadIdx.x % 32 == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(event) : "memory");
        if (threadIdx.x == 0) arrive_at(&signalled);
      } else {
        asm volatile("bar.sync 1, 256;" ::: "memory");
        stored = now();
        if (threadIdx.x == 0) {
          if (plan.release == kBulk) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(rk::smem_address(work)), "r"(kBlockBytes)
                         : "memory");
            asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;" ::: "memory");
            asm volatile("fence.proxy.async.global;" ::: "memory");
          }
          if (plan.counters == 0 && plan.release == kNoRelease)
            asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(event), "r"(epoch) : "memory");
          else if (plan.counters == 0)
            asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(event), "r"(epoch) : "memory");
          else if (plan.release == kNoRelease)
            asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(event) : "memory");
          else
            asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(event) : "memory");
          arrive_at(&signalled);
        }
      }
      if (threadIdx.x == 0) {
        const int after = now();
        stamps[level * blocks + block] = {there - before, after - stored, level > 0 ? seen_at[level & 1] - released : 0,
                                          level > 0 ? there - seen_at[level & 1] : 0, stored - computed};
        before = there;
        released = after;
      }
    }
  }
}

void require(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

int median(std::vector<int>& v) {
  std::nth_element(v.begin(), v.begin() + static_cast<long>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

}  // namespace

int main() {
  int device = 0, sms = 0;
  require(cudaGetDevice(&device));
  require(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  const size_t weights_bytes = size_t{24} << 20;
  char* weights = nullptr;
  Stamps* stamps = nullptr;
  require(cudaMalloc(&weights, weights_bytes + 8 * kStageBytes));
  require(cudaMemset(weights, 0, weights_bytes + 8 * kStageBytes));
  require(cudaMalloc(&stamps, sizeof(Stamps) * kLevels * static_cast<size_t>(sms)));
  const int smem = kBox + kStages * kStageBytes + kBlockBytes;
  require(cudaFuncSetAttribute(chain, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
  void* words = nullptr;
  require(cudaGetSymbolAddress(&words, events));
  const char* const holds[] = {"not held", "until the signal", "until the box is asked for", "until the box is there"};
  const char* const releases[] = {"red.release", "each warp", "bulk store", "relaxed"};
  const auto measure = [&](const Plan& plan) {
    require(cudaMemset(words, 0, sizeof(uint32_t) * kLevels * 32 * 8));
    for (int epoch = 1; epoch <= 3; ++epoch) chain<<<sms, kThreads, smem>>>(plan, epoch, weights, weights_bytes, stamps);
    std::vector<Stamps> seen(static_cast<size_t>(sms) * kLevels);
    require(cudaMemcpy(seen.data(), stamps, seen.size() * sizeof(Stamps), cudaMemcpyDeviceToHost));
    std::vector<int> level, released, signal, there, computed;
    for (size_t i = static_cast<size_t>(sms) * 20; i < seen.size(); ++i) {
      level.push_back(seen[i].begin), released.push_back(seen[i].stored);
      signal.push_back(seen[i].released), there.push_back(seen[i].seen);
      computed.push_back(seen[i].computed);
    }
    std::printf("%d x %5d bytes of weights, %d held %-26s %-12s %d words, box %5d, %s: level %5d = computing %4d + stores %4d, release %4d, seen %4d, box %4d\n",
                plan.stages, plan.bytes, plan.held, holds[plan.hold], releases[plan.release], plan.counters, plan.box, plan.acquire ? "acquire" : "relaxed",
                median(level), plan.stages * plan.work, median(computed), median(released), median(signal), median(there));
  };
  for (const int bytes : {16, 16 * 1024, kStageBytes}) {
    for (const int stages : {2, 4}) {
      const Plan plan{stages, bytes, kNot, kRed, 1, kBox, 400, 0, 1};
      measure(plan);
      for (const int release : {kEachWarp, kBulk, kNoRelease}) {
        Plan other = plan;
        other.release = release;
        measure(other);
      }
      for (const int counters : {2, 4, 8, 0}) {
        Plan other = plan;
        other.counters = counters;
        measure(other);
      }
      for (const int box : {128, 4096, 8192}) {
        Plan other = plan;
        other.box = box;
        measure(other);
      }
      Plan flags = plan;
      flags.counters = 0, flags.release = kNoRelease;
      measure(flags);
      flags.acquire = 0;
      measure(flags);
      Plan idle = plan;
      idle.work = 0;
      measure(idle);
      Plan relaxed = plan;
      relaxed.acquire = 0;
      measure(relaxed);
      relaxed.release = kNoRelease;
      measure(relaxed);
      if (bytes == 16) continue;
      for (const int held : {1, 2}) {
        for (const int hold : {kUntilSignal, kUntilBox, kUntilBoxIsThere}) {
          Plan other = plan;
          other.hold = hold;
          other.held = held;
          measure(other);
        }
      }
    }
  }
}
