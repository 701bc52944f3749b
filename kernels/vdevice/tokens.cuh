// Programs that make tokens (docs/adr/0051): a run makes one, and the kernel repeats the run. At the end of its lane each vEU has signalled
// the boundary. One of them, the leader, waits for all these signals, looks at the token, puts what changes into the inputs of the next
// run, and says whether there is one. Then each begins its lane again with the next epoch, as in another launch. In a launch without a
// TokenRequest one run is all.
//
// Example: a prompt of 3 tokens, and 2 to be made. Runs 1 and 2 are given tokens 0 and 1 of the prompt, and what they draw counts for
// nothing; run 3 is given token 2 and makes a token, which run 4 is given. Run 4 makes the second one, and the kernel ends.
#pragma once

#include "kernels/vdevice/cells.cuh"
#include "kernels/vdevice/interpreter.cuh"

namespace rk {

inline constexpr uint32_t kMostStops = 16;

struct TokenRequest {
  const int64_t* prompt;
  uint32_t prompt_count, most_tokens, stop_count;
  int64_t stops[kMostStops];
  int64_t first_position;  // of the prompt's first token
  // In host memory: a place for each token, -1 until it is there; not 0 where the caller cancels; how many runs there were, in the end.
  int64_t* made;
  const uint32_t* cancel;
  uint32_t* runs;
};

// What the next run finds in element `element` of an input: its token, its position plus `plus`, or a 1 that many elements farther.
enum AdvanceKind : uint32_t { kAdvanceToken, kAdvancePosition, kMarkPosition, kMarkToken };  // in tables
struct InputAdvance {                                                                        // in tables
  uint32_t base, type;                                                                       // the port's; ElementType
  AdvanceKind kind;
  int64_t element, plus;
};
// An output that the next run reads as an input, in memory of its own: both change places.
struct PortSwap {  // in tables
  uint32_t input, output;
};

RK_INLINE void store_to_host(int64_t* place, int64_t value) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.relaxed.sys.global.s64 [%0], %1;" ::"l"(place), "l"(value) : "memory");
#else
  __atomic_store_n(place, value, __ATOMIC_RELEASE);
#endif
}
RK_INLINE void store_to_host(uint32_t* place, uint32_t value) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(place), "r"(value) : "memory");
#else
  __atomic_store_n(place, value, __ATOMIC_RELEASE);
#endif
}
RK_INLINE uint32_t load_from_host(const uint32_t* place) {
#if defined(__CUDA_ARCH__)
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
  return value;
#else
  return __atomic_load_n(place, __ATOMIC_ACQUIRE);
#endif
}

// All that was stored before is seen by who acquires the word.
RK_INLINE void publish_decision(uint32_t* word, uint32_t value) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
#elif defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::publish(word, value);
#endif
}

template <class Veu>
RK_INLINE uint64_t base_of(const Control<Veu>& control, uint32_t number) {
  if constexpr (Veu::kBases > Veu::kSharedBases) {
    if (number >= static_cast<uint32_t>(Veu::kSharedBases))
      return reinterpret_cast<const uint64_t*>(control.bases[Veu::kSharedBases])[number];
  }
  return control.bases[number];
}

// One thread.
template <class Veu>
RK_INLINE void begin_runs(Control<Veu>& control) {
  init(control.decided, 1);
  init(control.heard, kSignalsApart<Veu> ? 2 : 1);
}

// The token that follows run number `runs`, from 0, and whether it is the last that is wanted.
template <class Veu>
RK_INLINE bool take_token(const TokenRequest& request, const Control<Veu>& control, uint32_t runs, int64_t& token) {
  const uint32_t fed = runs + 1;
  if (fed < request.prompt_count) {
    token = load_cell(request.prompt + fed);
    return true;
  }
  const uint32_t made = fed - request.prompt_count;
  token = static_cast<int64_t>(load_cell(reinterpret_cast<const uint64_t*>(base_of(control, Veu::kTokenBase))));
  store_to_host(request.made + made, token);
  bool again = made + 1 < request.most_tokens;
  for (uint32_t s = 0; s < request.stop_count; ++s) again = again && request.stops[s] != token;
  return again;
}

template <class Veu>
RK_INLINE void advance_inputs(const TokenRequest& request, const Control<Veu>& control, uint32_t runs, int64_t token) {
  const int64_t position = request.first_position + runs + 1;
#pragma unroll 1
  for (int a = 0; a < Veu::kAdvanceCount; ++a) {
    const InputAdvance& advance = Veu::advances()[a];
    const bool marks = advance.kind == kMarkPosition || advance.kind == kMarkToken;
    const int64_t number = advance.kind == kAdvanceToken || advance.kind == kMarkToken ? token : position + advance.plus;
    store_number(reinterpret_cast<void*>(base_of(control, advance.base)), advance.element + (marks ? number : 0), advance.type,
                 marks ? int64_t{1} : number);
  }
}

// The leader's part, behind the boundary.
template <class Veu>
RK_INLINE bool lead(const Launch& launch, const Tables& tables, const Control<Veu>& control, uint32_t runs) {
  const Instruction boundary = {kNone16, kNone16, 0, {Veu::kBoundary, kNone16, kNone16}, 0};
  wait_for_events(launch, tables, boundary, Epochs<Veu>{tables, control, control.epoch}, [] {});
  bool again = false;
  uint32_t* const line = state_line(launch, kTokenLine);
  if (launch.tokens != nullptr) {
    const TokenRequest& request = *launch.tokens;
    int64_t token = 0;
    again = take_token(request, control, runs, token) && poll(line + kCancelWord) == 0;
    if (again) advance_inputs(request, control, runs, token);
    if (!again) store_to_host(request.runs, runs + 1);
    publish_decision(line + kRunsWord, runs + 1);
  }
  again = again && poll(state_line(launch, kDrainLine)) == 0;
  if (!again) publish_decision(state_line(launch, kEpochLine), control.epoch);  // all have begun, and read it then
  if (launch.tokens != nullptr) publish_decision(line + kDecisionWord, 2 * control.epoch + (again ? 1 : 0));
  return again;
}

// The others wait for the decision; in a program that drains no run follows.
template <class Veu>
RK_INLINE bool follow(const Launch& launch, const Control<Veu>& control) {
  if (launch.tokens == nullptr) return false;
  const uint32_t* const word = state_line(launch, kTokenLine) + kDecisionWord;
  const uint32_t* const drain = state_line(launch, kDrainLine);
  const uint32_t wanted = 2 * control.epoch;
  uint32_t seen = poll_event(word), spins = 0;
  uint64_t start = 0;
  for (; static_cast<int32_t>(seen - wanted) < 0; seen = poll_event(word)) {
#if defined(TAMP_CUDA_ON_CPU)
    if (poll(drain) != 0) return false;
    if (cuda_on_cpu::stuck()) {
      give_up(launch, kNone16, 0, kDecision, seen, wanted);
      return false;
    }
#else
    if ((++spins & 255u) != 0) continue;
    if (poll(drain) != 0) return false;
    if (start == 0) start = now_ns();
    if (now_ns() - start <= launch.wait_budget_ns) continue;
    give_up(launch, kNone16, 0, kDecision, seen, wanted);
    return false;
#endif
  }
  acquire_events();
  (void)start, (void)spins;
  return (seen & 1u) != 0;
}

// The warp that waits for events, at the end of its lane: whether run number `runs` + 1 follows. By then all lanes are done with this one,
// so nobody in this vEU uses what changes.
template <class Veu>
RK_INLINE bool decide_run(const Launch& launch, const Tables& tables, Control<Veu>& control, uint32_t runs) {
  uint32_t again = 0;
  if (lane_id() == 0) {
    // Reading host memory takes a microsecond: one vEU does it, before it is certain that it has to wait.
    if (control.veu == Veu::kWatcher && launch.tokens != nullptr && load_from_host(launch.tokens->cancel) != 0)
      publish_decision(state_line(launch, kTokenLine) + kCancelWord, 1);
    again = control.veu == Veu::kLeader ? lead(launch, tables, control, runs) : follow(launch, control);
    if (runs > 0) wait(control.heard, (runs - 1u) & 1u);
    if (again != 0) {
      for (int s = 0; s < Veu::kSwapCount; ++s) {
        const PortSwap swap = Veu::swaps()[s];
        const uint64_t input = control.bases[swap.input];
        control.bases[swap.input] = control.bases[swap.output];
        control.bases[swap.output] = input;
      }
      ++control.epoch;
    }
    control.again = again;
    arrive(control.decided);
  }
  again = __shfl_sync(kFullMask, again, 0);
  return again != 0;
}

// The same for the loader (one lane, or the warp), and for the warp that fetches arguments where that is another one.
template <bool WARP, class Veu>
RK_INLINE bool hear_run(Control<Veu>& control, uint32_t runs) {
  if constexpr (WARP)
    wait_warp(control.decided, runs & 1u);
  else
    wait(control.decided, runs & 1u);
  const bool again = control.again != 0;
  if constexpr (WARP) __syncwarp();
  if (lane_id() == 0) arrive(control.heard);
  return again;
}

}  // namespace rk
