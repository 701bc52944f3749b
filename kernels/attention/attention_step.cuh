// Attention of a few queries, a decoder's step, whose keys come in two parts (Concats and Attention, compiler/ir/ops.h; Attention is the
// case of one part: of K's, or where there are many keys, of those before):
//   Y[b,m,:] = sum over keys n of softmax_n(scale * q * k_n + bias[b,m,n]) * v_n     q = turn(Q[b,m,:])
//   k_n, v_n = PK[b,n,:], PV[b,n,:] for n < past, else turn(K[b,n-past,:]), V[b,n-past,:]
//   turn(x) = n * cos + concat(-n[S/2..], n[..S/2]) * sin where kRows says so, else n
//   n = x / sqrt(mean of x^2 + epsilon) * scale where kRows says kStepNormalised, else x; Q and K have scales of their own
// With kStepTurnedHalves cos and sin have half a row, whose two halves would be equal.
// A rTask has one query of one batch (a head) and, where keys are many, one share of them: (batch * queries + m) * shares + share. The last
// share has the keys of K as well. Arithmetic is fp32.
//
// The threads are 32 groups of eight. A group takes keys number g, g + 32, .., two at a time; its lane t has elements 32j + 4t to 32j + 4t
// + 3 of a row for all j. It keeps the largest score, the sum of weights and the weighted sum of values of its own keys (the online form of
// softmax); these are put together at the end. With several shares what a rTask has is stored, and attention_step_sum puts the shares of a
// query together.
//
// kStaged > 0: keys before come by cp.async into two stages of shared memory, so many a stage. The copies of both are under way while the
// query is on its way. The code is a loop over keys, a few instructions long: a body of straight code with all keys in registers is 48 KB,
// and each run of it waited for its instructions. kStaged 0: rows are no whole cells of 16 bytes, and keys are loaded where they are
// needed. Example: 1000 keys before the query in 4 shares of 256, 64 a stage. In share 1, group 5 has keys 261 and 293 of the first stage,
// then 325 and 357 of the second one, then 389, 421, 453 and 485.
//
// WORDS: which of Q, K and V come as words, whose values are their own flags (kernels/vdevice/words.cuh), and whether Y is published as
// words, too: kStepQWords and so on. Where all three do, everything else is given from outside the program (kEarly), K has at most
// kStepRowsInWords rows, and the body does not wait for its Waits before it stores. attention_step_sum has only kStepOutWords.
//
// attention_step_masked, for a cache with a mask: keys are those from the first to the last that the row's mask leaves, and the shares
// divide these. So a step at place 40 of 4096 reads 41 keys, and a window reads its own.
//
// attention_step_placed, for a cache of constant size into which somebody else puts the own row: keys are those of the cache below `length`
// (plus length_plus) but the one at `place`, where K and V stand instead. The cache may have the own row already, or any other: it is not
// used. Where no key is left, the first none_keeps count. A place outside of the cache has no own row; with place_wraps -1 is its last one.
//
// kEarly: PK and PV are made by nobody in the program, so the first keys are loaded before the rTask's Waits have passed. kLie: how rows
// lie (AttentionRows). Limits: Q, K and V have one type In, PK and PV one type Past, Y has type Out, cos and sin have type Turn,
// the bias has type Bias; each is fp32 or has 16 bits. Turned rows are of 64 or 128.
#pragma once

#include "kernels/attention/step_keys.cuh"

namespace rk {

// Offsets of a batch in all operands.
struct StepBatch {
  int64_t out = 0, q = 0, k = 0, v = 0, past_k = 0, past_v = 0, bias = 0, cos = 0, sin = 0;
};
RK_INLINE StepBatch step_batch(const AttentionStepArgs& args, uint32_t batch) {
  StepBatch at;
#pragma unroll 1
  for (int d = args.batch_rank - 1; d >= 0; --d) {
    uint32_t i = batch;
    if (d > 0) batch = divide(batch, args.batch_divisors[d - 1], i);
    at.out += static_cast<int64_t>(i) * args.out_batch[d];
    at.q += static_cast<int64_t>(i) * args.q_batch[d];
    at.k += static_cast<int64_t>(i) * args.k_batch[d];
    at.v += static_cast<int64_t>(i) * args.v_batch[d];
    at.past_k += static_cast<int64_t>(i) * args.past_k_batch[d];
    at.past_v += static_cast<int64_t>(i) * args.past_v_batch[d];
    at.bias += static_cast<int64_t>(i) * args.bias_batch[d];
    at.cos += static_cast<int64_t>(i) * args.cos_batch[d];
    at.sin += static_cast<int64_t>(i) * args.sin_batch[d];
  }
  return at;
}

// Where the words of a row of Y begin; null without kStepOutWords.
template <uint32_t WORDS, class Veu>
RK_INLINE uint32_t* step_words(const Task<Veu>& task, const AttentionStepArgs& args, int64_t batch, int row) {
  if constexpr ((WORDS & kStepOutWords) == 0) return nullptr;
  return words_at(task, args.out_words) + batch + static_cast<int64_t>(row) * args.out_m;
}

// Stores element n of a row of Y, y / sum, after its word if there are words. If it is published, its memory is nobody else's, so that it
// may be stored before the rTask's Waits have passed.
template <class Veu, class Out>
RK_INLINE void store_step(const Task<Veu>& task, const AttentionStepArgs& args, float y, float sum, int n, Out* out, uint32_t* words) {
  if (n >= args.values) return;
  y = attention_drops(sum, args.weightless) ? 0.0f : y * attention_inverse(sum, args.weightless);
  const int64_t at = static_cast<int64_t>(n) * args.out_n;
  if (words != nullptr) publish_value(task, words + at, rounded_to<Out>(y));
  store1(out + at, y);
}

// Puts the groups' sums together and stores them: Y, or with several shares largest, sum and the weighted sum of values.
template <int kSize, class Veu, class Out>
RK_INLINE void finish_step(const Task<Veu>& task, const AttentionStepArgs& args, float* shared, StepSums<kSize / 32>& sums, Out* out,
                           uint32_t* words, float* share) {
  constexpr int kSets = kSize / 32, kPitch = StepShape<kSize>::kWords, kWarps = Veu::kComputeThreads / kWarp;
#pragma unroll 1
  for (int step = 8; step < kWarp; step *= 2) add_neighbour(sums, step);
  float* const own = shared + warp_id() * kPitch;
  if (lane_id() < 8) {
#pragma unroll
    for (int j = 0; j < kSets; ++j) *reinterpret_cast<float4*>(own + j * 32 + lane_id() * 4) = sums.y[j];
    if (lane_id() == 0) {
      own[kSize] = sums.largest;
      own[kSize + 1] = sums.sum;
    }
  }
  sync_compute<Veu>();
  if (share != nullptr || words == nullptr) task.await_inputs();  // every lane of a warp, so in front of the return
  const int n = static_cast<int>(threadIdx.x);
  if (n >= kSize) return;
  float base = -INFINITY, sum = 0.0f, y = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) base = fmaxf(base, shared[w * kPitch + kSize]);
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float factor = step_factor(shared[w * kPitch + kSize], base);
    sum = fmaf(factor, shared[w * kPitch + kSize + 1], sum);
    y = fmaf(factor, shared[w * kPitch + n], y);
  }
  if (share == nullptr) {
    store_step(task, args, y, sum, n, out, words);
    return;
  }
  store1(share + n, y);
  if (n < 2) store1(share + kSize + n, n == 0 ? base : sum);
}

struct StepRange {
  int32_t begin, end;
};

// The keys from the first to the last one below `count` whose bias is above `least`; none if there is none. All threads call it.
template <int kSize, class Veu, class Bias>
RK_INLINE StepRange keys_above(int32_t* shared, const Bias* bias, int32_t bias_n, int32_t count, float least) {
  constexpr int kPitch = StepShape<kSize>::kWords, kBegin = kSize + 2, kEnd = kSize + 3;  // words that finish_step leaves free
  int32_t begin = count, end = 0;
#pragma unroll 8
  for (int32_t n = static_cast<int32_t>(threadIdx.x); n < count; n += Veu::kComputeThreads) {
    const bool is_masked = load1_near(bias + static_cast<int64_t>(n) * bias_n) <= least;
    begin = min(begin, is_masked ? count : n);
    end = is_masked ? end : n + 1;
  }
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    begin = min(begin, __shfl_xor_sync(kFullMask, begin, step));
    end = max(end, __shfl_xor_sync(kFullMask, end, step));
  }
  if (lane_id() == 0) {
    shared[warp_id() * kPitch + kBegin] = begin;
    shared[warp_id() * kPitch + kEnd] = end;
  }
  sync_compute<Veu>();
#pragma unroll
  for (int w = 0; w < Veu::kComputeThreads / kWarp; ++w) {
    begin = min(begin, shared[w * kPitch + kBegin]);
    end = max(end, shared[w * kPitch + kEnd]);
  }
  return {min(begin, end), end};
}

// The share's part of the keys that a row's mask leaves. A row that is masked whole by finite numbers weighs all keys.
template <int kSize, class Veu, class Bias>
RK_INLINE StepRange keys_of_mask(const AttentionStepArgs& args, int32_t* shared, const Bias* bias, int32_t share) {
  StepRange row = keys_above<kSize, Veu>(shared, bias, args.bias_n, args.past, kStepMasked);
  if (row.begin == row.end) {
    sync_compute<Veu>();  // all have read what the others found
    row = keys_above<kSize, Veu>(shared, bias, args.bias_n, args.past, -INFINITY);
  }
  const int32_t turns = (row.end - row.begin + kStepGroups - 1) / kStepGroups, shares = args.shares_of_query;
  const int32_t each = (turns + shares - 1) / shares * kStepGroups, begin = min(row.begin + share * each, row.end);
  return {begin, min(begin + each, row.end)};
}

// The keys of a rTask: of those before the query [begin, end) but `without`, and `own` of K. Where the numbers of all keys leave only the
// mask's, they weigh alike.
struct StepTask {
  int32_t begin, end, without = -1, own;
  bool weighs_alike = false;
};

RK_INLINE int64_t load_whole_number(const float* p) {
#if defined(__CUDA_ARCH__)
  return __ldcg(reinterpret_cast<const long long*>(p));
#else
  return *reinterpret_cast<const int64_t*>(p);
#endif
}
// Those of attention_step_placed.
template <class Veu>
RK_INLINE StepTask placed_keys(const Task<Veu>& task, const AttentionStepArgs& args, int32_t share) {
  constexpr int64_t kLargest = int64_t{1} << 40;  // with length_plus it is none that is too large
  const float* const given = task.address(args.length);
  int64_t length = args.past, place = load_whole_number(task.address(args.place));
  if (given != nullptr) length = min(max(load_whole_number(given), -kLargest), kLargest) + args.length_plus;
  if (place < 0 && args.place_wraps != 0) place += args.past;
  const bool none = length <= 0;
  length = none ? args.none_keeps : min(length, static_cast<int64_t>(args.past));
  const int32_t end = static_cast<int32_t>(length), shares = args.shares_of_query;
  const int32_t turns = (end + kStepGroups - 1) / kStepGroups, each = (turns + shares - 1) / shares * kStepGroups;
  const int32_t begin = min(share * each, end);
  const bool exists = place >= 0 && place < args.past;
  return {begin, min(begin + each, end), exists ? static_cast<int32_t>(place) : -1, exists && place < length && share + 1 == shares, none};
}

// Which keys before the query count: all, those that the bias leaves, or those below a length but one.
enum StepKeysOf : int { kAllKeys, kKeysOfMask, kKeysOfLength };

// Where the operands of a rTask lie.
template <class In, class Past, class Turn, class Bias>
struct StepOperands {
  StepRows<Past> past_k, past_v;
  StepRows<In> own_k, own_v;
  const In* q;
  const Turn *cos, *sin;
  const Bias* bias;  // of key 0 before, or null

  template <class Veu>
  RK_INLINE StepOperands(const Task<Veu>& task, const AttentionStepArgs& args, const StepBatch& at, int row)
      : past_k{values_at<const Past>(task, args.past_k) + at.past_k, args.past_k_n, args.past_k_k, args.size},
        past_v{values_at<const Past>(task, args.past_v) + at.past_v, args.past_v_n, args.past_v_columns, args.values},
        own_k{values_at<const In>(task, args.k) + at.k, args.k_n, args.k_k, args.size},
        own_v{values_at<const In>(task, args.v) + at.v, args.v_n, args.v_columns, args.values},
        q(values_at<const In>(task, args.q) + at.q + static_cast<int64_t>(row) * args.q_m),
        cos(values_at<const Turn>(task, args.cos) + at.cos),
        sin(values_at<const Turn>(task, args.sin) + at.sin),
        bias(values_at<const Bias>(task, args.bias)) {
    if (bias != nullptr) bias += at.bias + static_cast<int64_t>(row) * args.bias_m;
  }
  RK_INLINE const Bias* own_bias(const AttentionStepArgs& args) const {
    return bias != nullptr ? bias + static_cast<int64_t>(args.past) * args.bias_n : nullptr;
  }
};

// The factors that turn the row of query `position`; the same of an own key.
template <int kLie, int kRows, int kSize, class Operands>
RK_INLINE void load_turn(const AttentionStepArgs& args, const Operands& operands, int32_t position, StepFactors<kSize>& factors) {
  if constexpr ((kRows & (kStepTurned | kStepTurnedHalves)) != 0) {
    constexpr int kFactors = (kRows & kStepTurnedHalves) != 0 ? kSize / 2 : kSize, kLoaded = kFactors / 32;
    static_assert(kSize % 64 == 0);
    float4 cos[kLoaded], sin[kLoaded];
    load_step_row<kLie>(operands.cos + position * args.cos_m, args.cos_k, kFactors, cos);
    load_step_row<kLie>(operands.sin + position * args.sin_m, args.sin_k, kFactors, sin);
#pragma unroll
    for (int j = 0; j < kSize / 32; ++j) factors.cos[j] = cos[j % kLoaded], factors.sin[j] = sin[j % kLoaded];
  }
}

// The scales of Q and K, on their way to shared memory.
template <int kRows, int kSize, class Veu>
struct StepScales {
  static constexpr int kAll = (kRows & kStepNormalised) != 0 ? 2 * kSize : 0,
                       kCount = (kAll + Veu::kComputeThreads - 1) / Veu::kComputeThreads;
  float of[kCount + 1];

  RK_INLINE static int place(int i) { return static_cast<int>(threadIdx.x) + i * Veu::kComputeThreads; }
  RK_INLINE void load(const Task<Veu>& task, const AttentionStepArgs& args) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int n = min(place(i), kAll - 1);
      of[i] = load1(task.address(n < kSize ? args.q_scale : args.k_scale) + min(n % kSize, args.size - 1));
    }
  }
  RK_INLINE void leave(const AttentionStepArgs& args, float* to) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (place(i) < kAll) to[place(i)] = place(i) % kSize < args.size ? of[i] : 0.0f;
    }
  }
};

// Adds the keys before the query; those of the first two stages are on their way.
template <class Veu, int kSize, int kLie, class Stages, class Operands>
RK_INLINE void add_keys_before(const AttentionStepArgs& args, const Stages& stages, const Operands& operands, const StepTask& keys,
                               const float4 (&q)[kSize / 32], const StepFactors<kSize>& factors, StepSums<kSize / 32>& sums) {
  using Past = typename Stages::Type;
  constexpr int kStaged = Stages::kKeys, kCount = kStaged % (2 * kStepGroups) == 0 ? 2 : 1, kTurn = kCount * kStepGroups;
  const int group = static_cast<int>(threadIdx.x) / 8;
  if constexpr (kStaged == 0) {
#pragma unroll 1
    for (int32_t n = keys.begin; n < keys.end; n += kTurn) {
      StepKeys<kSize, kCount, kLie, Past> loaded;
      loaded.load(operands.past_k, operands.past_v, n + group, keys.end);
      add_step_keys<0, kCount>(args, loaded, q, factors, operands.bias, n + group, keys.end, keys.without, sums);
    }
  } else {
    int stage = 0;
#pragma unroll 1
    for (int32_t first = keys.begin; first < keys.end; first += kStaged, stage ^= 1) {
      cp_async_wait<1>();
      sync_compute<Veu>();
      const int32_t stop = min(first + kStaged, keys.end);
#pragma unroll 1
      for (int32_t n = first; n < stop; n += kTurn) {
        const StagedKeys<kSize, kStaged, Past> staged{stages.first + stage * Stages::kStage, n - first + group};
        add_step_keys<0, kCount>(args, staged, q, factors, operands.bias, n + group, stop, keys.without, sums);
      }
      if (first + 2 * kStaged < keys.end) {
        sync_compute<Veu>();  // all have read the stage
        stages.template copy<Veu>(stage, operands.past_k, operands.past_v, first + 2 * kStaged, keys.end);
      } else {
        cp_async_commit();
      }
    }
  }
}

template <class Veu, int kSize, int kLie, int kRows, bool kEarly, int kStaged, StepKeysOf kOf, uint32_t WORDS, class In, class Past,
          class Out, class Turn, class Bias>
RK_INLINE void attend_step(const Task<Veu>& caller) {
  static_assert(kSize % 32 == 0 && kSize <= kAttentionLargestSize && Veu::kComputeThreads == 8 * kStepGroups);
  static_assert(kStaged % kStepGroups == 0 && (kStaged == 0 || kLie == kWholeVectors) && (!kEarly || kOf != kKeysOfMask));
  constexpr int kSets = kSize / 32;
  constexpr bool kInWords = (WORDS & kStepInWords) == kStepInWords;
  static_assert(!kInWords || (kEarly && kLie != kElements));
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const AttentionStepArgs& args = task.template arguments<AttentionStepArgs>();
  uint32_t share, m;
  const uint32_t batch = divide(divide(task.index, args.share_count, share), args.queries, m);
  const StepBatch at = step_batch(args, batch);
  const int row = static_cast<int>(m), group = static_cast<int>(threadIdx.x) / 8;
  const StepOperands<In, Past, Turn, Bias> operands(task, args, at, row);

  // Behind what finish_step leaves in shared memory the scales of Q and K, the stages, and the rows that come as words.
  using Scales = StepScales<kRows, kSize, Veu>;
  using Stages = StepStages<kSize, kStaged, Past>;
  float* const work = task.template work_as<float>();  // once: said of it twice, nvcc 13.0 left out all that followed
  float* const scales = work + kComputeWarps * StepShape<kSize>::kWords;
  const Stages stages{reinterpret_cast<char*>(scales + Scales::kAll)};
  [[maybe_unused]] float* const own_rows = reinterpret_cast<float*>(stages.first + 2 * Stages::kStage);

  // Takes the keys that count, of those known now, and begins to copy them.
  StepTask keys{static_cast<int32_t>(share) * args.per_share, 0, -1, 0, false};
  keys.end = min(keys.begin + args.per_share, args.past);
  keys.own = keys.end == args.past ? args.own : 0;
  const auto begin_keys = [&] {
    if constexpr (kOf == kKeysOfMask) {
      const StepRange kept = keys_of_mask<kSize, Veu>(args, reinterpret_cast<int32_t*>(work), operands.bias, static_cast<int32_t>(share));
      keys.begin = kept.begin, keys.end = kept.end;
    } else if constexpr (kOf == kKeysOfLength) {
      keys = placed_keys(task, args, static_cast<int32_t>(share));
    }
    if constexpr (kStaged > 0) {
#pragma unroll 1
      for (int i = 0; i < 2; ++i) stages.template copy<Veu>(i, operands.past_k, operands.past_v, keys.begin + i * kStaged, keys.end);
    }
  };
  // What little the rTask needs besides keys is asked for first: it would come behind the copies.
  Scales of_rows;
  StepFactors<kSize> factors;
  of_rows.load(task, args);
  if constexpr (kInWords) load_turn<kLie, kRows>(args, operands, row, factors);
  if constexpr (kEarly) begin_keys();
  of_rows.leave(args, scales);
  if constexpr (Scales::kAll > 0 && !kInWords) sync_compute<Veu>();  // else await_step_rows does
  if constexpr (!kInWords) task.await_inputs();
  if constexpr (!kEarly) begin_keys();

  float4 q[kSets];
  [[maybe_unused]] StepKeys<kSize, 1, kLie, In> own_keys;
  if constexpr (kInWords) {
    await_step_rows<kSize>(task, args, at.q + static_cast<int64_t>(row) * args.q_m, at.k, at.v, keys.own, own_rows);
    load_shared_row(own_rows, q);
  } else {
    load_step_row<kLie>(operands.q, args.q_k, args.size, q);
    if (keys.own > 0) own_keys.load(operands.own_k, operands.own_v, group, keys.own);
    load_turn<kLie, kRows>(args, operands, row, factors);
  }
  factors.scale = scales;
  make_step_row<kRows>(q, args, factors);
  if constexpr (kOf == kKeysOfLength) {
#pragma unroll
    for (int j = 0; j < kSets; ++j) q[j] = keys.weighs_alike ? float4{0.0f, 0.0f, 0.0f, 0.0f} : q[j];
  }
  StepSums<kSets> sums;
#pragma unroll
  for (int j = 0; j < kSets; ++j) sums.y[j] = float4{0.0f, 0.0f, 0.0f, 0.0f};

  factors.scale = scales + kSize;
#pragma unroll 1
  for (int32_t first = 0; first < keys.own; first += kStepGroups) {  // once where they come as words
    if (!kInWords && first > 0) own_keys.load(operands.own_k, operands.own_v, first + group, keys.own);
    if (keys.own > 1 || row > 0) load_turn<kLie, kRows>(args, operands, min(first + group, keys.own - 1), factors);
    if constexpr (kInWords) {
      const AwaitedKeys<kSize> awaited{own_rows + kSize, min(group, keys.own - 1), keys.own};
      add_step_keys<kRows, 1>(args, awaited, q, factors, operands.own_bias(args), group, keys.own, -1, sums);
    } else {
      add_step_keys<kRows, 1>(args, own_keys, q, factors, operands.own_bias(args), first + group, keys.own, -1, sums);
    }
  }
  add_keys_before<Veu, kSize, kLie>(args, stages, operands, keys, q, factors, sums);

  Out* const out = values_at<Out>(task, args.out) + at.out + static_cast<int64_t>(row) * args.out_m;
  float* shares = task.address(args.shares);
  if (shares != nullptr) shares += static_cast<int64_t>(task.index) * StepShape<kSize>::kWords;
  finish_step<kSize>(task, args, work, sums, out, step_words<WORDS>(task, args, at.out, row), shares);
}

template <class Veu, int kSize, int kLie, int kRows, bool kEarly, int kStaged, uint32_t WORDS, class In = float, class Past = float,
          class Out = float, class Turn = float, class Bias = float>
RK_BODY void attention_step(const Task<Veu>& caller) {
  attend_step<Veu, kSize, kLie, kRows, kEarly, kStaged, kAllKeys, WORDS, In, Past, Out, Turn, Bias>(caller);
}

template <class Veu, int kSize, int kLie, int kRows, bool kEarly, int kStaged, uint32_t WORDS, class In = float, class Past = float,
          class Out = float, class Turn = float, class Bias = float>
RK_BODY void attention_step_masked(const Task<Veu>& caller) {
  attend_step<Veu, kSize, kLie, kRows, kEarly, kStaged, kKeysOfMask, WORDS, In, Past, Out, Turn, Bias>(caller);
}

template <class Veu, int kSize, int kLie, int kRows, bool kEarly, int kStaged, uint32_t WORDS, class In = float, class Past = float,
          class Out = float, class Turn = float, class Bias = float>
RK_BODY void attention_step_placed(const Task<Veu>& caller) {
  attend_step<Veu, kSize, kLie, kRows, kEarly, kStaged, kKeysOfLength, WORDS, In, Past, Out, Turn, Bias>(caller);
}

// Puts the shares of query m of a batch together: rTask batch * queries + m.
template <class Veu, int kSize, uint32_t WORDS, class Out = float>
RK_BODY void attention_step_sum(const Task<Veu>& caller) {
  constexpr int kWords = StepShape<kSize>::kWords, kAtOnce = 8;  // shares whose loads are under way together
  const Task<Veu> task = caller;
  const AttentionStepArgs& args = task.template arguments<AttentionStepArgs>();
  uint32_t m;
  const StepBatch at = step_batch(args, divide(task.index, args.queries, m));
  const int n = static_cast<int>(threadIdx.x), count = args.shares_of_query;
  const float* const shares = task.address(args.shares) + static_cast<int64_t>(task.index) * count * kWords;
  Out* const out = values_at<Out>(task, args.out) + at.out + static_cast<int64_t>(m) * args.out_m;
  uint32_t* const words = step_words<WORDS>(task, args, at.out, static_cast<int>(m));
  task.await_inputs();
  if (n >= args.values) return;
  float largest = -INFINITY, sum = 0.0f, y = 0.0f;
#pragma unroll 1
  for (int first = 0; first < count; first += kAtOnce) {
    float of_largest[kAtOnce], of_sum[kAtOnce], of_y[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float* const share = shares + min(first + i, count - 1) * kWords;
      of_largest[i] = first + i < count ? load1(share + kSize) : -INFINITY;
      of_sum[i] = load1(share + kSize + 1);
      of_y[i] = load1(share + n);
    }
    float base = largest;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) base = fmaxf(base, of_largest[i]);
    const float factor = step_factor(largest, base);
    largest = base;
    sum *= factor;
    y *= factor;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float weight = step_factor(of_largest[i], base);
      sum = fmaf(weight, of_sum[i], sum);
      y = fmaf(weight, of_y[i], y);
    }
  }
  store_step(task, args, y, sum, n, out, words);
}

}  // namespace rk
