// How many clocks a step of a product takes at best on sm_90a: nothing but wgmma on operands that lie in shared memory already, in blocks
// of the shape that tamp's have (256 compute threads and two service warps, one block an SM).
//
//   nvcc -std=c++20 -O3 -arch=sm_90a -I . test/gpu/wgmma_steps.cu -o build/wgmma_steps && build/wgmma_steps
//
// run in the repository's folder, prints a line for each kind of step: clocks a step for loops of 1, 4, 12, 24 and 96 steps, the mean over
// all SMs of the last of eight rounds. "In flight": how many steps' products may be under way when the next step begins. With copies, a
// service warp brings so many bytes of every step from L2 beside the products.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/vdevice/wgmma.cuh"

enum Kind { kTf32Halves, kHalvesOfK, kPixels128, kPixels128HalvesOfK };
constexpr int kThreads = 320, kSmem = 170 * 1024, kRegion = 65536, kRegions = 64;
[[maybe_unused]] constexpr int kRounds = 8, kInputs = 24576, kCopies = 65536;  // of the kernel, whose body is for sm_90a only

template <Kind KIND, int IN_FLIGHT>
__global__ void __launch_bounds__(kThreads, 1) bench(const char* from, uint64_t* clocks, int steps, int copied_bytes) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using namespace rk;
  extern __shared__ __align__(1024) char smem[];
  __shared__ alignas(8) uint64_t barrier;
  for (int i = static_cast<int>(threadIdx.x); i < 160 * 1024 / 4; i += kThreads) reinterpret_cast<uint32_t*>(smem)[i] = 0;
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(smem_address(&barrier)));
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (threadIdx.x >= 256) {
    if (threadIdx.x != 256 || copied_bytes == 0) return;
    for (int n = 0; n < kRounds * steps; ++n) {
      asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n\t}" ::"r"(smem_address(&barrier)),
                   "r"(copied_bytes)
                   : "memory");
      const char* const region = from + static_cast<size_t>((blockIdx.x * 7 + n) % kRegions) * kRegion;
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem_address(smem + kCopies)),
          "l"(region), "r"(copied_bytes), "r"(smem_address(&barrier))
          : "memory");
      asm volatile("{\n\t.reg .pred p;\n\tAGAIN:\n\tmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n\t@!p bra AGAIN;\n\t}" ::"r"(
                       smem_address(&barrier)),
                   "r"(n & 1)
                   : "memory");
    }
    return;
  }
  const int group = static_cast<int>(threadIdx.x / 128);
  const uint32_t weights[4] = {0, 0, 0, 0};
  float narrow[8][4] = {}, wide[16][4] = {};
  for (int round = 0; round < kRounds; ++round) {
    asm volatile("bar.sync 1, 256;" ::: "memory");
    const auto begin = static_cast<uint64_t>(clock64());
#pragma unroll 1
    for (int s = 0; s < steps; ++s) {
      const int stage = s % 3 * 8192;
      begin_wide();
      if constexpr (KIND == kTf32Halves) {
        const uint64_t b = wide_operand(smem, stage + group * 64);
        for (int u = 0; u < 2; ++u) wide_tf32(narrow, weights, b + u * 2);
      } else if constexpr (KIND == kHalvesOfK) {
        const uint64_t a = wide_operand(smem, stage + group * 64), b = wide_operand(smem, kInputs + stage + group * 64);
        for (int u = 0; u < 2; ++u) deep_f16(narrow, a + u * 2, b + u * 2);
      } else if constexpr (KIND == kPixels128) {
        const uint64_t a = wide_operand(smem, stage), b = wide_operand(smem, kInputs + stage + group * 8192);
        for (int u = 0; u < 4; ++u) deep_f16(narrow, a + u * 2, b + u * 2);
      } else {
        const uint64_t a = wide_operand(smem, stage + group * 64), b = wide_operand(smem, kInputs + stage + group * 64);
        for (int u = 0; u < 2; ++u) deep_f16(wide, a + u * 2, b + u * 2);
      }
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(IN_FLIGHT - 1) : "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    float used = 0;
    for (auto& column : narrow) used += column[0];
    for (auto& column : wide) used += column[0];
    const auto end = static_cast<uint64_t>(clock64());
    if (used == 3.5F) clocks[0] = 1;  // never
    if (threadIdx.x == 0) clocks[1 + blockIdx.x] = end - begin;
  }
#endif
}

void require(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

template <Kind KIND, int IN_FLIGHT>
void measure(const char* what, int copied_bytes, int sms, const char* from, uint64_t* clocks) {
  require(cudaFuncSetAttribute(bench<KIND, IN_FLIGHT>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem));
  std::printf("%-62s in flight %d, copies %5d:", what, IN_FLIGHT, copied_bytes);
  std::vector<uint64_t> seen(static_cast<size_t>(sms) + 1);
  for (const int steps : {1, 4, 12, 24, 96}) {
    for (int run = 0; run < 3; ++run) bench<KIND, IN_FLIGHT><<<sms, kThreads, kSmem>>>(from, clocks, steps, copied_bytes);
    require(cudaMemcpy(seen.data(), clocks, seen.size() * sizeof(uint64_t), cudaMemcpyDeviceToHost));
    double sum = 0;
    for (int b = 0; b < sms; ++b) sum += static_cast<double>(seen[static_cast<size_t>(b) + 1]);
    std::printf(" %7.1f", sum / sms / steps);
  }
  std::printf("\n");
}

template <int IN_FLIGHT>
void measure_all(int copied_bytes, int sms, const char* from, uint64_t* clocks) {
  measure<kTf32Halves, IN_FLIGHT>("tf32, 64 x 64 x 32, weights in registers, groups share k", copied_bytes, sms, from, clocks);
  measure<kHalvesOfK, IN_FLIGHT>("fp16, 64 x 64 x 64, groups share k", copied_bytes, sms, from, clocks);
  measure<kPixels128, IN_FLIGHT>("fp16, 64 x 128 x 64, 64 pixels a group", copied_bytes, sms, from, clocks);
  measure<kPixels128HalvesOfK, IN_FLIGHT>("fp16, 64 x 128 x 64, groups share k", copied_bytes, sms, from, clocks);
}

int main() {
  int device = 0, sms = 0;
  require(cudaGetDevice(&device));
  require(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  char* from = nullptr;
  uint64_t* clocks = nullptr;
  require(cudaMalloc(&from, static_cast<size_t>(kRegions) * kRegion));
  require(cudaMemset(from, 0, static_cast<size_t>(kRegions) * kRegion));
  require(cudaMalloc(&clocks, sizeof(uint64_t) * (static_cast<size_t>(sms) + 1)));
  measure_all<1>(0, sms, from, clocks);
  measure_all<2>(0, sms, from, clocks);
  for (const int copied_bytes : {12288, 16384, 20480}) measure_all<2>(copied_bytes, sms, from, clocks);
}
