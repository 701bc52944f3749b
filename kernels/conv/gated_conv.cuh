// A ChannelExcite with a convolution behind it (compiler/ir/gated_conv.h): the pointwise convolution of staged_conv.cuh, whose inputs are
// multiplied by gates on their way from shared memory to the tensor cores. When a rTask's first boxes are there, it adds up the hidden
// values as kernels/excite/excite.cuh does, and computes the gates of all channels that its steps read, for there are no others to come.
// The gates' weights come through the ring, ahead of those of the convolution; so both are under way while the rTask waits. All pixels of a
// tile belong to one image.
//
// A body of its own, as summed_conv is: other convolutions have none of this. The products are by mma, since wgmma takes pixels from shared
// memory as they lie.
//
// Gates lie in shared memory in the order in which lanes read them: [step][team][unit][lane % 4], and there the gates of the channels whose
// pixels the lane has in a unit; a lane reads them at once. The host packs the weights in this order, with weights of zero where a step has
// no channel, so that the body has no table. Example: tf32, one team, warp 1 of two warps on k, lane 6, step 3, inputs of more than 128
// channels. A box of 32 channels has 4 units of 8, of which the warp has units 1 and 3, and the lane channels 2 and 6 of each (6 % 4, and 4
// further). So its gates of unit 1 are those of channels 3 * 32 + 8 + 2 = 106 and 110. They are number 3 * 32 + 8 + 2 * 2 = 108 and 109.
//
// Example of the gates' weights: 20 hidden values are 3 cells of 8, and a gate has 3 * 16 + 8 = 56 bytes. Chunks of 4096 bytes hold 64
// gates (whole warps of them; 73 would fit); with 4 threads to a gate, thread 9 adds up cell 1 (9 % 4) of gate 2 (9 / 4).
#pragma once

#include "kernels/conv/staged_conv.cuh"
#include "kernels/excite/excite.cuh"

namespace rk {

struct GatedConvArgs {
  StagedConvArgs conv;
  TensorRef sums, hidden_bias;
  int32_t sums_image, sums_part, parts;
  int32_t hidden, padded_hidden, cells;
  int32_t sums_lanes_log2, lanes_log2;  // threads that share a part, four hidden values each; threads that share a gate
  int32_t gates, chunk_gates, chunks;   // gates: of a rTask; chunks: of the ring
  ExciteActivation hidden_activation, gate;
};
static_assert(sizeof(GatedConvArgs) <= 768, "an argument slot has 768 bytes");

// The gates of a lane and a unit, and how they meet the words that ldmatrix gives: those of k 0-3, 4-7, .. of one n-tile, and of the next.
template <class Math>
struct GateMath {
  static constexpr int kLoads = StagedMath<Math>::kLoads, kValueBytes = 4, kLaneBytes = 8 * kLoads;
  struct Lane {
    float of[2 * kLoads];
  };
  RK_INLINE static Lane load(const char* gates, int at) {
    if constexpr (kLoads == 1) {
      const float2 v = load_shared2(gates, at);
      return {v.x, v.y};
    } else {
      const float4 v = load_shared4(gates, at);
      return {v.x, v.y, v.z, v.w};
    }
  }
  RK_INLINE static void apply(uint32_t (&words)[kLoads][4], const Lane& lane) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int w = 0; w < 4; ++w) words[i][w] = bits_of(float_of(words[i][w]) * lane.of[2 * i + w % 2]);
    }
  }
  RK_INLINE static void store(char* gates, int gate, float v) { reinterpret_cast<float*>(gates)[gate] = v; }
};
// Inputs of 16 bits: words and gates are pairs.
template <class Value>
struct NarrowGateMath {
  static constexpr int kValueBytes = 2, kLaneBytes = 8;
  struct Lane {
    uint32_t of[2];
  };
  RK_INLINE static Lane load(const char* gates, int at) {
    const float2 v = load_shared2(gates, at);
    return {bits_of(v.x), bits_of(v.y)};
  }
  RK_INLINE static void apply(uint32_t (&words)[1][4], const Lane& lane) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      if constexpr (std::is_same_v<Value, Half>)
        words[0][w] = product_of_halves(words[0][w], lane.of[w % 2]);
      else
        words[0][w] = product_of_bfloats(words[0][w], lane.of[w % 2]);
    }
  }
  RK_INLINE static void store(char* gates, int gate, float v) {
    reinterpret_cast<uint16_t*>(gates)[gate] = static_cast<uint16_t>(pair_of<Value>(v, 0.0f));
  }
};
template <class Out>
struct GateMath<Narrow<Half, Out>> : NarrowGateMath<Half> {};
template <class Out>
struct GateMath<Narrow<Bfloat, Out>> : NarrowGateMath<Bfloat> {};

template <class Veu, class Math, int MT, int NT, int WARPS_M, int WARPS_N>
struct GatedProduct : StagedProduct<Veu, Math, MT, NT, WARPS_M, WARPS_N> {
  using Base = StagedProduct<Veu, Math, MT, NT, WARPS_M, WARPS_N>;
  using Of = typename Base::Of;
  using Gates = GateMath<Math>;
  static constexpr bool kGated = true;
  static constexpr int kUnitGateBytes = 4 * Gates::kLaneBytes, kStepGateBytes = Base::kTeams * Of::kUnits * kUnitGateBytes;
  static constexpr int kGatesAt = Base::kWarpsK * Base::kSumBytes;  // in the work region, behind the sums
  static_assert(Base::kRounds == 1);

  const char* gates;  // in shared memory
  int lane_gates;     // byte of the lane's gates of the next step

  // Computes the gates. `weights` moves on to the chunks of the convolution.
  RK_INLINE void open_gates(const Task<Veu>& task, const StagedTile& tile, WeightStages<Veu>& weights) {
    const GatedConvArgs& args = task.template arguments<GatedConvArgs>();
    const int thread = static_cast<int>(threadIdx.x), cells = args.cells, lanes = 1 << args.lanes_log2;
    float* const rows = task.template work_as<float>();
    float* const hidden = rows + kComputeWarps * args.padded_hidden;
    char* const made = task.work + kGatesAt;
    gates = made;
    lane_gates = (Base::team() * Of::kUnits + Base::warp_k() % Base::kTeamWarps) * kUnitGateBytes + lane_id() % 4 * Gates::kLaneBytes;
    const bool is_hidden = thread < args.hidden;
    float bias = 0.0f;
    if (is_hidden && args.hidden_bias.base != kNullBase) bias = load_weight1(task.address(args.hidden_bias) + thread);
    const float* const from = task.address(args.sums) + static_cast<int64_t>(tile.image) * args.sums_image;
    const int row_count = excite_sum<Veu>({args.padded_hidden, args.parts, args.sums_part, args.sums_lanes_log2}, from, rows);
    sync_compute<Veu>();
    float value = 0.0f;
    if (is_hidden) value = excite_hidden_value(args.hidden_activation, bias, rows, row_count, args.padded_hidden, thread);
    if (thread < cells * kExciteCell) hidden[thread] = value;
    sync_compute<Veu>();
#pragma unroll 1
    for (int chunk = 0; chunk < args.chunks; ++chunk) {
      const char* const stage = weights.stages + weights.base;
      const ExciteColumn* const columns = reinterpret_cast<const ExciteColumn*>(stage + args.chunk_gates * cells * 16);
      const int first = chunk * args.chunk_gates, count = min(args.chunk_gates, args.gates - first);
#pragma unroll 1
      for (int i = thread >> args.lanes_log2; i < count; i += Veu::kComputeThreads >> args.lanes_log2) {
        const uint4* const products = reinterpret_cast<const uint4*>(stage) + i * cells;
        float low = 0.0f, high = 0.0f;
#pragma unroll 2
        for (int cell = thread & (lanes - 1); cell < cells; cell += lanes) {
          const uint4 pairs = products[cell];
          const float4* const of_cell = reinterpret_cast<const float4*>(hidden) + cell * 2;
          low = excite_dot(low, of_cell[0], excite_four(pairs.x, pairs.y));
          high = excite_dot(high, of_cell[1], excite_four(pairs.z, pairs.w));
        }
        float sum = low + high;
#pragma unroll 1
        for (int step = 1; step < lanes; step *= 2) sum += __shfl_xor_sync(kFullMask, sum, step);
        const ExciteColumn column = columns[i];
        const float v = excite_activate(args.gate.kind, fmaf(sum, column.scale, column.bias), args.gate.a, args.gate.b);
        if ((thread & (lanes - 1)) == 0) Gates::store(made, first + i, v);
      }
      weights.release();
      weights.acquire();
    }
    sync_compute<Veu>();
  }

  // As StagedProduct::steps.
  template <int STEPS>
  RK_INLINE void steps(const char* inputs, int box, const char* stages, int weights, int (&rows)[Base::kBatch], const int16_t* table,
                       int next_row) {
    typename Base::Operands o[STEPS];
    typename Gates::Lane lane[STEPS][Base::kWarpUnits];
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      this->load(o[s], inputs, box, stages, weights + s * Base::kStepBytes, rows[s]);
#pragma unroll
      for (int unit = 0; unit < Base::kWarpUnits; ++unit)
        lane[s][unit] = Gates::load(gates, lane_gates + s * kStepGateBytes + unit * Base::kTeamWarps * kUnitGateBytes);
    }
    lane_gates += STEPS * kStepGateBytes;
    Base::load_rows(rows, table, next_row);
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
#pragma unroll
      for (int unit = 0; unit < Base::kWarpUnits; ++unit) {
#pragma unroll
        for (int p = 0; p < Base::kPairs; ++p) Gates::apply(o[s].b[unit][p], lane[s][unit]);
      }
      this->multiply(o[s]);
    }
  }
};

template <class Veu, class Math, int MT, int NT, int WARPS_M, int WARPS_N>
RK_BODY void gated_conv(const Task<Veu>& task) {
  staged_rtask<Veu, GatedProduct<Veu, Math, MT, NT, WARPS_M, WARPS_N>>(task);
}

}  // namespace rk
