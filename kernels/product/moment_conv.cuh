// The product of staged_conv.cuh beside a normalisation that is no level of its own (NormalizeBy and Moments of compiler/ir/ops.h).
//   out[m][n] = act(bias[n] + residual[m][n] + factor[m] * (sum over k of in[m][k] * weight[k][n] - mean[m] * column_sum[n]))
// Normalising the rows of `in` is linear in them, apart from mean and factor = 1 / sqrt(variance + epsilon). So the product takes the rows
// as they are, and its results are put right. Mean and variance of a row come from moments that whoever made the row has stored: of each
// kMomentColumns neighbours the mean, and the sum of the squares around it. They are loaded when the inputs are there and used behind the
// loop, so they cost no time of their own. column_sum[n] is the sum of the weights of column n as they were rounded, so a row of equal
// values gives no more than what the sum over k rounds, times the factor.
//
// In a program of tf32 `in` is fp16 that was rounded from rows of fp32, which lie beside it (EXACT). A row of which fp16 holds too little
// has wrong sums: values may be infinite, or small beside their mean. So its factor is stored as a negative number, and a thread that finds
// one among its results computes them again, from the row of fp32 and the weights in global memory, channel by channel. That takes some 20
// times as long (docs/adr/0045). ROUNDS: results of fp32 are stored a second time, in fp16, for such a product.
//
// SHARERS threads share the moments of a row, PARTS each (0: the rows are not normalised). Mean and squares are combined by Chan's formula,
// in a fixed order. KEEPS: the moments of the results are stored. Eight lanes have 32 neighbouring channels of a row.
//
// Example: 64 channels by 64 rows, 768 k, which are 24 moments a row. Four threads share a row, PARTS is 6: thread 77 has moments 6 to 11
// of row 19. A body of 32 x 32 that keeps moments: thread 77 has channels 20 to 23 (77 % 8 * 4) of row 9, and with threads 72 to 79 the
// moments of its 32 channels, which thread 72 stores.
#pragma once

#include "kernels/product/staged_conv.cuh"
#include "kernels/tile/moments.cuh"
#include "kernels/vdevice/control.cuh"

namespace rk {

struct MomentConvArgs {  // in tables
  StagedConvArgs conv;
  TensorRef column_sums;  // of each output channel, in the order of the bias
  TensorRef taken, kept;  // moments [row][part]{mean, squares} of the input's rows and of the results' rows
  int32_t kept_parts;     // of a row
  float inverse_k, epsilon;
  int32_t centered;                  // 0: the mean is not taken away
  TensorRef exact;                   // rows of fp32 without gaps
  TensorRef weights;                 // as the ring brings them, [block of channels][step of 64 k][row of 128 bytes]
  int32_t exact_cells, block_cells;  // of 8 k: in a row of `exact`; of 16 bytes: in a block of weights
  TensorRef rounded;                 // as out
};

// What a normalisation makes of sums. Behind the sums of each row, where bank conflicts want a gap anyway, lie -mean * factor and factor;
// or behind the input stages where sums lie in these, since they are known before the last products are.
template <class Veu, class Product>
struct RowNorm {
  static constexpr bool kNormalizes = true;
  float4 column_sums;  // of the thread's channels

  RK_INLINE static int place(int row) { return Veu::kProductsOverInputs ? row * 8 : (row * Product::kPitch + Product::kChannels) * 4; }
  template <class Char>
  RK_INLINE static Char* rows(Char* sums) {
    return Veu::kProductsOverInputs ? behind_inputs<Veu>() : sums;
  }
  RK_INLINE float4 of(const float4& sum, const float4& bias, const char* sums, int p) const {
    const float2 row = load_shared2(rows(sums), place(p));
    return {fmaf(sum.x, row.y, fmaf(row.x, column_sums.x, bias.x)), fmaf(sum.y, row.y, fmaf(row.x, column_sums.y, bias.y)),
            fmaf(sum.z, row.y, fmaf(row.x, column_sums.z, bias.z)), fmaf(sum.w, row.y, fmaf(row.x, column_sums.w, bias.w))};
  }
};

// Whether a row may be read as fp16, relative to which `v` = variance + epsilon and the mean are: no value is infinite, since the squares
// of all add up to less than 46341 squared; what halves below 2^-14 have lost is less than what normalised values lose by rounding; and so
// is what values have lost whose mean is taken away, within a factor of sqrt(1 + 4).
RK_INLINE bool holds_row(float mean, float v, float inverse_k, float centered) {
  const float square = mean * mean;
  return centered * square <= 4.0f * v && square + v <= 0x1p31f * inverse_k && v >= 0x1p-26f;
}

template <class Veu, class Product, bool KEEPS, int PARTS, int SHARERS, bool ROUNDS, bool EXACT>
struct MomentResults : StagedResults<Veu, Product, std::conditional_t<(PARTS > 0), RowNorm<Veu, Product>, NoNorm>> {
  using Base = StagedResults<Veu, Product, std::conditional_t<(PARTS > 0), RowNorm<Veu, Product>, NoNorm>>;
  static constexpr int kRowThreads = threads_of_row(Veu::kComputeThreads, Product::kPixels);
  static_assert(Base::kAhead, "sums of one round");
  static_assert(!KEEPS || (Base::kChannelThreads % 8 == 0 && Product::kChannels % kMomentColumns == 0));
  static_assert(!Product::Of::kScales, "sums of tf32 have scales");
  static_assert(!ROUNDS || (KEEPS && sizeof(typename Base::Value) == 4));
  static_assert(!EXACT || (PARTS > 0 && !KEEPS));

  float2 moment[PARTS > 0 ? PARTS : 1];
  const float2* taken;  // the thread's first moment; null where there is no such row
  float2* kept;         // where the thread's moments of the tile's first row are stored
  Half* rounded;
  float inverse_k, epsilon, centered;
  int kept_parts;

  RK_INLINE static int row() { return static_cast<int>(threadIdx.x) / kRowThreads; }
  RK_INLINE void start(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) {
    Base::start(task, args, tile);
    const MomentConvArgs& own = task.template arguments<MomentConvArgs>();
    if constexpr (PARTS > 0) {
      this->norm.column_sums =
          load_weight4(task.address(own.column_sums) + (static_cast<int>(tile.n_block) * Product::kChannels + Base::column()));
      const int at = static_cast<int>(tile.w) + row();
      taken = nullptr;
#pragma unroll
      for (float2& m : moment) known_now(m.x = 0.0f), known_now(m.y = 0.0f);
      if (row() < args.pixels && at < args.grid_w)
        taken = reinterpret_cast<const float2*>(task.address(own.taken)) +
                (at * (SHARERS * PARTS) + static_cast<int>(threadIdx.x) % SHARERS * PARTS);
      inverse_k = own.inverse_k;
      epsilon = own.epsilon;
      centered = own.centered != 0 ? 1.0f : 0.0f;
    }
    if constexpr (ROUNDS) rounded = values_at<Half>(task, own.rounded) + (this->out - values_at<typename Base::Value>(task, args.out));
    if constexpr (KEEPS) {
      kept_parts = own.kept_parts;
      kept = reinterpret_cast<float2*>(task.address(own.kept)) +
             ((static_cast<int>(tile.w) + Base::pixel(0)) * kept_parts + this->channel / kMomentColumns);
    }
  }
  RK_INLINE void fetch(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) {
    Base::fetch(task, args, tile);
    if constexpr (PARTS > 0) {
      if (taken == nullptr) return;
#pragma unroll
      for (int i = 0; i < PARTS; ++i) moment[i] = *as_global(taken + i);
    }
  }
  // Leaves what RowNorm wants of the row in shared memory, before finish_staged's barrier.
  RK_INLINE void meanwhile() {
    if constexpr (PARTS > 0) {
      float mean = mean_of(moment), squares = squares_around(mean, moment);
      // Each thread has mean and squares of as many values as the other.
#pragma unroll
      for (int step = 1; step < SHARERS; step *= 2) {
        const float other = __shfl_xor_sync(kFullMask, mean, step), apart = mean - other;
        squares += fmaf(apart * apart, 0.5f * (step * PARTS * kMomentColumns), __shfl_xor_sync(kFullMask, squares, step));
        mean = 0.5f * (mean + other);
      }
      squares = fmaf(squares, inverse_k, (1.0f - centered) * (mean * mean) + epsilon);
      float factor = rsqrtf(squares), shift = -mean * centered * factor;
      if (EXACT && !holds_row(mean, squares, inverse_k, centered)) shift = mean * centered, factor = -factor;
      if (threadIdx.x % kRowThreads == 0 && row() < Product::kPixels)
        store_shared2(RowNorm<Veu, Product>::rows(this->work), RowNorm<Veu, Product>::place(row()), {shift, factor});
    }
  }
  RK_INLINE void finish(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const char* sums, int round) {
    if constexpr (KEEPS)
      finish_and_keep(sums);
    else
      Base::finish(task, args, tile, sums, round);
    if constexpr (EXACT) {
      bool holds = true;
#pragma unroll
      for (int i = 0; i < Base::kOutputs; ++i) holds &= this->to[i] < 0 || row_of(sums, i).y > 0.0f;
      if (!holds) compute_again(task, args, tile, sums);
    }
  }

 private:
  RK_INLINE float2 row_of(const char* sums, int i) const {
    return load_shared2(RowNorm<Veu, Product>::rows(sums), RowNorm<Veu, Product>::place(this->pixel(i)));
  }
  // Results of rows that fp16 does not hold. Example: of 64 channels by 64 rows, 384 k, thread 37 has channels 20 to 23 of rows 2, 18, 34
  // and 50. In a step of weights channel 20 is row 20 / 4 = 5 of 128 bytes, and 21 to 23 are 8, 16 and 24 rows behind it
  // (staged_conv_pack). Values 8 to 15 of k are cell 1, which lies at place 1 ^ 5 = 4.
  RK_INLINE void compute_again(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const char* sums) const {
    const MomentConvArgs& own = task.template arguments<MomentConvArgs>();
    const int cells = own.exact_cells, first = Base::column() / 32 * 32 + Base::column() % 32 / 4;
    const float4* const weights =
        reinterpret_cast<const float4*>(task.address(own.weights)) + (static_cast<int>(tile.n_block) * own.block_cells + first * 8);
#pragma unroll 1
    for (int p = this->pixel(0); p < args.pixels; p += Base::kPixelThreads) {
      const float2 row = load_shared2(RowNorm<Veu, Product>::rows(sums), RowNorm<Veu, Product>::place(p));
      if (row.y > 0.0f || this->left <= 0 || p + static_cast<int>(tile.w) >= args.grid_w) continue;
      const float4* const values = reinterpret_cast<const float4*>(task.address(own.exact)) + (p + static_cast<int>(tile.w)) * (cells * 2);
      float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
      for (int cell = 0; cell < cells; ++cell) {
        const float4 low = normal(as_global(values + cell * 2)[0], row), high = normal(as_global(values + cell * 2)[1], row);
        const float4* const at = weights + (cell / 8 * (Product::kChannels * kBoxRowBytes / 16) + ((cell ^ first) & 7));
        sum.x = dot8(sum.x, low, high, load_weight4(reinterpret_cast<const float*>(at)));
        sum.y = dot8(sum.y, low, high, load_weight4(reinterpret_cast<const float*>(at + 64)));
        sum.z = dot8(sum.z, low, high, load_weight4(reinterpret_cast<const float*>(at + 128)));
        sum.w = dot8(sum.w, low, high, load_weight4(reinterpret_cast<const float*>(at + 192)));
      }
      float4 r = {0.0f, 0.0f, 0.0f, 0.0f};
      if (args.epilogue.residual.base != kNullBase)
        r = load_channels4(staged_residual<typename Base::Added>(task, args, tile, this->channel) +
                               p * static_cast<int>(args.epilogue.residual_strides[3]),
                           static_cast<int>(args.epilogue.residual_strides[1]), args.vector_residual != 0, this->left);
      store_channels4(this->out + p * args.out_strides.w, args.out_strides.channel, args.vector_out != 0, this->left,
                      finish4(args.epilogue, add4(sum, this->bias), r));
    }
  }
  RK_INLINE static float4 normal(const float4& v, const float2& row) {
    return {(row.x - v.x) * row.y, (row.x - v.y) * row.y, (row.x - v.z) * row.y, (row.x - v.w) * row.y};
  }
  RK_INLINE static float dot8(float sum, const float4& low, const float4& high, const float4& weights) {
    const auto add = [&](float a, float b, float pair) {
      const float2 w = floats_of<Half>(bits_of(pair));
      sum = fmaf(a, w.x, fmaf(b, w.y, sum));
    };
    add(low.x, low.y, weights.x);
    add(low.z, low.w, weights.y);
    add(high.x, high.y, weights.z);
    add(high.z, high.w, weights.w);
    return sum;
  }
  // Results as they are: neither an activation nor a residual that lies apart.
  RK_INLINE void finish_and_keep(const char* sums) const {
#pragma unroll
    for (int i = 0; i < Base::kOutputs; ++i) {
      const float4 v = as_stored<typename Base::Value>(add4(this->sum_of(sums, this->pixel(i)), this->residual[i].floats()));
      const float2 moments = moments_of(v);
      if (this->to[i] < 0) continue;
      store4(this->out + this->to[i], v);
      if constexpr (ROUNDS) store4(rounded + this->to[i], v);
      if (threadIdx.x % 8 == 0) *as_global(kept + i * (Base::kPixelThreads * kept_parts)) = moments;
    }
  }
};

template <bool KEEPS, int PARTS, int SHARERS, bool ROUNDS, bool EXACT>
struct MomentKind {
  template <class Veu, class Product>
  using Results = MomentResults<Veu, Product, KEEPS, PARTS, SHARERS, ROUNDS, EXACT>;
};

template <class Veu, class Math, int MT, int NT, int WARPS_M, int WARPS_N, int STAGE_STEPS, bool KEEPS, int PARTS, int SHARERS,
          bool ROUNDS = false, bool EXACT = false>
RK_INLINE void moment_conv(const Task<Veu>& task) {
  StagedWay<Veu, Math, MT, NT, WARPS_M, WARPS_N, STAGE_STEPS, MomentKind<KEEPS, PARTS, SHARERS, ROUNDS, EXACT>>::run(task);
}

}  // namespace rk
