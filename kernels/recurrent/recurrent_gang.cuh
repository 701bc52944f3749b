// Recurrent cells that run together, each spread over several vEUs (compiler/ir/rkernel.h, gang). rTask s of a cell is its share s: it
// owns some hidden units with all their gates for the whole sequence. So weights are fetched once, and vEUs only exchange
// one word for each hidden value of each step (kernels/vdevice/exchange.cuh).
//
// A step, and why in this order: when a step begins, h of the step before is still on its way, but x_t is older. So the product W x_t
// comes first, then R h. Each warp takes a slice of x and h for all rows of the share. It waits for no other warp until the eight
// partial sums of every row are there: one sync_compute a step. After that the first warps make h and publish it, while the others
// begin the next step. Since the others then write new partial sums while the old ones may still be read, partial sums have two copies.
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
  const Task<Veu> task;  // a copy, since the caller's task is in local memory
  const GangArgs& args;
  float* const work;
  const float* const image;
  uint64_t* const own;
  const float* const x;
  const int first_unit;
  GangProduct<S> product;
  GangHand<S> hand;
  GangWords<S::kHidden, S::kSliceH, S::kBatch, 1> hidden;
  GangWords<S::kInput, S::kSliceX, S::kBatch, 1> input_words;
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
        hand(static_cast<int>(t.index) * S::kUnits) {}

  static RK_INLINE int rows(int group) { return min(S::kBatch, S::kAllRows - group * S::kBatch); }
  RK_INLINE float* stage_x() const { return work + S::kStageXAt + warp_id() * (S::kBatch * S::kSliceX); }
  RK_INLINE float* stage_h(int group) const {
    return work + S::kStageHAt + (S::kAlone ? group * S::kStageH : 0) + warp_id() * (S::kBatch * S::kSliceH);
  }

  // --- before the first step ---

  RK_INLINE void begin() {
    product.fetch_shared(image, work);
    for (int i = S::kBiasAt + static_cast<int>(threadIdx.x) * 4; i < S::kPartialAt; i += kGangThreads * 4) {
      cp_async16(work + i, image + S::kImageBias - S::kBiasAt + i, true);
    }
    cp_async_commit();
    begin_input();
    begin_states();
    if constexpr (S::kAlone) {
      for (int group = 0; group < S::kGroups; ++group) begin_hidden(group);
    } else {
      hidden.begin(own);
    }
    product.load_registers(image);  // last: behind them nothing is asked for that the first step needs
    cp_async_wait<0>();
    sync_compute<Veu>();
    if constexpr (S::kInHand) hand.begin(task, args, work, own);
  }

  RK_INLINE void begin_input() {
    if constexpr (S::kFrom == kFromGates) {
      gang_ask_gates<S>(args, x, 0, 0, first_unit, gates);
    } else {
      for (int i = lane_id(); i < S::kBatch * S::kSliceX; i += kWarp) stage_x()[i] = 0.0f;
      __syncwarp();
      if constexpr (S::kFrom == kFromWords) input_words.begin(reinterpret_cast<const uint64_t*>(x));
      if constexpr (S::kFrom == kFromTensor) input.begin(x, args.x_b, args.x_k);
      ask_input(0);
    }
  }

  RK_INLINE void begin_states() {
    const bool has_lengths = !S::kPlain && args.lengths.base != kNullBase;
    const float* const lengths = task.address(args.lengths);  // i32
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < S::kStates; i += kGangThreads) {
      const int unit = first_unit + i % S::kUnits, row = i / S::kUnits;
      bool valid = unit < S::kHidden && row < S::kAllRows;
      if (has_lengths && valid) valid = __float_as_int(load1(lengths + row * args.lengths_b)) > 0;  // else states of zero
      if (S::kKind == kLstm)
        work[S::kStatesAt + i] = valid ? gang_initial(task, args.c0, args.c0_is_words != 0, row * args.c0_b, unit * args.c0_k) : 0.0f;
      if (S::kKind == kLstm && !S::kHolds) continue;
      work[S::kHeldAt + i] = valid ? gang_initial(task, args.h0, args.h0_is_words != 0, row * args.h0_b, unit * args.h0_k) : 0.0f;
    }
    if constexpr (!S::kPlain) {
      if (!has_lengths) return;
#pragma unroll 1
      for (int b = static_cast<int>(threadIdx.x); b < S::kAllRows; b += kGangThreads)
        work[S::kLengthsAt + b] = load1(lengths + b * args.lengths_b);
    }
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

  // --- a step; pointers of `hidden` and `input` are those of this step's first row ---

  RK_INLINE int64_t input_offset(int group) const {
    return S::kFrom == kFromWords ? group * S::kBatch * S::kInputWordRow : group * S::kBatch * args.x_b;
  }
  RK_INLINE void ask_input(int group) {
    if constexpr (S::kFrom == kFromWords) input_words.ask(GangNumber<0>{}, input_offset(group), rows(group));
    if constexpr (S::kFrom == kFromTensor) input.ask(input_offset(group), rows(group));
  }
  // Asks for the input of the next group: of this step, or after the step's last group, the first group of the next step. After the last
  // step it asks for old input again, which nobody uses.
  RK_INLINE void ask_next_input(int step, int group, int steps) {
    const bool group_follows = group + 1 < S::kGroups, goes_on = !group_follows && step + 1 < steps;
    const int next_group = group_follows ? group + 1 : 0;
    if constexpr (S::kFrom == kFromGates) gang_ask_gates<S>(args, x, goes_on ? step + 1 : step, next_group, first_unit, gates);
    if constexpr (S::kFrom == kFromWords) input_words.at += goes_on ? S::kAllRows * S::kInputWordRow : 0;
    if constexpr (S::kFrom == kFromTensor) input.at += goes_on ? args.x_t : 0;
    ask_input(next_group);
  }

  static RK_INLINE int64_t hidden_offset(int group) { return group * S::kBatch * S::kWordRow; }
  template <int N>
  RK_INLINE void ask_hidden(GangNumber<N> poll, int group) {
    if (!S::kAlone) hidden.ask(poll, hidden_offset(group), rows(group));
  }

  RK_INLINE void add_input(int step, int group, int steps) {
    if constexpr (S::kFrom == kFromWords) input_words.take(task, input_offset(group), rows(group), stage_x());
    if constexpr (S::kFrom == kFromTensor) input.take(input_offset(group), rows(group), stage_x());
    ask_next_input(step, group, steps);
    product.add_input(image, work, stage_x(), [&](auto poll) { ask_hidden(poll, group); });
    ask_hidden(GangNumber<2>{}, group);
  }

  RK_INLINE void add_hidden(int step, int group) {
    if constexpr (S::kAlone) {
      sync_compute<Veu>();
    } else if (step == 0) {
      begin_hidden(group);
    } else {
      hidden.take(task, hidden_offset(group), rows(group), stage_h(group));
    }
    product.add_hidden(image, work, stage_h(group));
  }

  RK_INLINE void run() {
    begin();
    const int steps = args.steps;
    int side = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      hand.h = 0.0f;  // so that the compiler need not keep the old h
#pragma unroll 1
      for (int group = 0; group < S::kGroups; ++group, side ^= S::kSides - 1) {
        product.clear();
        if constexpr (S::kFrom != kFromGates) {
          add_input(step, group, steps);
        } else {
          ask_hidden(GangNumber<0>{}, group);
        }
        add_hidden(step, group);
        product.store(work + S::kPartialAt + side * S::kPartial);
        float gates_now[S::kRounds];
#pragma unroll
        for (int i = 0; i < S::kRounds; ++i) gates_now[i] = gang_gate<S>(gates[i]);
        if constexpr (S::kFrom == kFromGates) ask_next_input(step, group, steps);
        sync_compute<Veu>();
        if constexpr (!S::kInHand) {
          gang_finish<Veu, S>(task, args, work, own, first_unit, step, group, side, gates_now);
        } else if (!GangItem<S>::is_idle(0)) {
          hand.step(args, work, step, side, task.epoch, gates_now[0]);
        }
        if constexpr (!S::kAlone) hidden.settle();
      }
      if (!S::kAlone && step > 0) hidden.at += S::kWordStep;
    }
    if constexpr (S::kInHand) hand.end(task, args);
  }
};

template <class Veu, int KIND, int FROM, int INPUT, int HIDDEN, int UNITS, int ROWS, int SPLIT, int R_REGISTERS, int R_SHARED, int W_SHARED,
          int ALL_ROWS, int BATCH, int ALONE, int PLAIN, int WEIGHTS>
RK_BODY void recurrent_gang(const Task<Veu>& task) {
  static_assert(Veu::kComputeThreads == kGangThreads);
  using Shape =
      GangShape<KIND, FROM, INPUT, HIDDEN, UNITS, ROWS, SPLIT, R_REGISTERS, R_SHARED, W_SHARED, ALL_ROWS, BATCH, ALONE, PLAIN, WEIGHTS>;
  GangShare<Veu, Shape>(task).run();
}

}  // namespace rk
