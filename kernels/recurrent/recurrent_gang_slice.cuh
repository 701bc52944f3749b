// A warp's slice of a vector (the input of a step, or the hidden state) on its way to shared memory. ask() starts the loads early, take()
// waits for them late and stores them, so that the warp works in between. A lane loads pairs of neighbouring elements. Elements of the
// slice behind the vector's end are not stored: they stay zero in shared memory.
// Example: a slice of 96 elements is 48 pairs, so two loads a lane and row. Lane 5 has elements 10, 11 in load 0 and 2 * (5 + 32) = 74, 75
// in load 1. Lane 20 has elements 40, 41 in load 0 and none in load 1, since 2 * (20 + 32) = 104.
//
// Odd: a lane that has nothing to read reads an element of another lane. A load under a condition would be waited for at once, since
// its result has to be merged with what the registers held before.
#pragma once

#include "kernels/recurrent/recurrent_gang_shape.cuh"
#include "kernels/vdevice/exchange.cuh"

namespace rk {

// Elements [w * SLICE, +SLICE) of SIZE for BATCH rows, w = warp. In shared memory: [row][SLICE].
template <int SIZE, int SLICE, int BATCH>
struct GangSlice {
  static constexpr int kPairs = (SLICE / 2 + kWarp - 1) / kWarp;
  static constexpr int kLoads = kPairs * BATCH;
  static constexpr bool kAhead = kLoads <= 4;  // few enough for all results to wait in registers
  static constexpr int kAtOnce = kLoads == 0 ? 1 : kAhead ? kLoads : 4;
  static constexpr int kLast = SIZE - (kGangWarps - 1) * SLICE;  // elements of the last warp

  static RK_INLINE int local_of(int load) { return 2 * (lane_id() + kWarp * (load % kPairs)); }
  static RK_INLINE int start() { return warp_id() * SLICE; }
  // Whether element `local_of(load) + next` is inside the slice and the vector.
  static RK_INLINE bool has(int load, int next) {
    if (kLast == SLICE) return (load % kPairs + 1) * 2 * kWarp <= SLICE || local_of(load) < SLICE;
    return local_of(load) < SLICE && start() + local_of(load) + next < SIZE;
  }
  // The element that `load` reads; if this lane has none, some element that exists.
  static RK_INLINE int place_of(int load) { return has(load, 0) ? start() + local_of(load) : kLast > 0 ? start() : 0; }

  static RK_INLINE void put(float* stage, int load, float2 v) {
    if (!has(load, 0)) return;
    float* const to = stage + load / kPairs * SLICE + local_of(load);
    if (SIZE % 2 == 0 || has(load, 1)) {
      *reinterpret_cast<float2*>(to) = v;
    } else {
      *to = v.x;
    }
  }
};

// A number as a type, so that a function is compiled for each number: an array in registers needs constant indices.
template <int N>
struct GangNumber {};

// A slice read from words, kRow words a row. `at` is the start of the first row or, with one load a row, the word that the lane reads in
// the first row. A poll takes about as long as words take to come, so up to POLLS polls are under way, started one after the other.
template <int SIZE, int SLICE, int BATCH, int POLLS>
struct GangWords : GangSlice<SIZE, SLICE, BATCH> {
  using Slice = GangSlice<SIZE, SLICE, BATCH>;
  static constexpr int kRow = static_cast<int>(gang_word_row(SIZE));
  static constexpr bool kOne = Slice::kPairs == 1;
  static constexpr int kPolls = Slice::kLoads == 1 ? POLLS : Slice::kLoads == 2 && POLLS > 1 ? 2 : 1;
  using Poll = WordPair[Slice::kAtOnce];
  const uint64_t* at;
  Poll polls[kPolls];

  RK_INLINE void begin(const uint64_t* words) { at = words + (kOne ? Slice::place_of(0) : 0); }
  RK_INLINE WordPair poll_load(int64_t offset, int load, int rows) const {
    const int row = load / Slice::kPairs < rows ? load / Slice::kPairs : 0;
    return poll_words(at + (offset + row * kRow + (kOne ? 0 : Slice::place_of(load))));
  }
  static RK_INLINE bool is_complete(const WordPair& pair, int load, uint32_t epoch) {
    return is_there(pair.first, epoch) && (is_there(pair.second, epoch) || (SIZE % 2 != 0 && !Slice::has(load, 1)));
  }
  static RK_INLINE void put_words(float* stage, int load, const WordPair& pair) {
    Slice::put(stage, load, float2{value_of(pair.first), value_of(pair.second)});
  }

  // Starts poll N (nothing if N is kPolls or more). `offset` is in words, that of the first of `rows` rows.
  template <int N>
  RK_INLINE void ask(GangNumber<N>, int64_t offset, int rows) {
    if constexpr (Slice::kAhead && N < kPolls) {
#pragma unroll
      for (int i = 0; i < Slice::kLoads; ++i) polls[N][i] = poll_load(offset, i, rows);
    }
  }
  // Waits until no poll is under way. Until this call the polls' registers have no other use, since any other use would have to wait.
  RK_INLINE void settle() const {
#if defined(__CUDA_ARCH__)
#pragma unroll
    for (int n = 0; n < kPolls; ++n) {
#pragma unroll
      for (int i = 0; i < Slice::kAtOnce; ++i) asm volatile("" ::"l"(polls[n][i].first), "l"(polls[n][i].second));
    }
#endif
  }

  static RK_INLINE bool is_done(const Poll& poll, uint32_t epoch) {
    bool done = true;
#pragma unroll
    for (int i = 0; i < Slice::kAtOnce; ++i) done = done && (!Slice::has(i, 0) || is_complete(poll[i], i, epoch));
    return done;
  }
  static RK_INLINE void put_all(float* stage, const Poll& poll) {
#pragma unroll
    for (int i = 0; i < Slice::kLoads; ++i) put_words(stage, i, poll[i]);
  }
  template <int N>
  RK_INLINE bool take_poll(uint32_t epoch, int64_t offset, int rows, float* stage) {
    if (__all_sync(kFullMask, is_done(polls[N], epoch))) {
      put_all(stage, polls[N]);
      return true;
    }
    ask(GangNumber<N>{}, offset, rows);
    if constexpr (N + 1 < kPolls) return take_poll<N + 1>(epoch, offset, rows, stage);
    return false;
  }
  // All polls have been asked. In a draining program it stores nothing.
  template <class Veu>
  RK_INLINE void take_polls(const Task<Veu>& task, int64_t offset, int rows, float* stage) {
    Patience patience;
    while (!take_poll<0>(task.epoch, offset, rows, stage)) {
      if (!__all_sync(kFullMask, patience.lasts(task, polls[0][0].first))) break;
    }
  }
  // Any number of loads, each waited for in turn.
  template <class Veu>
  RK_INLINE void take_loads(const Task<Veu>& task, int64_t offset, int rows, float* stage) {
#pragma unroll 1
    for (int first = 0; first < Slice::kLoads; first += Slice::kAtOnce) {
      Poll& seen = polls[0];
#pragma unroll
      for (int i = 0; i < Slice::kAtOnce; ++i) {
        if (!Slice::kAhead && first + i < Slice::kLoads) seen[i] = poll_load(offset, first + i, rows);
      }
#pragma unroll
      for (int i = 0; i < Slice::kAtOnce; ++i) {
        const int load = first + i;
        if (load >= Slice::kLoads) break;
        Patience patience;
        while (Slice::has(load, 0) && !is_complete(seen[i], load, task.epoch) && patience.lasts(task, seen[i].first)) {
          seen[i] = poll_load(offset, load, rows);
        }
        put_words(stage, load, seen[i]);
      }
    }
  }
  template <class Veu>
  RK_INLINE void take(const Task<Veu>& task, int64_t offset, int rows, float* stage) {
    if constexpr (Slice::kLoads <= 2) {
      take_polls(task, offset, rows, stage);
    } else {
      take_loads(task, offset, rows, stage);
    }
    __syncwarp();
  }
};

// A slice read from a tensor. `at` is the start of the first row.
template <int SIZE, int SLICE, int BATCH>
struct GangTensor : GangSlice<SIZE, SLICE, BATCH> {
  using Slice = GangSlice<SIZE, SLICE, BATCH>;
  const float* at;
  int row, k;  // strides
  float2 seen[Slice::kAtOnce];

  RK_INLINE void begin(const float* x, int row_stride, int k_stride) {
    row = row_stride;
    k = k_stride;
    at = x;
  }
  RK_INLINE float2 load_pair(int64_t offset, int load, int rows) const {
    const float* const from = at + (offset + (load / Slice::kPairs < rows ? load / Slice::kPairs : 0) * row);
    const int place = Slice::place_of(load);
    return float2{load1(from + place * k), load1(from + (SIZE % 2 == 0 || Slice::has(load, 1) ? place + 1 : 0) * k)};
  }
  RK_INLINE void ask(int64_t offset, int rows) {
    if constexpr (Slice::kAhead) {
#pragma unroll
      for (int i = 0; i < Slice::kLoads; ++i) seen[i] = load_pair(offset, i, rows);
    }
  }
  RK_INLINE void take(int64_t offset, int rows, float* stage) {
#pragma unroll 1
    for (int first = 0; first < Slice::kLoads; first += Slice::kAtOnce) {
#pragma unroll
      for (int i = 0; i < Slice::kAtOnce; ++i) {
        if (!Slice::kAhead && first + i < Slice::kLoads) seen[i] = load_pair(offset, first + i, rows);
      }
#pragma unroll
      for (int i = 0; i < Slice::kAtOnce; ++i) {
        if (first + i < Slice::kLoads) Slice::put(stage, first + i, seen[i]);
      }
    }
    __syncwarp();
  }
};

}  // namespace rk
