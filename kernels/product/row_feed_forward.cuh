// The feed-forward part of a transformer for one row, as a decoder's step has it, in two phases:
//   y[h] = act(sum over k of n[k] * first[k][h] + b[h]), or with two FACTORS that times (sum over k of n[k] * up[k][h] + c[h])
//   z[c] = residual[c] + bias[c] + sum over h of y[h] * second[h][c]
// n is x, or x normalised; the normalisation's scale and shift are in the weights and in b and c.
//
// In the first phase a rTask makes COLUMNS columns of y and multiplies them by their rows of `second` at once: a part of the sums of all
// columns of z. So no rTask waits for other columns of y, and the weights of all three products are one stream that nothing interrupts.
// The second phase adds up the parts, each rTask those of sixteen columns, always in the same order.
//
// Products are by mma_f16, as gemv_row.cuh's: x is split into two fp16 numbers, which are rows 0 and 8 of operand A, and weights are fp16
// with a scale for each column. A chunk of the ring is CHUNK_BYTES of cells. A cell that does not fit in what is left of a chunk begins the
// next one. Quantised weights lie in cells of gemv_cell.cuh: FIRST and SECOND are a GemvCell of the first products and of the second one.
//   - First a block of cells for each 32 k: for each eight columns a cell of the gate, then one of `up`. In a cell a column's 32 k lie side
//     by side, 64 bytes, of which lane 4 n + t reads k 8 t to 8 t + 7 of column n. A warp has every eighth tile of eight columns.
//   - Then scale and bias of each column of the gate, and of `up`.
//   - Then for each 128 columns of z a step of cells for each 16 columns of y, a cell for each warp: lane 4 g + t has y 2 t, 2 t + 1,
//     2 t + 8 and 2 t + 9 of column g, and the same of column g + 8. Quantised, a step is 32 columns of y, and two cells for each warp.
// SCALED: the normalisation's scale is not in the weights, whose steps it would undo; x is multiplied by it (`factors`).
//
// Example: K 2048, 8192 columns of y, 2048 of z, two factors; COLUMNS 64, so 128 rTasks. rTask 5 has columns 320 to 383 of y: 8 tiles, one
// a warp. A block is 8 KB, and 64 of them are 512 KB; a step 4 KB, 16 turns of 4 steps 256 KB: 16 chunks of 48 KB.
#pragma once

#include "kernels/product/gemv_row.cuh"
#include "kernels/product/row_feed_forward_numbers.cuh"

namespace rk {

struct RowFeedArgs {  // in tables
  TensorRef in;       // x, or its words
  TensorRef partial;  // [rTask][pitch]
  int32_t columns;    // of z
  float inverse_k, epsilon;
  float a, b;           // of the activation
  TensorRef factors{};  // with SCALED, K floats
};

// The cells of a rTask, one after another.
template <class Veu, int CHUNK_BYTES>
struct CellStream {
  WeightPipe<Veu> weights;
  const char* at;
  int left;  // bytes of this chunk

  RK_INLINE explicit CellStream(const Task<Veu>& task) : weights(task.weights), at(nullptr), left(0) {
    weights.stages = as_shared(weights.stages);
    open();
  }
  RK_INLINE void open() {
    at = weights.acquire();
    left = CHUNK_BYTES;
  }
  // How many cells, or blocks of cells, of BYTES lie here; at least one.
  template <int BYTES>
  RK_INLINE int there() {
    if (left < BYTES) {
      weights.release();
      open();
    }
    return left / BYTES;
  }
  RK_INLINE void skip(int bytes) {
    at += bytes;
    left -= bytes;
  }
};

// --- x as operand A --------------------------------------------------------------------------------------------------------

// This thread's fours of x, number `turn` of which begins at k 4 (256 turn + thread).
template <int K>
struct RowFeedFours {
  static constexpr int kThreads = kComputeWarps * kWarp, kTurns = (K / 4 + kThreads - 1) / kThreads;
  float4 of[kTurns];

  RK_INLINE static int four(int turn) { return turn * kThreads + static_cast<int>(threadIdx.x); }
  RK_INLINE static bool has(int turn) { return (turn + 1) * kThreads <= K / 4 || four(turn) < K / 4; }

  // Looks for x for the first time, where it comes as words.
  template <bool IN_WORDS, class Veu>
  RK_INLINE static auto poll(const Task<Veu>& task, const TensorRef& in) {
    if constexpr (IN_WORDS) {
      const uint32_t* words[kTurns];
      place_words(task, in, words);
      return PolledValues<kTurns>(words);
    } else {
      return 0;
    }
  }
  template <class In, bool IN_WORDS, class Polled, class Veu>
  RK_INLINE void load(const Task<Veu>& task, const TensorRef& in, Polled& polled) {
    if constexpr (IN_WORDS) {
      const uint32_t* words[kTurns];
      place_words(task, in, words);
      polled.await(task, words, of);
    } else {
      const In* const from = values_at<const In>(task, in);
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) of[turn] = load4(from + (has(turn) ? four(turn) * 4 : 0));
    }
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (!has(turn)) of[turn] = float4{0.0f, 0.0f, 0.0f, 0.0f};
    }
  }

  RK_INLINE void load_constants(const float* from) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) of[turn] = load_weight4(from + (has(turn) ? four(turn) * 4 : 0));
  }

 private:
  template <class Veu>
  RK_INLINE static void place_words(const Task<Veu>& task, const TensorRef& in, const uint32_t* (&words)[kTurns]) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) words[turn] = words_at(task, in) + (has(turn) ? four(turn) * 4 : 0);
  }
};

// What each warp has left in `of_warps`, added up in order, or the largest of it.
RK_INLINE float sum_of_warps(const float* of_warps) {
  const float4* const from = reinterpret_cast<const float4*>(of_warps);
  return sum_of4(from[0]) + sum_of4(from[1]);
}
RK_INLINE uint32_t largest_of_warps(const float* of_warps) {
  const float4* const from = reinterpret_cast<const float4*>(of_warps);
  return max(magnitude_of4(from[0]), magnitude_of4(from[1]));
}

// Leaves x as operands, and returns what the sums have to be multiplied by. SCALED: x times `factors`, behind the normalisation.
template <class Veu, int K, int NORM, bool SCALED, int FIRST>
RK_INLINE float row_feed_operands(const RowFeedArgs& args, RowFeedFours<K>& x, [[maybe_unused]] const RowFeedFours<K>& factors, uint4* to,
                                  float* stats) {
  constexpr int kBlocks = (K + kRowFeedDepth - 1) / kRowFeedDepth;
  using Fours = RowFeedFours<K>;
  float *const sums = stats, *const squares = stats + kComputeWarps, *const largest = stats + 2 * kComputeWarps;
  if constexpr (NORM == kGemvCentred) {
    float sum = 0.0f;
#pragma unroll
    for (int turn = 0; turn < Fours::kTurns; ++turn) sum += sum_of4(x.of[turn]);
    sum = warp_sum(sum);
    if (lane_id() == 0) sums[warp_id()] = sum;
    sync_compute<Veu>();
    const float mean = sum_of_warps(sums) * args.inverse_k;
#pragma unroll
    for (int turn = 0; turn < Fours::kTurns; ++turn) {
      const float4& v = x.of[turn];
      if (Fours::has(turn)) x.of[turn] = float4{v.x - mean, v.y - mean, v.z - mean, v.w - mean};
    }
  }
  float square = 0.0f;
  uint32_t magnitude = 0;
#pragma unroll
  for (int turn = 0; turn < Fours::kTurns; ++turn) {
    square += gemv_squares4(x.of[turn]);
    if constexpr (SCALED) {
      const float4 &v = x.of[turn], &f = factors.of[turn];
      x.of[turn] = float4{v.x * f.x, v.y * f.y, v.z * f.z, v.w * f.w};
    }
    magnitude = max(magnitude, magnitude_of4(x.of[turn]));
  }
  if constexpr (NORM != kGemvAsIs) square = warp_sum(square);
  magnitude = __reduce_max_sync(kFullMask, magnitude);
  if (lane_id() == 0) {
    squares[warp_id()] = square;
    largest[warp_id()] = __uint_as_float(magnitude);
  }
  sync_compute<Veu>();
  const HalfScale scale(largest_of_warps(largest));
#pragma unroll
  for (int turn = 0; turn < Fours::kTurns; ++turn) {
    const float4& v = x.of[turn];
    const bool is_there = Fours::four(turn) < kBlocks * (kRowFeedDepth / 4);
    if constexpr (FIRST != kCellHalves) {
      GemvCellRow(to, kBlocks).template leave<FIRST>(scale, v, Fours::four(turn), is_there);
    } else {
      const uint2 first = scale.split(v.x, v.y), second = scale.split(v.z, v.w);
      if (is_there) to[Fours::four(turn)] = uint4{first.x, first.y, second.x, second.y};
    }
  }
  float factor = scale.inverse;
  if constexpr (NORM != kGemvAsIs) factor *= rsqrtf(fmaf(sum_of_warps(squares), args.inverse_k, args.epsilon));
  return factor;
}

// --- the first products ----------------------------------------------------------------------------------------------------

// A warp's sums of its tiles, as mma_f16 has them: two of eight columns, which do not wait for each other.
template <int K, int COLUMNS, int FACTORS, int FIRST, int SECOND>
struct RowFeedFirst {
  static constexpr RowFeedSlice kSlice = {K, COLUMNS, FACTORS, FIRST, SECOND};
  static constexpr int kFactors = FACTORS, kTiles = kSlice.tiles(), kParts = kSlice.parts(),
                       kTurns = (kTiles + kComputeWarps - 1) / kComputeWarps;
  float of[kTurns][FACTORS][2][4];
  int tile, part;

  RK_INLINE RowFeedFirst() : tile(warp_id() % (kTiles < kComputeWarps ? kTiles : kComputeWarps)), part(warp_id() / kTiles) {
    if (kTiles >= kComputeWarps) part = 0;
#pragma unroll
    for (int i = 0; i < kTurns * FACTORS * 8; ++i) of[i / 8 / FACTORS][i / 8 % FACTORS][i / 4 % 2][i % 4] = 0.0f;
  }
  RK_INLINE bool has(int turn) const { return (turn + 1) * kComputeWarps <= kTiles || tile + turn * kComputeWarps < kTiles; }
  // Whether block b of k is this warp's.
  RK_INLINE bool takes(int b) const { return kParts == 1 ? true : b % kParts == part; }

  // The lane's weights of a block.
  struct Cells {
    uint4 of[kTurns][FACTORS];
  };
  RK_INLINE void load(const char* block, Cells& cells) const {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
#pragma unroll
      for (int f = 0; f < FACTORS; ++f) {
        const int cell = (tile + turn * kComputeWarps) * FACTORS + f;
        cells.of[turn][f] = uint4{0u, 0u, 0u, 0u};
        if (has(turn)) cells.of[turn][f] = *reinterpret_cast<const uint4*>(block + cell * gemv_cell_bytes(kCellHalves) + lane_id() * 16);
      }
    }
  }
  RK_INLINE void multiply(const uint4* x, int b, const Cells& cells) {
    uint4 pairs[2] = {};
    if (lane_id() < 4) {  // who have rows 0 and 8 of operand A
      const uint4* const from = x + b * (kRowFeedDepth / 4) + lane_id() * 2;
      pairs[0] = from[0], pairs[1] = from[1];
    }
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
#pragma unroll
      for (int f = 0; f < FACTORS; ++f) {
        const uint4& w = cells.of[turn][f];
        mma_f16(of[turn][f][0], {pairs[0].x, pairs[0].y, pairs[0].z, pairs[0].w}, {w.x, w.y});
        mma_f16(of[turn][f][1], {pairs[1].x, pairs[1].y, pairs[1].z, pairs[1].w}, {w.z, w.w});
      }
    }
  }
  // Leaves the warp's sums: [part][factor][column].
  RK_INLINE void leave(float* to) const {
    if (lane_id() >= 4 || part >= kParts) return;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (!has(turn)) continue;
#pragma unroll
      for (int f = 0; f < FACTORS; ++f) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const auto& [first, second] = of[turn][f];
          const int column = (tile + turn * kComputeWarps) * kRowFeedTile + lane_id() * 2 + c;
          to[(part * FACTORS + f) * COLUMNS + column] = gemv_row_whole(first[c] + second[c], first[2 + c] + second[2 + c]);
        }
      }
    }
  }
};

// The same sums of quantised weights: a tile's columns of both factors are the two cells of a product.
template <int K, int COLUMNS, int FACTORS, int FIRST, int SECOND>
struct RowFeedFirstCells {
  static constexpr RowFeedSlice kSlice = {K, COLUMNS, FACTORS, FIRST, SECOND};
  static constexpr int kTiles = kSlice.tiles(), kParts = kSlice.parts(), kTurns = (kTiles + kComputeWarps - 1) / kComputeWarps;
  float of[kTurns][2];
  int tile, part;

  RK_INLINE RowFeedFirstCells() : tile(warp_id() % (kTiles < kComputeWarps ? kTiles : kComputeWarps)), part(warp_id() / kTiles) {
    if (kTiles >= kComputeWarps) part = 0;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) of[turn][0] = of[turn][1] = 0.0f;
  }
  RK_INLINE bool has(int turn) const { return (turn + 1) * kComputeWarps <= kTiles || tile + turn * kComputeWarps < kTiles; }
  RK_INLINE void add(const char* block, const uint4* space, int b) {
    const GemvCellRow row(const_cast<uint4*>(space), kSlice.blocks());
    const uint4 x = pairs_of_lane(row, b);
    const float2 base = row.bases[b];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (!has(turn)) continue;
      const char* const from = block + (tile + turn * kComputeWarps) * FACTORS * gemv_cell_bytes(FIRST);
      GemvCells<FIRST, FACTORS == 2> cells;
      cells.load(from, lane_id());
      cells.multiply(x, base, of[turn]);
    }
  }
  // Leaves the warp's sums: [part][factor][column].
  RK_INLINE void leave(float* to) const {
    if (lane_id() % 4 != 0 || part >= kParts) return;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (!has(turn)) continue;
      const int column = (tile + turn * kComputeWarps) * kRowFeedTile + lane_id() / 4;
#pragma unroll
      for (int f = 0; f < FACTORS; ++f) to[(part * FACTORS + f) * COLUMNS + column] = of[turn][f];
    }
  }
};

// y of COLUMNS columns as operands, by warp 0. Returns, to that warp, what sums with them have to be multiplied by.
template <class First, int COLUMNS, int FACTORS, int ACTIVATION>
RK_INLINE float row_feed_middle(const RowFeedArgs& args, const float* sums, const float2* infos, float factor, float* y, uint4* to) {
  constexpr RowFeedSlice kSlice = First::kSlice;
  constexpr int PARTS = kSlice.parts(), kSteps = kSlice.steps(), kAll = kSteps * kSlice.step_rows();
  static_assert(kAll <= 4 * kWarp && (kSlice.is_second_packed() || kSteps * 4 <= kWarp));
  float4 made = {0.0f, 0.0f, 0.0f, 0.0f};
  float* const values = &made.x;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = lane_id() * 4 + i;
    float of[FACTORS];
#pragma unroll
    for (int f = 0; f < FACTORS; ++f) {
      float sum = 0.0f;
#pragma unroll
      for (int part = 0; part < PARTS; ++part) sum += column < COLUMNS ? sums[(part * FACTORS + f) * COLUMNS + column] : 0.0f;
      const float2 info = column < COLUMNS ? infos[f * COLUMNS + column] : float2{0.0f, 0.0f};
      of[f] = fmaf(sum, info.x * factor, info.y);
    }
    float v = activate(ACTIVATION, of[0], args.a, args.b);
    if constexpr (FACTORS == 2) v *= of[1];
    values[i] = column < COLUMNS ? v : 0.0f;
  }
  const HalfScale scale(__reduce_max_sync(kFullMask, magnitude_of4(made)));
  if constexpr (kSlice.is_second_packed()) {
    GemvCellRow(to, kSteps).template leave<kSlice.second>(scale, made, lane_id(), lane_id() * 4 < kAll);
    return scale.inverse;
  }
  if (lane_id() * 4 < kAll) reinterpret_cast<float4*>(y)[lane_id()] = made;
  __syncwarp();
  if (lane_id() < kSteps * 4) {
    const float* const from = y + lane_id() / 4 * kRowFeedStep + lane_id() % 4 * 2;
    const uint2 first = scale.split(from[0], from[1]), second = scale.split(from[8], from[9]);
    to[lane_id()] = uint4{first.x, first.y, second.x, second.y};
  }
  return scale.inverse;
}

// --- the bodies ------------------------------------------------------------------------------------------------------------

// A warp's blocks of the first chunk, in registers.
template <class First, int OF_CHUNK>
struct RowFeedHeld {
  static constexpr int kEach = (OF_CHUNK + First::kParts - 1) / First::kParts;
  static constexpr bool kFits = kEach * First::kTurns * First::kFactors <= kRowFeedHeld && OF_CHUNK < First::kSlice.blocks();
  typename First::Cells of[kFits ? kEach : 1];

  RK_INLINE static int block(const First& first, int i) { return i * First::kParts + first.part; }
  RK_INLINE void load(const First& first, const char* chunk) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) first.load(chunk + min(block(first, i), OF_CHUNK - 1) * First::kSlice.block_bytes(), of[i]);
  }
  RK_INLINE void multiply(First& first, const uint4* x) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (block(first, i) < OF_CHUNK && first.part < First::kParts) first.multiply(x, block(first, i), of[i]);
    }
  }
};

// Blocks `block` and behind it.
template <class First, class Stream>
RK_INLINE void row_feed_blocks(First& first, Stream& cells, const uint4* x, int block) {
  constexpr int kBlocks = First::kSlice.blocks(), kBytes = First::kSlice.block_bytes();
#pragma unroll 1
  while (block < kBlocks) {
    const int here = min(cells.template there<kBytes>(), kBlocks - block);
    // The first of these blocks that is the warp's.
    const int begin = First::kParts == 1 ? 0 : (first.part - block % First::kParts + First::kParts) % First::kParts;
    if (First::kParts == 1 || first.part < First::kParts) {
#pragma unroll 4
      for (int i = begin; i < here; i += First::kParts) {
        typename First::Cells loaded;
        first.load(cells.at + i * kBytes, loaded);
        first.multiply(x, block + i, loaded);
      }
    }
    cells.skip(here * kBytes);
    block += here;
  }
}

// The rTask's part of z: of all columns, y times their weights.
template <class First, class Stream>
RK_INLINE void row_feed_second(Stream& cells, const uint4* y, float factor, int columns, float* to) {
  constexpr int kSteps = First::kSlice.steps(), kBytes = First::kSlice.step_bytes();
#pragma unroll 1
  for (int column = 0; column < columns; column += kRowFeedTurn, to += kRowFeedTurn) {
    float sum[2][4] = {};
#pragma unroll 1
    for (int step = 0; step < kSteps;) {
      const int here = min(cells.template there<kBytes>(), kSteps - step);
#pragma unroll 4
      for (int i = 0; i < here; ++i) {
        const uint4 w = *reinterpret_cast<const uint4*>(cells.at + i * kBytes + (warp_id() * kWarp + lane_id()) * 16);
        uint4 pairs = {};
        if (lane_id() < 4) pairs = y[(step + i) * 4 + lane_id()];
        mma_f16(sum[0], {pairs.x, pairs.y, pairs.z, pairs.w}, {w.x, w.y});
        mma_f16(sum[1], {pairs.x, pairs.y, pairs.z, pairs.w}, {w.z, w.w});
      }
      cells.skip(here * kBytes);
      step += here;
    }
    if (lane_id() < 4) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float2 made = {gemv_row_whole(sum[i][0], sum[i][2]) * factor, gemv_row_whole(sum[i][1], sum[i][3]) * factor};
        *reinterpret_cast<float2*>(to + i * 8 + lane_id() * 2) = made;
      }
    }
    __syncwarp();
  }
}

// Blocks of quantised weights, of which a part is this warp's.
template <class First, class Stream>
RK_INLINE void row_feed_cells(First& first, Stream& cells, const uint4* x) {
  constexpr int kBlocks = First::kSlice.blocks(), kBytes = First::kSlice.block_bytes();
#pragma unroll 1
  for (int block = 0; block < kBlocks;) {
    const int here = min(cells.template there<kBytes>(), kBlocks - block);
    const int begin = First::kParts == 1 ? 0 : (first.part - block % First::kParts + First::kParts) % First::kParts;
    if (First::kParts == 1 || first.part < First::kParts) {
#pragma unroll 2
      for (int i = begin; i < here; i += First::kParts) first.add(cells.at + i * kBytes, x, block + i);
    }
    cells.skip(here * kBytes);
    block += here;
  }
}

// The rTask's part of z, of quantised weights. The cells of a turn are in one chunk.
template <class First, class Stream>
RK_INLINE void row_feed_second_cells(Stream& cells, const uint4* y, float factor, int columns, float* to) {
  constexpr RowFeedSlice kSlice = First::kSlice;
  constexpr int kSteps = kSlice.steps(), kBytes = kSlice.step_bytes();
  using Two = GemvCells<kSlice.second, true>;
  const GemvCellRow row(const_cast<uint4*>(y), kSteps);
#pragma unroll 1
  for (int turn = 0, turns = (columns + kRowFeedTurn - 1) / kRowFeedTurn; turn < turns;) {
    const int here = min(cells.template there<kSteps * kBytes>(), turns - turn);
#pragma unroll 1
    for (int i = 0; i < here; ++i, to += kRowFeedTurn) {
      float sums[2] = {};
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        Two two;
        two.load(cells.at + (i * kSteps + step) * kBytes + warp_id() * Two::kBytes, lane_id());
        two.multiply(pairs_of_lane(row, step), row.bases[step], sums);
      }
      if (lane_id() % 4 == 0) {
        to[lane_id() / 4] = sums[0] * factor;
        to[8 + lane_id() / 4] = sums[1] * factor;
      }
    }
    __syncwarp();
    cells.skip(here * kSteps * kBytes);
    turn += here;
  }
}

// In: x in memory. WORDS: 1 where x comes as words.
template <class Veu, int K, int COLUMNS, int FACTORS, int FIRST, int SECOND, bool SCALED, int NORM, int ACTIVATION, int CHUNK_BYTES,
          class In, uint32_t WORDS>
RK_BODY void row_feed_forward(const Task<Veu>& caller) {
  constexpr bool kIsPacked = FIRST != kCellHalves;
  using First = std::conditional_t<kIsPacked, RowFeedFirstCells<K, COLUMNS, FACTORS, FIRST, SECOND>,
                                   RowFeedFirst<K, COLUMNS, FACTORS, FIRST, SECOND>>;
  constexpr RowFeedSlice kSlice = First::kSlice;
  constexpr int kOfChunk = CHUNK_BYTES / kSlice.block_bytes() < kSlice.blocks() ? CHUNK_BYTES / kSlice.block_bytes() : kSlice.blocks();
  constexpr bool kInWords = (WORDS & 1u) != 0;
  static_assert(K % 4 == 0 && Veu::kComputeThreads == kComputeWarps * kWarp);
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const RowFeedArgs& args = task.template arguments<RowFeedArgs>();
  uint4* const x_pairs = task.template work_as<uint4>();
  uint4* const y_pairs = x_pairs + kSlice.x_operand();
  float* const y = reinterpret_cast<float*>(y_pairs + kSlice.y_operand());
  float* const sums = y + kSlice.steps() * kSlice.step_rows();
  float* const stats = sums + kSlice.parts() * FACTORS * COLUMNS;
  auto polled = RowFeedFours<K>::template poll<kInWords>(task, args.in);
  CellStream<Veu, CHUNK_BYTES> cells(task);
  First first;

  // Before x is there, the first chunk's weights are in registers, if they fit, and its stage is free again.
  using Held = RowFeedHeld<RowFeedFirst<K, COLUMNS, FACTORS, FIRST, SECOND>, kOfChunk>;
  constexpr bool kHolds = !kIsPacked && Held::kFits;
  [[maybe_unused]] Held held;
  if constexpr (kHolds) {
    held.load(first, cells.at);
    cells.weights.release_after_loads();
  }
  [[maybe_unused]] RowFeedFours<K> factors;
  if constexpr (SCALED) factors.load_constants(task.address(args.factors));
  if constexpr (!kInWords) task.await_inputs();
  RowFeedFours<K> x;
  x.template load<In, kInWords>(task, args.in, polled);
  const float factor = row_feed_operands<Veu, K, NORM, SCALED, FIRST>(args, x, factors, x_pairs, stats);
  sync_compute<Veu>();

  if constexpr (kHolds) {
    held.multiply(first, x_pairs);
    cells.open();
  }
  if constexpr (kIsPacked)
    row_feed_cells(first, cells, x_pairs);
  else
    row_feed_blocks(first, cells, x_pairs, kHolds ? kOfChunk : 0);
  first.leave(sums);
  cells.template there<kSlice.info_bytes()>();
  const float2* const infos = reinterpret_cast<const float2*>(cells.at);
  cells.skip(kSlice.info_bytes());
  sync_compute<Veu>();
  if (warp_id() == 0) {
    const float inverse = row_feed_middle<First, COLUMNS, FACTORS, ACTIVATION>(args, sums, infos, factor, y, y_pairs);
    if (lane_id() == 0) stats[0] = inverse;
  }
  sync_compute<Veu>();
  if constexpr (kInWords) task.await_inputs();  // `partial` is memory that others had
  const int64_t pitch = (args.columns + kRowFeedTurn - 1) / kRowFeedTurn * kRowFeedTurn;
  float* const partial = task.address(args.partial) + task.index * pitch + warp_id() * kRowFeedColumns;
  if constexpr (kSlice.is_second_packed())
    row_feed_second_cells<First>(cells, y_pairs, stats[0], args.columns, partial);
  else
    row_feed_second<First>(cells, y_pairs, stats[0], args.columns, partial);
  cells.weights.release();
}

struct RowFeedSumArgs {  // in tables
  TensorRef partial;
  TensorRef infos;     // GemvColumn[columns]
  TensorRef residual;  // or null
  TensorRef out, out_words;
  int32_t parts, pitch, columns;
};

// WORDS: kGemvOutWords where z is published.
template <class Veu, class Out, uint32_t WORDS>
RK_BODY void row_feed_sum(const Task<Veu>& caller) {
  constexpr int kFours = kRowFeedSumColumns / 4, kBeside = Veu::kComputeThreads / kFours;
  const Task<Veu> task = caller;
  const RowFeedSumArgs& args = task.template arguments<RowFeedSumArgs>();
  float4* const of_warps = task.template work_as<float4>();
  const int thread = static_cast<int>(threadIdx.x), first = static_cast<int>(task.index) * kRowFeedSumColumns;
  const bool has = thread < kRowFeedSumColumns && first + thread < args.columns;
  const uint2 info = load_weight2(reinterpret_cast<const GemvColumn*>(task.address(args.infos)) + (has ? first + thread : 0));
  task.await_inputs();
  const Out* const residual = values_at<const Out>(task, args.residual);
  float v = has && residual != nullptr ? load1(residual + first + thread) : 0.0f;
  const float* const from = task.address(args.partial) + first + thread % kFours * 4;
  float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
  for (int part = thread / kFours; part < args.parts; part += kBeside) {
    const float4 add = load4(from + static_cast<int64_t>(part) * args.pitch);
    sum = float4{sum.x + add.x, sum.y + add.y, sum.z + add.z, sum.w + add.w};
  }
#pragma unroll
  for (int step = kWarp / 2; step >= kFours; step /= 2) {
    sum.x += __shfl_xor_sync(kFullMask, sum.x, step);
    sum.y += __shfl_xor_sync(kFullMask, sum.y, step);
    sum.z += __shfl_xor_sync(kFullMask, sum.z, step);
    sum.w += __shfl_xor_sync(kFullMask, sum.w, step);
  }
  if (lane_id() < kFours) of_warps[warp_id() * kFours + lane_id()] = sum;
  sync_compute<Veu>();
  if (!has) return;
  float whole[kComputeWarps];
#pragma unroll
  for (int w = 0; w < kComputeWarps; ++w) whole[w] = reinterpret_cast<const float*>(of_warps)[w * kRowFeedSumColumns + thread];
  v += fmaf(sum_of8(whole), __uint_as_float(info.x), __uint_as_float(info.y));
  if constexpr ((WORDS & kGemvOutWords) != 0) publish_value(task, words_at(task, args.out_words) + first + thread, rounded_to<Out>(v));
  store1(values_at<Out>(task, args.out) + first + thread, v);
}

}  // namespace rk
