// What the warps of a vEU share (interpreter.cuh): the tables of the rProgram, the trace, and the control block in shared memory, with the
// slots through which one warp hands work to another.
#pragma once

#include "kernels/vdevice/placement.cuh"
#include "kernels/vdevice/registers.cuh"
#include "kernels/vdevice/task.cuh"

namespace rk {

// --- the tables (one line of a lane is 16 bytes) -----------------------------------------------------------------------

struct alignas(16) Instruction {  // in tables
  uint16_t record;                // row of the record table, or kNone16: nothing to run
  uint16_t signal;                // event, or kNone16
  uint32_t index;                 // rTask within the record's phase
  uint16_t wait[kWaits];          // events, or kNone16
  // Of a rTask: where its results begin, where they may lie behind an extent of run time (extents.cuh). Without one, where a lane enters
  // loop l: 2 * l + 1; where it goes back: 2 * l + 2; `index` is the rows between the two (loops.cuh). Else 0.
  uint16_t detail;
};

RK_INLINE bool is_turn(const Instruction& instruction) { return instruction.record == kNone16 && instruction.detail != 0; }

// A phase's boxes as the device sees them: InputBoxes of compiler/ir/rkernel.h.
struct InputCopy {  // in tables
  uint32_t boxes;   // 0: the phase has none
  uint32_t boxes_per_split, boxes_per_chunk, boxes_per_copy;
  uint32_t box_bytes, copied_bytes;
  uint32_t channels_log2;  // of a box
  uint32_t map;            // row of Launch::maps
  int32_t group_channels;
  int32_t begin_w, begin_h, step_w, step_h;
  Divisor tiles{0}, tiles_w{0}, tiles_h{0}, splits{0}, n_blocks{0};
};

// One phase of one rOperator.
struct Record {          // in tables
  uint16_t body;         // case of Program::run
  uint16_t args_bytes;   // a multiple of 16
  uint32_t chunk_bytes;  // weight ring, see RingWeights in compiler/ir/rkernel.h
  uint32_t chunks_per_rtask;
  uint32_t rtasks_per_block = 1;
  uint32_t blocks = 1;
  uint32_t awaits_inputs;   // not 0: the body waits for its inputs itself, by Task::await_inputs
  uint32_t over_inputs;     // not 0: the body's work begins where the input stages begin; needs Program::kOverInputs
  uint64_t weights_offset;  // bytes
  const void* args;
  InputCopy input;
};

// Arguments are copied 16 bytes at a time.
template <class Args>
struct alignas(16) Padded {  // in tables
  static_assert(sizeof(Args) <= 768, "a body's arguments fit a slot: kMaxArgsBytes");
  Args value;
};

struct Tables {  // in tables
  const Instruction* instructions;
  const uint32_t* lane_begin;  // veus + 1
  const Record* records;
  const uint32_t* event_count;  // signals per epoch
  // Of programs with loops: per event 0, or 1 plus the loop whose iterations are its epochs; per loop the byte of the arena where its
  // condition is; how many events there are.
  const uint16_t* event_loop = nullptr;
  const uint64_t* conditions = nullptr;
  uint32_t events = 0;
};

// Rows of the vEUs' lanes, where `veus` vEUs that follow each other have `rows` rows each. Example: {{2, 3}, {1, 0}} is 0, 3, 6, 6.
struct LaneRows {  // in tables
  uint32_t veus, rows;
};
template <int VEUS>
struct LaneBegin {  // in tables
  uint32_t row[VEUS + 1] = {};
  template <int PARTS>
  constexpr explicit LaneBegin(const LaneRows (&parts)[PARTS]) {
    uint32_t veu = 0;
    for (const LaneRows& part : parts) {
      for (const uint32_t end = veu + part.veus; veu < end; ++veu) row[veu + 1] = row[veu] + part.rows;
    }
  }
};

// The whole kernel (interpreter.cuh).
template <class Program>
RK_INLINE void interpret(const LaunchOf<Program::Veu::kBases>& launch, const Tables& tables);  // in tables

// --- trace (compiled in with -DTAMP_TRACE only) ---------------------------------------------------------------------------

RK_INLINE void trace(const Launch& launch, uint32_t instruction, TraceColumn column) {
#if defined(TAMP_TRACE)
  if (launch.trace != nullptr) launch.trace[static_cast<size_t>(instruction) * kTraceColumns + column] = now_ns();
#else
  (void)launch, (void)instruction, (void)column;
#endif
}

// --- shared memory -----------------------------------------------------------------------------------------------------

constexpr int kSlots = 4;
constexpr int kMaxArgsBytes = 768;
constexpr int kControlBytes = 5120;
inline constexpr uint16_t kBodyNothing = 0xfffe, kBodyEnd = 0xffff;  // in tables
inline constexpr uint32_t kStartsEarly = 2;                          // in Slot::inputs_phase; parities are 0 and 1

// What the waiter hands to the compute warps. The task is in shared memory: if each of the 256 threads had a copy of its own, the copies
// would not stay in L1, of which the rings leave little, and a body that reads its task from L2 begins 0.3 us later.
template <class Veu>
struct alignas(16) Slot {
  Task<Veu> task;
  uint16_t body;
  uint16_t signal;
  uint32_t inputs_phase;  // parity of `inputs` to wait for; or kStartsEarly: the body waits for its inputs itself (Phase::boxes,
                          // Phase::awaits_inputs)
  bool has_boxes;         // with words only: nobody arrives on `inputs`
  uint32_t instruction;   // position in the instruction table, for the trace
  alignas(16) char args[kMaxArgsBytes];  // copied 16 bytes at a time
};

// How many loops the program has (docs/adr/0050): Veu::kLoops, if it has some.
template <class Veu>
constexpr auto count_loops(int) -> decltype(Veu::kLoops) {
  return Veu::kLoops;
}
template <class Veu>
constexpr int count_loops(long) {
  return 0;
}
template <class Veu>
inline constexpr int kLoopsOf = count_loops<Veu>(0);

// What the waiter says to the loader, which walks through the same lane, and in the end to who leaves.
template <int LOOPS>
struct LoopControl {
  Barrier decided, heard;      // for each turn
  uint32_t again;              // the last turn's decision: whether an iteration follows
  uint32_t line;               // of the first loop's word, in Launch::state
  uint32_t iterations[LOOPS];  // how many have ever begun: the epoch of the loop's events
};
template <>
struct LoopControl<0> {};

// Whether the program makes tokens (tokens.cuh): it has a vEU that decides whether another run follows.
template <class Veu>
constexpr bool kMakesTokens = requires {
  Veu::kLeader;
};
// What the warp that waits for events says to those that go through the same lane.
template <bool MAKES_TOKENS>
struct TokenControl {
  Barrier decided, heard;  // for each run
  uint32_t again;          // whether another run follows
};
template <>
struct TokenControl<false> {};

template <class Veu>
struct Control : LoopControl<kLoopsOf<Veu>>, TokenControl<kMakesTokens<Veu>> {
  Slot<Veu> slots[kSlots];
  Barrier ready[kSlots], inputs[kSlots], free[kSlots];
  Barrier computed[kSlots];  // for the signalling warp
  Barrier full[Veu::kWeightStages], empty[Veu::kWeightStages];
  Barrier input_full[Veu::kInputStages + 1], input_empty[Veu::kInputStages + 1];  // there may be none
  uint32_t epoch, veu;
  uint64_t bases[Veu::kSharedBases + (Veu::kBases > Veu::kSharedBases ? 1 : 0)];  // Task::base
};

// What the waiter does about boxes: in programs that have some (boxes.cuh).
template <class Veu, bool HAS_BOXES = (Veu::kInputStages > 0)>
struct Boxes {
  struct Place {};
  struct Copies {};
};

constexpr int kServiceWarps = 2;
// Whether two further service warps signal and wait for events, see run_compute and run_waiter: in programs with words (words.cuh).
template <class Veu>
constexpr bool kSignalsApart = Veu::kWordsBytes > 0;
template <class Veu>
constexpr int kWarpsBeside = Veu::kManyRegisters || kSignalsApart<Veu> ? kIdleWarps : 0;  // idle, or service warps as well
template <class Veu>
constexpr int kThreadsOf = Veu::kComputeThreads + (kServiceWarps + kWarpsBeside<Veu>)*kWarp;
template <class Veu>
constexpr int kSmemBytesOf =
    kControlBytes + Veu::kWeightStages* Veu::kWeightStageBytes + Veu::kInputStages* Veu::kInputStageBytes + Veu::kWorkBytes;

RK_INLINE char* shared_memory() {
#if defined(TAMP_CUDA_ON_CPU)
  return static_cast<char*>(cuda_on_cpu::shared_memory());
#else
  extern __shared__ __align__(1024) char rk_shared_memory[];
  return rk_shared_memory;
#endif
}

// What lies behind the input stages, where the work of bodies begins that are not over these.
template <class Veu>
RK_INLINE char* behind_inputs() {
  return shared_memory() + kControlBytes + Veu::kWeightStages * Veu::kWeightStageBytes + Veu::kInputStages * Veu::kInputStageBytes;
}

RK_INLINE Instruction fetch(const Instruction* p) {
#if defined(__CUDA_ARCH__)
  const uint4 v = __ldg(reinterpret_cast<const uint4*>(p));
  Instruction i;
  i.record = static_cast<uint16_t>(v.x & 0xffffu);
  i.signal = static_cast<uint16_t>(v.x >> 16);
  i.index = v.y;
  i.wait[0] = static_cast<uint16_t>(v.z & 0xffffu);
  i.wait[1] = static_cast<uint16_t>(v.z >> 16);
  i.wait[2] = static_cast<uint16_t>(v.w & 0xffffu);
  i.detail = static_cast<uint16_t>(v.w >> 16);
  return i;
#else
  return *p;
#endif
}

// Tells the stand-in for which rTask this thread accesses device memory from here on (tamp run --races).
template <class Veu>
RK_INLINE void accesses_of(const Control<Veu>& control, uint32_t record, uint32_t index) {
#if defined(TAMP_CUDA_ON_CPU)
  const bool shares_all = Veu::kBases == Veu::kSharedBases;
  const uint64_t* const bases = shares_all ? control.bases : reinterpret_cast<const uint64_t*>(control.bases[Veu::kSharedBases]);
  cuda_on_cpu::accesses_of(bases, Veu::kBases, record, index);
#else
  (void)control, (void)record, (void)index;
#endif
}

// Puts the addresses where bodies find them (Task::base). All threads of a block call it.
template <class Veu>
RK_INLINE void share_bases(Control<Veu>& control, const uint64_t* bases, int thread, int threads) {
  for (int b = thread; b < Veu::kSharedBases; b += threads) control.bases[b] = bases[b];
  if constexpr (Veu::kBases > Veu::kSharedBases) {
    if (thread == 0) control.bases[Veu::kSharedBases] = reinterpret_cast<uint64_t>(bases);
  }
}

}  // namespace rk
