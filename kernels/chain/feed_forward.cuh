// The fused MLP (feed_forward_fusion.cpp): two products of rows, one behind the other, on tensor cores.
//   y[r][h] = act(bias[h] + sum over k of n(x)[r][k] * weight[k][h])
//   z[r][c] = bias[c] + residual[r][c] + sum over h of y[r][h] * weight[h][c]
// n(x) is x, or with NORMALIZES (x - mean) / sqrt(variance + epsilon) of its row. With NORMALIZES_RESULT z is normalised in the same way,
// scaled and shifted.
//
// A rTask is a tile of 32 rows. It reads them whole, so it finds mean and variance itself; it keeps n(x) and y in shared memory as
// operands, and so needs no other rTask's results. With MEMBERS 4 it is one of the four rTasks of a tile: the vEUs of a cluster have a
// quarter of y's columns each, and with that a quarter of the sum over h. Each sends sums of the tile to the members that keep them
// (kernels/vdevice/cluster.cuh); member m keeps rows m, m + 4, ..
//
// Columns of a product are the rows of an instruction (wgmma's operand A is the weights), rows of x its columns. A tile of columns is 64 of
// them; the two warpgroups have every other tile. Where the number of tiles is odd, the second warpgroup computes the last tile once more,
// so that both run the same code: wgmma wants that. Warp w of a warpgroup has 16 columns, and a lane two neighbours of them: column c of 16
// is row c % 2 * 8 + c / 2 of the instruction.
//
// Operands lie in boxes of 64 k: rows of 128 bytes with permuted cells (kernels/vdevice/boxes.cuh). Weights come so, too: for the first
// product box by box of a tile of 64 columns; where k ends with half a box, two tiles share one, the first in bytes 0 to 63 of each row,
// the second behind. For the second product a box has all C columns; all boxes are copied into the work space before the inputs are there,
// or, where rows are fp32, half of them, and the others behind the loads of the rows. If C is no multiple of 64, the last tile reads rows
// behind its own, whatever they are: its results of these are not used.
//
// Example: K 96, H 384, C 96, 256 threads. A chunk of the first product is two tiles: boxes of k 0 to 63 of either, and one with k 64 to 95
// of both, 24 KB. Lane 13 of warp 5, which is warp 1 of warpgroup 1, has columns 64 + 16 + 2 * (13 / 4) = 86 and 87 of y, rows 2, 3, 10,
// 11, .. 27; it stores them as pairs, at k 22 and 23 of box 1 of the second product's operand.
#pragma once

#include "kernels/chain/numbers.cuh"
#include "kernels/tile/box_sums.cuh"
#include "kernels/tile/channels4.cuh"
#include "kernels/tile/moments.cuh"
#include "kernels/tile/numbers.cuh"
#include "kernels/tile/staged_math.cuh"
#include "kernels/vdevice/cluster.cuh"
#include "kernels/vdevice/epilogue.cuh"

namespace rk {

struct FeedForwardArgs {                  // in tables
  TensorRef in, residual, out, kept;      // residual, kept: or null
  TensorRef second;                       // weights of the second product: boxes of 64 columns of y, member after member
  TensorRef constants;                    // the bias of y, of all members; behind it that of z; its scale and shift (NORMALIZES_RESULT)
  int32_t in_row, residual_row, out_row;  // elements from a row to the next
  int32_t rows;                           // of all tiles
  int32_t kept_parts;                     // moments of a row
  float inverse_k, epsilon;
  int32_t centered;  // 0: the mean is not taken away
  float inverse_c, result_epsilon;
  int32_t result_centered;
  int32_t turns;  // of the second product's loop: tiles / turn_boxes, which as a constant would be unrolled
  Divisor tiles;
};

// The same for the body.
template <int K, int H, int C>
struct FeedPlan {
  static_assert(K % 32 == 0 && H % 64 == 0 && C % 32 == 0);
  static constexpr FeedSizes kOf{K, H, C};
  static constexpr bool kHalf = kOf.half();
  static constexpr int kFullBoxes = kOf.full_boxes(), kTiles = kOf.tiles(), kTileBytes = kOf.tile_bytes(), kChunks = kOf.chunks();
  static constexpr int kSteps = (kTiles + 1) / 2;  // of a warpgroup
  static constexpr int kOutTiles = kOf.out_tiles(), kOutSteps = (kOutTiles + 1) / 2, kOutBoxBytes = kOf.out_box_bytes();
  static constexpr int kChunkBytes = kOf.chunk_bytes(), kSecondBytes = kOf.second_bytes(), kRowsBytes = kOf.rows_bytes();
  static constexpr int kInnerBytes = kOf.inner_bytes(), kPitch = kOf.pitch();
  static constexpr int kTurnBoxes = kOf.turn_boxes();
  // The tile of step i; the last one again where there is no other.
  RK_INLINE static int tile(int i, int group) { return 2 * i + group < kTiles ? 2 * i + group : kTiles - 1; }
  RK_INLINE static int out_tile(int i, int group) { return 2 * i + group < kOutTiles ? 2 * i + group : kOutTiles - 1; }
};

// Where a rTask's things lie in its work space. Sums of z lie where the second product's weights were.
template <class Plan>
struct FeedSpace {
  char *second, *rows, *inner, *received;

  RK_INLINE explicit FeedSpace(char* work)
      : second(operand_boxes(work)),
        rows(second + Plan::kSecondBytes),
        inner(rows + Plan::kRowsBytes),
        received(inner + Plan::kInnerBytes) {}
  RK_INLINE char* sums() const { return second; }
};

// Sums of a tile of 64 columns by 32 rows.
template <class Value>
using FeedTile = BoxSums<Value, kFeedRows / 8>;

// Two columns of y, with their bias and before the activation, as they are kept while the next tile is multiplied. Where the activation
// takes two halves at once, these: half as many registers.
template <class Value, int ACTIVATION>
struct FeedPair {
  static constexpr bool kHalves = ACTIVATION == kGelu && std::is_same_v<Value, Half>;
  std::conditional_t<kHalves, uint32_t, float2> values;

  RK_INLINE void take(const float2& sums, const float2& bias) {
    if constexpr (kHalves)
      values = halves_of(sums.x + bias.x, sums.y + bias.y);
    else
      values = {sums.x + bias.x, sums.y + bias.y};
  }
  // As a pair of operands.
  RK_INLINE uint32_t activated() const {
    if constexpr (kHalves)
      return gelu_halves(values);
    else if constexpr (ACTIVATION == kGelu)
      return pair_of<Value>(gelu_coarse(values.x), gelu_coarse(values.y));
    else if constexpr (ACTIVATION == kGeluTanh)
      return pair_of<Value>(gelu_tanh_coarse(values.x), gelu_tanh_coarse(values.y));
    else if constexpr (ACTIVATION == kSilu)
      return pair_of<Value>(silu(values.x), silu(values.y));
    else
      return pair_of<Value>(relu(values.x), relu(values.y));
  }
};

// The rows of x, of which eight threads have one: thread t of them channels 4 t to 4 t + 3 of each 32.
template <class In, int K>
struct FeedRows {
  static constexpr int kVectors = K / 32;
  int row, part;
  Raw4<In> raw[kVectors];

  RK_INLINE explicit FeedRows(int thread) : row(thread / 8), part(thread % 8) {}
  // `from`: the thread's first channel of its row; null where there is no such row.
  RK_INLINE void load(const In* from) {
#pragma unroll
    for (Raw4<In>& r : raw) r.clear_now();
    if (from == nullptr) return;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) raw[i] = load_raw4(from + i * 32);
  }
  // Leaves the rows in boxes as operands.
  template <class Value, bool NORMALIZES>
  RK_INLINE void store(char* boxes, float inverse_k, float epsilon, bool centered) const {
    float4 x[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) x[i] = raw[i].floats();
    float mean = 0.0f, factor = 1.0f;
    if constexpr (NORMALIZES) {
      if (centered) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < kVectors; ++i) sum += (x[i].x + x[i].y) + (x[i].z + x[i].w);
        mean = sum_of_lanes<8>(sum) * inverse_k;
      }
      float squares = 0.0f;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        x[i] = {x[i].x - mean, x[i].y - mean, x[i].z - mean, x[i].w - mean};
        squares += (x[i].x * x[i].x + x[i].y * x[i].y) + (x[i].z * x[i].z + x[i].w * x[i].w);
      }
      factor = rsqrtf(fmaf(sum_of_lanes<8>(squares), inverse_k, epsilon));
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int cell = i % 2 * 4 + part / 2;
      store_shared2(
          boxes, i / 2 * kFeedBoxBytes + box_cell(row, cell) + part % 2 * 8,
          {float_of(pair_of<Value>(x[i].x * factor, x[i].y * factor)), float_of(pair_of<Value>(x[i].z * factor, x[i].w * factor))});
    }
  }
};

// The first product, and y as operands of the second one: tile after tile of 64 columns. What a tile's sums become is computed while the
// products of the next one are made.
template <class Value, class Plan, int ACTIVATION>
struct FeedInner {
  FeedTile<Value> sums;
  FeedPair<Value, ACTIVATION> done[kFeedRows / 8][2];  // of the tile before

  // Registers that may be read before they are written would be live in the whole program, in front of every other body's call.
  RK_INLINE void clear() {
    sums.clear();
#pragma unroll
    for (int j = 0; j < kFeedRows / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) done[j][e].take({0.0f, 0.0f}, {0.0f, 0.0f});
    }
  }
  // Begins the products of step i. is_second: whether the warpgroup has the second of the step's two tiles.
  template <class Stages>
  RK_INLINE void begin(Stages& weights, const char* rows, int i, bool is_second) {
    sums.clear();
    weights.acquire();
    OperandPlace box(weights.stages, weights.base + (Plan::kHalf && is_second ? Plan::kTileBytes : 0)), rows_box(rows, 0);
    [[maybe_unused]] const OperandPlace half_box(weights.stages, weights.base + 2 * Plan::kTileBytes + (is_second ? 64 : 0));
    if (!Plan::kHalf && 2 * i + 1 < Plan::kTiles) {  // a chunk is one tile
      weights.pass();
      weights.acquire();
      if (is_second) box = OperandPlace(weights.stages, weights.base);
    }
    begin_products();
#pragma unroll
    for (int k = 0; k < Plan::kFullBoxes; ++k) {
      sums.add(box, rows_box);
      box.move(kFeedWeightBoxBytes);
      rows_box.move(kFeedBoxBytes);
    }
    if constexpr (Plan::kHalf) sums.template add<2>(half_box, rows_box);
    commit_products();
  }
  // Leaves the tile before, whose box of operands is at `box`.
  RK_INLINE void store(char* inner, int box, int warp, int lane) const {
    const int cell = warp * 2 + lane / 16, to = box + lane / 4 % 4 * 4;
#pragma unroll
    for (int j = 0; j < kFeedRows / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) store_shared_word(inner, to + box_cell(j * 8 + lane % 4 * 2 + e, cell), done[j][e].activated());
    }
  }
  // Loops, since an instruction that runs for the first time costs four or five cycles: an SM fetches no more than 2 to 3 bytes a cycle.
  template <class Stages>
  RK_INLINE void run(Stages& weights, const FeedSpace<Plan>& space, float2 (&bias)[Plan::kSteps], int group, int warp, int lane) {
    clear();
    int tile = group;
#pragma unroll 1
    for (int i = 0; i <= Plan::kSteps; ++i, tile += 2) {
      Stages first = weights;
      if (i < Plan::kSteps) begin(weights, space.rows, i, group == 1 && tile < Plan::kTiles);
      if (i > 0 && tile < Plan::kTiles + 2) store(space.inner, (tile - 2) * kFeedBoxBytes, warp, lane);  // else it is the other warpgroup's
      wait_products<0>();
#pragma unroll
      for (int j = 0; j < kFeedRows / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) done[j][e].take(sums.pair(j, e), bias[0]);
      }
#pragma unroll
      for (int next = 1; next < Plan::kSteps; ++next) bias[next - 1] = bias[next];
      if (i < Plan::kSteps) {
        if (first.stage != weights.stage) first.release();
        weights.release();
      }
    }
  }
};

// The second product.
template <class Value, class Plan>
struct FeedOuter {
  FeedTile<Value> tiles[Plan::kOutSteps];

  RK_INLINE void clear() {
#pragma unroll
    for (FeedTile<Value>& tile : tiles) tile.clear();
  }
  // Begins all products.
  RK_INLINE void begin(const FeedSpace<Plan>& space, int turns, int group) {
    OperandPlace rows_box(space.inner, 0), box(space.second, Plan::out_tile(0, group) * kFeedWeightBoxBytes);
#pragma unroll 1
    for (int left = turns; left > 0; --left) {
      begin_products();
#pragma unroll
      for (int k = 0; k < Plan::kTurnBoxes; ++k) {
#pragma unroll
        for (int i = 0; i < Plan::kOutSteps; ++i) {
          OperandPlace tile_box = box;
          tile_box.move((Plan::out_tile(i, group) - Plan::out_tile(0, group)) * kFeedWeightBoxBytes);
#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
          if (Plan::out_tile(i, group) * 64 + warp_id() % 4 * 16 >= Plan::kOf.c) continue;
#endif
          tiles[i].add(tile_box, rows_box);
        }
        box.move(Plan::kOutBoxBytes);
        rows_box.move(kFeedBoxBytes);
      }
      commit_products();
    }
  }
  RK_INLINE void store(char* sums, int group, int warp, int lane) const {
#pragma unroll
    for (int i = 0; i < Plan::kOutSteps; ++i) {
      const int column = Plan::out_tile(i, group) * 64 + warp * 16 + lane / 4 * 2;
      if (2 * i + group >= Plan::kOutTiles || column >= Plan::kOf.c) continue;
#pragma unroll
      for (int j = 0; j < kFeedRows / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) store_shared2(sums, ((j * 8 + lane % 4 * 2 + e) * Plan::kPitch + column) * 4, tiles[i].pair(j, e));
      }
    }
  }
};

// Results of one thread: four neighbouring columns of each 32, or with four members of each 128, of one row. Eight threads that are
// neighbours have the 32 columns of one moment. Example: with four members and C 192, thread 173 has 173 / 8 % 8 = row 5 of the eight that
// the member keeps, and 173 / 64 * 32 + 173 % 8 * 4 = columns 84 to 87; there are no columns 212 to 215.
template <class Veu, class Out, class Added, int C, int MEMBERS, bool NORMALIZES>
struct FeedResults {
  static constexpr int kKeptRows = kFeedRows / MEMBERS, kStep = 32 * MEMBERS, kOwn = (C + kStep - 1) / kStep;
  static constexpr int kVectors = kKeptRows * C / 4;
  static_assert(Veu::kComputeThreads == 8 * kFeedRows);

  int kept_row, column, row;  // row: of the tile
  float4 bias[kOwn];
  Raw4<Added> residual[kOwn];
  [[maybe_unused]] float4 scale[kOwn], shift[kOwn];
  Out* out;            // of the first column; null where there is no such row
  const Added* added;  // the same

  RK_INLINE bool exists(int i) const { return C % kStep == 0 || column + i * kStep < C; }
  RK_INLINE int column_of(int i) const { return exists(i) ? column + i * kStep : 0; }
  // constants: the bias, then scale and shift.
  RK_INLINE void start(const Task<Veu>& task, const FeedForwardArgs& args, const float* constants, int member, int first_row, int rows,
                       int thread) {
    kept_row = thread / 8 % kKeptRows;
    column = thread / (8 * kKeptRows) * 32 + thread % 8 * 4;
    row = kept_row * MEMBERS + member;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      bias[i] = load_weight4(constants + column_of(i));
      residual[i].clear_now();
    }
    out = row < rows ? values_at<Out>(task, args.out) + (first_row + row) * args.out_row + column : nullptr;
    added = values_at<Added>(task, args.residual);
    if (added != nullptr) added = row < rows ? added + (first_row + row) * args.residual_row + column : nullptr;
  }
  RK_INLINE void fetch() {
    if (added == nullptr) return;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (exists(i)) residual[i] = load_raw4(added + i * kStep);
    }
  }
  // Called while the last products are made.
  RK_INLINE void meanwhile(const float* constants) {
    if constexpr (NORMALIZES) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        scale[i] = load_weight4(constants + C + column_of(i));
        shift[i] = load_weight4(constants + 2 * C + column_of(i));
      }
    }
  }
  // The thread's sums, over all members.
  template <class Exchange, class Sums>
  RK_INLINE void collect(float4 (&sum)[kOwn], Exchange& exchange, char* received, const Sums& sums) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      sum[i] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (exists(i)) sum[i] = sums(row, i);
    }
    if constexpr (MEMBERS > 1) {
      // Where a member gets sums from member own ^ other.
      const auto place = [&](int other, int i) { return received + (((other - 1) * kKeptRows + kept_row) * C + column + i * kStep) * 4; };
      exchange.await_members();
#pragma unroll
      for (int other = 1; other < MEMBERS; ++other) {
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          if (exists(i)) exchange.send(other, place(other, i), sums(row ^ other, i));
        }
      }
      exchange.template sent<false>();
      exchange.await_received();
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (exists(i)) sum[i] = exchange.add_received(sum[i], [&](int other) { return place(other, i); });
      }
    }
  }
  // Normalises, scales and shifts the rows: each 32 columns of a row give their moments. With four members the columns of a row are other
  // warps', so the moments are shared in shared memory at `free`.
  RK_INLINE void normalize(float4 (&sum)[kOwn], char* free, const FeedForwardArgs& args) const {
    constexpr int kParts = C / kMomentColumns;
    float2 part[kParts];
    if constexpr (MEMBERS == 1) {
#pragma unroll
      for (int i = 0; i < kParts; ++i) part[i] = moments_of(sum[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const float2 own = moments_of(sum[i]);
        if (column % kMomentColumns == 0 && exists(i))
          store_shared2(free, (kept_row * kParts + (column + i * kStep) / kMomentColumns) * 8, own);
      }
      sync_compute<Veu>();
#pragma unroll
      for (int i = 0; i < kParts; ++i) part[i] = load_shared2(free, (kept_row * kParts + i) * 8);
    }
    const float mean = args.result_centered != 0 ? mean_of(part) : 0.0f;
    const float factor = rsqrtf(fmaf(squares_around(mean, part), args.inverse_c, args.result_epsilon));
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      sum[i] = {fmaf((sum[i].x - mean) * factor, scale[i].x, shift[i].x), fmaf((sum[i].y - mean) * factor, scale[i].y, shift[i].y),
                fmaf((sum[i].z - mean) * factor, scale[i].z, shift[i].z), fmaf((sum[i].w - mean) * factor, scale[i].w, shift[i].w)};
    }
  }
  // Stores the results of the sums.
  RK_INLINE void finish(const Task<Veu>& task, const FeedForwardArgs& args, float4 (&sum)[kOwn], char* free, int first_row) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      sum[i] = add4(add4(sum[i], bias[i]), residual[i].floats());
      if constexpr (!NORMALIZES) sum[i] = as_stored<Out>(sum[i]);
    }
    if constexpr (NORMALIZES) normalize(sum, free, args);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (out != nullptr && exists(i)) store4(out + i * kStep, sum[i]);
    }
    if constexpr (NORMALIZES) return;
    float2* const kept = reinterpret_cast<float2*>(task.address(args.kept));
    if (kept == nullptr) return;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const float2 moments = moments_of(sum[i]);
      if (out != nullptr && column % kMomentColumns == 0 && exists(i))
        *as_global(kept + (first_row + row) * args.kept_parts + (column + i * kStep) / kMomentColumns) = moments;
    }
  }
};

template <class Veu, class In, class Value, class Out, int K, int H, int C, int MEMBERS, bool NORMALIZES, int ACTIVATION,
          bool NORMALIZES_RESULT = false, class Added = Out>
RK_INLINE void feed_forward(const Task<Veu>& task) {
  using Plan = FeedPlan<K, H, C>;
  using Results = FeedResults<Veu, Out, Added, C, MEMBERS, NORMALIZES_RESULT>;
  static_assert(Veu::kComputeThreads == 8 * kFeedRows && Plan::kChunkBytes <= Veu::kWeightStageBytes);
  static_assert(Veu::kWeightStages > 1 || Plan::kChunks == 1);  // two are held at a time
  static_assert(MEMBERS == 1 || MEMBERS == kClusterMembers);
  // Of the second product's weights. Rows of fp32 that are there at once would wait behind copies of all weights; those of 16 bits wait
  // less than the second product would for weights that are asked for late.
  constexpr int kEarlyBytes =
      sizeof(In) == 4 ? Plan::kSecondBytes / 2 / (Veu::kComputeThreads * 16) * (Veu::kComputeThreads * 16) : Plan::kSecondBytes;
  const auto& args = task.template arguments<FeedForwardArgs>();
  uint32_t tile;
  const int member = static_cast<int>(divide(task.index, args.tiles, tile));
  const int first_row = static_cast<int>(tile) * kFeedRows, rows = args.rows - first_row;
  const auto [thread, group, warp, lane] = WarpgroupThread();
  const FeedSpace<Plan> space(task.work);
  WeightStages<Veu> weights = task.weight_stages();

  // All that is known before the inputs are there.
  [[maybe_unused]] ClusterExchange<Veu> exchange;
  if constexpr (MEMBERS > 1) exchange.begin(member, (MEMBERS - 1) * Results::kVectors * 16);
  const char* const second = reinterpret_cast<const char*>(task.address(args.second)) + member * Plan::kSecondBytes;
  const auto copy_second = [&](int begin, int end) {
#pragma unroll 6
    for (int i = begin + thread * 16; i < end; i += Veu::kComputeThreads * 16) cp_async16(space.second + i, second + i, true);
    cp_async_commit();
  };
  copy_second(0, kEarlyBytes);
  const float *const inner_bias = task.address(args.constants), *const constants = inner_bias + MEMBERS * H;
  float2 bias[Plan::kSteps];
#pragma unroll
  for (int i = 0; i < Plan::kSteps; ++i) {
    const uint2 v =
        load_weight2(reinterpret_cast<const float2*>(inner_bias + member * H + Plan::tile(i, group) * 64 + warp * 16 + lane / 4 * 2));
    bias[i] = {float_of(v.x), float_of(v.y)};
    known_now(bias[i].x);
    known_now(bias[i].y);
  }
  Results results;
  results.start(task, args, constants, member, first_row, rows, thread);
  FeedRows<In, K> x(thread);
  const In* in = x.row < rows ? values_at<In>(task, args.in) + (first_row + x.row) * args.in_row + x.part * 4 : nullptr;
  known_now(in);
  const float inverse_k = args.inverse_k, epsilon = args.epsilon;
  const bool centered = args.centered != 0;
  const int turns = args.turns;

  task.await_inputs();
  x.load(in);
  results.fetch();
  if constexpr (kEarlyBytes < Plan::kSecondBytes) copy_second(kEarlyBytes, Plan::kSecondBytes);
  x.template store<Value, NORMALIZES>(space.rows, inverse_k, epsilon, centered);
  proxy_fence_shared();
  sync_compute<Veu>();

  FeedInner<Value, Plan, ACTIVATION>().run(weights, space, bias, group, warp, lane);
  cp_async_wait<0>();
  proxy_fence_shared();
  sync_compute<Veu>();

  FeedOuter<Value, Plan> outer;
  outer.clear();
  outer.begin(space, turns, group);
  results.meanwhile(constants);
  wait_products<0>();
  sync_compute<Veu>();  // sums lie where the second product's weights were
  outer.store(space.sums(), group, warp, lane);
  sync_compute<Veu>();

  float4 sum[Results::kOwn];
  results.collect(sum, exchange, space.received, [&](int row, int i) {
    return load_shared4(space.sums(), (row * Plan::kPitch + results.column + i * Results::kStep) * 4);
  });
  results.finish(task, args, sum, space.rows, first_row);
}

}  // namespace rk
