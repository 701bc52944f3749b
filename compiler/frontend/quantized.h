// What the importers of quantised operators share: integers q that stand for (q - zero point) * scale.
#pragma once

#include "compiler/frontend/importers.h"

namespace tamp::frontend {

// What a scale or zero point belongs to: all of x, an element of dimension `axis`, or `block` neighbouring ones of it.
struct Grid {
  int64_t axis = 0;
  int64_t block = 0;  // 0: there are none
};

// An element type, ONNX's own if it is narrow.
struct QuantisedType {
  DType dtype = DType::u8;  // that holds it
  NarrowType narrow = NarrowType::none;
  bool operator==(const QuantisedType&) const = default;
};

bool is_small_integer(DType dtype);
void expect_eight_bits(NodeImport& n, TensorId q);

// Refuses a scale or zero point whose shape is not the grid's.
void expect_grid(NodeImport& n, TensorId parameter, const Shape& x, const Grid& grid, const char* what);
// A scale or zero point of x in a shape that broadcasts to x's.
TensorId along_grid(NodeImport& n, TensorId parameter, const Shape& x, const Grid& grid, const char* what);

// The number x in f32 as a type of few bits: to the nearest, ties to even, plus the zero point, at most what the type holds.
TensorId quantized(NodeImport& n, TensorId x, TensorId zero_point, QuantisedType to, bool saturate = true);
// q - zero point as i32.
TensorId shifted(NodeImport& n, TensorId q, TensorId zero_point);
// (q - zero point) * scale in f32, all of which broadcast.
TensorId dequantized(NodeImport& n, TensorId q, TensorId scale, TensorId zero_point);

// A scale or zero point of a product's left operand is one number or one per row, of a right one one number or one per column.
TensorId of_rows(NodeImport& n, TensorId parameter);
TensorId of_columns(NodeImport& n, TensorId parameter);

// import_weights.cpp. The numbers that the constant x stands for, as a constant whose bytes are made when they are read; none id if one of
// the operands is known only at run time, or x is of a type that weights do not have.
TensorId dequantized_constant(NodeImport& n, TensorId x, TensorId scale, TensorId zero_point, const Grid& grid, DType to);

// The same of q - zero point in i32; none id also where the zero point goes along several dimensions.
TensorId shifted_constant(NodeImport& n, TensorId q, TensorId zero_point);

// x as u8, and the scale and zero point that follow from the range of its elements.
struct DynamicallyQuantized {
  TensorId q, scale, zero_point;
};
DynamicallyQuantized dynamically_quantized(NodeImport& n, TensorId x);

}  // namespace tamp::frontend
