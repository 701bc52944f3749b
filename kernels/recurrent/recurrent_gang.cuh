// Recurrent cells that run together, each spread over as many vEUs as it takes (compiler/ir/rkernel.h, gang). rTask s of a cell
// owns some hidden units with all their gates for the whole sequence, so weights are fetched once, and what goes from vEU to
// vEU is one word for each hidden value of each step (kernels/vdevice/exchange.cuh).
//
// A step, and why in this order: h of the step before is on its way when a step begins, so first come W x_t, whose x is older,
// and then R h. Each warp takes a slice of x and h for all rows of the share, so that it waits for no other warp until the eight
// partial sums of every row are there: one sync_compute a step. Behind it the first warps make h and publish it, while the others
// begin the next step. What one step leaves unread while the next one writes has two copies: the partial sums.
#pragma once

#include "kernels/recurrent/recurrent_gang_finish.cuh"
#include "kernels/recurrent/recurrent_gang_product.cuh"
#include "kernels/recurrent/recurrent_gang_slice.cuh"

namespace rk {

// An initial state: a tensor, another cell's last words, or zeros.
template <class Veu>
RK_INLINE float gang_initial(const Task<Veu>& task, const TensorRef& from, bool is_words, int at_row, int at_unit) {
  if (from.base == kNullBase) return 0.0f;
  const float* const address = task.address(from);
  if (is_words) return await_word(task, reinterpret_cast<const uint64_t*>(address) + at_row + at_unit);
  return load1(address + at_row + at_unit);
}

template <class Veu, class S>
struct GangShare {
  const Task<Veu>& task;
  const GangArgs& args;
  float* const work;
  const float* const image;
  uint64_t* const own;
  const float* const x;
  const int first_unit, groups;
  GangProduct<S> product;
  GangWords<S::kHidden, S::kSliceH, S::kBatch> hidden;
  GangWords<S::kInput, S::kSliceX, S::kBatch> input_words;
  GangTensor<S::kInput, S::kSliceX, S::kBatch> input;
  float gates[S::kRounds];

  RK_INLINE explicit GangShare(const Task<Veu>& t)
      : task(t),
        args(t.template arguments<GangArgs>()),
        work(t.template work_as<float>()),
        image(t.address(args.image) + static_cast<int64_t>(t.index) * args.share_floats),
        own(reinterpret_cast<uint64_t*>(t.address(args.own))),
        x(t.address(args.x)),
        first_unit(static_cast<int>(t.index) * S::kUnits),
        groups(S::kBatch == 1 ? args.batch : (args.batch + S::kBatch - 1) / S::kBatch) {}

  RK_INLINE int rows(int group) const { return args.batch - group * S::kBatch; }
  RK_INLINE float* stage_x() const { return work + S::kStageXAt + warp_id() * (S::kBatch * S::kSliceX); }
  RK_INLINE float* stage_h(int group) const {
    return work + S::kStageHAt + (S::kAlone ? group * S::kStageH : 0) + warp_id() * (S::kBatch * S::kSliceH);
  }
  RK_INLINE const uint64_t* words(int step, int group) const {
    return own + static_cast<int64_t>(step * args.batch + group * S::kBatch) * args.own_row;
  }

  // --- before the first step ---

  RK_INLINE void begin() {
    product.begin(image, work);
    for (int i = S::kBiasAt + static_cast<int>(threadIdx.x) * 4; i < S::kPartialAt; i += kGangThreads * 4) {
      cp_async16(work + i, image + S::kImageBias - S::kBiasAt + i, true);
    }
    cp_async_commit();
    ask_input(0, 0);
    begin_states();
    if constexpr (S::kAlone) {
      for (int group = 0; group < groups; ++group) begin_hidden(group);
    }
    cp_async_wait<0>();
    sync_compute<Veu>();
  }

  RK_INLINE void begin_states() {
    float* const states = work + S::kStageHAt + (S::kAlone ? groups : 1) * S::kStageH;
    const int items = groups * S::kItems;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < items; i += kGangThreads) {
      const int unit = first_unit + i % S::kItems % S::kUnits, row = i / S::kItems * S::kBatch + i % S::kItems / S::kUnits;
      const bool valid = unit < S::kHidden && row < args.batch;
      if (S::kKind == kLstm) states[i] = valid ? gang_initial(task, args.c0, args.c0_is_words != 0, row * args.c0_b, unit * args.c0_k) : 0.0f;
      if (S::kKind != kLstm || S::kStates == 2) {
        states[(S::kStates - 1) * items + i] = valid ? gang_initial(task, args.h0, args.h0_is_words != 0, row * args.h0_b, unit * args.h0_k) : 0.0f;
      }
    }
    if (S::kPlain || args.lengths.base == kNullBase) return;
    int32_t* const to = reinterpret_cast<int32_t*>(states + S::kStates * items);
    const int32_t* const lengths = reinterpret_cast<const int32_t*>(task.address(args.lengths));
    for (int b = static_cast<int>(threadIdx.x); b < args.batch; b += kGangThreads) to[b] = static_cast<int32_t>(__float_as_uint(load1(reinterpret_cast<const float*>(lengths) + b * args.lengths_b)));
  }

  // This warp's slice of h before the first step.
  RK_INLINE void begin_hidden(int group) const {
    float* const stage = stage_h(group);
#pragma unroll 1
    for (int i = lane_id(); i < S::kBatch * S::kSliceH; i += kWarp) {
      const int unit = warp_id() * S::kSliceH + i % S::kSliceH, row = i / S::kSliceH;
      const bool valid = unit < S::kHidden && row < rows(group);
      stage[i] = valid ? gang_initial(task, args.h0, args.h0_is_words != 0, (group * S::kBatch + row) * args.h0_b, unit * args.h0_k) : 0.0f;
    }
    __syncwarp();
  }

  // --- a step ---

  RK_INLINE const float* input_at(int step, int group) const { return x + step * args.x_t + group * S::kBatch * args.x_b; }
  RK_INLINE const uint64_t* input_words_at(int step, int group) const {
    return reinterpret_cast<const uint64_t*>(x) + static_cast<int64_t>(step * args.batch + group * S::kBatch) * args.x_row;
  }

  RK_INLINE void ask_input(int step, int group) {
    if constexpr (S::kFrom == kFromWords) input_words.ask(input_words_at(step, group), args.x_row, rows(group));
    if constexpr (S::kFrom == kFromTensor) input.ask(input_at(step, group), args.x_b, args.x_k, rows(group));
    if constexpr (S::kFrom == kFromGates) gang_gates_ahead<Veu, S>(task, x, step, group, first_unit, gates);
  }

  RK_INLINE void add_input(int step, int group) {
    const uint64_t* const before = words(step - 1, group);
    const bool waits = !S::kAlone && step > 0;
    if (waits) hidden.ask(before, args.own_row, rows(group));
    if constexpr (S::kFrom == kFromWords) input_words.take(task, input_words_at(step, group), args.x_row, rows(group), stage_x());
    if constexpr (S::kFrom == kFromTensor) input.take(input_at(step, group), args.x_b, args.x_k, rows(group), stage_x());
    if constexpr (S::kFrom != kFromGates) {
      product.add_input(image, work, stage_x(), [&] {
        if (waits) hidden.ask_again(before, args.own_row, rows(group), task.epoch);
      });
    }
  }

  RK_INLINE void add_hidden(int step, int group) {
    if (step == 0) {
      if constexpr (!S::kAlone) begin_hidden(group);
    } else if constexpr (S::kAlone) {
      sync_compute<Veu>();
    } else {
      hidden.take(task, words(step - 1, group), args.own_row, rows(group), stage_h(group));
    }
    product.add_hidden(image, work, stage_h(group));
  }

  RK_INLINE void run() {
    begin();
    int side = 0;
#pragma unroll 1
    for (int step = 0; step < args.steps; ++step) {
#pragma unroll 1
      for (int group = 0; group < groups; ++group, side ^= 1) {
        float* const partial = work + S::kPartialAt + side * S::kPartial;
        product.clear();
        add_input(step, group);
        add_hidden(step, group);
        product.store(partial);
        float now[S::kRounds];
#pragma unroll
        for (int i = 0; i < S::kRounds; ++i) now[i] = S::kFrom == kFromGates ? gates[i] : 0.0f;
        const bool group_follows = group + 1 < groups;
        if (group_follows || step + 1 < args.steps) ask_input(group_follows ? step : step + 1, group_follows ? group + 1 : 0);
        sync_compute<Veu>();
        const GangPlace place{step, group, first_unit, args.publishes != 0 ? const_cast<uint64_t*>(words(step, group)) : nullptr,
                              step + 1 == args.steps};
        gang_finish<Veu, S>(task, work, place, partial, now);
      }
    }
  }
};

template <class Veu, int KIND, int FROM, int INPUT, int HIDDEN, int UNITS, int ROWS, int SPLIT, int R_REGISTERS, int R_SHARED, int W_SHARED,
          int BATCH, int ALONE, int PLAIN>
RK_BODY void recurrent_gang(const Task<Veu>& task) {
  static_assert(Veu::kComputeThreads == kGangThreads);
  using Shape = GangShape<KIND, FROM, INPUT, HIDDEN, UNITS, ROWS, SPLIT, R_REGISTERS, R_SHARED, W_SHARED, BATCH, ALONE, PLAIN>;
  GangShare<Veu, Shape>(task).run();
}

}  // namespace rk
