#include "compiler/passes/recognise/mask_softmax.h"

#include <limits>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {

Graph mask_softmax(Graph graph) {
  std::vector<std::vector<ROperator>> made(graph.rops.size());
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    ROperator rop = graph.rops[i];
    auto* const softmax = std::get_if<Softmax>(&rop.attrs);
    if (!softmax || !softmax->end) continue;
    const TensorId x = rop.inputs[0];
    const Shape shape = graph.tensor(x).shape;
    const DType dtype = graph.tensor(x).dtype;
    size_t dim = static_cast<size_t>(softmax->first_axis);
    while (shape[dim] == 1 && static_cast<int64_t>(dim) < softmax->last_axis) ++dim;
    Shape valid_shape(shape.size() - dim, 1);
    valid_shape[0] = shape[dim];
    Pad pad;
    pad.before = pad.after = std::vector<int64_t>(valid_shape.size(), 0);
    pad.ends = {{0, *softmax->end}};
    const TensorId ones =
        add_f32_constant(graph, rop.name + ".ones", valid_shape, std::vector<float>(static_cast<size_t>(shape[dim]), 1.0F));
    const TensorId least = add_f32_constant(graph, rop.name + ".least", {}, {-std::numeric_limits<float>::infinity()});
    const TensorId valid = add_tensor(graph, {.name = rop.name + ".valid", .dtype = DType::f32, .shape = valid_shape});
    const TensorId masked = add_tensor(graph, {.name = rop.name + ".masked", .dtype = dtype, .shape = shape});
    made[i].push_back({rop.name + ".valid", pad, {}, {ones}, {valid}, rop.origin});
    made[i].push_back(make_elementwise(rop.name + ".masked", {{ElementwiseOp::where, {0, 1, 2}}}, {valid, x, least}, masked));
    made[i].back().origin = rop.origin;
    softmax->end.reset();
    rop.inputs[0] = masked;
    made[i].push_back(std::move(rop));
  }
  return replace_rops(std::move(graph), std::move(made));
}

}  // namespace tamp::passes
