// y = reduction of x over some dimensions, for elements of any type: the reference's arithmetic in the reference's order
// (compiler/ops/reduce.cpp). T is double for floats, int64_t for integers and bool, uint64_t for u64. One result a thread.
//
// Example: x i32[4,3,5] summed over its second dimension is y i32[4,5]. Result 7 is y[1][2]. The kept dimensions have steps of 15 and 1 in
// x, so its set begins at element 1 * 15 + 2 = 17; the reduced one has steps of 5, so the set is elements 17, 22 and 27.
#pragma once

#include "kernels/typed/numbers.cuh"
#include "kernels/vdevice/cells.cuh"

namespace rk {

struct TypedReduceArgs {  // in tables
  TensorRef out, in;
  Nest kept, reduced;
  int32_t out_strides[kNestRank], in_strides[kNestRank];  // of the kept dimensions
  int32_t reduced_strides[kNestRank];
  uint32_t elements, elements_per_rtask;  // results
  uint32_t count;                         // elements of a set
  uint32_t type;
};

// The result of folding nothing: infinities for floats, the ends of an integer type.
template <class T>
RK_INLINE T least_of(uint32_t type) {
  if constexpr (functions::kIsReal<T>) return -static_cast<T>(INFINITY);
  switch (type) {
    case kI8: return static_cast<T>(INT8_MIN);
    case kI16: return static_cast<T>(INT16_MIN);
    case kI32: return static_cast<T>(INT32_MIN);
    case kI64: return static_cast<T>(INT64_MIN);
    default: return T{};
  }
}
template <class T>
RK_INLINE T most_of(uint32_t type) {
  if constexpr (functions::kIsReal<T>) return static_cast<T>(INFINITY);
  switch (type) {
    case kI8: return static_cast<T>(INT8_MAX);
    case kI16: return static_cast<T>(INT16_MAX);
    case kI32: return static_cast<T>(INT32_MAX);
    case kI64: return static_cast<T>(INT64_MAX);
    default: return static_cast<T>(wrapped(-1, type));
  }
}

// Folds the numbers of one set, as type U: so_far = f(so_far, x) for each x.
template <class U, class F>
RK_INLINE U fold_set(const TypedReduceArgs& args, const void* in, int64_t start, U so_far, F f) {
#pragma unroll 1
  for (uint32_t i = 0; i < args.count; ++i) {
    const auto [at] = nest_offsets(args.reduced, i, args.reduced_strides).of;
    so_far = f(so_far, load_number<U>(in, start + at, args.type));
  }
  return so_far;
}

// Mean, norms and logarithms are computed in double, of integers too.
template <int32_t kKind>
RK_INLINE double reduce_real(const TypedReduceArgs& args, const void* in, int64_t start) {
  const auto fold = [&](double first, auto f) { return fold_set<double>(args, in, start, first, f); };
  const auto plus = [](double sum, double x) { return sum + x; };
  if constexpr (kKind == kReduceMean) return fold(0.0, plus) / static_cast<double>(args.count);
  if constexpr (kKind == kReduceL1) return fold(0.0, [](double sum, double x) { return sum + fabs(x); });
  if constexpr (kKind == kReduceL2) return sqrt(fold(0.0, [](double sum, double x) { return sum + x * x; }));
  if constexpr (kKind == kReduceLogSum) return log(fold(0.0, plus));
  const double largest = fold(-static_cast<double>(INFINITY), [](double a, double b) { return functions::max_of(a, b); });
  if (functions::is_infinite(largest)) return largest;  // also of nothing
  return largest + log(fold(0.0, [&](double sum, double x) { return sum + exp(x - largest); }));
}

template <class Veu, class T, int32_t kKind>
RK_BODY void typed_reduce(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const TypedReduceArgs& args = task.template arguments<TypedReduceArgs>();
  const void* const in = task.address(args.in);
  const uint32_t end = min((task.index + 1) * args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t element = task.index * args.elements_per_rtask + threadIdx.x; element < end; element += Veu::kComputeThreads) {
    const auto [to, start] = nest_offsets(args.kept, element, args.out_strides, args.in_strides).of;
    void* const out = task.address(args.out);
    if constexpr (kKind == kReduceSum) {
      store_number(out, to, args.type, fold_set<T>(args, in, start, T{}, [](T a, T b) { return functions::sum(a, b); }));
    } else if constexpr (kKind == kReduceProd) {
      store_number(out, to, args.type, fold_set<T>(args, in, start, T(1), [](T a, T b) { return functions::product(a, b); }));
    } else if constexpr (kKind == kReduceSumSquare) {
      const auto add_square = [](T a, T b) { return functions::sum(a, functions::product(b, b)); };
      store_number(out, to, args.type, fold_set<T>(args, in, start, T{}, add_square));
    } else if constexpr (kKind == kReduceMax) {
      store_number(out, to, args.type,
                   fold_set<T>(args, in, start, least_of<T>(args.type), [](T a, T b) { return functions::max_of(a, b); }));
    } else if constexpr (kKind == kReduceMin) {
      store_number(out, to, args.type,
                   fold_set<T>(args, in, start, most_of<T>(args.type), [](T a, T b) { return functions::min_of(a, b); }));
    } else {
      store_number(out, to, args.type, reduce_real<kKind>(args, in, start));
    }
  }
}

}  // namespace rk
