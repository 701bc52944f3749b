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

#include "kernels/product/staged_product.cuh"
#include "kernels/product/staged_results.cuh"
#include "kernels/product/stages.cuh"

namespace rk {

// The loop of products that lag: a step is begun before the products of the one before are done, so that the tensor cores never wait for
// the next step's stages and operands. A stage is released one step later than it is passed: a ring has two stages, or one that is never
// passed, in graph execution, where it holds all that a rTask needs (codegen/emit_phases.cpp).
template <class Veu, LaggedSums Product>
struct LaggedLoop {
  const StagedConvArgs& args;
  InputStages<Veu>& inputs;
  WeightStages<Veu>& weights;
  InputStages<Veu> held_inputs;  // of the products that are not done
  WeightStages<Veu> held_weights;
  int left, input_left, weight_left, chunks_left, step_row;

  RK_INLINE LaggedLoop(const StagedConvArgs& args_, int steps, InputStages<Veu>& inputs_, WeightStages<Veu>& weights_)
      : args(args_),
        inputs(inputs_),
        weights(weights_),
        held_inputs(inputs_),
        held_weights(weights_),
        left(steps),
        input_left(args_.input_steps),
        weight_left(args_.chunk_steps),
        chunks_left(args_.chunks - 1),
        step_row(0) {}

  // Begins a step with operands' registers SET. Returns whether there is another.
  template <int SET>
  RK_INLINE bool step(Product& product) {
    const int row = load_shared_int16(args.step_row, step_row) * (kBoxRowBytes / 16);
    product.template begin<SET>(inputs.stages, inputs.base + row, weights.stages, weights.base);
    Product::template wait<1>();
    if (held_inputs.stage != inputs.stage) held_inputs.release();
    if (held_weights.stage != weights.stage) held_weights.release();
    if (--left == 0) return false;
    weights.base += Product::kStepBytes;
    step_row += 2;
    if (--input_left == 0) {
      input_left = args.input_steps;
      step_row = 0;
      inputs.pass();
      inputs.acquire();
    }
    if (--weight_left == 0) {
      weight_left = args.chunk_steps;
      --chunks_left;
      weights.pass();
      weights.acquire();
    }
    return true;
  }
  // Returns how many chunks of weights are left.
  RK_INLINE int run(Product& product) {
#pragma unroll 1
    while (step<0>(product)) {
      if constexpr (Product::kSets == 2) {
        if (!step<1>(product)) break;
      }
    }
    Product::template wait<0>();
    inputs.release();
    weights.release();
    return chunks_left;
  }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// The loop of products with a fixed number of steps in an input stage (Product::kSteps), of one tap. Tensor cores take 128 clocks for a
// step of 64 x 64 x 64, and the loop of all others some 400 (docs/log/2026-11-26.md), nearly all of it instructions that compute operands
// and look for the ends of stages. Here a stage is straight code, and while its products run the next stage is awaited and begun. A
// stage is released behind the first step of the next one: a step is begun when the one before it is nearly done. A stage of weights is as
// long as one or more stages of inputs. Rings are as long as for LaggedLoop.
template <class Veu, class Product>
struct StageLoop {
  static_assert(SteppedSums<Product>);
  static constexpr uint32_t kSteps = Product::kSteps, kStepCells = Product::kStepBytes / 16;
  static constexpr uint32_t kInputCells = Veu::kInputStageBytes / 16, kWeightCells = Veu::kWeightStageBytes / 16;

  uint32_t input_place, weight_place, pattern;
  uint32_t box;  // from a box to the next, as places
  int left, chunk_steps, chunks_left;

  // All that an argument says, before the inputs are awaited.
  RK_INLINE StageLoop(const StagedConvArgs& args, int steps, const Product& product, const InputStages<Veu>& inputs,
                      const WeightStages<Veu>& weights)
      : input_place(wide_place(inputs.stages, product.first_input)),
        weight_place(wide_place(weights.stages, product.first_weight)),
        pattern(wide_pattern(product.eight_bytes)),
        box(kSteps > 1 ? static_cast<uint32_t>(load_shared_int16(args.step_row, 2)) >> 1 : 0),  // rows of 128 bytes, times 16
        left(steps),
        chunk_steps(args.chunk_steps),
        chunks_left(args.chunks - 1) {
    known_now(input_place);
    known_now(weight_place);
    known_now(pattern);
    known_now(box);
  }

  // Returns how many chunks of weights are left. `meanwhile` is called when the last products have been begun.
  template <class Meanwhile>
  RK_INLINE int run(Product& product, const InputStages<Veu>& inputs, WeightStages<Veu>& weights, const Meanwhile& meanwhile) {
    uint32_t input_stage = inputs.stage, input_parity = inputs.parity, held_input = input_stage, held_weight = weights.stage;
    int chunk_left = chunk_steps;
    uint32_t a = weight_place + weights.stage * kWeightCells;
    const bool arrives = kEachArrives || lane_id() == 0;
#pragma unroll 1
    while (true) {
      const uint32_t b = input_place + input_stage * kInputCells;
      begin_wide();
      product.begin_step(a, b, pattern);
      commit_wide();
      wait_wide<1>();  // for the stage before
      if (arrives && held_input != input_stage) arrive(inputs.empty[held_input]);
      if (arrives && held_weight != weights.stage) arrive(weights.empty[held_weight]);
      if constexpr (kSteps > 1) {
        begin_wide();
#pragma unroll
        for (uint32_t s = 1; s < kSteps; ++s) product.begin_step(a + s * kStepCells, b + s * box, pattern);
        commit_wide();
      }
      left -= kSteps;
      if (left <= 0) break;
      held_input = input_stage;
      held_weight = weights.stage;
      a += kSteps * kStepCells;
      if (++input_stage == Veu::kInputStages) input_stage = 0, input_parity ^= 1u;
      chunk_left -= kSteps;
      if (chunk_left == 0) {
        chunk_left = chunk_steps;
        --chunks_left;
        weights.pass();
        a = weight_place + weights.stage * kWeightCells;
      }
      wait_warp_for_both(inputs.full[input_stage], input_parity, weights.full[weights.stage], weights.parity);
    }
    meanwhile();
    wait_wide<0>();
    if (arrives) {
      arrive(inputs.empty[input_stage]);
      arrive(weights.empty[weights.stage]);
    }
    weights.pass();
    return chunks_left;
  }
};
// What stands for it where products have no fixed number of steps.
struct NoLoop {
  template <class... All>
  RK_INLINE explicit NoLoop(const All&...) {}
};
#endif

// The loop of all others, a batch of steps after the other. Returns how many chunks of weights are left.
template <class Veu, TileSums Product>
RK_INLINE int multiply_steps(const StagedConvArgs& args, int left, Product& product, InputStages<Veu>& inputs, WeightStages<Veu>& weights,
                             int (&rows)[Product::kBatch]) {
  int input_left = args.input_steps, weight_left = args.chunk_steps, chunks_left = args.chunks - 1;
  const int all_rows = Product::team() * args.input_steps * 2;
  int step_row = all_rows;  // byte of the table
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
    if constexpr (Product::kBegins) Product::template wait<0>();
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
  return chunks_left;
}

template <class Veu, TileSums Product, TileResults<Veu, Product> Results>
RK_INLINE void staged_rtask(const Task<Veu>& task) {
  const auto& args = task.template arguments<StagedConvArgs>();
  const StagedTile tile = staged_tile(args, task.index);
  WeightStages<Veu> weights = task.weight_stages();
  InputStages<Veu> inputs = task.input_stages();
  Results results;
  results.start(task, args, tile);
  Product product;
  product.start(args);
  const int steps = tile.split + 1 == args.splits.divisor ? args.last_steps : args.steps;
  [[maybe_unused]] int rows[Product::kBatch];
  if constexpr (!Product::kWide) Product::load_rows(rows, args.step_row, Product::team() * args.input_steps * 2);

  const auto meanwhile = [&] { results.meanwhile(); };
  int chunks_left;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  std::conditional_t<(Product::kSteps > 0), StageLoop<Veu, Product>, NoLoop> loop(args, steps, product, inputs, weights);
#endif
  weights.acquire();
  inputs.acquire();
  results.fetch(task, args, tile);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (Product::kSteps > 0) chunks_left = loop.run(product, inputs, weights, meanwhile);
#endif
  if constexpr (Product::kSteps == 0) {
    if constexpr (Product::kLags)
      chunks_left = LaggedLoop<Veu, Product>(args, steps, inputs, weights).run(product);
    else
      chunks_left = multiply_steps<Veu>(args, steps, product, inputs, weights, rows);
    meanwhile();
  }
  finish_staged(task, args, tile, product, results);
  for (; chunks_left > 0; --chunks_left) {
    weights.acquire();
    weights.release();
  }
}

// What a body makes of its sums: Kind::Results<Veu, Product>.
struct UsualKind {
  template <class Veu, class Product>
  using Results = UsualResults<Veu, Product>;
};

template <class Veu, class Math, int MT, int NT, int WARPS_M, int WARPS_N, class Kind>
RK_BODY void staged_call(const Task<Veu>& task) {
  using Product = StagedProduct<Veu, Math, MT, NT, WARPS_M, WARPS_N>;
  staged_rtask<Veu, Product, typename Kind::template Results<Veu, Product>>(task);
}

// A wide product must be in line. STAGE_STEPS: of its input stages, for StageLoop; 0: any.
template <class Veu, class Math, int MT, int NT, int WARPS_M, int WARPS_N, int STAGE_STEPS, class Kind>
struct StagedWay {
  RK_INLINE static void run(const Task<Veu>& task) { staged_call<Veu, Math, MT, NT, WARPS_M, WARPS_N, Kind>(task); }
};
template <class Veu, int MT, int NT, int WARPS_M, int WARPS_N, int STAGE_STEPS, class Kind>
struct StagedWay<Veu, Wide<Tf32>, MT, NT, WARPS_M, WARPS_N, STAGE_STEPS, Kind> {
  RK_INLINE static void run(const Task<Veu>& task) {
    static_assert(MT == 2 && NT >= 4 && WARPS_M >= 2 && WARPS_N >= 2);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using Product = StagedWideProduct<Veu, 16 * MT * WARPS_M, 8 * NT * WARPS_N>;
    staged_rtask<Veu, Product, typename Kind::template Results<Veu, Product>>(task);
#else
    staged_call<Veu, Tf32, MT, NT, WARPS_M, WARPS_N, Kind>(task);
#endif
  }
};
template <class Veu, class In, class Out, class Added, int WHOLE, int MT, int NT, int WARPS_M, int WARPS_N, int STAGE_STEPS, class Kind>
struct StagedWay<Veu, Wide<Narrow<In, Out, Added, WHOLE>>, MT, NT, WARPS_M, WARPS_N, STAGE_STEPS, Kind> {
  RK_INLINE static void run(const Task<Veu>& task) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using Product = StagedDeepProduct<Veu, Narrow<In, Out, Added, WHOLE>, 16 * MT * WARPS_M, 8 * NT * WARPS_N, STAGE_STEPS>;
    staged_rtask<Veu, Product, typename Kind::template Results<Veu, Product>>(task);
#else
    staged_call<Veu, Rows<Narrow<In, Out, Added, WHOLE>>, MT, NT, WARPS_M, WARPS_N, Kind>(task);
#endif
  }
};
template <class Veu, class Math, int MT, int NT, int WARPS_M, int WARPS_N, int STAGE_STEPS = 0>
RK_INLINE void staged_conv(const Task<Veu>& task) {
  StagedWay<Veu, Math, MT, NT, WARPS_M, WARPS_N, STAGE_STEPS, UsualKind>::run(task);
}

}  // namespace rk
