// A depthwise convolution and the pointwise one behind it, on tensor cores:
//   mid[p][c] = act(bias[c] + sum over taps of in'(p * STRIDE + tap, c) * filter[tap][c]),  in' = max(in, in_low)
//   out[p][n] = act(bias[n] + residual[p][n] + sum over c of mid[p][c] * weight[c][n])
//
// A rTask is a tile of 8 x (NT * WARPS_N) output pixels times 16 * MT output channels. The input of the tile with its halo
// comes in boxes of 32 channels (kernels/vdevice/boxes.cuh). Each warp owns 8 channels of the box at a time, for all of the
// tile's pixels and output channels (WARPS_N = 2: half of the pixels): it computes mid for them right into the registers that
// mma wants as its operand B, so mid never lies in memory, and the warps meet only at the end, to add their sums.
//
// Output channels are the rows of the product (operand A is the weights), pixels its columns. Lane l holds column l / 4 and
// k = l % 4 and l % 4 + 4; k is permuted so that these are channels 2 (l % 4) and the one after it, one 8-byte read per tap. A
// lane's pixels lie below each other, so that a value that it has read serves all of them (up to TAPS) that see it. Columns are
// permuted so that the 16 lanes that read at once meet 32 different banks (see column_of).
//
// Weights of a step, per 8 channels: MT times {A[g][2t], A[g + 8][2t], A[g][2t + 1], A[g + 8][2t + 1]} of lane 4 g + t, where row
// g + 8 e of the i-th 16 is output channel 2 MT g + 2 i + e; then the filter, column by column, two values {value[v][2t],
// value[v][2t + 1], value[v + 1][2t], ...} for each t; a column has one value more than TAPS, which in the first one is the bias.
#pragma once

#include "kernels/conv/channels4.cuh"
#include "kernels/vdevice/memory.cuh"
#include "kernels/vdevice/mma.cuh"
#include "kernels/vdevice/window.cuh"

namespace rk {

constexpr int kSeparableTileW = 8;

struct SeparableConvArgs {
  TensorRef out;
  EpilogueArgs epilogue;  // bias: padded to whole blocks; residual strides: image, channel, h, w
  PixelStrides out_strides;
  int32_t channels;                     // of the output
  int32_t boxes, box_bytes;             // of the input
  int32_t input_steps, chunk_steps;     // of a stage of inputs, of weights
  float in_low, low, high;              // in_low: 0 for relu, else -infinity; low, high: what mid is clipped to
  int32_t grid_h, grid_w;               // of an image of the output
  int32_t vector_out, vector_residual;  // 4 channels are one aligned 16-byte access
  Divisor tiles, tiles_w, tiles_h;
};

// NaN stays NaN.
RK_INLINE float clipped(float v, float low, float high) { return -max_nan(-max_nan(v, low), -high); }

// What one warp computes of a tile.
template <class Veu, int TAPS, int STRIDE, int MT, int NT, int WARPS_N>
struct SeparableTile {
  static constexpr int kWarpsK = Veu::kComputeThreads / kWarp / WARPS_N;
  static constexpr int kTeams = kWarpsK / 4;  // a box has four times 8 channels
  static constexpr int kChannels = 16 * MT, kTileH = NT * WARPS_N, kPixels = kSeparableTileW * kTileH;
  static constexpr int kBoxW = (kSeparableTileW - 1) * STRIDE + TAPS;
  static constexpr int kRows = (NT - 1) * STRIDE + TAPS;             // of the box, that the warp sees
  static constexpr int kPairs = (TAPS + 1) / 2;                      // of values of a column of the filter
  static constexpr int kOctetBytes = MT * 512 + TAPS * kPairs * 64;  // weights of 8 channels
  static constexpr int kStepBytes = kWarpsK * kOctetBytes;
  static constexpr int kPitch = kChannels + 4;  // of a pixel's sums
  static constexpr int kSumBytes = kWarpsK * kPixels * kPitch * 4;
  static_assert(TAPS % 2 == 1 && (STRIDE == 1 || STRIDE == 2) && kTeams * 4 == kWarpsK);

  float sum[MT][NT][4];
  int place[8];  // byte of the box for tap 0 of output row 0, were it in row i % 8 of 128 bytes further on; less i rows

  RK_INLINE static int warp_k() { return warp_id() / WARPS_N; }
  RK_INLINE static int warp_n() { return warp_id() % WARPS_N; }
  RK_INLINE static int team() { return warp_k() / 4; }

  // The pixel of the tile's row that column n of the product stands for. Rows of 128 bytes have their 16-byte cells permuted by
  // row % 8, and a warp reads two cells of each of four rows at once: they must differ in row / 2 % 4.
  RK_INLINE static int column_of(int n) { return STRIDE == 1 ? n % 4 * 2 + n / 4 : n; }

  RK_INLINE void start() {
#pragma unroll
    for (int i = 0; i < MT; ++i) {
#pragma unroll
      for (int j = 0; j < NT; ++j) sum[i][j][0] = sum[i][j][1] = sum[i][j][2] = sum[i][j][3] = 0.0f;
    }
    const int row = warp_n() * NT * STRIDE * kBoxW + column_of(lane_id() / 4) * STRIDE;
    const int cell = warp_k() % 4 * 2 + lane_id() % 4 / 2;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      // Through a shuffle that leaves it where it is: else the compiler would compute it again at every use.
      place[i] = __shfl_xor_sync(kFullMask, row * 128 + (((row + i) % 8 ^ cell) << 4) + lane_id() % 2 * 8, 0);
    }
  }

  // What one column of the filter wants: its weights, and all rows of the box at it.
  struct Column {
    float4 weight[kPairs];
    float2 x[kRows];

    RK_INLINE float2 value(int v) const {
      return v % 2 == 0 ? float2{weight[v / 2].x, weight[v / 2].y} : float2{weight[v / 2].z, weight[v / 2].w};
    }
  };
  template <class Walk>
  RK_INLINE void load(const Walk& walk, int box, int kx, Column& column) const {
    const char* const boxes = as_shared(walk.inputs.stages);
#pragma unroll
    for (int v = 0; v < kPairs; ++v)
      column.weight[v] = load_shared4(walk.weights.stages, walk.weight + MT * 512 + (kx * kPairs + v) * 64 + lane_id() % 4 * 16);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = i * kBoxW + kx;
      column.x[i] = *reinterpret_cast<const float2*>(boxes + (box + place[row % 8] + row * 128));
    }
    __syncwarp();  // no read moves across it; else the compiler would put each one in front of its use, to save registers
  }
  template <class Walk>
  RK_INLINE void load_rows(const Walk& walk, float4 (&rows)[MT]) const {
#pragma unroll
    for (int i = 0; i < MT; ++i) rows[i] = load_shared4(walk.weights.stages, walk.weight + (i * kWarp + lane_id()) * 16);
  }

  RK_INLINE static void begin(const Column& column, float2 (&mid)[NT]) {
#pragma unroll
    for (int j = 0; j < NT; ++j) mid[j] = column.value(TAPS);
  }
  RK_INLINE static void add(const Column& column, float in_low, float2 (&mid)[NT]) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float2 x = {max_nan(column.x[i].x, in_low), max_nan(column.x[i].y, in_low)};
#pragma unroll
      for (int ky = i % STRIDE; ky < TAPS; ky += STRIDE) {
        const int j = (i - ky) / STRIDE;
        if (i < ky || j >= NT) continue;
        mid[j].x = fmaf(x.x, column.value(ky).x, mid[j].x);
        mid[j].y = fmaf(x.y, column.value(ky).y, mid[j].y);
      }
    }
  }
  RK_INLINE void multiply(const float4 (&rows)[MT], const float2 (&mid)[NT], float low, float high) {
#pragma unroll
    for (int j = 0; j < NT; ++j) {
      const uint32_t b[2] = {to_tf32(clipped(mid[j].x, low, high)), to_tf32(clipped(mid[j].y, low, high))};
#pragma unroll
      for (int i = 0; i < MT; ++i) {
        const uint32_t a[4] = {bits_of(rows[i].x), bits_of(rows[i].y), bits_of(rows[i].z), bits_of(rows[i].w)};
        mma_tf32(sum[i][j], a, b);
      }
    }
  }

  // All boxes of the team. While one column of the filter is multiplied, the next one is on its way.
  template <class Walk>
  RK_INLINE void run(const SeparableConvArgs& args, Walk& walk) {
    const float in_low = args.in_low, low = args.low, high = args.high;
    Column columns[2];
    int box = walk.own_box(args);
    load(walk, box, 0, columns[0]);
#pragma unroll 1
    while (true) {
      float4 rows[MT];
      float2 mid[NT];
      begin(columns[0], mid);
#pragma unroll
      for (int kx = 0; kx < TAPS - 1; ++kx) {
        load(walk, box, kx + 1, columns[(kx + 1) % 2]);
        add(columns[kx % 2], in_low, mid);
      }
      load_rows(walk, rows);
      if (!walk.advance(args)) {
        add(columns[0], in_low, mid);
        multiply(rows, mid, low, high);
        return;
      }
      box = walk.own_box(args);
      load(walk, box, 0, columns[1]);
      add(columns[0], in_low, mid);
      multiply(rows, mid, low, high);
      columns[0] = columns[1];
    }
  }

  // Leaves the sums of all warps in shared memory, [kWarpsK][pixel][kPitch]. Rows g and g + 8 of the MT tiles are neighbouring channels.
  RK_INLINE void store(char* sums) const {
    const int pixel = (warp_k() * kTileH + warp_n() * NT) * kSeparableTileW, channel = lane_id() / 4 * 2 * MT;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int first = (pixel + column_of(lane_id() % 4 * 2 + e)) * kPitch + channel;
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        const int at = (first + j * kSeparableTileW * kPitch) * 4;
        if constexpr (MT == 2)
          store_shared4(sums, at, float4{sum[0][j][e], sum[0][j][e + 2], sum[1][j][e], sum[1][j][e + 2]});
        else
          store_shared2(sums, at, float2{sum[0][j][e], sum[0][j][e + 2]});
      }
    }
  }
};

// Where a warp is in the two rings: at its box (bytes from the first stage) and the weights that belong to it. A step is kTeams
// boxes, one for each team; where the last one has a box for the first team only, the other reads that too, with weights of zero
// (so an infinity in it makes NaN).
template <class Veu, class Tile>
struct SeparableWalk {
  WeightStages<Veu> weights;
  InputStages<Veu> inputs;
  int32_t box, weight;
  int32_t boxes_left;               // with those of this step
  int32_t input_left, weight_left;  // steps of the stages

  RK_INLINE explicit SeparableWalk(const Task<Veu>& task) : weights(task.weight_stages()), inputs(task.input_stages()) {}
  RK_INLINE void start(const SeparableConvArgs& args) {
    boxes_left = args.boxes;
    acquire_weights(args);
    acquire_inputs(args);
  }
  // Waits in line: a call would have to save the columns that are on their way.
  RK_INLINE void acquire_weights(const SeparableConvArgs& args) {
    wait_warp(weights.full[weights.stage], weights.parity);
    weight = static_cast<int>(weights.stage) * Veu::kWeightStageBytes + Tile::warp_k() * Tile::kOctetBytes;
    weight_left = args.chunk_steps;
  }
  RK_INLINE void acquire_inputs(const SeparableConvArgs& args) {
    wait_warp(inputs.full[inputs.stage], inputs.parity);
    box = static_cast<int>(inputs.stage) * Veu::kInputStageBytes;
    input_left = args.input_steps;
  }
  RK_INLINE int own_box(const SeparableConvArgs& args) const {
    return Tile::team() < boxes_left ? box + Tile::team() * args.box_bytes : box;
  }

  // To the next step, if there is one; all that is to be read of this one is on its way.
  RK_INLINE bool advance(const SeparableConvArgs& args) {
    boxes_left -= Tile::kTeams;
    const bool last = boxes_left <= 0;
    box += Tile::kTeams * args.box_bytes;
    weight += Tile::kStepBytes;
    if (--input_left == 0 || last) {
      inputs.release();
      if (!last) acquire_inputs(args);
    }
    if (--weight_left == 0 || last) {
      weights.release();
      if (!last) acquire_weights(args);
    }
    return !last;
  }
};

// The results of one thread: 4 channels of every kPixelThreads-th pixel of the tile. Where they go is found out before the inputs
// are there; bias and residuals are copied to shared memory behind the sums while the product is computed.
template <class Veu, class Tile>
struct SeparableResults {
  static constexpr int kChannelThreads = Tile::kChannels / 4;
  static constexpr int kPixelThreads = Veu::kComputeThreads / kChannelThreads;
  static constexpr int kOutputs = (Tile::kPixels + kPixelThreads - 1) / kPixelThreads;
  static constexpr int kBias = Tile::kSumBytes, kResidual = kBias + 128;  // bytes of the work space

  float* out;
  int32_t to[kOutputs];  // < 0: there is no such pixel

  RK_INLINE static int pixel(int i) { return static_cast<int>(threadIdx.x) / kChannelThreads + i * kPixelThreads; }
  RK_INLINE static int column() { return static_cast<int>(threadIdx.x) % kChannelThreads * 4; }
  RK_INLINE static int residual_place(int i) { return kResidual + (i * Veu::kComputeThreads + static_cast<int>(threadIdx.x)) * 16; }

  RK_INLINE void start(const Task<Veu>& task, const SeparableConvArgs& args, Pixel& first, int& n) {
    uint32_t tile, tile_w, tile_h;
    n = static_cast<int>(divide(task.index, args.tiles, tile)) * Tile::kChannels + column();
    first.image = static_cast<int>(divide(divide(tile, args.tiles_w, tile_w), args.tiles_h, tile_h));
    first.h = static_cast<int>(tile_h) * Tile::kTileH;
    first.w = static_cast<int>(tile_w) * kSeparableTileW;
    const PixelStrides strides = args.out_strides;
    out = task.address(args.out) + offset_of(first, strides) + n * strides.channel;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      const int h = pixel(i) / kSeparableTileW, w = pixel(i) % kSeparableTileW;
      const bool exists = pixel(i) < Tile::kPixels && first.h + h < args.grid_h && first.w + w < args.grid_w && n < args.channels;
      to[i] = exists ? h * strides.h + w * strides.w : -1;
    }
    if (pixel(0) == 0) {
      const float* const bias = task.address(args.epilogue.bias);
      cp_async16(task.work + kBias + column() * 4, bias + n, bias != nullptr);
    }
  }
  // The rTask's inputs are there.
  RK_INLINE void fetch(const Task<Veu>& task, const SeparableConvArgs& args, const Pixel& first, int n) {
    if (args.epilogue.residual.base != kNullBase) {
      const PixelStrides strides = narrow(args.epilogue.residual_strides);
      const float* const from = task.address(args.epilogue.residual) + offset_of(first, strides) + n * strides.channel;
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) {
        if (to[i] < 0) continue;
        const float* const at = from + pixel(i) / kSeparableTileW * strides.h + pixel(i) % kSeparableTileW * strides.w;
        if (args.vector_residual != 0)
          cp_async16(task.work + residual_place(i), at, true);
        else
          store_shared4(task.work, residual_place(i), load_channels4(at, strides.channel, false, args.channels - n));
      }
    }
    cp_async_commit();
  }
  // Adds the sums of the warps. The thread's own copies are there, and other threads' after a barrier.
  RK_INLINE void finish(const SeparableConvArgs& args, const char* work, int n) const {
    const bool has_residual = args.epilogue.residual.base != kNullBase;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      if (to[i] < 0) continue;
      float4 v = load_shared4(work, kBias + column() * 4), r = {0.0f, 0.0f, 0.0f, 0.0f};
      if (has_residual) r = load_shared4(work, residual_place(i));
#pragma unroll
      for (int k = 0; k < Tile::kWarpsK; ++k)
        v = add4(v, load_shared4(work, ((k * Tile::kPixels + pixel(i)) * Tile::kPitch + column()) * 4));
      store_channels4(out + to[i], args.out_strides.channel, args.vector_out != 0, args.channels - n, finish4(args.epilogue, v, r));
    }
  }
};

template <class Veu, int TAPS, int STRIDE, int MT, int NT, int WARPS_N>
RK_BODY void separable_conv(const Task<Veu>& task) {
  using Tile = SeparableTile<Veu, TAPS, STRIDE, MT, NT, WARPS_N>;
  const auto& args = task.template arguments<SeparableConvArgs>();
  char* const work = task.work;
  SeparableWalk<Veu, Tile> walk(task);
  SeparableResults<Veu, Tile> results;
  Pixel first;
  int n;
  results.start(task, args, first, n);
  Tile tile;
  tile.start();
  walk.start(args);
  results.fetch(task, args, first, n);
  tile.run(args, walk);
  tile.store(work);
  cp_async_wait<0>();
  sync_compute<Veu>();
  results.finish(args, work, n);
}

}  // namespace rk
