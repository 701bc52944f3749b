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

bool is_packed(const ROperator& rop) {
  const auto* const pad = std::get_if<Pad>(&rop.attrs);
  return pad != nullptr && pad->packed != Packed::none;
}

// The caller's tensors of programs with lengths are copied as they are, and cast inside: an element of theirs has no fixed place. Returns
// which rOperators are these copies and casts.
std::vector<bool> cast_inside(Graph& graph, std::vector<TensorId>& read) {
  std::vector<ROperator> rops;
  std::vector<bool> is_made;
  const auto cast = [&](const ROperator& rop, TensorId from, TensorId to) {
    is_made.resize(rops.size() + 1, true);
    rops.push_back(
        {rop.name + ".cast", Elementwise{{{ElementwiseOp::cast, {0}}}, {}, graph.tensor(to).dtype}, {}, {from}, {to}, rop.origin});
  };
  const auto add = [&](TensorId like, DType dtype) {
    Tensor tensor = graph.tensor(like);
    tensor.name += ".cast";
    tensor.dtype = dtype;
    tensor.role = Role::activation;
    read.emplace_back();
    return read.back() = add_tensor(graph, std::move(tensor));
  };
  for (const ROperator& rop : graph.rops) {
    const TensorId result = rop.outputs[0];
    const bool is_copy = is_packed(rop) && is_half(graph.tensor(result).dtype);
    ROperator copy = rop;
    if (!is_copy || std::get<Pad>(rop.attrs).packed == Packed::in) {
      rops.push_back(copy);
      is_made.push_back(is_copy);
    }
    if (!is_copy) continue;
    if (std::get<Pad>(rop.attrs).packed == Packed::in) {
      cast(rop, result, read[result.index()] = add(result, DType::f32));
    } else {
      copy.inputs[0] = add(result, graph.tensor(result).dtype);
      cast(rop, rop.inputs[0], copy.inputs[0]);
      rops.push_back(std::move(copy));
      is_made.push_back(true);
    }
  }
  graph.rops = std::move(rops);
  return is_made;
}

// Made when it is read: the weights of a large model would be twice as large.
TensorData widened(const Tensor& constant) {
  return TensorData::made_by(constant.data.size() * sizeof(float) / sizeof(uint16_t),
                             [dtype = constant.dtype, halves = constant.data] { return ops::f32_bytes(dtype, *halves.hold()); });
}

}  // namespace

Graph widen_halves(Graph graph) {
  const auto has_half = [](const Tensor& tensor) { return is_half(tensor.dtype); };
  if (std::none_of(graph.tensors.begin(), graph.tensors.end(), has_half)) return graph;
  graph.input_types = types_of(graph, graph.inputs);
  graph.output_types = types_of(graph, graph.outputs);
  // What rOperators read in place of a tensor. A constant that is an output stays what it is there.
  std::vector<TensorId> read(graph.tensors.size());
  for (size_t i = 0; i < read.size(); ++i) read[i] = TensorId(static_cast<int64_t>(i));
  const std::vector<bool> is_made = cast_inside(graph, read);
  std::vector<bool> stays(graph.tensors.size(), false);  // what copies of the caller's tensors touch
  for (const ROperator& rop : graph.rops) {
    if (is_packed(rop)) stays[rop.inputs[0].index()] = stays[rop.outputs[0].index()] = true;
  }
  for (size_t i = 0; i < stays.size(); ++i) {
    const TensorId id(static_cast<int64_t>(i));
    if (!is_half(graph.tensor(id).dtype) || stays[i]) continue;
    if (graph.tensor(id).role != Role::constant) {
      graph.tensor(id).dtype = DType::f32;
      continue;
    }
    Tensor wide = graph.tensor(id);
    wide.dtype = DType::f32;
    wide.data = widened(graph.tensor(id));
    if (std::find(graph.outputs.begin(), graph.outputs.end(), id) == graph.outputs.end())
      graph.tensor(id) = std::move(wide);
    else
      read[i] = add_tensor(graph, std::move(wide));
  }
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    ROperator& rop = graph.rops[i];
    if (is_made[i]) continue;
    for (TensorId& id : rop.inputs) id = id.valid() ? read[id.index()] : id;
    if (auto* const op = std::get_if<Elementwise>(&rop.attrs); op && op->dtype && is_half(*op->dtype)) op->dtype = DType::f32;
  }
  return remove_dead(std::move(graph));
}

}  // namespace tamp::passes
