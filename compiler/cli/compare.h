// How far a model's output is from the reference (`tamp run --check`).
#pragma once

#include <string>

#include "compiler/ops/ops.h"

namespace tamp::cli {

struct Difference {
  double relative_l2 = 0;        // |got - expected| / |expected|, Euclidean; |got| where the reference is all zero
  int64_t worst = -1;            // element with the largest absolute difference; -1 = all equal
  double got = 0, expected = 0;  // of that element
};

// The absolute difference of two values' elements i, infinite if only one of them is a number. Of 64-bit integers, too, it is 0 only where
// they are equal.
double distance_at(const ops::Value& a, const ops::Value& b, int64_t i);

// Elements that are NaN or the same infinity on both sides are equal; on one side only, the distance is infinite.
Difference difference(const ops::Value& got, const ops::Value& expected);

// The largest relative L2 distance that --check accepts. fp32: sums in another order. tf32: operands of multiplications
// have 10 bits of fraction, through as many layers as networks have. Integers and booleans must be equal.
double tolerance(Precision precision, DType dtype);

// "[0,12]": the place of element i.
std::string index_text(int64_t i, const Shape& shape);

}  // namespace tamp::cli
