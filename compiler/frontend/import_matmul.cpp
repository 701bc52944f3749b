// Gemm and MatMul -> MatMul. 1-D operands of MatMul get the missing dimension before and lose it after.
#include "compiler/frontend/importers.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
void import_gemm(NodeImport& n) {
  n.expect_counts(n.version() >= 11 ? 2 : 3, 3);
  const TensorId a = n.in(0), b = n.in(1), c = n.optional_in(2);
  n.expect_float({a, b});
  MatMul matmul;
  matmul.trans_a = n.attr_int("transA", 0) != 0;
  matmul.trans_b = n.attr_int("transB", 0) != 0;
  matmul.alpha = n.attr_float("alpha", 1.0F);
  matmul.beta = n.attr_float("beta", 1.0F);
  const bool broadcast = n.version() >= 7 || n.attr_flag("broadcast", false);

  const Shape as = n.shape(a), bs = n.shape(b);
  if (as.size() != 2 || bs.size() != 2)
    throw n.bad("A has shape {}, B has shape {}: both must be matrices", shape_text(as), shape_text(bs));
  if (c.valid()) n.expect_float({a, c});
  const Shape result = n.infer(matmul, {a, b, c})[0].shape;
  if (c.valid() && !broadcast && n.shape(c) != result)
    throw n.bad("C has shape {}, which is not {}, and attribute 'broadcast' is 0", shape_text(n.shape(c)), shape_text(result));
  if (n.dtype(a) == DType::f32 || !c.valid()) return n.result(0, n.add(matmul, {a, b, c}));
  // The plain product of other types has no operand C.
  const auto scale = [&](float value) { return n.cast(n.constant_f32(value), n.dtype(a)); };
  const TensorId product = n.add(matmul, {a, b, TensorId()});
  const TensorId addend = matmul.beta == 1 ? c : n.elementwise(ElementwiseOp::mul, {c, scale(matmul.beta)});
  n.result(0, n.elementwise(ElementwiseOp::add, {product, addend}));
}

void import_matmul(NodeImport& n) {
  n.expect_counts(2, 2);
  n.expect_number({n.in(0), n.in(1)});
  n.result(0, matrix_product(n, n.in(0), n.in(1)));
}

TensorId matrix_product(NodeImport& n, TensorId a, TensorId b) {
  const Shape a_given = n.shape(a), b_given = n.shape(b);
  if (a_given.empty() || b_given.empty()) throw n.bad("an operand is a scalar, expected at least one dimension");
  if (a_given.size() == 1) a = n.reshape(a, {1, a_given[0]});
  if (b_given.size() == 1) b = n.reshape(b, {b_given[0], 1});

  const TensorId product = n.add(MatMul{}, {a, b, TensorId()});
  Shape result = n.shape(product);
  if (a_given.size() == 1) result.erase(result.end() - 2);
  if (b_given.size() == 1) result.pop_back();
  return n.reshape(product, result);
}

}  // namespace tamp::frontend
