// Matrix products for conv.cpp and matmul.cpp; the only place that sees Eigen.
#pragma once

#include <cstdint>

#include "compiler/ir/dtype.h"

namespace tamp::ops {

// A row-major matrix with `stride` elements from row to row; with `transposed` the product takes its transpose.
template <class T>
struct Matrix {
  T* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
  bool transposed = false;
};

// c = op(a) * op(b). T is float, double or uint64_t.
template <class T>
void multiply(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c);

// Products of this size are computed in double even if they are f32: small ones (all that tests of rKernels use) then
// have no rounding to speak of, and large ones stay fast. In fp32 Eigen adds up blocks of a few hundred products, so
// the error grows like that of a pairwise sum.
inline bool in_double(DType dtype, int64_t multiply_adds) { return dtype == DType::f64 || multiply_adds <= int64_t{1} << 24; }

}  // namespace tamp::ops
