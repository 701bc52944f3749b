// The products of staged_conv.cuh, whose head says how warps share them: by mma, by wgmma with weights in registers (StagedWideProduct),
// and by wgmma with both operands in shared memory (StagedDeepProduct). Each leaves its sums in shared memory for staged_results.cuh.
#pragma once

#include "kernels/product/staged_args.cuh"
#include "kernels/tile/staged_math.cuh"
#include "kernels/vdevice/memory.cuh"

namespace rk {

RK_INLINE float float_sum(float sum) { return sum; }
RK_INLINE float float_sum(int32_t sum) { return static_cast<float>(sum); }

// A sum with its bias, before it is rounded to 16 bits. Whole numbers are rounded as such before: fp16 holds those up to 2048.
template <class Of>
RK_INLINE float staged_biased(float sum, float scale, float bias) {
  if constexpr (!Of::kScales) return sum + bias;
  const float v = fmaf(sum, scale, bias);
  return Of::kRounds ? clip(whole(v), -2048.0f, 2048.0f) : v;
}

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
  static constexpr int kPairs = (NT + 1) / 2;                               // of n-tiles; the last may be half
  static constexpr int kUnitBytes = MT * WARPS_M * kWarp * Of::kWords * 4;  // of weights
  static constexpr int kLaneBytes = Of::kWords == 2 ? MT * 8 : 16;          // read at once: both tiles of 16 channels, or one
  static constexpr int kStepBytes = kTeams * Of::kUnits * kUnitBytes;
  static constexpr int kPitch = kChannels + kSumPad;                                // of a pixel's sums
  static constexpr int kSumBytes = kPixels * kPitch * 4;                            // of one warp on k, in all rounds
  static constexpr int kBatch = staged_batch(kWarpUnits * (MT + kPairs * kLoads));  // steps whose operands are loaded together
  static constexpr bool kWide = false, kLags = false, kBegins = false;
  static constexpr bool kSwaps = false;  // see wide_sums
  static constexpr int kSteps = 0;
  static constexpr int kRounds = staged_rounds(kChannels, kPixels);  // rounds in which sums are stored and results made
  static constexpr int kRoundPixels = kPixels / kRounds;
  static_assert(MT <= 2 && kRoundPixels % 8 == 0);

  typename Of::Sum sum[MT][NT][4];
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
      for (int j = 0; j < NT; ++j) sum[i][j][0] = sum[i][j][1] = sum[i][j][2] = sum[i][j][3] = 0;
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
  RK_INLINE static int lane_channel() { return warp_m() * 16 * MT + dealt_channel(MT, 0, lane_id() / 4); }
  // As store, for StagedRoundedResults: sums plus bias, rounded to the type of the results, in kRoundedRounds; `bias`: of the lane's
  // channels.
  static constexpr int kRoundedRounds = rounded_rounds(kChannels, kPixels), kRoundedPixels = kPixels / kRoundedRounds;
  template <class Value>
  RK_INLINE void store_rounded(char* sums, const float (&scale)[kLaneChannels], const float (&bias)[kLaneChannels], int round) const {
    const int pixel = warp_n() * 8 * NT - round * kRoundedPixels;
    const int first = (pixel + lane_id() % 4 * 2) * kRoundedPitch<kChannels> + lane_channel() * 2;
#pragma unroll
    for (int j = 0; j < NT; ++j) {
      if (kRoundedRounds > 1 && (pixel + j * 8 < 0 || pixel + j * 8 >= kRoundedPixels)) continue;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int i = 0; i < MT; ++i)
          store_shared_word(sums, first + (j * 8 + e) * kRoundedPitch<kChannels> + i * 4,
                            pair_of<Value>(staged_biased<Of>(float_sum(sum[i][j][e]), scale[2 * i], bias[2 * i]),
                                           staged_biased<Of>(float_sum(sum[i][j][e + 2]), scale[2 * i + 1], bias[2 * i + 1])));
      }
    }
  }
  // Calls put(pixel, i, a, b) for each pair of sums of neighbouring channels, the lane's channels 2 i and 2 i + 1, of a round's pixels.
  template <int ROUNDS, class Put>
  RK_INLINE void for_pairs(int round, const Put& put) const {
    constexpr int kOfRound = kPixels / ROUNDS;
    const int first = warp_n() * 8 * NT - round * kOfRound;
#pragma unroll
    for (int j = 0; j < NT; ++j) {
      if (ROUNDS > 1 && (first + j * 8 < 0 || first + j * 8 >= kOfRound)) continue;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int i = 0; i < MT; ++i) put(first + j * 8 + lane_id() % 4 * 2 + e, i, sum[i][j][e], sum[i][j][e + 2]);
      }
    }
  }
  // Leaves the sums of each warp on k in shared memory: [warp on k][pixel][kPitch]. Rows g and g + 8 of the MT tiles of a warp are
  // neighbouring channels.
  RK_INLINE void store(char* sums, int round) const {
    const int pixel = warp_n() * 8 * NT - round * kRoundPixels;
    const int first = ((warp_k() * kPixels + pixel + lane_id() % 4 * 2) * kPitch + lane_channel()) * 4;
#pragma unroll
    for (int j = 0; j < NT; ++j) {
      if (kRounds > 1 && (pixel + j * 8 < 0 || pixel + j * 8 >= kRoundPixels)) continue;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int at = first + (j * 8 + e) * kPitch * 4;
        if constexpr (MT == 2)
          store_shared4(sums, at,
                        float4{float_sum(sum[0][j][e]), float_sum(sum[0][j][e + 2]), float_sum(sum[1][j][e]), float_sum(sum[1][j][e + 2])});
        else
          store_shared2(sums, at, float2{float_sum(sum[0][j][e]), float_sum(sum[0][j][e + 2])});
      }
    }
  }
};

// StagedProduct by wgmma, weights from registers. With 128 channels each warpgroup has 64 of them; with 64 the two share the pixels (if
// there are 128), or k. Warp w of a warpgroup has tile w % 2 of the 32 channels that begin at 32 * (w / 2). The body must be in line: ptxas
// makes each wgmma of a function that is called wait for the one before (its remark C7510).
// Example, 64 x 64: lane 13 of warp 5, which is warp 1 of warpgroup 1, adds up units 1 and 3 of each box for channels 14 and 15 (tile 1
// of 2, 13 / 4 = 3) and pixels 2, 3, 10, 11, .. 58, 59. With 128 channels it has all units of channels 64 + 14 and 64 + 15.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Where a lane of warp `warp` of a warpgroup stores the sums of its two channels, among those of a pixel. In pixels 4 to 7 of each eight
// every two channels change places with the next two: then, with kWideSumPad, the 8-byte stores of half a warp hit each bank once.
// Example: lanes 0 to 3 store pixels 0, 2, 4 and 6, which begin at banks 0, 16, 0 and 16 (2 * 72 floats from one to the next); with the
// change they begin at 0, 16, 2 and 18. Lanes 4 to 15 follow at every fourth bank.
RK_INLINE int wide_sums(int warp) { return warp / 2 * 32 + lane_id() / 4 * 4 + (warp % 2 ^ lane_id() % 4 / 2) * 2; }

template <class Veu, int CHANNELS, int PIXELS>
struct StagedWideProduct {
  using Of = StagedMath<Tf32>;
  static constexpr bool kWide = true, kBegins = false;
  static constexpr bool kSwaps = true;
  static constexpr int kSteps = 0;
  static constexpr bool kLags = CHANNELS == 128 && Veu::kInputStages > 3;  // see LaggedLoop
  static constexpr int kSets = 2;                                          // of operands in registers, where kLags
  static constexpr int kGroupsM = CHANNELS / 64, kGroupsN = kGroupsM == 1 && PIXELS == 128 ? 2 : 1, kWarpsK = 2 / (kGroupsM * kGroupsN);
  static constexpr int kUnits = Of::kUnits / kWarpsK;  // of a warpgroup and a step
  static constexpr int kChannels = CHANNELS, kPixels = PIXELS, kEights = PIXELS / kGroupsN / 8;
  static constexpr int kUnitBytes = kChannels / 16 * kWarp * Of::kWords * 4, kStepBytes = Of::kUnits * kUnitBytes;
  static constexpr int kPitch = kChannels + kWideSumPad, kSumBytes = kPixels * kPitch * 4;
  static constexpr int kRounds = staged_rounds(kChannels, kPixels), kRoundPixels = kPixels / kRounds;
  static constexpr int kBatch = kGroupsN == 1 && kGroupsM == 1 ? 3 : 2;  // steps whose operands are loaded together
  static_assert(Veu::kComputeThreads == 2 * 4 * kWarp && (kRounds == 1 || kGroupsN == 1));

  float sum[kEights][4];
  uint32_t set[kSets][kUnits][4];
  int lane_in_step, first, eight_bytes;  // bytes: of the weights; of a box; from 8 pixels to the next

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
    lane_in_step =
        group_k() * kUnitBytes + (group_m() * 2 + warp_m() / 2) * (kUnitBytes / (2 * kGroupsM)) + lane_id() * 16 + warp_m() % 2 * 8;
    first = group_k() * 32 + group_n() * kEights * eight_bytes;
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
      b[s] = wide_operand(inputs, box + first + load_shared_int16(table, step_row + s * 2) * (kBoxRowBytes / 16), eight_bytes);
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

  // Begins the products of one step, with the operands' registers of number SET.
  template <int SET>
  RK_INLINE void begin(const char* inputs, int box, const char* stages, int weights) {
    float2 words[kUnits];
#pragma unroll
    for (int u = 0; u < kUnits; ++u) words[u] = load_shared2(stages, weights + lane_in_step + u * kWarpsK * kUnitBytes);
    const uint64_t b = wide_operand(inputs, box + first, eight_bytes);
#pragma unroll
    for (int u = 0; u < kUnits; ++u) Of::weights(set[SET][u], {bits_of(words[u].x), bits_of(words[u].y)});
    begin_wide();
#pragma unroll
    for (int u = 0; u < kUnits; ++u) wide_tf32(sum, set[SET][u], b + static_cast<uint64_t>(u * kWarpsK * 2));
    commit_wide();
  }
  template <int LEFT>
  RK_INLINE static void wait() {
    wait_wide<LEFT>();
  }
  // As StagedProduct::store.
  RK_INLINE void store(char* sums, int round) const {
    constexpr int kRoundEights = kEights / kRounds;
    const int pixel = group_k() * kPixels + group_n() * kEights * 8 + lane_id() % 4 * 2;
    const int to = (pixel * kPitch + group_m() * 64 + wide_sums(warp_m())) * 4;
#pragma unroll
    for (int j = 0; j < kEights; ++j) {
      if (kRounds > 1 && j / kRoundEights != round) continue;
#pragma unroll
      for (int e = 0; e < 2; ++e) store_shared2(sums, to + (j % kRoundEights * 8 + e) * kPitch * 4, float2{sum[j][e], sum[j][e + 2]});
    }
  }
};

// Rows<Math> by wgmma: both operands come from the stages as they lie, and a step only has to be begun. With 128 channels each warpgroup
// has 64 of them; with 64 the two warpgroups share the pixels or k (groups_share_pixels).
// Example, 128 x 128: lane 13 of warp 5 has channels 64 + 14 = 78 and 79, since it is of warpgroup 1, whose weights begin at byte 64 * 128
// = 8192 of a step; pixels are as above, up to 122 and 123.
template <class Veu, class Math, int CHANNELS, int PIXELS, int STAGE_STEPS>
struct StagedDeepProduct {
  using Of = StagedMath<Rows<Math>>;
  static constexpr bool kSwaps = true;
  static constexpr bool kWide = true, kLags = STAGE_STEPS == 0 && CHANNELS * PIXELS > 128 * 128 && Veu::kInputStages > 3;
  static constexpr int kSteps = STAGE_STEPS;  // of an input stage, for StageLoop; 0: any
  static constexpr bool kBegins = true;       // `steps` begins its products; they are awaited before a stage is released
  static constexpr int kSets = 1;
  static constexpr bool kSharesPixels = groups_share_pixels(CHANNELS, PIXELS);
  static constexpr int kGroupsM = CHANNELS / 64, kGroupsN = kSharesPixels ? 2 : 1, kWarpsK = 2 / (kGroupsM * kGroupsN);
  static constexpr int kUnits = Of::kUnits / kWarpsK;  // of a warpgroup and a step
  static constexpr int kChannels = CHANNELS, kPixels = PIXELS, kEights = PIXELS / kGroupsN / 8;
  static constexpr int kStepBytes = CHANNELS * kBoxRowBytes;
  static constexpr int kBatch = CHANNELS * PIXELS <= 64 * 128 ? 3 : 1;  // steps whose operands are computed together
  static constexpr int kRounds = staged_rounds(kChannels, kPixels), kRoundPixels = kPixels / kRounds;
  static constexpr int kPitch = kChannels + kWideSumPad, kSumBytes = kPixels * kPitch * 4;
  static_assert(Veu::kComputeThreads == 2 * 4 * kWarp);

  typename Of::Sum sum[kEights][4];
  int first_weight, first_input, eight_bytes;

  RK_INLINE static int group() { return static_cast<int>(threadIdx.x / (4 * kWarp)); }
  RK_INLINE static int warp_m() { return static_cast<int>(threadIdx.x / kWarp % 4); }
  RK_INLINE static int group_k() { return kWarpsK == 2 ? group() : 0; }
  RK_INLINE static int group_m() { return kGroupsM == 2 ? group() : 0; }
  RK_INLINE static int group_n() { return kGroupsN == 2 ? group() : 0; }
  RK_INLINE static int team() { return 0; }

  RK_INLINE void start(const StagedConvArgs& args) {
#pragma unroll
    for (int j = 0; j < kEights; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) known_now(sum[j][e] = 0);
    }
    eight_bytes = args.eight_rows * kBoxRowBytes;
    first_weight = group_m() * 64 * kBoxRowBytes + group_k() * kUnits * 32;
    first_input = group_n() * kEights * eight_bytes + group_k() * kUnits * 32;
  }
  // As StagedWideProduct::steps, but the products are only begun.
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
    commit_wide();
  }
  // The products of one step, whose operands lie at the places `a` and `b` (wide_place).
  RK_INLINE void begin_step(uint32_t a, uint32_t b, uint32_t pattern) {
#pragma unroll
    for (uint32_t u = 0; u < kUnits; ++u) Of::multiply_deep(sum, wide_operand(a + u * 2, wide_pattern()), wide_operand(b + u * 2, pattern));
  }
  // As StagedWideProduct::begin.
  template <int SET>
  RK_INLINE void begin(const char* inputs, int box, const char* stages, int weights) {
    const uint64_t a = wide_operand(stages, weights + first_weight), b = wide_operand(inputs, box + first_input, eight_bytes);
    begin_wide();
#pragma unroll
    for (int u = 0; u < kUnits; ++u) Of::multiply_deep(sum, a + static_cast<uint64_t>(u * 2), b + static_cast<uint64_t>(u * 2));
    commit_wide();
  }
  template <int LEFT>
  RK_INLINE static void wait() {
    wait_wide<LEFT>();
  }
  // As StagedProduct::store_rounded.
  static constexpr int kLaneChannels = 2;
  RK_INLINE static int lane_channel() { return group_m() * 64 + warp_m() / 2 * 32 + (lane_id() / 4 * 2 + warp_m() % 2) * 2; }
  static constexpr int kRoundedRounds = rounded_rounds(kChannels, kPixels), kRoundedPixels = kPixels / kRoundedRounds;
  static_assert(kRoundedRounds == 1 || kGroupsN == 1);
  template <class Value>
  RK_INLINE void store_rounded(char* sums, const float (&scale)[2], const float (&bias)[2], int round) const {
    constexpr int kRoundEights = kEights / kRoundedRounds;
    const int first = (group_n() * kEights * 8 + lane_id() % 4 * 2) * kRoundedPitch<kChannels> + lane_channel() * 2;
#pragma unroll
    for (int j = 0; j < kEights; ++j) {
      if (kRoundedRounds > 1 && j / kRoundEights != round) continue;
#pragma unroll
      for (int e = 0; e < 2; ++e)
        store_shared_word(sums, first + (j % kRoundEights * 8 + e) * kRoundedPitch<kChannels>,
                          pair_of<Value>(staged_biased<Of>(float_sum(sum[j][e]), scale[0], bias[0]),
                                         staged_biased<Of>(float_sum(sum[j][e + 2]), scale[1], bias[1])));
    }
  }
  // As StagedProduct::for_pairs.
  template <int ROUNDS, class Put>
  RK_INLINE void for_pairs(int round, const Put& put) const {
    static_assert(ROUNDS == 1 || kGroupsN == 1);
    constexpr int kOfRound = kEights / ROUNDS;
#pragma unroll
    for (int j = 0; j < kEights; ++j) {
      if (ROUNDS > 1 && j / kOfRound != round) continue;
#pragma unroll
      for (int e = 0; e < 2; ++e) put(group_n() * kEights * 8 + j % kOfRound * 8 + lane_id() % 4 * 2 + e, 0, sum[j][e], sum[j][e + 2]);
    }
  }
  // As StagedProduct::store.
  RK_INLINE void store(char* sums, int round) const {
    constexpr int kGroupPixels = kEights * 8;
    const int first = group_n() * kGroupPixels - round * kRoundPixels;  // of the round's pixels: the warpgroup's first
    const int pixel = group_k() * kPixels + first + lane_id() % 4 * 2;
    const int to = (pixel * kPitch + group_m() * 64 + wide_sums(warp_m())) * 4;
#pragma unroll
    for (int j = 0; j < kEights; ++j) {
      if (kRounds > 1 && (first + j * 8 < 0 || first + j * 8 >= kRoundPixels)) continue;
#pragma unroll
      for (int e = 0; e < 2; ++e)
        store_shared2(sums, to + (j * 8 + e) * kPitch * 4, float2{float_sum(sum[j][e]), float_sum(sum[j][e + 2])});
    }
  }
};
#endif

}  // namespace rk
