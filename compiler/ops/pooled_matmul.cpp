// PooledMatMul: a product with the means of channels, whose sums come in parts.
#include "compiler/ops/gemm.h"
#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {

TensorTypes infer(const PooledMatMul& op, const Given& given) {
  given.expect(2);
  const Shape &s = given.shape(0), &w = given.shape(1);
  if (s.size() != 3) throw bad_input("input S has shape " + shape_text(s) + ", expected [N,C,P]");
  if (w.size() != 2 || w[op.trans_b ? 1 : 0] != s[1])
    throw bad_input("W has shape " + shape_text(w) + ", expected a matrix for " + std::to_string(s[1]) + " channels");
  return {{given.dtype(0), {s[0], w[op.trans_b ? 0 : 1]}}};
}

std::vector<Value> evaluate(const PooledMatMul& op, const Call& call) {
  const Shape &s_shape = call.input(0).shape, &w_shape = call.input(1).shape;
  const int64_t images = s_shape[0], channels = s_shape[1], parts = s_shape[2], columns = call.output().shape[1];
  const Numbers<double> s(call.input(0)), w(call.input(1));
  std::vector<double> pooled(static_cast<size_t>(images * channels), 0.0), y(static_cast<size_t>(images * columns));
  for (int64_t i = 0; i < images * channels * parts; ++i) pooled[static_cast<size_t>(i / parts)] += op.scale * s[i];
  multiply(Matrix<const double>{pooled.data(), images, channels, channels, false},
           Matrix<const double>{w.data(), w_shape[0], w_shape[1], w_shape[1], op.trans_b},
           Matrix<double>{y.data(), images, columns, columns});
  return {output_from(call, y)};
}

Layout layout_of(const PooledMatMul&) { return Layout::row_major; }
bool is_identity(const PooledMatMul&, const Shape&) { return false; }
bool is_f32_only(const PooledMatMul&, DType) { return true; }
int64_t own_work(const PooledMatMul&, const Given& given, const TensorTypes&) {
  return saturating_sum(given.elements(0), saturating_product({given.shape(0)[0], given.elements(1)}));
}

}  // namespace tamp::ops
