// Runs rTasks of bodies that take weights from the ring, and inputs by boxes, with a loader and a waiter warp as the interpreter has.
// Compiles with nvcc and, over the stand-in, with g++. Two uses: checking runs rTask by rTask, everything poisoned that the rTask has not
// declared to read, and notes what it writes; timing (on a GPU) runs the phases of the cases whose name holds a text on all vEUs, and
// prints microseconds.
// Files: cases.bin -> results.bin, written and read by heavy_bench.h; words of 8 bytes, buffers of 4.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/vdevice/boxes.cuh"
#include "runtime_stub/host/box_maps.h"  // the copy engine's idea of a tensor
#include "test/kernels/driver_buffers.cuh"

namespace driver {

constexpr int kBases = 16;
constexpr int kThreads = 256 + 2 * rk::kWarp;  // and the loader and the waiter
constexpr int kControl = 2048;

struct PhaseRow {
  int body;
  const void* args;
  size_t args_bytes;
  int64_t rtasks, work_bytes, chunk_bytes, chunks, rtasks_per_block, blocks;
  int packed;  // base of the packed data
  // Input boxes: how they are cut (boxes 0: none), and of what: a buffer, in elements.
  rk::InputCopy input;
  int input_buffer;
  tamp_host::BoxMap map;
};
struct Param {
  uint64_t bases[kBases];
  const void* args;
  uint32_t args_words, first, last, body, chunk_bytes, chunks, rtasks_per_block, blocks, packed, repeats;
  uint32_t over_inputs;  // not 0: the body's work begins where the input stages begin
  rk::InputCopy input;
  const rk::TensorMap* map;
};

struct Control {
  rk::Barrier full[8], empty[8], input_full[8], input_empty[8];
  uint64_t bases[kBases];
  alignas(16) uint32_t args[192];
};
static_assert(sizeof(Control) <= kControl);

RK_INLINE char* shared() {
#if defined(TAMP_CUDA_ON_CPU)
  return static_cast<char*>(cuda_on_cpu::shared_memory());
#else
  extern __shared__ __align__(1024) char memory[];
  return memory;
#endif
}

// Every gridDim.x-th rTask from the vEU's own first, `repeats` times over.
RK_INLINE uint32_t rtasks_per_round(const Param& param) {
  const uint32_t first = param.first + blockIdx.x;
  return first >= param.last ? 0 : (param.last - first + gridDim.x - 1) / gridDim.x;
}
RK_INLINE uint32_t rtasks_of_veu(const Param& param) { return rtasks_per_round(param) * param.repeats; }
RK_INLINE uint32_t rtask_of_veu(const Param& param, uint32_t i) {
  return param.first + blockIdx.x + i % rtasks_per_round(param) * gridDim.x;
}

template <class Veu>
RK_INLINE void load(const Param& param, Control& control, char* stages) {
  if (rk::lane_id() >= rk::kCopyLanes) return;
  const uint64_t policy = rk::weights_policy(0.0f);
  uint32_t chunk = 0;
  for (uint32_t i = 0; i < rtasks_of_veu(param); ++i) {
    const uint32_t t = rtask_of_veu(param, i);
    const uint64_t block = t / param.rtasks_per_block % param.blocks;
    const char* from = reinterpret_cast<const char*>(param.bases[param.packed]) + block * param.chunks * param.chunk_bytes;
    for (uint32_t c = 0; c < param.chunks; ++c, ++chunk, from += param.chunk_bytes) {
      const uint32_t stage = chunk % Veu::kWeightStages, round = chunk / Veu::kWeightStages;
      if (round > 0) rk::wait(control.empty[stage], (round - 1) & 1u);
      rk::copy_weights(stages + stage * Veu::kWeightStageBytes, from, param.chunk_bytes, control.full[stage], policy);
    }
  }
}

template <class Veu>
RK_INLINE uint32_t input_chunks(const Param& param, uint32_t rtask) {
  if (param.input.boxes == 0) return 0;
  return (rk::first_box(param.input, rtask).boxes + param.input.boxes_per_chunk - 1) / param.input.boxes_per_chunk;
}

template <class Veu>
RK_INLINE void copy_inputs(const Param& param, Control& control, char* stages) {
  if (param.input.boxes == 0 || rk::lane_id() != 0) return;
  uint32_t chunk = 0;
  for (uint32_t i = 0; i < rtasks_of_veu(param); ++i) {
    const rk::BoxPlace place = rk::first_box(param.input, rtask_of_veu(param, i));
    rk::BoxCopies<Veu> copies(param.map, param.input, place, chunk, stages, control.input_full, control.input_empty);
    do {
      copies.claim();
      copies.copy(param.input, place);
      ++chunk;
    } while (copies.next(param.input));
  }
}

template <class Program>
__global__ void __launch_bounds__(320, 1) kernel(const __grid_constant__ Param param) {
  using Veu = typename Program::Veu;
  Control& control = *reinterpret_cast<Control*>(shared());
  char* const stages = shared() + kControl;
  char* const input_stages = stages + Veu::kWeightStages * Veu::kWeightStageBytes;
  if (threadIdx.x == 0) {
    for (int s = 0; s < Veu::kInputStages; ++s) {
      rk::init(control.input_full[s], 1);
      rk::init(control.input_empty[s], Veu::kComputeThreads / rk::kWarp);
    }
    for (int s = 0; s < Veu::kWeightStages; ++s) {
      rk::init(control.full[s], rk::kCopyLanes);
      rk::init(control.empty[s], Veu::kComputeThreads / rk::kWarp);
    }
    for (int b = 0; b < kBases; ++b) control.bases[b] = param.bases[b];
    for (uint32_t w = 0; w < param.args_words; ++w) control.args[w] = static_cast<const uint32_t*>(param.args)[w];
  }
  __syncthreads();
  if (rk::warp_id() == Veu::kComputeThreads / rk::kWarp) return load<Veu>(param, control, stages);
  if (rk::warp_id() > Veu::kComputeThreads / rk::kWarp) {
    if constexpr (Veu::kInputStages > 0) copy_inputs<Veu>(param, control, input_stages);
    return;
  }
  uint32_t chunk = 0, input_chunk = 0;
  for (uint32_t i = 0; i < rtasks_of_veu(param); ++i, chunk += param.chunks) {
    rk::Task<Veu> task{};
    task.index = rtask_of_veu(param, i);
    task.args = control.args;
    task.work = input_stages + (param.over_inputs != 0 ? 0 : Veu::kInputStages * Veu::kInputStageBytes);
    task.bases = control.bases;
    task.weights = {stages, control.full, control.empty, chunk};
    task.inputs = {input_stages, control.input_full, control.input_empty, input_chunk};
    task.epoch = 1;
    input_chunk += input_chunks<Veu>(param, task.index);
    Program::run(param.body, task);
    rk::sync_compute<Veu>();
  }
}

struct Reader {
  FILE* file;
  int64_t word() {
    int64_t w = 0;
    if (std::fread(&w, sizeof w, 1, file) != 1) std::exit(2);
    return w;
  }
};

template <class Program>
void launch(const PhaseRow& row, const std::vector<Buffer>& buffers, void* args, int64_t first, int64_t last, unsigned veus,
            uint32_t repeats = 1) {
  using Veu = typename Program::Veu;
  Param param{};
  for (size_t b = 0; b < buffers.size(); ++b) param.bases[b] = reinterpret_cast<uint64_t>(buffers[b].device);
  param.args = args;
  param.args_words = static_cast<uint32_t>(row.args_bytes / 4);
  param.first = static_cast<uint32_t>(first);
  param.last = static_cast<uint32_t>(last);
  param.body = static_cast<uint32_t>(row.body);
  param.chunk_bytes = static_cast<uint32_t>(row.chunk_bytes);
  param.chunks = static_cast<uint32_t>(row.chunks);
  param.rtasks_per_block = static_cast<uint32_t>(row.rtasks_per_block);
  param.blocks = static_cast<uint32_t>(row.blocks);
  param.packed = static_cast<uint32_t>(row.packed);
  param.repeats = repeats;
  rk::TensorMap* map = nullptr;
  if (row.input.boxes != 0) {
    rk::TensorMap encoded{};
    std::string message;
    param.input = row.input;
    if (tamp_host::encode(row.map, reinterpret_cast<char*>(buffers[static_cast<size_t>(row.input_buffer)].device), encoded, message) !=
        TAMP_OK) {
      std::fprintf(stderr, "%s\n", message.c_str());
      std::exit(1);
    }
    check(cudaMalloc(reinterpret_cast<void**>(&map), sizeof encoded));
    check(cudaMemcpy(map, &encoded, sizeof encoded, cudaMemcpyHostToDevice));
    param.map = map;
  }
  constexpr int64_t kMostBytes = 227 * 1024, kInputBytes = Veu::kInputStages * Veu::kInputStageBytes;
  int64_t bytes = kControl + Veu::kWeightStages * Veu::kWeightStageBytes + kInputBytes + row.work_bytes;
  param.over_inputs = row.input.boxes == 0 && bytes > kMostBytes ? 1 : 0;
  if (param.over_inputs != 0) bytes -= kInputBytes;
  check(cudaFuncSetAttribute(kernel<Program>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  void* arguments[] = {&param};
  check(cudaLaunchKernel(kernel<Program>, dim3(veus), dim3(kThreads), arguments, static_cast<size_t>(bytes), nullptr));
  check(cudaDeviceSynchronize());
  check(cudaFree(map));
}

// --- checking -------------------------------------------------------------------------------------------------------------

inline std::vector<std::vector<uint32_t>> poisoned(Reader& in, const std::vector<Buffer>& buffers) {
  std::vector<std::vector<uint32_t>> seen;
  for (const Buffer& b : buffers) seen.push_back(b.constant ? b.words : std::vector<uint32_t>(b.words.size(), b.poison()));
  for (int64_t reads = in.word(); reads > 0; --reads) {
    const size_t b = static_cast<size_t>(in.word());
    const int64_t offset = in.word(), count = in.word(), stride = in.word(), length = in.word();
    if (buffers.empty()) continue;  // only to get past it
    for (int64_t i = 0; i < count * length; ++i) {
      const size_t at = static_cast<size_t>(offset + i / length * stride + i % length);
      seen[b].at(at) = buffers[b].words.at(at);
    }
  }
  return seen;
}

template <class Program>
void check_rtask(const PhaseRow& row, int64_t t, int32_t number, void* args, Reader& in, std::vector<Buffer>& buffers) {
  const std::vector<std::vector<uint32_t>> seen = poisoned(in, buffers);
  for (size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b].constant && number > 0) continue;
    upload(buffers[b], seen[b]);
  }
  launch<Program>(row, buffers, args, t, t + 1, 1);
  check(cudaDeviceSynchronize());
  for (size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b].constant) continue;
    const std::vector<uint32_t> after = download(buffers[b]);
    for (size_t i = 0; i < after.size(); ++i) {
      if (after[i] == seen[b][i]) continue;
      buffers[b].words[i] = after[i];
      buffers[b].owner[i] = buffers[b].owner[i] == -1 ? number : -2;
    }
  }
}

// --- timing --------------------------------------------------------------------------------------------------------------

template <class Program>
void time_phase(const PhaseRow& row, const std::vector<Buffer>& buffers, void* args, const char* name) {
  int veus = 0;
  check(cudaDeviceGetAttribute(&veus, cudaDevAttrMultiProcessorCount, 0));
  for (const Buffer& b : buffers) upload(b, b.words);
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  // Twice: the difference is free of what a launch costs.
  float ms[2];
  constexpr uint32_t kRepeats[2] = {20, 120};
  for (int pass = -1; pass < 2; ++pass) {
    check(cudaEventRecord(begin, nullptr));
    launch<Program>(row, buffers, args, 0, row.rtasks, static_cast<unsigned>(veus), kRepeats[pass < 0 ? 0 : pass]);
    check(cudaEventRecord(end, nullptr));
    check(cudaEventSynchronize(end));
    check(cudaEventElapsedTime(&ms[pass < 0 ? 0 : pass], begin, end));
  }
  const double us = static_cast<double>(ms[1] - ms[0]) * 1000.0 / (kRepeats[1] - kRepeats[0]);
  std::printf("%-72s %6lld rTasks %8.2f us\n", name, static_cast<long long>(row.rtasks), us);
}

// --- all ---------------------------------------------------------------------------------------------------------------

struct CaseRow {
  const char* name;
  std::vector<PhaseRow> phases;
};

template <class Program>
void run_case(const CaseRow& c, const char* timing, Reader& in, FILE* out) {
  std::vector<Buffer> buffers(static_cast<size_t>(in.word()));
  for (Buffer& b : buffers) {
    const int64_t kind = in.word();
    b.constant = (kind & 1) != 0;
    b.narrow = (kind & 2) != 0;
    b.words.resize(static_cast<size_t>(in.word()));
    b.owner.assign(b.words.size(), -1);
    if (std::fread(b.words.data(), 4, b.words.size(), in.file) != b.words.size()) std::exit(2);
    check(cudaMalloc(&b.device, b.words.size() * 4));
  }
  int32_t number = 0;
  in.word();
  for (const PhaseRow& row : c.phases) {
    const int64_t rtasks = in.word();
    in.word();
    void* args = nullptr;
    check(cudaMalloc(reinterpret_cast<char**>(&args), row.args_bytes));
    check(cudaMemcpy(args, row.args, row.args_bytes, cudaMemcpyHostToDevice));
    if (timing != nullptr && std::strstr(c.name, timing) != nullptr) time_phase<Program>(row, buffers, args, c.name);
    for (int64_t t = 0; t < rtasks; ++t, ++number) {
      if (timing != nullptr)
        poisoned(in, {});
      else
        check_rtask<Program>(row, t, number, args, in, buffers);
    }
    check(cudaFree(args));
  }
  for (Buffer& b : buffers) {
    std::fwrite(b.words.data(), 4, b.words.size(), out);
    std::fwrite(b.owner.data(), 4, b.owner.size(), out);
    check(cudaFree(b.device));
  }
}

template <class Program>
int run(const std::vector<CaseRow>& cases, const char* folder, const char* timing) {
  Reader in{std::fopen((std::string(folder) + "/cases.bin").c_str(), "rb")};
  FILE* const out = std::fopen((std::string(folder) + "/results.bin").c_str(), "wb");
  if (in.file == nullptr || out == nullptr) return 2;
  for (const CaseRow& c : cases) run_case<Program>(c, timing, in, out);
  std::fclose(out);
  std::fclose(in.file);
  return 0;
}

}  // namespace driver
