// Values that are their own flags, for rows that are needed as soon as they are made (compiler/schedule/words.h). A word is a float with
// all its bits inverted; 0 says that it is not there. So a reader that finds another number has the value: no event, no fence, one trip
// through L2, and no more bytes than the value itself. Finding a word says nothing about other memory.
//
// A program has all its words twice, Veu::kWordsBytes apart, and runs take turns: run 1 publishes in the second copy, run 2 in the first.
// Who publishes a word clears it in the other copy, which nobody reads in this run. So each run finds its copy empty. All words are 0
// before the first run. Exactly one thread publishes a word, once in a run.
//
// Example: 1.5 is 0x3fc00000, its word 0xc03fffff. The float with all bits set, a NaN, would be 0; another NaN is published for it.
#pragma once

#include "kernels/vdevice/exchange.cuh"

namespace rk {

RK_INLINE uint32_t word_of(float value) {
  const uint32_t word = ~__float_as_uint(value);
  return word == 0 ? 0x80000000u : word;
}
RK_INLINE float value_of(uint32_t word) { return __uint_as_float(~word); }
RK_INLINE float4 values_of(const uint4& words) {
  return float4{value_of(words.x), value_of(words.y), value_of(words.z), value_of(words.w)};
}
RK_INLINE bool are_there(const uint4& words) { return words.x != 0 && words.y != 0 && words.z != 0 && words.w != 0; }

// Where this run's words of a tensor begin.
template <class Veu>
RK_INLINE uint32_t* words_at(const Task<Veu>& task, const TensorRef& ref) {
  return reinterpret_cast<uint32_t*>(task.address(ref)) + (task.epoch & 1u) * (Veu::kWordsBytes / 4);
}

// `word`: in this run's copy.
template <class Veu>
RK_INLINE void publish_value(const Task<Veu>& task, uint32_t* word, float value) {
  uint32_t* const other = (task.epoch & 1u) != 0 ? word - Veu::kWordsBytes / 4 : word + Veu::kWordsBytes / 4;
#if defined(__CUDA_ARCH__)
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(word_of(value)) : "memory");
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(other), "r"(0u) : "memory");
#elif defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::publish(word, word_of(value));
  cuda_on_cpu::publish(other, 0u);
#endif
}

RK_INLINE uint32_t poll_value(const uint32_t* word) {
#if defined(__CUDA_ARCH__)
  uint32_t seen;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(word) : "memory");
  return seen;
#elif defined(TAMP_CUDA_ON_CPU)
  return cuda_on_cpu::poll_word(word);
#else
  return *word;
#endif
}

// Four neighbours, 16-byte aligned. Each word is read whole; they may be of different times.
RK_INLINE uint4 poll_values(const uint32_t* words) {
#if defined(__CUDA_ARCH__)
  uint4 seen;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(seen.x), "=r"(seen.y), "=r"(seen.z), "=r"(seen.w)
               : "l"(words)
               : "memory");
  return seen;
#else
  return {poll_value(words), poll_value(words + 1), poll_value(words + 2), poll_value(words + 3)};
#endif
}

// Waits for a word of which `seen` was seen before, and returns its value. In a draining program it returns at once, with any number.
template <class Veu>
RK_INLINE float await_value(const Task<Veu>& task, const uint32_t* word, uint32_t seen) {
  Patience patience;
  while (seen == 0 && patience.lasts(task, seen)) seen = poll_value(word);
  return value_of(seen);
}

// COUNT times four neighbours, polled for the first time when this is made: a body that then does something else finds them the sooner.
template <int COUNT>
struct PolledValues {
  uint4 seen[COUNT];

  RK_INLINE explicit PolledValues(const uint32_t* const (&words)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) seen[i] = poll_values(words[i]);
  }
  // Waits for them. All loads are under way together, and those that found their words are not made again.
  template <class Veu>
  RK_INLINE void await(const Task<Veu>& task, const uint32_t* const (&words)[COUNT], float4 (&to)[COUNT]) {
    Patience patience;
    const auto all_there = [&] {
      bool there = true;
#pragma unroll
      for (int i = 0; i < COUNT; ++i) there = there && are_there(seen[i]);
      return there;
    };
    while (!all_there() && patience.lasts(task, 0)) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        if (!are_there(seen[i])) seen[i] = poll_values(words[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) to[i] = values_of(seen[i]);
  }
};
template <int COUNT, class Veu>
RK_INLINE void await_values(const Task<Veu>& task, const uint32_t* const (&words)[COUNT], float4 (&to)[COUNT]) {
  PolledValues<COUNT>(words).await(task, words, to);
}

}  // namespace rk
