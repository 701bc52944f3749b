#include "compiler/passes/row_products.h"

#include "compiler/passes/rewrite.h"

namespace tamp::passes {

bool is_row_product(const Graph& graph, const ROperator& rop) {
  const auto* matmul = std::get_if<MatMul>(&rop.attrs);
  if (!matmul || matmul->trans_a || rop.inputs.size() != 2 || rop.epilogue.residual_after_activation) return false;
  const Tensor &b = graph.tensor(rop.inputs[1]), &made = graph.tensor(rop.outputs[0]);
  return is_f32_constant(graph, rop.inputs[1]) && b.shape.size() == 2 && made.dtype == DType::f32 &&
         is_row_or_none(graph, rop.epilogue.bias, made.shape.back());
}

ROperatorId only_maker_of(const Graph& graph, const Uses& uses, TensorId rows) {
  const int64_t columns = graph.tensor(rows).shape.back();
  for (;;) {
    if (uses.consumers[rows.index()].size() != 1 || uses.is_output[rows.index()]) return {};
    const ROperatorId maker = uses.producer[rows.index()];
    if (!maker.valid() || !keeps_order(graph, graph.rop(maker))) return maker;
    rows = graph.rop(maker).inputs[0];
    if (graph.tensor(rows).shape.empty() || graph.tensor(rows).shape.back() != columns) return {};
  }
}

ProductValues values_of_product(const Graph& graph, const ROperator& product, const ROperator* normalize) {
  const auto& matmul = std::get<MatMul>(product.attrs);
  const Tensor& given = graph.tensor(product.inputs[1]);
  const float* const data = f32_data(given);
  const auto k = static_cast<size_t>(given.shape[matmul.trans_b ? 1 : 0]), n = static_cast<size_t>(given.shape[matmul.trans_b ? 0 : 1]);
  const float* const scales = normalize ? f32_data_or_null(graph, operand(*normalize, 1)) : nullptr;
  const float* const shifts = normalize ? f32_data_or_null(graph, operand(*normalize, 2)) : nullptr;
  ProductValues made{std::vector<float>(k * n), std::vector<float>(n)};
  std::vector<double> sums(n, 0.0);
  if (const float* const bias = f32_data_or_null(graph, product.epilogue.bias)) sums.assign(bias, bias + n);
  for (size_t row = 0; row < k; ++row) {
    for (size_t column = 0; column < n; ++column) {
      float& weight = made.weights[row * n + column];
      weight = matmul.alpha * data[matmul.trans_b ? column * k + row : row * n + column];
      if (shifts) sums[column] += static_cast<double>(shifts[row]) * weight;
      if (scales) weight *= scales[row];
    }
  }
  for (size_t column = 0; column < n; ++column) made.bias[column] = static_cast<float>(sums[column]);
  return made;
}

std::optional<std::vector<int64_t>> permutation_of(const Tensor& table, int64_t count) {
  if (table.role != Role::constant || table.dtype != DType::i64 || element_count(table.shape) != count) return std::nullopt;
  std::vector<int64_t> numbers(i64_data(table), i64_data(table) + count);
  std::vector<bool> taken(numbers.size(), false);
  for (const int64_t number : numbers) {
    if (number < 0 || number >= count || taken[static_cast<size_t>(number)]) return std::nullopt;
    taken[static_cast<size_t>(number)] = true;
  }
  return numbers;
}

TensorId in_shape(Graph& graph, std::vector<ROperator>& views, TensorId id, const Shape& shape) {
  if (graph.tensor(id).shape == shape) return id;
  const std::string name = graph.tensor(id).name + ".rows" + std::to_string(graph.tensors.size());
  return append_view(graph, views, name, Reshape{shape}, id, shape);
}

}  // namespace tamp::passes
