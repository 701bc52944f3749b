// The loop that every vEU runs: its lane of the rProgram, instruction by instruction (Rammer section 3: the rProgram as a compile-time
// plan). Two things are odd. The plan is a table, not code, since code that runs once costs as much as a barrier. And waiting and
// fetching weights have warps of their own.
//
// Warps 0 to 7 compute and signal, warp 8 is the loader (weights), warp 9 the waiter (events, arguments, input boxes). Programs with very
// large tiles have two more, for their registers (registers.cuh), and so have programs with values that are their own flags (words.cuh):
// there warp 9 only fetches arguments, warp 10 waits for events, and warp 11 signals. They hand work to each other through mbarriers in the
// control block:
//   slots         waiter -ready, inputs-> compute -free-> waiter; with words (words.cuh) compute -computed-> signalling warp -free-> waiter
//   weight stages loader -full-> compute -empty-> loader
//   input stages  waiter -input_full-> compute -input_empty-> waiter
// Loader and waiter may run ahead as far as slots and stages are free. Example: with 4 slots the waiter fills slots 0, 1, 2, 3 for rTasks
// 0 to 3 of its lane; for rTask 4 it waits for `free` of slot 0, which the compute warps arrive on after rTask 0.
//
// A program that has both boxes and bodies that need much shared memory (gangs) has two layouts (docs/adr/0009). Control block and weight
// stages have the same place in both. A body "over inputs" uses the bytes of the input stages for its work, too. The waiter starts the
// next copy of boxes when that body has ended. (Earlier bodies of the lane have consumed the boxes that were copied before.)
#pragma once

#include "kernels/vdevice/control.cuh"
#include "kernels/vdevice/loops.cuh"

namespace rk {

// tokens.cuh, which only programs that make tokens have.
template <class Veu>
RK_INLINE bool decide_run(const Launch& launch, const Tables& tables, Control<Veu>& control, uint32_t runs);
template <bool WARP, class Veu>
RK_INLINE bool hear_run(Control<Veu>& control, uint32_t runs);
template <class Veu>
RK_INLINE void begin_runs(Control<Veu>& control);

// Whether the program has lengths of run time. What it does about them is in extents.cuh, which other programs do not have.
template <class Veu>
constexpr bool kHasExtents = requires {
  Veu::kExtents;
};

// Copies every rTask's weight chunks into the ring, in lane order, as far ahead as stages are free.
template <class Veu>
RK_INLINE void run_loader(const LaunchOf<Veu::kBases>& launch, const Tables& tables, Control<Veu>& control, char* stages) {
  if (lane_id() >= kCopyLanes) return;
  const uint64_t policy = weights_policy(launch.weights_kept);
  const uint32_t end = tables.lane_begin[control.veu + 1];
  uint32_t chunk = 0;
  [[maybe_unused]] uint32_t turns = 0, runs = 0;
#pragma unroll 1
  for (uint32_t i = tables.lane_begin[control.veu];; ++i) {
    if (i == end) {
      if constexpr (kMakesTokens<Veu>) {
        const uint32_t begin = tables.lane_begin[control.veu];
        if (begin == end || !hear_run<(kCopyLanes > 1)>(control, runs++)) break;
        i = begin;
      } else {
        break;
      }
    }
    Instruction instruction = fetch(tables.instructions + i);
    if constexpr (kLoopsOf < Veu >> 0) {
      if (is_turn(instruction)) i += rows_of_turn(instruction, hear_turn(control, turns++));
    }
    if (instruction.record == kNone16) continue;
    if constexpr (kHasExtents<Veu>) {
      if (take_end(control, instruction)) continue;
    }
    const Record& record = tables.records[instruction.record];
    const uint32_t chunks = record.chunks_per_rtask;
    if (chunks == 0) continue;
    accesses_of<Veu>(control, instruction.record, instruction.index);
    const uint32_t bytes = record.chunk_bytes;
    const uint64_t block = (instruction.index / record.rtasks_per_block) % record.blocks;
    const char* from = reinterpret_cast<const char*>(launch.bases[kWeights]) + record.weights_offset + block * chunks * bytes;
#pragma unroll 1
    for (uint32_t c = 0; c < chunks; ++c, ++chunk, from += bytes) {
      const uint32_t stage = chunk % Veu::kWeightStages;
      const uint32_t round = chunk / Veu::kWeightStages;
      if (round > 0) wait_to_copy(control.empty[stage], (round - 1) & 1u);
      copy_weights(stages + stage * Veu::kWeightStageBytes, from, bytes, control.full[stage], policy);
    }
  }
}

// Waits until the events have all their signals of this run. One lane calls this. `meanwhile` is called once, behind the first look at the
// first event, which mostly comes too early.
// Example: an event with 5 signals per run has counted to 15 when run 3 has sent them all.
// `epochs`: the number of this run or iteration by the event.
template <class Epochs, class Meanwhile>
RK_INLINE void wait_for_events(const Launch& launch, const Tables& tables, const Instruction& instruction, const Epochs& epochs,
                               const Meanwhile& meanwhile) {
  if (instruction.wait[0] == kNone16) return meanwhile();
  const uint32_t* word[kWaits];
  uint32_t target[kWaits];
#pragma unroll
  for (int w = 0; w < kWaits; ++w) {
    const uint32_t event = instruction.wait[w] == kNone16 ? instruction.wait[0] : instruction.wait[w];
    word[w] = event_word(launch, event);
    target[w] = tables.event_count[event] * epochs.of(event);
  }
  const uint32_t* const drain = state_line(launch, kDrainLine);
  // Counters wrap around at 2^32, so the sign of the difference tells which is ahead.
  uint32_t spins = 0;
  uint64_t start = 0;
#pragma unroll
  for (int w = 0; w < kWaits; ++w) {
    if (w > 0 && instruction.wait[w] == kNone16) continue;
    uint32_t seen = poll_event(word[w]);
    if (w == 0) meanwhile();
#pragma unroll 1
    for (; static_cast<int32_t>(seen - target[w]) < 0; seen = poll_event(word[w])) {
#if defined(TAMP_CUDA_ON_CPU)
      if (poll(drain) != 0) return;
      if (cuda_on_cpu::stuck()) return epochs.give_up(launch, instruction, instruction.wait[w], seen, target[w]);
#else
      if ((++spins & 255u) != 0) continue;
      if (poll(drain) != 0) return;
      if (start == 0) start = now_ns();
      if (now_ns() - start > launch.wait_budget_ns) return epochs.give_up(launch, instruction, instruction.wait[w], seen, target[w]);
#endif
    }
  }
  acquire_events();
  (void)start, (void)spins;
}

// Called before the first copy of boxes after a body over inputs; waits until that body has ended. `over` is the number of the body's
// slot, `slot` the number of the slot that the boxes are for, both counted from the start of the kernel. If slot - over is kSlots or more,
// the body's slot has been used again, so the waiter has waited for the body's end already.
template <class Veu>
RK_INLINE void wait_for_inputs_room(Control<Veu>& control, uint32_t over, uint32_t slot) {
  if (slot - over < kSlots) wait(control.free[over % kSlots], (over / kSlots) & 1u);
  proxy_fence_shared();  // the body stored there through the generic proxy
}

// What the waiter does for each instruction: it fills a slot with arguments, which depend on nothing; then it waits for the events; then
// come the copies of boxes, or the arrival on `inputs`. From the waits on only the first lane works, with as little as possible between the
// last signal and the first box. With words (words.cuh) each half has a warp of its own, since a rTask may begin there before its Waits,
// and those of the rTask before it, have passed.
enum class Waiter { both, fills, waits };

// A lane's waiter, from one instruction to the next.
template <class Veu, bool OVER_INPUTS, Waiter ROLE>
struct LaneWaiter {
  static constexpr bool kFills = ROLE != Waiter::waits;
  const Launch& launch;
  const Tables& tables;
  Control<Veu>& control;
  char* const input_stages;
  uint32_t epoch;
  const int lane;
  uint32_t slots_used = 0, chunk = 0;
  uint32_t input_chunk = 0, inputs_phases = 0;  // right in the first lane only; bit s: the parity of the next phase of inputs[s]
  uint32_t over = 0;  // first lane only: 1 plus the slot number of the last body over inputs; 0: none, or boxes copied since

  // Fills the next slot, number s of the ring, for instruction i. Returns the rTask's boxes. is_over: for the first lane only.
  RK_INLINE InputCopy fill(const Instruction& instruction, uint32_t i, uint32_t s, bool runs, bool ends, bool& is_over) {
    InputCopy input{};
    Slot<Veu>& slot = control.slots[s];
    if (slots_used >= kSlots) wait_warp(control.free[s], (slots_used / kSlots - 1) & 1u);
    uint16_t body = ends ? kBodyEnd : kBodyNothing;
    uint32_t chunks = 0, awaits = 0;
    if (runs) {
      const Record& record = tables.records[instruction.record];
      if constexpr (kFills) {
        body = record.body;
        chunks = record.chunks_per_rtask;
        awaits = record.awaits_inputs;
      }
      if constexpr (Veu::kInputStages > 0) {
        input = record.input;
        if (kFills && input.boxes != 0) Boxes<Veu>::prefetch(launch.maps + input.map);
      }
      if constexpr (kFills) {
        const uint4* const from = static_cast<const uint4*>(record.args);
        for (int w = lane; w < record.args_bytes / 16; w += kWarp) reinterpret_cast<uint4*>(slot.args)[w] = from[w];
        if constexpr (kHasExtents<Veu>) patch_arguments(control, instruction, slot.args, lane);
      }
    }
    if (lane == 0) {
      if constexpr (kFills) {
        slot.task.index = instruction.index;
        slot.task.record = instruction.record;
        if constexpr (kMakesTokens<Veu>) slot.task.epoch = epoch;
        slot.task.weights.next = chunk;
        slot.task.inputs.next = input_chunk;
        slot.body = body;
        if constexpr (kSignalsApart<Veu>) slot.has_boxes = input.boxes != 0;
        slot.task.awaited_phase = inputs_phases >> s & 1u;
        slot.inputs_phase = input.boxes != 0 || awaits != 0 ? kStartsEarly : inputs_phases >> s & 1u;
        slot.signal = instruction.signal;
        slot.instruction = i;
      }
      if constexpr (OVER_INPUTS) {
        is_over = runs && tables.records[instruction.record].over_inputs != 0;
        if constexpr (kFills) slot.task.work = is_over ? input_stages : input_stages + Veu::kInputStages * Veu::kInputStageBytes;
        if (is_over && input.boxes == 0) over = slots_used + 1;
      }
    }
    if constexpr (kFills) {
      __syncwarp();
      if (kEachArrives || lane == 0) arrive(control.ready[s]);
    }
    chunk += chunks;
    ++slots_used;
    return input;
  }
  // Counts what the warp that waits for events does behind them.
  RK_INLINE void count_inputs(const Instruction& instruction, const InputCopy& input, uint32_t s, bool uses_slot) {
    if constexpr (Veu::kInputStages > 0) {
      if (input.boxes != 0)
        input_chunk += (Boxes<Veu>::first(input, instruction.index).boxes + input.boxes_per_chunk - 1) / input.boxes_per_chunk;
    }
    if (input.boxes == 0 && uses_slot) inputs_phases ^= 1u << s;
  }
  // At the end of the lane: whether it begins again, as in another launch.
  RK_INLINE bool next_run(uint32_t runs) {
    bool again;
    if constexpr (ROLE == Waiter::fills)
      again = hear_run<true>(control, runs);
    else
      again = decide_run(launch, tables, control, runs);
    epoch = control.epoch;
    return again;
  }
  // The signal of a rTask that has nothing to do. Whoever sees it may count on all that stands before it in the lane, so that must be done.
  RK_INLINE void signal_behind(uint16_t event) const {
    const uint32_t last = slots_used - 1;
    if (slots_used > 0) wait(control.free[last % kSlots], (last / kSlots) & 1u);
    signal(event_word(launch, event));
  }
  // Waits for the events; copies the boxes behind them, or says that the inputs are there.
  RK_INLINE void await(const Instruction& instruction, const InputCopy& input, uint32_t i, uint32_t s, bool runs, bool uses_slot,
                       bool is_over) {
    [[maybe_unused]] typename Boxes<Veu>::Place place{};
    [[maybe_unused]] typename Boxes<Veu>::Copies copies{};
    if constexpr (Veu::kInputStages > 0) {
      if (input.boxes != 0) {
        place = Boxes<Veu>::first(input, instruction.index);
        copies = Boxes<Veu>::begin(launch.maps + input.map, input, place, input_chunk, control, input_stages);
      }
    }
    if (runs) trace(launch, i, kTraceWaiting);
    wait_for_events(launch, tables, instruction, Epochs<Veu>{tables, control, epoch}, [&] {
      if (!OVER_INPUTS || input.boxes == 0) return;
      if (over != 0) wait_for_inputs_room(control, over - 1, slots_used - 1);
      over = is_over ? slots_used : 0;
    });
    if (runs) trace(launch, i, kTraceInputsReady);
    if constexpr (Veu::kInputStages > 0) {
      if (input.boxes != 0) accesses_of<Veu>(control, instruction.record, instruction.index);
      if (input.boxes != 0) input_chunk = Boxes<Veu>::copy(input, place, copies, input_chunk);
    }
    if (uses_slot && input.boxes == 0) {  // with boxes the compute warps do not wait for `inputs`
      arrive(control.inputs[s]);
      inputs_phases ^= 1u << s;
    }
  }
};

template <class Veu, bool OVER_INPUTS, Waiter ROLE>
RK_INLINE void run_waiter(const Launch& launch, const Tables& tables, Control<Veu>& control, char* input_stages) {
  LaneWaiter<Veu, OVER_INPUTS, ROLE> waiter{launch, tables, control, input_stages, control.epoch, lane_id()};
  const uint32_t end = tables.lane_begin[control.veu + 1];
  [[maybe_unused]] uint32_t turns = 0, runs = 0;
#pragma unroll 1
  for (uint32_t i = tables.lane_begin[control.veu]; i <= end; ++i) {
    if constexpr (kMakesTokens<Veu>) {
      const bool has_lane = tables.lane_begin[control.veu] != end;
      if (i == end && has_lane && waiter.next_run(runs++)) i = tables.lane_begin[control.veu];
    }
    Instruction instruction = {kNone16, kNone16, 0, {kNone16, kNone16, kNone16}, 0};
    if (i < end) instruction = fetch(tables.instructions + i);
    if constexpr (kLoopsOf < Veu >> 0) {
      if (is_turn(instruction)) {
        i += rows_of_turn(instruction, take_turn(launch, instruction, Epochs<Veu>{tables, control, waiter.epoch}, control, turns++));
        continue;
      }
    }
    bool is_behind = false;  // the rTask has nothing to do: the waiter signals itself, and the compute warps know nothing of it
    if constexpr (kHasExtents<Veu>) {
      static_assert(ROLE == Waiter::both, "programs with lengths have no words");
      is_behind = instruction.record != kNone16 && take_end(control, instruction);
      if (is_behind) instruction.record = kNone16;
    }
    const bool runs = instruction.record != kNone16;
    const bool uses_slot = runs || (instruction.signal != kNone16 && !is_behind) || i == end;
    const uint32_t s = waiter.slots_used % kSlots;
    bool is_over = false;
    InputCopy input{};
    if (uses_slot) input = waiter.fill(instruction, i, s, runs, i == end, is_over);
    if constexpr (ROLE == Waiter::fills) {
      waiter.count_inputs(instruction, input, s, uses_slot);
    } else {
      if (waiter.lane == 0) waiter.await(instruction, input, i, s, runs, uses_slot, is_over);
      if constexpr (kHasExtents<Veu>) {
        if (is_behind && waiter.lane == 0 && instruction.signal != kNone16) waiter.signal_behind(instruction.signal);
      }
      __syncwarp();
    }
  }
  // Until the lane's last slot is free, for the limit that this wait has: a loop of products has none (wait_warp_for_both).
  const uint32_t last = waiter.slots_used - 1;
  if (ROLE != Waiter::waits && waiter.lane == 0) wait(control.free[last % kSlots], (last / kSlots) & 1u);
}

// The last vEU to leave advances the epoch, and the words of loops. Where runs make tokens, who decides that none follows does it.
template <class Veu>
RK_INLINE void leave(const Launch& launch, const Control<Veu>& control) {
  if constexpr (kMakesTokens<Veu>) return;  // the leader does it
#if defined(__CUDA_ARCH__) || defined(TAMP_CUDA_ON_CPU)
  const uint32_t left = atomicAdd(state_line(launch, kExitLine), 1u) + 1u;
  if (left != control.epoch * gridDim.x) return;
  if constexpr (kLoopsOf < Veu >> 0) leave_loops(launch, control);
  atomicExch(state_line(launch, kEpochLine), control.epoch);
#endif
}

// What follows a body, for one thread: its signal, or the end of the lane. `word`: the event's, if there is one.
template <class Veu>
RK_INLINE void finish_slot(const Launch& launch, const Control<Veu>& control, const Slot<Veu>& slot, uint16_t event, uint32_t* word,
                           bool runs, bool ends) {
  if (event != kNone16) signal(word);
  if (event != kNone16 && runs) trace(launch, slot.instruction, kTraceSignalled);
  if (ends) leave(launch, control);
}

// Signals for the compute warps, slot by slot. Since a body that takes words may end before the Waits of its rTask have passed, the signal
// waits for them: whoever sees it sees all that came before those Waits. One lane calls this.
template <class Veu>
RK_INLINE void run_signaller(const Launch& launch, Control<Veu>& control) {
#pragma unroll 1
  for (uint32_t n = 0;; ++n) {
    const uint32_t s = n % kSlots;
    const Slot<Veu>& slot = control.slots[s];
    wait(control.computed[s], (n / kSlots) & 1u);
    const bool ends = slot.body == kBodyEnd;
    if (!slot.has_boxes) wait(control.inputs[s], slot.task.awaited_phase);
    finish_slot(launch, control, slot, slot.signal, event_word(launch, slot.signal), slot.body < kBodyNothing, ends);
    arrive(control.free[s]);
    if (ends) return;
  }
}

// Runs the bodies. Thread 0 signals. A signal waits until the vEU's stores are seen, 0.5 to 1.5 us, and holds up the next rTask by as much;
// handing over to a warp of its own takes 0.1 us of the critical path, and the next rTask mostly waits for the signals of others at that
// time. With words it does not: there a warp of its own signals.
template <class Program>
RK_INLINE void run_compute(const Launch& launch, Control<typename Program::Veu>& control) {
  using Veu = typename Program::Veu;
#pragma unroll 1
  for (uint32_t n = 0;; ++n) {
    const uint32_t s = n % kSlots;
    Slot<Veu>& slot = control.slots[s];
    wait_warp<Veu::kVotes>(control.ready[s], (n / kSlots) & 1u);
    const uint16_t body = slot.body;
    const uint32_t inputs_phase = slot.inputs_phase;
    if (inputs_phase != kStartsEarly) wait_warp<Veu::kVotes>(control.inputs[s], inputs_phase);
    if (body < kBodyNothing) {
      if (threadIdx.x == 0) trace(launch, slot.instruction, kTraceStarted);
      accesses_of<Veu>(control, slot.task.record, slot.task.index);
      Program::run(body, slot.task);
    }
    // The slot is read again: the body would have to save a value kept over the call, in memory.
    const uint16_t event = slot.signal;
    const bool runs = slot.body < kBodyNothing, ends = slot.body == kBodyEnd;
    uint32_t* const word = event_word(launch, event);  // while the others come
    sync_compute<Veu>();
    if (threadIdx.x == 0) {
      if (runs) trace(launch, slot.instruction, kTraceComputed);
      if constexpr (!kSignalsApart<Veu>) finish_slot(launch, control, slot, event, word, runs, ends);
    }
    if (kEachArrives || threadIdx.x == 0) arrive(kSignalsApart<Veu> ? control.computed[s] : control.free[s]);
    if (ends) return;
  }
}

// The whole kernel.
template <class Program>
RK_INLINE void interpret(const LaunchOf<Program::Veu::kBases>& launch, const Tables& tables) {
  using Veu = typename Program::Veu;
  static_assert(sizeof(Control<Veu>) <= kControlBytes, "the control block does not fit; compiler/ir/vdevice.h: kControlBytes");
  static_assert(Veu::kWorkBytes % 128 == 0 && Veu::kWeightStageBytes % 128 == 0, "stages and work are 128-byte aligned");
  static_assert(Veu::kInputStages == 0 || (Veu::kWeightStages * Veu::kWeightStageBytes + kControlBytes) % 1024 == 0,
                "boxes are 1024-byte aligned");
  char* const shared = shared_memory();
  Control<Veu>& control = *reinterpret_cast<Control<Veu>*>(shared);
  char* const stages = shared + kControlBytes;
  char* const input_stages = stages + Veu::kWeightStages * Veu::kWeightStageBytes;
  char* const work = input_stages + Veu::kInputStages * Veu::kInputStageBytes;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kSlots; ++s) {
      init(control.ready[s], kEachArrives ? kWarp : 1);
      init(control.inputs[s], 1);
      init(control.free[s], kEachArrives && !kSignalsApart<Veu> ? Veu::kComputeThreads : 1);
      init(control.computed[s], kEachArrives ? Veu::kComputeThreads : 1);
    }
    for (int s = 0; s < Veu::kWeightStages; ++s) {
      init(control.full[s], kCopyLanes);
      init(control.empty[s], kWarpsArrive<Veu>);
    }
    for (int s = 0; s < Veu::kInputStages; ++s) {
      init(control.input_full[s], 1);
      init(control.input_empty[s], kWarpsArrive<Veu>);
    }
    control.veu = this_veu(launch);
    control.epoch = poll(state_line(launch, kEpochLine)) + 1u;
    if constexpr (kLoopsOf < Veu >> 0) begin_loops(launch, tables, control);
    if constexpr (kMakesTokens<Veu>) begin_runs(control);
    for (Slot<Veu>& slot : control.slots) {  // the waiter changes the members that differ from rTask to rTask
      slot.task = {0,
                   slot.args,
                   work,
                   control.bases,
                   WeightPipe<Veu>{stages, control.full, control.empty, 0},
                   &launch,
                   control.epoch,
                   0,
                   InputRing{input_stages, control.input_full, control.input_empty, 0},
                   control.inputs + (&slot - control.slots),
                   0};
    }
  }
  share_bases<Veu>(control, launch.bases, static_cast<int>(threadIdx.x), kThreadsOf<Veu>);
  sync_all();
  if constexpr (Veu::kCluster > 1) begin_cluster(control);  // cluster.cuh
  constexpr int kLoader = Veu::kComputeThreads / kWarp;
  const int warp = warp_id();
  if (warp < kLoader) {
    take_registers<Veu>();
    run_compute<Program>(launch, control);
    return;
  }
  give_registers<Veu>();
  if (warp == kLoader) run_loader<Veu>(launch, tables, control, stages);
  constexpr Waiter kFirst = kSignalsApart<Veu> ? Waiter::fills : Waiter::both;
  if (warp == kLoader + 1) run_waiter<Veu, Program::kOverInputs, kFirst>(launch, tables, control, input_stages);
  if constexpr (kSignalsApart<Veu>) {
    if (warp == kLoader + 2) run_waiter<Veu, Program::kOverInputs, Waiter::waits>(launch, tables, control, input_stages);
    if (warp == kLoader + 3 && lane_id() == 0) run_signaller<Veu>(launch, control);
  }
}

}  // namespace rk
