// Attention (attention.cuh says of what) for many queries: a warp has kTiles tiles of 16 queries of its own and goes over all keys, so no
// sums are exchanged between warps (attention_tiles.cuh). K and V come by cp.async into a ring of stages in shared memory, once for the
// eight warps; Q, the weights of the keys (P: exp of the scores) and the sums stay in registers.
//
// A rTask has the same block of queries of one head or of several, one after the other. While it computes a head, the first stages of the
// next one are on their way: with 384 heads for 132 vEUs three heads are a rTask, and two of them begin with what they need.
//
// Limits: the rows of Q, K and V are whole, aligned cells, those of Y too if they have 16 bits, else aligned groups of four values.
#pragma once

#include "kernels/attention/attention_tiles.cuh"

namespace rk {

// The ring of stages.
template <int kSize, int kTiles, AttentionBias kBias, class In>
struct AttentionRing {
  static constexpr int kKeys = attention_stage_keys(kSize, sizeof(In), kTiles, kBias),
                       kStages = attention_stages(kSize, sizeof(In), kTiles, kBias), kCells = attention_cells(kSize, sizeof(In)),
                       kBytes = attention_stage_bytes(kSize, sizeof(In), kTiles, kBias);
};

// Where a head's rows begin; in shared memory behind the stages, since the registers are full of sums.
template <class In, class Out, class Bias>
struct AttentionPlace {
  const In *q, *k, *v;
  Out* out;
  const Bias* bias;
};

// Starts to copy the keys from `first` on into a stage: rows of K, then rows of V. Zeros behind the ends: a weight of 0 times what is left
// there from earlier could be NaN.
template <class Veu, class Ring, class In>
RK_INLINE void copy_stage(const AttentionArgs& args, const In* k, const In* v, char* stage, int32_t first) {
  constexpr int kKeys = Ring::kKeys, kCells = Ring::kCells, kOfCell = 16 / sizeof(In);
  constexpr int kAll = 2 * kKeys * kCells;
  const int thread = computed_now(static_cast<int>(threadIdx.x));  // so that addresses take no registers between two copies
#pragma unroll
  for (int i0 = 0; i0 < kAll; i0 += Veu::kComputeThreads) {
    const int i = i0 + thread;
    if (kAll % Veu::kComputeThreads != 0 && i >= kAll) break;
    const bool is_value = (kAll / 2 % Veu::kComputeThreads == 0 ? i0 : i) >= kAll / 2;
    const int row = i / kCells % kKeys, cell = i % kCells;
    const int32_t n = first + row, extent = is_value ? args.values : args.size;
    const In* const from = (is_value ? v : k) + static_cast<int64_t>(n) * (is_value ? args.v_n : args.k_n) + cell * kOfCell;
    cp_async16(stage + (i / kCells * kCells + attention_place<kCells>(row, cell)) * 16, from, n < args.keys && cell * kOfCell < extent);
  }
}

// Puts the numbers that are added to the keys' scores into shared memory, times log2(e) but finite; -inf for keys behind the end, up to a
// whole stage. In two steps, since a load takes as long as a turn: `load` has the number of the thread's first key, `store` brings the
// others as well.
template <class Veu, class Bias>
struct AddedOfKeys {
  float first;

  RK_INLINE static float of_key(const AttentionArgs& args, const Bias* bias, int32_t n) {
    return n < args.keys ? load1_near(bias + static_cast<int64_t>(n) * args.bias_n) : -INFINITY;
  }
  RK_INLINE void load(const AttentionArgs& args, const Bias* bias) { first = of_key(args, bias, static_cast<int32_t>(threadIdx.x)); }
  RK_INLINE void store(const AttentionArgs& args, const Bias* bias, float* to, int32_t all) const {
    auto n = static_cast<int32_t>(threadIdx.x);
    if (n < all) to[n] = finite_times_log2e(first);
#pragma unroll 1
    for (n += Veu::kComputeThreads; n < all; n += Veu::kComputeThreads) to[n] = finite_times_log2e(of_key(args, bias, n));
  }
};

// The types and numbers of one body.
template <int kSize, int kTiles, AttentionBias kBias, bool kWide, class In, class Out, class Bias>
struct AttentionOfHeads {
  using Ring = AttentionRing<kSize, kTiles, kBias, In>;
  using Place = AttentionPlace<In, Out, Bias>;
  static constexpr int kStages = Ring::kStages;
  static constexpr int kKeys =  // at a time: as there are registers for scores
      kTiles > 1 && (sizeof(In) == 4 || kSize > 64) ? 16 : Ring::kKeys;
  static_assert(sizeof(Place) == kAttentionPlaceBytes);
  static_assert(!kWide || (kKeys == Ring::kKeys && kSize == 64 && sizeof(In) == 2));

  const AttentionArgs& args;
  int32_t m0;  // first query of the warp
  char* stages;
  Place* places;  // of the rTask's heads
  float* of_keys;
  AttentionTiles<kSize, kTiles, kKeys, In> tiles;
  AttentionAdded<kTiles, kKeys> added;

  RK_INLINE AttentionOfHeads(const AttentionArgs& args_, int32_t block, char* work)
      : args(args_), m0((block * kAttentionWarps + warp_id()) * (kTiles * kAttentionRows)), stages(work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    if constexpr (kWide) stages += -smem_address(stages) & 1023u;  // patterns of wgmma's operands repeat every 1024 bytes
#endif
    places = reinterpret_cast<Place*>(stages + kStages * Ring::kBytes);
    of_keys = reinterpret_cast<float*>(places + kAttentionMostHeads);
  }
  RK_INLINE int32_t of_head() const { return (args.keys + Ring::kKeys - 1) / Ring::kKeys * Ring::kKeys; }  // numbers of keys

  template <class Veu>
  RK_INLINE Place place_of(const Task<Veu>& task, int32_t head) const {
    const AttentionBatch at = attention_batch(args, static_cast<uint32_t>(head));
    return {values_at<const In>(task, args.q) + at.q, values_at<const In>(task, args.k) + at.k, values_at<const In>(task, args.v) + at.v,
            values_at<Out>(task, args.out) + at.out, values_at<const Bias>(task, args.bias) + at.bias};
  }
  // Waits until the calling thread's copies are there but for the last LEFT groups, and then for all threads.
  template <class Veu, int LEFT>
  RK_INLINE static void await_stage() {
    cp_async_wait<LEFT>();
    if constexpr (kWide) proxy_fence_shared();
    sync_compute<Veu>();
  }
  // Adds the keys of a stage, the first of which is `first`. `next`: whose queries are loaded as soon as the last keys are multiplied, if
  // any's; `bias`, `added_of`: of this head.
  RK_INLINE void add_stage(const char* stage, int32_t first, const Bias* bias, const float* added_of, const Place* next) {
    if (!kWide && m0 >= args.queries) return;  // the warp only copies; wgmma asks for all four warps of a warpgroup
#pragma unroll 1
    for (int part = 0; part < Ring::kKeys; part += kKeys) {
      const int32_t at = first + part;
      if (Ring::kKeys > kKeys && at >= args.keys) break;
      const bool goes_on = next != nullptr && at + kKeys >= args.keys;
      AttentionAdded<kTiles, kKeys> later;
      if constexpr (kBias == kBiasOfScores) load_added(args, goes_on ? next->bias : bias, m0, goes_on ? 0 : at + kKeys, later);
      const char* const values = stage + Ring::kBytes / 2;
      float scores[kTiles][kKeys / 8][4];
      if constexpr (kWide)
        multiply_keys_wide(tiles, stage, scores);
      else
        multiply_keys(tiles, stage + part * Ring::kCells * 16, scores);
      if (goes_on) tiles.load_queries(args, next->q, m0);
      finish_scores<kBias>(args, at, added, added_of, scores);
      weigh_scores<kBias>(tiles, AttentionScores<kBias>::scale(args), scores);
      if constexpr (kWide)
        multiply_values_wide(tiles, values, scores);
      else
        multiply_values(tiles, values + part * Ring::kCells * 16, scores);
      if constexpr (kBias == kBiasOfScores) added = later;
    }
  }
};

// A rTask of one head. With two stages both are on their way at first, else all but one.
template <class Veu, class Rows, AttentionBias kBias, class Bias>
RK_INLINE void attend_head(const Task<Veu>& task, Rows& rows, int32_t head) {
  using Ring = typename Rows::Ring;
  constexpr int kStages = Ring::kStages, kFirst = kStages == 2 ? 2 : kStages - 1;
  const AttentionArgs& args = rows.args;
  {
    const auto place = rows.place_of(task, head);
    task.await_inputs();
#pragma unroll
    for (int s = 0; s < kFirst; ++s) {
      if (s * Ring::kKeys < args.keys) copy_stage<Veu, Ring>(args, place.k, place.v, rows.stages + s * Ring::kBytes, s * Ring::kKeys);
      cp_async_commit();
    }
    if (threadIdx.x == 0) rows.places[0] = place;
    rows.tiles.load_queries(args, place.q, rows.m0);
    rows.tiles.make_operands();
    rows.tiles.clear();
    if constexpr (kBias == kBiasOfScores) load_added(args, place.bias, rows.m0, 0, rows.added);
    if constexpr (kBias == kBiasOfKeys) {
      AddedOfKeys<Veu, Bias> added;
      added.load(args, place.bias);
      added.store(args, place.bias, rows.of_keys, rows.of_head());
    }
  }
#pragma unroll 1
  for (int32_t turn = 0, stage = 0; turn * Ring::kKeys < args.keys; ++turn) {
    if (kFirst == kStages && turn == 0)
      Rows::template await_stage<Veu, kStages - 1>();
    else
      Rows::template await_stage<Veu, kStages - 2>();  // all see this turn's stage, and have read the one before it
    const int32_t next = turn + kStages - 1;
    if ((kFirst < kStages || turn > 0) && next * Ring::kKeys < args.keys)
      copy_stage<Veu, Ring>(args, rows.places[0].k, rows.places[0].v, rows.stages + (stage == 0 ? kStages - 1 : stage - 1) * Ring::kBytes,
                            next * Ring::kKeys);
    if (kFirst < kStages || turn > 0) cp_async_commit();
    rows.add_stage(rows.stages + stage * Ring::kBytes, turn * Ring::kKeys, rows.places[0].bias, rows.of_keys, nullptr);
    stage = stage == kStages - 1 ? 0 : stage + 1;
  }
  store_tiles(args, rows.places[0].out, rows.m0, rows.tiles);
}

// A rTask of several heads, one after the other. Stages go on from one head to the next.
template <class Veu, class Rows, AttentionBias kBias, class Bias>
RK_INLINE void attend_heads(const Task<Veu>& task, Rows& rows, int32_t first_head) {
  using Ring = typename Rows::Ring;
  constexpr int kStages = Ring::kStages;
  const AttentionArgs& args = rows.args;
  const int32_t heads = min(args.heads, args.all_heads - first_head), of_head = rows.of_head();
  if (static_cast<int32_t>(threadIdx.x) < heads)
    rows.places[threadIdx.x] = rows.place_of(task, first_head + static_cast<int32_t>(threadIdx.x));
  sync_compute<Veu>();
  task.await_inputs();
  AddedOfKeys<Veu, Bias> added_of_keys{};
  rows.tiles.load_queries(args, rows.places[0].q, rows.m0);
  rows.tiles.clear();
  if constexpr (kBias == kBiasOfScores) load_added(args, rows.places[0].bias, rows.m0, 0, rows.added);
  if constexpr (kBias == kBiasOfKeys) added_of_keys.load(args, rows.places[0].bias);
  int32_t head = 0, first = 0;                  // of the turn: its head and its first key
  int32_t copied_head = 0, copied_first = 0;    // of the next stage to be copied
  int stage = 0, copied = 0, turns = -kStages;  // turns: that were begun; below 0: the first stages are copied
#pragma unroll 1
  while (true) {
    if (turns > 0)
      Rows::template await_stage<Veu, kStages - 2>();  // all see this turn's stage, and have read the one before it
    else if (turns == 0)
      Rows::template await_stage<Veu, kStages - 1>();
    if (turns != 0) {
      if (copied_head < heads) {
        copy_stage<Veu, Ring>(args, rows.places[copied_head].k, rows.places[copied_head].v, rows.stages + copied * Ring::kBytes,
                              copied_first);
        copied = copied == kStages - 1 ? 0 : copied + 1;
        copied_first += Ring::kKeys;
        if (copied_first >= args.keys) copied_first = 0, ++copied_head;
      }
      cp_async_commit();
    }
    if (++turns <= 0) {
      if (turns == 0 && kBias == kBiasOfKeys) added_of_keys.store(args, rows.places[0].bias, rows.of_keys, of_head);
      continue;
    }
    const bool has_next = head + 1 < heads, brings_next = kBias == kBiasOfKeys && first == 0 && has_next;
    if (brings_next) added_of_keys.load(args, rows.places[head + 1].bias);  // numbers of the next head's keys
    if (first == 0) rows.tiles.make_operands();
    rows.add_stage(rows.stages + stage * Ring::kBytes, first, rows.places[head].bias, rows.of_keys + head % 2 * of_head,
                   has_next ? rows.places + head + 1 : nullptr);
    if (brings_next) added_of_keys.store(args, rows.places[head + 1].bias, rows.of_keys + (head + 1) % 2 * of_head, of_head);
    stage = stage == kStages - 1 ? 0 : stage + 1;
    first += Ring::kKeys;
    if (first < args.keys) continue;
    store_tiles(args, rows.places[head].out, rows.m0, rows.tiles);
    if (++head == heads) break;
    first = 0;
    rows.tiles.clear();
  }
}

template <class Veu, int kSize, int kTiles, AttentionBias kBias, bool kMany, bool kWide, class In, class Out, class Bias>
RK_INLINE void attend_rows(const Task<Veu>& caller) {
  static_assert(kSize % 32 == 0 && kSize <= kAttentionLargestSize && Veu::kComputeThreads == kAttentionWarps * kWarp);
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const AttentionArgs& args = task.template arguments<AttentionArgs>();
  uint32_t block;
  const int32_t first_head = static_cast<int32_t>(divide(task.index, args.blocks, block)) * args.heads;
  using Rows = AttentionOfHeads<kSize, kTiles, kBias, kWide, In, Out, Bias>;
  Rows rows(args, static_cast<int32_t>(block), task.template work_as<char>());
  if constexpr (kMany)
    attend_heads<Veu, Rows, kBias, Bias>(task, rows, first_head);
  else
    attend_head<Veu, Rows, kBias, Bias>(task, rows, first_head);
}

template <class Veu, int kSize, int kTiles, AttentionBias kBias, bool kMany, class In, class Out, class Bias>
RK_BODY void attend_rows_call(const Task<Veu>& task) {
  attend_rows<Veu, kSize, kTiles, kBias, kMany, false, In, Out, Bias>(task);
}

// kSize: a multiple of 32, at least as large as `size` and `values`. kBias: kBiasOfKeys asks for bias_m 0. kMany: a rTask may have more
// than one head. kWide: multiply by wgmma where the code is built for it (sm_90a): of 16-bit rows with kSize 64. Such a body must be in
// line, see StagedWideProduct.
template <class Veu, int kSize, int kTiles, AttentionBias kBias, bool kMany, bool kWide, class In = float, class Out = float,
          class Bias = float>
RK_INLINE void attention_rows(const Task<Veu>& task) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (kWide) {
    attend_rows<Veu, kSize, kTiles, kBias, kMany, true, In, Out, Bias>(task);
    return;
  }
#endif
  attend_rows_call<Veu, kSize, kTiles, kBias, kMany, In, Out, Bias>(task);
}

}  // namespace rk
