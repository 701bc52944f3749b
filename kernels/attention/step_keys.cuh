// Keys of attention_step.cuh: its arguments, how rows of queries, keys and values are loaded and made, and how a group of eight threads
// adds keys to its sums (the online form of softmax).
#pragma once

#include "kernels/attention/numbers.cuh"
#include "kernels/attention/rows.cuh"
#include "kernels/vdevice/fast_math.cuh"
#include "kernels/vdevice/task.cuh"
#include "kernels/vdevice/values.cuh"
#include "kernels/vdevice/words.cuh"

namespace rk {

struct AttentionStepArgs {                                 // in tables
  TensorRef out_words;                                     // with kStepOutWords
  TensorRef out, q, k, v, past_k, past_v, bias, cos, sin;  // past_k, past_v, bias, cos and sin may be null
  TensorRef q_scale, k_scale;                              // of kStepNormalised: fp32
  TensorRef length, place;                                 // of attention_step_placed: i64, or null
  TensorRef shares;                                        // what is stored of each rTask where a query has several
  int32_t out_batch[kAttentionBatchRank], q_batch[kAttentionBatchRank], k_batch[kAttentionBatchRank], v_batch[kAttentionBatchRank],
      past_k_batch[kAttentionBatchRank], past_v_batch[kAttentionBatchRank], bias_batch[kAttentionBatchRank], cos_batch[kAttentionBatchRank],
      sin_batch[kAttentionBatchRank];
  Divisor batch_divisors[kAttentionBatchRank - 1];
  int32_t batch_rank;
  Divisor queries, share_count;
  int32_t shares_of_query;
  int32_t past, own, per_share;  // keys before, keys of K, keys before in a share
  int32_t size, values;
  int32_t out_m, q_m, k_n, v_n, past_k_n, past_v_n, bias_m, cos_m, sin_m;              // strides of rows
  int32_t out_n, q_k, k_k, v_columns, past_k_k, past_v_columns, bias_n, cos_k, sin_k;  // and of their elements
  float scale;
  int32_t weightless;  // AttentionWeightless
  float inverse_size, epsilon;
  int32_t length_plus, none_keeps, place_wraps;  // of attention_step_placed
};

template <int kSize>
struct StepShape {
  static constexpr int kSets = kSize / 32;                    // of four elements that a lane has of a row
  static constexpr int kWords = attention_step_words(kSize);  // of a share
};

// What a group, a warp or a rTask has of its keys: the largest score, the sum of weights relative to it, and the values' weighted sum.
template <int kSets>
struct StepSums {
  float largest = -INFINITY, sum = 0.0f;
  float4 y[kSets];
};

template <int kSets>
RK_INLINE void scale_sums(StepSums<kSets>& sums, float factor) {
  sums.sum *= factor;
#pragma unroll
  for (int j = 0; j < kSets; ++j)
    sums.y[j] = float4{sums.y[j].x * factor, sums.y[j].y * factor, sums.y[j].z * factor, sums.y[j].w * factor};
}

// The weight of a set of keys beside others: exp(largest - base), 0 where it has none.
RK_INLINE float step_factor(float largest, float base) { return exp_fast(largest - (base == -INFINITY ? 0.0f : base)); }

// Adds the sums of the lane `step` away.
template <int kSets>
RK_INLINE void add_neighbour(StepSums<kSets>& sums, int step) {
  const float base = fmaxf(sums.largest, __shfl_xor_sync(kFullMask, sums.largest, step));
  scale_sums(sums, step_factor(sums.largest, base));
  sums.largest = base;
  sums.sum += __shfl_xor_sync(kFullMask, sums.sum, step);
#pragma unroll
  for (int j = 0; j < kSets; ++j) {
    sums.y[j].x += __shfl_xor_sync(kFullMask, sums.y[j].x, step);
    sums.y[j].y += __shfl_xor_sync(kFullMask, sums.y[j].y, step);
    sums.y[j].z += __shfl_xor_sync(kFullMask, sums.y[j].z, step);
    sums.y[j].w += __shfl_xor_sync(kFullMask, sums.y[j].w, step);
  }
}

// The lane's elements of a row; zeros behind its end.
template <int kLie, class T, int kSets>
RK_INLINE void load_step_row(const T* row, int stride, int size, float4 (&to)[kSets]) {
#pragma unroll
  for (int j = 0; j < kSets; ++j) to[j] = attention_raw<kLie>(row, stride, j * 32 + lane_id() % 8 * 4, size).floats();
}

// Leaves rows that come as words in shared memory, kSize floats each: that of Q, `own` of K, `own` of V; zeros behind the end of a row.
// Each word is polled by one thread, since polls of all groups for the same rows would stand behind one another.
template <int kSize, class Veu>
RK_INLINE void await_step_rows(const Task<Veu>& task, const AttentionStepArgs& args, int64_t q, int64_t k, int64_t v, int own, float* to) {
  constexpr int kFours = kSize / 4;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < (1 + 2 * own) * kFours; i += Veu::kComputeThreads) {
    const int row = i / kFours, column = i % kFours * 4;
    const bool is_q = row == 0, is_v = row > own;
    const TensorRef& ref = is_q ? args.q : is_v ? args.v : args.k;
    const int64_t first = is_q   ? q
                          : is_v ? v + static_cast<int64_t>(row - 1 - own) * args.v_n
                                 : k + static_cast<int64_t>(row - 1) * args.k_n;
    const bool exists = column < (is_v ? args.values : args.size);
    const uint32_t* const words[1] = {words_at(task, ref) + first + (exists ? column : 0)};
    float4 found[1];
    await_values(task, words, found);
    *reinterpret_cast<float4*>(to + i * 4) = exists ? found[0] : float4{0.0f, 0.0f, 0.0f, 0.0f};
  }
  sync_compute<Veu>();
}
// The lane's elements of a row in shared memory.
template <int kSets>
RK_INLINE void load_shared_row(const float* row, float4 (&to)[kSets]) {
#pragma unroll
  for (int j = 0; j < kSets; ++j) to[j] = *reinterpret_cast<const float4*>(row + j * 32 + lane_id() % 8 * 4);
}

// Rotary position embedding of a row. The element half a row away is one of the same lane.
template <int kSets>
RK_INLINE void turn_row(float4 (&x)[kSets], const float4 (&cos)[kSets], const float4 (&sin)[kSets]) {
  constexpr int kHalf = kSets / 2;
#pragma unroll
  for (int j = 0; j < kHalf; ++j) {
    const float4 a = x[j], b = x[j + kHalf], c = cos[j], s = sin[j], d = cos[j + kHalf], t = sin[j + kHalf];
    x[j] = float4{a.x * c.x - b.x * s.x, a.y * c.y - b.y * s.y, a.z * c.z - b.z * s.z, a.w * c.w - b.w * s.w};
    x[j + kHalf] = float4{b.x * d.x + a.x * t.x, b.y * d.y + a.y * t.y, b.z * d.z + a.z * t.z, b.w * d.w + a.w * t.w};
  }
}

// Divides a row by its root mean square, times a scale. Its other elements are in the group's other lanes.
template <int kSets>
RK_INLINE void normalise_row(float4 (&x)[kSets], const float* scale, float inverse_size, float epsilon) {
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < kSets; ++j) squares += fmaf(x[j].x, x[j].x, x[j].y * x[j].y) + fmaf(x[j].z, x[j].z, x[j].w * x[j].w);
#pragma unroll
  for (int step = 1; step < 8; step *= 2) squares += __shfl_xor_sync(kFullMask, squares, step);
  const float factor = rsqrtf(fmaf(squares, inverse_size, epsilon));
#pragma unroll
  for (int j = 0; j < kSets; ++j) {
    const float4 s = *reinterpret_cast<const float4*>(scale + j * 32 + lane_id() % 8 * 4);
    x[j] = float4{x[j].x * factor * s.x, x[j].y * factor * s.y, x[j].z * factor * s.z, x[j].w * factor * s.w};
  }
}

// Rows of keys or values.
template <class T>
struct StepRows {
  const T* first;
  int32_t stride, step;  // from row to row, from element to element
  int32_t elements;
};

// kCount keys of a group as they are in memory. Behind `end` the last key is loaded again.
template <int kSize, int kCount, int kLie, class T>
struct StepKeys {
  Raw4<T> k[kCount][kSize / 32], v[kCount][kSize / 32];

  RK_INLINE void load(const StepRows<T>& keys, const StepRows<T>& values, int32_t first, int32_t end) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int64_t n = min(first + i * kStepGroups, end - 1);
      const T *const key = keys.first + n * keys.stride, *const value = values.first + n * values.stride;
#pragma unroll
      for (int j = 0; j < kSize / 32; ++j) {
        const int at = j * 32 + lane_id() % 8 * 4;
        k[i][j] = attention_raw<kLie>(key, keys.step, at, keys.elements);
        v[i][j] = attention_raw<kLie>(value, values.step, at, values.elements);
      }
    }
  }
  RK_INLINE float4 key(int i, int j) const { return k[i][j].floats(); }
  RK_INLINE float4 value(int i, int j) const { return v[i][j].floats(); }
};

// Stages of keys and values in shared memory: [stage][keys, values][kStaged][cells of 16 bytes]. Two groups of a warp read 16 bits at the
// same time, so that odd keys have the halves of each 128 bytes exchanged: the other half lies in other banks.
template <int kSize, int kStaged, class T>
struct StepStages {
  using Type = T;
  static constexpr int kKeys = kStaged, kRowBytes = kSize * static_cast<int>(sizeof(T)), kCells = kRowBytes / 16,
                       kOfCell = 16 / static_cast<int>(sizeof(T)), kPart = kStaged * kRowBytes, kStage = 2 * kPart;
  static constexpr bool kExchanged = sizeof(T) == 2 && kRowBytes % 128 == 0;
  static_assert(kSize % 8 == 0);
  char* first;

  // Begins to copy keys [begin, end), at most kStaged.
  template <class Veu>
  RK_INLINE void copy(int stage, const StepRows<T>& keys, const StepRows<T>& values, int32_t begin, int32_t end) const {
    char* const to = first + stage * kStage;
    const int count = min(end - begin, kStaged);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < count * 2 * kCells; i += Veu::kComputeThreads) {
      const int row = i / (2 * kCells), cell = i % kCells;
      const bool is_value = i % (2 * kCells) >= kCells;
      const StepRows<T>& rows = is_value ? values : keys;
      const bool exists = cell * kOfCell < rows.elements;
      const T* const from = rows.first + static_cast<int64_t>(begin + row) * rows.stride + (exists ? cell * kOfCell : 0);
      const int place = kExchanged ? cell ^ (row % 2 * 4) : cell;
      cp_async16(to + (is_value ? kPart : 0) + row * kRowBytes + place * 16, from, exists);
    }
    cp_async_commit();
  }
};
// kCount keys of a group in a stage, from key `row` of it on.
template <int kSize, int kStaged, class T>
struct StagedKeys {
  using Stages = StepStages<kSize, kStaged, T>;
  const char* stage;
  int row;

  RK_INLINE float4 load(const char* rows, int i, int j) const {
    constexpr int kSetBytes = 32 * static_cast<int>(sizeof(T));
    const int set = Stages::kExchanged ? j ^ (row & 1) : j;  // groups are an even number of keys apart
    const char* const at = rows + (row + i * kStepGroups) * Stages::kRowBytes + set * kSetBytes + lane_id() % 8 * (kSetBytes / 8);
    if constexpr (sizeof(T) == 2)
      return Raw4<T>{*reinterpret_cast<const uint2*>(at)}.floats();
    else
      return *reinterpret_cast<const float4*>(at);
  }
  RK_INLINE float4 key(int i, int j) const { return load(stage, i, j); }
  RK_INLINE float4 value(int i, int j) const { return load(stage + Stages::kPart, i, j); }
};
// An own key of a group, among rows that await_step_rows has left: key `n` of `own`.
template <int kSize>
struct AwaitedKeys {
  const float* keys;  // behind the query
  int n, own;

  RK_INLINE float4 load(int row, int j) const { return *reinterpret_cast<const float4*>(keys + row * kSize + j * 32 + lane_id() % 8 * 4); }
  RK_INLINE float4 key(int, int j) const { return load(n, j); }
  RK_INLINE float4 value(int, int j) const { return load(own + n, j); }
};

// What rows are turned and scaled by.
template <int kSize>
struct StepFactors {
  float4 cos[kSize / 32], sin[kSize / 32];
  const float* scale;  // in shared memory
};

template <int kRows, int kSets, int kSize>
RK_INLINE void make_step_row(float4 (&x)[kSets], const AttentionStepArgs& args, const StepFactors<kSize>& factors) {
  if constexpr ((kRows & kStepNormalised) != 0) normalise_row(x, factors.scale, args.inverse_size, args.epsilon);
  if constexpr ((kRows & (kStepTurned | kStepTurnedHalves)) != 0) turn_row(x, factors.cos, factors.sin);
}

// Adds keys first, first + 32, .. below `end` but `without` to the group's sums. `bias`: of key 0, or null. kRows: how they are made, 0 of
// keys before.
template <int kRows, int kCount, int kSize, class Keys, class Bias>
RK_INLINE void add_step_keys(const AttentionStepArgs& args, const Keys& keys, const float4 (&q)[kSize / 32],
                             const StepFactors<kSize>& factors, const Bias* bias, int32_t first, int32_t end, int32_t without,
                             StepSums<kSize / 32>& sums) {
  constexpr int kSets = kSize / 32;
  float score[kCount];
  float largest = sums.largest;
  const auto counts = [&](int32_t n) { return n < end && n != without; };
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    float4 k[kSets];
#pragma unroll
    for (int j = 0; j < kSets; ++j) k[j] = keys.key(i, j);
    make_step_row<kRows>(k, args, factors);
    score[i] = 0.0f;
#pragma unroll
    for (int j = 0; j < kSets; ++j)
      score[i] = fmaf(q[j].w, k[j].w, fmaf(q[j].z, k[j].z, fmaf(q[j].y, k[j].y, fmaf(q[j].x, k[j].x, score[i]))));
#pragma unroll
    for (int step = 1; step < 8; step *= 2) score[i] += __shfl_xor_sync(kFullMask, score[i], step);
    const int32_t n = first + i * kStepGroups;
    const float added = bias != nullptr && counts(n) ? load1_near(bias + n * args.bias_n) : 0.0f;
    score[i] = counts(n) ? fmaf(score[i], args.scale, added) : -INFINITY;
    largest = fmaxf(largest, score[i]);
  }
  scale_sums(sums, step_factor(sums.largest, largest));
  sums.largest = largest;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float weight = step_factor(score[i], largest);
    sums.sum += weight;
    if (!counts(first + i * kStepGroups)) continue;  // a weight of 0 times an infinity would be NaN
#pragma unroll
    for (int j = 0; j < kSets; ++j) {
      const float4 v = keys.value(i, j);
      sums.y[j] = float4{fmaf(weight, v.x, sums.y[j].x), fmaf(weight, v.y, sums.y[j].y), fmaf(weight, v.z, sums.y[j].z),
                         fmaf(weight, v.w, sums.y[j].w)};
    }
  }
}

}  // namespace rk
