// Convolution and matrix product on tensor cores, inputs by boxes:
//   out[m][n] = act(bias[n] + residual[m][n] + sum over k of in(m, k) * weight[k][n])
//
// A rTask is a tile of tile_h x tile_w output pixels times CHANNELS output channels, over one share of the input channels. There are
// `splits` shares; with more than one a rTask stores partial sums, which split_k_sum adds. The waiter copies the input of the tile, with
// its halo and its padding, box by box of 32 channels into the ring of input stages, once for all taps (kernels/vdevice/boxes.cuh). The
// weights come through the ring of weight stages, in the order in which lanes read them. So nothing in the loop computes an address in
// global memory, and the copies for the next rTask run while this one computes.
//
// Weights take 16 bits in memory in every precision. For tf32 that is fp16, each output channel times a power of two (its scale): fp16
// has as many mantissa bits as tf32, so nothing is lost that tf32 keeps (staged_conv.cpp), while half as many bytes pass through L2 and
// shared memory, whose bandwidth is what the loop is bound by.
//
// Output channels are the rows of the product (mma's operand A is the weights), pixels its columns, so that a map of 7 x 7 wastes little.
// The warps share channels (WARPS_M), pixels (WARPS_N) and k. A unit is the k of one mma: 8 in tf32, 16 in fp16 and bf16. A box of 32
// channels has four or two units, which the warps on k share. If there are more warps on k than units, the warps are divided into teams,
// and in a step each team takes a box of its own or, of the same box, a tap of its own.
//
// In fp16 and bf16 the inputs, the results, or both may lie in memory with 16 bits. Of inputs with 16 bits a box has 64 channels, four
// units as they lie; fp32 inputs become 16 bits in registers.
//
// Every instruction costs twice (two warps a scheduler), so what can be computed once is computed by the host: a table says where the
// input of a step lies in its stage, and channels are dealt to the rows of mma so that a lane's sums are neighbours.
//
// Example: tf32, MT 2, NT 4, WARPS_M 2, WARPS_N 2: 64 channels and 64 pixels, two warps on k. Warp 6 is warp 1 on k (units 1 and 3 of a
// box) and 1 on the pixels (32 to 63). With a filter of 3 x 3 and a tile of 4 x 14 the box is 6 x 16 pixels. Lane 13 gives ldmatrix pixel
// 32 + 13 % 8 = 37 of the tile, row 2, column 9, so row 2 * 16 + 9 = 41 of the box, and at tap (1, 1), 17 rows further (step_row 272),
// row 58. Its channels 12 to 15 of unit 1 are cell 3, which lies at place 3 ^ 58 % 8 = 1: byte 58 * 128 + 16 = 7440 of the box.
#pragma once

#include "kernels/conv/lean_epilogue.cuh"
#include "kernels/conv/tile_product.cuh"
#include "kernels/vdevice/half.cuh"
#include "kernels/vdevice/memory.cuh"
#include "kernels/vdevice/mma.cuh"

namespace rk {

struct StagedConvArgs {
  TensorRef out;
  TensorRef scale;                      // of each output channel's sums, in the order of the bias; tf32 only
  EpilogueArgs epilogue;                // bias: per group, padded to whole blocks; residual strides: image, channel, h, w of the grid
  ClipArgs clip;                        // the epilogue's activation
  PixelStrides out_strides;             // of the grid
  int64_t split_stride;                 // of out
  int32_t channels;                     // of a group
  int32_t steps, last_steps;            // of a rTask, and of one of the last split
  int32_t input_steps;                  // of an input chunk
  int32_t chunks, chunk_steps;          // of weights: of a rTask, and steps of a chunk
  int32_t pixel_row_h, pixel_row_w;     // rows of a box from an output pixel to the one below, and to its right
  int32_t eight_rows;                   // rows of a box from 8 pixels to the next 8, where the body multiplies by wgmma
  int32_t tile_h, tile_w, pixels;       // of a tile; tile_h * tile_w
  int32_t row_multiplier;               // 2^16 / tile_w, rounded up
  int32_t grid_h, grid_w;               // pixels of an image of the grid
  int32_t vector_out, vector_residual;  // so many channels are one aligned access: 4, 8 or (0) none
  Divisor tiles, splits, n_blocks, tiles_w, tiles_h;
  // [team][step of an input chunk]: the first row of the stage that the step reads, times 16. Taps and steps that do not exist have
  // weights of zero. (The rows of the next batch are loaded ahead; at the end those loads read behind the table.)
  int16_t step_row[kMostSteps + kMostBatch];

  // p / tile_w of a pixel of the tile: exact below 256.
  RK_INLINE int row_of(int p) const { return p * row_multiplier >> 16; }
};

// Where a rTask's tile is.
struct StagedTile {
  uint32_t image, h, w, split, n_block, group;
  RK_INLINE Pixel first() const { return {static_cast<int32_t>(image), static_cast<int32_t>(h), static_cast<int32_t>(w)}; }
};
RK_INLINE StagedTile staged_tile(const StagedConvArgs& args, uint32_t index) {
  StagedTile t;
  uint32_t tile;
  const uint32_t block = divide(index, args.tiles, tile);
  t.group = divide(divide(block, args.splits, t.split), args.n_blocks, t.n_block);
  t.image = divide(divide(tile, args.tiles_w, t.w), args.tiles_h, t.h);
  t.w *= static_cast<uint32_t>(args.tile_w);
  t.h *= static_cast<uint32_t>(args.tile_h);
  return t;
}

// One unit of k. Pixels come from ldmatrix: words {k 0-3, 4-7 of one n-tile, k 0-3, 4-7 of the next}, and in 16 bits the same again for k
// 8-15. In 16 bits the k of a lane's word are 4 apart (t and t + 4) instead of neighbours, and the weights are packed in the same way.
struct Fp16 {};
struct Bf16 {};
// In and Out are the types in memory: at least one of them is Half or Bfloat, the other the same or float.
template <class In, class Out>
struct Narrow {};

template <class Math>
struct StagedMath {
  using Out = float;  // of the results and the residual in memory
  static constexpr StagedUnits kOf = kStaged16Bits;
  static constexpr int kUnits = kOf.units, kLoads = kOf.loads, kWords = kOf.words;
  static constexpr bool kScales = false;  // the sums
  static constexpr bool kRows = false;    // weights lie by rows
  RK_INLINE static void weights(uint32_t (&a)[4], const uint32_t (&words)[kWords]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = words[i];
  }
  RK_INLINE static uint32_t narrow(uint32_t low, uint32_t high) {
    if constexpr (std::is_same_v<Math, Fp16>)
      return halves_of(float_of(low), float_of(high));
    else
      return bfloats_of(float_of(low), float_of(high));
  }
  RK_INLINE static void operand(uint32_t (&b)[2], const uint32_t (&words)[kLoads][4], int tile) {
    b[0] = narrow(words[0][tile * 2], words[0][tile * 2 + 1]);
    b[1] = narrow(words[1][tile * 2], words[1][tile * 2 + 1]);
  }
  RK_INLINE static void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    if constexpr (std::is_same_v<Math, Fp16>)
      mma_f16(d, a, b);
    else
      mma_bf16(d, a, b);
  }
};
// The tensor core cuts the pixels' lower bits off. The channels' scales make up for what cutting takes from a sum on average (to_tf32 of
// kernels/vdevice/mma.cuh would be an instruction for every pixel and k).
template <>
struct StagedMath<Tf32> {
  using Out = float;
  static constexpr bool kRows = false;
  static constexpr StagedUnits kOf = kStagedTf32;
  static constexpr int kUnits = kOf.units, kLoads = kOf.loads, kWords = kOf.words;
  static constexpr bool kScales = true;
  RK_INLINE static void weights(uint32_t (&a)[4], const uint32_t (&words)[kWords]) {
    const float2 low = floats_of_halves(words[0]), high = floats_of_halves(words[1]);
    a[0] = bits_of(low.x), a[1] = bits_of(low.y), a[2] = bits_of(high.x), a[3] = bits_of(high.y);
  }
  RK_INLINE static void operand(uint32_t (&b)[2], const uint32_t (&words)[kLoads][4], int tile) {
    b[0] = words[0][tile * 2];
    b[1] = words[0][tile * 2 + 1];
  }
  RK_INLINE static void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_tf32(d, a, b); }
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  RK_INLINE static void multiply_wide(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) { wide_tf32(d, a, b); }
#endif
};

template <class Out_>
struct StagedMath<Narrow<float, Out_>> : StagedMath<std::conditional_t<std::is_same_v<Out_, Half>, Fp16, Bf16>> {
  using Out = Out_;
};
template <class In, class Out_>
struct StagedMath<Narrow<In, Out_>> {
  using Out = Out_;
  static constexpr bool kRows = false;
  static constexpr StagedUnits kOf = kStagedNarrow;
  static constexpr int kUnits = kOf.units, kLoads = kOf.loads, kWords = kOf.words;
  static constexpr bool kScales = false;
  RK_INLINE static void weights(uint32_t (&a)[4], const uint32_t (&words)[kWords]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = words[i];
  }
  RK_INLINE static void operand(uint32_t (&b)[2], const uint32_t (&words)[kLoads][4], int tile) {
    b[0] = words[0][tile * 2];
    b[1] = words[0][tile * 2 + 1];
  }
  RK_INLINE static void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    if constexpr (std::is_same_v<In, Half>)
      mma_f16(d, a, b);
    else
      mma_bf16(d, a, b);
  }
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  template <int EIGHTS>
  RK_INLINE static void multiply_deep(float (&d)[EIGHTS][4], uint64_t a, uint64_t b) {
    if constexpr (std::is_same_v<In, Half>)
      deep_f16(d, a, b);
    else
      deep_bf16(d, a, b);
  }
#endif
};
// As Math, but a step of weights is rows of 64 channels: 128 bytes for each output channel, with cells permuted like those of boxes.
template <class Math>
struct Rows {};
template <class Math>
struct StagedMath<Rows<Math>> : StagedMath<Math> {
  static constexpr bool kRows = true;
};

// As Math, but multiplied by wgmma, for tiles of whole 64 channels whose pixels lie in a box 8 by 8: all follow each other (one tap), or
// 8 are in a row. The weights lie as for Math where that is Tf32, and as for Rows<Math> where it is Narrow with narrow inputs.
template <class Math>
struct Wide {};

// Bytes of a pixel's rounded sums in shared memory (StagedRoundedResults).
template <int CHANNELS>
constexpr int kRoundedPitch = rounded_pitch(CHANNELS);

// The product of one rTask, as one warp sees it.
template <class Veu, class Math, int MT, int NT, int WARPS_M, int WARPS_N>
struct StagedProduct {
  using Of = StagedMath<Math>;
  static constexpr int kWarpsK = Veu::kComputeThreads / kWarp / (WARPS_M * WARPS_N);
  static constexpr int kTeams = staged_teams(kWarpsK, Of::kUnits);
  static constexpr int kTeamWarps = kWarpsK / kTeams;
  static constexpr int kWarpUnits = Of::kUnits / kTeamWarps;  // of a step
  static constexpr int kLoads = Of::kLoads;
  static constexpr int kChannels = 16 * MT * WARPS_M, kPixels = 8 * NT * WARPS_N;
  static constexpr int kPairs = NT / 2;
  static constexpr int kUnitBytes = MT * WARPS_M * kWarp * Of::kWords * 4;  // of weights
  static constexpr int kLaneBytes = Of::kWords == 2 ? MT * 8 : 16;          // read at once: both tiles of 16 channels, or one
  static constexpr int kStepBytes = kTeams * Of::kUnits * kUnitBytes;
  static constexpr int kPitch = kChannels + kSumPad;                                // of a pixel's sums
  static constexpr int kSumBytes = kPixels * kPitch * 4;                            // of one warp on k, in all rounds
  static constexpr int kBatch = staged_batch(kWarpUnits * (MT + NT / 2 * kLoads));  // steps whose operands are loaded together
  static constexpr bool kWide = false;
  static constexpr int kRounds = staged_rounds(kChannels, kPixels);  // rounds in which sums are stored and results made
  static constexpr int kRoundPixels = kPixels / kRounds;
  static_assert(NT % 2 == 0 && MT <= 2 && (kRounds == 1 || kRounds == WARPS_N));

  float sum[MT][NT][4];
  int row[kPairs];   // of a box at tap 0, times 16
  int lane_in_step;  // bytes
  int lane_cell;     // of the warp's first unit, in bytes

  // (Unsigned: divisions are shifts.)
  RK_INLINE static int warp_k() { return static_cast<int>(threadIdx.x / (kWarp * WARPS_M * WARPS_N)); }
  RK_INLINE static int warp_m() { return static_cast<int>(threadIdx.x / kWarp % WARPS_M); }
  RK_INLINE static int warp_n() { return static_cast<int>(threadIdx.x / (kWarp * WARPS_M) % WARPS_N); }
  RK_INLINE static int team() { return static_cast<int>(threadIdx.x / (kWarp * WARPS_M * WARPS_N * kTeamWarps)); }

  RK_INLINE void start(const StagedConvArgs& args) {
#pragma unroll
    for (int i = 0; i < MT; ++i) {
#pragma unroll
      for (int j = 0; j < NT; ++j) sum[i][j][0] = sum[i][j][1] = sum[i][j][2] = sum[i][j][3] = 0.0f;
    }
    lane_in_step = warp_k() * kUnitBytes + warp_m() * (kUnitBytes / WARPS_M) + lane_id() * kLaneBytes;
    if constexpr (Of::kRows) lane_in_step = (warp_m() * MT * 16 + lane_id() % 16) * kBoxRowBytes;
    lane_cell = (warp_k() % kTeamWarps * 2 * kLoads + lane_id() / 8 % 2) << 4;
    // Lane l gives ldmatrix row l % 8 of n-tile l / 16 of a pair, at k 0-3 or 4-7.
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const int at = warp_n() * 8 * NT + p * 16 + lane_id() / 16 * 8 + lane_id() % 8;
      const int pixel = at < args.pixels ? at : 0, h = args.row_of(pixel);
      row[p] = (h * args.pixel_row_h + (pixel - h * args.tile_w) * args.pixel_row_w) * 16;
    }
  }

  struct Operands {
    uint32_t a[kWarpUnits][MT][Of::kWords];
    uint32_t b[kWarpUnits][kPairs][kLoads][4];
  };
  // box: byte of the input stages; weights: byte of the weight stages.
  RK_INLINE void load(Operands& o, const char* inputs, int box, const char* stages, int weights, int step_row) const {
#pragma unroll
    for (int unit = 0; unit < kWarpUnits; ++unit) {
#pragma unroll
      for (int p = 0; p < kPairs; ++p) {
        const int r = row[p] + step_row;
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          const int cell = lane_cell + (unit * kTeamWarps * kLoads + i) * 32;
          ldmatrix4(o.b[unit][p][i], inputs, box + r * (kBoxRowBytes / 16) + ((r ^ cell) & 0x70));
        }
      }
      if constexpr (Of::kRows)
        load_rows_of_weights(o.a[unit], stages, weights + lane_in_step, (warp_k() + unit * kTeamWarps) * 2 + lane_id() / 16);
      else
        load_weights(o.a[unit], stages, weights + lane_in_step + unit * kTeamWarps * kUnitBytes);
    }
  }
  RK_INLINE static void load_rows_of_weights(uint32_t (&a)[MT][Of::kWords], const char* stages, int at, int cell) {
    static_assert(!Of::kRows || kTeams == 1);
    if constexpr (Of::kRows) {
#pragma unroll
      for (int i = 0; i < MT; ++i) ldmatrix4(a[i], stages, at + i * 16 * kBoxRowBytes + ((cell ^ (lane_id() & 7)) << 4));
    }
  }
  RK_INLINE static void load_weights(uint32_t (&a)[MT][Of::kWords], const char* stages, int at) {
    if constexpr (kLaneBytes == 8) {
      const float2 v = load_shared2(stages, at);
      a[0][0] = bits_of(v.x), a[0][1] = bits_of(v.y);
    } else if constexpr (Of::kWords == 2) {
      const float4 v = load_shared4(stages, at);
      a[0][0] = bits_of(v.x), a[0][1] = bits_of(v.y), a[1][0] = bits_of(v.z), a[1][1] = bits_of(v.w);
    } else {
#pragma unroll
      for (int i = 0; i < MT; ++i) {
        const float4 v = load_shared4(stages, at + i * kWarp * kLaneBytes);
        a[i][0] = bits_of(v.x), a[i][1] = bits_of(v.y), a[i][2] = bits_of(v.z), a[i][3] = bits_of(v.w);
      }
    }
  }
  RK_INLINE void multiply(const Operands& o) {
#pragma unroll
    for (int unit = 0; unit < kWarpUnits; ++unit) {
      uint32_t a[MT][4];
#pragma unroll
      for (int i = 0; i < MT; ++i) Of::weights(a[i], o.a[unit][i]);
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        uint32_t b[2];
        Of::operand(b, o.b[unit][j / 2], j % 2);
#pragma unroll
        for (int i = 0; i < MT; ++i) Of::multiply(sum[i][j], a[i], b);
      }
    }
  }
  // Where the inputs of a batch of steps are, from byte `step_row` of the table on.
  RK_INLINE static void load_rows(int (&rows)[kBatch], const int16_t* table, int step_row) {
#pragma unroll
    for (int s = 0; s < kBatch; ++s) rows[s] = load_shared_int16(table, step_row + s * 2);
  }
  // rows: on entry the rows of these steps; afterwards those of the batch at `next_row`, which are loaded while these steps multiply.
  template <int STEPS>
  RK_INLINE void steps(const char* inputs, int box, const char* stages, int weights, int (&rows)[kBatch], const int16_t* table,
                       int next_row) {
    Operands o[STEPS];
#pragma unroll
    for (int s = 0; s < STEPS; ++s) load(o[s], inputs, box, stages, weights + s * kStepBytes, rows[s]);
    load_rows(rows, table, next_row);
#pragma unroll
    for (int s = 0; s < STEPS; ++s) multiply(o[s]);
  }

  // The first of the neighbouring channels whose sums a lane has, and how many they are.
  static constexpr int kLaneChannels = 2 * MT;
  RK_INLINE static int lane_channel() { return (warp_m() * 8 + lane_id() / 4) * kLaneChannels; }
  // As store, for StagedRoundedResults: sums plus bias, rounded to the type of the results, in one round; `bias`: of the lane's channels.
  template <class Value>
  RK_INLINE void store_rounded(char* sums, const float (&bias)[kLaneChannels]) const {
    const int first = (warp_n() * 8 * NT + lane_id() % 4 * 2) * kRoundedPitch<kChannels> + lane_channel() * 2;
#pragma unroll
    for (int j = 0; j < NT; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int i = 0; i < MT; ++i)
          store_shared_word(sums, first + (j * 8 + e) * kRoundedPitch<kChannels> + i * 4,
                            pair_of<Value>(sum[i][j][e] + bias[2 * i], sum[i][j][e + 2] + bias[2 * i + 1]));
      }
    }
  }
  // Leaves the sums of each warp on k in shared memory: [warp on k][pixel][kPitch]. Rows g and g + 8 of the MT tiles of a warp are
  // neighbouring channels.
  RK_INLINE void store(char* sums, int round) const {
    if (kRounds > 1 && warp_n() != round) return;
    const int pixel = kRounds > 1 ? 0 : warp_n() * 8 * NT;
    const int first = ((warp_k() * kPixels + pixel + lane_id() % 4 * 2) * kPitch + (warp_m() * 8 + lane_id() / 4) * 2 * MT) * 4;
#pragma unroll
    for (int j = 0; j < NT; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int at = first + (j * 8 + e) * kPitch * 4;
        if constexpr (MT == 2)
          store_shared4(sums, at, float4{sum[0][j][e], sum[0][j][e + 2], sum[1][j][e], sum[1][j][e + 2]});
        else
          store_shared2(sums, at, float2{sum[0][j][e], sum[0][j][e + 2]});
      }
    }
  }
};

// StagedProduct by wgmma: the two warpgroups share k (GROUPS_N 1) or the pixels (2). Warp w of a warpgroup has tile w % 2 of the channels
// of warp w / 2 of StagedProduct<Veu, Tf32, 2, 4, 2, 2 * GROUPS_N>. The body must be in line: ptxas makes each wgmma of a function that
// is called wait for the one before (its remark C7510).
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
template <class Veu, int GROUPS_N>
struct StagedWideProduct {
  using Of = StagedMath<Tf32>;
  static constexpr bool kWide = true;
  static constexpr int kWarpsK = 2 / GROUPS_N, kUnits = Of::kUnits / kWarpsK;  // units: of a warpgroup and a step
  static constexpr int kChannels = 64, kPixels = 64 * GROUPS_N, kGroupPixels = 64;
  static constexpr int kUnitBytes = kChannels / 16 * kWarp * Of::kWords * 4, kStepBytes = Of::kUnits * kUnitBytes;
  static constexpr int kPitch = kChannels + kSumPad, kSumBytes = kPixels * kPitch * 4, kRounds = 1, kRoundPixels = kPixels;
  static constexpr int kBatch = GROUPS_N == 1 ? 3 : 2;  // steps whose operands are loaded together
  static_assert(Veu::kComputeThreads == 2 * 4 * kWarp);

  float sum[8][4];
  int lane_in_step, first;  // bytes: of the weights; of a box

  RK_INLINE static int group() { return static_cast<int>(threadIdx.x / (4 * kWarp)); }
  RK_INLINE static int warp_m() { return static_cast<int>(threadIdx.x / kWarp % 4); }
  RK_INLINE static int group_k() { return GROUPS_N == 1 ? group() : 0; }
  RK_INLINE static int group_n() { return GROUPS_N == 1 ? 0 : group(); }
  RK_INLINE static int team() { return 0; }

  RK_INLINE void start(const StagedConvArgs&) {
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[j][0] = sum[j][1] = sum[j][2] = sum[j][3] = 0.0f;
    lane_in_step = group_k() * kUnitBytes + warp_m() / 2 * (kUnitBytes / 2) + lane_id() * 16 + warp_m() % 2 * 8;
    first = group_k() * 32 + group_n() * kGroupPixels * kBoxRowBytes;
  }
  // As StagedProduct::steps, but the rows of these steps begin at byte `step_row` of the table.
  template <int STEPS>
  RK_INLINE void steps(const char* inputs, int box, const char* stages, int weights, const int16_t* table, int step_row) {
    float2 words[STEPS][kUnits];
    uint64_t b[STEPS];
    uint32_t a[STEPS][kUnits][4];
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
#pragma unroll
      for (int u = 0; u < kUnits; ++u)
        words[s][u] = load_shared2(stages, weights + lane_in_step + s * kStepBytes + u * kWarpsK * kUnitBytes);
      b[s] = wide_operand(inputs, box + first + load_shared_int16(table, step_row + s * 2) * (kBoxRowBytes / 16));
    }
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
#pragma unroll
      for (int u = 0; u < kUnits; ++u) Of::weights(a[s][u], {bits_of(words[s][u].x), bits_of(words[s][u].y)});
      begin_wide();
#pragma unroll
      for (int u = 0; u < kUnits; ++u) wide_tf32(sum, a[s][u], b[s] + static_cast<uint64_t>(u * kWarpsK * 2));
    }
    end_wide();
  }

  // As StagedProduct::store.
  RK_INLINE void store(char* sums, int) const {
    const int pixel = group_k() * kPixels + group_n() * kGroupPixels + lane_id() % 4 * 2;
    const int to = (pixel * kPitch + warp_m() / 2 * 32 + (lane_id() / 4 * 2 + warp_m() % 2) * 2) * 4;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) store_shared2(sums, to + (j * 8 + e) * kPitch * 4, float2{sum[j][e], sum[j][e + 2]});
    }
  }
};

// Rows<Math> by wgmma: both operands come from the stages as they lie, and a step only has to be begun. With 128 channels each warpgroup
// has 64 of them; with 64 the two warpgroups share the pixels (if there are 128), or k.
template <class Veu, class Math, int CHANNELS, int PIXELS>
struct StagedDeepProduct {
  using Of = StagedMath<Rows<Math>>;
  static constexpr bool kWide = true;
  static constexpr int kGroupsM = CHANNELS / 64, kGroupsN = kGroupsM == 1 && PIXELS == 128 ? 2 : 1, kWarpsK = 2 / (kGroupsM * kGroupsN);
  static constexpr int kUnits = Of::kUnits / kWarpsK;  // of a warpgroup and a step
  static constexpr int kChannels = CHANNELS, kPixels = PIXELS, kEights = PIXELS / kGroupsN / 8;
  static constexpr int kStepBytes = CHANNELS * kBoxRowBytes;
  static constexpr int kBatch = 1;  // steps that are begun together, and waited for
  static constexpr int kRounds = staged_rounds(kChannels, kPixels), kRoundPixels = kPixels / kRounds;
  static constexpr int kPitch = kChannels + kSumPad, kSumBytes = kPixels * kPitch * 4;
  static_assert(Veu::kComputeThreads == 2 * 4 * kWarp && (kRounds == 1 || kGroupsN == 1));

  float sum[kEights][4];
  int first_weight, first_input, eight_bytes;

  RK_INLINE static int group() { return static_cast<int>(threadIdx.x / (4 * kWarp)); }
  RK_INLINE static int warp_m() { return static_cast<int>(threadIdx.x / kWarp % 4); }
  RK_INLINE static int group_k() { return kWarpsK == 2 ? group() : 0; }
  RK_INLINE static int group_m() { return kGroupsM == 2 ? group() : 0; }
  RK_INLINE static int group_n() { return kGroupsN == 2 ? group() : 0; }
  RK_INLINE static int team() { return 0; }

  RK_INLINE void start(const StagedConvArgs& args) {
#pragma unroll
    for (int j = 0; j < kEights; ++j) sum[j][0] = sum[j][1] = sum[j][2] = sum[j][3] = 0.0f;
    eight_bytes = args.eight_rows * kBoxRowBytes;
    first_weight = group_m() * 64 * kBoxRowBytes + group_k() * kUnits * 32;
    first_input = group_n() * kEights * eight_bytes + group_k() * kUnits * 32;
  }
  // As StagedWideProduct::steps.
  template <int STEPS>
  RK_INLINE void steps(const char* inputs, int box, const char* stages, int weights, const int16_t* table, int step_row) {
    uint64_t a[STEPS], b[STEPS];
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      const int row = load_shared_int16(table, step_row + s * 2) * (kBoxRowBytes / 16);
      a[s] = wide_operand(stages, weights + first_weight + s * kStepBytes);
      b[s] = wide_operand(inputs, box + first_input + row, eight_bytes);
    }
    begin_wide();
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
#pragma unroll
      for (int u = 0; u < kUnits; ++u) Of::multiply_deep(sum, a[s] + static_cast<uint64_t>(u * 2), b[s] + static_cast<uint64_t>(u * 2));
    }
    end_wide();
  }
  // As StagedProduct::store_rounded.
  static constexpr int kLaneChannels = 2;
  RK_INLINE static int lane_channel() { return group_m() * 64 + warp_m() / 2 * 32 + (lane_id() / 4 * 2 + warp_m() % 2) * 2; }
  template <class Value>
  RK_INLINE void store_rounded(char* sums, const float (&bias)[2]) const {
    const int first = (group_n() * kEights * 8 + lane_id() % 4 * 2) * kRoundedPitch<kChannels> + lane_channel() * 2;
#pragma unroll
    for (int j = 0; j < kEights; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e)
        store_shared_word(sums, first + (j * 8 + e) * kRoundedPitch<kChannels>,
                          pair_of<Value>(sum[j][e] + bias[0], sum[j][e + 2] + bias[1]));
    }
  }
  // As StagedProduct::store.
  RK_INLINE void store(char* sums, int round) const {
    constexpr int kRoundEights = kEights / kRounds;
    const int pixel = group_k() * kPixels + group_n() * kEights * 8 + lane_id() % 4 * 2;
    const int to = (pixel * kPitch + group_m() * 64 + warp_m() / 2 * 32 + (lane_id() / 4 * 2 + warp_m() % 2) * 2) * 4;
#pragma unroll
    for (int j = 0; j < kEights; ++j) {
      if (kRounds > 1 && j / kRoundEights != round) continue;
#pragma unroll
      for (int e = 0; e < 2; ++e) store_shared2(sums, to + (j % kRoundEights * 8 + e) * kPitch * 4, float2{sum[j][e], sum[j][e + 2]});
    }
  }
};
#endif

// The results of one thread: 4 channels of every kPixelThreads-th pixel of the tile. What can be known before the inputs have arrived is
// computed before; residuals are on their way while the product is computed. Instructions that run once are dear (an SM fetches them at 2
// to 3 bytes a cycle), so nothing is asked per output that can be asked once: nearly all results are a clamp and are stored in 16 bytes,
// and these have unrolled code of their own; all others share one loop.
template <class Veu, class Product>
struct StagedResults {
  static constexpr int kChannelThreads = Product::kChannels / 4;
  static constexpr int kPixelThreads = Veu::kComputeThreads / kChannelThreads;
  static constexpr int kOutputs = (Product::kPixels + kPixelThreads - 1) / kPixelThreads, kRoundOutputs = kOutputs / Product::kRounds;
  static_assert((Product::kPixels % kPixelThreads == 0 || kOutputs == 1) && kOutputs % Product::kRounds == 0);
  // With more than one round there are so many sums that registers are few: addresses of results are computed late, and residuals are
  // on their way for one round only.
  static constexpr bool kAhead = Product::kRounds == 1;

  using Value = typename Product::Of::Out;

  float4 scale, bias;
  Raw4<Value> residual[kAhead ? kOutputs : kRoundOutputs];
  float low, high;
  Value* out;
  int to[kAhead ? kOutputs : 1];  // -1: there is no such pixel
  int channel, left;              // channel: in the tensor; left: how many channels exist from there on
  bool plain;

  RK_INLINE static int pixel(int i) { return static_cast<int>(threadIdx.x / kChannelThreads) + i * kPixelThreads; }
  RK_INLINE static int column() { return static_cast<int>(threadIdx.x % kChannelThreads) * 4; }

  RK_INLINE void start(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) {
    const int n = static_cast<int>(tile.n_block) * Product::kChannels + column();  // in the group
    left = args.channels - n;
    channel = static_cast<int>(tile.group) * args.channels + n;
    const int padded = static_cast<int>(tile.group * args.n_blocks.divisor) * Product::kChannels + n;
    bias = load_bias4(task, args, padded);
    if constexpr (Product::Of::kScales) scale = load_weight4(task.address(args.scale) + padded);
    const PixelStrides strides = args.out_strides;
    out =
        values_at<Value>(task, args.out) + tile.split * args.split_stride + (offset_of(tile.first(), strides) + channel * strides.channel);
    const int pixels = left > 0 ? args.pixels : 0;
    const int row = strides.h - args.tile_w * strides.w;  // from the end of a row of the tile to the next row
#pragma unroll
    for (int i = 0; i < (kAhead ? kOutputs : 0); ++i) {
      const int p = pixel(i), h = args.row_of(p), w = p - h * args.tile_w;
      const bool exists = (p < pixels) & (h + static_cast<int>(tile.h) < args.grid_h) & (w + static_cast<int>(tile.w) < args.grid_w);
      to[i] = exists ? p * strides.w + h * row : -1;
    }
#pragma unroll
    for (Raw4<Value>& r : residual) r = {};
    low = args.clip.low;
    high = args.clip.high;
    plain = args.clip.other == 0 && args.clip.after == 0 && args.vector_out != 0 &&
            (args.epilogue.residual.base == kNullBase || args.vector_residual != 0);
  }
  RK_INLINE const Value* residual_of(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) const {
    const PixelStrides strides = narrow(args.epilogue.residual_strides);
    return values_at<Value>(task, args.epilogue.residual) + (offset_of(tile.first(), strides) + channel * strides.channel);
  }
  // Starts to load the residuals. Called when the rTask's inputs are there, and so the residuals, too.
  RK_INLINE void fetch(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) {
    if (args.epilogue.residual.base == kNullBase || !plain) return;
    if constexpr (!kAhead) return fetch_round(task, args, tile, 0);
    const Value* const from = residual_of(task, args, tile);
    const int w = static_cast<int>(args.epilogue.residual_strides[3]),
              row = static_cast<int>(args.epilogue.residual_strides[2]) - args.tile_w * w;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      if (to[i] >= 0) residual[i] = load_raw4(from + (pixel(i) * w + args.row_of(pixel(i)) * row));
    }
  }
  // bias plus the sums of the warps on k.
  RK_INLINE float4 sum_of(const char* sums, int p) const {
    const int from = (p % Product::kRoundPixels * Product::kPitch + column()) * 4;
    float4 v = load_shared4(sums, from);
#pragma unroll
    for (int k = 1; k < Product::kWarpsK; ++k) v = add4(v, load_shared4(sums, k * Product::kSumBytes + from));
    if constexpr (!Product::Of::kScales) return add4(v, bias);
    return {fmaf(v.x, scale.x, bias.x), fmaf(v.y, scale.y, bias.y), fmaf(v.z, scale.z, bias.z), fmaf(v.w, scale.w, bias.w)};
  }
  // Stores the results of a round, whose sums are in shared memory.
  RK_INLINE void finish(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const char* sums, int round) {
    if constexpr (Product::kWide) {
      if (!plain && is_smooth(args.epilogue.activation) && args.vector_out != 0 && args.epilogue.residual.base == kNullBase)
        return finish_smooth(args, tile, sums, round);
    }
    if (!plain) return finish_any(task, args, tile, sums, round);
    if constexpr (!kAhead) return finish_late(task, args, tile, sums, round);
    if (kOutputs == 1 && to[0] < 0) return;
#pragma unroll
    for (int i = 0; i < (kAhead ? kOutputs : 0); ++i) {
      const float4 v = clamp4(add4(sum_of(sums, pixel(i)), residual[i].floats()), low, high);
      if (to[i] >= 0) store4(out + to[i], v);
    }
  }
  // The address of pixel p of the tile; null where there is no such pixel.
  template <class T>
  RK_INLINE T* pixel_at(const StagedConvArgs& args, const StagedTile& tile, T* from, int h_stride, int w_stride, int p) const {
    const int h = args.row_of(p), w = p - h * args.tile_w;
    const bool exists =
        (left > 0) & (p < args.pixels) & (h + static_cast<int>(tile.h) < args.grid_h) & (w + static_cast<int>(tile.w) < args.grid_w);
    return exists ? from + (h * h_stride + w * w_stride) : nullptr;
  }
  RK_INLINE void fetch_round(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, int round) {
    const Value* const from = residual_of(task, args, tile);
    const int w = static_cast<int>(args.epilogue.residual_strides[3]), h = static_cast<int>(args.epilogue.residual_strides[2]);
#pragma unroll
    for (int i = 0; i < kRoundOutputs; ++i) {
      const Value* const at = pixel_at(args, tile, from, h, w, round * Product::kRoundPixels + pixel(i));
      if (at != nullptr) residual[i] = load_raw4(at);
    }
  }
  RK_INLINE void finish_late(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const char* sums, int round) {
    const PixelStrides strides = args.out_strides;
#pragma unroll
    for (int i = 0; i < kRoundOutputs; ++i) {
      const int p = round * Product::kRoundPixels + pixel(i);
      Value* const to_pixel = pixel_at(args, tile, out, strides.h, strides.w, p);
      if (to_pixel != nullptr) store4(to_pixel, clamp4(add4(sum_of(sums, p), residual[i].floats()), low, high));
    }
    if (round + 1 < Product::kRounds && args.epilogue.residual.base != kNullBase) fetch_round(task, args, tile, round + 1);
  }
  // The results whose activation is smooth: transformers and squeeze-and-excite networks have little else. In wide bodies alone: with
  // this loop in all of them, resnet50 took 284 us instead of 270.
  RK_INLINE void finish_smooth(const StagedConvArgs& args, const StagedTile& tile, const char* sums, int round) const {
    const PixelStrides strides = args.out_strides;
    const int end = min((round + 1) * Product::kRoundPixels, args.pixels);
    const int pixels = left > 0 ? end : 0, row = strides.h - args.tile_w * strides.w;
#pragma unroll 1
    for (int p = round * Product::kRoundPixels + pixel(0); p < pixels; p += kPixelThreads) {
      const int h = args.row_of(p), w = p - h * args.tile_w;
      if (h + static_cast<int>(tile.h) >= args.grid_h || w + static_cast<int>(tile.w) >= args.grid_w) continue;
      const float4 v = sum_of(sums, p);
      store4(out + (p * strides.w + h * row), smooth4(args.epilogue.activation, v));
    }
  }
  RK_INLINE void finish_any(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const char* sums, int round) const {
    const bool adds = args.epilogue.residual.base != kNullBase;
    const Value* const from = adds ? residual_of(task, args, tile) : nullptr;
    const PixelStrides strides = args.out_strides, residual_strides = narrow(args.epilogue.residual_strides);
    const int end = min((round + 1) * Product::kRoundPixels, args.pixels);
#pragma unroll 1
    for (int p = round * Product::kRoundPixels + pixel(0); p < end && left > 0; p += kPixelThreads) {
      const int h = args.row_of(p), w = p - h * args.tile_w;
      if (h + static_cast<int>(tile.h) >= args.grid_h || w + static_cast<int>(tile.w) >= args.grid_w) continue;
      float4 r = {0.0f, 0.0f, 0.0f, 0.0f};
      if (adds)
        r = load_channels4(from + (h * residual_strides.h + w * residual_strides.w), residual_strides.channel, args.vector_residual != 0,
                           left);
      store_channels4(out + (h * strides.h + w * strides.w), strides.channel, args.vector_out != 0, left,
                      finish4(args.epilogue, sum_of(sums, p), r));
    }
  }
};

// Results of 16 bits of a tile that has more sums than fit shared memory as floats: 128 channels by 128 pixels. The sums, with the bias,
// are rounded to the type of the results before a residual is added and before an activation other than a clamp, as they would be if
// these were rOperators of their own; a clamp gives the same before and after rounding. So all of them fit, and a thread has 8 channels of
// every kPixelThreads-th pixel, 16 bytes in shared memory and in global memory.
template <class Veu, class Product>
struct StagedRoundedResults {
  static constexpr int kChannelThreads = Product::kChannels / 8;
  static constexpr int kPixelThreads = Veu::kComputeThreads / kChannelThreads;
  static constexpr int kOutputs = Product::kPixels / kPixelThreads;
  static_assert(Product::kPixels % kPixelThreads == 0 && Product::kWarpsK == 1);
  using Value = typename Product::Of::Out;

  float bias[Product::kLaneChannels];  // of the channels of the lane's sums
  float4 residual[kOutputs];           // 8 values each
  float low, high;
  Value* out;
  int to[kOutputs];   // -1: there is no such pixel
  int channel, left;  // channel: in the tensor; left: how many channels exist from there on
  bool plain, adds;

  RK_INLINE static int pixel(int i) { return static_cast<int>(threadIdx.x / kChannelThreads) + i * kPixelThreads; }
  RK_INLINE static int column() { return static_cast<int>(threadIdx.x % kChannelThreads) * 8; }

  RK_INLINE void start(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) {
    const int first = static_cast<int>(tile.n_block) * Product::kChannels, n = first + column();  // in the group
    const int padded = static_cast<int>(tile.group * args.n_blocks.divisor) * Product::kChannels + first + Product::lane_channel();
#pragma unroll
    for (int i = 0; i < Product::kLaneChannels; ++i)
      bias[i] = args.epilogue.bias.base == kNullBase ? 0.0f : load_weight1(task.address(args.epilogue.bias) + padded + i);
    left = args.channels - n;
    channel = static_cast<int>(tile.group) * args.channels + n;
    const PixelStrides strides = args.out_strides;
    out = values_at<Value>(task, args.out) + (offset_of(tile.first(), strides) + channel * strides.channel);
    const int pixels = left > 0 ? args.pixels : 0;
    const int row = strides.h - args.tile_w * strides.w;  // from the end of a row of the tile to the next row
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      const int p = pixel(i), h = args.row_of(p), w = p - h * args.tile_w;
      const bool exists = (p < pixels) & (h + static_cast<int>(tile.h) < args.grid_h) & (w + static_cast<int>(tile.w) < args.grid_w);
      to[i] = exists ? p * strides.w + h * row : -1;
    }
    low = args.clip.low;
    high = args.clip.high;
    adds = args.epilogue.residual.base != kNullBase;
    plain = args.clip.other == 0 && args.clip.after == 0 && args.vector_out == 8 && (!adds || args.vector_residual == 8);
  }
  RK_INLINE const Value* residual_of(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) const {
    const PixelStrides strides = narrow(args.epilogue.residual_strides);
    return values_at<Value>(task, args.epilogue.residual) + (offset_of(tile.first(), strides) + channel * strides.channel);
  }
  // As StagedResults::fetch, but beside the sums there are registers for half of the residuals only; fetch<1>, when the sums are in
  // shared memory, starts to load the others.
  RK_INLINE void fetch(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) { fetch<0>(task, args, tile); }
  template <int HALF>
  RK_INLINE void fetch(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) {
    if (!adds || !plain) return;
    const Value* const from = residual_of(task, args, tile);
    const int w = static_cast<int>(args.epilogue.residual_strides[3]),
              row = static_cast<int>(args.epilogue.residual_strides[2]) - args.tile_w * w;
#pragma unroll
    for (int i = HALF * kOutputs / 2; i < (HALF + 1) * kOutputs / 2; ++i) {
      if (to[i] >= 0) residual[i] = load4(reinterpret_cast<const float*>(from + (pixel(i) * w + args.row_of(pixel(i)) * row)));
    }
  }
  RK_INLINE static float4 half_of(const float4& eight, int half) {
    return Raw4<Value>{half == 0 ? uint2{bits_of(eight.x), bits_of(eight.y)} : uint2{bits_of(eight.z), bits_of(eight.w)}}.floats();
  }
  RK_INLINE static void store8(Value* to_pixel, const float4& a, const float4& b) {
    store4(reinterpret_cast<float*>(to_pixel), {float_of(pair_of<Value>(a.x, a.y)), float_of(pair_of<Value>(a.z, a.w)),
                                                float_of(pair_of<Value>(b.x, b.y)), float_of(pair_of<Value>(b.z, b.w))});
  }
  RK_INLINE static float4 sums_of(const char* sums, int p) {
    return load_shared4(sums, p * kRoundedPitch<Product::kChannels> + column() * 2);
  }
  RK_INLINE void finish(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const char* sums) const {
    if (!plain) return finish_any(task, args, tile, sums);
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      if (to[i] < 0) continue;
      const float4 v = sums_of(sums, pixel(i));
      float4 a = half_of(v, 0), b = half_of(v, 1);
      if (adds) a = add4(a, half_of(residual[i], 0)), b = add4(b, half_of(residual[i], 1));
      store8(out + to[i], clamp4(a, low, high), clamp4(b, low, high));
    }
  }
  RK_INLINE void finish_any(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const char* sums) const {
    const bool smooth = !adds && args.vector_out == 8 && is_smooth(args.epilogue.activation);
    const Value* const from = adds ? residual_of(task, args, tile) : nullptr;
    const PixelStrides strides = args.out_strides, residual_strides = narrow(args.epilogue.residual_strides);
    const int pixels = left > 0 ? args.pixels : 0;
#pragma unroll 1
    for (int p = pixel(0); p < pixels; p += kPixelThreads) {
      const int h = args.row_of(p), w = p - h * args.tile_w;
      if (h + static_cast<int>(tile.h) >= args.grid_h || w + static_cast<int>(tile.w) >= args.grid_w) continue;
      const float4 v = sums_of(sums, p);
      Value* const to_pixel = out + (h * strides.h + w * strides.w);
      if (smooth) {
        store8(to_pixel, smooth4(args.epilogue.activation, half_of(v, 0)), smooth4(args.epilogue.activation, half_of(v, 1)));
        continue;
      }
#pragma unroll 1
      for (int four = 0; four < 2 && four * 4 < left; ++four) {
        float4 r = {0.0f, 0.0f, 0.0f, 0.0f};
        if (adds)
          r = load_channels4(from + (h * residual_strides.h + w * residual_strides.w + four * 4 * residual_strides.channel),
                             residual_strides.channel, args.vector_residual != 0, left - four * 4);
        store_channels4(to_pixel + four * 4 * strides.channel, strides.channel, args.vector_out != 0, left - four * 4,
                        finish4(args.epilogue, half_of(v, four), r));
      }
    }
  }
};

template <class Product>
constexpr bool kRoundedResults = Product::kRounds == 2 && Product::kWarpsK == 1 && sizeof(typename Product::Of::Out) == 2;

template <class Veu, class Product>
RK_INLINE void finish_staged(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const Product& product,
                             StagedRoundedResults<Veu, Product>& results) {
  product.template store_rounded<typename Product::Of::Out>(task.work, results.bias);
  results.template fetch<1>(task, args, tile);
  sync_compute<Veu>();
  results.finish(task, args, tile, task.work);
}

template <class Veu, class Product, class Results>
RK_INLINE void finish_staged(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const Product& product,
                             Results& results) {
#pragma unroll
  for (int round = 0; round < Product::kRounds; ++round) {
    if (round > 0) sync_compute<Veu>();
    product.store(task.work, round);
    sync_compute<Veu>();
    results.finish(task, args, tile, task.work, round);
  }
}

template <class Veu, class Product>
using UsualResults = std::conditional_t<kRoundedResults<Product>, StagedRoundedResults<Veu, Product>, StagedResults<Veu, Product>>;

template <class Veu, class Product, class Results = UsualResults<Veu, Product>>
RK_INLINE void staged_rtask(const Task<Veu>& task) {
  const auto& args = task.template arguments<StagedConvArgs>();
  const StagedTile tile = staged_tile(args, task.index);
  WeightStages<Veu> weights = task.weight_stages();
  InputStages<Veu> inputs = task.input_stages();
  Results results;
  results.start(task, args, tile);
  Product product;
  product.start(args);
  int left = tile.split + 1 == args.splits.divisor ? args.last_steps : args.steps;
  int input_left = args.input_steps, weight_left = args.chunk_steps, chunks_left = args.chunks - 1;
  const int all_rows = Product::team() * args.input_steps * 2;
  int step_row = all_rows;  // byte of the table
  int rows[Product::kBatch];
  if constexpr (!Product::kWide) Product::load_rows(rows, args.step_row, step_row);

  weights.acquire();
  inputs.acquire();
  results.fetch(task, args, tile);
#pragma unroll 1
  while (true) {
    int n = min(left, min(input_left, weight_left));
    left -= n;
    input_left -= n;
    weight_left -= n;
#pragma unroll 1
    for (; n >= Product::kBatch; n -= Product::kBatch) {
      if constexpr (Product::kWide)
        product.template steps<Product::kBatch>(inputs.stages, inputs.base, weights.stages, weights.base, args.step_row, step_row);
      step_row += Product::kBatch * 2;
      if constexpr (!Product::kWide)
        product.template steps<Product::kBatch>(inputs.stages, inputs.base, weights.stages, weights.base, rows, args.step_row, step_row);
      weights.base += Product::kBatch * Product::kStepBytes;
    }
    if constexpr (Product::kBatch > 1) {  // few steps: chunks end with a whole batch where they can
#pragma unroll 1
      for (; n > 0; --n) {
        if constexpr (Product::kWide)
          product.template steps<1>(inputs.stages, inputs.base, weights.stages, weights.base, args.step_row, step_row);
        step_row += 2;
        if constexpr (!Product::kWide)
          product.template steps<1>(inputs.stages, inputs.base, weights.stages, weights.base, rows, args.step_row, step_row);
        weights.base += Product::kStepBytes;
      }
    }
    if (left == 0) break;
    if (input_left == 0) {
      input_left = args.input_steps;
      step_row = all_rows;
      if constexpr (!Product::kWide) Product::load_rows(rows, args.step_row, step_row);
      inputs.release();
      inputs.acquire();
    }
    if (weight_left == 0) {
      weights.release();
      weights.acquire();
      weight_left = args.chunk_steps;
      --chunks_left;
    }
  }
  inputs.release();
  weights.release();
  finish_staged(task, args, tile, product, results);
  for (; chunks_left > 0; --chunks_left) {
    weights.acquire();
    weights.release();
  }
}

template <class Veu, class Math, int MT, int NT, int WARPS_M, int WARPS_N>
RK_BODY void staged_call(const Task<Veu>& task) {
  staged_rtask<Veu, StagedProduct<Veu, Math, MT, NT, WARPS_M, WARPS_N>>(task);
}

// A wide product must be in line.
template <class Veu, class Math, int MT, int NT, int WARPS_M, int WARPS_N>
struct StagedWay {
  RK_INLINE static void run(const Task<Veu>& task) { staged_call<Veu, Math, MT, NT, WARPS_M, WARPS_N>(task); }
};
template <class Veu, int MT, int NT, int WARPS_M, int WARPS_N>
struct StagedWay<Veu, Wide<Tf32>, MT, NT, WARPS_M, WARPS_N> {
  RK_INLINE static void run(const Task<Veu>& task) {
    static_assert(MT == 2 && NT == 4 && WARPS_M == 2 && WARPS_N >= 2);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    staged_rtask<Veu, StagedWideProduct<Veu, WARPS_N / 2>>(task);
#else
    staged_call<Veu, Tf32, MT, NT, WARPS_M, WARPS_N>(task);
#endif
  }
};
template <class Veu, class In, class Out, int MT, int NT, int WARPS_M, int WARPS_N>
struct StagedWay<Veu, Wide<Narrow<In, Out>>, MT, NT, WARPS_M, WARPS_N> {
  RK_INLINE static void run(const Task<Veu>& task) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    staged_rtask<Veu, StagedDeepProduct<Veu, Narrow<In, Out>, 16 * MT * WARPS_M, 8 * NT * WARPS_N>>(task);
#else
    staged_call<Veu, Rows<Narrow<In, Out>>, MT, NT, WARPS_M, WARPS_N>(task);
#endif
  }
};
template <class Veu, class Math, int MT, int NT, int WARPS_M, int WARPS_N>
RK_INLINE void staged_conv(const Task<Veu>& task) {
  StagedWay<Veu, Math, MT, NT, WARPS_M, WARPS_N>::run(task);
}

}  // namespace rk
