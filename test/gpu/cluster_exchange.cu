// How long the four blocks of a cluster take to add up their sums of a tile (docs/adr/0038), in four ways: st.async, bulk copies, plain
// stores with an arrival of each warp, and loads of what the others have. Blocks have the shape that tamp's have: 256 threads that compute,
// two service warps, one block an SM.
//
//   nvcc -std=c++20 -O3 -arch=sm_90a test/gpu/cluster_exchange.cu -o build/cluster_exchange && build/cluster_exchange
//
// prints a line for each way and tile: clocks from the barrier behind the sums in shared memory to those added up, the median over 120
// blocks and 200 rounds, and 5 and 95 %. A thread has `outputs` groups of four sums; member m keeps outputs m, m + 4, .. and gets the
// others' sums of these. Answers are checked.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

enum Way { kAsyncStores, kBulkCopies, kStores, kLoads };
constexpr const char* kWays[] = {"st.async", "bulk copies", "stores", "loads"};
constexpr int kThreads = 320, kComputing = 256, kMembers = 4, kBlocks = 120, kRounds = 200, kSmem = 160 * 1024, kReceivedAt = 64 * 1024;
constexpr int kProductClocks = 3000;  // what stands for the product in front

void require(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("%s\n", cudaGetErrorString(error));
  std::exit(1);
}

__device__ uint32_t address_of(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ uint32_t of_member(const void* own, uint32_t member) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address_of(own)), "r"(member));
  return there;
}
__device__ void init(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(barrier)), "r"(count));
}
__device__ void arrive(uint64_t* own, uint32_t member) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(of_member(own, member)) : "memory");
}
__device__ void wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n\t.reg .pred done;\n\tAGAIN:\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
      "@done bra DONE;\n\tbra AGAIN;\n\tDONE:\n\t}" ::"r"(address_of(barrier)),
      "r"(parity)
      : "memory");
}
__device__ void sync_cluster() { asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory"); }
__device__ void sync_computing() { asm volatile("bar.sync 1, 256;" ::: "memory"); }
__device__ float4 added(const float4& a, const float4& b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

template <int OUTPUTS, Way WAY>
__global__ void __cluster_dims__(kMembers, 1, 1) __launch_bounds__(kThreads, 1) bench(int* clocks, int* wrong) {
  extern __shared__ __align__(128) char smem[];
  __shared__ uint64_t entered, received, done;
  constexpr int kOwn = (OUTPUTS + kMembers - 1) / kMembers;
  uint32_t own;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(own));
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    init(&entered, kMembers);
    init(&received, WAY == kLoads ? kMembers : WAY == kStores ? (kMembers - 1) * kComputing / 32 : 1);
    init(&done, kMembers);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  sync_cluster();
  float4* const sums = reinterpret_cast<float4*>(smem);                   // [output][thread]
  float4* const others = reinterpret_cast<float4*>(smem + kReceivedAt);   // [own output][member][thread]
  const int kept = (OUTPUTS - static_cast<int>(own) + kMembers - 1) / kMembers;
  for (int round = 0; thread < kComputing && round < kRounds; ++round) {
    const uint32_t parity = static_cast<uint32_t>(round) & 1u;
    if (thread < kMembers) arrive(&entered, static_cast<uint32_t>(thread));
    if (thread == 0 && (WAY == kAsyncStores || WAY == kBulkCopies))
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(&received)),
                   "r"(kept * (kMembers - 1) * kComputing * 16)
                   : "memory");
    const int from = static_cast<int>(clock());
    while (static_cast<int>(clock()) - from < kProductClocks) {
    }
    for (int i = 0; i < OUTPUTS; ++i)
      sums[i * kComputing + (thread ^ 1)] = {static_cast<float>(own), static_cast<float>(i), 1.0f, static_cast<float>(round)};
    if (WAY == kBulkCopies) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    sync_computing();
    const int begin = static_cast<int>(clock());
    if (WAY == kLoads) {
      if (thread < kMembers) arrive(&received, static_cast<uint32_t>(thread));
    } else {
      wait(&entered, parity);
    }
    if (WAY == kBulkCopies && thread < OUTPUTS && thread % kMembers != static_cast<int>(own)) {
      const uint32_t to = static_cast<uint32_t>(thread % kMembers);
      asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       of_member(others + (thread / kMembers * kMembers + static_cast<int>(own)) * kComputing, to)),
                   "r"(address_of(sums + thread * kComputing)), "r"(kComputing * 16), "r"(of_member(&received, to))
                   : "memory");
    }
    if (WAY == kAsyncStores || WAY == kStores) {
#pragma unroll
      for (uint32_t i = 0; i < OUTPUTS; ++i) {
        const uint32_t to = i % kMembers;
        if (to == own) continue;
        const float4 v = sums[i * kComputing + thread];
        const uint32_t there = of_member(others + (i / kMembers * kMembers + own) * kComputing + thread, to);
        if (WAY == kAsyncStores)
          asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(there),
                       "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(of_member(&received, to))
                       : "memory");
        else
          asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(there), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
      }
    }
    if (WAY == kStores) {
      __syncwarp();
      if (thread % 32 < kMembers - 1) arrive(&received, (own + 1 + static_cast<uint32_t>(thread % 32)) % kMembers);
    }
    wait(&received, parity);
    float4 total[kOwn];
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const int i = k * kMembers + static_cast<int>(own);
      total[k] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (uint32_t m = 0; m < kMembers; ++m) {
        float4 v = {0.0f, 0.0f, 0.0f, 0.0f};
        if (i >= OUTPUTS) continue;
        if (WAY == kLoads)
          asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                       : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                       : "r"(of_member(sums + i * kComputing + thread, m))
                       : "memory");
        else
          v = m == own ? sums[i * kComputing + thread] : others[(k * kMembers + static_cast<int>(m)) * kComputing + thread];
        total[k] = added(total[k], v);
      }
    }
    bool right = true;
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const int i = k * kMembers + static_cast<int>(own);
      right = right && (i >= OUTPUTS || (total[k].x == 6.0f && total[k].y == 4.0f * static_cast<float>(i) && total[k].z == 4.0f &&
                                         total[k].w == 4.0f * static_cast<float>(round)));
    }
    const int end = static_cast<int>(clock());
    if (!right) *wrong = 1;
    if (thread == 0) clocks[static_cast<int>(blockIdx.x) * kRounds + round] = end - begin;
    sync_computing();
    if (WAY == kLoads) {  // the others may still read
      if (thread < kMembers) arrive(&done, static_cast<uint32_t>(thread));
      wait(&done, parity);
    }
  }
  sync_cluster();
}

template <int OUTPUTS, Way WAY>
void run(const char* tile) {
  int *clocks, *wrong, is_wrong = 0;
  require(cudaMalloc(&clocks, kBlocks * kRounds * sizeof(int)));
  require(cudaMalloc(&wrong, sizeof(int)));
  require(cudaMemset(wrong, 0, sizeof(int)));
  require(cudaFuncSetAttribute(bench<OUTPUTS, WAY>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem));
  for (int i = 0; i < 3; ++i) bench<OUTPUTS, WAY><<<kBlocks, kThreads, kSmem>>>(clocks, wrong);
  require(cudaGetLastError());
  require(cudaDeviceSynchronize());
  std::vector<int> all(kBlocks * kRounds);
  require(cudaMemcpy(all.data(), clocks, all.size() * sizeof(int), cudaMemcpyDefault));
  require(cudaMemcpy(&is_wrong, wrong, sizeof(int), cudaMemcpyDefault));
  std::sort(all.begin(), all.end());
  std::printf("%-12s %-9s %5d clocks (%d to %d)%s\n", kWays[WAY], tile, all[all.size() / 2], all[all.size() / 20],
              all[all.size() * 19 / 20], is_wrong != 0 ? ", WRONG" : "");
  require(cudaFree(clocks));
  require(cudaFree(wrong));
}

template <Way WAY>
void run_tiles() {
  run<4, WAY>("64 x 64");
  run<7, WAY>("128 x 56");
  run<8, WAY>("128 x 64");
}

int main() {
  run_tiles<kAsyncStores>();
  run_tiles<kBulkCopies>();
  run_tiles<kStores>();
  run_tiles<kLoads>();
}
