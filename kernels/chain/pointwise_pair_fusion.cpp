// Where two pointwise convolutions in a row become one rOperator.
#include <algorithm>
#include <optional>

#include "compiler/passes/rewrite.h"
#include "kernels/chain/pointwise_pair.h"

namespace tamp::kernels {
namespace {

bool is_plain_pointwise(const Graph& graph, const ROperator& rop) {
  const auto* conv = std::get_if<Conv>(&rop.attrs);
  if (!conv || !is_pointwise(*conv) || has_prologue(*conv) || rop.inputs.size() != 2 || !is_f32_constant(graph, rop.inputs[1]))
    return false;
  const Tensor &x = graph.tensor(rop.inputs[0]), &y = graph.tensor(rop.outputs[0]), &w = graph.tensor(rop.inputs[1]);
  return passes::is_row_or_none(graph, rop.epilogue.bias, w.shape[0]) && x.dtype == DType::f32 && y.dtype == DType::f32 &&
         x.shape.size() == 4 && element_count(x.shape) > 0 && w.shape[0] % 4 == 0;
}

// Whether `rop` adds `y` to its own results and does nothing else with it. What reads y otherwise would have to wait for the whole pair.
bool only_adds(const ROperator& rop, TensorId y) {
  const std::optional<FusedView> pair = pointwise_pair_steps(rop);
  if (pair) return pair->residual(0) == y && pair->input(0, 0) != y;
  return rop.epilogue.residual == y && std::count(rop.inputs.begin(), rop.inputs.end(), y) == 0;
}

std::optional<FusionRegion> pair_at(const Graph& graph, const Uses& uses, size_t at) {
  const ROperator& second = graph.rops[at];
  if (!is_plain_pointwise(graph, second) || second.epilogue.residual.valid()) return std::nullopt;
  const TensorId y = second.inputs[0];
  const ROperatorId maker = uses.producer[y.index()];
  if (!maker.valid() || !is_plain_pointwise(graph, graph.rop(maker))) return std::nullopt;
  const ROperator& first = graph.rop(maker);
  const TensorId residual = first.epilogue.residual;
  // What the caller hands in lies row by row.
  if (residual.valid() && (graph.tensor(residual).role == Role::input || first.epilogue.residual_after_activation ||
                           graph.tensor(residual).shape != graph.tensor(y).shape || graph.tensor(residual).dtype != DType::f32))
    return std::nullopt;
  for (const ROperatorId consumer : uses.consumers[y.index()]) {
    if (consumer.index() != at && !only_adds(graph.rop(consumer), y)) return std::nullopt;
  }
  const bool keeps = uses.is_output[y.index()] || uses.consumers[y.index()].size() > 1;
  const Shape &x = graph.tensor(first.inputs[0]).shape, &z = graph.tensor(second.outputs[0]).shape;
  const auto join = [maker, at, keeps](Graph& from) {
    const ROperator &one = from.rop(maker), &two = from.rops[at];
    std::vector<TensorId> results = {two.outputs[0]};
    if (keeps) results.push_back(one.outputs[0]);
    return RegionSteps{{one, two}, results, {one.inputs[0], one.inputs[1], two.inputs[1], one.epilogue.bias, two.epilogue.bias}};
  };
  return FusionRegion{{x[1], graph.tensor(y).shape[1], z[1], x[0] * x[2] * x[3], residual.valid(), keeps}, {maker.index(), at}, join};
}

}  // namespace

std::optional<FusedView> pointwise_pair_steps(const ROperator& rop) {
  const std::optional<FusedView> steps = FusedView::of(rop);
  const auto is_step = [&](size_t i) {
    return steps->as<Conv>(i) && is_pointwise(*steps->as<Conv>(i)) && !has_prologue(*steps->as<Conv>(i));
  };
  return steps && steps->count() == 2 && is_step(0) && is_step(1) && steps->feeds(0, 1) && !steps->step(1).epilogue.residual.valid()
             ? steps
             : std::nullopt;
}

// The first rTask of a body takes 1 to 2 us longer than the next, since its code is not there yet.
FusionPattern pointwise_pairs() {
  return {.title = "pair of pointwise convolutions",
          .when = FusionTime::maps,
          .least_us_of_region = 0.2,
          .least_us_of_all = 2.5,
          .regions = regions_at_each(pair_at)};
}

}  // namespace tamp::kernels
