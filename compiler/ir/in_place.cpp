#include "compiler/ir/in_place.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "compiler/ir/cache_numbers.h"

namespace tamp {
namespace {

// The buffer that the tensor fills, if it is of this kind.
const Buffer* whole_buffer(const Graph& graph, TensorId id, BufferKind kind) {
  const Tensor& tensor = graph.tensor(id);
  const Buffer& buffer = graph.buffers[tensor.place.buffer.index()];
  const bool fills = tensor.place.offset == 0 && is_row_major(tensor) && element_count(tensor.shape) == buffer.elements;
  return buffer.kind == kind && fills && buffer.dtype == tensor.dtype ? &buffer : nullptr;
}

// Elements that a Scatter with one index replaces: those with coordinate p along `axis` of a view of the whole buffer, where p is the
// number of run time that lies in `number`.
struct Replaced {
  BufferId number;
  int64_t offset = 0;  // of p in its buffer
  bool wraps = false;  // Place::wraps
  int64_t extent = 0, stride = 0;
  bool operator==(const Replaced&) const = default;
};

// `number`: a tensor of the graph that has p.
std::optional<Replaced> replaced_by(const Graph& graph, const Scatter& scatter, TensorId x, bool wraps, TensorId number) {
  const Tensor& from = graph.tensor(x);
  const std::optional<Number> given = number.valid() ? number_of(placed_makers_of(graph), number) : std::nullopt;
  if (!given || given->plus != 0) return std::nullopt;
  const Placement& root = graph.tensor(given->root).place;
  if (graph.buffers[root.buffer.index()].kind != BufferKind::input) return std::nullopt;
  const auto axis = static_cast<size_t>(scatter.axis);
  return Replaced{root.buffer, root.offset, wraps, from.shape[axis], from.place.strides[axis]};
}

std::optional<Replaced> replaced_by(const Graph& graph, const ROperator& rop) {
  const auto& scatter = std::get<Scatter>(rop.attrs);
  const std::optional<Place> place =
      place_of(placed_makers_of(graph), rop.inputs[1], graph.tensor(rop.inputs[0]).shape[static_cast<size_t>(scatter.axis)]);
  return place ? replaced_by(graph, scatter, rop.inputs[0], place->wraps, place->number.tensor) : std::nullopt;
}

// What a Fused replaces of operand `i` before it does anything else with it: all elements of a coordinate.
std::optional<Replaced> replaced_first(const Graph& graph, const ROperator& rop, size_t i) {
  const std::optional<FusedView> steps = FusedView::of(rop);
  if (!steps) return std::nullopt;
  const Graph& body = steps->body();
  const TensorId inside = body.inputs[i];
  const ROperator* first = nullptr;
  for (const ROperator& step : body.rops) {
    for (const TensorId id : reads_of(step)) {
      if (id == inside && std::exchange(first, &step)) return std::nullopt;
    }
  }
  const auto* const scatter = first ? std::get_if<Scatter>(&first->attrs) : nullptr;
  if (!scatter || scatter->kind != ScatterKind::none || first->inputs[0] != inside) return std::nullopt;
  Shape row = body.tensor(inside).shape;
  const int64_t extent = std::exchange(row[static_cast<size_t>(scatter->axis)], 1);
  const std::optional<Place> place = place_of(makers_of(graph, *steps), first->inputs[1], extent);
  if (!place || body.tensor(first->inputs[2]).shape != row) return std::nullopt;
  return replaced_by(graph, *scatter, rop.inputs[i], place->wraps, steps->outside(place->number.tensor));
}

// Whether the tensor is a view of all of its buffer, each element once.
bool is_whole_view(const Graph& graph, TensorId id) {
  const Tensor& tensor = graph.tensor(id);
  int64_t elements = 1;
  for (size_t d = 0; d < tensor.shape.size(); ++d) elements *= tensor.place.strides[d] == 0 ? 1 : tensor.shape[d];
  return tensor.place.offset == 0 && elements == graph.buffers[tensor.place.buffer.index()].elements;
}

// Whether what the Scatter replaces in memory of its input is read by nobody else, or by such as make nothing of it.
bool is_alone(const Graph& graph, const ROperator& scatter) {
  const BufferId buffer = graph.tensor(scatter.inputs[0]).place.buffer;
  std::optional<Replaced> replaced;
  for (const ROperator& rop : graph.rops) {
    const std::vector<TensorId> reads = reads_of(rop);
    const auto count = std::count_if(reads.begin(), reads.end(), [&](TensorId id) { return graph.tensor(id).place.buffer == buffer; });
    if (count == 0) continue;
    if (rop.outputs == scatter.outputs) {
      if (count != 1) return false;
      continue;
    }
    if (!graph.loops.empty() || !std::holds_alternative<Fused>(rop.attrs) || has_epilogue(rop)) return false;
    if (!replaced) replaced = replaced_by(graph, scatter);
    if (!replaced) return false;
    for (size_t i = 0; i < rop.inputs.size(); ++i) {
      if (graph.tensor(rop.inputs[i]).place.buffer != buffer) continue;
      if (!is_whole_view(graph, rop.inputs[i]) || replaced_first(graph, rop, i) != replaced) return false;
    }
  }
  return true;
}

}  // namespace

bool may_stay_in_place(const Graph& graph, const ROperator& rop) {
  const auto* const scatter = std::get_if<Scatter>(&rop.attrs);
  if (scatter == nullptr || scatter->kind != ScatterKind::none) return false;
  const Buffer *const from = whole_buffer(graph, rop.inputs[0], BufferKind::input), *const to = whole_buffer(graph, rop.outputs[0],
                                                                                                             BufferKind::output);
  return from != nullptr && to != nullptr && from->dtype == to->dtype && from->elements != 0 && is_alone(graph, rop);
}

std::vector<int64_t> inputs_for_outputs(const Graph& graph) {
  std::vector<int64_t> inputs(graph.outputs.size(), -1);
  for (const ROperator& rop : graph.rops) {
    if (!may_stay_in_place(graph, rop)) continue;
    const auto buffer_of = [&](TensorId id) { return graph.buffers[graph.tensor(id).place.buffer.index()]; };
    inputs[static_cast<size_t>(buffer_of(rop.outputs[0]).io_index)] = buffer_of(rop.inputs[0]).io_index;
  }
  return inputs;
}

}  // namespace tamp
