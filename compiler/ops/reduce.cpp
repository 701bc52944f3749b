// Reductions. Floats are summed in double, integers as int64_t that wraps (u64 included). What an empty set reduces to
// follows from the start values: sum 0, product 1, max the smallest value, min the largest, mean NaN, log of a sum -inf.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/ops/functions.h"
#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

// The dimensions that stay and those that go, each with the strides of the dense input.
struct Split {
  Shape kept, reduced;
  std::vector<int64_t> kept_strides, reduced_strides;
};

Split split(const Shape& shape, const std::vector<int64_t>& axes) {
  const std::vector<int64_t> strides = dense_strides(shape);
  Split result;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
    (reduced ? result.reduced : result.kept).push_back(shape[d]);
    (reduced ? result.reduced_strides : result.kept_strides).push_back(strides[d]);
  }
  return result;
}

// One element of the result; for_each(f) calls f for every element of the set.
template <class ForEach>
double reduce_real(ReduceKind kind, int64_t count, ForEach&& for_each) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto fold = [&](double start, auto&& add) {
    for_each([&](double x) { start = add(start, x); });
    return start;
  };
  const auto plus = [](double sum, double x) { return sum + x; };
  const auto plus_abs = [](double sum, double x) { return sum + std::fabs(x); };
  const auto plus_square = [](double sum, double x) { return sum + x * x; };
  switch (kind) {
    case ReduceKind::sum: return fold(0, plus);
    case ReduceKind::mean: return fold(0, plus) / static_cast<double>(count);
    case ReduceKind::max: return fold(-kInfinity, max_of<double>);
    case ReduceKind::min: return fold(kInfinity, min_of<double>);
    case ReduceKind::prod: return fold(1, [](double result, double x) { return result * x; });
    case ReduceKind::l1: return fold(0, plus_abs);
    case ReduceKind::l2: return std::sqrt(fold(0, plus_square));
    case ReduceKind::sum_square: return fold(0, plus_square);
    case ReduceKind::log_sum: return std::log(fold(0, plus));
    case ReduceKind::log_sum_exp: break;
  }
  const double largest = fold(-kInfinity, max_of<double>);
  if (std::isinf(largest)) return largest;  // also the empty set; inf - inf would be NaN
  return largest + std::log(fold(0, [&](double sum, double x) { return sum + std::exp(x - largest); }));
}

int64_t smallest(DType dtype) {
  if (dtype == DType::i8) return std::numeric_limits<int8_t>::min();
  if (dtype == DType::i16) return std::numeric_limits<int16_t>::min();
  if (dtype == DType::i32) return std::numeric_limits<int32_t>::min();
  return dtype == DType::i64 ? std::numeric_limits<int64_t>::min() : 0;
}

// For a signed type ~smallest is the largest; an unsigned one has all bits set.
int64_t largest(DType dtype) { return smallest(dtype) < 0 ? ~smallest(dtype) : wrap_whole(-1, dtype); }

// Integers, as bit patterns in uint64_t, whose arithmetic wraps.
int64_t reduce_whole(const Call& call, ReduceKind kind, int64_t count, auto&& for_each) {
  const DType dtype = call.output().dtype;
  const auto fold = [&](int64_t start, auto&& add) {
    auto bits = static_cast<uint64_t>(start);
    for_each([&](int64_t x) { bits = static_cast<uint64_t>(add(bits, static_cast<uint64_t>(x))); });
    return static_cast<int64_t>(bits);
  };
  const auto is_less = [&](uint64_t x, uint64_t y) {
    return dtype == DType::u64 ? x < y : static_cast<int64_t>(x) < static_cast<int64_t>(y);
  };
  const auto plus = [](uint64_t sum, uint64_t x) { return sum + x; };
  const auto as_real = [&](ReduceKind real_kind) {
    const auto for_each_real = [&](auto&& f) { for_each([&](int64_t x) { f(real_of_whole(x, dtype, DType::f64)); }); };
    return whole_of_real(reduce_real(real_kind, count, for_each_real), dtype);
  };
  switch (kind) {
    case ReduceKind::sum: return fold(0, plus);
    case ReduceKind::max: return fold(smallest(dtype), [&](uint64_t x, uint64_t y) { return is_less(x, y) ? y : x; });
    case ReduceKind::min: return fold(largest(dtype), [&](uint64_t x, uint64_t y) { return is_less(y, x) ? y : x; });
    case ReduceKind::prod: return fold(1, [](uint64_t result, uint64_t x) { return result * x; });
    case ReduceKind::sum_square: return fold(0, [](uint64_t sum, uint64_t x) { return sum + x * x; });
    case ReduceKind::mean:
      if (count == 0) throw bad_input("{}: mean of no elements of type {}", where(call.rop), name_of(dtype));
      return as_real(kind);
    case ReduceKind::l1:
    case ReduceKind::l2:
    case ReduceKind::log_sum:
    case ReduceKind::log_sum_exp: return as_real(kind);
  }
  TAMP_CHECK(false, "unknown reduction");
}

template <class T, class ReduceOne>
Value reduce_all(const Call& call, const Split& parts, ReduceOne&& reduce_one) {
  const Numbers<T> x(call.input(0));
  std::vector<T> result;
  result.reserve(static_cast<size_t>(element_count(parts.kept)));
  for_each_offset(parts.kept, parts.kept_strides, 0, [&](int64_t start) {
    const auto for_each = [&](auto&& f) { for_each_offset(parts.reduced, parts.reduced_strides, start, [&](int64_t at) { f(x[at]); }); };
    result.push_back(reduce_one(element_count(parts.reduced), for_each));
  });
  return output_from(call, result);
}

}  // namespace

TensorTypes infer(const Reduce& op, const Given& given) {
  given.expect(1);
  Shape result;
  size_t next = 0;
  for (size_t d = 0; d < given.shape(0).size(); ++d) {
    const bool reduced = next < op.axes.size() && op.axes[next] == static_cast<int64_t>(d);
    if (reduced) ++next;
    if (!reduced) result.push_back(given.shape(0)[d]);
    if (reduced && op.keepdims) result.push_back(1);
  }
  if (next != op.axes.size()) throw bad_input("axes {} of input {}", shape_text(op.axes), shape_text(given.shape(0)));
  return {{given.dtype(0), result}};
}

std::vector<Value> evaluate(const Reduce& op, const Call& call) {
  const Split parts = split(call.input(0).shape, op.axes);
  if (is_float(call.output().dtype)) {
    return {reduce_all<double>(call, parts, [&](int64_t count, auto&& for_each) { return reduce_real(op.kind, count, for_each); })};
  }
  return {reduce_all<int64_t>(call, parts, [&](int64_t count, auto&& for_each) { return reduce_whole(call, op.kind, count, for_each); })};
}

Traits traits_of(const Reduce&) { return {Layout::row_major, InF32::none}; }
int64_t own_work(const Reduce&, const Given& given, const TensorTypes&) { return (kWorkOfRead - 1) * given.elements(); }

}  // namespace tamp::ops
