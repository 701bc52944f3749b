// Two pointwise convolutions, one behind the other, for a tile of pixels:
//   y[p][m] = act(bias[m] + residual[p][m] + sum over k of x[p][k] * weight[m][k])
//   z[p][n] = act(bias[n] + sum over m of y[p][m] * weight[n][m])
//
// A rTask is a tile of 8 * NT pixels times one block of z's channels. It computes all of y for its pixels, keeps y in shared memory as an
// operand, and so needs no other rTask's results. Where there are several blocks, each computes y again; each stores a share of y's
// channels, if y is stored at all. Pixels are counted through rows and images: all tensors lie so that they are one row.
//
// Output channels are the rows of a product (mma's operand A is the weights), pixels its columns. A unit of k is 8 channels in tf32, 16 in
// 16 bits: 32 bytes of a pixel. The eight warps share blocks of 32 channels (warps_m) and units (warps_k); a step is one unit for each of
// warps_k. Operand B lies in boxes of 128 bytes a pixel with permuted cells (kernels/vdevice/boxes.cuh): x where the waiter copied it, y
// where the first product left it.
//
// A lane has the sums of vectors: 4 neighbouring channels of a pixel. Where several warps share the units of their channels, each leaves
// its sums in shared memory, and they divide the vectors among themselves to add them up. What a residual adds to y is loaded before the
// first product, by the lanes that will finish the vectors.
//
// Example: NT 2: tiles of 16 pixels. 80 channels of y are three blocks of 32, so warps_m is 3, and two times three warps work. Warp 4 is
// warp 1 on the channels (32 to 63) and 1 on k: units 1, 3, 5, ... Lane 13 has channels 44 to 47 (13 / 4 * 4 of the block) of pixels 2, 3,
// 10 and 11 in its sums, and finishes vectors 1 and 3: pixels 3 and 11.
//
// Weights in the order in which they are read: for each of the two products step, warp, then {A[g][t], A[g + 8][t], A[g][t + 4], A[g +
// 8][t + 4]} of lane 4 g + t for both tiles of 16 channels of a block (tf32: halves, which the factors make whole), or the pairs of
// mma_f16, tile by tile. Rows g and g + 8 of the two tiles are four neighbouring channels. Each product begins with a new chunk.
#pragma once

#include "kernels/chain/numbers.cuh"
#include "kernels/tile/lean_epilogue.cuh"
#include "kernels/tile/staged_math.cuh"
#include "kernels/vdevice/memory.cuh"

namespace rk {

// One of the two products.
struct PairedProduct {  // in tables
  TensorRef out;        // null: y is not stored
  ClipArgs clip;        // the activation
  int32_t activation;
  float a, b;
  int32_t out_pixel;  // elements of out from a pixel to the next
  int32_t channels;   // that a rTask computes; of the last block of z there may be fewer
  int32_t written;    // channels, in whole units: those of the next product's operand
  int32_t warps_m, warps_k_log2;
  int32_t units, steps;
  int32_t chunk_steps;  // of a chunk of weights
  int32_t step_bytes;   // of weights
  int32_t padded;       // channels, in whole blocks of warps
};

struct PointwisePairArgs {  // in tables
  PairedProduct product[2];
  TensorRef residual;  // or null
  // For each product, of all its padded channels: the factors of the sums (tf32 only), then the bias. The first product's come first, then
  // the second's, block by block.
  TensorRef constants;
  int32_t residual_pixel;         // elements from a pixel to the next
  int32_t pixels;                 // of all tiles
  int32_t input_steps;            // of an input chunk
  int32_t y_share;                // channels of y that a rTask stores
  int32_t z_channels;             // of all blocks
  int32_t constants_at, sums_at;  // bytes of the work space behind y
  int32_t sums_over_y;            // 1: the second product's sums lie where y was
  Divisor tiles;
};

// What one warp computes of either product.
template <class In, int NT>
struct PointwisePair {
  static constexpr int MT = kPairTiles;
  using Of = StagedMath<std::conditional_t<std::is_same_v<In, float>, Tf32, Narrow<In, In>>>;
  static constexpr int kPixels = 8 * NT, kBoxBytes = kPixels * kBoxRowBytes, kPairs = (NT + 1) / 2;
  static constexpr int kVectors = 2 * NT, kVector = 2 * MT;  // vectors of sums of a lane; channels of a vector
  static constexpr int kChannelsOfBox = kBoxRowBytes / static_cast<int>(sizeof(In));
  static constexpr int kTileBytes = kWarp * Of::kWords * 4;  // weights of 16 channels and a unit
  static constexpr int kBatch = NT == 1 ? 8 : 4;             // steps whose operands are loaded together
  static_assert(Of::kLoads == 1);

  float sum[MT][NT][4];
  uint32_t row[kPairs];  // byte of a box for the pixel that the lane gives ldmatrix
  uint32_t swizzle, half;

  RK_INLINE PointwisePair() {
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    half = lane / 8 % 2 * 16;
    swizzle = lane % 8 * 16;
#pragma unroll
    for (uint32_t p = 0; p < kPairs; ++p) {
      const uint32_t pixel = p * 16 + lane / 16 * 8 + lane % 8;
      row[p] = (pixel < kPixels ? pixel : lane % 8) * 128;
    }
  }
  RK_INLINE void clear() {
#pragma unroll
    for (int i = 0; i < MT; ++i) {
#pragma unroll
      for (int j = 0; j < NT; ++j) sum[i][j][0] = sum[i][j][1] = sum[i][j][2] = sum[i][j][3] = 0.0f;
    }
  }

  struct Operands {
    uint32_t a[MT][Of::kWords];
    uint32_t b[kPairs][1][4];
  };
  // boxes: byte of `operand` where unit 0 lies; weights: of the lane in its step.
  RK_INLINE void load(Operands& o, const char* operand, int boxes, uint32_t unit, const char* stages, int weights) const {
    const int cells =
        boxes + static_cast<int>(unit / kPairBoxUnits * kBoxBytes + ((unit % kPairBoxUnits * kPairUnitBytes | half) ^ swizzle));
#pragma unroll
    for (int p = 0; p < kPairs; ++p) ldmatrix4(o.b[p][0], operand, cells + static_cast<int>(row[p]));
    if constexpr (Of::kWords == 2) {
      const float4 v = load_shared4(stages, weights);
      o.a[0][0] = bits_of(v.x), o.a[0][1] = bits_of(v.y), o.a[1][0] = bits_of(v.z), o.a[1][1] = bits_of(v.w);
    } else {
#pragma unroll
      for (int i = 0; i < MT; ++i) {
        const float4 v = load_shared4(stages, weights + i * kTileBytes);
        o.a[i][0] = bits_of(v.x), o.a[i][1] = bits_of(v.y), o.a[i][2] = bits_of(v.z), o.a[i][3] = bits_of(v.w);
      }
    }
  }
  RK_INLINE void multiply(const Operands& o) {
    uint32_t a[MT][4];
#pragma unroll
    for (int i = 0; i < MT; ++i) Of::weights(a[i], o.a[i]);
#pragma unroll
    for (int j = 0; j < NT; ++j) {
      uint32_t b[2];
      Of::operand(b, o.b[j / 2], j % 2);
#pragma unroll
      for (int i = 0; i < MT; ++i) Of::multiply(sum[i][j], a[i], b);
    }
  }

  // Sums of all warps, [warp][vector][lane][channel].
  RK_INLINE static int slot(int warp, int vector) { return ((warp * kVectors + vector) * kWarp + lane_id()) * kVector * 4; }
  RK_INLINE float4 vector(int v) const {
    const int j = v / 2, c = v % 2;
    return float4{sum[0][j][c], sum[0][j][c + 2], sum[1][j][c], sum[1][j][c + 2]};
  }
  // `at`: slot(warp, 0).
  RK_INLINE void leave(char* sums, int at) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) store_shared4(sums, at + v * kWarp * kVector * 4, vector(v));
  }

  // The byte of y's boxes where a channel of pixel 0 lies; that of any pixel, of which the cell is permuted.
  RK_INLINE static uint32_t place_of_channel(uint32_t channel) {
    return channel / kChannelsOfBox * kBoxBytes + channel % kChannelsOfBox * static_cast<uint32_t>(sizeof(In));
  }
  RK_INLINE static int place(uint32_t of_channel, uint32_t pixel) {
    return static_cast<int>((of_channel + pixel * 128) ^ (pixel % 8 * 16));
  }
  RK_INLINE static void keep(char* y, int at, const float4& v) {
    if constexpr (sizeof(In) == 4)
      store_shared4(y, at, v);
    else
      store_shared2(y, at, float2{float_of(pair_of<In>(v.x, v.y)), float_of(pair_of<In>(v.z, v.w))});
  }
};

// What a lane needs for product L, computed while the inputs are on their way: behind their arrival every instruction counts four or five
// cycles, since each warp runs the code once.
template <class Veu, class Pair, class Value, int L>
struct PairedLane {
  static constexpr bool kScales = Pair::Of::kScales;
  int warps_k_log2, units, steps, chunk_steps, step_bytes;
  int k, count;              // of the warp; vectors that the lane finishes
  int channel;               // of the lane's vectors, of the rTask's
  bool works, ends, stored;  // whether it multiplies; whether it finishes vectors; whether these are stored
  int weights;               // byte of the lane in a step
  int own, from, next;       // bytes of sums: the lane's, of the first warp to add up, and from that to the next warp
  int constant, offset;      // byte of the factors, and of the bias
  int place;                 // byte of y, of the first vector
  int pixel, out_pixel;      // the first vector's, of the tile; elements from a pixel to the next
  Value* out;                // of the first vector's channel and pixel
  float low, high;
  int kind;  // the activation, if it is not a clamp between low and high

  RK_INLINE PairedLane(const Task<Veu>& task, const PointwisePairArgs& args, int block) {
    const PairedProduct& product = args.product[L];
    warps_k_log2 = product.warps_k_log2;
    units = product.units;
    steps = product.steps;
    chunk_steps = product.chunk_steps;
    step_bytes = product.step_bytes;
    low = product.clip.low;
    high = product.clip.high;
    kind = product.clip.other != 0 ? product.activation : kNone;
    const int warps_m = product.warps_m;
    int m = warp_id();
    k = 0;
#pragma unroll 1
    while (m >= warps_m) m -= warps_m, ++k;
    works = k < 1 << warps_k_log2;
    weights = computed_now(warp_id() * Pair::MT * Pair::kTileBytes + lane_id() * (Pair::Of::kWords == 2 ? Pair::MT * 8 : 16));
    own = computed_now(Pair::slot(warp_id(), 0));
    from = computed_now(Pair::slot(m, k));
    next = computed_now(Pair::slot(warps_m, 0) - Pair::slot(0, 0));
    channel = m * kPairBlock + dealt_channel(Pair::MT, 0, lane_id() / 4);
    pixel = computed_now(k / 2 * 8 + lane_id() % 4 * 2 + k % 2);
    place = computed_now(Pair::place(Pair::place_of_channel(static_cast<uint32_t>(channel)), static_cast<uint32_t>(pixel)));
    count = (Pair::kVectors - k + (1 << warps_k_log2) - 1) >> warps_k_log2;
    constant = (L == 0 ? 0 : args.product[0].padded * (kScales ? 8 : 4)) + channel * 4;
    offset = computed_now(constant + (kScales ? product.padded * 4 : 0));
    ends = works && k < Pair::kVectors && channel < product.written;
    const int share = block * args.y_share, first = block * args.product[1].channels;
    out = values_at<Value>(task, product.out);
    if constexpr (L == 0)
      stored = out != nullptr && channel >= share && channel < min(product.channels, share + args.y_share);
    else
      stored = channel < min(product.channels, args.z_channels - first);
    out_pixel = product.out_pixel;
    out += (L == 0 ? 0 : first) + channel;
  }
};

// ACTIVATION: of z, where it is silu or hard_swish; a call for each vector would cost more than they do.
template <class Veu, class In, class Mid, class Out, int NT, int ACTIVATION>
struct PairRun {
  using Pair = PointwisePair<In, NT>;
  using Of = typename Pair::Of;
  static constexpr int kVectors = Pair::kVectors;

  const PointwisePairArgs& args;
  WeightStages<Veu> weights;
  InputStages<Veu> inputs;
  char *y, *sums;
  const char* constants;
  int first_pixel, pixels;
  Pair pair;

  template <int COUNT, class Lane>
  RK_INLINE void steps(const Lane& lane, const char* operand, int boxes, int& unit, int& at) {
    typename Pair::Operands o[COUNT];
#pragma unroll
    for (int s = 0; s < COUNT; ++s) {
      pair.load(o[s], operand, boxes, static_cast<uint32_t>(unit), weights.stages, at);
      unit += 1 << lane.warps_k_log2;
      at += lane.step_bytes;
    }
#pragma unroll
    for (int s = 0; s < COUNT; ++s) pair.multiply(o[s]);
  }

  // Product L, whose first chunks of weights and inputs are there. With L 0 the operand is in the input stages, else it is y. The last
  // chunks are not released.
  template <int L, class Lane>
  RK_INLINE void multiply(const Lane& lane) {
    int left = lane.steps, weight_left = lane.chunk_steps, unit = lane.k;
    int input_left = left, boxes = 0, input_steps = 0;
    const char* operand = y;
    if constexpr (L == 0) {
      operand = inputs.stages;
      boxes = inputs.base;
      input_left = input_steps = args.input_steps;
    }
    pair.clear();
#pragma unroll 1
    while (true) {
      int n = min(left, min(weight_left, input_left));
      left -= n;
      weight_left -= n;
      input_left -= n;
      if (lane.works) {
        // Units behind the last have no weights, and what lies in their place may be NaN.
        int at = weights.base + lane.weights;
        weights.base += n * lane.step_bytes;
        n = min(n, (lane.units - unit + (1 << lane.warps_k_log2) - 1) >> lane.warps_k_log2);
#pragma unroll 1
        for (; n >= Pair::kBatch; n -= Pair::kBatch) steps<Pair::kBatch>(lane, operand, boxes, unit, at);
#pragma unroll 1
        for (; n >= 2; n -= 2) steps<2>(lane, operand, boxes, unit, at);
        if (n > 0) steps<1>(lane, operand, boxes, unit, at);
      }
      if (left == 0) return;
      if (L == 0 && input_left == 0) {
        boxes -= (input_steps << lane.warps_k_log2) / kPairBoxUnits * Pair::kBoxBytes + inputs.base;
        inputs.release();
        inputs.acquire();
        boxes += inputs.base;
        input_left = input_steps;
      }
      if (weight_left == 0) {
        weights.release();
        weights.acquire();
        weight_left = lane.chunk_steps;
      }
    }
  }

  // Loads what is added to the lane's vectors, if there is something; `from`: of the first vector's channel.
  template <class Lane>
  RK_INLINE void fetch(const Lane& lane, const Mid* from, int pixel_stride, Raw4<Mid> (&residual)[kVectors]) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      residual[i] = {};
      const int v = i << lane.warps_k_log2, pixel = first_pixel + lane.pixel + v / 2 * 8 + v % 2;
      if (from != nullptr && i < lane.count && pixel < pixels) residual[i] = load_raw4(from + pixel * pixel_stride);
    }
  }

  // Makes results of the sums, which lie in registers where one warp has all units of its channels.
  template <int L, class Lane>
  RK_INLINE void finish(const Lane& lane, [[maybe_unused]] const Raw4<Mid> (&residual)[kVectors]) {
    float4 value[kVectors];
    if (lane.warps_k_log2 == 0) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) value[v] = pair.vector(v);
    } else {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) value[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
      int from = lane.from;
      const int step = (Pair::kVector * 4 * kWarp) << lane.warps_k_log2;
#pragma unroll 2
      for (int warp = 0; warp < 1 << lane.warps_k_log2; ++warp, from += lane.next) {
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
          if (i < lane.count) value[i] = add4(value[i], load_shared4(sums, from + i * step));
        }
      }
    }
    float4 factor;
    if constexpr (Of::kScales) factor = load_shared4(constants, lane.constant);
    const float4 offset = load_shared4(constants, lane.offset);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (i >= lane.count) continue;
      // From the lane's first vector on, v = i << warps_k_log2 vectors further.
      const int v = i << lane.warps_k_log2, further = v / 2 * 8 + v % 2, place = (lane.place + further * 128) ^ (v % 2 * 16);
      float4 r = value[i];
      if constexpr (Of::kScales)
        r = float4{fmaf(r.x, factor.x, offset.x), fmaf(r.y, factor.y, offset.y), fmaf(r.z, factor.z, offset.z),
                   fmaf(r.w, factor.w, offset.w)};
      else
        r = add4(r, offset);
      if constexpr (L == 0) r = add4(r, residual[i].floats());
      r = clamp4(r, lane.low, lane.high);
      if constexpr (L == 1 && ACTIVATION == kSilu)
        r = float4{silu(r.x), silu(r.y), silu(r.z), silu(r.w)};
      else if constexpr (L == 1 && ACTIVATION == kHardSwish)
        r = float4{hard_swish(r.x), hard_swish(r.y), hard_swish(r.z), hard_swish(r.w)};
      else if (lane.kind != kNone)
        r = activate4(lane.kind, r, args.product[L].a, args.product[L].b);
      if constexpr (L == 0) Pair::keep(y, place, r);
      const int pixel = first_pixel + lane.pixel + further;
      if (lane.stored && pixel < pixels) store4(lane.out + pixel * lane.out_pixel, r);
    }
  }
};

// In, Mid, Out: x, y and the residual, and z as they lie in memory. y as an operand has x's type.
template <class Veu, class In, class Mid, class Out, int NT, int ACTIVATION = kNone>
RK_BODY void pointwise_pair(const Task<Veu>& task) {
  using Run = PairRun<Veu, In, Mid, Out, NT, ACTIVATION>;
  using Pair = typename Run::Pair;
  const auto& args = task.template arguments<PointwisePairArgs>();
  uint32_t tile;
  const int block = static_cast<int>(divide(task.index, args.tiles, tile));
  char* const y = as_shared(task.work);
  char* const constants = y + args.constants_at;
  {
    const int of_first = args.product[0].padded * (Pair::Of::kScales ? 2 : 1),
              of_second = args.product[1].padded * (Pair::Of::kScales ? 2 : 1);
    const float* const from = task.address(args.constants);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) * 4; i < of_first + of_second; i += Veu::kComputeThreads * 4)
      cp_async16(constants + i * 4, from + (i < of_first ? i : i + block * of_second), true);
  }
  cp_async_commit();
  const PairedLane<Veu, Pair, Mid, 0> first(task, args, block);
  const PairedLane<Veu, Pair, Out, 1> second(task, args, block);
  Run run{
      args, task.weight_stages(), task.input_stages(), y, y + args.sums_at, constants, static_cast<int>(tile) * Pair::kPixels, args.pixels,
      {}};
  const Mid* residual_at = values_at<Mid>(task, args.residual);
  if (residual_at != nullptr) residual_at = first.ends && first.channel < args.product[0].channels ? residual_at + first.channel : nullptr;
  const int residual_pixel = args.residual_pixel;
  Raw4<Mid> residual[Run::kVectors];

  run.weights.acquire();
  run.inputs.acquire();
  run.fetch(first, residual_at, residual_pixel, residual);
  run.template multiply<0>(first);
  if (first.warps_k_log2 > 0 && first.works) run.pair.leave(run.sums, first.own);
  cp_async_wait<0>();  // constants
  sync_compute<Veu>();
  if (first.ends) run.template finish<0>(first, residual);
  run.inputs.release();
  run.weights.release();
  run.weights.acquire();
  sync_compute<Veu>();
  run.template multiply<1>(second);
  if (second.warps_k_log2 > 0) {
    if (args.sums_over_y != 0) {  // y has been read
      sync_compute<Veu>();
      run.sums = y;
    }
    if (second.works) run.pair.leave(run.sums, second.own);
    sync_compute<Veu>();
  }
  if (second.ends) run.template finish<1>(second, residual);
  run.weights.release();
}

}  // namespace rk
