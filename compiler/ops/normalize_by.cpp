// Moments and NormalizeBy: the two halves of a normalisation of rows.
#include <algorithm>
#include <cmath>

#include "compiler/ops/operator.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

int64_t rows_of(const Shape& shape) { return element_count(shape) / std::max<int64_t>(1, shape.back()); }

// The shape of X's moments.
Shape moments_of(const Given& given) {
  const Shape& shape = given.shape(0);
  if (shape.empty()) throw bad_input("X has shape {}, expected rows", shape_text(shape));
  if (shape.back() % kMomentColumns != 0 || shape.back() == 0)
    throw bad_input("X has shape {}, expected rows of a multiple of {}", shape_text(shape), kMomentColumns);
  return {rows_of(shape), shape.back() / kMomentColumns, 2};
}

}  // namespace

TensorTypes infer(const Moments&, const Given& given) {
  given.expect(1);
  return {{given.dtype(0), moments_of(given)}};
}
std::vector<Value> evaluate(const Moments&, const Call& call) {
  const Numbers<double> x(call.input(0));
  std::vector<double> moments;
  for (int64_t part = 0; part < element_count(call.input(0).shape); part += kMomentColumns) {
    double mean = 0, squares = 0;
    for (int64_t i = part; i < part + kMomentColumns; ++i) mean += x[i] / kMomentColumns;
    for (int64_t i = part; i < part + kMomentColumns; ++i) squares += (x[i] - mean) * (x[i] - mean);
    moments.insert(moments.end(), {mean, squares});
  }
  return {output_from(call, moments)};
}
Traits traits_of(const Moments&) { return {Layout::row_major, InF32::all}; }
int64_t own_work(const Moments&, const Given& given, const TensorTypes&) { return saturating_product({kWorkOfRead, given.elements(0)}); }

TensorTypes infer(const NormalizeBy&, const Given& given) {
  given.expect(2, 3);
  given.expect_shape(1, "moments", moments_of(given));
  given.expect_shape(2, "rounded", given.shape(0));
  return {given.type(0)};
}
std::vector<Value> evaluate(const NormalizeBy& op, const Call& call) {
  const Shape& shape = call.output().shape;
  const Numbers<double> x(call.input(0)), moments(call.input(1));
  const int64_t columns = shape.back(), parts = columns / kMomentColumns;
  std::vector<double> y(static_cast<size_t>(element_count(shape)));
  for (int64_t row = 0; row < rows_of(shape); ++row) {
    double mean = 0, squares = 0;
    for (int64_t part = 0; part < parts; ++part) mean += moments[(row * parts + part) * 2] / static_cast<double>(parts);
    if (!op.centered) mean = 0;
    for (int64_t part = 0; part < parts; ++part) {
      const double apart = moments[(row * parts + part) * 2] - mean;
      squares += moments[(row * parts + part) * 2 + 1] + kMomentColumns * apart * apart;
    }
    const double factor = 1 / std::sqrt(squares / static_cast<double>(columns) + op.epsilon);
    for (int64_t i = row * columns; i < (row + 1) * columns; ++i) y[static_cast<size_t>(i)] = (x[i] - mean) * factor;
  }
  return {output_from(call, y)};
}
Traits traits_of(const NormalizeBy&) { return {Layout::row_major, InF32::all}; }
int64_t own_work(const NormalizeBy&, const Given& given, const TensorTypes&) {
  return saturating_product({kWorkOfRead, given.elements(0)});
}

}  // namespace tamp::ops
