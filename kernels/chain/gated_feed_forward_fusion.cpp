// Where the gated feed-forward part of a transformer becomes one rOperator.
#include <optional>
#include <utility>

#include "compiler/passes/rewrite.h"
#include "compiler/passes/row_products.h"
#include "kernels/chain/gated_feed_forward.h"

namespace tamp::kernels {
namespace {

// A further body in the program costs what no estimate holds, and each region the fusions of its last product with a normalisation, which
// come later.
constexpr double kLeastGainUs = 2, kLeastGainOfRegionUs = 1.5;

// A product of f32 rows with constant weights, and nothing but the activation behind it.
bool is_bare_product(const Graph& graph, const ROperator& rop, Activation activation) {
  return passes::is_row_product(graph, rop) && !rop.epilogue.bias.valid() && rop.epilogue.activation == activation &&
         graph.tensor(rop.inputs[0]).dtype == DType::f32;
}

bool is_multiplication(const ROperator& rop) {
  const ElementwiseStep* const step = passes::single_step(rop);
  return step != nullptr && step->op == ElementwiseOp::mul && rop.inputs.size() == 2;
}

class GatedMatcher {
 public:
  explicit GatedMatcher(const Graph& graph) : graph_(graph), uses_(uses_of(graph)) {}

  std::optional<FusionRegion> match(size_t at) const {
    const ROperator& down = graph_.rops[at];
    if (!is_bare_product(graph_, down, Activation::none) || !may_add(down)) return std::nullopt;
    const ROperatorId middle = only_maker(down.inputs[0]);
    if (!middle.valid() || !is_multiplication(graph_.rop(middle))) return std::nullopt;
    const std::vector<TensorId>& factors = graph_.rop(middle).inputs;
    ROperatorId gate = only_maker(factors[0]), up = only_maker(factors[1]);
    if (!gate.valid() || !up.valid() || gate == up) return std::nullopt;
    if (graph_.rop(gate).epilogue.activation == Activation::none) std::swap(gate, up);
    for (const auto& [id, activation] : {std::pair(gate, Activation::silu), std::pair(up, Activation::none)}) {
      const ROperator& product = graph_.rop(id);
      if (!is_bare_product(graph_, product, activation) || product.epilogue.residual.valid()) return std::nullopt;
    }
    const TensorId x = graph_.rop(gate).inputs[0];
    if (graph_.rop(up).inputs[0] != x || shape(factors[0]) != shape(factors[1])) return std::nullopt;
    const int64_t k = shape(x).back(), inner = shape(factors[0]).back(), columns = shape(down.outputs[0]).back();
    if (!has_gated_body(k, inner, columns)) return std::nullopt;
    const auto join = [=](Graph& from) {
      return RegionSteps{{from.rop(gate), from.rop(up), from.rop(middle), from.rops[at]}, {from.rops[at].outputs[0]}};
    };
    return FusionRegion{{element_count(shape(x)) / k, k, inner, columns, down.epilogue.residual.valid()},
                        {gate.index(), up.index(), middle.index(), at},
                        join};
  }

 private:
  const Shape& shape(TensorId id) const { return graph_.tensor(id).shape; }
  ROperatorId only_maker(TensorId id) const {
    return uses_.consumers[id.index()].size() == 1 && !uses_.is_output[id.index()] ? uses_.producer[id.index()] : ROperatorId();
  }
  bool may_add(const ROperator& down) const {
    const TensorId residual = down.epilogue.residual;
    return !residual.valid() || (shape(residual) == shape(down.outputs[0]) && graph_.tensor(residual).dtype == DType::f32);
  }

  const Graph& graph_;
  Uses uses_;
};

std::vector<FusionRegion> gated_regions_of(const Graph& graph) {
  const GatedMatcher matcher(graph);
  std::vector<FusionRegion> regions;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    if (std::optional<FusionRegion> region = matcher.match(i)) regions.push_back(*std::move(region));
  }
  return regions;
}

}  // namespace

std::optional<FusedView> gated_feed_forward_steps(const ROperator& rop) {
  const std::optional<FusedView> steps = FusedView::of(rop);
  if (!steps || steps->count() != 4 || rop.outputs.size() != 1) return std::nullopt;
  const auto is_product = [&](size_t i, Activation activation) {
    const Epilogue& e = steps->step(i).epilogue;
    return steps->as<MatMul>(i) && !steps->as<MatMul>(i)->trans_a && steps->step(i).inputs.size() == 2 && !e.bias.valid() &&
           (i == 3 ? !e.residual_after_activation : !e.residual.valid()) && e.activation == activation;
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
          .least_us_of_kind = kLeastGainUs,
          .least_us_of_region = kLeastGainOfRegionUs,
          .regions = gated_regions_of};
}

}  // namespace tamp::kernels
