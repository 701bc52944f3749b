// Where a Softmax or a Normalize is quantised right behind: QDQ models do so between the products of attention.
#include <algorithm>

#include "compiler/ir/fused.h"
#include "compiler/passes/rewrite.h"
#include "kernels/reduce/quantised_rows.h"

namespace tamp::kernels {
namespace {

// The number that the chain's one step multiplies its operand with.
std::optional<float> factor_of(const Graph& graph, const ROperator& rop) {
  const ElementwiseStep* const step = single_step(rop);
  if (!step || step->op != ElementwiseOp::mul || rop.inputs.size() != 2 || step->operands != std::vector<int32_t>{0, 1})
    return std::nullopt;
  if (graph.tensor(rop.inputs[0]).shape != graph.tensor(rop.outputs[0]).shape) return std::nullopt;
  return passes::scalar_value(graph, rop.inputs[1]);
}

// Of a chain that divides its operand by a number, rounds that, and perhaps multiplies it with a number, its step.
std::optional<float> step_of(const Graph& graph, const ROperator& rop) {
  const auto* const chain = std::get_if<Elementwise>(&rop.attrs);
  if (!chain || chain->steps.size() < 2 || chain->steps.size() > 3) return std::nullopt;
  if (chain->steps.size() == 2) return 1;
  const ElementwiseStep& last = chain->steps[2];
  if (last.op != ElementwiseOp::mul || last.operands.size() != 2 || std::min(last.operands[0], last.operands[1]) != -2) return std::nullopt;
  const int32_t number = std::max(last.operands[0], last.operands[1]);
  return number >= 0 ? passes::scalar_value(graph, rop.inputs[static_cast<size_t>(number)]) : std::nullopt;
}
std::optional<Quantised> quantised_by(const Graph& graph, const ROperator& rop, bool with_step = false) {
  const auto* const chain = std::get_if<Elementwise>(&rop.attrs);
  if (!chain || !step_of(graph, rop) || (chain->steps.size() > 2 && !with_step)) return std::nullopt;
  const ElementwiseStep &division = chain->steps[0], &end = chain->steps[1];
  if (division.op != ElementwiseOp::div || division.operands != std::vector<int32_t>{0, 1}) return std::nullopt;
  if (end.op != ElementwiseOp::rounded || end.operands != std::vector<int32_t>{-1}) return std::nullopt;
  if (graph.tensor(rop.inputs[0]).shape != graph.tensor(rop.outputs[0]).shape) return std::nullopt;
  const std::optional<float> divisor = passes::scalar_value(graph, rop.inputs[1]);
  return divisor ? std::optional(Quantised{1, *divisor, end.a, end.b}) : std::nullopt;
}

// Whether the step has one tensor of run time, and of a normalisation no table.
bool is_plain(const Graph& graph, const ROperator& rop) {
  if (!std::holds_alternative<Softmax>(rop.attrs) && !std::holds_alternative<Normalize>(rop.attrs)) return false;
  for (size_t i = 1; i < rop.inputs.size(); ++i) {
    if (i >= kNormalizeRows || (rop.inputs[i].valid() && !is_f32_constant(graph, rop.inputs[i]))) return false;
  }
  const auto* const softmax = std::get_if<Softmax>(&rop.attrs);
  return graph.tensor(rop.inputs[0]).dtype == DType::f32 && rop.epilogue.activation == Activation::none && !(softmax && softmax->end);
}

// Found from the chain behind.
template <class Op, bool kWithStep = false>
std::optional<FusionRegion> region_at(const Graph& graph, const Uses& uses, size_t at) {
  if (!quantised_by(graph, graph.rops[at], kWithStep) || graph.tensor(graph.rops[at].outputs[0]).dtype != DType::f32) return std::nullopt;
  const ROperatorId middle = uses.maker_for_one(graph.rops[at].inputs[0]);
  if (!middle.valid() || !std::holds_alternative<Op>(graph.rop(middle).attrs) || !is_plain(graph, graph.rop(middle))) return std::nullopt;
  std::vector<size_t> rops = {middle.index(), at};
  const ROperatorId first = uses.maker_for_one(graph.rop(middle).inputs[0]);
  const bool has_factor = std::is_same_v<Op, Softmax> && first.valid() && factor_of(graph, graph.rop(first));
  if (has_factor) rops.insert(rops.begin(), first.index());
  const auto join = [rops](Graph& from) {
    RegionSteps region;
    for (const size_t rop : rops) region.steps.push_back(from.rops[rop]);
    region.results = region.steps.back().outputs;
    return region;
  };
  std::vector<int64_t> kind = graph.tensor(graph.rops[at].outputs[0]).shape;
  kind.push_back(has_factor);
  return FusionRegion{std::move(kind), rops, join};
}

// Whether the rOperator is a chain of whole tensors, at most some rows for all of them, and numbers.
bool makes_sums(const Graph& graph, const ROperator& rop) {
  const auto* const chain = std::get_if<Elementwise>(&rop.attrs);
  const Tensor& made = graph.tensor(rop.outputs[0]);
  if (!chain || made.shape.empty()) return false;
  bool any = false;
  for (const TensorId id : rop.inputs) {
    const Tensor& tensor = graph.tensor(id);
    const bool is_whole = tensor.shape == made.shape;
    const bool is_row = !tensor.shape.empty() && is_f32_constant(graph, id) && element_count(tensor.shape) == made.shape.back() &&
                        tensor.shape.back() == made.shape.back();
    if (!is_whole && !is_row && !passes::scalar_value(graph, id)) return false;
    any |= is_whole && tensor.role != Role::constant;
  }
  return any;
}

// The same with the chain that makes its rows. Found from the chain behind.
std::optional<FusionRegion> summed_region_at(const Graph& graph, const Uses& uses, size_t at) {
  const std::optional<FusionRegion> normalised = region_at<Normalize, true>(graph, uses, at);
  if (!normalised) return std::nullopt;
  const ROperator& normalize = graph.rops[normalised->rops[0]];
  const ROperatorId first = uses.producer[normalize.inputs[0].index()];
  const Shape& shape = graph.tensor(normalize.outputs[0]).shape;
  const auto is_f32 = [&](TensorId id) { return graph.tensor(id).dtype == DType::f32; };
  if (!first.valid() || !std::all_of(graph.rop(first).inputs.begin(), graph.rop(first).inputs.end(), is_f32)) return std::nullopt;
  if (!makes_sums(graph, graph.rop(first)) || graph.tensor(normalize.inputs[0]).shape != shape) return std::nullopt;
  if (std::get<Normalize>(normalize.attrs).axes != std::vector{static_cast<int64_t>(shape.size()) - 1}) return std::nullopt;
  const TensorId sums = normalize.inputs[0];
  const bool keeps = uses.consumers[sums.index()].size() > 1 || uses.is_output[sums.index()];
  const std::vector<size_t> rops = {first.index(), normalised->rops[0], at};
  const auto join = [rops, keeps, sums](Graph& from) {
    RegionSteps region;
    for (const size_t rop : rops) region.steps.push_back(from.rops[rop]);
    region.results = region.steps.back().outputs;
    if (keeps) region.results.push_back(sums);
    return region;
  };
  std::vector<int64_t> kind = shape;
  kind.insert(kind.end(), {keeps, static_cast<int64_t>(std::get<Elementwise>(graph.rop(first).attrs).steps.size())});
  return FusionRegion{std::move(kind), rops, join};
}

}  // namespace

std::optional<SummedRows> summed_rows_of(const Graph& graph, const ROperator& rop) {
  const std::optional<FusedView> view = FusedView::of(rop);
  if (!view || view->count() != 3 || !view->as<Elementwise>(0) || !view->as<Normalize>(1) || !view->feeds(0, 1) || !view->feeds(1, 2))
    return std::nullopt;
  const Graph steps = steps_of(graph, rop);
  const std::optional<Quantised> by = quantised_by(steps, steps.rops[2], /*with_step=*/true);
  if (!by || !makes_sums(steps, steps.rops[0])) return std::nullopt;
  SummedRows found{view->alone(0), view->alone(1), *by, *step_of(steps, steps.rops[2])};
  found.normalize.outputs = {rop.outputs[0]};
  for (const TensorId id : found.chain.inputs) {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.role == Role::constant || tensor.shape != graph.tensor(rop.outputs[0]).shape) continue;
    found.normalize.inputs[0] = id;
    return found;
  }
  return std::nullopt;
}

std::optional<QuantisedRows> quantised_rows_of(const Graph& graph, const ROperator& rop) {
  const std::optional<FusedView> view = FusedView::of(rop);
  if (!view || view->count() < 2 || view->count() > 3 || rop.outputs.size() != 1) return std::nullopt;
  const size_t last = view->count() - 1;
  if (!view->as<Softmax>(last - 1) && !view->as<Normalize>(last - 1)) return std::nullopt;
  const Graph steps = steps_of(graph, rop);
  const std::optional<Quantised> by = quantised_by(steps, steps.rops[last]);
  if (!by || !view->feeds(last - 1, last)) return std::nullopt;
  QuantisedRows found{view->alone(last - 1), *by};
  found.rop.outputs = rop.outputs;
  if (last == 1) return found;
  const std::optional<float> factor = factor_of(steps, steps.rops[0]);
  if (!factor || !view->feeds(0, 1) || !view->as<Softmax>(1)) return std::nullopt;
  found.by.factor = *factor;
  found.rop.inputs[0] = view->input(0, 0);
  return found;
}

FusionPattern quantised_sums() {
  return {.title = "quantised sum and normalisation",
          .when = FusionTime::rows,
          .least_us_of_kind = 0.3,
          .regions = regions_at_each(summed_region_at)};
}
FusionPattern quantised_normalizations() {
  return {.title = "quantised normalisation",
          .when = FusionTime::rows,
          .least_us_of_kind = 0.3,
          .regions = regions_at_each(region_at<Normalize>)};
}
FusionPattern quantised_softmax() {
  return {.title = "quantised softmax", .when = FusionTime::rows, .least_us_of_kind = 0.3, .regions = regions_at_each(region_at<Softmax>)};
}

}  // namespace tamp::kernels
