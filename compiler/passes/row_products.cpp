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

TensorId in_shape(Graph& graph, std::vector<ROperator>& views, TensorId id, const Shape& shape) {
  if (graph.tensor(id).shape == shape) return id;
  ROperator reshape;
  reshape.name = graph.tensor(id).name + ".rows" + std::to_string(graph.tensors.size());
  reshape.attrs = Reshape{shape};
  reshape.inputs = {id};
  const TensorId view = add_like(graph, id, reshape.name, shape);
  reshape.outputs = {view};
  views.push_back(std::move(reshape));
  return view;
}

}  // namespace tamp::passes
