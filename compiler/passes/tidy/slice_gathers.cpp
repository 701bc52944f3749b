#include "compiler/passes/tidy/slice_gathers.h"

#include <cstring>
#include <optional>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// Constant indices, counted from the beginning; nothing if they are unknown, absent or out of range.
std::optional<std::vector<int64_t>> indices_of(const Graph& graph, TensorId id, int64_t extent) {
  const Tensor& tensor = graph.tensor(id);
  if (tensor.role != Role::constant || (tensor.dtype != DType::i64 && tensor.dtype != DType::i32)) return std::nullopt;
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < element_count(tensor.shape); ++i) {
    int64_t index = 0;
    if (tensor.dtype == DType::i64) {
      index = i64_data(tensor)[i];
    } else {
      int32_t narrow = 0;
      std::memcpy(&narrow, tensor.data->data() + i * bytes_of(DType::i32), sizeof(narrow));
      index = narrow;
    }
    indices.push_back(index < 0 ? index + extent : index);
    if (indices.back() < 0 || indices.back() >= extent) return std::nullopt;
  }
  if (indices.empty()) return std::nullopt;
  return indices;
}

// The distance between neighbours, 1 for a single index; 0 if they are not evenly spaced.
int64_t step_of(const std::vector<int64_t>& indices) {
  if (indices.size() == 1) return 1;
  const int64_t step = indices[1] - indices[0];
  for (size_t i = 2; i < indices.size(); ++i) {
    if (indices[i] - indices[i - 1] != step) return 0;
  }
  return step;
}

// The Slice, and a Reshape behind it where the indices are not a vector; empty if `rop` must stay.
std::vector<ROperator> sliced(Graph& graph, const ROperator& rop) {
  const auto* gather = std::get_if<Gather>(&rop.attrs);
  if (!gather) return {};
  const Shape from = graph.tensor(rop.inputs[0]).shape;
  const auto axis = static_cast<size_t>(gather->axis);
  const auto indices = indices_of(graph, rop.inputs[1], from[axis]);
  const int64_t step = indices ? step_of(*indices) : 0;
  if (step == 0) return {};

  Slice slice = whole_slice(from);
  slice.starts[axis] = indices->front();
  slice.steps[axis] = step;
  slice.extents[axis] = static_cast<int64_t>(indices->size());
  ROperator first = rop;
  first.attrs = slice;
  first.inputs.resize(1);
  if (graph.tensor(rop.inputs[1]).shape.size() == 1) return {first};

  first.name += ".slice";
  first.outputs = {add_like(graph, rop.outputs[0], graph.tensor(rop.outputs[0]).name + ".slice", slice.extents)};
  ROperator second = rop;
  second.attrs = Reshape{graph.tensor(rop.outputs[0]).shape};
  second.inputs = first.outputs;
  return {first, second};
}

}  // namespace

Graph slice_gathers(Graph graph) {
  std::vector<std::vector<ROperator>> made;
  for (const ROperator& rop : graph.rops) made.push_back(sliced(graph, rop));
  return remove_dead(replace_rops(std::move(graph), std::move(made)));
}

}  // namespace tamp::passes
