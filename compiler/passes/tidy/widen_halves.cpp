#include "compiler/passes/tidy/widen_halves.h"

#include <algorithm>
#include <memory>

#include "compiler/ops/ops.h"

namespace tamp::passes {
namespace {

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

std::vector<DType> types_of(const Graph& graph, const std::vector<TensorId>& ports) {
  std::vector<DType> types;
  for (const TensorId id : ports) types.push_back(graph.tensor(id).dtype);
  return types;
}

}  // namespace

Graph widen_halves(Graph graph) {
  const auto has_half = [](const Tensor& tensor) { return is_half(tensor.dtype); };
  if (std::none_of(graph.tensors.begin(), graph.tensors.end(), has_half)) return graph;
  graph.input_types = types_of(graph, graph.inputs);
  graph.output_types = types_of(graph, graph.outputs);
  // What rOperators read in place of a tensor. A constant that is an output stays what it is there.
  std::vector<TensorId> read(graph.tensors.size());
  for (size_t i = 0; i < read.size(); ++i) {
    const TensorId id(static_cast<int64_t>(i));
    read[i] = id;
    if (!is_half(graph.tensor(id).dtype)) continue;
    if (graph.tensor(id).role != Role::constant) {
      graph.tensor(id).dtype = DType::f32;
      continue;
    }
    Tensor wide = graph.tensor(id);
    wide.dtype = DType::f32;
    wide.data = std::make_shared<const Bytes>(ops::f32_bytes(graph.tensor(id).dtype, *graph.tensor(id).data));
    if (std::find(graph.outputs.begin(), graph.outputs.end(), id) == graph.outputs.end())
      graph.tensor(id) = std::move(wide);
    else
      read[i] = add_tensor(graph, std::move(wide));
  }
  for (ROperator& rop : graph.rops) {
    for (TensorId& id : rop.inputs) id = id.valid() ? read[id.index()] : id;
    if (auto* const op = std::get_if<Elementwise>(&rop.attrs); op && op->dtype && is_half(*op->dtype)) op->dtype = DType::f32;
  }
  return remove_dead(std::move(graph));
}

}  // namespace tamp::passes
