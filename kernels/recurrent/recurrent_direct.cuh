// One recurrent cell of any kind, computed simply: rTask b is batch row b for the whole sequence, so vEUs exchange
// nothing. The state is in shared memory; each step reads W and R again, from L1 and L2:
//   sums = W x_t + Wb + R h + Rb     rows over the warps, kRecurrentRows at a time, k over the lanes of a warp
//   h, c = cell(sums, h, c)          elements over the threads
// A gru keeps the two products of its candidate apart, since the reset gate is applied to only one of them.
// Shared memory: h[hidden], then c (lstm) or reset * h (gru), both rounded up to 4 floats, then the sums: 4 * hidden of an
// lstm (i, o, f, c), 4 * hidden of a gru (z, r, candidate from x, candidate from h), hidden of an rnn.
// Example: an lstm of 6 hidden units has h at float 0, c at 8, sums at 16; the sum of gate f of unit 2 is float 16 + 2 * 6 + 2 = 30. With
// eight warps, warp 3 computes sums 12 to 15 (4 rows at a time); the 24 sums need one pass.
#pragma once

#include "kernels/recurrent/cell_functions.cuh"
#include "kernels/recurrent/numbers.cuh"

namespace rk {

struct RecurrentMatrix {  // in tables
  TensorRef at;
  int32_t row, k;  // strides in elements, as all here
  int32_t vector;  // rows and the vector they are multiplied with are whole groups of 4 floats, 16-byte aligned
};

struct RecurrentDirectArgs {                                   // in tables
  RecurrentMatrix w, r;                                        // w null: x is W x + Wb already
  TensorRef x, bias, peepholes, lengths, h0, c0, y, y_h, y_c;  // null where there is none
  int32_t x_t, x_b, x_k;
  int32_t bias_k, peepholes_k, lengths_b;
  int32_t h0_b, h0_k, c0_b, c0_k;
  int32_t y_t, y_b, y_k, y_h_b, y_h_k, y_c_b, y_c_k;
  int32_t kind;  // rk::CellKind
  int32_t steps, input, hidden;
  int32_t reverse, linear_before_reset, input_forget;
  float clip;
  CellFunction functions[3];
};

RK_INLINE float4 global4(const float* p) { return *as_global(reinterpret_cast<const float4*>(p)); }
RK_INLINE float element_or_zero(const float* p, int at) { return p == nullptr ? 0.0f : *as_global(p + at); }

// Pointers that do not change from step to step, into shared memory and to the weights.
struct RecurrentPlace {
  float *h, *second, *sums;  // second: c, or reset * h
  const float *w, *r, *bias, *peepholes;
};

// One product of a sum: kRecurrentRows rows of a matrix times a vector in shared or global memory. The loads are plain ones: the data was
// written before this rTask began, so L1 may keep it from step to step.
struct RecurrentProduct {
  const float* rows[kRecurrentRows];
  const float* vector;
  int row_stride, vector_stride, count;
};

RK_INLINE void add_product4(const RecurrentProduct& p, float (&sum)[kRecurrentRows]) {
#pragma unroll 2
  for (int k = lane_id() * 4; k < p.count; k += kWarp * 4) {
    float4 m[kRecurrentRows];
#pragma unroll
    for (int i = 0; i < kRecurrentRows; ++i) m[i] = global4(p.rows[i] + k);
    const float4 v = *reinterpret_cast<const float4*>(p.vector + k);
#pragma unroll
    for (int i = 0; i < kRecurrentRows; ++i) sum[i] = fmaf(m[i].w, v.w, fmaf(m[i].z, v.z, fmaf(m[i].y, v.y, fmaf(m[i].x, v.x, sum[i]))));
  }
}

RK_INLINE void add_product1(const RecurrentProduct& p, float (&sum)[kRecurrentRows]) {
#pragma unroll 2
  for (int k = lane_id(); k < p.count; k += kWarp) {
    const float v = p.vector[k * p.vector_stride];
#pragma unroll
    for (int i = 0; i < kRecurrentRows; ++i) sum[i] = fmaf(*as_global(p.rows[i] + k * p.row_stride), v, sum[i]);
  }
}

// to[n] = row first + n of  (from_x ? W x + Wb : 0) + (state ? R state + Rb : 0)  for n < rows; `x` is this step's.
template <class Veu>
RK_INLINE void recurrent_sums(const RecurrentDirectArgs& args, const RecurrentPlace& place, int first, int rows, bool from_x,
                              const float* x, const float* state, float* to) {
  const int last = first + rows - 1;
  const int gates = args.kind == kLstm ? 4 : args.kind == kGru ? 3 : 1;
  const bool x_is_sum = place.w == nullptr;
#pragma unroll 1
  for (int n = warp_id() * kRecurrentRows; n < rows; n += Veu::kComputeThreads / kWarp * kRecurrentRows) {
    // Lane i adds this to row i. It is loaded before the products, so that it arrives while they are computed.
    const int own = min(first + n + (lane_id() & (kRecurrentRows - 1)), last);
    float addend = from_x && x_is_sum ? *as_global(x + own * args.x_k) : 0.0f;
    if (from_x) addend += element_or_zero(place.bias, own * args.bias_k);
    if (state != nullptr) addend += element_or_zero(place.bias, (gates * args.hidden + own) * args.bias_k);
    float sum[kRecurrentRows] = {};
#pragma unroll 1
    for (int side = from_x && !x_is_sum ? 0 : 1; side < (state != nullptr ? 2 : 1); ++side) {
      const RecurrentMatrix& matrix = side == 0 ? args.w : args.r;
      RecurrentProduct p;
#pragma unroll
      for (int i = 0; i < kRecurrentRows; ++i) p.rows[i] = (side == 0 ? place.w : place.r) + min(first + n + i, last) * matrix.row;
      p.vector = side == 0 ? x : state;
      p.row_stride = matrix.k;
      p.vector_stride = side == 0 ? args.x_k : 1;
      p.count = side == 0 ? args.input : args.hidden;
      if (matrix.vector != 0) {
        add_product4(p, sum);
      } else {
        add_product1(p, sum);
      }
    }
    float mine = 0.0f;
#pragma unroll
    for (int i = 0; i < kRecurrentRows; ++i) {
      const float total = warp_sum(sum[i]);
      if (lane_id() == i) mine = total;
    }
    if (lane_id() < kRecurrentRows && n + lane_id() < rows) to[n + lane_id()] = mine + addend;
  }
}

// Returns the new h of element j, and stores the new c.
RK_INLINE float lstm_element(const RecurrentDirectArgs& args, const RecurrentPlace& place, int j) {
  const int hidden = args.hidden;
  const float* const sums = place.sums + j;
  const CellFunction f = args.functions[0];
  const float c = place.second[j];
  const auto peephole = [&](int gate) { return element_or_zero(place.peepholes, (gate * hidden + j) * args.peepholes_k); };
  const float input = clipped_cell_function(f, args.clip, sums[0] + peephole(0) * c);
  const float forget = args.input_forget != 0 ? 1.0f - input : clipped_cell_function(f, args.clip, sums[2 * hidden] + peephole(2) * c);
  const float next = forget * c + input * clipped_cell_function(args.functions[1], args.clip, sums[3 * hidden]);
  place.second[j] = next;
  const float output = clipped_cell_function(f, args.clip, sums[hidden] + peephole(1) * next);
  return output * clipped_cell_function(args.functions[2], 0.0f, next);
}

RK_INLINE float gru_element(const RecurrentDirectArgs& args, const RecurrentPlace& place, int j) {
  const int hidden = args.hidden;
  const float* const sums = place.sums + j;
  const float update = clipped_cell_function(args.functions[0], args.clip, sums[0]);
  const float scale = args.linear_before_reset != 0 ? clipped_cell_function(args.functions[0], args.clip, sums[hidden]) : 1.0f;
  const float candidate = clipped_cell_function(args.functions[1], args.clip, sums[2 * hidden] + scale * sums[3 * hidden]);
  return (1.0f - update) * candidate + update * place.h[j];
}

// All sums of a step. `x` is this step's.
template <class Veu>
RK_INLINE void recurrent_step_sums(const RecurrentDirectArgs& args, const RecurrentPlace& place, const float* x) {
  const int hidden = args.hidden;
  const bool gru = args.kind == kGru, linear = args.linear_before_reset != 0;
  const int coupled = (gru ? 2 : args.kind == kLstm ? 4 : 1) * hidden;  // rows that take both products at once
#pragma unroll 1
  for (int part = 0; part < (gru ? 3 : 1); ++part) {
    if (part == 2 && !linear) {  // R (reset * h)
      sync_compute<Veu>();
#pragma unroll 1
      for (int j = static_cast<int>(threadIdx.x); j < hidden; j += Veu::kComputeThreads) {
        place.second[j] = clipped_cell_function(args.functions[0], args.clip, place.sums[hidden + j]) * place.h[j];
      }
      sync_compute<Veu>();
    }
    const float* const state = part == 1 ? nullptr : part == 2 && !linear ? place.second : place.h;
    recurrent_sums<Veu>(args, place, part == 0 ? 0 : coupled, part == 0 ? coupled : hidden, part < 2, x, state,
                        place.sums + (part == 0 ? 0 : (1 + part) * hidden));
  }
}

template <class Veu>
RK_BODY void recurrent_direct(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const auto& args = task.template arguments<RecurrentDirectArgs>();
  const int hidden = args.hidden, steps = args.steps, batch = static_cast<int>(task.index), thread = static_cast<int>(threadIdx.x);
  const int rounded = (hidden + 3) & ~3;
  RecurrentPlace place;
  place.h = task.template work_as<float>();
  place.second = place.h + rounded;
  place.sums = place.second + rounded;
  place.w = task.address(args.w.at);
  place.r = task.address(args.r.at);
  place.bias = task.address(args.bias);
  place.peepholes = task.address(args.peepholes);
  const float* const x = task.address(args.x) + batch * args.x_b;
  float* const y = args.y.base == kNullBase ? nullptr : task.address(args.y) + batch * args.y_b;
  int length = steps;
  if (args.lengths.base != kNullBase) {
    length = *as_global(reinterpret_cast<const int32_t*>(task.address(args.lengths)) + batch * args.lengths_b);
    length = max(0, min(length, steps));
  }
  const bool reverse = args.reverse != 0, is_empty = length == 0;  // no steps: states of zero

  const float* const h0 = is_empty ? nullptr : task.address(args.h0);
  const float* const c0 = is_empty ? nullptr : task.address(args.c0);
#pragma unroll 1
  for (int j = thread; j < hidden; j += Veu::kComputeThreads) {
    place.h[j] = element_or_zero(h0, batch * args.h0_b + j * args.h0_k);
    place.second[j] = element_or_zero(c0, batch * args.c0_b + j * args.c0_k);
#pragma unroll 1
    for (int t = length; t < steps && y != nullptr; ++t) store1(y + t * args.y_t + j * args.y_k, 0.0f);
  }
  sync_compute<Veu>();
#pragma unroll 1
  for (int s = 0; s < length; ++s) {
    const int t = reverse ? length - 1 - s : s;
    recurrent_step_sums<Veu>(args, place, x + t * args.x_t);
    sync_compute<Veu>();
#pragma unroll 1
    for (int j = thread; j < hidden; j += Veu::kComputeThreads) {
      const float h = args.kind == kLstm  ? lstm_element(args, place, j)
                      : args.kind == kGru ? gru_element(args, place, j)
                                          : clipped_cell_function(args.functions[0], args.clip, place.sums[j]);
      place.h[j] = h;
      if (y != nullptr) store1(y + t * args.y_t + j * args.y_k, h);
    }
    sync_compute<Veu>();
  }
  float* const y_h = task.address(args.y_h);
  float* const y_c = task.address(args.y_c);
#pragma unroll 1
  for (int j = thread; j < hidden; j += Veu::kComputeThreads) {
    if (y_h != nullptr) store1(y_h + batch * args.y_h_b + j * args.y_h_k, place.h[j]);
    if (y_c != nullptr) store1(y_c + batch * args.y_c_b + j * args.y_c_k, place.second[j]);
  }
}

}  // namespace rk
