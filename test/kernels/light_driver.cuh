// Runs the rTasks of the generated cases one by one and notes which elements each of them writes. Before a rTask every
// element that it has not declared to read is poisoned, so a read that accesses() leaves out makes the result wrong.
// Compiles with nvcc and, over the stand-in, with g++. Files: cases.bin -> results.bin, both written and read by
// light_bench.h; all words are 8 bytes, buffers are words of 4.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/vdevice/task.cuh"
#include "test/kernels/driver_buffers.cuh"

namespace driver {

struct Veu {
  static constexpr int kComputeThreads = 256;
  static constexpr bool kManyRegisters = false;
  static constexpr bool kVotes = false;
  static constexpr int kWordsBytes = 0;
  static constexpr int kWeightStages = 2;
  static constexpr int kWeightStageBytes = 1024;
  static constexpr int kInputStages = 0;
  static constexpr int kInputStageBytes = 128;
  static constexpr int kBases = 16, kSharedBases = 16;
};
struct Param {
  uint64_t bases[Veu::kBases];
  uint32_t index;
};
constexpr size_t kWork = 1024;  // arguments and bases come before it

inline __device__ char* shared() {
#if defined(TAMP_CUDA_ON_CPU)
  return static_cast<char*>(cuda_on_cpu::shared_memory());
#else
  extern __shared__ __align__(1024) char memory[];
  return memory;
#endif
}

template <class Args>
inline __device__ rk::Task<Veu> task_of(const Param& param, const Args& args) {
  char* const memory = shared();
  if (threadIdx.x == 0) {
    *reinterpret_cast<Args*>(memory) = args;
    for (int b = 0; b < Veu::kBases; ++b) reinterpret_cast<uint64_t*>(memory + 768)[b] = param.bases[b];
  }
  __syncthreads();
  rk::Task<Veu> task{};
  task.index = param.index;
  task.args = memory;
  task.work = memory + kWork;
  task.bases = reinterpret_cast<const uint64_t*>(memory + 768);
  return task;
}

struct Case {
  void (*launch)(int phase, Param param, size_t work_bytes);
};

template <class Kernel>
void launch(Kernel kernel, Param param, size_t work_bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kWork + work_bytes)));
  void* arguments[] = {&param};
  check(cudaLaunchKernel(kernel, dim3(1), dim3(Veu::kComputeThreads), arguments, kWork + work_bytes, nullptr));
  check(cudaDeviceSynchronize());
}

struct Reader {
  FILE* file;
  int64_t word() {
    int64_t w = 0;
    if (std::fread(&w, sizeof w, 1, file) != 1) std::exit(2);
    return w;
  }
};

inline void run_rtask(const Case& c, int phase, int64_t index, int32_t number, Reader& in, std::vector<Buffer>& buffers,
                      size_t work_bytes) {
  std::vector<std::vector<uint32_t>> seen;
  for (const Buffer& b : buffers) seen.push_back(b.constant ? b.words : std::vector<uint32_t>(b.words.size(), b.poison()));
  for (int64_t reads = in.word(); reads > 0; --reads) {
    const size_t b = static_cast<size_t>(in.word());
    const int64_t offset = in.word(), count = in.word(), stride = in.word(), length = in.word();
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < length; ++j) {
        const size_t at = static_cast<size_t>(offset + i * stride + j);
        seen[b].at(at) = buffers[b].words.at(at);
      }
    }
  }
  Param param{};
  param.index = static_cast<uint32_t>(index);
  for (size_t b = 0; b < buffers.size(); ++b) {
    param.bases[b] = reinterpret_cast<uint64_t>(buffers[b].device);
    upload(buffers[b], seen[b]);
  }
  c.launch(phase, param, work_bytes);
  for (size_t b = 0; b < buffers.size(); ++b) {
    const std::vector<uint32_t> after = download(buffers[b]);
    for (size_t i = 0; i < after.size(); ++i) {
      if (after[i] == seen[b][i]) continue;
      buffers[b].words[i] = after[i];
      buffers[b].owner[i] = buffers[b].owner[i] == -1 ? number : -2;
    }
  }
}

inline void run_case(const Case& c, Reader& in, FILE* out) {
  std::vector<Buffer> buffers(static_cast<size_t>(in.word()));
  for (Buffer& b : buffers) {
    const int64_t kind = in.word();
    b.constant = (kind & 1) != 0;
    b.narrow = (kind & 2) != 0;
    b.words.resize(static_cast<size_t>(in.word()));
    b.owner.assign(b.words.size(), -1);
    if (std::fread(b.words.data(), 4, b.words.size(), in.file) != b.words.size()) std::exit(2);
    check(cudaMalloc(&b.device, b.words.size() * 4 + 16));
  }
  const int64_t phases = in.word();
  int32_t number = 0;
  for (int phase = 0; phase < phases; ++phase) {
    const int64_t rtasks = in.word();
    const size_t work_bytes = static_cast<size_t>(in.word());
    for (int64_t t = 0; t < rtasks; ++t) run_rtask(c, phase, t, number++, in, buffers, work_bytes);
  }
  for (Buffer& b : buffers) {
    std::fwrite(b.words.data(), 4, b.words.size(), out);
    std::fwrite(b.owner.data(), 4, b.owner.size(), out);
    check(cudaFree(b.device));
  }
}

inline int run(const std::vector<Case>& cases, const char* folder) {
  char path[512];
  std::snprintf(path, sizeof path, "%s/cases.bin", folder);
  Reader in{std::fopen(path, "rb")};
  std::snprintf(path, sizeof path, "%s/results.bin", folder);
  FILE* const out = std::fopen(path, "wb");
  if (in.file == nullptr || out == nullptr) return 2;
  for (const Case& c : cases) run_case(c, in, out);
  std::fclose(out);
  std::fclose(in.file);
  return 0;
}

}  // namespace driver
