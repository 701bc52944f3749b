// The product of gemv.cuh with all rows in shared memory at once, which is faster than in pieces, and with rows that each rTask makes of
// its operands for itself (gemv_of_rows.h), so that there is no level of the program for them:
//   out[m][n] = act(bias[n] + residual[m][n] + factor[m] * sum over k of x[m][k] * weight[k][n])
//   x[m][k] = f(in0[m][k], in1[m][k], ..), less the row's mean where NORM is kGemvCentred
//   factor[m] = 1 / sqrt(mean over k of x[m][k]^2 + epsilon); 1 where NORM is kGemvAsIs
// The scale and the shift of the normalisation are in weights and bias. Multiplying the sum by the factor instead of each x saves a
// barrier: the factor is needed only when the sum is there.
//
// All of x is in shared memory at once, fp32. f is Steps (gemv_steps.cuh), or in0. Operand i is of type Value in memory where
// bit i of NARROW_IN says so, else fp32; where bit i of SCALARS does, four of its k are no aligned access. k is a multiple of four if
// SCALARS is 0. TURNS: of all threads over a row, four k a thread. ROWS, COLUMNS, NARROW, PLAIN and Out are gemv.cuh's. A rTask takes
// `turns` blocks of columns one after another, with the same rows: rTask 3 of 12 turns has blocks 36 to 47.
//
// WORDS: bit i says that operand i comes as words, whose values are their own flags (kernels/vdevice/words.cuh), kGemvResidualWords the
// same of the residual, and kGemvOutWords that the result is published as words, too. Where all operands come as words, the body does not
// wait for its Waits before it stores. Such operands are no SCALARS.
//
// Example: one row of k = 768, TURNS 1. Lanes 0 to 23 of each warp have four k each, the others zeros; the warps' sums are eight words in
// shared memory, which all threads add up behind a barrier.
#pragma once

#include "kernels/product/gemv.cuh"
#include "kernels/tile/numbers.cuh"
#include "kernels/vdevice/values.cuh"
#include "kernels/vdevice/words.cuh"

namespace rk {

struct GemvOfRowsArgs {                        // in tables
  GemvArgs gemv;                               // in, in_rows, in_stride: not used; piece_k: k with zeros up to whole chunks
  TensorRef out_words;                         // with kGemvOutWords
  TensorRef inputs[kGemvOperands];             // or of their words, as of gemv.epilogue.residual
  int32_t in_rows[kGemvOperands * kGemvRows];  // offset of each row of each operand
  int32_t in_steps[kGemvOperands];             // of k
  float constants[kStaticConstants];
  float inverse_k, epsilon;
  TensorRef factors{};  // of gemv_row.cuh with FACTORS: what x is multiplied by behind the normalisation
};

struct GemvNoSteps;  // in tables

// The fours of k that a thread has at a time, whose loads are under way together: of some rows, some turns each.
template <int ROWS, int TURNS>
struct GemvFours {
  static constexpr int kTurns = TURNS < kGemvFours ? TURNS : kGemvFours;
  static constexpr int kRows = TURNS * 2 > kGemvFours ? 1 : ROWS* TURNS < kGemvFours ? ROWS : kGemvFours / TURNS;
  static constexpr int kCount = kRows * kTurns;
};

// The k of this thread's four number `turn`. A warp has every eighth 32 k, so that all have about as much to do. Example: in turn 1 lane 9
// of warp 2 has k 1024 + 256 + 64 + 4 = 1348 to 1351.
template <class Veu>
RK_INLINE int gemv_k(int turn) {
  constexpr int kLanes = kGemvBlockK / 4;  // of 32 k
  return turn * Veu::kComputeThreads * 4 + (lane_id() / kLanes * kComputeWarps + warp_id()) * kGemvBlockK + lane_id() % kLanes * 4;
}

// The first `count` of four values, and zeros. WHOLE: all or none.
template <bool WHOLE>
RK_INLINE float4 gemv_first(const float4& v, int count) {
  if constexpr (WHOLE) return count > 0 ? v : float4{0.0f, 0.0f, 0.0f, 0.0f};
  return float4{count > 0 ? v.x : 0.0f, count > 1 ? v.y : 0.0f, count > 2 ? v.z : 0.0f, count > 3 ? v.w : 0.0f};
}

RK_INLINE float gemv_squares4(const float4& v) { return fmaf(v.x, v.x, v.y * v.y) + fmaf(v.z, v.z, v.w * v.w); }

// Where this thread's fours lie in the operands. Behind the end of k the row's first four are loaded, and not used.
template <class Veu, class Value, uint32_t NARROW_IN, int INPUTS, uint32_t SCALARS, uint32_t WORDS, int ROWS, int TURNS>
struct GemvOperands {
  using Fours = GemvFours<ROWS, TURNS>;
  const Task<Veu>& task;
  const float* base[INPUTS];
  int at[INPUTS][Fours::kCount];

  RK_INLINE GemvOperands(const Task<Veu>& task_, const GemvOfRowsArgs& args) : task(task_) {
#pragma unroll
    for (int i = 0; i < INPUTS; ++i) base[i] = task.address(args.inputs[i]);
    place(args, 0, 0);
  }
  RK_INLINE void place(const GemvOfRowsArgs& args, int m, int turn) {
#pragma unroll
    for (int i = 0; i < INPUTS; ++i) {
#pragma unroll
      for (int g = 0; g < Fours::kCount; ++g) {
        const int k = gemv_k<Veu>(turn + g % Fours::kTurns);
        at[i][g] = args.in_rows[i * kGemvRows + m + g / Fours::kTurns] + (k < args.gemv.k ? k : 0) * args.in_steps[i];
      }
    }
  }
  RK_INLINE void load(const GemvOfRowsArgs& args, int turn, float4 (&to)[INPUTS][Fours::kCount]) const { load(args, turn, poll(args), to); }
  // The same, with what poll() found before.
  template <class Polled>
  RK_INLINE void load(const GemvOfRowsArgs& args, int turn, Polled&& polled, float4 (&to)[INPUTS][Fours::kCount]) const {
#pragma unroll
    for (int i = 0; i < INPUTS; ++i) {
      if (is_in_words(i)) continue;
      if ((NARROW_IN >> i & 1u) != 0)
        load_one(args, reinterpret_cast<const Value*>(base[i]), i, turn, to[i]);
      else
        load_one(args, base[i], i, turn, to[i]);
    }
    if constexpr (kInWords > 0) {
      const uint32_t* words[kWords];
      float4 found[kWords];
      place_words(args, words);
      polled.await(task, words, found);
#pragma unroll
      for (int i = 0; i < INPUTS; ++i) {
        if (!is_in_words(i)) continue;
#pragma unroll
        for (int g = 0; g < Fours::kCount; ++g) to[i][g] = found[words_before(i) * Fours::kCount + g];
      }
    }
  }
  // Polls the words of all operands together: one trip through L2, not one for each.
  RK_INLINE auto poll(const GemvOfRowsArgs& args) const {
    if constexpr (kInWords > 0) {
      const uint32_t* words[kWords];
      place_words(args, words);
      return PolledValues<kWords>(words);
    } else {
      return 0;
    }
  }

 private:
  static constexpr uint32_t kWordsOfInputs = WORDS & ((1u << INPUTS) - 1u);
  static constexpr int kInWords = count_bits(kWordsOfInputs), kWords = kInWords * Fours::kCount;  // operands; fours of them
  static_assert((kWordsOfInputs & SCALARS) == 0);
  RK_INLINE static constexpr bool is_in_words(int i) { return (kWordsOfInputs >> i & 1u) != 0; }
  RK_INLINE static constexpr int words_before(int i) { return count_bits(kWordsOfInputs & ((1u << i) - 1u)); }

  template <int COUNT>
  RK_INLINE void place_words(const GemvOfRowsArgs& args, const uint32_t* (&words)[COUNT]) const {
#pragma unroll
    for (int i = 0; i < INPUTS; ++i) {
      if (!is_in_words(i)) continue;
      const uint32_t* const from = words_at(task, args.inputs[i]);
#pragma unroll
      for (int g = 0; g < Fours::kCount; ++g) words[words_before(i) * Fours::kCount + g] = from + at[i][g];
    }
  }

  template <class In>
  RK_INLINE void load_one(const GemvOfRowsArgs& args, const In* from, int i, int turn, float4 (&to)[Fours::kCount]) const {
#pragma unroll
    for (int g = 0; g < Fours::kCount; ++g) {
      const In* const p = from + at[i][g];
      if ((SCALARS >> i & 1u) == 0) {
        to[g] = load4(p);
        continue;
      }
      const int k = gemv_k<Veu>(turn + g % Fours::kTurns), last = k < args.gemv.k ? args.gemv.k - 1 - k : 0, step = args.in_steps[i];
      to[g] = float4{load1(p), load1(p + min(1, last) * step), load1(p + min(2, last) * step), load1(p + min(3, last) * step)};
    }
  }
};

// f(in0) = in0.
struct GemvNoSteps {
  static constexpr bool kNone = true;
  template <int INPUTS, int COUNT>
  RK_INLINE static void make(const GemvOfRowsArgs&, const float4 (&in)[INPUTS][COUNT], float4 (&to)[COUNT]) {
#pragma unroll
    for (int g = 0; g < COUNT; ++g) to[g] = in[0][g];
  }
};

// Adds up each sum over the lanes and leaves it in shared memory, a word for each warp.
template <int COUNT>
RK_INLINE void gemv_leave_sums(float* to, float (&sum)[COUNT]) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
#pragma unroll
    for (int r = 0; r < COUNT; ++r) sum[r] += __shfl_xor_sync(kFullMask, sum[r], step);
  }
  if (lane_id() != 0) return;
#pragma unroll
  for (int r = 0; r < COUNT; ++r) to[r * kComputeWarps + warp_id()] = sum[r];
}
// The sum of a row over the warps.
RK_INLINE float gemv_row_sum(const float* sums, int row) {
  const float4* const from = reinterpret_cast<const float4*>(sums + row * kComputeWarps);
  return sum_of4(from[0]) + sum_of4(from[1]);
}

// Leaves f(in0, in1, ..) in shared memory, rows of piece_k, and in `sums` the sums of the rows, or of their squares.
template <class Veu, int ROWS, int TURNS, int NORM, int INPUTS, bool WHOLE, class Steps, class Operands>
RK_INLINE void gemv_make_rows(const GemvOfRowsArgs& args, Operands& operands, float* x, float* sums) {
  using Fours = GemvFours<ROWS, TURNS>;
  const int k_end = args.gemv.k, piece_k = args.gemv.piece_k;
#pragma unroll 1
  for (int m = 0; m < ROWS; m += Fours::kRows) {
    float sum[Fours::kRows] = {};
#pragma unroll 1
    for (int turn = 0; turn < TURNS; turn += Fours::kTurns) {
      if (m > 0 || turn > 0) operands.place(args, m, turn);
      float4 inputs[INPUTS][Fours::kCount], made[Fours::kCount];
      operands.load(args, turn, inputs);
      Steps::make(args, inputs, made);
#pragma unroll
      for (int g = 0; g < Fours::kCount; ++g) {
        const int k = gemv_k<Veu>(turn + g % Fours::kTurns), r = g / Fours::kTurns;
        const float4 v = gemv_first<WHOLE>(made[g], k_end - k);
        if (NORM == kGemvCentred) sum[r] += sum_of4(v);
        if (NORM == kGemvScaled) sum[r] += gemv_squares4(v);
        if (k < piece_k) *reinterpret_cast<float4*>(x + (m + r) * piece_k + k) = v;
      }
    }
    if (NORM != kGemvAsIs) gemv_leave_sums(sums + m * kComputeWarps, sum);
  }
}

// Subtracts from each row its mean, of which `sums` has the sums, and leaves the sums of squares in `squares`. Every thread takes the
// values that it has left there itself.
template <class Veu, int ROWS, int TURNS, bool WHOLE>
RK_INLINE void gemv_centre_rows(const GemvOfRowsArgs& args, float* x, const float* sums, float* squares) {
  using Fours = GemvFours<ROWS, TURNS>;
  const int k_end = args.gemv.k, piece_k = args.gemv.piece_k;
#pragma unroll 1
  for (int m = 0; m < ROWS; m += Fours::kRows) {
    float sum[Fours::kRows] = {}, mean[Fours::kRows];
#pragma unroll
    for (int r = 0; r < Fours::kRows; ++r) mean[r] = gemv_row_sum(sums, m + r) * args.inverse_k;
#pragma unroll 1
    for (int turn = 0; turn < TURNS; turn += Fours::kTurns) {
#pragma unroll
      for (int g = 0; g < Fours::kCount; ++g) {
        const int k = gemv_k<Veu>(turn + g % Fours::kTurns), r = g / Fours::kTurns;
        if (k >= k_end) continue;
        float4* const at = reinterpret_cast<float4*>(x + (m + r) * piece_k + k);
        const float4 v = *at;
        const float4 centred = gemv_first<WHOLE>(float4{v.x - mean[r], v.y - mean[r], v.z - mean[r], v.w - mean[r]}, k_end - k);
        *at = centred;
        sum[r] += gemv_squares4(centred);
      }
    }
    gemv_leave_sums(squares + m * kComputeWarps, sum);
  }
}

// The word of the residual that this lane needs. With a residual in words `own.added` counts elements from the words' begin.
template <class Out, class Veu>
RK_INLINE const uint32_t* gemv_residual_word(const Task<Veu>& task, const GemvArgs& args, const GemvOutput<Out>& own) {
  const TensorRef& words = args.epilogue.residual;
  return words_at(task, words) + (own.added - values_at<Out>(task, words));
}
// Before the sum is there: loads the residual, or polls its word for the first time and returns that.
template <uint32_t WORDS, bool WAITED, class Out, class Veu>
RK_INLINE uint32_t gemv_begin_residual(const Task<Veu>& task, const GemvArgs& args, GemvOutput<Out>& own) {
  if constexpr ((WORDS & kGemvResidualWords) != 0) {
    if (own.added != nullptr) return poll_value(gemv_residual_word(task, args, own));
  } else if constexpr (WAITED) {
    gemv_residual(own);
  }
  return 0;
}
template <uint32_t WORDS, bool WAITED, class Out, class Veu>
RK_INLINE void gemv_end_residual(const Task<Veu>& task, const GemvArgs& args, uint32_t seen, GemvOutput<Out>& own) {
  if constexpr ((WORDS & kGemvResidualWords) != 0) {
    if (own.added != nullptr) own.residual = await_value(task, gemv_residual_word(task, args, own), seen);
  } else if constexpr (!WAITED) {
    gemv_residual(own);
  }
}

// Behind the sums, in a body that has not waited for its Waits: waits for them if there is a residual that is not in words, or if the
// result is not published: the memory of one that is published is nobody else's, so that it may be stored at any time. Every lane of a
// warp calls this.
template <bool PLAIN, uint32_t WORDS, bool WAITED, class Veu>
RK_INLINE void gemv_await_rest(const Task<Veu>& task, const GemvArgs& args) {
  if constexpr (!WAITED) {
    const bool loads = !PLAIN && (WORDS & kGemvResidualWords) == 0 && args.epilogue.residual.base != kNullBase;
    if ((WORDS & kGemvOutWords) == 0 || loads) task.await_inputs();
  }
}

// Publishes an output where WORDS says so, and stores it.
template <uint32_t WORDS, class Veu, class Out>
RK_INLINE void gemv_store_value(const Task<Veu>& task, const GemvOfRowsArgs& args, const GemvOutput<Out>& own, float v) {
  if ((WORDS & kGemvOutWords) != 0 && own.out != nullptr) {
    uint32_t* const word = words_at(task, args.out_words) + (own.out - values_at<Out>(task, args.gemv.out));
    publish_value(task, word, rounded_to<Out>(v));
  }
  if (own.out != nullptr) store1(own.out, v);
}

template <class Veu, int ROWS, int COLUMNS, bool NARROW, bool PLAIN, class Out, class Value, uint32_t NARROW_IN, int INPUTS,
          uint32_t SCALARS, int NORM, int TURNS, uint32_t WORDS, class Steps>
RK_BODY void gemv_of_rows(const Task<Veu>& caller) {
  static_assert(ROWS * COLUMNS <= kWarp && ROWS <= kGemvRows);
  constexpr bool kWhole = SCALARS == 0;
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const GemvOfRowsArgs& all = task.template arguments<GemvOfRowsArgs>();
  const GemvArgs& args = all.gemv;
  const int chunk_k = args.chunk_k, piece_k = args.piece_k, column_bytes = args.column_bytes;
  float* const rows = task.template work_as<float>();
  float* const sums = rows + ROWS * piece_k;
  float* const squares = NORM == kGemvCentred ? sums + ROWS * kComputeWarps : sums;
  const int first = static_cast<int>(task.index) * args.turns, end = first + args.turns;
  GemvOutput<Out> own = gemv_output<Out, ROWS, COLUMNS, PLAIN>(task, args, first);
  GemvOperands<Veu, Value, NARROW_IN, INPUTS, SCALARS, WORDS, ROWS, TURNS> operands(task, all);
  constexpr uint32_t kAllOperands = (1u << INPUTS) - 1;
  constexpr bool kWaited = (WORDS & kAllOperands) != kAllOperands;  // for the Waits, before anything is read
  if (kWaited) task.await_inputs();
  uint32_t seen = gemv_begin_residual<WORDS, kWaited>(task, args, own);
  gemv_make_rows<Veu, ROWS, TURNS, NORM, INPUTS, kWhole, Steps>(all, operands, rows, sums);
  sync_compute<Veu>();
  if constexpr (NORM == kGemvCentred) {
    gemv_centre_rows<Veu, ROWS, TURNS, kWhole>(all, rows, sums, squares);
    sync_compute<Veu>();
  }
  float factor = 1.0f;
  if constexpr (NORM != kGemvAsIs) {
    const int own_row = lane_id() / (kWarp / ROWS);
    factor = rsqrtf(fmaf(gemv_row_sum(squares, own_row), all.inverse_k, all.epsilon));
  }

  WeightPipe<Veu> weights = task.weights;
#pragma unroll 1
  for (int block = first;;) {
    GemvOutput<Out> next{};
    uint32_t next_seen = 0;
    if (++block < end) {  // what it needs is there when its sum is
      next = gemv_output<Out, ROWS, COLUMNS, PLAIN>(task, args, block);
      next_seen = gemv_begin_residual<WORDS, kWaited>(task, args, next);
    }
    float sum[ROWS * COLUMNS] = {};
    const float* x = rows + lane_id() * kGemvLaneK;
#pragma unroll 1
    for (int left = args.chunks; left > 0; --left, x += chunk_k) {
      const char* const stage = as_shared(weights.acquire());
      gemv_chunk<ROWS, COLUMNS, NARROW>(x, stage + warp_id() * COLUMNS * column_bytes + lane_id() * 16, column_bytes, piece_k, sum);
      weights.release();
    }
    own.scale *= factor;
    gemv_await_rest<PLAIN, WORDS, kWaited>(task, args);
    if constexpr (!PLAIN) gemv_end_residual<WORDS, kWaited>(task, args, seen, own);
    gemv_store_value<WORDS>(task, all, own, gemv_finish<PLAIN>(args, own, gemv_result(own, sum)));
    if (block >= end) break;
    own = next;
    seen = next_seen;
  }
}

}  // namespace rk
