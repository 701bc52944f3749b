// From the partial sums of a step to h. An item is one hidden unit in one row of the batch. Four lanes work on an item, one for each gate
// (rnn: one lane), and each of the four keeps the unit's state.
// Example: an lstm share with UNITS 4 and BATCH 2 has 8 items. Thread 21 works on item 21 / 4 = 5, gate 1: unit 5 % 4 = 1, row 5 / 4 = 1.
#pragma once

#include "kernels/recurrent/recurrent_gang_shape.cuh"
#include "kernels/vdevice/exchange.cuh"
#include "kernels/vdevice/fast_math.cuh"

namespace rk {

RK_INLINE float sigmoid_fast(float x) { return reciprocal_fast(1.0f + exp2_fast(-kLog2E * x)); }

// tanh or sigmoid: tanh(x) is computed as 2 sigmoid(2 x) - 1, and for |x| < 0.5, where that would lose digits, by a polynomial.
RK_INLINE float tanh_or_sigmoid_fast(float x, bool is_tanh) {
  const float s = reciprocal_fast(1.0f + exp2_fast((is_tanh ? -2.0f * kLog2E : -kLog2E) * x));
  const float square = x * x;
  const float p = fmaf(fmaf(fmaf(0.018092738f, square, -0.0534295f), square, 0.13330942f), square, -0.33333322f);
  const float t = fabsf(x) < 0.5f ? fmaf(x * square, p, x) : fmaf(2.0f, s, -1.0f);
  return is_tanh ? t : s;
}
RK_INLINE float tanh_fast(float x) { return tanh_or_sigmoid_fast(x, true); }

// What a lane works on: one gate of unit `unit` (of the share) in row `row` of the batch group.
template <class S>
struct GangItem {
  int item, lane, unit, row;
  bool valid;

  RK_INLINE GangItem(int round, int first_unit, int group) {
    item = round * S::kItemsAtOnce + static_cast<int>(threadIdx.x) / S::kItemLanes;
    lane = lane_id() % S::kItemLanes;
    valid = item < S::kItems;
    if (!valid) item = S::kItems - 1;  // takes part in shuffles
    unit = item % S::kUnits;
    row = item / S::kUnits;
    valid = valid && first_unit + unit < S::kHidden && group * S::kBatch + row < S::kAllRows;
  }
  // Whether no lane of this warp has an item in this round.
  static RK_INLINE bool is_idle(int round) {
    return round * S::kItemsAtOnce + static_cast<int>(threadIdx.x) / kWarp * (kWarp / S::kItemLanes) >= S::kItems;
  }
  // Place of the item's row in the first slot of the partial sums.
  RK_INLINE int sum_at() const {
    const bool is_candidate_input = S::kKind == kGru && lane == 3;
    return row * (S::kSlots * S::kSlotStride) + (is_candidate_input ? S::kRows + unit : unit * S::kGates + lane);
  }
  RK_INLINE int bias_at() const { return S::kBiasAt + unit * S::kItemLanes + lane; }
};

// Adds COUNT numbers as a tree, so that the additions do not wait for each other.
template <int COUNT>
RK_INLINE float strided_sum(const float* from, int stride) {
  if constexpr (COUNT == 1) {
    return *from;
  } else {
    return strided_sum<COUNT / 2>(from, stride) + strided_sum<COUNT / 2>(from + COUNT / 2 * stride, stride);
  }
}

// Returns the new h; `sum` is that of this lane's gate. `state` is c of an lstm, else h, and is replaced by the new one.
template <class S>
RK_INLINE float gang_plain_cell(float sum, int lane, float& state) {
  if constexpr (S::kKind == kLstm) {
    const float gate = tanh_or_sigmoid_fast(sum, lane == 3);
    const float input = __shfl_sync(kFullMask, gate, 0, 4), output = __shfl_sync(kFullMask, gate, 1, 4);
    const float forget = __shfl_sync(kFullMask, gate, 2, 4), fresh = __shfl_sync(kFullMask, gate, 3, 4);
    state = fmaf(forget, state, input * fresh);
    return output * tanh_fast(state);
  } else if constexpr (S::kKind == kGru) {
    const float gate = lane < 2 ? sigmoid_fast(sum) : sum;
    const float update = __shfl_sync(kFullMask, gate, 0, 4), reset = __shfl_sync(kFullMask, gate, 1, 4);
    const float hidden = __shfl_sync(kFullMask, gate, 2, 4), input = __shfl_sync(kFullMask, gate, 3, 4);
    const float fresh = tanh_fast(fmaf(reset, hidden, input));
    state = fmaf(update, state - fresh, fresh);
    return state;
  } else {
    state = tanh_fast(sum);
    return state;
  }
}

// The same for any activation functions. Their code is long, so there is one copy, in a loop of two turns: the first turn computes the
// gates, the second the values that need a gate.
template <class S>
RK_INLINE float gang_any_cell(const GangArgs& args, const float* peepholes, float sum, int lane, float& state) {
  const bool lstm = S::kKind == kLstm;
  const bool peeps = lstm && args.has_peepholes != 0;
  CellFunction f = args.functions[lstm && lane == 3 ? 1 : 0];
  float x = peeps && lane != 1 && lane != 3 ? fmaf(peepholes[lane == 0 ? 0 : 2], state, sum) : sum;
  float value = 0.0f;
#pragma unroll 1
  for (int turn = 0; turn < (S::kKind == kRnn ? 1 : 2); ++turn) {
    const bool clips = args.clip != 0.0f && !(lstm && turn == 1 && lane != 1);  // never lstm's h
    value = cell_function(f.kind, f.a, f.b, clips ? clip(x, -args.clip, args.clip) : x);
    if (S::kKind == kRnn) break;
    if (S::kKind == kGru && lane >= 2 && turn == 0) value = sum;
    float got[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) got[i] = S::kKind == kRnn ? value : __shfl_sync(kFullMask, value, i, 4);
    if (lstm && turn == 0) {
      const float forget = args.input_forget != 0 ? 1.0f - got[0] : got[2];
      state = fmaf(forget, state, got[0] * got[3]);
      f = args.functions[lane == 1 ? 0 : 2];
      x = lane == 1 ? (peeps ? fmaf(peepholes[1], state, sum) : sum) : state;
    } else if (lstm) {
      value = got[0] * got[1];
    } else if (turn == 0) {
      f = args.functions[1];
      x = fmaf(got[1], got[2], got[3]);
      sum = got[0];  // the update gate, for the second turn
    } else {
      value = fmaf(sum, state - value, value);
    }
  }
  if (!lstm) state = value;
  return value;
}

// A unit's numbers from step to step.
struct GangState {
  float state;  // c of an lstm, h of the others
  float held;   // h of an lstm that is not plain
};

// Returns h of a step and sets y. Behind the end of a sequence y is zero and the state does not change.
template <class S>
RK_INLINE float gang_cell(const GangArgs& args, const float* work, const GangItem<S>& item, int step, int row, float sum, GangState& s,
                          float& y) {
  if constexpr (S::kPlain) {
    y = gang_plain_cell<S>(sum, item.lane, s.state);
    return y;
  } else {
    const GangState old = s;
    float h = gang_any_cell<S>(args, work + S::kPeepholesAt + item.unit * 4, sum, item.lane, s.state);
    const int32_t* const lengths = reinterpret_cast<const int32_t*>(work + S::kLengthsAt);
    const int at = args.reverse != 0 ? args.steps - 1 - step : step;
    const bool ended = args.lengths.base != kNullBase && row < S::kAllRows && at >= lengths[row];
    if (ended) {
      s = old;
      h = S::kHolds ? old.held : old.state;
    }
    y = ended ? 0.0f : h;
    s.held = h;
    return h;
  }
}

template <class Veu, class S>
RK_INLINE void gang_store_last(const Task<Veu>& task, const GangArgs& args, int row, int unit, float h, float state) {
  if (args.y_h.base != kNullBase) store1(task.address(args.y_h) + row * args.y_h_b + unit * args.y_h_k, h);
  if (args.y_c.base != kNullBase) store1(task.address(args.y_c) + row * args.y_c_b + unit * args.y_c_k, state);
  if (args.last_c.base == kNullBase) return;
  publish(reinterpret_cast<uint64_t*>(task.address(args.last_c)) + row * S::kWordRow + unit, state, task.epoch);
}

template <class S>
RK_INLINE void gang_put_alone(float* work, int group, int row, int unit, float h) {
  float* const stage = work + S::kStageHAt + group * S::kStageH;
  stage[(unit / S::kSliceH * S::kBatch + row) * S::kSliceH + unit % S::kSliceH] = h;
}

// Finishes the steps of a share whose lanes have one item each.
template <class S>
struct GangHand {
  GangItem<S> item;
  const int first_unit;
  const float* sums;  // of this item, in side 0 of the partial sums
  uint64_t* word;     // of the next step; null: this lane publishes nothing
  float* y;           // of the next step; null: this lane stores nothing
  int y_t;
  float bias, h;
  GangState state;

  RK_INLINE explicit GangHand(int first) : item(0, first, 0), first_unit(first) {}

  template <class Veu>
  RK_INLINE void begin(const Task<Veu>& task, const GangArgs& args, const float* work, uint64_t* own) {
    sums = work + S::kPartialAt + item.sum_at();
    word = item.valid && args.publishes != 0 ? own + item.row * S::kWordRow + first_unit + item.unit : nullptr;
    const bool stores = item.valid && item.lane == S::kItemLanes / 2 && args.y.base != kNullBase;
    y = stores ? task.address(args.y) + item.row * args.y_b + (first_unit + item.unit) * args.y_k : nullptr;
    y_t = args.y_t;
    bias = work[item.bias_at()];
    state.state = work[S::kStatesAt + item.item];
    state.held = work[S::kHeldAt + item.item];
  }
  // `side`: which of the two copies of the partial sums; `ahead`: the gate's W x + Wb from a tensor, or 0.
  RK_INLINE void step(const GangArgs& args, float* work, int at, int side, uint32_t epoch, float ahead) {
    const float sum = strided_sum<S::kSlots>(sums + side * S::kPartial, S::kSlotStride) + (bias + ahead);
    float to_y;
    h = gang_cell<S>(args, work, item, at, item.row, sum, state, to_y);
    if (word != nullptr) {
      if (item.lane == 0) publish(word, h, epoch);
      word += S::kWordStep;
    }
    if (S::kAlone && item.valid && item.lane == 0) gang_put_alone<S>(work, 0, item.row, first_unit + item.unit, h);
    if (y != nullptr) {
      store1(y, to_y);
      y += y_t;
    }
  }
  template <class Veu>
  RK_INLINE void end(const Task<Veu>& task, const GangArgs& args) const {
    if (item.valid && item.lane == 0) gang_store_last<Veu, S>(task, args, item.row, first_unit + item.unit, h, state.state);
  }
};

// Finishes one step of a share whose lanes have several items.
template <class Veu, class S>
RK_INLINE void gang_finish(const Task<Veu>& task, const GangArgs& args, float* work, uint64_t* own, int first_unit, int step, int group,
                           int side, const float (&ahead)[S::kRounds]) {
  const float* const partial = work + S::kPartialAt + side * S::kPartial;
#pragma unroll
  for (int round = 0; round < S::kRounds; ++round) {
    if (GangItem<S>::is_idle(round)) break;
    const GangItem<S> item(round, first_unit, group);
    const int unit = first_unit + item.unit, row = group * S::kBatch + item.row;
    float* const state_at = work + S::kStatesAt + group * S::kItems + item.item;
    float* const held_at = work + S::kHeldAt + group * S::kItems + item.item;
    const float sum = strided_sum<S::kSlots>(partial + item.sum_at(), S::kSlotStride) + (work[item.bias_at()] + ahead[round]);
    GangState state = {*state_at, *held_at};
    float y;
    const float h = gang_cell<S>(args, work, item, step, row, sum, state, y);
    __syncwarp();
    if (!item.valid) continue;
    if (args.publishes != 0 && item.lane == 0)
      publish(own + static_cast<int64_t>(step) * S::kWordStep + row * S::kWordRow + unit, h, task.epoch);
    if (item.lane == 0) {
      if (S::kAlone) gang_put_alone<S>(work, group, item.row, unit, h);
      if (S::kHolds) *held_at = state.held;
      *state_at = state.state;
      if (args.y.base != kNullBase) store1(task.address(args.y) + (step * args.y_t + row * args.y_b + unit * args.y_k), y);
      if (step + 1 == args.steps) gang_store_last<Veu, S>(task, args, row, unit, h, state.state);
    }
  }
}

// Loads W x + Wb for the items of this thread from a tensor of gates. Lanes without an item load any number (see recurrent_gang_slice.cuh).
template <class S>
RK_INLINE void gang_ask_gates(const GangArgs& args, const float* x, int step, int group, int first_unit, float (&gates)[S::kRounds]) {
#pragma unroll
  for (int round = 0; round < S::kRounds; ++round) {
    const GangItem<S> item(round, first_unit, group);
    const int gate = S::kKind == kGru && item.lane >= 2 ? 2 : item.lane;
    const int row = group * S::kBatch + item.row, place = gate * S::kHidden + first_unit + item.unit;
    gates[round] = load1(x + (item.valid ? step * args.x_t + row * args.x_b + place * args.x_k : 0));
  }
}
template <class S>
RK_INLINE float gang_gate(float asked) {
  return S::kFrom != kFromGates || (S::kKind == kGru && lane_id() % S::kItemLanes == 2) ? 0.0f : asked;
}

}  // namespace rk
