// Data-as-flag between the rTasks of a gang (compiler/ir/rkernel.h): a word of 8 bytes carries a float in its low half and the
// epoch in its high half. One store publishes both, so a reader that finds this run's epoch has the value: no event, no
// fence, one trip through L2. Every word is written once in a run, so nothing is ever handed back; words are zero before the
// first run, whose epoch is 1. What a reader finds orders nothing but the word itself.
#pragma once

#include "kernels/vdevice/task.cuh"

namespace rk {

struct WordPair {
  uint64_t first, second;
};

RK_INLINE uint64_t make_word(float value, uint32_t epoch) { return (static_cast<uint64_t>(epoch) << 32) | __float_as_uint(value); }
RK_INLINE float value_of(uint64_t word) { return __uint_as_float(static_cast<uint32_t>(word)); }
RK_INLINE bool is_there(uint64_t word, uint32_t epoch) { return static_cast<uint32_t>(word >> 32) == epoch; }

RK_INLINE void publish(uint64_t* word, float value, uint32_t epoch) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(make_word(value, epoch)) : "memory");
#elif defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::publish(word, make_word(value, epoch));
#endif
}

RK_INLINE uint64_t poll_word(const uint64_t* word) {
#if defined(__CUDA_ARCH__)
  uint64_t seen;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(seen) : "l"(word) : "memory");
  return seen;
#elif defined(TAMP_CUDA_ON_CPU)
  return cuda_on_cpu::poll(word);
#else
  return *word;
#endif
}

// Two neighbours, 16-byte aligned; each is whole, the pair need not be.
RK_INLINE WordPair poll_words(const uint64_t* words) {
#if defined(__CUDA_ARCH__)
  WordPair seen;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(seen.first), "=l"(seen.second) : "l"(words) : "memory");
  return seen;
#else
  return {poll_word(words), poll_word(words + 1)};
#endif
}

// Lets some clocks pass, so that two polls that follow each other see different times.
RK_INLINE void pause(int clocks) {
#if defined(__CUDA_ARCH__)
  const int start = static_cast<int>(clock());
  while (static_cast<int>(clock()) - start < clocks) {
  }
#else
  (void)clocks;
#endif
}

// The patience of one waiting thread: false once the program drains, because of this wait or of another one.
struct Patience {
  uint32_t spins = 0;
  uint64_t start = 0;

  template <class Veu>
  RK_INLINE bool lasts(const Task<Veu>& task, uint64_t seen) {
#if defined(TAMP_CUDA_ON_CPU)
    if (poll(state_line(*task.launch, kDrainLine)) != 0) return false;
    if (!cuda_on_cpu::stuck()) return true;
#else
    if (__builtin_expect((++spins & 1023u) != 0, 1)) return true;
    if (poll(state_line(*task.launch, kDrainLine)) != 0) return false;
    const uint64_t now = now_ns();
    if (start == 0) start = now;
    if (now - start <= task.launch->wait_budget_ns) return true;
#endif
    give_up(*task.launch, task.record, task.index, kExchange, static_cast<uint32_t>(seen >> 32), task.epoch);
    return false;
  }
};

// The value of a word, when it is there. In a draining program at once, and then it is any number.
template <class Veu>
RK_INLINE float await_word(const Task<Veu>& task, const uint64_t* word) {
  uint64_t seen = poll_word(word);
  Patience patience;
  while (!is_there(seen, task.epoch) && patience.lasts(task, seen)) seen = poll_word(word);
  return value_of(seen);
}

}  // namespace rk
