// Loops in lanes (docs/adr/0050). A lane has a row where it enters a loop, and one where it goes back: a turn. At each the waiter looks at
// the loop's condition, which all that came before has settled by then, and tells the loader. Compute warps get slots and know nothing of
// it.
//
// Example: a loop in rows 4 (enter) to 9 (go back) of a lane. If its condition holds twice, the lane's rows are 4, 5, .., 9, 5, .., 9, 10;
// if it does not hold at first, they are 4, 10. The events in it have the epochs 1 and 2 in the first run, and 3 in the second one if that
// has one iteration.
#pragma once

#include "kernels/vdevice/control.cuh"

namespace rk {

// In which epoch an event's signals are awaited.
template <class Veu>
struct Epochs {
  const Tables& tables;
  const Control<Veu>& control;
  const uint32_t run;

  RK_INLINE uint32_t of(uint32_t event) const {
    if constexpr (kLoopsOf < Veu >> 0) {
      const uint32_t loop = tables.event_loop[event];
      if (loop != 0) return control.iterations[loop - 1];
    }
    return run;
  }
  RK_INLINE void give_up(const Launch& launch, const Instruction& i, uint32_t event, uint32_t seen, uint32_t wanted) const {
    if constexpr (kLoopsOf < Veu >> 0) {
      const uint32_t loop = tables.event_loop[event];
      const uint32_t before = loop == 0 ? 0 : poll(state_line(launch, control.line + loop - 1));
      return rk::give_up(launch, i.record, i.index, event, seen, wanted, loop == 0 ? 0 : control.iterations[loop - 1] - before);
    } else {
      return rk::give_up(launch, i.record, i.index, event, seen, wanted);
    }
  }
};

template <class Epochs, class Meanwhile>
RK_INLINE void wait_for_events(const Launch& launch, const Tables& tables, const Instruction& instruction, const Epochs& epochs,
                               const Meanwhile& meanwhile);  // interpreter.cuh

// How many rows a turn goes on, beyond the next one.
RK_INLINE uint32_t rows_of_turn(const Instruction& turn, bool again) {
  const bool enters = (turn.detail & 1u) != 0;
  if (enters == again) return 0;
  return enters ? turn.index : 0u - turn.index;
}

// One thread.
template <class Veu>
RK_INLINE void begin_loops(const Launch& launch, const Tables& tables, Control<Veu>& control) {
  init(control.decided, 1);
  init(control.heard, 1);
  control.line = kStateLines + tables.events;
  for (int loop = 0; loop < kLoopsOf<Veu>; ++loop)
    control.iterations[loop] = poll(state_line(launch, control.line + static_cast<uint32_t>(loop)));
}

// The waiter's warp takes turn number `turns` of the lane. In a program that drains no iteration follows.
template <class Veu>
RK_INLINE bool take_turn(const Launch& launch, const Instruction& turn, const Epochs<Veu>& epochs, Control<Veu>& control, uint32_t turns) {
  static_assert(!kSignalsApart<Veu>, "one warp waits for events and fills slots");
  uint32_t again = 0;
  if (lane_id() == 0) {
    const uint32_t loop = (turn.detail - 1u) / 2u;
    wait_for_events(launch, epochs.tables, turn, epochs, [] {});
    accesses_of<Veu>(control, kNone16, 0);
    const uint32_t condition = poll(reinterpret_cast<const uint32_t*>(control.bases[kArena] + epochs.tables.conditions[loop]));
    again = (condition & 0xffu) != 0 && poll(state_line(launch, kDrainLine)) == 0;
    if (turns > 0) wait(control.heard, (turns - 1u) & 1u);
    control.again = again;
    control.iterations[loop] += again;
    arrive(control.decided);
  }
  return __shfl_sync(kFullMask, again, 0) != 0;
}

// The loader's side of it.
template <class Veu>
RK_INLINE bool hear_turn(Control<Veu>& control, uint32_t turns) {
  wait_to_copy(control.decided, turns & 1u);
  const bool again = control.again != 0;
  if constexpr (kCopyLanes > 1) __syncwarp();
  if (lane_id() == 0) arrive(control.heard);
  return again;
}

template <class Veu>
RK_INLINE void leave_loops(const Launch& launch, const Control<Veu>& control) {
#if defined(__CUDA_ARCH__) || defined(TAMP_CUDA_ON_CPU)
  for (int loop = 0; loop < kLoopsOf<Veu>; ++loop)
    atomicExch(state_line(launch, control.line + static_cast<uint32_t>(loop)), control.iterations[loop]);
#endif
}

}  // namespace rk
