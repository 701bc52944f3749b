// ChannelExcite (compiler/ir/ops.h): y = x * gate(w * hidden(sum of s over its parts + hidden bias) + bias). A rTask is a block of 32
// channels and a tile of the pixels of an image; a thread has kVector channels of a pixel as in squeeze.cuh. Each rTask adds up all
// hidden values for itself (a few thousand numbers, in a fixed order), computes its 32 gates with weights from the ring, eight threads to
// a gate, and multiplies its piece of x by the gates. The loads of the first pixels are under way while the gates are computed. NARROW:
// weights are fp16 numbers, and a gate's sum is multiplied by its scale. In, Out: the types of x and y in memory.
//
// excite_of_sums is the same with the product of the first half: s are sums of channels, as summed_conv (kernels/product/summed_conv.cuh)
// makes them, and each rTask multiplies them by all of the first weights, which come through the ring ahead of the others. A thread has a
// hidden value and every so manieth cell of 8 channels.
//
// excite_rounded and excite_rounded_of_sums are those of quantised networks, where all that lies between two steps are whole numbers: each
// mean is rounded; of a hidden value's sum and of a gate's sum, rounded, a table of 256 numbers says what becomes of them; and so is the
// product with the map. In, Out: whole numbers, also as bytes, which may begin at another number than 0.
//
// Example: thread 75, 48 hidden values, fp32 weights, kVector 4. 16 threads share a part (48 / 4, rounded up to a power of two), so
// thread 75 adds up hidden values 44 to 47 (75 % 16 * 4) of parts 4 (75 / 16), 20, 36, .. It works on gate 9 (75 / 8) with hidden values
// 12 to 15 (75 % 8 * 4) and 44 to 47 of a chunk, and multiplies channels 12 to 15 of pixels 9 (75 / 8), 41, .. of the tile.
#pragma once

#include "kernels/excite/squeeze.cuh"
#include "kernels/tile/lean_epilogue.cuh"

namespace rk {

struct ExciteColumn {
  float scale, bias;
};
struct ExciteActivation {  // in tables
  int32_t kind;
  float a, b;
};

struct ExciteArgs {  // in tables
  TensorRef in, out, sums;
  int32_t in_strides[4], out_strides[4];  // image, channel, row, column
  int32_t sums_image, sums_part, parts;
  int32_t hidden, padded_hidden, channels;
  int32_t lanes_log2;       // threads that share a part, four hidden values each
  int32_t chunk_k, chunks;  // of the ring; see excite_chunk_bytes
  uint32_t pixels, tile_pixels;
  Divisor tiles, blocks, width;  // rTask = (image * blocks + block) * tiles + tile
  ExciteActivation hidden_activation, gate;
};
struct ExciteOfSumsArgs {  // in tables
  ExciteArgs excite;
  int32_t sums_lanes_log2;                     // as lanes_log2, four channels each; lanes_log2 itself: threads, a hidden value each
  int32_t first_cells, first_chunks, work_at;  // cells of a chunk; chunks ahead of the others; bytes of work before the sums
};

// What becomes of whole numbers behind the sums of hidden values.
struct ExciteSteps {  // in tables
  SqueezeRounding out;
  float hidden_low, hidden_high, gate_low, gate_high;  // of the sums, whose first numbers are those of the tables, too
  TensorRef tables;                                    // kExciteTable hidden values, then as many gates
  int32_t tables_at;                                   // bytes of work before the tables' copy
  float in_low, out_low;                               // the numbers that bytes of 0 are
};
struct RoundedExciteArgs {  // in tables
  ExciteArgs excite;
  ExciteSteps steps;
};
struct RoundedOfSumsArgs {  // in tables
  ExciteOfSumsArgs excite;
  ExciteSteps steps;
  SqueezeRounding mean;
};
template <class Args>
inline constexpr bool kExciteOfSums = std::is_same_v<Args, ExciteOfSumsArgs> || std::is_same_v<Args, RoundedOfSumsArgs>;
template <class Args>
inline constexpr bool kExciteRounds = std::is_same_v<Args, RoundedExciteArgs> || std::is_same_v<Args, RoundedOfSumsArgs>;

// What a table says of `sum`, whose numbers go from `low` to `high`.
RK_INLINE float excite_looked_up(const float* table, float sum, float low, float high) {
  return table[static_cast<int>(rounded(sum, low, high) - low)];
}
template <class Veu>
RK_INLINE float* excite_tables(const Task<Veu>& task, const ExciteSteps& steps) {
  return reinterpret_cast<float*>(task.template work_as<char>() + steps.tables_at);
}
// Copies the tables into shared memory, for use behind a sync.
template <class Veu>
RK_INLINE void excite_copy_tables(const Task<Veu>& task, const ExciteSteps& steps) {
  const float* const from = task.address(steps.tables);
  float* const to = excite_tables(task, steps);
#pragma unroll
  for (int i = 0; i < 2 * kExciteTable; i += kExciteThreads)
    to[i + static_cast<int>(threadIdx.x)] = load_weight1(from + i + static_cast<int>(threadIdx.x));
}

// What excite_sum adds up: `parts` rows of `count` values, a multiple of four.
struct ExciteParts {
  int32_t count, parts, stride, lanes_log2;
};

// One copy, out of line: code that runs once costs the time in which its bytes are fetched.
RK_BODY float excite_activate(int32_t kind, float x, float a, float b) { return activate(kind, x, a, b); }

// Adds up the parts. Leaves values in rows of args.count, a row for each warp (or for the two or more warps that share a part), which are
// still to be added. Returns the number of rows.
template <class Veu>
RK_INLINE int excite_sum(const ExciteParts& args, const float* from, float* rows) {
  const int thread = static_cast<int>(threadIdx.x), lanes = 1 << args.lanes_log2, lane = thread & (lanes - 1);
  const int step = Veu::kComputeThreads >> args.lanes_log2, parts = args.parts, stride = args.stride;
  const bool is_hidden = lane * 4 < args.count;
  float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
  from += lane * 4;
#pragma unroll 1
  for (int part = thread >> args.lanes_log2; part < parts; part += kExcitePartsAhead * step) {
    float4 v[kExcitePartsAhead];
#pragma unroll
    for (int i = 0; i < kExcitePartsAhead; ++i) {
      v[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
      if (is_hidden && part + i * step < parts) v[i] = load4(from + (part + i * step) * stride);
    }
#pragma unroll
    for (int i = 0; i < kExcitePartsAhead; ++i) squeeze_add(sum, v[i]);
  }
#pragma unroll 1
  for (int other = lanes; other < kWarp; other *= 2) {
    squeeze_add(sum, float4{__shfl_xor_sync(kFullMask, sum.x, other), __shfl_xor_sync(kFullMask, sum.y, other),
                            __shfl_xor_sync(kFullMask, sum.z, other), __shfl_xor_sync(kFullMask, sum.w, other)});
  }
  const int row_log2 = max(args.lanes_log2, 5);
  if (is_hidden && lane_id() < lanes) *reinterpret_cast<float4*>(rows + (thread >> row_log2) * args.count + lane * 4) = sum;
  return Veu::kComputeThreads >> row_log2;
}

// Multiplies the sums of channels, which lie in `row_count` rows, by the first weights. Leaves hidden values in rows, as excite_sum does.
template <class Veu, class Args>
RK_INLINE int excite_first(const Task<Veu>& task, const ExciteOfSumsArgs& args, WeightPipe<Veu>& weights, const float* of_warps,
                           int row_count, float* sums, float* rows) {
  const int thread = static_cast<int>(threadIdx.x), channels = args.excite.channels, padded = args.excite.padded_hidden;
  const int lanes = 1 << args.excite.lanes_log2, row = thread & (lanes - 1), step = Veu::kComputeThreads >> args.excite.lanes_log2;
#pragma unroll 1
  for (int c = thread; c < args.first_chunks * args.first_cells * kExciteCell; c += Veu::kComputeThreads) {
    float v = 0.0f;
#pragma unroll 1
    for (int i = 0; i < row_count && c < channels; ++i) v += of_warps[i * channels + c];
    if constexpr (kExciteRounds<Args>) {
      if (c < channels) v = squeeze_rounded_to(task.template arguments<Args>().mean, v);
    }
    sums[c] = v;
  }
  sync_compute<Veu>();
  float low = 0.0f, high = 0.0f, scale = 0.0f;
#pragma unroll 1
  for (int chunk = 0; chunk < args.first_chunks; ++chunk) {
    const char* const stage = as_shared(weights.acquire());
    if (row < padded) {
      // Before the products, whose use says that this has come, too: a release waits for no load (task.cuh).
      scale = reinterpret_cast<const float*>(stage + args.first_cells * padded * 16)[row];
      const float4* const of_chunk = reinterpret_cast<const float4*>(sums) + chunk * args.first_cells * 2;
      const uint4* const products = reinterpret_cast<const uint4*>(stage) + row;
#pragma unroll 2
      for (int cell = thread >> args.excite.lanes_log2; cell < args.first_cells; cell += step) {
        const uint4 pairs = products[cell * padded];
        low = excite_dot(low, of_chunk[cell * 2], excite_four(pairs.x, pairs.y));
        high = excite_dot(high, of_chunk[cell * 2 + 1], excite_four(pairs.z, pairs.w));
      }
    }
    weights.release();
  }
  float v = (low + high) * scale;
#pragma unroll 1
  for (int other = lanes; other < kWarp; other *= 2) v += __shfl_xor_sync(kFullMask, v, other);
  const int row_log2 = max(args.excite.lanes_log2, 5);
  if (row < padded && lane_id() < lanes) rows[(thread >> row_log2) * padded + row] = v;
  return Veu::kComputeThreads >> row_log2;
}

// Leaves the hidden values in rows of padded_hidden that are still to be added; returns the number of rows. `weights` moves on to the
// chunks of the second half.
template <class Veu, class Args>
RK_INLINE int excite_hidden(const Task<Veu>& task, uint32_t image, WeightPipe<Veu>& weights, float* rows) {
  const ExciteArgs& args = task.template arguments<ExciteArgs>();
  const float* const from = task.address(args.sums) + static_cast<int64_t>(image) * args.sums_image;
  if constexpr (!kExciteOfSums<Args>) {
    return excite_sum<Veu>({args.padded_hidden, args.parts, args.sums_part, args.lanes_log2}, from, rows);
  } else {
    const ExciteOfSumsArgs& all = task.template arguments<ExciteOfSumsArgs>();
    float* const of_warps = reinterpret_cast<float*>(task.template work_as<char>() + all.work_at);
    int row_count = 0, first = 0;
    // Where there are several turns, each has all threads, and leaves one row: the sums of all turns lie one behind the other.
#pragma unroll 1
    for (; first < args.channels; first += kExciteMostHidden)
      row_count = excite_sum<Veu>({min(args.channels - first, kExciteMostHidden), args.parts, args.sums_part, all.sums_lanes_log2},
                                  from + first, of_warps + first);
    sync_compute<Veu>();
    return excite_first<Veu, Args>(task, all, weights, of_warps, row_count, of_warps + first, rows);
  }
}

// The gates of the block, in shared memory for all threads.
template <class Veu, bool NARROW, class Args>
RK_INLINE const float* excite_gates(const Task<Veu>& task, const ExciteArgs& args, uint32_t image) {
  constexpr int kWeightBytes = NARROW ? 2 : 4, kCell = 16 / kWeightBytes;
  const int thread = static_cast<int>(threadIdx.x), gate = thread / kExciteLanes, part = thread % kExciteLanes, chunk_k = args.chunk_k;
  float* const rows = task.template work_as<float>();
  float* const hidden = rows + kComputeWarps * args.padded_hidden;
  float* const gates = hidden + args.chunks * chunk_k;
  WeightPipe<Veu> weights = task.weights;
  const int row_count = excite_hidden<Veu, Args>(task, image, weights, rows);
  sync_compute<Veu>();
  float sum = 0.0f;
  ExciteColumn column{};
#pragma unroll 1
  for (int chunk = 0; chunk < args.chunks; ++chunk) {
    const char* const stage = as_shared(weights.acquire());
    const char* const columns = stage + kExciteChannels * chunk_k * kWeightBytes;
    const float* const hidden_bias = reinterpret_cast<const float*>(columns + kExciteChannels * sizeof(ExciteColumn));
    float* const of_chunk = hidden + chunk * chunk_k;
#pragma unroll 1
    for (int k = thread; k < chunk_k; k += Veu::kComputeThreads) {
      const int r = chunk * chunk_k + k;
      float v = 0.0f;
      if (r < args.hidden) {
        v = hidden_bias[k];
        // All loads are under way before the first is added.
        float of_row[kComputeWarps];
#pragma unroll
        for (int row = 0; row < kComputeWarps; ++row) of_row[row] = row < row_count ? rows[row * args.padded_hidden + r] : 0.0f;
#pragma unroll
        for (int row = 0; row < kComputeWarps; ++row) v += of_row[row];
        if constexpr (kExciteRounds<Args>) {
          const ExciteSteps& steps = task.template arguments<Args>().steps;
          v = excite_looked_up(excite_tables(task, steps), v, steps.hidden_low, steps.hidden_high);
        } else {
          const ExciteActivation& call = args.hidden_activation;
          v = call.kind == kRelu ? relu(v) : excite_activate(call.kind, v, call.a, call.b);
        }
      }
      of_chunk[k] = v;
    }
    sync_compute<Veu>();
    column = reinterpret_cast<const ExciteColumn*>(columns)[gate];
    const char* const products = stage + gate * chunk_k * kWeightBytes;
#pragma unroll 1
    for (int k = part * kCell; k < chunk_k; k += kExciteLanes * kCell) {
      const float4 low = *reinterpret_cast<const float4*>(of_chunk + k);
      if constexpr (NARROW) {
        const uint4 pairs = *reinterpret_cast<const uint4*>(products + k * kWeightBytes);
        sum = excite_dot(sum, low, excite_four(pairs.x, pairs.y));
        sum = excite_dot(sum, *reinterpret_cast<const float4*>(of_chunk + k + 4), excite_four(pairs.z, pairs.w));
      } else {
        sum = excite_dot(sum, low, *reinterpret_cast<const float4*>(products + k * kWeightBytes));
      }
    }
    weights.release();
  }
#pragma unroll
  for (int step = 1; step < kExciteLanes; step *= 2) sum += __shfl_xor_sync(kFullMask, sum, step);
  const float before = fmaf(sum, column.scale, column.bias);
  float v;
  if constexpr (kExciteRounds<Args>) {
    const ExciteSteps& steps = task.template arguments<Args>().steps;
    v = excite_looked_up(excite_tables(task, steps) + kExciteTable, before, steps.gate_low, steps.gate_high);
  } else {
    v = excite_activate(args.gate.kind, before, args.gate.a, args.gate.b);
  }
  if (part == 0) gates[gate] = v;
  sync_compute<Veu>();
  return gates;
}

// What becomes of a map's values besides the product with their gates.
template <class Args, class In, class Out>
struct ExciteRounding {
  RK_INLINE explicit ExciteRounding(const Args&) {}
  RK_INLINE float4 of(const float4& x, const float4& gate) const { return {x.x * gate.x, x.y * gate.y, x.z * gate.z, x.w * gate.w}; }
};
template <class Args, class In, class Out>
requires kExciteRounds<Args>
struct ExciteRounding<Args, In, Out> {
  SqueezeRounding to;
  float in_low, out_low;
  RK_INLINE explicit ExciteRounding(const Args& args) : to(args.steps.out), in_low(args.steps.in_low), out_low(args.steps.out_low) {}
  RK_INLINE float4 of(float4 x, const float4& gate) const {
    if constexpr (sizeof(In) == 1) x = float4{x.x + in_low, x.y + in_low, x.z + in_low, x.w + in_low};
    float4 v = {squeeze_rounded_to(to, x.x * gate.x), squeeze_rounded_to(to, x.y * gate.y), squeeze_rounded_to(to, x.z * gate.z),
                squeeze_rounded_to(to, x.w * gate.w)};
    if constexpr (sizeof(Out) == 1) v = float4{v.x - out_low, v.y - out_low, v.z - out_low, v.w - out_low};
    return v;
  }
};

template <class Veu, int kVector, bool NARROW, class Args, class In, class Out>
RK_INLINE void excite_map(const Task<Veu>& caller) {
  static_assert(Veu::kComputeThreads == kExciteThreads);
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  constexpr int kLanes = kExciteChannels / kVector;
  constexpr uint32_t kPixels = Veu::kComputeThreads / kLanes;  // at the same time
  const ExciteArgs& args = task.template arguments<ExciteArgs>();
  uint32_t tile, block;
  const uint32_t image_block = divide(task.index, args.tiles, tile), image = divide(image_block, args.blocks, block);
  const int thread = static_cast<int>(threadIdx.x);
  const int in_block = thread % kLanes * kVector, channel = static_cast<int>(block) * kExciteChannels + in_block;
  const int left = args.channels - channel;
  const In* const in = values_at<In>(task, args.in) + static_cast<int64_t>(image) * args.in_strides[0] + channel * args.in_strides[1];
  Out* const out = values_at<Out>(task, args.out) + static_cast<int64_t>(image) * args.out_strides[0] + channel * args.out_strides[1];
  uint32_t first = tile * args.tile_pixels + static_cast<uint32_t>(thread / kLanes);
  const uint32_t end = left > 0 ? min((tile + 1) * args.tile_pixels, args.pixels) : 0;
  // In registers, since behind a store arguments would be read again.
  const Divisor width = args.width;
  const int32_t in_row = args.in_strides[2], in_column = args.in_strides[3], out_row = args.out_strides[2],
                out_column = args.out_strides[3];
  const auto offset = [&](uint32_t pixel, int32_t of_row, int32_t of_column) {
    uint32_t column;
    const uint32_t row = divide(pixel, width, column);
    return static_cast<int32_t>(row) * of_row + static_cast<int32_t>(column) * of_column;
  };
  const ExciteRounding<Args, In, Out> rounding(task.template arguments<Args>());

  if constexpr (kExciteRounds<Args>) excite_copy_tables(task, task.template arguments<Args>().steps);
  // Code that runs once costs the time in which its bytes are fetched. So there is one copy of the loads, which in the first turn are
  // under way while the gates are computed, and one copy of the store: values[0] is stored, and the other values move up.
  float4 gate = {0.0f, 0.0f, 0.0f, 0.0f};
  bool has_gate = false;
#pragma unroll 1
  do {
    MapValue<kVector, In> values[kExciteAhead] = {};
    if (!has_gate) task.await_inputs();
#pragma unroll
    for (uint32_t i = 0; i < kExciteAhead; ++i) {
      if (first + i * kPixels < end) values[i].load(in + offset(first + i * kPixels, in_row, in_column));
    }
    if (!has_gate) {
      const float* const gates = excite_gates<Veu, NARROW, Args>(task, args, image);
      gate.x = gates[in_block];
      if constexpr (kVector == 4) gate = *reinterpret_cast<const float4*>(gates + in_block);
      has_gate = true;
    }
#pragma unroll 1
    for (uint32_t turn = 0; turn < kExciteAhead && first < end; ++turn, first += kPixels) {
      const float4 x = values[0].floats();
      Out* const to = out + offset(first, out_row, out_column);
      const float4 v = rounding.of(x, gate);
      if constexpr (kVector == 4)
        store_left(to, left, v);
      else
        store1(to, v.x);
#pragma unroll
      for (int i = 0; i + 1 < kExciteAhead; ++i) values[i] = values[i + 1];
    }
  } while (first < end);
}

template <class Veu, int kVector, bool NARROW, class In = float, class Out = float>
RK_BODY void excite(const Task<Veu>& task) {
  excite_map<Veu, kVector, NARROW, ExciteArgs, In, Out>(task);
}
template <class Veu, int kVector, bool NARROW, class In = float, class Out = float>
RK_BODY void excite_of_sums(const Task<Veu>& task) {
  static_assert(NARROW);
  excite_map<Veu, kVector, NARROW, ExciteOfSumsArgs, In, Out>(task);
}

template <class Veu, int kVector, class In = float, class Out = float>
RK_BODY void excite_rounded(const Task<Veu>& task) {
  excite_map<Veu, kVector, true, RoundedExciteArgs, In, Out>(task);
}
template <class Veu, int kVector, class In = float, class Out = float>
RK_BODY void excite_rounded_of_sums(const Task<Veu>& task) {
  excite_map<Veu, kVector, true, RoundedOfSumsArgs, In, Out>(task);
}

}  // namespace rk
