#include "compiler/passes/views/row_work.h"

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

bool is_for_all_rows(const Graph& graph, TensorId id) {
  const Tensor& tensor = graph.tensor(id);
  return tensor.dtype == DType::f32 && tensor.shape.size() <= 1;
}

}  // namespace

std::optional<RowWork> row_work(const Graph& graph, const ROperator& rop) {
  if (rop.outputs.size() != 1 || rop.inputs.empty() || !rop.inputs[0].valid()) return std::nullopt;
  const Tensor& out = graph.tensor(rop.outputs[0]);
  if (out.dtype != DType::f32 || out.shape.size() < 2 || rop.epilogue.residual.valid()) return std::nullopt;
  if (const auto* normalize = std::get_if<Normalize>(&rop.attrs)) {
    if (normalize->axes != std::vector<int64_t>{static_cast<int64_t>(out.shape.size()) - 1} || rop.inputs.size() > 3) return std::nullopt;
    for (size_t i = 1; i < rop.inputs.size(); ++i) {
      if (rop.inputs[i].valid() && !is_for_all_rows(graph, rop.inputs[i])) return std::nullopt;
    }
    return RowWork{{0}};
  }
  if (const auto* matmul = std::get_if<MatMul>(&rop.attrs)) {
    const bool good = !matmul->trans_a && rop.inputs.size() == 2 && is_f32_constant(graph, rop.inputs[1]) &&
                      graph.tensor(rop.inputs[1]).shape.size() == 2 && graph.tensor(rop.inputs[0]).shape.size() == out.shape.size();
    return good ? std::optional(RowWork{{0}}) : std::nullopt;
  }
  const auto* chain = std::get_if<Elementwise>(&rop.attrs);
  if (!chain || !chain->shape.empty() || chain->dtype) return std::nullopt;
  RowWork work;
  for (size_t i = 0; i < rop.inputs.size(); ++i) {
    if (is_for_all_rows(graph, rop.inputs[i])) continue;
    const Tensor& tensor = graph.tensor(rop.inputs[i]);
    if (tensor.shape != out.shape || tensor.dtype != DType::f32) return std::nullopt;
    work.mains.push_back(i);
  }
  return work.mains.empty() ? std::nullopt : std::optional(work);
}

}  // namespace tamp::passes
