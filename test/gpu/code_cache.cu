// What instructions cost that are not in an SM's cache: one block on each SM executes functions of 16 KB of straight code, one after
// another, several times. Prints, for more and more code, clocks a function: in the first pass of a kernel that ran before ("again"), in a
// later pass of the same kernel ("steady"), and in the first pass behind a kernel that reads 200 MB ("from memory").
//
//   nvcc -std=c++20 -O1 -arch=sm_90a test/gpu/code_cache.cu -o code_cache && ./code_cache
//
// On an H200 all is in the SM's cache up to 112 KB. From 144 KB on nothing is, since the passes go round in one order (docs/log/2026-11-26.md,
// "What L2 keeps, and code").
#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

constexpr int kFunctions = 64, kSteps = 256, kPasses = 6;  // a step: four multiply-adds, 64 bytes

template <int N>
__device__ __noinline__ void code(float4& v) {
  float4 x = v;
  // In assembly, so that each is an instruction; N makes the functions different ones.
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x.x) : "f"(x.y));
    asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x.y) : "f"(x.z));
    asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x.z) : "f"(x.w));
    asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x.w) : "f"(static_cast<float>(N)));
  }
  v = x;
}

template <int... N>
__device__ void call(int number, float4& v, std::integer_sequence<int, N...>) {
  ((number == N ? code<N>(v) : void()), ...);
}

__global__ void __launch_bounds__(256, 1) run(int count, long long* clocks, float4* values) {
  float4 v = values[0];
  for (int pass = 0; pass < kPasses; ++pass) {
    __syncthreads();
    const long long begin = clock64();
    for (int i = 0; i < count; ++i) {
      call(i, v, std::make_integer_sequence<int, kFunctions>());
      __syncthreads();
    }
    if (threadIdx.x == 0) clocks[blockIdx.x * kPasses + pass] = clock64() - begin;
  }
  values[1 + threadIdx.x] = v;
}

__global__ void read(const float4* p, size_t count, float4* sink) {
  float sum = 0;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) sum += p[i].x;
  if (sum == 12345.0F) *sink = {};
}

int main() {
  int sms = 0;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
  const size_t bytes = size_t{200} << 20;
  long long* clocks = nullptr;
  float4 *values = nullptr, *large = nullptr;
  cudaMalloc(&clocks, sizeof(long long) * sms * kPasses);
  cudaMalloc(&values, sizeof(float4) * 257);
  cudaMalloc(&large, bytes);
  cudaMemset(values, 0, sizeof(float4) * 257);
  cudaMemset(large, 0, bytes);
  std::vector<long long> host(static_cast<size_t>(sms) * kPasses);
  const auto median = [&](int pass) {
    cudaMemcpy(host.data(), clocks, host.size() * sizeof(long long), cudaMemcpyDeviceToHost);
    std::vector<long long> of_pass;
    for (int block = 0; block < sms; ++block) of_pass.push_back(host[static_cast<size_t>(block * kPasses + pass)]);
    std::nth_element(of_pass.begin(), of_pass.begin() + sms / 2, of_pass.end());
    return static_cast<double>(of_pass[static_cast<size_t>(sms / 2)]);
  };
  std::printf("KB of code   clocks a function of 16 KB: again, steady, from memory\n");
  for (const int count : {2, 4, 6, 7, 8, 9, 10, 12, 16, 24, 32, 64}) {
    run<<<sms, 256>>>(count, clocks, values);
    run<<<sms, 256>>>(count, clocks, values);
    const double again = median(0) / count, steady = median(kPasses - 1) / count;
    read<<<4 * sms, 256>>>(large, bytes / sizeof(float4), values);
    run<<<sms, 256>>>(count, clocks, values);
    std::printf("%10d %15.0f %10.0f %10.0f\n", count * 16, again, steady, median(0) / count);
  }
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) std::printf("%s\n", cudaGetErrorString(error));
  return error == cudaSuccess ? 0 : 1;
}
