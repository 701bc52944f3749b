// A depthwise convolution and the pointwise one behind it, on tensor cores:
//   mid[p][c] = act(bias[c] + sum over taps of in'(p * STRIDE + tap, c) * filter[tap][c]),  in' = in, or relu(in) where args.relu is set
//   out[p][n] = act(bias[n] + residual[p][n] + sum over c of mid[p][c] * weight[c][n])
//
// A rTask is a tile of 8 x (NT * WARPS_N) output pixels times 16 * MT output channels. The input of the tile with its halo comes in boxes
// of 32 channels (kernels/vdevice/boxes.cuh). Each warp owns 8 channels of the box at a time, for all of the tile's pixels and output
// channels (WARPS_N = 2: half of the pixels). The warp computes mid for its channels right into the registers that mma wants as operand
// B, so mid never lies in memory, and the warps meet only at the end, to add their sums.
//
// Output channels are the rows of the product (operand A is the weights), pixels its columns. Lane l holds column l / 4 and k = l % 4 and
// l % 4 + 4; k is permuted so that these two are channels 2 (l % 4) and 2 (l % 4) + 1, one 8-byte read per tap. The pixels of a lane lie
// below each other, so that a value that the lane has read serves all of its pixels (up to TAPS) that see the value. Columns are permuted
// so that the 16 lanes that read at once meet 32 different banks (see column_of).
//
// Example: 3 x 3 taps, STRIDE 1, NT 4, WARPS_N 1; a box is 10 pixels wide. Lane 13 of warp 3 has column 3 of the product, which stands
// for column 6 of the tile (column_of), and of warp 3's channels 24 to 31 it has 26 and 27: the second half of cell 6. For tap column 1
// of box row 2 it reads pixel 2 * 10 + 6 + 1 = 27 of the box, where cell 6 lies at place 6 ^ 27 % 8 = 5: byte 27 * 128 + 5 * 16 + 8 =
// 3544 of a box that begins at byte 0.
//
// Weights of a step, per 8 channels: MT times {A[g][2t], A[g + 8][2t], A[g][2t + 1], A[g + 8][2t + 1]} of lane 4 g + t, where row g + 8 e
// of the i-th 16 is output channel 2 MT g + 2 i + e; then the filter, column by column, two values {value[v][2t], value[v][2t + 1],
// value[v + 1][2t], ...} for each t. A column has TAPS + 1 values: its taps and, in the first column, the bias.
#pragma once

#include "kernels/depthwise/numbers.cuh"
#include "kernels/tile/lean_epilogue.cuh"
#include "kernels/tile/numbers.cuh"
#include "kernels/vdevice/memory.cuh"
#include "kernels/vdevice/mma.cuh"
#include "kernels/vdevice/pairs.cuh"

namespace rk {

struct SeparableConvArgs {  // in tables
  TensorRef out;
  EpilogueArgs epilogue;  // bias: padded to whole blocks; residual strides: image, channel, h, w
  ClipArgs clip;          // the epilogue's activation
  PixelStrides out_strides;
  int32_t channels;                     // of the output
  int32_t boxes, box_bytes;             // of the input
  int32_t input_steps, chunk_steps;     // of a stage of inputs, of weights
  int32_t relu;                         // of the input
  float low, high;                      // what mid is clipped to
  int32_t grid_h, grid_w;               // of an image of the output
  int32_t vector_out, vector_residual;  // 4 channels are one aligned access, those that do not exist included
  Divisor tiles, tiles_w, tiles_h;
};

// What one warp computes of a tile. ROUNDS: mid are whole numbers, as those of quantised models are, and the sums of each output channel
// have a scale.
template <class Veu, int TAPS, int STRIDE, int MT, int NT, int WARPS_N, bool ROUNDS = false>
struct SeparableTile {
  static constexpr bool kRounds = ROUNDS;
  static constexpr int kWarpsK = Veu::kComputeThreads / kWarp / WARPS_N;
  static constexpr int kTeams = kWarpsK / 4;  // a box has four times 8 channels
  static constexpr int kChannels = 16 * MT, kTileH = NT * WARPS_N, kPixels = kSeparableTileW * kTileH;
  static constexpr int kBoxW = (kSeparableTileW - 1) * STRIDE + TAPS;
  static constexpr int kRows = (NT - 1) * STRIDE + TAPS;             // rows of the box that the warp sees
  static constexpr int kPairs = (TAPS + 1) / 2;                      // of values of a column of the filter
  static constexpr int kOctetBytes = MT * 512 + TAPS * kPairs * 64;  // weights of 8 channels
  static constexpr int kStepBytes = kWarpsK * kOctetBytes;
  static constexpr int kPitch = kChannels + kSumPad;  // of a pixel's sums
  static constexpr int kPartBytes = kPixels * kPitch * 4, kSumBytes = kWarpsK * kPartBytes;
  // How many columns of the filter are loaded together. More than one makes longer code, and code that runs a few times costs by its
  // length.
  static constexpr int kTogether = TAPS <= 3 && NT <= 2 ? TAPS : 1;
  static_assert(TAPS % 2 == 1 && (STRIDE == 1 || STRIDE == 2) && kTeams * 4 == kWarpsK);

  float sum[MT][NT][4];
  int row, cell;  // row: of the box, for tap 0 of output row 0; cell: of that row, shifted to its place in an address
  int sums[2];    // byte of the work space for a lane's pixels

  RK_INLINE static int warp_k() { return static_cast<int>(threadIdx.x / (kWarp * WARPS_N)); }
  RK_INLINE static int warp_n() { return static_cast<int>(threadIdx.x / kWarp % WARPS_N); }
  RK_INLINE static int team() { return static_cast<int>(threadIdx.x / (kWarp * WARPS_N * 4)); }

  // The column of the tile that column n of the product stands for. Rows of 128 bytes have their 16-byte cells permuted by row % 8, and
  // a warp reads two cells of each of four rows at once: the four rows must differ in row / 2 % 4.
  RK_INLINE static int column_of(int n) { return STRIDE == 1 ? n % 4 * 2 + n / 4 : n; }

  RK_INLINE void start() {
#pragma unroll
    for (int i = 0; i < MT; ++i) {
#pragma unroll
      for (int j = 0; j < NT; ++j) sum[i][j][0] = sum[i][j][1] = sum[i][j][2] = sum[i][j][3] = 0.0f;
    }
    row = warp_n() * NT * STRIDE * kBoxW + column_of(lane_id() / 4) * STRIDE;
    cell = (warp_k() % 4 * 2 + lane_id() % 4 / 2) * 16;
    // Rows g and g + 8 of the MT tiles are neighbouring channels.
    const int pixel = (warp_k() * kTileH + warp_n() * NT) * kSeparableTileW, channel = dealt_channel(MT, 0, lane_id() / 4);
#pragma unroll
    for (int e = 0; e < 2; ++e) sums[e] = computed_now(((pixel + column_of(lane_id() % 4 * 2 + e)) * kPitch + channel) * 4);
  }

  // The operands of one column of the filter: its weights, and all rows of the box at that column.
  struct Column {
    float4 weight[kPairs];  // of the last pair only the first half is used
    float2 x[kRows];

    RK_INLINE float2 value(int v) const {
      return v % 2 == 0 ? float2{weight[v / 2].x, weight[v / 2].y} : float2{weight[v / 2].z, weight[v / 2].w};
    }
    RK_INLINE void load_weights(const char* weights) {
#pragma unroll
      for (int v = 0; v + 1 < kPairs; ++v) weight[v] = *reinterpret_cast<const float4*>(weights + v * 64);
      const float2 last = *reinterpret_cast<const float2*>(weights + (kPairs - 1) * 64);
      weight[kPairs - 1] = float4{last.x, last.y, 0.0f, 0.0f};
    }
  };
  // `box`: the byte at which the box begins, for column 0; that may be any row of the stage. Rows that are a multiple of 8 apart have
  // the same permutation of cells.
  RK_INLINE void load_inputs(const char* stages, int box, int kx, Column& column) const {
    const char* const first = stages + (box + (row + kx) * 128 + lane_id() % 2 * 8);
    const int rows = (row + kx) * 16 + (box >> 3);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int cells = ((rows + i * kBoxW % 8 * 16) & 0x70) ^ cell;
      column.x[i] = *reinterpret_cast<const float2*>(first + cells + i * kBoxW * 128);
    }
  }
  RK_INLINE static void relu_inputs(Column& column) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) column.x[i] = float2{max_nan(column.x[i].x, 0.0f), max_nan(column.x[i].y, 0.0f)};
  }
  RK_INLINE static void add(const Column& column, float2 (&mid)[NT]) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int ky = i % STRIDE; ky < TAPS; ky += STRIDE) {
        const int j = (i - ky) / STRIDE;
        if (i < ky || j >= NT) continue;
        mid[j].x = fmaf(column.x[i].x, column.value(ky).x, mid[j].x);
        mid[j].y = fmaf(column.x[i].y, column.value(ky).y, mid[j].y);
      }
    }
  }
  RK_INLINE void multiply(const float4 (&rows)[MT], const float2 (&mid)[NT], float low, float high) {
#pragma unroll
    for (int j = 0; j < NT; ++j) {
      const float2 v = ROUNDS ? float2{whole(mid[j].x), whole(mid[j].y)} : mid[j];
      const uint32_t b[2] = {to_tf32(min_nan(max_nan(v.x, low), high)), to_tf32(min_nan(max_nan(v.y, low), high))};
#pragma unroll
      for (int i = 0; i < MT; ++i) {
        const uint32_t a[4] = {bits_of(rows[i].x), bits_of(rows[i].y), bits_of(rows[i].z), bits_of(rows[i].w)};
        mma_tf32(sum[i][j], a, b);
      }
    }
  }

  // Runs over all boxes of the team. `fetch` starts copies that depend on the rTask's inputs. Arguments are read into registers before
  // the loop: a read of shared memory there would wait behind the loads of eight warps.
  template <class Walk, class Fetch>
  RK_INLINE void run(const SeparableConvArgs& args, Walk& walk, const Fetch& fetch) {
    const int relu = args.relu;
    const float low = args.low, high = args.high;
    const char* const all_weights = as_shared(walk.weights.stages) + lane_id() % 4 * 16;
    const char* const all_boxes = as_shared(walk.inputs.stages);
    bool more = true, first = true;
#pragma unroll 1
    while (more) {
      walk.enter_weights();
      const char* weights = all_weights + (walk.weight + MT * 512);
      float4 rows[MT];
#pragma unroll
      for (int i = 0; i < MT; ++i) rows[i] = load_shared4(walk.weights.stages, walk.weight + (i * kWarp + lane_id()) * 16);
      float2 mid[NT];  // begins with the bias, which lies behind the first column
#pragma unroll
      for (int j = 0; j < NT; ++j) mid[j] = *reinterpret_cast<const float2*>(weights + (kPairs - 1) * 64 + 8);
      const bool idle = walk.is_idle();
      if constexpr (kTogether > 1) {
        Column columns[TAPS];
#pragma unroll
        for (int kx = 0; kx < TAPS; ++kx) columns[kx].load_weights(weights + kx * kPairs * 64);
        walk.enter_inputs();
        const int box = walk.own_box();
#pragma unroll
        for (int kx = 0; kx < TAPS; ++kx) load_inputs(all_boxes, box, kx, columns[kx]);
        if (first) fetch();
        more = walk.leave();
        // Runs 0 or 1 times. Of a branch the compiler would make predicated instructions, which are issued either way.
#pragma unroll 1
        for (int times = relu; times > 0; --times) {
#pragma unroll
          for (int kx = 0; kx < TAPS; ++kx) relu_inputs(columns[kx]);
        }
#pragma unroll
        for (int kx = 0; kx < TAPS; ++kx) add(columns[kx], mid);
      } else {
        walk.enter_inputs();
        const int box = walk.own_box();
        if (first) fetch();
#pragma unroll 1
        for (int kx = 0; kx < TAPS; ++kx, weights += kPairs * 64) {
          Column column;
          column.load_weights(weights);
          load_inputs(all_boxes, box, kx, column);
          if (relu != 0) relu_inputs(column);
          add(column, mid);
        }
        more = walk.leave();
      }
      if (!idle) multiply(rows, mid, low, high);
      first = false;
    }
  }

  // Leaves the sums of all warps in shared memory, [kWarpsK][pixel][kPitch].
  RK_INLINE void store(char* work) const {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        const int at = sums[e] + j * kSeparableTileW * kPitch * 4;
        if constexpr (MT == 2)
          store_shared4(work, at, float4{sum[0][j][e], sum[0][j][e + 2], sum[1][j][e], sum[1][j][e + 2]});
        else
          store_shared2(work, at, float2{sum[0][j][e], sum[0][j][e + 2]});
      }
    }
  }
};

// Where a warp is in the two rings: at its box (bytes from the first stage) and at the weights that belong to the box. A step is kTeams
// boxes, one for each team. Where the last step has a box for the first team only, the other team reads the same box and adds nothing;
// weights of zero would not do, since they make NaN of an infinity that the clip behind the depthwise convolution takes away.
template <class Veu, class Tile>
struct SeparableWalk {
  WeightStages<Veu> weights;
  InputStages<Veu> inputs;
  int32_t box = 0, weight = 0;
  int32_t boxes_left;                       // those of this step included
  int32_t input_left = 0, weight_left = 0;  // steps left of the stages, this one included; 0: wait for the next stage
  int32_t input_steps, chunk_steps, team, team_bytes, step_bytes;

  RK_INLINE SeparableWalk(const Task<Veu>& task, const SeparableConvArgs& args)
      : weights(task.weight_stages()),
        inputs(task.input_stages()),
        boxes_left(args.boxes),
        input_steps(args.input_steps),
        chunk_steps(args.chunk_steps),
        team(computed_now(Tile::team())),
        team_bytes(team * args.box_bytes),
        step_bytes(Tile::kTeams * args.box_bytes) {}
  RK_INLINE void enter_weights() {
    if (weight_left != 0) return;
    wait_warp(weights.full[weights.stage], weights.parity);
    weight = static_cast<int>(weights.stage) * Veu::kWeightStageBytes + Tile::warp_k() * Tile::kOctetBytes;
    weight_left = chunk_steps;
  }
  RK_INLINE void enter_inputs() {
    if (input_left != 0) return;
    wait_warp(inputs.full[inputs.stage], inputs.parity);
    box = static_cast<int>(inputs.stage) * Veu::kInputStageBytes;
    input_left = input_steps;
  }
  RK_INLINE bool is_idle() const { return Tile::kTeams > 1 && team >= boxes_left; }
  RK_INLINE int own_box() const { return Tile::kTeams > 1 && !is_idle() ? box + team_bytes : box; }

  // Goes to the next step, if there is one, when all reads of this step are on their way.
  RK_INLINE bool leave() {
    boxes_left -= Tile::kTeams;
    box += step_bytes;
    weight += Tile::kStepBytes;
    const bool last = boxes_left <= 0;
    if (--input_left == 0 || last) inputs.release();
    if (--weight_left == 0 || last) weights.release();
    return !last;
  }
};

// The results of one thread: 4 channels of a column of the tile, every kPassRows-th row. Their addresses are computed before the inputs
// are there; residuals are copied to shared memory behind the sums while the product is computed. Out: the type of the results and the
// residual in memory.
template <class Veu, class Tile, class Out>
struct SeparableResults {
  static constexpr int kVectors = Tile::kChannels / 4;  // of a pixel
  static constexpr int kPassRows = Veu::kComputeThreads / kVectors / kSeparableTileW;
  static constexpr int kPasses = (Tile::kTileH + kPassRows - 1) / kPassRows;
  static constexpr int kResidual = Tile::kSumBytes;  // byte of the work space

  Out* out;
  const Out* residual;        // may be null
  int32_t residual_step = 0;  // elements from one row of the thread to the next
  float4 bias, scale;         // scale: of sums, with kRounds
  ClipArgs clip;
  int32_t rows;  // rows of the tile that exist, from the thread's first one on
  int32_t left;  // channels
  int32_t sums;  // byte of the work space
  int32_t step;  // elements of the output from one row of the thread to the next
  bool vector, vector_residual;

  RK_INLINE static int pixel() { return static_cast<int>(threadIdx.x / kVectors); }
  RK_INLINE static int column() { return static_cast<int>(threadIdx.x % kVectors) * 4; }
  RK_INLINE static int residual_place(int pass) { return kResidual + (pass * Veu::kComputeThreads + static_cast<int>(threadIdx.x)) * 16; }

  RK_INLINE void start(const Task<Veu>& task, const SeparableConvArgs& args) {
    uint32_t tile, tile_w, tile_h;
    const int n = static_cast<int>(divide(task.index, args.tiles, tile)) * Tile::kChannels + column();
    const int image = static_cast<int>(divide(divide(tile, args.tiles_w, tile_w), args.tiles_h, tile_h));
    const int h = static_cast<int>(tile_h) * Tile::kTileH, w = static_cast<int>(tile_w) * kSeparableTileW + pixel() % kSeparableTileW;
    const int row = pixel() / kSeparableTileW;
    left = args.channels - n;
    clip = args.clip;
    vector = args.vector_out != 0 && left >= 4;
    vector_residual = args.vector_residual != 0;
    step = kPassRows * args.out_strides.h;
    rows = left > 0 && w < args.grid_w ? min(Tile::kTileH, args.grid_h - h) - row : 0;
    bias = load_bias4(task, args, n);
    if constexpr (Tile::kRounds) {  // behind the biases of all blocks
      const int padded = (args.channels + Tile::kChannels - 1) / Tile::kChannels * Tile::kChannels;
      scale = load_weight4(task.address(args.epilogue.bias) + (padded + n));
    }
    sums = computed_now((pixel() * Tile::kPitch + column()) * 4);
    const Pixel at = {image, h + row, w};
    out = values_at<Out>(task, args.out) + (offset_of(at, args.out_strides) + n * args.out_strides.channel);
    residual = values_at<Out>(task, args.epilogue.residual);
    if (residual == nullptr) return;
    const PixelStrides strides = narrow(args.epilogue.residual_strides);
    residual += offset_of(at, strides) + n * strides.channel;
    residual_step = kPassRows * strides.h;
  }
  // Starts to copy the residuals. Called when the rTask's inputs are there, and so the residuals, too.
  RK_INLINE void fetch(const SeparableConvArgs& args, char* work) const {
    if (residual == nullptr || rows <= 0) return;
    const Out* from = residual;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass, from += residual_step) {
      if (pass * kPassRows >= rows) break;
      if (vector_residual)
        copy_residual(work + residual_place(pass), from);
      else
        store_residual(work, residual_place(pass), load_each(from, static_cast<int32_t>(args.epilogue.residual_strides[1]), left));
    }
    cp_async_commit();
  }
  // Residuals lie in shared memory as they do in global memory.
  RK_INLINE static void copy_residual(char* to, const Out* from) {
    if constexpr (sizeof(Out) == 4)
      cp_async16(to, from, true);
    else
      cp_async8(to, from);
  }
  RK_INLINE static void store_residual(char* work, int to, float4 v) {
    if constexpr (sizeof(Out) == 4)
      store_shared4(work, to, v);
    else
      store_shared2(work, to, float2{float_of(pair_of<Out>(v.x, v.y)), float_of(pair_of<Out>(v.z, v.w))});
  }
  RK_INLINE static float4 load_residual(const char* work, int from) {
    if constexpr (sizeof(Out) == 4) {
      return load_shared4(work, from);
    } else {
      const float2 pairs = load_shared2(work, from);
      return Raw4<Out>{{bits_of(pairs.x), bits_of(pairs.y)}}.floats();
    }
  }
  // Adds the sums of the warps. Called when the thread's own copies are there, and behind a barrier, so that the sums of all threads
  // are.
  RK_INLINE void finish(const SeparableConvArgs& args, const char* work) const {
    Out* to = out;
    int32_t at = sums;
#pragma unroll 1
    for (int pass = 0; pass < kPasses && pass * kPassRows < rows; ++pass, to += step) {
      float4 v = Tile::kRounds ? float4{0.0f, 0.0f, 0.0f, 0.0f} : bias, r = {0.0f, 0.0f, 0.0f, 0.0f};
      if (residual != nullptr) r = load_residual(work, residual_place(pass));
#pragma unroll
      for (int k = 0; k < Tile::kWarpsK; ++k) v = add4(v, load_shared4(work, at + k * Tile::kPartBytes));
      if constexpr (Tile::kRounds)
        v = float4{fmaf(v.x, scale.x, bias.x), fmaf(v.y, scale.y, bias.y), fmaf(v.z, scale.z, bias.z), fmaf(v.w, scale.w, bias.w)};
      at += kPassRows * kSeparableTileW * Tile::kPitch * 4;
      if (Tile::kRounds && args.epilogue.activation == kRounded && (residual == nullptr || args.epilogue.sum.kind != kNoSum)) {
        v = clamped4<true>(v, args.epilogue.a, args.epilogue.b);
        if (args.epilogue.sum.kind != kNoSum) v = scaled_sum4(args.epilogue.sum, v, r);
      } else {
        v = lean_finish4(clip, args.epilogue, v, r);
      }
      store_channels4(to, args.out_strides.channel, vector, left, v);
    }
  }
};

template <class Veu, class Tile, class Out>
RK_INLINE void separable_rtask(const Task<Veu>& task) {
  const auto& args = task.template arguments<SeparableConvArgs>();
  char* const work = as_shared(task.work);
  SeparableWalk<Veu, Tile> walk(task, args);
  SeparableResults<Veu, Tile, Out> results;
  results.start(task, args);
  Tile tile;
  tile.start();
  tile.run(args, walk, [&] { results.fetch(args, work); });
  tile.store(work);
  cp_async_wait<0>();
  sync_compute<Veu>();
  results.finish(args, work);
}

template <class Veu, int TAPS, int STRIDE, int MT, int NT, int WARPS_N, class Out = float, bool ROUNDS = false>
RK_BODY void separable_conv(const Task<Veu>& task) {
  separable_rtask<Veu, SeparableTile<Veu, TAPS, STRIDE, MT, NT, WARPS_N, ROUNDS>, Out>(task);
}

}  // namespace rk
