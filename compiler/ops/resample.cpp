// Resample: one axis after the other, by the tables that say which elements make which.
#include <algorithm>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

constexpr size_t kMaxAxes = 3;

// x seen as [before, extent, after]; so is the result.
std::vector<double> along(const std::vector<double>& x, int64_t before, int64_t extent, int64_t after, const Value& table,
                          const Value& factors, double outside) {
  const int64_t made = table.shape[0], taps = table.shape[1];
  const Numbers<int64_t> indices(table);
  const Numbers<double> weights(factors);
  std::vector<double> result(static_cast<size_t>(before * made * after));
  for (int64_t b = 0; b < before; ++b) {
    for (int64_t o = 0; o < made; ++o) {
      double* const to = result.data() + (b * made + o) * after;
      for (int64_t t = 0; t < taps; ++t) {
        const int64_t at = indices[o * taps + t];
        TAMP_CHECK(at >= -1 && at < extent, "a table of Resample leaves its axis");
        const double* const from = x.data() + (b * extent + std::max<int64_t>(at, 0)) * after;
        for (int64_t i = 0; i < after; ++i) to[i] = at < 0 ? outside : to[i] + weights[o * taps + t] * from[i];
      }
    }
  }
  return result;
}

}  // namespace

TensorTypes infer(const Resample& op, const Given& given) {
  if (op.axes.empty() || op.axes.size() > kMaxAxes) throw bad_input("a Resample of {} axes", op.axes.size());
  given.expect(1 + 2 * op.axes.size());
  Shape result = given.shape(0);
  for (size_t a = 0; a < op.axes.size(); ++a) {
    const Shape& table = given.shape(1 + 2 * a);
    if (op.axes[a] < 0 || op.axes[a] >= given.rank(0) || (a > 0 && op.axes[a] <= op.axes[a - 1]))
      throw bad_input("axes {} of X of shape {}", shape_text(op.axes), shape_text(given.shape(0)));
    if (table.size() != 2 || table[1] < 1 || given.shape(2 + 2 * a) != table || given.dtype(1 + 2 * a) != DType::i64)
      throw bad_input("a table of indices is {}, expected i64[extent,taps] and weights of the same shape", shape_text(table));
    result[static_cast<size_t>(op.axes[a])] = table[0];
  }
  return {{given.dtype(0), result}};
}

// An element that is outside along one axis is `outside`, whatever the other axes say. Their weights sum to 1 only up to rounding, so
// `outside` is written last.
std::vector<Value> evaluate(const Resample& op, const Call& call) {
  Shape shape = call.input(0).shape;
  const Numbers<double> input(call.input(0));
  std::vector<double> values(input.data(), input.data() + element_count(shape));
  for (size_t a = 0; a < op.axes.size(); ++a) {
    const int64_t axis = op.axes[a], rank = static_cast<int64_t>(shape.size());
    const Value& table = call.input(1 + 2 * a);
    values = along(values, product(shape, 0, axis), shape[static_cast<size_t>(axis)], product(shape, axis + 1, rank), table,
                   call.input(2 + 2 * a), op.outside);
    shape[static_cast<size_t>(axis)] = table.shape[0];
  }
  for (size_t a = 0; a < op.axes.size(); ++a) {
    const int64_t axis = op.axes[a], rank = static_cast<int64_t>(shape.size()), after = product(shape, axis + 1, rank);
    const Numbers<int64_t> indices(call.input(1 + 2 * a));
    const int64_t made = shape[static_cast<size_t>(axis)], taps = call.input(1 + 2 * a).shape[1];
    for (int64_t i = 0; i < element_count(shape); ++i) {
      if (indices[i / after % made * taps] < 0) values[static_cast<size_t>(i)] = op.outside;
    }
  }
  return {output_from(call, values)};
}

Traits traits_of(const Resample&) { return {Layout::channels_last, InF32::all}; }

int64_t own_work(const Resample& op, const Given& given, const TensorTypes& results) {
  int64_t taps = 0;
  for (size_t a = 0; a < op.axes.size(); ++a) taps = saturating_sum(taps, given.shape(1 + 2 * a)[1] + kWorkOfRead);
  return saturating_product(
      {saturating_sum(element_count(results[0].shape), given.elements(0)), taps, static_cast<int64_t>(op.axes.size())});
}

}  // namespace tamp::ops
