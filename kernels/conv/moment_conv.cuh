// MomentMatMul (compiler/ir/ops.h): the product of staged_conv.cuh beside a normalisation that is no level of its own.
//   out[m][n] = act(bias[n] + residual[m][n] + factor[m] * (sum over k of in[m][k] * weight[k][n] - mean[m] * column_sum[n]))
// Normalising the rows of `in` is linear in them, apart from mean and factor = 1 / sqrt(variance + epsilon). So the product takes the rows
// as they are, and its results are put right. Mean and variance of a row come from moments that whoever made the row has stored: of each
// kMomentColumns neighbours the mean, and the sum of the squares around it. They are loaded when the inputs are there and used behind the
// loop, so they cost no time of their own. column_sum[n] is the sum of the weights of column n as they were rounded, so a row of equal
// values gives no more than what the sum over k rounds, times the factor.
//
// SHARERS threads share the moments of a row, PARTS each (0: the rows are not normalised). Mean and squares are combined by Chan's formula,
// in a fixed order. KEEPS: the moments of the results are stored. Eight lanes have 32 neighbouring channels of a row.
//
// Example: 64 channels by 64 rows, 768 k, which are 24 moments a row. Four threads share a row, PARTS is 6: thread 77 has moments 6 to 11
// of row 19. A body of 32 x 32 that keeps moments: thread 77 has channels 20 to 23 (77 % 8 * 4) of row 9, and with threads 72 to 79 the
// moments of its 32 channels, which thread 72 stores.
#pragma once

#include "kernels/conv/moments.cuh"
#include "kernels/conv/staged_conv.cuh"
#include "kernels/vdevice/control.cuh"

namespace rk {

struct MomentConvArgs {
  StagedConvArgs conv;
  TensorRef column_sums;  // of each output channel, in the order of the bias
  TensorRef taken, kept;  // moments [row][part]{mean, squares} of the input's rows and of the results' rows
  int32_t kept_parts;     // of a row
  float inverse_k, epsilon;
  int32_t centered;  // 0: the mean is not taken away
};
static_assert(sizeof(MomentConvArgs) <= 768, "an argument slot has 768 bytes");

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

template <class Veu, class Product, bool KEEPS, int PARTS, int SHARERS>
struct MomentResults : StagedResults<Veu, Product, std::conditional_t<(PARTS > 0), RowNorm<Veu, Product>, NoNorm>> {
  using Base = StagedResults<Veu, Product, std::conditional_t<(PARTS > 0), RowNorm<Veu, Product>, NoNorm>>;
  static constexpr int kRowThreads = threads_of_row(Veu::kComputeThreads, Product::kPixels);
  static_assert(Base::kAhead, "sums of one round");
  static_assert(!KEEPS || (Base::kChannelThreads % 8 == 0 && Product::kChannels % kMomentColumns == 0));
  static_assert(!Product::Of::kScales, "sums of tf32 have scales");

  float2 moment[PARTS > 0 ? PARTS : 1];
  const float2* taken;  // the thread's first moment; null where there is no such row
  float2* kept;         // where the thread's moments of the tile's first row are stored
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
      float mean = 0.0f, squares = 0.0f;
#pragma unroll
      for (int i = 0; i < PARTS; ++i) mean += moment[i].x;
      mean *= 1.0f / PARTS;
#pragma unroll
      for (int i = 0; i < PARTS; ++i) {
        const float apart = moment[i].x - mean;
        squares += fmaf(kMomentColumns * apart, apart, moment[i].y);
      }
      // Each thread has mean and squares of as many values as the other.
#pragma unroll
      for (int step = 1; step < SHARERS; step *= 2) {
        const float other = __shfl_xor_sync(kFullMask, mean, step), apart = mean - other;
        squares += fmaf(apart * apart, 0.5f * (step * PARTS * kMomentColumns), __shfl_xor_sync(kFullMask, squares, step));
        mean = 0.5f * (mean + other);
      }
      squares = fmaf(squares, inverse_k, (1.0f - centered) * (mean * mean) + epsilon);
      const float factor = rsqrtf(squares);
      if (threadIdx.x % kRowThreads == 0 && row() < Product::kPixels)
        store_shared2(RowNorm<Veu, Product>::rows(this->work), RowNorm<Veu, Product>::place(row()), {-mean * centered * factor, factor});
    }
  }
  RK_INLINE void finish(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const char* sums, int round) {
    if constexpr (KEEPS)
      finish_and_keep(sums);
    else
      Base::finish(task, args, tile, sums, round);
  }

 private:
  // Results as they are: neither an activation nor a residual that lies apart.
  RK_INLINE void finish_and_keep(const char* sums) const {
#pragma unroll
    for (int i = 0; i < Base::kOutputs; ++i) {
      const float4 v = as_stored<typename Base::Value>(add4(this->sum_of(sums, this->pixel(i)), this->residual[i].floats()));
      const float2 moments = moments_of(v);
      if (this->to[i] < 0) continue;
      store4(this->out + this->to[i], v);
      if (threadIdx.x % 8 == 0) *as_global(kept + i * (Base::kPixelThreads * kept_parts)) = moments;
    }
  }
};

template <bool KEEPS, int PARTS, int SHARERS>
struct MomentKind {
  template <class Veu, class Product>
  using Results = MomentResults<Veu, Product, KEEPS, PARTS, SHARERS>;
};

template <class Veu, class Math, int MT, int NT, int WARPS_M, int WARPS_N, int STAGE_STEPS, bool KEEPS, int PARTS, int SHARERS>
RK_INLINE void moment_conv(const Task<Veu>& task) {
  StagedWay<Veu, Math, MT, NT, WARPS_M, WARPS_N, STAGE_STEPS, MomentKind<KEEPS, PARTS, SHARERS>>::run(task);
}

}  // namespace rk
