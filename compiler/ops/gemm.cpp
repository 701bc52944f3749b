// Matrix products by Eigen.
#include "compiler/ops/gemm.h"

#include <Eigen/Core>

namespace tamp::ops {
namespace {

template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class T>
auto map_of(const Matrix<const T>& m) {
  return Eigen::Map<const RowMajor<T>, 0, Eigen::OuterStride<>>(m.data, m.rows, m.cols, Eigen::OuterStride<>(m.stride));
}

}  // namespace

template <class T>
void multiply(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c) {
  if (c.rows == 0 || c.cols == 0) return;
  Eigen::Map<RowMajor<T>, 0, Eigen::OuterStride<>> out(c.data, c.rows, c.cols, Eigen::OuterStride<>(c.stride));
  if ((a.transposed ? a.rows : a.cols) == 0) {
    out.setZero();
  } else if (a.transposed && b.transposed) {
    out.noalias() = map_of(a).transpose() * map_of(b).transpose();
  } else if (a.transposed) {
    out.noalias() = map_of(a).transpose() * map_of(b);
  } else if (b.transposed) {
    out.noalias() = map_of(a) * map_of(b).transpose();
  } else {
    out.noalias() = map_of(a) * map_of(b);
  }
}

template void multiply(const Matrix<const float>&, const Matrix<const float>&, const Matrix<float>&);
template void multiply(const Matrix<const double>&, const Matrix<const double>&, const Matrix<double>&);
template void multiply(const Matrix<const uint64_t>&, const Matrix<const uint64_t>&, const Matrix<uint64_t>&);

}  // namespace tamp::ops
