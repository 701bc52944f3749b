// From the partial sums of a step to h: four lanes a unit, one a gate (rnn: one lane). Each of the four keeps the unit's numbers.
#pragma once

#include "kernels/recurrent/recurrent_gang_shape.cuh"
#include "kernels/vdevice/exchange.cuh"
#include "kernels/vdevice/fast_math.cuh"

namespace rk {

constexpr float kLog2E = 1.44269504f;

RK_INLINE float sigmoid_fast(float x) { return reciprocal_fast(1.0f + exp2_fast(-kLog2E * x)); }

// tanh, or sigmoid, of which one is computed by way of the other; around 0, where that would lose digits, by a polynomial.
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

  RK_INLINE GangItem(int round, int first_unit, int rows) {
    item = round * S::kItemsAtOnce + static_cast<int>(threadIdx.x) / S::kItemLanes;
    lane = lane_id() % S::kItemLanes;
    valid = item < S::kItems;
    if (!valid) item = S::kItems - 1;  // takes part in shuffles
    unit = item % S::kUnits;
    row = item / S::kUnits;
    valid = valid && first_unit + unit < S::kHidden && (S::kBatch == 1 || row < rows);
  }
  // No lane of this warp has one.
  static RK_INLINE bool is_idle(int round) {
    return round * S::kItemsAtOnce + static_cast<int>(threadIdx.x) / kWarp * (kWarp / S::kItemLanes) >= S::kItems;
  }
};

template <class S>
RK_INLINE float gang_sum(const GangItem<S>& item, const float* partial) {
  const bool is_candidate_input = S::kKind == kGru && item.lane == 3;
  const int row = is_candidate_input ? S::kRows + item.unit : item.unit * S::kGates + item.lane;
  const float* const from = partial + item.row * (S::kSlots * S::kSlotStride) + row;
  float sum[S::kSlots];
#pragma unroll
  for (int i = 0; i < S::kSlots; ++i) sum[i] = from[i * S::kSlotStride];
#pragma unroll
  for (int step = S::kSlots / 2; step > 0; step /= 2) {
#pragma unroll
    for (int i = 0; i < step; ++i) sum[i] += sum[i + step];
  }
  return sum[0];
}

// The new h from this lane's sum. `state`: c of an lstm, else h; renewed.
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

// The same for any functions. They are many, so there is one copy of them, in a loop: first the gates, then what needs a gate.
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

// Where the results of a step go.
struct GangPlace {
  int step, group, first_unit;
  uint64_t* own;  // words of this step's first row, or null
  bool is_last;
};

template <class Veu, class S>
RK_INLINE void gang_finish(const Task<Veu>& task, float* work, const GangPlace& place, const float* partial, const float (&ahead)[S::kRounds]) {
  const GangArgs& args = task.template arguments<GangArgs>();
  const int first_row = place.group * S::kBatch;
  const int groups = S::kBatch == 1 ? args.batch : (args.batch + S::kBatch - 1) / S::kBatch;
  float* const states = work + S::kStageHAt + (S::kAlone ? groups : 1) * S::kStageH;
#pragma unroll
  for (int round = 0; round < S::kRounds; ++round) {
    if (GangItem<S>::is_idle(round)) break;
    const GangItem<S> item(round, place.first_unit, args.batch - first_row);
    float* const state_at = states + place.group * S::kItems + item.item;
    float state = *state_at;
    const float sum = gang_sum<S>(item, partial) + (work[S::kBiasAt + item.unit * S::kItemLanes + item.lane] + ahead[round]);
    float h, y;
    if constexpr (S::kPlain) {
      h = y = gang_plain_cell<S>(sum, item.lane, state);
    } else {
      const float old = state;
      h = y = gang_any_cell<S>(args, work + S::kPeepholesAt + item.unit * 4, sum, item.lane, state);
      // Behind the end of its sequence a row keeps what it has, and its y is zero.
      float* const held = states + (S::kStates - 1) * groups * S::kItems + place.group * S::kItems + item.item;
      const int32_t* const lengths = reinterpret_cast<const int32_t*>(states + S::kStates * groups * S::kItems);
      const int at = args.reverse != 0 ? args.steps - 1 - place.step : place.step;
      if (args.lengths.base != kNullBase && at >= lengths[first_row + (S::kBatch == 1 ? 0 : item.row)]) {
        state = old;
        h = S::kKind == kLstm ? *held : old;
        y = 0.0f;
      }
      if (S::kKind == kLstm) {
        __syncwarp();
        if (item.lane == 0 && item.valid) *held = h;
      }
    }
    if (!item.valid) continue;
    const int unit = place.first_unit + item.unit, row = first_row + item.row;
    if (item.lane == 0) {
      if (place.own != nullptr) publish(place.own + item.row * args.own_row + unit, h, task.epoch);
      if constexpr (S::kAlone) {
        float* const stage = work + S::kStageHAt + place.group * S::kStageH;
        stage[(unit / S::kSliceH * S::kBatch + item.row) * S::kSliceH + unit % S::kSliceH] = h;
      }
    }
    if (item.lane == S::kItemLanes - 1) {
      *state_at = state;
      if (args.y.base != kNullBase) store1(task.address(args.y) + (place.step * args.y_t + row * args.y_b + unit * args.y_k), y);
    }
    if (place.is_last && item.lane == 0) {
      if (args.y_h.base != kNullBase) store1(task.address(args.y_h) + row * args.y_h_b + unit * args.y_h_k, h);
      if (args.y_c.base != kNullBase) store1(task.address(args.y_c) + row * args.y_c_b + unit * args.y_c_k, state);
      if (args.last_c.base != kNullBase) publish(reinterpret_cast<uint64_t*>(task.address(args.last_c)) + row * args.own_row + unit, state, task.epoch);
    }
  }
}

// The gates that a tensor has, for the items of this thread.
template <class Veu, class S>
RK_INLINE void gang_gates_ahead(const Task<Veu>& task, const float* x, int step, int group, int first_unit, float (&ahead)[S::kRounds]) {
  const GangArgs& args = task.template arguments<GangArgs>();
  const int first_row = group * S::kBatch;
#pragma unroll
  for (int round = 0; round < S::kRounds; ++round) {
    const GangItem<S> item(round, first_unit, args.batch - first_row);
    const int gate = S::kKind == kGru ? (item.lane == 3 ? 2 : item.lane == 2 ? -1 : item.lane) : item.lane;
    const bool has = item.valid && gate >= 0;
    const int at = step * args.x_t + (first_row + item.row) * args.x_b + (gate * S::kHidden + first_unit + item.unit) * args.x_k;
    ahead[round] = has ? load1(x + at) : 0.0f;
  }
}

}  // namespace rk
