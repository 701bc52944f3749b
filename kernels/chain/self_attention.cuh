// Self-attention (self_attention_fusion.cpp): rows of x normalised, multiplied to rows of Q, K and V, and attention within windows of up to
// 64 rows.
//   Y = softmax(scale * Q * K' + bias) * V,  {Q, K, V}[r][c] = bias[c] + sum over k of n(x)[r][k] * weight[k][c]
//
// A rTask is one head of one window, or of two windows. It reads the window's rows whole, so it finds their mean and variance itself, and
// keeps Q, K and V to itself. The rows are found by a table, [windows][64], which has -1 where a window has no row. There are 256 threads,
// two warpgroups. With two windows each warpgroup has one, whose keys it takes in two halves, one after the other. With one window the
// first warpgroup multiplies its rows while the second finds what normalises them; then each has half of the keys, and what they make of
// these is put together in shared memory. Warp w of a warpgroup has rows 16 w to 16 w + 15, of the product and of Q.
//
// The rows are operands of wgmma in boxes of 64 columns (kernels/vdevice/operands.cuh), as are the weights, which come through the ring.
// Rows of 16 bits go there as they are, and what is made of them is normalised: with mean m and deviation s of row r,
// sum over k of (x[k] - m) / s * w[k][c] = (sum over k of x[k] * w[k][c]) / s - m / s * (sum over k of w[k][c]). Rows of floats, which
// halves might not hold, are normalised in registers before they are stored; BOXES is the number of boxes then, else 0.
//
// Columns of V are in the order in which lanes have them: column 8 i + c of the product is element 8 * (c / 2) + 2 i + c % 2, so that a
// lane has 8 neighbours of a row of Y. Example: lane 13 has columns 2 and 3 of all four eights, which are elements 8 to 15, of rows 3
// and 11.
#pragma once

#include "kernels/chain/numbers.cuh"
#include "kernels/tile/attention_inverse.cuh"
#include "kernels/tile/box_sums.cuh"
#include "kernels/tile/moments.cuh"
#include "kernels/tile/staged_math.cuh"
#include "kernels/vdevice/fast_math.cuh"

namespace rk {

struct SelfAttentionArgs {  // in tables
  TensorRef in, out;
  TensorRef constants;  // of each head, and each two neighbouring columns: sums of weights, biases
  TensorRef scores;     // what is added to them times log2(e) but finite, and -inf where there is no key: pieces as lanes have them
  TensorRef table;
  int32_t in_row, out_row, out_head;  // elements
  int32_t cells;                      // of 8 columns, of a row
  int32_t boxes, chunk_boxes, chunks;
  int32_t windows, of_rtask;
  int32_t scores_window, scores_head;  // from one window's or head's pieces to the next; 0 where they are the same
  float inverse_k, epsilon;
  int32_t centered;    // 0: the mean is not taken away
  float scale;         // times log2(e)
  int32_t weightless;  // AttentionWeightless
  // Where these lie in the work space; SelfSizes says what they are.
  int32_t made_at, merged_at, scores_at, constants_at, norms_at, table_at;
  Divisor groups;  // rTasks of a head
};

template <class Value>
using SelfSums = BoxSums<Value, kSelfColumns / 8>;

// Where a thread copies and normalises: a cell of each box, in a row of each 32.
struct SelfPart {
  int row, cell;
  RK_INLINE explicit SelfPart(int thread) : row(thread / 8), cell(thread % 8) {}
  // Of rows 32 i to 32 i + 31 of the rTask's.
  RK_INLINE int place(int i, int boxes) const { return i / 2 * boxes * kSelfBoxBytes + box_cell(i % 2 * 32 + row, cell); }
};

// Zeros in the rows that a window does not have: what is made of them has a weight of 0, but 0 times an infinity would not be a number.
RK_INLINE void self_clear(int windows, int boxes, char* rows, const char* table, const SelfPart& part) {
#pragma unroll 1
  for (int i = 0; i < windows * 2; ++i) {
    if (static_cast<int>(load_shared_word(table, (i * 32 + part.row) * 4)) >= 0) continue;
    const int place = part.place(i, boxes);
#pragma unroll 1
    for (int box = 0; box < boxes; ++box) store_shared4(rows, place + box * kSelfBoxBytes, {0.0f, 0.0f, 0.0f, 0.0f});
  }
}

// Copies rows of 16 bits to their boxes.
template <class In>
RK_INLINE void self_copy(const SelfAttentionArgs& args, const In* in, char* rows, const char* table, const SelfPart& part) {
#pragma unroll 1
  for (int i = 0; i < args.of_rtask * 2; ++i) {
    const int row = static_cast<int>(load_shared_word(table, (i * 32 + part.row) * 4));
    if (row < 0) continue;
    const In* from = in + (static_cast<int64_t>(row) * args.in_row + part.cell * 8);
    char* to = rows + part.place(i, args.boxes);
    int left = args.cells - part.cell;
#pragma unroll 2
    for (int box = 0; box < args.boxes; ++box, left -= 8, from += 64, to += kSelfBoxBytes) cp_async16(to, from, left > 0);
  }
  cp_async_commit();
}

// Finds what the rows of a window in boxes are multiplied by, and what is added then, to be normalised. `thread` of a warpgroup's 128:
// eight have rows r, r + 16, r + 32 and r + 48 beside each other, so that four loads are on their way at a time.
template <class In>
RK_INLINE void self_find_norms(const SelfAttentionArgs& args, const char* rows, char* norms, int thread) {
  const int first = thread / 8, part = thread % 8, boxes = args.boxes;
  int from = box_cell(first, part);
  float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f}, squares[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
  for (int box = 0; box < boxes; ++box, from += kSelfBoxBytes) {
    float4 cell[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) cell[r] = load_shared4(rows, from + r * 16 * kBoxRowBytes);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float2 x[4] = {floats_of<In>(bits_of(cell[r].x)), floats_of<In>(bits_of(cell[r].y)), floats_of<In>(bits_of(cell[r].z)),
                           floats_of<In>(bits_of(cell[r].w))};
      sum[r] += ((x[0].x + x[0].y) + (x[1].x + x[1].y)) + ((x[2].x + x[2].y) + (x[3].x + x[3].y));
      const float low = fmaf(x[0].x, x[0].x, x[0].y * x[0].y), high = fmaf(x[2].x, x[2].x, x[2].y * x[2].y);
      squares[r] += fmaf(x[1].x, x[1].x, fmaf(x[1].y, x[1].y, low)) + fmaf(x[3].x, x[3].x, fmaf(x[3].y, x[3].y, high));
    }
  }
#pragma unroll
  for (int step = 4; step > 0; step /= 2) {  // beside each other, since each waits for its own
    float other[4][2];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      other[r][0] = __shfl_xor_sync(kFullMask, sum[r], step);
      other[r][1] = __shfl_xor_sync(kFullMask, squares[r], step);
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      sum[r] += other[r][0];
      squares[r] += other[r][1];
    }
  }
  const float share = args.centered != 0 ? args.inverse_k : 0.0f, inverse_k = args.inverse_k, epsilon = args.epsilon;
  float2 norm[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const float mean = sum[r] * share;
    norm[r].x = rsqrtf(fmaxf(fmaf(squares[r], inverse_k, -mean * mean), 0.0f) + epsilon);
    norm[r].y = -mean * norm[r].x;
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    if (part == 0) store_shared2(norms, (first + r * 16) * 8, norm[r]);
  }
}

// Normalises rows of floats in registers and stores them to their boxes, 64 rows at a time.
template <class Value, int BOXES>
RK_INLINE void self_normalize(const SelfAttentionArgs& args, const float* in, char* rows, const char* table, const SelfPart& part) {
#pragma unroll 1
  for (int i = 0; i < args.of_rtask * 2; i += 2) {
    float4 x[2][BOXES][2];
    bool exists[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = static_cast<int>(load_shared_word(table, ((i + r) * 32 + part.row) * 4));
      const float* const from = in + (static_cast<int64_t>(max(row, 0)) * args.in_row + part.cell * 8);
      exists[r] = row >= 0;
      const int cells = exists[r] ? args.cells - part.cell : 0;
#pragma unroll
      for (int box = 0; box < BOXES; ++box) {
        x[r][box][0] = x[r][box][1] = float4{0.0f, 0.0f, 0.0f, 0.0f};
        if (cells > box * 8) {
          x[r][box][0] = load4(from + box * 64);
          x[r][box][1] = load4(from + box * 64 + 4);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = 0.0f, squares = 0.0f;
#pragma unroll
      for (int box = 0; box < BOXES; ++box) {
#pragma unroll
        for (const float4& v : x[r][box]) sum += sum_of4(v);
      }
      const float mean = args.centered != 0 ? sum_of_lanes<8>(sum) * args.inverse_k : 0.0f;
#pragma unroll
      for (int box = 0; box < BOXES; ++box) {
#pragma unroll
        for (float4& v : x[r][box]) {
          if (args.cells - part.cell > box * 8) v = {v.x - mean, v.y - mean, v.z - mean, v.w - mean};
          squares += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
        }
      }
      const float factor = rsqrtf(fmaf(sum_of_lanes<8>(squares), args.inverse_k, args.epsilon));
      if (!exists[r]) continue;
#pragma unroll
      for (int box = 0; box < BOXES; ++box) {
        const float4 &low = x[r][box][0], &high = x[r][box][1];
        store_shared4(
            rows, part.place(i + r, BOXES) + box * kSelfBoxBytes,
            {float_of(pair_of<Value>(low.x * factor, low.y * factor)), float_of(pair_of<Value>(low.z * factor, low.w * factor)),
             float_of(pair_of<Value>(high.x * factor, high.y * factor)), float_of(pair_of<Value>(high.z * factor, high.w * factor))});
      }
    }
  }
}

// A warp's 16 queries, and what it has of their keys: the largest score, the lane's part of the sum of all exp(score - largest), and the
// sum of exp(score - largest) * V. y[i]: column 8 i + 2 t and the next one of the product, of row g, and the same of row g + 8.
template <class Value>
struct SelfQueries {
  using Of = StagedMath<Narrow<Value, Value>>;
  uint32_t q[2][4];
  float largest[2], sum[2], y[4][4];

  // qkv: the window's rows of Q, K and V.
  RK_INLINE void begin(const char* qkv, int warp, int lane) {
#pragma unroll
    for (int step = 0; step < 2; ++step) ldmatrix4(q[step], qkv, (warp * 16 + lane % 16) * kSelfPitchBytes + step * 32 + lane / 16 * 16);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      largest[r] = -INFINITY;
      sum[r] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) y[i][0] = y[i][1] = y[i][2] = y[i][3] = 0.0f;
  }
  // 32 keys, whose rows begin at `keys`. biases: the warp's piece of what is added to the scores.
  RK_INLINE void attend(const char* keys, const char* biases, float scale, int lane) {
    float score[4][4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      score[j][0] = score[j][1] = score[j][2] = score[j][3] = 0.0f;
      uint32_t k[4];
      ldmatrix4(k, keys, (j * 8 + lane % 8) * kSelfPitchBytes + kSelfSize * 2 + lane / 8 * 16);
      const uint32_t low[2] = {k[0], k[1]}, high[2] = {k[2], k[3]};
      Of::multiply(score[j], q[0], low);
      Of::multiply(score[j], q[1], high);
    }
    float most[2] = {largest[0], largest[1]};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float4 bias = load_shared4(biases, (j * kWarp + lane) * 16);
      score[j][0] = fmaf(score[j][0], scale, bias.x);
      score[j][1] = fmaf(score[j][1], scale, bias.y);
      score[j][2] = fmaf(score[j][2], scale, bias.z);
      score[j][3] = fmaf(score[j][3], scale, bias.w);
#pragma unroll
      for (int e = 0; e < 4; ++e) most[e / 2] = fmaxf(most[e / 2], score[j][e]);
    }
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
#pragma unroll
      for (int r = 0; r < 2; ++r) most[r] = fmaxf(most[r], __shfl_xor_sync(kFullMask, most[r], step));
    }
    move_base(most);
    const float base[2] = {finite_base(0), finite_base(1)};
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      uint32_t weights[4];
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        float(&w)[4] = score[step * 2 + eight];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          w[e] = exp2_fast(w[e] - base[e / 2]);
          sum[e / 2] += w[e];
        }
        weights[eight * 2] = pair_of<Value>(w[0], w[1]);
        weights[eight * 2 + 1] = pair_of<Value>(w[2], w[3]);
      }
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        uint32_t v[4];
        ldmatrix4_turned(v, keys, (step * 16 + lane % 16) * kSelfPitchBytes + kSelfSize * 4 + pair * 32 + lane / 16 * 16);
        const uint32_t first[2] = {v[0], v[1]}, second[2] = {v[2], v[3]};
        Of::multiply(y[pair * 2], weights, first);
        Of::multiply(y[pair * 2 + 1], weights, second);
      }
    }
  }
  // To the other warpgroup's warp with the same queries.
  RK_INLINE void give(char* to, int warp, int lane) const {
    const int place = (warp * 5 * kWarp + lane) * 16;
#pragma unroll
    for (int i = 0; i < 4; ++i) store_shared4(to, place + i * kWarp * 16, {y[i][0], y[i][1], y[i][2], y[i][3]});
    store_shared4(to, place + 4 * kWarp * 16, {largest[0], largest[1], sum[0], sum[1]});
  }
  RK_INLINE void take(const char* from, int warp, int lane) {
    const int place = (warp * 5 * kWarp + lane) * 16;
    const float4 other = load_shared4(from, place + 4 * kWarp * 16);
    const float most[2] = {fmaxf(largest[0], other.x), fmaxf(largest[1], other.y)};
    move_base(most);
    const float factor[2] = {exp2_fast(other.x - finite_base(0)), exp2_fast(other.y - finite_base(1))};
    sum[0] = fmaf(factor[0], other.z, sum[0]);
    sum[1] = fmaf(factor[1], other.w, sum[1]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 sums = load_shared4(from, place + i * kWarp * 16);
      y[i][0] = fmaf(factor[0], sums.x, y[i][0]);
      y[i][1] = fmaf(factor[0], sums.y, y[i][1]);
      y[i][2] = fmaf(factor[1], sums.z, y[i][2]);
      y[i][3] = fmaf(factor[1], sums.w, y[i][3]);
    }
  }

 private:
  // exp(-inf - -inf) would not be a number.
  RK_INLINE float finite_base(int r) const { return largest[r] == -INFINITY ? 0.0f : largest[r]; }
  RK_INLINE void move_base(const float (&most)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float before = largest[r];
      largest[r] = most[r];
      const float factor = exp2_fast(before - finite_base(r));
      sum[r] *= factor;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        y[i][r * 2] *= factor;
        y[i][r * 2 + 1] *= factor;
      }
    }
  }
};

// A rTask's work space.
struct SelfSpace {
  char *rows, *qkv, *merged, *scores, *constants, *norms, *table;

  RK_INLINE SelfSpace(char* work, const SelfAttentionArgs& args)
      : rows(work),
        qkv(work + args.made_at),
        merged(work + args.merged_at),
        scores(work + args.scores_at),
        constants(work + args.constants_at),
        norms(work + args.norms_at),
        table(work + args.table_at) {}
};
// Copies all that is known before the inputs are there: the windows' rows of the table first, then constants and scores.
template <class Veu>
RK_INLINE void self_copy_constants(const Task<Veu>& task, const SelfAttentionArgs& args, const SelfSpace& space, int head, int first_window,
                                   int thread) {
  const int windows = args.of_rtask;
  const char* const table = reinterpret_cast<const char*>(task.address(args.table)) + first_window * kSelfRows * 4;
  if (thread < windows * kSelfRows * 4 / 16) cp_async16(space.table + thread * 16, table + thread * 16, true);
  cp_async_commit();
  const char* const constants = reinterpret_cast<const char*>(task.address(args.constants)) + head * kSelfConstantBytes;
  if (thread < kSelfConstantBytes / 16) cp_async16(space.constants + thread * 16, constants + thread * 16, true);
  const char* const pieces = reinterpret_cast<const char*>(task.address(args.scores));
#pragma unroll 1
  for (int window = 0; window < windows; ++window) {
    const int number = min(first_window + window, args.windows - 1) * args.scores_window + head * args.scores_head;
    const char* const from = pieces + static_cast<int64_t>(number) * kSelfScoresBytes;
#pragma unroll
    for (int i = 0; i < kSelfScoresBytes; i += Veu::kComputeThreads * 16)
      cp_async16(space.scores + window * kSelfScoresBytes + i + thread * 16, from + i + thread * 16, true);
  }
  cp_async_commit();
}

// The product of a window's rows and the weights that the ring brings.
template <class Value, class Stages>
RK_INLINE void self_multiply(SelfSums<Value>& sums, const char* window_rows, Stages& weights, int chunks, int chunk_boxes) {
  Stages ahead = weights;
  OperandPlace rows(window_rows, 0);
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    ahead.acquire();
    OperandPlace columns(ahead.stages, ahead.base);
    ahead.pass();
#pragma unroll 1
    for (int box = 0; box < chunk_boxes; ++box) {
      begin_products();
      sums.add(rows, columns);
      commit_products();
      rows.move(kSelfBoxBytes);
      columns.move(kSelfWeightBoxBytes);
    }
    if (chunk > 0) {
      wait_products<1>();
      weights.release();
    }
  }
  wait_products<0>();
  weights.release();
}

// Normalises the sums, unless their rows were (NORMALIZED), adds the bias, and stores them as rows of Q, K and V. `row`: the lane's first
// one.
template <bool NORMALIZED, class Value>
RK_INLINE void self_store_qkv(const SelfSums<Value>& sums, const SelfSpace& space, int row, int lane) {
  constexpr int kEights = SelfSums<Value>::kEights;
  const int to = row * kSelfPitchBytes + lane % 4 * 4;
  float2 norm[2] = {{1.0f, 0.0f}, {1.0f, 0.0f}};
  if constexpr (!NORMALIZED) {
    norm[0] = load_shared2(space.norms, row * 8);
    norm[1] = load_shared2(space.norms, (row + 8) * 8);
  }
  float4 constants[kEights];  // of two columns: the sums of their weights, their biases
#pragma unroll
  for (int j = 0; j < kEights; ++j) constants[j] = load_shared4(space.constants, (j * 4 + lane % 4) * 16);
#pragma unroll
  for (int j = 0; j < kEights; ++j) {
    const float4& c = constants[j];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float low = sums.sum[j][r * 2] + c.z, high = sums.sum[j][r * 2 + 1] + c.w;
      if constexpr (!NORMALIZED) {
        low = fmaf(sums.sum[j][r * 2], norm[r].x, fmaf(norm[r].y, c.x, c.z));
        high = fmaf(sums.sum[j][r * 2 + 1], norm[r].x, fmaf(norm[r].y, c.y, c.w));
      }
      store_shared_word(space.qkv, to + r * 8 * kSelfPitchBytes + j * 16, pair_of<Value>(low, high));
    }
  }
}

// Stores the lane's rows of Y. `first`: of the rTask's rows, the warp's first. `out`: the lane's columns.
template <class Value, class Out>
RK_INLINE void self_store_results(const SelfQueries<Value>& queries, const SelfAttentionArgs& args, const char* table, Out* out, int first,
                                  int lane) {
  float sums_of_weights[2] = {queries.sum[0], queries.sum[1]};
#pragma unroll
  for (int step = 2; step > 0; step /= 2) {
    const float other[2] = {__shfl_xor_sync(kFullMask, sums_of_weights[0], step), __shfl_xor_sync(kFullMask, sums_of_weights[1], step)};
    sums_of_weights[0] += other[0];
    sums_of_weights[1] += other[1];
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = sums_of_weights[r];
    const float inverse = attention_inverse(sum, args.weightless);
    const bool drops = attention_drops(sum, args.weightless);
    float y[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = drops ? 0.0f : queries.y[i / 2][r * 2 + i % 2] * inverse;
    const int row = static_cast<int>(load_shared_word(table, (first + r * 8 + lane / 4) * 4));
    if (row >= 0) store8(out + static_cast<int64_t>(row) * args.out_row, y);
  }
}

template <class Veu, class In, class Value, class Out, int BOXES>
RK_INLINE void self_attention(const Task<Veu>& task) {
  static_assert(Veu::kComputeThreads == 8 * kWarp && sizeof(Value) == 2 && (BOXES == 0) == (sizeof(In) == 2));
  const auto& args = task.template arguments<SelfAttentionArgs>();
  uint32_t rtask_of_head;
  const int head = static_cast<int>(divide(task.index, args.groups, rtask_of_head));
  const int windows = args.of_rtask, boxes = args.boxes;
  const auto [thread, group, warp, lane] = WarpgroupThread();
  const SelfSpace space(operand_boxes(task.work), args);
  self_copy_constants(task, args, space, head, static_cast<int>(rtask_of_head) * windows, thread);
  const In* const in = values_at<In>(task, args.in);
  Out* const out = values_at<Out>(task, args.out) + (static_cast<int64_t>(head) * args.out_head + lane % 4 * 8);
  const SelfPart part(thread);
  const bool shares = windows == 1;  // the warpgroups have the same window: one multiplies, the other finds norms
  const int window = shares ? 0 : group, chunks = args.chunks, chunk_boxes = args.chunk_boxes;
  char* const window_rows = space.rows + window * boxes * kSelfBoxBytes;
  WeightStages<Veu> weights = task.weight_stages();
  cp_async_wait<1>();
  sync_compute<Veu>();
  self_clear(windows, boxes, space.rows, space.table, part);

  task.await_inputs();
  if constexpr (BOXES == 0)
    self_copy(args, in, space.rows, space.table, part);
  else
    self_normalize<Value, BOXES>(args, in, space.rows, space.table, part);
  cp_async_wait<0>();
  proxy_fence_shared();
  sync_compute<Veu>();

  // A warpgroup that does not multiply passes the chunks on. Those in whose stages others come do not wait for its norms.
  const int early = max(chunks - Veu::kWeightStages, 0);
  if (shares && group == 1) {
#pragma unroll 1
    for (int chunk = 0; chunk < early; ++chunk) {
      weights.acquire();
      weights.release();
    }
  }
  if constexpr (BOXES == 0) {
    if (!shares || group == 1) self_find_norms<In>(args, window_rows, space.norms + window * kSelfRows * 8, thread % (4 * kWarp));
  }
  if (!shares || group == 0) {
    SelfSums<Value> sums;
    sums.clear();
    self_multiply(sums, window_rows, weights, chunks, chunk_boxes);
    sync_compute<Veu>();  // all norms are there, and a single window's rows are not needed any more
    self_store_qkv<(BOXES > 0)>(sums, space, window * kSelfRows + warp * 16 + lane / 4, lane);
  } else {
    sync_compute<Veu>();
#pragma unroll 1
    for (int chunk = early; chunk < chunks; ++chunk) weights.release();  // the other warpgroup has acquired and read them
  }
  sync_compute<Veu>();

  SelfQueries<Value> queries;
  const char* const window_qkv = space.qkv + window * kSelfMadeBytes;
  const int first_half = shares ? group : 0, turns = shares ? 1 : 2;  // of the keys
  const char* piece = space.scores + (window * 8 + warp * 2 + first_half) * kSelfPieceBytes;
  const char* keys = window_qkv + first_half * 32 * kSelfPitchBytes;
  const float scale = args.scale;
  queries.begin(window_qkv, warp, lane);
#pragma unroll 1
  for (int turn = 0; turn < turns; ++turn, keys += 32 * kSelfPitchBytes, piece += kSelfPieceBytes) queries.attend(keys, piece, scale, lane);
  if (shares) {
    if (group == 1) queries.give(space.merged, warp, lane);
    sync_compute<Veu>();
    if (group == 1) return;
    queries.take(space.merged, warp, lane);
  }
  self_store_results(queries, args, space.table, out, window * kSelfRows + warp * 16, lane);
}

}  // namespace rk
