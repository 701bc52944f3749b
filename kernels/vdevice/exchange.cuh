// Data-as-flag between the rTasks of a gang (compiler/ir/rkernel.h): a word of 8 bytes carries a float in its low half and the
// epoch in its high half. One store publishes both, so a reader that finds this run's epoch has the value: no event, no
// fence, one trip through L2. Every word is written once in a run, so readers never have to say that they are done with a word. Words
// are zero before the first run, and the first run has epoch 1. Finding a word says nothing about other memory.
// Example: 1.5 in run 3 is the word 0x00000003'3fc00000; a reader of run 4 polls until the high half is 4.
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

// Two neighbouring words, 16-byte aligned. Each word is read whole; the two may be of different times.
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

// How long one thread waits for words. lasts() is false once the program drains, because of this wait or of another one.
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

// Waits for a word of this run and returns its value. In a draining program it returns at once, with any number.
template <class Veu>
RK_INLINE float await_word(const Task<Veu>& task, const uint64_t* word) {
  uint64_t seen = poll_word(word);
  Patience patience;
  while (!is_there(seen, task.epoch) && patience.lasts(task, seen)) seen = poll_word(word);
  return value_of(seen);
}

}  // namespace rk
