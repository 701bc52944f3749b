// y[row] = finish(combine over r of prepare(x[row, r])): sums, means, extremes, products and norms. kVector 4: four rows that
// lie next to each other are one float4 (global average pooling of channels-last tensors).
//
// With `splits` > 1 the reduced elements are cut as well: rTask = split * rtasks_per_split + block of rows, and each split writes
// unfinished values `split_stride` apart, for a second phase to combine. No atomics: the same result every time.
// Example: rtasks_per_split 4, reduced_per_split 100. rTask 9 is split 2 and block of rows 1: it reduces elements 200 to 299.
//
// In and Out are the types of x and of y in memory. Rows, lanes and parts: rows.cuh.
#pragma once

#include "kernels/reduce/numbers.cuh"
#include "kernels/reduce/rows.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

struct ReduceArgs {  // in tables
  RowsArgs rows;
  Divisor rtasks_per_split;
  uint32_t reduced_per_split;
  int32_t split_stride;
  int32_t prepare, combine, finish;
  float count;  // for kFinishDivide
};

RK_INLINE float reduce_start(int32_t combine) {
  return combine == kCombineMax ? -INFINITY : combine == kCombineMin ? INFINITY : combine == kCombineProduct ? 1.0f : 0.0f;
}

RK_INLINE float reduce_combine(int32_t combine, float a, float b) {
  if (combine == kCombineMax) return nan_max(a, b);
  return combine == kCombineMin ? nan_min(a, b) : a * b;
}

RK_INLINE float reduce_finish(const ReduceArgs& args, float v, float largest) {
  switch (args.finish) {
    case kFinishDivide: return v / args.count;
    case kFinishSqrt: return sqrtf(v);
    case kFinishLog: return logf(v);
    case kFinishLogPlusMax: return fabsf(largest) == INFINITY ? largest : largest + logf(v);
    default: return v;
  }
}

template <int kVector>
struct alignas(4 * kVector) Rowful {
  float v[kVector];
};

template <int kVector, class In>
RK_INLINE Rowful<kVector> load_rowful(const In* p) {
  Rowful<kVector> r;
  if constexpr (kVector == 4) {
    const float4 v = load4(p);
    r.v[0] = v.x;
    r.v[1] = v.y;
    r.v[2] = v.z;
    r.v[3] = v.w;
  } else {
    r.v[0] = load1(p);
  }
  return r;
}

template <int kVector>
RK_INLINE Rowful<kVector> combine_rowfuls(int32_t combine, Rowful<kVector> a, const Rowful<kVector>& b) {
  if (combine == kCombineSum) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) a.v[i] += b.v[i];
    return a;
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) a.v[i] = reduce_combine(combine, a.v[i], b.v[i]);
  return a;
}

template <int kVector>
RK_INLINE void prepare_rowful(int32_t prepare, Rowful<kVector>& x, const Rowful<kVector>& largest) {
  if (prepare == kPrepareNone) return;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    if (prepare == kPrepareSquare)
      x.v[i] *= x.v[i];
    else
      x.v[i] = prepare == kPrepareAbs ? fabsf(x.v[i]) : expf(x.v[i] - largest.v[i]);
  }
}

// One pass over reduced elements [first, last) of this thread's row, kBatch loads under way. Branches are taken once per batch, so
// that the elements of a batch go through the arithmetic side by side.
template <class Veu, int kVector, bool kFlat, class In>
RK_INLINE Rowful<kVector> reduce_pass(const Task<Veu>& task, const RowsArgs& rows, const RowThread& t, const In* in, uint32_t first,
                                      uint32_t last, int32_t prepare, int32_t combine, const Rowful<kVector>& largest) {
  constexpr uint32_t kBatch = 4;
  const int32_t stride = rows.reduced_in[0];
  Rowful<kVector> start;
#pragma unroll
  for (int i = 0; i < kVector; ++i) start.v[i] = reduce_start(combine);
  Rowful<kVector> acc = start;
#pragma unroll 1
  for (uint32_t r = first + t.part; r < last; r += kBatch * t.parts) {
    Rowful<kVector> x[kBatch];
#pragma unroll
    for (uint32_t b = 0; b < kBatch; ++b) {
      const uint32_t at = r + b * t.parts;
      x[b] = load_rowful<kVector>(in + reduced_offset<kFlat>(rows, rows.reduced_in, stride, at < last ? at : r));
    }
#pragma unroll
    for (uint32_t b = 0; b < kBatch; ++b) prepare_rowful(prepare, x[b], largest);
#pragma unroll
    for (uint32_t b = 1; b < kBatch; ++b) {
      if (r + b * t.parts >= last) x[b] = start;
    }
    acc =
        combine_rowfuls(combine, acc, combine_rowfuls(combine, combine_rowfuls(combine, x[0], x[1]), combine_rowfuls(combine, x[2], x[3])));
  }
  Rowful<kVector>* const shared = task.template work_as<Rowful<kVector>>();
  return combine_parts<Veu>(shared, t, acc,
                            [combine](const Rowful<kVector>& a, const Rowful<kVector>& b) { return combine_rowfuls(combine, a, b); });
}

template <class Veu, int kVector, bool kFlat, class In = float, class Out = float>
RK_BODY void reduce(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const ReduceArgs& args = task.template arguments<ReduceArgs>();
  const RowsArgs& rows = args.rows;
  const RowThread t = row_thread<Veu>(rows);
  uint32_t within;
  const uint32_t split = divide(task.index, args.rtasks_per_split, within);
  const uint32_t first = split * args.reduced_per_split;
  const uint32_t last = first + args.reduced_per_split < rows.reduced ? first + args.reduced_per_split : rows.reduced;
  const uint32_t limit = (within + 1) * rows.rows_per_rtask;
  const uint32_t end = limit < rows.rows ? limit : rows.rows;
  const int64_t out_step = kVector == 4 && rows.kept_rank > 0 ? rows.kept_out[rows.kept_rank - 1] / kVector : 0;
#pragma unroll 1
  for (uint32_t row0 = within * rows.rows_per_rtask; row0 < end; row0 += t.lanes) {
    const uint32_t row = row0 + t.lane;
    const uint32_t known = row < end ? row : end - 1;  // lanes without a row repeat the last
    const In* const in = values_at<In>(task, rows.in) + nest_offset(rows.kept_in, rows.kept_divisors, rows.kept_rank, known);
    // With kPrepareExp a pass for the maximum comes first.
    Rowful<kVector> largest{}, acc{};
#pragma unroll 1
    for (int pass = args.prepare == kPrepareExp ? 0 : 1; pass < 2; ++pass) {
      largest = acc;
      acc = reduce_pass<Veu, kVector, kFlat>(task, rows, t, in, first, last, pass == 0 ? kPrepareNone : args.prepare,
                                             pass == 0 ? kCombineMax : args.combine, largest);
    }
    if (row >= end || t.part != 0) continue;
    Out* const out = values_at<Out>(task, rows.out) + nest_offset(rows.kept_out, rows.kept_divisors, rows.kept_rank, row) +
                     static_cast<int64_t>(split) * args.split_stride;
#pragma unroll
    for (int i = 0; i < kVector; ++i) store1(out + i * out_step, reduce_finish(args, acc.v[i], largest.v[i]));
  }
}

}  // namespace rk
