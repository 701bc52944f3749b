// Where the gated feed-forward part of a transformer becomes one rOperator.
#include <optional>
#include <utility>

#include "compiler/passes/rewrite.h"
#include "compiler/passes/row_products.h"
#include "kernels/chain/gated_feed_forward.h"

namespace tamp::kernels {
namespace {

// A further body in the program costs what no estimate holds. In each region the estimate takes both factors one after the other, and they
// would be made at the same time.
constexpr double kLeastGatedGainUs = 2, kLeastGatedRegionUs = 3;

// A product of f32 rows with constant weights, and nothing but the activation and a residual behind it.
bool is_bare_product(const Graph& graph, const ROperator& rop, Activation activation) {
  return passes::is_row_product(graph, rop) && !rop.epilogue.bias.valid() && rop.epilogue.activation == activation &&
         graph.tensor(rop.inputs[0]).dtype == DType::f32;
}

bool is_multiplication(const ROperator& rop) {
  const ElementwiseStep* const step = single_step(rop);
  return step != nullptr && step->op == ElementwiseOp::mul && rop.inputs.size() == 2;
}

std::optional<FusionRegion> gated_at(const Graph& graph, const Uses& uses, size_t at) {
  const auto shape = [&](TensorId id) -> const Shape& { return graph.tensor(id).shape; };
  const ROperator& down = graph.rops[at];
  const TensorId residual = down.epilogue.residual;
  if (!is_bare_product(graph, down, Activation::none) ||
      (residual.valid() && (shape(residual) != shape(down.outputs[0]) || graph.tensor(residual).dtype != DType::f32)))
    return std::nullopt;
  const ROperatorId middle = uses.maker_for_one(down.inputs[0]);
  if (!middle.valid() || !is_multiplication(graph.rop(middle))) return std::nullopt;
  const std::vector<TensorId>& factors = graph.rop(middle).inputs;
  ROperatorId gate = uses.maker_for_one(factors[0]), up = uses.maker_for_one(factors[1]);
  if (!gate.valid() || !up.valid()) return std::nullopt;
  if (graph.rop(gate).epilogue.activation == Activation::none) std::swap(gate, up);
  for (const auto& [id, activation] : {std::pair(gate, Activation::silu), std::pair(up, Activation::none)}) {
    if (!is_bare_product(graph, graph.rop(id), activation) || graph.rop(id).epilogue.residual.valid()) return std::nullopt;
  }
  const TensorId x = graph.rop(gate).inputs[0];
  if (graph.rop(up).inputs[0] != x || shape(factors[0]) != shape(factors[1])) return std::nullopt;
  const int64_t k = shape(x).back(), inner = shape(factors[0]).back(), columns = shape(down.outputs[0]).back();
  if (!has_gated_body(k, inner, columns)) return std::nullopt;
  const auto join = [=](const Graph& from) {
    return RegionSteps{{from.rop(gate), from.rop(up), from.rop(middle), from.rops[at]}, {from.rops[at].outputs[0]}};
  };
  return FusionRegion{
      {element_count(shape(x)) / k, k, inner, columns, residual.valid()}, {gate.index(), up.index(), middle.index(), at}, join};
}

}  // namespace

std::optional<FusedView> gated_feed_forward_steps(const ROperator& rop) {
  const std::optional<FusedView> steps = FusedView::of(rop);
  if (!steps || steps->count() != 4 || rop.outputs.size() != 1) return std::nullopt;
  const auto is_product = [&](size_t i, Activation activation) {
    const Epilogue& e = steps->step(i).epilogue;
    return steps->as<MatMul>(i) && !steps->as<MatMul>(i)->trans_a && steps->step(i).inputs.size() == 2 && !e.bias.valid() &&
           e.activation == activation && (i == 3 ? !e.residual_after_activation : !e.residual.valid());
  };
  const bool are_products = is_product(0, Activation::silu) && is_product(1, Activation::none) && is_product(3, Activation::none);
  const auto feeds_middle = [&](size_t from) { return steps->feeds(from, 2, 0) || steps->feeds(from, 2, 1); };
  return are_products && is_multiplication(steps->step(2)) && feeds_middle(0) && feeds_middle(1) && steps->feeds(2, 3) &&
                 steps->input(0, 0).valid() && steps->input(0, 0) == steps->input(1, 0)
             ? steps
             : std::nullopt;
}

FusionPattern gated_feed_forwards() {
  return {.title = "gated feed-forward part",
          .when = FusionTime::rows,
          .least_us_of_kind = kLeastGatedGainUs,
          .least_us_of_region = kLeastGatedRegionUs,
          .regions = regions_at_each(gated_at)};
}

}  // namespace tamp::kernels
