// The rows of a share times a warp's slice of x or h, in fp32. As many weights of R as fit stay in registers, further weights of R and W
// in shared memory; the rest is read again in each step. How rows and elements go to lanes: GangShape (recurrent_gang_shape.cuh).
#pragma once

#include "kernels/recurrent/recurrent_gang_slice.cuh"
#include "kernels/vdevice/half.cuh"

namespace rk {

template <class S>
struct GangProduct {
  static constexpr int kRows = S::kLaneRows;
  // With only one or two sums a lane, each multiply-add would wait for the one before, so the four elements of a chunk get own sums.
  static constexpr int kSums = kRows * S::kBatch == 1 ? 4 : kRows * S::kBatch == 2 ? 2 : 1;
  static constexpr bool kApart = S::kKind == kGru;  // the candidate's two products
  using Sums = float[kRows][S::kBatch][kSums];

  static constexpr int kRowStep = kWarp * S::kLaneWords, kLaneStep = S::kLaneWords;

  // Four weights of a row as they are in memory. They become floats only where they are used, so that many loads can be under way.
  struct Floats {
    float4 v;
    RK_INLINE float4 floats() const { return v; }
    static RK_INLINE Floats shared(const float* p) { return {*reinterpret_cast<const float4*>(p)}; }
    static RK_INLINE Floats again(const float* p) { return {load_weight4(p)}; }
  };
  struct Halves {
    uint2 v;
    RK_INLINE float4 floats() const {
      constexpr bool is_half = S::kWeights == kHalves;
      const float2 a = is_half ? floats_of_halves(v.x) : floats_of_bfloats(v.x),
                   b = is_half ? floats_of_halves(v.y) : floats_of_bfloats(v.y);
      return float4{a.x, a.y, b.x, b.y};
    }
    static RK_INLINE Halves shared(const float* p) { return {*reinterpret_cast<const uint2*>(p)}; }
    static RK_INLINE Halves again(const float* p) { return {load_weight2(reinterpret_cast<const uint2*>(p))}; }
  };
  using Weights = std::conditional_t<S::kWeights == kFloats, Floats, Halves>;

  float4 registers[S::kRegisters > 0 ? S::kRegisters : 1][kRows];
  Sums sums;
  Sums input_sums;  // used with kApart only

  // Fetches the weights that shared memory holds; they are there after cp_async_commit, cp_async_wait and sync_compute.
  RK_INLINE void fetch_shared(const float* image, float* work) const {
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x) * 4; i < S::kBiasAt; i += kGangThreads * 4)
      cp_async16(work + i, image + S::kImageShared + i, true);
  }

  // Loads the weights that registers hold.
  RK_INLINE void load_registers(const float* image) {
    const float* const own = image + warp_id() * (S::kRegisters * S::kChunkFloats) + lane_id() * kLaneStep;
#pragma unroll
    for (int q = 0; q < S::kRegisters; ++q) {
#pragma unroll
      for (int j = 0; j < kRows; ++j) registers[q][j] = Weights::again(own + q * S::kChunkFloats + j * kRowStep).floats();
    }
  }

  RK_INLINE void clear() {
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
#pragma unroll
      for (int b = 0; b < S::kBatch; ++b) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) sums[j][b][i] = input_sums[j][b][i] = 0.0f;
      }
    }
  }

  static RK_INLINE float4 load_shared(const float* p) { return *reinterpret_cast<const float4*>(p); }

  static RK_INLINE void add_row(Sums& to, int j, int b, const float4& w, const float4& v) {
    float(&sum)[kSums] = to[j][b];
    sum[0] = fmaf(w.x, v.x, sum[0]);
    sum[1 % kSums] = fmaf(w.y, v.y, sum[1 % kSums]);
    sum[2 % kSums] = fmaf(w.z, v.z, sum[2 % kSums]);
    sum[3 % kSums] = fmaf(w.w, v.w, sum[3 % kSums]);
  }
  // Adds one chunk; `in` points to this lane's four elements of the chunk in the stage.
  static RK_INLINE void add(Sums& to, const float4 (&w)[kRows], const float* in, int slice) {
#pragma unroll
    for (int b = 0; b < S::kBatch; ++b) {
      const float4 v = load_shared(in + b * slice);
#pragma unroll
      for (int j = 0; j < kRows; ++j) add_row(to, j, b, w[j], v);
    }
  }

  static RK_INLINE void add_stored(Sums& to, const Weights (&w)[kRows], const float* in, int slice) {
    float4 floats[kRows];
#pragma unroll
    for (int j = 0; j < kRows; ++j) floats[j] = w[j].floats();
    add(to, floats, in, slice);
  }

  static RK_INLINE void fetch_again(Weights (&w)[kRows], const float* from) {
#pragma unroll
    for (int j = 0; j < kRows; ++j) w[j] = Weights::again(from + j * kRowStep);
  }

  // Chunks from shared memory. As soon as a row's weights are used, the weights of the next chunk are loaded into the same registers.
  struct Reader {
    const float *weights, *in;
    Weights w[kRows];
    float4 v[S::kBatch];

    template <int kSlice>
    RK_INLINE void begin() {
#pragma unroll
      for (int j = 0; j < kRows; ++j) w[j] = Weights::shared(weights + j * kRowStep);
#pragma unroll
      for (int b = 0; b < S::kBatch; ++b) v[b] = load_shared(in + b * kSlice);
    }
    // All but the last of kCount + 1 chunks.
    template <int kSlice, int kCount>
    RK_INLINE void add_and_fetch(Sums& to) {
#pragma unroll 1
      for (int q = 0; q < kCount; ++q) {
        weights += S::kChunkFloats;
        in += S::kChunk;
        float4 next[S::kBatch];
#pragma unroll
        for (int b = 0; b < S::kBatch; ++b) next[b] = load_shared(in + b * kSlice);
#pragma unroll
        for (int j = 0; j < kRows; ++j) {
          const float4 floats = w[j].floats();
#pragma unroll
          for (int b = 0; b < S::kBatch; ++b) add_row(to, j, b, floats, v[b]);
          w[j] = Weights::shared(weights + j * kRowStep);
        }
#pragma unroll
        for (int b = 0; b < S::kBatch; ++b) v[b] = next[b];
      }
    }
    RK_INLINE void end(Sums& to) const {
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        const float4 floats = w[j].floats();
#pragma unroll
        for (int b = 0; b < S::kBatch; ++b) add_row(to, j, b, floats, v[b]);
      }
    }
  };
  // between(0) is called once in about the middle of the chunks, between(1) once after about three quarters of them.
  template <int kChunks, int kSlice, class Between>
  static RK_INLINE void add_shared(Sums& to, const float* weights, const float* in, const Between& between) {
    if constexpr (kChunks == 0) {
      between(GangNumber<0>{});
      between(GangNumber<1>{});
    } else {
      constexpr int kMiddle = (kChunks - 1) / 2, kLate = (kChunks - 1) * 3 / 4;
      Reader reader{weights, in, {}, {}};
      reader.template begin<kSlice>();
      reader.template add_and_fetch<kSlice, kMiddle>(to);
      between(GangNumber<0>{});
      reader.template add_and_fetch<kSlice, kLate - kMiddle>(to);
      between(GangNumber<1>{});
      reader.template add_and_fetch<kSlice, kChunks - 1 - kLate>(to);
      reader.end(to);
    }
  }

  // kChunks chunks from global memory, the next two on their way.
  template <int kChunks>
  static RK_INLINE void add_stream(Sums& to, const float* weights, const float* in, int slice) {
    if constexpr (kChunks > 0) {
      Weights w[2][kRows];
      fetch_again(w[0], weights);
      if (kChunks > 1) fetch_again(w[1], weights + S::kChunkFloats);
#pragma unroll 1
      for (int q = 0; q < kChunks; q += 2) {
        add_stored(to, w[0], in + q * S::kChunk, slice);
        if (q + 2 < kChunks) fetch_again(w[0], weights + (q + 2) * S::kChunkFloats);
        if (q + 1 < kChunks) add_stored(to, w[1], in + (q + 1) * S::kChunk, slice);
        if (q + 3 < kChunks) fetch_again(w[1], weights + (q + 3) * S::kChunkFloats);
      }
    }
  }

  static RK_INLINE int split() { return lane_id() / S::kRowLanes; }

  template <class Between>
  RK_INLINE void add_input(const float* image, const float* work, const float* stage, const Between& between) {
    const float* const in = stage + split() * 4;
    Sums& to = kApart ? input_sums : sums;
    add_shared<S::kSharedX, S::kSliceX>(to, work + S::kSharedWAt + warp_id() * (S::kSharedX * S::kChunkFloats) + lane_id() * kLaneStep, in,
                                        between);
    add_stream<S::kStreamX>(to, image + S::kImageStreamW + warp_id() * (S::kStreamX * S::kChunkFloats) + lane_id() * kLaneStep,
                            in + S::kSharedX * S::kChunk, S::kSliceX);
  }

  RK_INLINE void add_hidden(const float* image, const float* work, const float* stage) {
    const float* in = stage + split() * 4;
#pragma unroll
    for (int q = 0; q < S::kRegisters; ++q) add(sums, registers[q], in + q * S::kChunk, S::kSliceH);
    in += S::kRegisters * S::kChunk;
    add_shared<S::kSharedH, S::kSliceH>(sums, work + warp_id() * (S::kSharedH * S::kChunkFloats) + lane_id() * kLaneStep, in, [](auto) {});
    in += S::kSharedH * S::kChunk;
    add_stream<S::kStreamH>(sums, image + S::kImageStream + warp_id() * (S::kStreamH * S::kChunkFloats) + lane_id() * kLaneStep, in,
                            S::kSliceH);
  }

  static RK_INLINE float total(const float (&sum)[kSums]) {
    return kSums == 4 ? (sum[0] + sum[1 % kSums]) + (sum[2 % kSums] + sum[3 % kSums]) : kSums == 2 ? sum[0] + sum[1 % kSums] : sum[0];
  }
  // The sum over those splits of the warp that share a slot.
  static RK_INLINE float of_slot(float v) {
#pragma unroll
    for (int step = S::kRowLanes; step * S::kSlotsOfWarp < kWarp; step *= 2) v += __shfl_xor_sync(kFullMask, v, step);
    return v;
  }

  // Stores this warp's part of each row's sum to the partial sums [batch][slot][row].
  // Example: with SPLIT 4 the splits of a row are 8 lanes apart, and a warp has two slots: lanes 0 to 7 store the sums of splits 0 and 1
  // to slot 2 w, lanes 16 to 23 those of splits 2 and 3 to slot 2 w + 1.
  RK_INLINE void store(float* partial) {
    constexpr int kSplitsOfSlot = S::kSplit / S::kSlotsOfWarp;
    const bool writes = split() % kSplitsOfSlot == 0;
    float* const to = partial + (warp_id() * S::kSlotsOfWarp + split() / kSplitsOfSlot) * S::kSlotStride;
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      const int row = lane_id() % S::kRowLanes + j * S::kRowLanes;
      const bool is_candidate = kApart && row % S::kGates == 2;
#pragma unroll
      for (int b = 0; b < S::kBatch; ++b) {
        float* const of_row = to + b * (S::kSlots * S::kSlotStride);
        float sum = total(sums[j][b]);
        if constexpr (kApart) {
          const float input = of_slot(total(input_sums[j][b]));
          sum = of_slot(sum);
          if (writes && is_candidate && row / S::kGates < S::kUnits) of_row[S::kRows + row / S::kGates] = input;
          sum = is_candidate ? sum : sum + input;
        } else {
          sum = of_slot(sum);
        }
        if (writes) of_row[row] = sum;
      }
    }
  }
};

}  // namespace rk
