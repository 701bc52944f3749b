// A warp's slice of a vector (the input of a step, or the hidden state) on its way to shared memory. It is asked for early and
// taken late, so that the time between is not lost. Two neighbouring elements a lane.
#pragma once

#include "kernels/recurrent/recurrent_gang_shape.cuh"
#include "kernels/vdevice/exchange.cuh"

namespace rk {

// Elements [warp * SLICE, +SLICE) of SIZE, for BATCH rows, of which `rows` exist. In shared memory: [row][SLICE], zeros behind SIZE.
template <int SIZE, int SLICE, int BATCH>
struct GangSlice {
  static constexpr int kPairs = (SLICE / 2 + kWarp - 1) / kWarp;
  static constexpr int kLoads = kPairs * BATCH;
  static constexpr bool kAhead = kLoads <= 4;  // all of them wait in registers
  static constexpr int kAtOnce = kLoads == 0 ? 1 : kAhead ? kLoads : 4;

  static RK_INLINE int local_of(int load) { return 2 * (lane_id() + kWarp * (load % kPairs)); }
  static RK_INLINE int element_of(int load) { return warp_id() * SLICE + local_of(load); }
  // Element `element_of(load) + next` is one of the vector's.
  static RK_INLINE bool has(int load, int next, int rows) {
    return local_of(load) < SLICE && element_of(load) + next < SIZE && (BATCH == 1 || load / kPairs < rows);
  }
  static RK_INLINE void put(float* stage, int load, float2 v) {
    if (local_of(load) < SLICE) *reinterpret_cast<float2*>(stage + load / kPairs * SLICE + local_of(load)) = v;
  }
};

// From words; `words` is element 0 of the first row.
template <int SIZE, int SLICE, int BATCH>
struct GangWords : GangSlice<SIZE, SLICE, BATCH> {
  using Slice = GangSlice<SIZE, SLICE, BATCH>;
  WordPair seen[Slice::kAtOnce];

  static RK_INLINE WordPair poll_load(const uint64_t* words, int row, int load) {
    return poll_words(words + load / Slice::kPairs * row + Slice::element_of(load));
  }
  static RK_INLINE bool is_complete(const WordPair& pair, int load, int rows, uint32_t epoch) {
    return is_there(pair.first, epoch) && (is_there(pair.second, epoch) || !Slice::has(load, 1, rows));
  }

  RK_INLINE void ask(const uint64_t* words, int row, int rows) {
    if constexpr (Slice::kAhead) {
#pragma unroll
      for (int i = 0; i < Slice::kLoads; ++i) {
        if (Slice::has(i, 0, rows)) seen[i] = poll_load(words, row, i);
      }
    }
  }
  // Asks again for what was not there.
  RK_INLINE void ask_again(const uint64_t* words, int row, int rows, uint32_t epoch) {
    if constexpr (Slice::kAhead) {
#pragma unroll
      for (int i = 0; i < Slice::kLoads; ++i) {
        if (Slice::has(i, 0, rows) && !is_complete(seen[i], i, rows, epoch)) seen[i] = poll_load(words, row, i);
      }
    }
  }
  template <class Veu>
  RK_INLINE void take(const Task<Veu>& task, const uint64_t* words, int row, int rows, float* stage) {
    const uint32_t epoch = task.epoch;
#pragma unroll 1
    for (int first = 0; first < Slice::kLoads; first += Slice::kAtOnce) {
#pragma unroll
      for (int i = 0; i < Slice::kAtOnce; ++i) {
        if (!Slice::kAhead && first + i < Slice::kLoads && Slice::has(first + i, 0, rows)) seen[i] = poll_load(words, row, first + i);
      }
#pragma unroll
      for (int i = 0; i < Slice::kAtOnce; ++i) {
        const int load = first + i;
        if (load >= Slice::kLoads) break;
        float2 v = {0.0f, 0.0f};
        if (Slice::has(load, 0, rows)) {
          Patience patience;
          while (!is_complete(seen[i], load, rows, epoch) && patience.lasts(task, seen[i].first)) seen[i] = poll_load(words, row, load);
          v.x = value_of(seen[i].first);
          if (Slice::has(load, 1, rows)) v.y = value_of(seen[i].second);
        }
        Slice::put(stage, load, v);
      }
    }
    __syncwarp();
  }
};

// From a tensor.
template <int SIZE, int SLICE, int BATCH>
struct GangTensor : GangSlice<SIZE, SLICE, BATCH> {
  using Slice = GangSlice<SIZE, SLICE, BATCH>;
  float2 seen[Slice::kAtOnce];

  static RK_INLINE float2 load_pair(const float* x, int row, int k, int load, int rows) {
    const float* const at = x + load / Slice::kPairs * row + Slice::element_of(load) * k;
    return float2{Slice::has(load, 0, rows) ? load1(at) : 0.0f, Slice::has(load, 1, rows) ? load1(at + k) : 0.0f};
  }
  RK_INLINE void ask(const float* x, int row, int k, int rows) {
    if constexpr (Slice::kAhead) {
#pragma unroll
      for (int i = 0; i < Slice::kLoads; ++i) seen[i] = load_pair(x, row, k, i, rows);
    }
  }
  RK_INLINE void take(const float* x, int row, int k, int rows, float* stage) {
#pragma unroll 1
    for (int first = 0; first < Slice::kLoads; first += Slice::kAtOnce) {
#pragma unroll
      for (int i = 0; i < Slice::kAtOnce; ++i) {
        if (!Slice::kAhead && first + i < Slice::kLoads) seen[i] = load_pair(x, row, k, first + i, rows);
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
