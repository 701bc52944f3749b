#include "compiler/passes/tidy/shrink_biases.h"

#include <algorithm>
#include <cstring>

#include "compiler/ir/fused.h"
#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

constexpr size_t kBias = kAttentionBias;

// A dimension of a constant's values: `before` times, `extent` runs of so many bytes follow each other.
struct Runs {
  size_t before = 1, extent, bytes;
};
Runs runs_of(const Tensor& tensor, size_t dimension) {
  Runs runs{1, static_cast<size_t>(tensor.shape[dimension]), static_cast<size_t>(bytes_of(tensor.dtype))};
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    if (d < dimension) runs.before *= static_cast<size_t>(tensor.shape[d]);
    if (d > dimension) runs.bytes *= static_cast<size_t>(tensor.shape[d]);
  }
  return runs;
}

// Whether the values of an operand are the same along dimension `axis` of a shape of `rank` that the operand broadcasts to.
bool is_same_along(const Tensor& tensor, size_t rank, size_t axis) {
  const size_t missing = rank - tensor.shape.size();
  if (axis < missing || tensor.shape[axis - missing] == 1) return true;
  if (tensor.role != Role::constant) return false;
  const Runs runs = runs_of(tensor, axis - missing);
  for (size_t i = 0; i < runs.before; ++i) {
    const std::byte* const first = tensor.data->data() + i * runs.extent * runs.bytes;
    for (size_t e = 1; e < runs.extent; ++e) {
      if (std::memcmp(first, first + e * runs.bytes, runs.bytes) != 0) return false;
    }
  }
  return true;
}

// The same constant with extent 1 in a dimension along which its values are the same.
TensorId shrunk(Graph& graph, TensorId id, size_t dimension) {
  const Tensor tensor = graph.tensor(id);
  const Runs runs = runs_of(tensor, dimension);
  Bytes data;
  for (size_t i = 0; i < runs.before; ++i) {
    const auto first = tensor.data->begin() + static_cast<std::ptrdiff_t>(i * runs.extent * runs.bytes);
    data.insert(data.end(), first, first + static_cast<std::ptrdiff_t>(runs.bytes));
  }
  Shape shape = tensor.shape;
  shape[dimension] = 1;
  return add_constant(graph, tensor.name + ".shrunk", tensor.dtype, shape, std::move(data));
}

// The bias of an Attention, or of the last of several steps that is one; none of other rOperators.
TensorId bias_of(const ROperator& rop) {
  if (std::holds_alternative<Attention>(rop.attrs)) return operand(rop, kBias);
  const std::optional<FusedView> steps = FusedView::of(rop);
  return steps && steps->as<Attention>(steps->count() - 1) ? steps->input(steps->count() - 1, kBias) : TensorId();
}

// Whether all that reads the tensor is attention, each as its bias.
bool is_only_bias(const Graph& graph, const Uses& uses, TensorId id) {
  const auto& readers = uses.consumers[id.index()];
  return !readers.empty() && !uses.is_output[id.index()] && std::all_of(readers.begin(), readers.end(), [&](ROperatorId reader) {
    const ROperator& rop = graph.rop(reader);
    return bias_of(rop) == id && std::count(rop.inputs.begin(), rop.inputs.end(), id) == 1;
  });
}

// The steps with the shape that their bias has now.
void take_shape(const Graph& graph, ROperator& rop) {
  auto* const fused = std::get_if<Fused>(&rop.attrs);
  if (!fused || !bias_of(rop).valid()) return;
  const auto at = static_cast<size_t>(std::find(rop.inputs.begin(), rop.inputs.end(), bias_of(rop)) - rop.inputs.begin());
  Graph body = *fused->body;
  body.tensor(body.inputs[at]).shape = graph.tensor(rop.inputs[at]).shape;
  fused->body = std::make_shared<const Graph>(std::move(body));
}

void shrink(Graph& graph, size_t at, size_t axis) {
  const TensorId made = graph.rops[at].outputs[0];
  const size_t rank = graph.tensor(made).shape.size();
  for (size_t i = 0; i < graph.rops[at].inputs.size(); ++i) {
    const TensorId id = graph.rops[at].inputs[i];
    const Shape& shape = graph.tensor(id).shape;
    const size_t missing = rank - shape.size();
    if (axis < missing || shape[axis - missing] == 1) continue;
    const TensorId one = shrunk(graph, id, axis - missing);
    graph.rops[at].inputs[i] = one;
  }
  auto& op = std::get<Elementwise>(graph.rops[at].attrs);
  if (const size_t missing = rank - op.shape.size(); axis >= missing) op.shape[axis - missing] = 1;
  graph.tensor(made).shape[axis] = 1;
}

}  // namespace

Graph shrink_biases(Graph graph) {
  const Uses uses = uses_of(graph);
  for (size_t at = 0; at < graph.rops.size(); ++at) {
    if (!std::holds_alternative<Elementwise>(graph.rops[at].attrs)) continue;
    const TensorId made = graph.rops[at].outputs[0];
    if (!is_only_bias(graph, uses, made)) continue;
    const size_t rank = graph.tensor(made).shape.size();
    for (size_t axis = 0; axis < rank; ++axis) {
      const auto is_same = [&](TensorId id) { return is_same_along(graph.tensor(id), rank, axis); };
      const std::vector<TensorId>& inputs = graph.rops[at].inputs;
      if (graph.tensor(made).shape[axis] > 1 && std::all_of(inputs.begin(), inputs.end(), is_same)) shrink(graph, at, axis);
    }
  }
  for (ROperator& rop : graph.rops) take_shape(graph, rop);
  return remove_dead(std::move(graph));
}

}  // namespace tamp::passes
