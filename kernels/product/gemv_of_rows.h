// A product of few rows that makes its rows itself, by elementwise steps, a normalisation or both; its body is gemv_of_rows.cuh.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/ir/fused.h"
#include "compiler/ir/fusion.h"
#include "kernels/family.h"
#include "kernels/product/numbers.cuh"
#include "kernels/tile/product.h"

namespace tamp::kernels {

FusionPattern products_with_prologue();

// The steps of Y = act(N(f(X0, X1, ..)) * W + bias + R). `chain` is f and `normalize` N along the last dimension; one of them may be null.
struct StepsOfRows {
  FusedView steps;
  const Elementwise* chain;
  const Normalize* normalize;
  const MatMul* product;

  const ROperator& product_step() const { return steps.step(steps.count() - 1); }
  TensorId scale() const { return normalize ? steps.input(steps.count() - 2, 1) : TensorId(); }
  TensorId shift() const { return normalize ? steps.input(steps.count() - 2, 2) : TensorId(); }
  TensorId weights() const { return steps.input(steps.count() - 1, 1); }
  TensorId bias() const { return steps.bias(steps.count() - 1); }
  TensorId residual() const { return steps.residual(steps.count() - 1); }
};
// None if the rOperator is another.
std::optional<StepsOfRows> steps_of_rows(const ROperator& rop);
bool is_of_rows(const ROperator& rop);

// The product with the rows; none where no body computes it. `in` is the first operand of the rows. Its strides are not set: the body finds
// each row of each tensor by a table. The first function is for tensors without places.
std::optional<Product> unplaced_product_of_rows(const Graph& graph, const ROperator& rop);
std::optional<Product> product_of_rows(const Graph& graph, const ROperator& rop);

// Where each row of a placed tensor begins, from its first element on. A row is its last dimension.
std::vector<int64_t> offsets_of_rows(const Tensor& tensor);

// The scale of the normalisation for each k; empty where it has none, or all are one.
std::span<const float> factors_of_rows(const Graph& graph, const ROperator& rop);

// Multiplies a column's weights by the scale of the normalisation, and returns what its shift adds to the bias.
float fold_factors(const Graph& graph, const ROperator& rop, std::span<float> column);

int64_t operand_bytes_of_rows(const Graph& graph, const ROperator& rop);  // of all operands, for each value of a row
// What comes before the product besides the first trip to L2. `rows`: a power of two.
double rows_us(const Request& request, int64_t rows, int64_t k);

// What gemv_of_rows.cuh makes rows of.
struct RowOperands {
  std::vector<TensorId> tensors;
  std::vector<int64_t> k_strides;  // of each tensor
  std::vector<int64_t> offsets;    // of each row of each tensor, rk::kGemvRows a tensor
  int64_t scalars = 0;             // bit i: four k of tensor i are no aligned access
  std::string norm;
  std::string steps;  // text of the template argument; empty where the rows are the first tensor
  std::vector<float> constants;
  float epsilon = 0;
};
// Makes the phase of a gemv, whose arguments are those of all of k in one piece, one of gemv_of_rows.cuh.
void add_rows_phase(const RowOperands& operands, const Request& request, int64_t rows, int64_t piece_k, Phase& phase);

// The same for a product that makes its rows itself.
void add_rows(const Request& request, int64_t rows, int64_t piece_k, Phase& phase);

void append_rows_accesses(const Graph& graph, const ROperator& rop, int64_t begin, int64_t end, Accesses& out);  // of columns [begin, end)

}  // namespace tamp::kernels
