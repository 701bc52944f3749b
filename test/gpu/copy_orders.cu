// Whether it matters for copies which blocks run beside each other, on sm_90a: 132 blocks copy what a product of 4096 rows and 768 columns
// in tiles of 128 x 192 copies, a box of 192 rows of 64 halves and a block of 16 KB of weights a step, and compute nothing. Of 22 boxes and
// 6 blocks of weights each pair is one block's. Neighbours are by number of block or by number of SM.
//
//   nvcc -std=c++20 -O3 -arch=sm_90a -I . test/gpu/copy_orders.cu -o build/copy_orders && build/copy_orders
//
// An order is groups of n x t blocks: n blocks of weights and t boxes, the weights first. "1 x 22" is as staged_conv numbers its rTasks,
// "6 x 1" has six neighbours with the same box. "cluster": pairs of blocks, each of which copies half of what both need to both (multicast).
// Prints clocks of a step, the slowest block's, the median of five runs, and bytes a clock that a block gets.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/vdevice/mma.cuh"

namespace {

constexpr int kBlocks = 132, kTiles = 22, kSteps = 480, kThreads = 320, kRows = 192;
constexpr int kBox = kRows * 128, kWeights = 16384, kStages = 4, kWeightStages = 5, kSmem = kStages * kBox + kWeightStages * kWeights;

struct Plan {
  const char* name;
  int group_n, group_t;        // of an order
  bool by_sm;                  // else by number of block
  int share_box, share_weights;  // blocks of a cluster that share a box, or weights: 1 or 2
};
struct Call {
  Plan plan;
  int k_steps;  // of a row; then it begins again
  const char* weights;
  const int* rank;  // of a block, by SM
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)  // multicast is of sm_90a; the program is for no other
#define FOR_THIS_GPU
__device__ void wait_for(uint32_t barrier, int parity) {
  asm volatile("{\n\t.reg .pred p;\n\tAGAIN:\n\tmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n\t@!p bra AGAIN;\n\t}" ::"r"(barrier),
               "r"(parity)
               : "memory");
}
__device__ void expect(uint32_t barrier, int bytes) {
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n\t}" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ void init_barrier(uint64_t* barrier, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(rk::smem_address(barrier)), "r"(count));
}
// Arrives on the barrier of the same place in another block of the cluster.
__device__ void arrive_at(uint64_t* barrier, int block) {
  asm volatile(
      "{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %0, %1;\n\tmbarrier.arrive.release.cluster.shared::cluster.b64 _, "
      "[there];\n\t}" ::"r"(rk::smem_address(barrier)),
      "r"(block)
      : "memory");
}
__device__ void meet_cluster() { asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory"); }
#endif

__global__ void __launch_bounds__(kThreads, 1) copies(const __grid_constant__ CUtensorMap map, Call call, uint64_t* clocks) {
#if defined(FOR_THIS_GPU)
  extern __shared__ __align__(1024) char smem[];
  __shared__ uint64_t full[kStages], empty[kStages], weights_full[kWeightStages], weights_empty[kWeightStages];
  const Plan& plan = call.plan;
  const int block = static_cast<int>(blockIdx.x), cluster = plan.share_box * plan.share_weights, rank = block % cluster;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) init_barrier(full + i, 1), init_barrier(empty + i, plan.share_box);
    for (int i = 0; i < kWeightStages; ++i) init_barrier(weights_full + i, 1), init_barrier(weights_empty + i, plan.share_weights);
  }
  asm volatile("fence.proxy.async;\n\tfence.mbarrier_init.release.cluster;" ::: "memory");
  __syncthreads();
  meet_cluster();
  const int place = plan.by_sm ? call.rank[block] : block, of_group = plan.group_n * plan.group_t, groups_t = kTiles / plan.group_t;
  const int group = place / of_group, in = place % of_group;
  const int n = group / groups_t * plan.group_n + in % plan.group_n, t = group % groups_t * plan.group_t + in / plan.group_n;
  const auto both = static_cast<uint16_t>(3);
  if (threadIdx.x == 256) {
    const int rows = kRows / plan.share_box, first = plan.share_box == 2 ? rank * rows : 0;
    for (int step = 0; step < kSteps; ++step) {
      const int s = step % kStages;
      if (step >= kStages) wait_for(rk::smem_address(empty + s), (step / kStages - 1) & 1);
      const uint32_t barrier = rk::smem_address(full + s), to = rk::smem_address(smem + s * kBox + first * 128);
      expect(barrier, kBox);
      if (plan.share_box == 1)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
            "l"(&map), "r"(step % call.k_steps * 64), "r"(t * kRows + first), "r"(barrier)
            : "memory");
      else
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], "
            "[%4], %5;" ::"r"(to),
            "l"(&map), "r"(step % call.k_steps * 64), "r"(t * kRows + first), "r"(barrier), "h"(both)
            : "memory");
    }
  } else if (threadIdx.x == 288) {
    const int bytes = kWeights / plan.share_weights, first = plan.share_weights == 2 ? rank * bytes : 0;
    for (int step = 0; step < kSteps; ++step) {
      const int s = step % kWeightStages;
      if (step >= kWeightStages) wait_for(rk::smem_address(weights_empty + s), (step / kWeightStages - 1) & 1);
      const uint32_t barrier = rk::smem_address(weights_full + s), to = rk::smem_address(smem + kStages * kBox + s * kWeights + first);
      const char* const from = call.weights + static_cast<size_t>(n * call.k_steps + step % call.k_steps) * kWeights + first;
      expect(barrier, kWeights);
      if (plan.share_weights == 1)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
                     "r"(bytes), "r"(barrier)
                     : "memory");
      else
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to),
            "l"(from), "r"(bytes), "r"(barrier), "h"(both)
            : "memory");
    }
  } else if (threadIdx.x < 32) {
    const auto begin = static_cast<uint64_t>(clock64());
    const int lane = static_cast<int>(threadIdx.x);
    for (int step = 0; step < kSteps; ++step) {
      wait_for(rk::smem_address(full + step % kStages), step / kStages & 1);
      wait_for(rk::smem_address(weights_full + step % kWeightStages), step / kWeightStages & 1);
      if (lane < plan.share_box) arrive_at(empty + step % kStages, plan.share_box == 2 ? lane : rank);
      if (lane >= 16 && lane - 16 < plan.share_weights)
        arrive_at(weights_empty + step % kWeightStages, plan.share_weights == 2 ? lane - 16 : rank);
      __syncwarp();
    }
    if (lane == 0) clocks[block] = static_cast<uint64_t>(clock64()) - begin;
  }
  __syncthreads();
  meet_cluster();
#endif
}

// The SM that each block is on. All blocks stay until all have begun.
__global__ void __launch_bounds__(kThreads, 1) where(uint32_t* sms) {
  if (threadIdx.x == 0) asm volatile("mov.u32 %0, %%smid;" : "=r"(sms[blockIdx.x]));
  for (const auto begin = clock64(); clock64() - begin < 20000;) continue;
}

template <class Error>
void require(Error error) {
  if (error == static_cast<Error>(0)) return;
  std::fprintf(stderr, "CUDA error %d\n", static_cast<int>(error));
  std::exit(1);
}

}  // namespace

int main() {
  constexpr size_t kInRows = kTiles * kRows, kMostK = 3072, kWeightBytes = size_t{6} * (kMostK / 64) * kWeights;
  char *in = nullptr, *weights = nullptr;
  uint64_t* clocks = nullptr;
  uint32_t* sms = nullptr;
  int* rank = nullptr;
  require(cudaMalloc(&in, kInRows * kMostK * 2));
  require(cudaMemset(in, 0, kInRows * kMostK * 2));
  require(cudaMalloc(&weights, kWeightBytes));
  require(cudaMemset(weights, 0, kWeightBytes));
  require(cudaMalloc(&clocks, sizeof(uint64_t) * kBlocks));
  require(cudaMalloc(&sms, sizeof(uint32_t) * kBlocks));
  require(cudaMalloc(&rank, sizeof(int) * kBlocks));
  void* encode = nullptr;
  cudaDriverEntryPointQueryResult found{};
  require(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, 0, &found));
  require(cudaFuncSetAttribute(copies, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem));
  require(cudaFuncSetAttribute(where, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem));
  const Plan plans[] = {{"1 x 22, blocks", 1, 22, false, 1, 1},
                        {"1 x 22, SMs", 1, 22, true, 1, 1},
                        {"6 x 1, blocks", 6, 1, false, 1, 1},
                        {"6 x 1, SMs", 6, 1, true, 1, 1},
                        {"2 x 2, blocks", 2, 2, false, 1, 1},
                        {"2 x 2, SMs", 2, 2, true, 1, 1},
                        {"6 x 2, SMs", 6, 2, true, 1, 1},
                        {"3 x 11, SMs", 3, 11, true, 1, 1},
                        {"1 x 22, cluster shares weights", 1, 22, false, 1, 2},
                        {"6 x 1, cluster shares the box", 6, 1, false, 2, 1}};
  for (const int k : {768, 3072}) {
    for (const Plan& plan : plans) {
      CUtensorMap map;
      const cuuint64_t size[2] = {static_cast<cuuint64_t>(k), kInRows}, stride[1] = {static_cast<cuuint64_t>(k) * 2};
      const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(kRows / plan.share_box)}, each[2] = {1, 1};
      require(reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encode)(
          &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, in, size, stride, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
          CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
      where<<<kBlocks, kThreads, kSmem>>>(sms);
      std::vector<uint32_t> sm_of(kBlocks);
      require(cudaMemcpy(sm_of.data(), sms, sm_of.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost));
      std::vector<int> rank_of(kBlocks);
      for (int i = 0; i < kBlocks; ++i)
        rank_of[static_cast<size_t>(i)] = static_cast<int>(std::ranges::count_if(sm_of, [&](uint32_t sm) { return sm < sm_of[static_cast<size_t>(i)]; }));
      require(cudaMemcpy(rank, rank_of.data(), rank_of.size() * sizeof(int), cudaMemcpyHostToDevice));
      cudaLaunchAttribute cluster{};
      cluster.id = cudaLaunchAttributeClusterDimension;
      cluster.val.clusterDim.x = static_cast<unsigned>(plan.share_box * plan.share_weights);
      cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
      cudaLaunchConfig_t launch{};
      launch.gridDim = kBlocks;
      launch.blockDim = kThreads;
      launch.dynamicSmemBytes = kSmem;
      launch.attrs = &cluster;
      launch.numAttrs = 1;
      std::array<double, 5> cycles{};
      for (double& one : cycles) {
        require(cudaLaunchKernelEx(&launch, copies, map, Call{plan, k / 64, weights, rank}, clocks));
        std::vector<uint64_t> seen(kBlocks);
        require(cudaMemcpy(seen.data(), clocks, seen.size() * sizeof(uint64_t), cudaMemcpyDeviceToHost));
        one = static_cast<double>(*std::ranges::max_element(seen)) / kSteps;
      }
      std::ranges::sort(cycles);
      std::printf("k %4d, %-32s: %7.1f clocks, %5.1f bytes a clock\n", k, plan.name, cycles[2], (kBox + kWeights) / cycles[2]);
    }
  }
}
