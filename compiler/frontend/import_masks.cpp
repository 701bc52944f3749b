// Operators whose result depends on where an element stands: comparisons of coordinates, which are constants, with what is given.
#include "compiler/frontend/importers.h"
#include "compiler/frontend/initializers.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// The diagonal `k` of a matrix, no further away than just outside of it, so that no sum overflows.
TensorId diagonal(NodeImport& n, TensorId k, int64_t rows, int64_t columns) {
  return n.elementwise(ElementwiseOp::min, {n.elementwise(ElementwiseOp::max, {k, n.constant_i64(-rows)}), n.constant_i64(columns)});
}

// The extent, and behind it so many dimensions of 1.
Shape upright(int64_t extent, size_t behind) {
  Shape shape(behind + 1, 1);
  shape[0] = extent;
  return shape;
}

}  // namespace

// Indices that count from the end are allowed from version 11 on; an index out of range gives off values only.
void import_one_hot(NodeImport& n) {
  n.expect_counts(3, 3);
  TensorId indices = n.in(0);
  const TensorId values = n.in(2);
  n.expect_number({indices});
  const Shape given = n.shape(indices);
  if (n.shape(values) != Shape{2})
    throw n.bad("input 2 (values) has shape {}, expected [2]: the off value and the on value", shape_text(n.shape(values)));
  const double wanted = n.number(1, "depth");
  if (!(wanted >= 0 && wanted <= static_cast<double>(kMaxElements)))
    throw n.bad("input 1 (depth) is {}, expected 0 to {}", wanted, kMaxElements);
  const auto depth = static_cast<int64_t>(wanted);
  const auto axis = static_cast<size_t>(n.axis(n.attr_int("axis", -1), n.rank(indices) + 1, "attribute 'axis'"));
  Shape apart = given;
  apart.insert(apart.begin() + static_cast<std::ptrdiff_t>(axis), 1);
  if (apart.size() > kMaxRank) throw n.refuse("the result has {} dimensions, supported: up to {}", apart.size(), kMaxRank);
  const DType dtype = n.dtype(indices);
  const bool is_unsigned = dtype == DType::u8 || dtype == DType::u16 || dtype == DType::u32 || dtype == DType::u64;
  indices = n.reshape(n.cast(indices, DType::i64), apart);
  const Shape along = upright(depth, given.size() - axis);
  TensorId is_on = n.elementwise(ElementwiseOp::equal, {indices, n.constant_range(0, depth, 1, along)});
  if (!is_unsigned && n.version() >= 11) {
    const TensorId from_end = n.elementwise(ElementwiseOp::equal, {indices, n.constant_range(-depth, depth, 1, along)});
    is_on = n.elementwise(ElementwiseOp::logical_or, {is_on, from_end});
  }
  n.result(0, n.elementwise(ElementwiseOp::where, {is_on, n.part(values, 1), n.part(values, 0)}));
}

void import_trilu(NodeImport& n) {
  n.expect_counts(1, 2);
  const TensorId x = n.in(0);
  const Shape shape = n.shape(x);
  if (shape.size() < 2) throw n.bad("input has shape {}, expected at least two dimensions", shape_text(shape));
  const int64_t rows = shape[shape.size() - 2], columns = shape.back();
  const bool upper = n.attr_flag("upper", true);
  TensorId k = n.constant_i64(0);
  if (n.has(1)) {
    n.expect_whole({n.in(1)});
    if (element_count(n.shape(n.in(1))) != 1) throw n.bad("input 1 (k) has shape {}, expected one element", shape_text(n.shape(n.in(1))));
    k = n.cast(n.reshape(n.in(1), {}), DType::i64);
  }
  const TensorId row = n.constant_range(0, rows, 1, upright(rows, 1)), column = n.constant_range(0, columns, 1, {columns});
  const TensorId on_diagonal = n.elementwise(ElementwiseOp::add, {row, diagonal(n, k, rows, columns)});
  const TensorId stays = n.elementwise(upper ? ElementwiseOp::greater_equal : ElementwiseOp::less_equal, {column, on_diagonal});
  const TensorId zero = n.cast(n.constant_f32(0), n.dtype(x));
  n.result(0, n.elementwise(ElementwiseOp::where, {stays, x, zero}));
}

void import_eye_like(NodeImport& n) {
  n.expect_counts(1, 1);
  const Shape shape = n.shape(n.in(0));
  if (shape.size() != 2) throw n.bad("input has shape {}, expected two dimensions", shape_text(shape));
  DType dtype = n.dtype(n.in(0));
  if (const std::optional<int64_t> given = n.find_int("dtype")) {
    const int type = *given >= 0 && *given < 1000 ? static_cast<int>(*given) : 999;
    const std::optional<DType> known = dtype_of_onnx(type);
    if (!known && is_onnx_type(type)) throw n.refuse("attribute 'dtype' is {}, which is not supported", onnx_type_name(type));
    if (!known) throw n.bad("attribute 'dtype' is {}, which is no element type", *given);
    dtype = *known;
  }
  const TensorId k = diagonal(n, n.constant_i64(n.attr_int("k", 0)), shape[0], shape[1]);
  const TensorId row = n.constant_range(0, shape[0], 1, upright(shape[0], 1)), column = n.constant_range(0, shape[1], 1, {shape[1]});
  const TensorId is_one = n.elementwise(ElementwiseOp::equal, {column, n.elementwise(ElementwiseOp::add, {row, k})});
  n.result(0, n.cast(is_one, dtype));
}

}  // namespace tamp::frontend
