#include "compiler/ir/in_place.h"

namespace tamp {
namespace {

// The buffer that the tensor fills, if it is of this kind.
const Buffer* whole_buffer(const Graph& graph, TensorId id, BufferKind kind) {
  const Tensor& tensor = graph.tensor(id);
  const Buffer& buffer = graph.buffers[tensor.place.buffer.index()];
  const bool fills = tensor.place.offset == 0 && is_row_major(tensor) && element_count(tensor.shape) == buffer.elements;
  return buffer.kind == kind && fills && buffer.dtype == tensor.dtype ? &buffer : nullptr;
}

int64_t reads_of_buffer(const Graph& graph, BufferId buffer) {
  int64_t reads = 0;
  for (const ROperator& rop : graph.rops) {
    for (const TensorId id : reads_of(rop)) reads += graph.tensor(id).place.buffer == buffer ? 1 : 0;
  }
  return reads;
}

}  // namespace

std::vector<int64_t> inputs_for_outputs(const Graph& graph) {
  std::vector<int64_t> inputs(graph.outputs.size(), -1);
  for (const ROperator& rop : graph.rops) {
    const auto* const scatter = std::get_if<Scatter>(&rop.attrs);
    if (scatter == nullptr || scatter->kind != ScatterKind::none) continue;
    const Buffer *const from = whole_buffer(graph, rop.inputs[0], BufferKind::input), *const to = whole_buffer(graph, rop.outputs[0],
                                                                                                               BufferKind::output);
    if (from == nullptr || to == nullptr || from->dtype != to->dtype || from->elements == 0) continue;
    if (reads_of_buffer(graph, graph.tensor(rop.inputs[0]).place.buffer) != 1) continue;
    inputs[static_cast<size_t>(to->io_index)] = from->io_index;
  }
  return inputs;
}

}  // namespace tamp
