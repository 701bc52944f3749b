// Normalisation of few long rows, which are cut into shares so that all vEUs have work: y as in normalize.cuh. The first phase,
// normalize_moments, leaves count, mean and sum of squares around the mean of each share; the second, normalize_shares, combines those of a
// row, each rTask for itself, and writes its share of y. Two sets combine by Chan's formula
//   mean = mean_a + d * n_b / n,   squares = squares_a + squares_b + d^2 * n_a * n_b / n   with d = mean_b - mean_a and n = n_a + n_b
// which loses no digits, always in the same order. If not centred, means count as 0. A unit is kVector reduced elements that are neighbours
// in x and y; a rTask has one share of each of `lanes` rows. Limits: x and y are of types In and Out, fp32 or 16 bits each; scale and bias
// are fp32. Rows, lanes and parts: rows.cuh.
// Example: a row of 6400 elements, kVector 4, 3 shares of 534 units. In rTask 2 part 5 of 256 has units 1073, 1329 and 1585.
#pragma once

#include "kernels/reduce/rows.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

struct NormalizeSplitArgs {                                 // in tables
  RowsArgs rows;                                            // reduced elements are counted in units
  TensorRef scale, bias;                                    // may be null
  TensorRef moments;                                        // mean and squares of each share of each row
  int32_t kept_scale[kRowsRank], reduced_scale[kRowsRank];  // strides along the dimensions of `rows`
  int32_t kept_bias[kRowsRank], reduced_bias[kRowsRank];
  Divisor shares;                 // of a row: rTask = block of rows * shares + share
  uint32_t units_per_share;       // the last may have fewer
  int32_t scale_step, bias_step;  // from an element of a unit to the next
  int32_t centered;
  float epsilon;
};

// Of a set of elements.
struct Moments {
  float count, mean, squares;
};
RK_INLINE Moments combined(const Moments& a, const Moments& b) {
  const float count = a.count + b.count;
  if (b.count == 0.0f) return a;
  const float d = b.mean - a.mean, part = b.count / count;
  return {count, a.mean + d * part, a.squares + b.squares + d * d * a.count * part};
}

// The share of a row that a thread of a rTask works on.
struct RowShare {
  RowThread t;
  uint32_t row, share;
  bool live;            // false: the lane has no row, repeats the last, and stores nothing
  uint32_t begin, end;  // units
};
template <class Veu>
RK_INLINE RowShare row_share(const NormalizeSplitArgs& args, uint32_t rtask) {
  RowShare s;
  s.t = row_thread<Veu>(args.rows);
  const uint32_t block = divide(rtask, args.shares, s.share), row = block * s.t.lanes + s.t.lane;
  s.live = row < args.rows.rows;
  s.row = s.live ? row : args.rows.rows - 1;
  s.begin = s.share * args.units_per_share;
  s.end = min(s.begin + args.units_per_share, args.rows.reduced);
  return s;
}

// kBatch units of a share, `parts` from each other and beginning with `first`, as they are in memory. Units that do not exist repeat it.
template <int kVector, int kBatch, class In>
struct UnitBatch;
template <int kBatch, class In>
struct UnitBatch<4, kBatch, In> {
  Raw4<In> raw[kBatch];
  RK_INLINE void load(int b, const In* p) { raw[b] = load_raw4(p); }
  RK_INLINE void floats(int b, float (&x)[4]) const {
    const float4 v = raw[b].floats();
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
  }
};
template <int kBatch, class In>
struct UnitBatch<2, kBatch, In> {
  Raw2<In> raw[kBatch];
  RK_INLINE void load(int b, const In* p) { raw[b] = load_raw2(p); }
  RK_INLINE void floats(int b, float (&x)[2]) const {
    const float2 v = raw[b].floats();
    x[0] = v.x, x[1] = v.y;
  }
};
template <int kBatch, class In>
struct UnitBatch<1, kBatch, In> {
  float values[kBatch];
  RK_INLINE void load(int b, const In* p) { values[b] = load1(p); }
  RK_INLINE void floats(int b, float (&x)[1]) const { x[0] = values[b]; }
};
template <bool kFlat, int kVector, int kBatch, class In>
RK_INLINE void load_units(const RowsArgs& rows, const In* in, uint32_t first, const RowShare& s, UnitBatch<kVector, kBatch, In>& units) {
  const int32_t stride = rows.reduced_in[0];
#pragma unroll
  for (int b = 0; b < kBatch; ++b) {
    const uint32_t at = first + static_cast<uint32_t>(b) * s.t.parts;
    units.load(b, in + reduced_offset<kFlat>(rows, rows.reduced_in, stride, at < s.end ? at : first));
  }
}

// Units that a thread has under way in either phase. The second also has those that it works on, scale and bias in registers; with more
// units the interpreter around the body has not registers enough.
template <int kVector, class In>
inline constexpr int kMomentsBatch = kVector == 4 && sizeof(In) == 4 ? 4 : 8;
template <int kVector, class In>
inline constexpr int kSharesBatch = kVector == 1                ? 4
                                    : kVector * sizeof(In) <= 8 ? 3
                                                                : 2;

template <class Veu, int kVector, bool kFlat, class In = float>
RK_BODY void normalize_moments(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  constexpr int kBatch = kMomentsBatch<kVector, In>;
  const NormalizeSplitArgs& args = task.template arguments<NormalizeSplitArgs>();
  const RowsArgs& rows = args.rows;
  const RowShare s = row_share<Veu>(args, task.index);
  const In* const in = values_at<const In>(task, rows.in) + nest_offset(rows.kept_in, rows.kept_divisors, rows.kept_rank, s.row);
  const bool centered = args.centered != 0;
  Moments all{0.0f, 0.0f, 0.0f};
  task.await_inputs();
#pragma unroll 1
  for (uint32_t first = s.begin + s.t.part; first < s.end; first += kBatch * s.t.parts) {
    UnitBatch<kVector, kBatch, In> units;
    load_units<kFlat>(rows, in, first, s, units);
    Moments some{0.0f, 0.0f, 0.0f};
    float x[kBatch][kVector], sum = 0.0f;
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      units.floats(b, x[b]);
      if (first + static_cast<uint32_t>(b) * s.t.parts >= s.end) continue;
      some.count += kVector;
#pragma unroll
      for (int i = 0; i < kVector; ++i) sum += x[b][i];
    }
    if (centered) some.mean = sum / some.count;
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (first + static_cast<uint32_t>(b) * s.t.parts >= s.end) continue;
#pragma unroll
      for (int i = 0; i < kVector; ++i) some.squares += (x[b][i] - some.mean) * (x[b][i] - some.mean);
    }
    all = combined(all, some);
  }
  all = combine_parts<Veu>(task.template work_as<Moments>(), s.t, all, combined);
  if (!s.live || s.t.part != 0) return;
  float* const to = task.address(args.moments) + (static_cast<int64_t>(s.row) * args.shares.divisor + s.share) * 2;
  store1(to, all.mean);
  store1(to + 1, all.squares);
}

// The moments of a whole row, from those of its shares.
template <class Veu>
RK_INLINE Moments row_moments(const Task<Veu>& task, const NormalizeSplitArgs& args, const RowShare& s, uint32_t vector) {
  constexpr uint32_t kBatch = 4;
  const uint32_t shares = args.shares.divisor;
  const float* const from = task.address(args.moments) + static_cast<int64_t>(s.row) * shares * 2;
  Moments all{0.0f, 0.0f, 0.0f};
#pragma unroll 1
  for (uint32_t first = s.t.part; first < shares; first += kBatch * s.t.parts) {
    Moments some[kBatch];
#pragma unroll
    for (uint32_t b = 0; b < kBatch; ++b) {
      const uint32_t share = first + b * s.t.parts;
      const float* const p = from + (share < shares ? share : first) * 2;
      some[b].mean = load1(p);
      some[b].squares = load1(p + 1);
      const uint32_t begin = share * args.units_per_share;
      some[b].count = share < shares ? static_cast<float>(min(args.units_per_share, args.rows.reduced - begin) * vector) : 0.0f;
    }
#pragma unroll
    for (uint32_t b = 0; b < kBatch; ++b) all = combined(all, some[b]);
  }
  return combine_parts<Veu>(task.template work_as<Moments>(), s.t, all, combined);
}

// Scale or bias of a row; null where there is none.
template <class Veu>
RK_INLINE const float* row_of_factors(const Task<Veu>& task, const NormalizeSplitArgs& args, const TensorRef& ref, const int32_t* kept,
                                      uint32_t row) {
  const float* const all = task.address(ref);
  return all == nullptr ? nullptr : all + nest_offset(kept, args.rows.kept_divisors, args.rows.kept_rank, row);
}

// Where a unit lies in a row of y, scale and bias. 32 bits are enough within a tensor.
struct UnitOffsets {
  int32_t out, scale, bias;
};
template <bool kFlat>
RK_INLINE UnitOffsets unit_offsets(const NormalizeSplitArgs& args, uint32_t unit) {
  UnitOffsets at{0, 0, 0};
  const auto add = [&](int d, uint32_t i) {
    at.out += static_cast<int32_t>(i) * args.rows.reduced_out[d];
    at.scale += static_cast<int32_t>(i) * args.reduced_scale[d];
    at.bias += static_cast<int32_t>(i) * args.reduced_bias[d];
  };
#pragma unroll 1
  for (int d = kFlat ? 0 : args.rows.reduced_rank - 1; d > 0; --d) {
    uint32_t i;
    unit = divide(unit, args.rows.reduced_divisors[d - 1], i);
    add(d, i);
  }
  add(0, unit);
  return at;
}

// Scale or bias of the unit at `from + offset`; `missing` where there are none.
template <int kVector>
RK_INLINE void load_unit_factors(const float* from, int32_t offset, int32_t step, float missing, float (&v)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) v[i] = missing;
  if (from == nullptr) return;
  from += offset;
  if constexpr (kVector == 4) {
    if (step == 1) {
      const float4 four = load4_near(from);
      v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) v[i] = load1_near(from + i * step);
}

template <class Veu, int kVector, bool kFlat, class In = float, class Out = float>
RK_BODY void normalize_shares(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  constexpr int kBatch = kSharesBatch<kVector, In>;
  const NormalizeSplitArgs& args = task.template arguments<NormalizeSplitArgs>();
  const RowsArgs& rows = args.rows;
  const RowShare s = row_share<Veu>(args, task.index);
  const In* const in = values_at<const In>(task, rows.in) + nest_offset(rows.kept_in, rows.kept_divisors, rows.kept_rank, s.row);
  Out* const out = values_at<Out>(task, rows.out) + nest_offset(rows.kept_out, rows.kept_divisors, rows.kept_rank, s.row);
  const float* const scales = row_of_factors(task, args, args.scale, args.kept_scale, s.row);
  const float* const biases = row_of_factors(task, args, args.bias, args.kept_bias, s.row);
  const uint32_t begin = s.begin + s.t.part;
  // The first units are under way while the moments are combined, and the next ones while these are written.
  UnitBatch<kVector, kBatch, In> units;
  task.await_inputs();
  if (begin < s.end) load_units<kFlat>(rows, in, begin, s, units);
  const Moments whole = row_moments(task, args, s, kVector);
  const float mean = whole.mean, factor = 1.0f / sqrtf(whole.squares / whole.count + args.epsilon);
#pragma unroll 1
  for (uint32_t first = begin; first < s.end; first += kBatch * s.t.parts) {
    const UnitBatch<kVector, kBatch, In> present = units;
    const uint32_t next = first + kBatch * s.t.parts;
    if (next < s.end) load_units<kFlat>(rows, in, next, s, units);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const uint32_t at = first + static_cast<uint32_t>(b) * s.t.parts;
      if (!s.live || at >= s.end) continue;
      float x[kVector], scale[kVector], bias[kVector], y[kVector];
      present.floats(b, x);
      const UnitOffsets offsets = unit_offsets<kFlat>(args, at);
      load_unit_factors(scales, offsets.scale, args.scale_step, 1.0f, scale);
      load_unit_factors(biases, offsets.bias, args.bias_step, 0.0f, bias);
#pragma unroll
      for (int i = 0; i < kVector; ++i) y[i] = (x[i] - mean) * factor * scale[i] + bias[i];
      Out* const to = out + offsets.out;
      if constexpr (kVector == 4) store4(to, float4{y[0], y[1], y[2], y[3]});
      if constexpr (kVector == 2) store2(to, float2{y[0], y[1]});
      if constexpr (kVector == 1) store1(to, y[0]);
    }
  }
}

}  // namespace rk
