// Runs gangs (compiler/ir/rkernel.h) outside of a rProgram: one vEU a rTask, all at once, several runs with one exchange.
// Compiles with nvcc and, over the stand-in, with g++. Two uses: checking makes a run on inputs that are all zeros and two on the
// real ones, and writes what they left; timing (second argument: how many runs) prints microseconds.
// Files: cases.bin -> results.bin, written and read by recurrent_bench.h; words of 8 bytes, buffers of 4.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/vdevice/exchange.cuh"

namespace driver {

constexpr int kBases = 192;
constexpr int kArgs = kBases * 8, kRow = kArgs + 768, kWork = 3072;  // bytes from the start of shared memory
static_assert(kRow + 8 <= kWork);
constexpr int kThreads = 320;  // as the interpreter

struct Veu {
  static constexpr int kComputeThreads = 256;
  static constexpr bool kManyRegisters = false;
  static constexpr bool kVotes = false;
  static constexpr int kWordsBytes = 0;
  static constexpr int kWeightStages = 2;
  static constexpr int kWeightStageBytes = 1024;
  static constexpr int kInputStages = 0, kInputStageBytes = 0;
  static constexpr int kBases = driver::kBases, kSharedBases = kBases;
};

struct Param {
  const uint64_t* bases;
  uint32_t* state;
  rk::Report* report;
  uint32_t epoch;
};

RK_INLINE char* shared() {
#if defined(TAMP_CUDA_ON_CPU)
  return static_cast<char*>(cuda_on_cpu::shared_memory());
#else
  extern __shared__ __align__(1024) char memory[];
  return memory;
#endif
}

template <class Program>
__global__ void __launch_bounds__(kThreads, 1) kernel(const Param param) {
  char* const memory = shared();
  uint32_t phase = 0, index = blockIdx.x;
  while (index >= Program::rtasks(phase)) index -= Program::rtasks(phase++);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kBases) reinterpret_cast<uint64_t*>(memory)[thread] = param.bases[thread];
  for (int i = thread; i < Program::args_bytes() / 4; i += kThreads) {
    reinterpret_cast<uint32_t*>(memory + kArgs)[i] = static_cast<const uint32_t*>(Program::args(phase))[i];
  }
  __syncthreads();
  if (thread >= Veu::kComputeThreads) return;
  rk::Launch launch = {};
  launch.state = param.state;
  launch.report = param.report;
  launch.wait_budget_ns = 2000000000ull;
  const rk::Task<Veu> task = {index, memory + kArgs, memory + kWork, reinterpret_cast<const uint64_t*>(memory),
                              {},    &launch,        param.epoch,    phase};
  Program::run(phase, task);
}

inline void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

struct Case {
  const char* name;
  void (*launch)(const Param& param, unsigned veus, int work_bytes);
};

template <class Program>
void launch(const Param& param, unsigned veus, int work_bytes) {
  Param copy = param;
  void* arguments[] = {&copy};
  const int bytes = kWork + work_bytes;
  check(cudaFuncSetAttribute(kernel<Program>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  check(cudaLaunchCooperativeKernel(kernel<Program>, dim3(veus), dim3(kThreads), arguments, static_cast<size_t>(bytes), nullptr));
}

struct Reader {
  FILE* file;
  int64_t word() {
    int64_t w = 0;
    if (std::fread(&w, sizeof w, 1, file) != 1) std::exit(2);
    return w;
  }
};

struct Buffer {
  bool constant, input;
  std::vector<uint32_t> words;
  uint32_t* device;
};

struct Gang {
  const Case* source;
  std::vector<Buffer> buffers;  // the last one is the exchange
  unsigned veus;
  int work_bytes;
  int64_t steps;
  Param param;

  void put(bool zeros) {
    for (const Buffer& b : buffers) {
      if (b.constant || &b == &buffers.back()) continue;
      const std::vector<uint32_t> none(b.words.size(), 0u);
      check(cudaMemcpy(b.device, zeros && b.input ? none.data() : b.words.data(), b.words.size() * 4, cudaMemcpyHostToDevice));
    }
  }
  void run() {
    ++param.epoch;
    source->launch(param, veus, work_bytes);
  }
  void finish() {
    check(cudaDeviceSynchronize());
    const rk::Report& r = *param.report;
    if (r.valid == 0) return;
    std::fprintf(stderr, "%s: phase %u share %u waits for epoch %u, sees %u\n", source->name, r.record, r.index, r.wanted, r.seen);
    std::exit(3);
  }
};

inline Gang read_gang(const Case& c, Reader& in) {
  Gang gang{&c, {}, 0, 0, 0, {}};
  gang.buffers.resize(static_cast<size_t>(in.word()));
  std::vector<uint64_t> bases(kBases, 0);
  if (gang.buffers.size() > kBases) std::exit(2);
  for (size_t i = 0; i < gang.buffers.size(); ++i) {
    Buffer& b = gang.buffers[i];
    b.constant = in.word() != 0;
    b.input = in.word() != 0;
    b.words.resize(static_cast<size_t>(in.word()));
    if (std::fread(b.words.data(), 4, b.words.size(), in.file) != b.words.size()) std::exit(2);
    check(cudaMalloc(&b.device, b.words.size() * 4 + 16));
    check(cudaMemcpy(b.device, b.words.data(), b.words.size() * 4, cudaMemcpyHostToDevice));
    bases[i] = reinterpret_cast<uint64_t>(b.device);
  }
  gang.veus = static_cast<unsigned>(in.word());
  gang.work_bytes = static_cast<int>(in.word());
  gang.steps = in.word();
  uint64_t* device_bases = nullptr;
  check(cudaMalloc(&device_bases, kBases * sizeof(uint64_t)));
  check(cudaMemcpy(device_bases, bases.data(), kBases * sizeof(uint64_t), cudaMemcpyHostToDevice));
  check(cudaMalloc(&gang.param.state, 4 * 128));
  check(cudaMemset(gang.param.state, 0, 4 * 128));
  check(cudaHostAlloc(&gang.param.report, sizeof(rk::Report), cudaHostAllocMapped));
  *gang.param.report = {};
  gang.param.bases = device_bases;
  return gang;
}

inline void check_gang(Gang& gang, FILE* out) {
  std::vector<std::vector<uint32_t>> results[2];
  for (int pass = 0; pass < 3; ++pass) {
    gang.put(pass == 0);
    gang.run();
    gang.finish();
    if (pass == 0) continue;
    for (const Buffer& b : gang.buffers) {
      results[pass - 1].emplace_back(b.words.size());
      check(cudaMemcpy(results[pass - 1].back().data(), b.device, b.words.size() * 4, cudaMemcpyDeviceToHost));
    }
  }
  for (size_t b = 0; b + 1 < gang.buffers.size(); ++b) {
    if (results[0][b] != results[1][b])
      std::fprintf(stderr, "%s: buffer %zu differs between two runs\n", gang.source->name, b), std::exit(4);
  }
  for (const std::vector<uint32_t>& words : results[1]) std::fwrite(words.data(), 4, words.size(), out);
}

inline void time_gang(Gang& gang, int runs) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  float best = 1e30f, sum = 0;
  // A GPU that was idle takes its time to reach its clock: half a second of runs first.
  const int warm = std::max(3, static_cast<int>(5000.0 / static_cast<double>(gang.steps)) * 10);
  for (int i = 0; i < warm; ++i) gang.run();
  for (int i = 0; i < runs; ++i) {
    check(cudaEventRecord(begin, nullptr));
    gang.run();
    check(cudaEventRecord(end, nullptr));
    check(cudaEventSynchronize(end));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end));
    best = std::min(best, ms);
    sum += ms;
  }
  gang.finish();
  std::printf("%-100s %8.2f us best %8.2f us mean %7.3f us a step\n", gang.source->name, best * 1e3, sum * 1e3 / static_cast<float>(runs),
              best * 1e3 / static_cast<float>(gang.steps));
}

inline int run(const std::vector<Case>& cases, const char* folder, int runs) {
  Reader in{std::fopen((std::string(folder) + "/cases.bin").c_str(), "rb")};
  FILE* const out = std::fopen((std::string(folder) + "/results.bin").c_str(), "wb");
  if (in.file == nullptr || out == nullptr) return 2;
  for (const Case& c : cases) {
    Gang gang = read_gang(c, in);
    check_gang(gang, out);
    if (runs > 0) time_gang(gang, runs);
    for (Buffer& b : gang.buffers) check(cudaFree(b.device));
  }
  std::fclose(out);
  std::fclose(in.file);
  return 0;
}

}  // namespace driver
