// The launch parameter and the device state of a rProgram, and what happens when a wait outlives its budget.
#pragma once

#include "kernels/vdevice/sync.cuh"

namespace rk {

struct TensorMap;  // in tables
#if defined(TAMP_CUDA_ON_CPU)
struct TensorMap : cuda_on_cpu::TensorMap {};
#else
struct alignas(64) TensorMap {  // CUtensorMap
  uint64_t words[16];
};
#endif

constexpr uint16_t kNone16 = 0xffff;  // in tables

// Written by the first wait that outlives its budget; host memory that the device can write.
struct Report {
  uint32_t valid;
  uint32_t veu;
  uint32_t record;  // the rTask that waits; kNone16: none
  uint32_t index;
  uint32_t event;  // or kExchange: the rTask waits for a word that another rTask should have published; or kDecision
  uint32_t seen, wanted;
  uint32_t iteration;  // of the event's loop in this run, from 1; 0: it is in none
  uint32_t run;        // of a kernel that makes tokens, from 1; 0: of another
};
constexpr uint32_t kExchange = 0xffffffffu, kDecision = 0xfffffffeu;  // Report::event: no event, but values, or whether a run follows

struct TokenRequest;             // in tables
struct Launch {                  // in tables
  uint64_t* trace;               // kTraceColumns nanosecond stamps per instruction, or null; read only where TAMP_TRACE is defined
  const TensorMap* maps;         // of Record::input, in device memory
  const uint32_t* veu_of_block;  // which vEU each block is (placement.cuh); null: block b is vEU b
  uint32_t* state;               // kStateLines lines, one line per event, one per loop; zeroed once at create
  struct Report* report;
  uint64_t wait_budget_ns;
  float weights_kept;          // share of the weights that L2 keeps from run to run; 0: L2 is told nothing
  const TokenRequest* tokens;  // of a program that makes tokens (tokens.cuh), in device memory; null: one run
};

// The parameter of the kernel. It has as many addresses as the program needs, since every launch copies it.
template <int BASES>
struct LaunchOf : Launch {  // in tables
  uint64_t bases[BASES];
};
constexpr int kMaxBases = kFirstPort + kMaxPorts;
constexpr size_t kMaxParameterBytes = 4096;  // CUDA 12.0; 32764 since 12.1
static_assert(sizeof(LaunchOf<kMaxBases>) <= kMaxParameterBytes, "the parameter of the kernel is too large");

constexpr int kLineWords = 32;  // 128 bytes: counters never share a cache line
inline constexpr int kEpochLine = 0, kExitLine = 1, kDrainLine = 2, kTokenLine = 3, kStateLines = 4;
// Words of kTokenLine: the last decision, twice the run's epoch, plus 1 if another run follows; whether the caller has cancelled; and how
// many runs of this kernel are over. The last two are zeroed before a launch.
inline constexpr int kDecisionWord = 0, kCancelWord = 1, kRunsWord = 2;

RK_INLINE uint32_t* state_line(const Launch& launch, uint32_t line) { return launch.state + static_cast<size_t>(line) * kLineWords; }
RK_INLINE uint32_t* event_word(const Launch& launch, uint32_t event) { return state_line(launch, kStateLines + event); }

// Which vEU this block is.
RK_INLINE uint32_t this_veu(const Launch& launch) { return launch.veu_of_block == nullptr ? blockIdx.x : launch.veu_of_block[blockIdx.x]; }

// Reports the rTask whose wait outlived its budget and makes the program drain: from now on every wait passes.
RK_INLINE void give_up(const Launch& launch, uint32_t record, uint32_t index, uint32_t event, uint32_t seen, uint32_t wanted,
                       uint32_t iteration = 0) {
#if defined(__CUDA_ARCH__) || defined(TAMP_CUDA_ON_CPU)
  if (atomicExch(state_line(launch, kDrainLine), 1u) != 0) return;
  volatile Report* const report = launch.report;
  report->veu = this_veu(launch);
  report->record = record;
  report->index = index;
  report->event = event;
  report->seen = seen;
  report->wanted = wanted;
  if (iteration != 0) report->iteration = iteration;
  if (launch.tokens != nullptr) report->run = poll(state_line(launch, kTokenLine) + kRunsWord) + 1u;
  __threadfence_system();
  report->valid = 1;
#endif
}

}  // namespace rk
