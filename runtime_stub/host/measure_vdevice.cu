// The program that `tamp devices --measure` builds with nvcc for the GPU at hand and runs. It measures the edges, bandwidths and rates of
// a vDevice, and needs no other file of tamp. Prints `product NAME`, then lines `key value`; exit code 1 and a message on stderr if CUDA
// refuses something.
//
// A vEU is one block of 256 threads here, one an SM, all resident (cooperative launch). Times are medians of kRuns runs, by CUDA events.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kRuns = 7;
constexpr int kVeuThreads = 256, kThreads = 1024;  // of a vEU; of a block that is to fill its SM

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// Microseconds of what `work` puts into the stream.
template <class Work>
double median_us(cudaStream_t stream, const Work& work) {
  cudaEvent_t begin, end;
  require(cudaEventCreate(&begin), "cudaEventCreate");
  require(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<float> times;
  for (int run = 0; run <= kRuns; ++run) {  // the first one warms up
    require(cudaEventRecord(begin, stream), "cudaEventRecord");
    work();
    require(cudaGetLastError(), "launch");
    require(cudaEventRecord(end, stream), "cudaEventRecord");
    require(cudaEventSynchronize(end), "run");
    float ms = 0;
    require(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (run > 0) times.push_back(ms * 1000);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// --- edges ---------------------------------------------------------------------------------------------------------------

// As kernels/vdevice/sync.cuh has them for sm_75 and later.
__device__ void signal(uint32_t* event) { asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(event) : "memory"); }

__device__ void wait(const uint32_t* event, uint32_t wanted) {
  uint32_t seen;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(event) : "memory");
  } while (static_cast<int32_t>(seen - wanted) < 0);
}

// In each round every vEU stores a word, signals the event, and waits for all.
__global__ void rounds_of_all(uint32_t* event, uint32_t* words, uint32_t base, int rounds) {
  for (int round = 1; round <= rounds; ++round) {
    words[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<uint32_t>(round);
    __syncthreads();
    if (threadIdx.x == 0) {
      signal(event);
      wait(event, base + static_cast<uint32_t>(round) * gridDim.x);
    }
    __syncthreads();
  }
}

// Two vEUs, the first and the last, answer each other: two edges a round.
__global__ void rounds_of_two(uint32_t* events, uint32_t* words, uint32_t base, int rounds) {
  const bool first = blockIdx.x == 0;
  if (!first && blockIdx.x + 1 != gridDim.x) return;
  for (int round = 1; round <= rounds; ++round) {
    if (threadIdx.x == 0 && !first) wait(events, base + static_cast<uint32_t>(round));
    words[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<uint32_t>(round);
    __syncthreads();
    if (threadIdx.x == 0) signal(first ? events : events + 32);
    if (threadIdx.x == 0 && first) wait(events + 32, base + static_cast<uint32_t>(round));
    __syncthreads();
  }
}

__global__ void one_word(uint32_t* words) { words[blockIdx.x * blockDim.x + threadIdx.x] += 1; }

// --- bandwidths ----------------------------------------------------------------------------------------------------------

// Each block reads [begin, begin + count) of its own, or all blocks the same; past L1.
__global__ void __launch_bounds__(kThreads) read_all(const float4* data, size_t count, size_t stride, int passes, float* out) {
  const float4* const own = data + blockIdx.x * stride;
  float sum = 0;
  for (int pass = 0; pass < passes; ++pass) {
#pragma unroll 8
    for (size_t i = threadIdx.x; i < count; i += kThreads) {
      const float4 v = __ldcg(own + i);
      sum += v.x + v.y + v.z + v.w;
    }
  }
  if (sum == 12345) *out = sum;  // never: the data are zeros
}

// --- rates ---------------------------------------------------------------------------------------------------------------

constexpr int kChains = 8, kSteps = 4096;

__global__ void __launch_bounds__(kThreads) fma_fp32(float x, float* out) {
  float sums[kChains] = {};
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) sums[c] = fmaf(sums[c], x, x);
  }
  float sum = 0;
  for (const float s : sums) sum += s;
  if (sum == 12345) *out = sum;
}

// kTf32: m16n8k8 of tf32; else of fp16, m16n8k16 or on sm_75 m16n8k8. Sums in fp32.
template <bool kTf32>
__global__ void __launch_bounds__(kThreads) mma(uint32_t x, float* out) {
  float sums[kChains][4] = {};
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) {
      float* const s = sums[c];
#if __CUDA_ARCH__ >= 800
      if constexpr (kTf32)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};"
                     : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
                     : "r"(x));
      else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};"
                     : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
                     : "r"(x));
#else
      asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4}, {%4}, {%0,%1,%2,%3};"
                   : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
                   : "r"(x));
#endif
    }
  }
  float sum = 0;
  for (const auto& s : sums) sum += s[0] + s[1] + s[2] + s[3];
  if (sum == 12345) *out = sum;
}

int attribute(cudaDeviceAttr name) {
  int value = 0;
  require(cudaDeviceGetAttribute(&value, name, 0), "cudaDeviceGetAttribute");
  return value;
}

template <class T>
T* zeros(size_t count) {
  T* data = nullptr;
  require(cudaMalloc(&data, count * sizeof(T)), "cudaMalloc");
  require(cudaMemset(data, 0, count * sizeof(T)), "cudaMemset");
  return data;
}

void say(const char* key, double value) { std::printf("%s %.6g\n", key, value); }

}  // namespace

int main() {
  cudaDeviceProp device;
  require(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  const int sms = device.multiProcessorCount, capability = device.major * 10 + device.minor;
  std::printf("product %s\n", device.name);
  say("capability", capability);
  say("sms", sms);
  say("smem_bytes", attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  std::printf("l2_bytes %d\n", attribute(cudaDevAttrL2CacheSize));
  say("clock_ghz", attribute(cudaDevAttrClockRate) * 1e-6);

  cudaStream_t stream;
  require(cudaStreamCreate(&stream), "cudaStreamCreate");
  uint32_t* const words = zeros<uint32_t>(static_cast<size_t>(sms) * kThreads);
  uint32_t* const events = zeros<uint32_t>(64);
  float* const out = zeros<float>(1);

  int rounds = 1000;
  uint32_t base = 0;
  const auto cooperative = [&](const void* kernel) {
    void* arguments[] = {const_cast<uint32_t**>(&events), const_cast<uint32_t**>(&words), &base, &rounds};
    require(cudaLaunchCooperativeKernel(kernel, static_cast<unsigned>(sms), kVeuThreads, arguments, 0, stream), "cudaLaunchCooperativeKernel");
  };
  // Events only grow: before a run an event has the sum of what all runs before added.
  const double all_us = median_us(stream, [&] {
    cooperative(reinterpret_cast<const void*>(rounds_of_all));
    base += static_cast<uint32_t>(rounds * sms);
  });
  require(cudaMemset(events, 0, 64 * sizeof(uint32_t)), "cudaMemset");
  base = 0;
  const double two_us = median_us(stream, [&] {
    cooperative(reinterpret_cast<const void*>(rounds_of_two));
    base += static_cast<uint32_t>(rounds);
  });
  say("edge_us", all_us / rounds);
  if (sms > 1) say("lone_edge_us", two_us / (2 * rounds));

  constexpr int kLaunches = 200;
  cudaGraph_t graph;
  cudaGraphExec_t launches;
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  for (int i = 0; i < kLaunches; ++i) one_word<<<static_cast<unsigned>(sms), kVeuThreads, 0, stream>>>(words);
  require(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  require(cudaGraphInstantiate(&launches, graph, 0), "cudaGraphInstantiate");
  say("kernel_edge_us", median_us(stream, [&] { require(cudaGraphLaunch(launches, stream), "cudaGraphLaunch"); }) / kLaunches);

  const unsigned grid = static_cast<unsigned>(sms);
  const size_t l2 = static_cast<size_t>(attribute(cudaDevAttrL2CacheSize));
  const size_t shared = std::max<size_t>(l2 / 4, 1 << 20) / sizeof(float4);  // stays in L2, whatever half of it an SM is near to
  size_t free_bytes = 0, total_bytes = 0;
  require(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  const size_t large = std::min(free_bytes / 2, std::max<size_t>(8 * l2, size_t{1} << 30)) / sizeof(float4);
  const float4* const data = zeros<float4>(large);
  constexpr int kPasses = 8;
  const double l2_us = median_us(stream, [&] { read_all<<<grid, kThreads, 0, stream>>>(data, shared, 0, kPasses, out); });
  say("l2_gb_per_s", static_cast<double>(shared * sizeof(float4)) * kPasses * sms / l2_us * 1e-3);
  const size_t part = large / static_cast<size_t>(sms);
  const double dram_us = median_us(stream, [&] { read_all<<<grid, kThreads, 0, stream>>>(data, part, part, 1, out); });
  say("dram_gb_per_s", static_cast<double>(part * sizeof(float4)) * sms / dram_us * 1e-3);

  const double chains = double{kChains} * kSteps * sms;  // products of a thread, or of a warp, on all SMs
  const auto tflops = [](double flops, double us) { return flops / us * 1e-6; };
  say("fp32_tflops", tflops(chains * kThreads * 2, median_us(stream, [&] { fma_fp32<<<grid, kThreads, 0, stream>>>(0.5f, out); })));
  const double k = capability >= 80 ? 16 : 8, warps = kThreads / 32;
  say("fp16_tflops", tflops(chains * warps * 2 * 16 * 8 * k, median_us(stream, [&] { mma<false><<<grid, kThreads, 0, stream>>>(0, out); })));
  if (capability >= 80)
    say("tf32_tflops", tflops(chains * warps * 2 * 16 * 8 * 8, median_us(stream, [&] { mma<true><<<grid, kThreads, 0, stream>>>(0, out); })));
  return 0;
}
