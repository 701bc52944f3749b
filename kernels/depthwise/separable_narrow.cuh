// separable_conv (separable_conv.cuh) of inputs of 16 bits. A box has 64 channels, of which each warp owns 16 at a time.
//
// Here the depthwise convolution is a product on tensor cores, too. The rows of operand A are pixels, and its 16 k are 8 channels at one
// tap and the same 8 channels at another tap. Operand B is two diagonal matrices, the filter's weights of the 8 channels at these two
// taps. A diagonal matrix is 7/8 zeros, but nothing else reads 16 pixels of 8 channels at two taps in one instruction (ldmatrix), and no
// value has to be widened: on an H200 the loop is bound by the bytes that shared memory delivers. Sums are fp32. The sums of 16 channels
// lie in a lane's registers as mma wants operand B of the pointwise product: rounded to 16 bits and clipped they are that operand.
//
// An infinity in a pixel makes NaN of the zeros beside it: in the 8 channels around the infinity, or in 16.
//
// The two halves of operand A's 16 rows are 8 neighbouring pixels of two output rows. What the first output row reads at one tap the
// second reads at another, so which rows and which taps meet in an operand is chosen such that the operand is multiplied as it was
// loaded:
//   STRIDE 1, 2 rows:  rows 0 and 1, taps ky and ky + 2: input rows ky .. ky + 3. Operands of odd ky are put together of registers.
//   STRIDE 1, 4 rows:  rows 0 and 2, taps 2 i and 2 i + 1: input rows 2 i, 2 i + 2, 2 i + 1, 2 i + 3; and the same for rows 1 and 3
//                      with the weights of taps 2 i - 1 and 2 i.
//   STRIDE 2:          rows 2 p and 2 p + 1, taps 2 i and 2 i + 1: input rows 2 m, 2 m + 2, 2 m + 1, 2 m + 3 with m = 2 p + i.
//   1 row:             8 channels and the next 8, taps 2 i and 2 i + 1. The operand is multiplied by the weights of the first 8 and by
//                      those of the next 8, and half of the sums of each product mean nothing.
//
// Example: 3 x 3 taps, STRIDE 1, 2 output rows (NT 2), a box 10 pixels wide. Per 8 channels one ldmatrix brings input rows 0 to 3 at a
// column of the filter. Word 0 of the filter is taps 0 and 2: output row 0 wants input rows 0 and 2, output row 1 rows 1 and 3, as
// loaded. Word 1 is tap 1 alone: rows 1 and 2 of both eights of channels are one operand. Lane 21 of warp 3 gives ldmatrix the address of
// input row 2 (21 / 8), column 3 (column_of(5)), so pixel 23 of the box; warp 3's channels begin in cell 6, which lies at place 6 ^ 23 %
// 8 = 1: byte 23 * 128 + 16 = 2960 of a box that begins at byte 0.
//
// Weights of a step, per 16 channels: MT times {A[g][2t], A[g][2t + 1]}, {A[g + 8][2t], ..}, {A[g][2t + 8], ..}, {A[g + 8][2t + 8], ..}
// of lane 4 g + t, 16 bits each, rows as in separable_conv.cuh; then the filter, column by column and word by word (separable_tap of
// numbers.cuh), {tap, tap} of channels g and g + 8 for each g; then {2t, 2t + 1, 2t + 8, 2t + 9} of the scales, and of the bias, in fp32,
// for each t. The filter's weights of a channel are divided by the scale, a power of two that brings them into the range of fp16. Without
// a filter (TAPS 1) there is only A.
#pragma once

#include "kernels/depthwise/separable_conv.cuh"
#include "kernels/vdevice/pairs.cuh"

namespace rk {

template <class Veu, class In, int TAPS, int STRIDE, int MT, int NT, int WARPS_N, bool ROUNDS>
struct SeparableNarrowTile : SeparableTile<Veu, TAPS, STRIDE, MT, NT, WARPS_N, ROUNDS> {
  using Base = SeparableTile<Veu, TAPS, STRIDE, MT, NT, WARPS_N, ROUNDS>;
  static constexpr int kOctetBytes = MT * 512 + separable_filter_bytes(TAPS);  // weights of the 16 channels that a warp owns in a step
  static constexpr int kStepBytes = Base::kWarpsK * kOctetBytes;
  static constexpr bool kOneRow = NT == 1;
  static constexpr int kPairs = kOneRow ? 1 : NT / 2;  // of output rows
  static constexpr int kOctets = kOneRow ? 1 : 2;      // eights of channels that have operands of their own
  static constexpr int kDistance = separable_tap_distance(STRIDE, NT), kWords = separable_words(TAPS);
  static constexpr int kWordBytes = separable_word_bytes(TAPS);  // of the whole filter
  // The two output rows of an operand follow each other, or, where there are four rows, are two apart.
  static constexpr bool kEveryOther = STRIDE == 1 && NT == 4;
  // Operands that are loaded of 8 channels at a column of the filter. With kDistance 2 there may be half an operand more, loaded for
  // all 16 channels at once.
  static constexpr int kLoads = kDistance == 2 ? (TAPS + 1) / 4 : kEveryOther || kOneRow ? kWords : kWords + NT - 2;
  static constexpr bool kHalfLoad = kDistance == 2 && (TAPS + 1) % 4 == 2;
  static constexpr int kTogether = TAPS <= 3 && NT <= 2 ? TAPS : 1;  // columns of the filter
  static constexpr bool kEndsBelow = kOneRow || STRIDE == 2;         // the last load would reach below the box, with weights of zero
  static_assert(NT == 1 || NT == 2 || NT == 4);

  int at, rest;           // byte of the box row that the lane gives to ldmatrix; `rest` is for the last loads, which differ
  int cell, rest_cell;    // of that row, shifted to its place in an address
  uint32_t lower, upper;  // which bytes of a word are the lane's part of a diagonal matrix
  int filter;             // byte of a column's first word

  RK_INLINE static int output_row(int pair, int half) { return kEveryOther ? pair + 2 * half : 2 * pair + half; }

  RK_INLINE void start() {
    Base::start();
    const int g = lane_id() / 4, t = lane_id() % 4;
    const int quarter = lane_id() / 8;  // of an operand
    const int first = (Base::warp_n() * NT * STRIDE * Base::kBoxW + Base::column_of(lane_id() % 8) * STRIDE) * kBoxRowBytes;
    cell = rest_cell = Base::warp_k() % 4 * 32;
    if constexpr (TAPS == 1) {  // {row 0, 8 channels}, {row 0, the next 8}, {row 1, ..
      at = rest = first + (kOneRow ? 0 : quarter / 2 * Base::kBoxW * kBoxRowBytes);
      cell ^= quarter % 2 * 16;
    } else if constexpr (kOneRow) {
      at = first + quarter / 2 * Base::kBoxW * kBoxRowBytes;
      rest = first;
      cell ^= quarter % 2 * 16;
    } else if constexpr (kDistance == 2) {
      at = first + quarter * Base::kBoxW * kBoxRowBytes;
      rest = first + (TAPS - 1 + quarter % 2) * Base::kBoxW * kBoxRowBytes;
      rest_cell ^= quarter / 2 * 16;
    } else {
      at = first + (quarter % 2 * 2 + quarter / 2) * Base::kBoxW * kBoxRowBytes;
      rest = first + quarter % 2 * 2 * Base::kBoxW * kBoxRowBytes;
    }
    lower = g == 2 * t ? 0x4410u : g == 2 * t + 1 ? 0x1044u : 0x4444u;
    upper = g == 2 * t ? 0x4432u : g == 2 * t + 1 ? 0x3244u : 0x4444u;
    filter = MT * 512 + g * 8;
  }

  // The operands of one column of the filter: its weights, and all rows of the box at that column, for 8 channels and the next 8.
  struct Column {
    uint32_t words[kWords][2];
    uint32_t x[kOctets][kLoads][4];
    uint32_t half[4];  // input rows TAPS - 1 and TAPS of 8 channels, and of the next 8

    RK_INLINE void load_words(const char* stages, int from) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        const float2 v = load_shared2(stages, from + i * 64);
        words[i][0] = bits_of(v.x), words[i][1] = bits_of(v.y);
      }
    }
    RK_INLINE uint32_t row(int octet, int r) const {
      return kHalfLoad && r >= TAPS - 1 ? half[octet * 2 + r - (TAPS - 1)] : x[octet][r / 4][r % 4];
    }
  };
  // Rows of 128 bytes have their 16-byte cells permuted by row % 8. `more`: how many rows below the lane's row.
  RK_INLINE static void load(uint32_t (&x)[4], const char* stages, int from, int cell, int more) {
    ldmatrix4(x, stages, from + more * kBoxRowBytes + ((((from >> 3) + more % 8 * 16) & 0x70) ^ cell));
  }
  // `box`: the byte at which the box begins, for column 0; that may be any row of the stage.
  RK_INLINE void load_inputs(const char* stages, int box, Column& column) const {
#pragma unroll
    for (int octet = 0; octet < kOctets; ++octet) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const bool last = kEndsBelow && i + 1 == kLoads;  // lanes that would read below the box read a row again that they have
        load(column.x[octet][i], stages, box + (last ? rest : at), cell ^ octet * 16, (kDistance == 2 ? 4 : 2) * i * Base::kBoxW);
      }
    }
    if constexpr (kHalfLoad) load(column.half, stages, box + rest, rest_cell, 0);
  }
  RK_INLINE static void relu_inputs(Column& column) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int load = 0; load < kLoads * kOctets; ++load) {
        uint32_t& pair = column.x[load / kLoads][load % kLoads][i];
        pair = max_pairs<In>(pair, 0);
      }
      if constexpr (kHalfLoad) column.half[i] = max_pairs<In>(column.half[i], 0);
    }
  }
  RK_INLINE static void multiply_taps(float (&mid)[4], const uint32_t (&x)[4], uint32_t first, uint32_t second) {
    const uint32_t b[2] = {first, second};
    mma_pairs<In>(mid, x, b);
  }
  // Adds words I and following of the filter for two output rows, where the taps of a word are 2 apart.
  template <int I = 0, int A = separable_tap(2, I, false), int B = separable_tap(2, I, true)>
  RK_INLINE static void add_words(const Column& column, const uint32_t (&low)[kWords][2], const uint32_t (&high)[kWords][2],
                                  float (&mid)[2][4]) {
    if constexpr (I < kWords) {
      if constexpr (B < TAPS) {
#pragma unroll
        for (int octet = 0; octet < 2; ++octet) {
          const uint32_t x[4] = {column.row(octet, A), column.row(octet, A + 1), column.row(octet, B), column.row(octet, B + 1)};
          multiply_taps(mid[octet], x, low[I][octet], high[I][octet]);
        }
      } else {  // a tap alone: both octets in one operand
        const uint32_t x[4] = {column.row(0, A), column.row(0, A + 1), column.row(1, A), column.row(1, A + 1)};
        multiply_taps(mid[0], x, low[I][0], 0);
        multiply_taps(mid[1], x, 0, low[I][1]);
      }
      add_words<I + 1>(column, low, high, mid);
    }
  }
  RK_INLINE void add(const Column& column, float (&mid)[kPairs][2][4]) const {
    uint32_t low[kWords][2], high[kWords][2];
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
#pragma unroll
      for (int octet = 0; octet < 2; ++octet) {
        low[i][octet] = pick_bytes(column.words[i][octet], lower);
        high[i][octet] = pick_bytes(column.words[i][octet], upper);
      }
    }
    if constexpr (kDistance == 2) {
      add_words(column, low, high, mid[0]);
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
#pragma unroll
        for (int octet = 0; octet < 2; ++octet) {
#pragma unroll
          for (int pair = 0; pair < kPairs; ++pair) {
            if (kEveryOther && pair == 1)
              multiply_taps(mid[1][octet], column.x[octet][i], i > 0 ? high[i > 0 ? i - 1 : 0][octet] : 0, low[i][octet]);
            else
              multiply_taps(mid[pair][octet], column.x[octet % kOctets][kEveryOther ? i : 2 * pair + i], low[i][octet], high[i][octet]);
          }
        }
      }
    }
  }
  RK_INLINE void multiply_row(const uint32_t (&rows)[MT][4], int row, const uint32_t (&b)[2]) {
#pragma unroll
    for (int i = 0; i < MT; ++i) mma_pairs<In>(this->sum[i][row], rows[i], b);
  }
  RK_INLINE static float mid_of(float sum, float scale, float bias) {
    const float v = fmaf(sum, scale, bias);
    return ROUNDS ? whole(v) : v;
  }
  RK_INLINE void multiply(const uint32_t (&rows)[MT][4], const float (&mid)[kPairs][2][4], float4 scale, float4 bias, uint32_t low,
                          uint32_t high) {
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
#pragma unroll
      for (int half = 0; half < (kOneRow ? 1 : 2); ++half) {
        const float* const m = mid[pair][0] + half * 2;
        const float* const n = mid[pair][1] + (kOneRow ? 2 : half * 2);
        uint32_t b[2] = {pair_of<In>(mid_of(m[0], scale.x, bias.x), mid_of(m[1], scale.y, bias.y)),
                         pair_of<In>(mid_of(n[0], scale.z, bias.z), mid_of(n[1], scale.w, bias.w))};
#pragma unroll
        for (int octet = 0; octet < 2; ++octet) b[octet] = min_pairs<In>(max_pairs<In>(b[octet], low), high);
        multiply_row(rows, output_row(pair, half), b);
      }
    }
  }
  // Without a filter the inputs are operand B as they are loaded.
  RK_INLINE void multiply_inputs(const uint32_t (&rows)[MT][4], const uint32_t (&x)[kPairs][4]) {
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
#pragma unroll
      for (int half = 0; half < (kOneRow ? 1 : 2); ++half) {
        const uint32_t b[2] = {x[pair][half * 2], x[pair][half * 2 + 1]};
        multiply_row(rows, 2 * pair + half, b);
      }
    }
  }

  // Runs over all boxes of the team, as SeparableTile::run does.
  template <class Walk, class Fetch>
  RK_INLINE void run(const SeparableConvArgs& args, Walk& walk, const Fetch& fetch) {
    const int relu = args.relu;
    const uint32_t low = pair_of<In>(args.low, args.low), high = pair_of<In>(args.high, args.high);
    const char* const stages = as_shared(walk.weights.stages);
    const char* const boxes = as_shared(walk.inputs.stages);
    bool more = true, first = true;
#pragma unroll 1
    while (more) {
      walk.enter_weights();
      const int weights = walk.weight;
      uint32_t rows[MT][4];
#pragma unroll
      for (int i = 0; i < MT; ++i) {
        const float4 v = load_shared4(stages, weights + (i * kWarp + lane_id()) * 16);
        rows[i][0] = bits_of(v.x), rows[i][1] = bits_of(v.y), rows[i][2] = bits_of(v.z), rows[i][3] = bits_of(v.w);
      }
      const bool idle = walk.is_idle();
      if constexpr (TAPS == 1) {
        walk.enter_inputs();
        const int from = walk.own_box() + at;
        uint32_t x[kPairs][4];
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) load(x[pair], boxes, from, cell, 2 * pair * Base::kBoxW);
        if (first) fetch();
        more = walk.leave();
        if (relu != 0) {
#pragma unroll
          for (int i = 0; i < kPairs * 4; ++i) x[i / 4][i % 4] = max_pairs<In>(x[i / 4][i % 4], 0);
        }
        if (!idle) multiply_inputs(rows, x);
      } else {
        const int floats = weights + MT * 512 + kWordBytes + lane_id() % 4 * 16;
        const float4 scale = load_shared4(stages, floats), bias = load_shared4(stages, floats + 64);
        int column_words = weights + filter;
        float mid[kPairs][2][4];
#pragma unroll
        for (int i = 0; i < kPairs * 8; ++i) mid[i / 8][i / 4 % 2][i % 4] = 0.0f;
        if constexpr (kTogether > 1) {
          Column columns[TAPS];
#pragma unroll
          for (int kx = 0; kx < TAPS; ++kx) columns[kx].load_words(stages, column_words + kx * kWords * 64);
          walk.enter_inputs();
          const int box = walk.own_box();
#pragma unroll
          for (int kx = 0; kx < TAPS; ++kx) load_inputs(boxes, box + kx * kBoxRowBytes, columns[kx]);
          if (first) fetch();
          more = walk.leave();
          // 0 or 1 times, as in SeparableTile::run.
#pragma unroll 1
          for (int times = relu; times > 0; --times) {
#pragma unroll
            for (int kx = 0; kx < TAPS; ++kx) relu_inputs(columns[kx]);
          }
#pragma unroll
          for (int kx = 0; kx < TAPS; ++kx) add(columns[kx], mid);
        } else {
          walk.enter_inputs();
          int box = walk.own_box();
          if (first) fetch();
#pragma unroll 1
          for (int kx = 0; kx < TAPS; ++kx, column_words += kWords * 64, box += kBoxRowBytes) {
            Column column;
            column.load_words(stages, column_words);
            load_inputs(boxes, box, column);
            if (relu != 0) relu_inputs(column);
            add(column, mid);
          }
          more = walk.leave();
        }
        if (!idle) multiply(rows, mid, scale, bias, low, high);
      }
      first = false;
    }
  }
};

template <class Veu, class In, class Out, int TAPS, int STRIDE, int MT, int NT, int WARPS_N, bool ROUNDS = false>
RK_BODY void separable_narrow(const Task<Veu>& task) {
  using Tile = SeparableNarrowTile<Veu, In, TAPS, STRIDE, MT, NT, WARPS_N, ROUNDS>;
  separable_rtask<Veu, Tile, Out>(task);
}

}  // namespace rk
