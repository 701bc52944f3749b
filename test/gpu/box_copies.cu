// How fast copies alone are on sm_90a: boxes of 128 or 64 rows of 64 halves (cp.async.bulk.tensor, swizzled, of a row-major matrix) and
// blocks of 16 KB of weights (cp.async.bulk), each issued by one thread into a ring of stages of its own, with nothing computed.
//
//   nvcc -std=c++20 -O3 -arch=sm_90a -I . test/gpu/box_copies.cu -o build/box_copies && build/box_copies
//
// One block on each SM. "Tiles first": neighbouring blocks copy different boxes and the same weights, as staged_conv's rTasks do; "blocks
// first": six neighbours copy the same boxes and different weights. Prints cycles of a step (a box, a block of weights, or both) and bytes
// a cycle and SM, the mean over all SMs.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/vdevice/mma.cuh"

namespace {

constexpr int kStages = 8, kSteps = 480, kThreads = 320, kWeights = 16384, kBlocks = 6, kTiles = 50, kRows = 6400;

struct Plan {
  int stages, weight_stages, weight_steps;  // weight_steps: steps of a stage of weights
  int rows, k_steps;                        // rows of a box; steps of k before it begins again
  bool boxes, weights, tiles_first;
  const char* from;  // weights
};

__device__ void wait_for(uint64_t* barrier, int parity) {
  asm volatile("{\n\t.reg .pred p;\n\tAGAIN:\n\tmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n\t@!p bra AGAIN;\n\t}" ::"r"(
                   rk::smem_address(barrier)),
               "r"(parity)
               : "memory");
}
__device__ void arrive_at(uint64_t* barrier) {
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared.b64 state, [%0];\n\t}" ::"r"(rk::smem_address(barrier)) : "memory");
}
__device__ void expect(uint64_t* barrier, int bytes) {
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n\t}" ::"r"(rk::smem_address(barrier)),
               "r"(bytes)
               : "memory");
}

__global__ void __launch_bounds__(kThreads, 1) copies(const __grid_constant__ CUtensorMap map, Plan plan, uint64_t* clocks) {
  extern __shared__ __align__(1024) char smem[];
  __shared__ uint64_t full[kStages], empty[kStages], weights_full[kStages], weights_empty[kStages];
  const int box = plan.rows * 128, block = static_cast<int>(blockIdx.x);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      for (uint64_t* barrier : {full + i, empty + i, weights_full + i, weights_empty + i})
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(rk::smem_address(barrier)));
    }
  }
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  char* const weights = smem + plan.stages * box;
  const int tile = plan.tiles_first ? block % kTiles : block / kBlocks % kTiles, n = plan.tiles_first ? block / kTiles : block % kBlocks;
  if (threadIdx.x == 256 && plan.boxes) {
    for (int step = 0; step < kSteps; ++step) {
      const int s = step % plan.stages, round = step / plan.stages;
      if (round > 0) wait_for(empty + s, (round - 1) & 1);
      expect(full + s, box);
      asm volatile(
          "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %4, %4}], [%5];" ::"r"(
              rk::smem_address(smem + s * box)),
          "l"(&map), "r"(step % plan.k_steps * 64), "r"(tile * plan.rows), "r"(0), "r"(rk::smem_address(full + s))
          : "memory");
    }
  } else if (threadIdx.x == 288 && plan.weights) {
    const int bytes = kWeights * plan.weight_steps;
    for (int chunk = 0; chunk < kSteps / plan.weight_steps; ++chunk) {
      const int s = chunk % plan.weight_stages, round = chunk / plan.weight_stages;
      if (round > 0) wait_for(weights_empty + s, (round - 1) & 1);
      expect(weights_full + s, bytes);
      const char* const from = plan.from + static_cast<size_t>(n * plan.k_steps + chunk * plan.weight_steps % plan.k_steps) * kWeights;
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       rk::smem_address(weights + s * bytes)),
                   "l"(from), "r"(bytes), "r"(rk::smem_address(weights_full + s))
                   : "memory");
    }
  } else if (threadIdx.x == 0) {
    const auto begin = static_cast<uint64_t>(clock64());
    for (int step = 0; step < kSteps; ++step) {
      if (plan.boxes) {
        wait_for(full + step % plan.stages, step / plan.stages & 1);
        arrive_at(empty + step % plan.stages);
      }
      if (plan.weights && step % plan.weight_steps == plan.weight_steps - 1) {
        const int chunk = step / plan.weight_steps;
        wait_for(weights_full + chunk % plan.weight_stages, chunk / plan.weight_stages & 1);
        arrive_at(weights_empty + chunk % plan.weight_stages);
      }
    }
    clocks[block] = static_cast<uint64_t>(clock64()) - begin;
  }
}

template <class Error>
void require(Error error) {
  if (error == static_cast<Error>(0)) return;
  std::fprintf(stderr, "CUDA error %d\n", static_cast<int>(error));
  std::exit(1);
}

void measure(const CUtensorMap& map, const Plan& plan, int k, int sms, uint64_t* clocks) {
  const int smem = plan.stages * plan.rows * 128 + plan.weight_stages * plan.weight_steps * kWeights;
  if (smem > 216 * 1024) return;
  for (int run = 0; run < 3; ++run) copies<<<sms, kThreads, smem>>>(map, plan, clocks);
  std::vector<uint64_t> seen(static_cast<size_t>(sms));
  require(cudaMemcpy(seen.data(), clocks, seen.size() * sizeof(uint64_t), cudaMemcpyDeviceToHost));
  double cycles = 0;
  for (const uint64_t one : seen) cycles += static_cast<double>(one) / sms / kSteps;
  const double bytes = (plan.boxes ? plan.rows * 128 : 0) + (plan.weights ? kWeights : 0);
  std::printf("k %4d, boxes of %3d rows, %s, %d stages, %d steps a stage of weights, %-7s: %6.1f cycles, %5.1f bytes a cycle\n", k,
              plan.rows, plan.tiles_first ? "tiles first " : "blocks first", plan.stages, plan.weight_steps,
              !plan.weights ? "boxes" : !plan.boxes ? "weights" : "both", cycles, bytes / cycles);
}

}  // namespace

int main() {
  int device = 0, sms = 0;
  require(cudaGetDevice(&device));
  require(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  char *in = nullptr, *weights = nullptr;
  uint64_t* clocks = nullptr;
  require(cudaMalloc(&in, size_t{kRows} * 3072 * 2));
  require(cudaMemset(in, 0, size_t{kRows} * 3072 * 2));
  require(cudaMalloc(&weights, size_t{64} << 20));
  require(cudaMemset(weights, 0, size_t{64} << 20));
  require(cudaMalloc(&clocks, sizeof(uint64_t) * static_cast<size_t>(sms)));
  void* encode = nullptr;
  cudaDriverEntryPointQueryResult found{};
  require(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, 0, &found));
  require(cudaFuncSetAttribute(copies, cudaFuncAttributeMaxDynamicSharedMemorySize, 216 * 1024));
  for (const int k : {768, 3072}) {
    for (const int rows : {128, 64}) {
      CUtensorMap map;
      const auto row = static_cast<cuuint64_t>(k) * 2;
      const cuuint64_t size[5] = {row / 2, kRows, 1, 1, 1}, stride[4] = {row, row * kRows, row * kRows, row * kRows};
      const cuuint32_t box[5] = {64, static_cast<cuuint32_t>(rows), 1, 1, 1}, each[5] = {1, 1, 1, 1, 1};
      require(reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encode)(
          &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 5, in, size, stride, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
          CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
      for (const bool tiles_first : {true, false}) {
        for (const int stages : {3, 4, 6}) {
          const Plan one{stages, stages, 1, rows, k / 64, true, true, tiles_first, weights};
          Plan two = one, boxes = one, only = one;
          two.weight_stages = 3, two.weight_steps = 2;
          boxes.weights = only.boxes = false;
          for (const Plan& plan : {boxes, only, one, two}) measure(map, plan, k, sms, clocks);
        }
      }
    }
  }
}
