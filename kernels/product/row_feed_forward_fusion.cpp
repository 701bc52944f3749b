// Where the feed-forward part of one row becomes one rOperator: behind products_with_prologue, so that what it would take the place of is
// as fast as it can be.
#include <optional>
#include <utility>

#include "compiler/passes/rewrite.h"
#include "compiler/passes/row_products.h"
#include "kernels/product/gemv_of_rows.h"
#include "kernels/product/row_feed_forward.h"

namespace tamp::kernels {
namespace {

// The estimate takes both factors one after the other, and as parts of a program they are made at the same time, which counts where they
// are small: on an H200 a layer of SmolLM takes 2.3 us more as one rOperator, one of Llama-3.2-1B 7.1 us less.
constexpr double kLeastRegionUs = 3;

// A product of one row as the graph has it by then: alone, or with what makes its row.
struct OneRow {
  size_t at;
  ROperator product;
  const Normalize* normalize = nullptr;
  ROperator rows;  // the Normalize, on tensors of the graph
  TensorId x;
};

std::optional<OneRow> one_row_at(const Graph& graph, size_t at) {
  const ROperator& rop = graph.rops[at];
  const TensorId out = rop.outputs[0];
  if (rop.outputs.size() != 1 || graph.tensor(out).shape.empty() ||
      element_count(graph.tensor(out).shape) != graph.tensor(out).shape.back())
    return std::nullopt;
  if (passes::is_row_product(graph, rop)) return OneRow{at, rop, nullptr, {}, rop.inputs[0]};
  const std::optional<StepsOfRows> of = steps_of_rows(rop);
  if (!of || of->chain || !of->normalize) return std::nullopt;
  OneRow found{at, of->steps.alone(1), of->normalize, of->steps.alone(0), of->steps.input(0, 0)};
  return found;
}

bool normalise_alike(const OneRow& a, const OneRow& b) {
  if ((a.normalize == nullptr) != (b.normalize == nullptr) || a.x != b.x) return false;
  return a.normalize == nullptr || (*a.normalize == *b.normalize && a.rows.inputs == b.rows.inputs);
}

// The two factors of a row, of which this is the product, and the product by `second` that reads it.
struct Middle {
  TensorId first, up;
  ROperator second;
  std::vector<size_t> rops;
};

std::optional<Middle> middle_at(const Graph& graph, const Uses& uses, size_t at) {
  const ROperator& rop = graph.rops[at];
  const auto of_factors = [](const Elementwise* chain, const std::vector<TensorId>& inputs) {
    return chain && chain->steps.size() == 1 && chain->steps[0].op == ElementwiseOp::mul && inputs.size() == 2 && inputs[0] != inputs[1];
  };
  if (const std::optional<StepsOfRows> of = steps_of_rows(rop)) {
    if (of->normalize || !of_factors(of->chain, of->steps.step(0).inputs)) return std::nullopt;
    return Middle{of->steps.input(0, 0), of->steps.input(0, 1), of->steps.alone(1), {at}};
  }
  if (!passes::is_row_product(graph, rop)) return std::nullopt;
  const ROperatorId maker = uses.maker_for_one(rop.inputs[0]);
  if (!maker.valid()) return std::nullopt;
  const ROperator& made = graph.rop(maker);
  if (of_factors(std::get_if<Elementwise>(&made.attrs), made.inputs))
    return Middle{made.inputs[0], made.inputs[1], rop, {maker.index(), at}};
  return Middle{rop.inputs[0], {}, rop, {at}};
}

RegionSteps join(Graph& graph, const OneRow& first, const std::optional<OneRow>& up, ROperator second) {
  RegionSteps made;
  TensorId rows = first.x;
  if (first.normalize) {
    ROperator normalize = first.rows;
    rows = passes::add_like(graph, first.x, second.name + ".normalised", graph.tensor(first.x).shape);
    normalize.outputs = {rows};
    normalize.origin.clear();  // of a Fused's steps; the products have those of the whole
    made.steps.push_back(std::move(normalize));
  }
  std::vector<TensorId> factors;
  for (const OneRow* const of : {&first, up ? &*up : nullptr}) {
    if (!of) continue;
    ROperator product = of->product;
    product.inputs[0] = rows;
    product.outputs = {graph.rops[of->at].outputs[0]};
    product.origin = graph.rops[of->at].origin;
    factors.push_back(product.outputs[0]);
    made.steps.push_back(std::move(product));
  }
  TensorId y = factors[0];
  if (up) {
    y = passes::add_like(graph, y, second.name + ".factors", graph.tensor(y).shape);
    made.steps.push_back(passes::make_elementwise(second.name + ".factors", {{ElementwiseOp::mul, {0, 1}}}, factors, y));
  }
  second.inputs[0] = y;
  made.results = second.outputs;
  made.steps.push_back(std::move(second));
  return made;
}

std::optional<FusionRegion> region_at(const Graph& graph, const Uses& uses, size_t at) {
  if (graph.rops[at].outputs.size() != 1) return std::nullopt;
  const TensorId out = graph.rops[at].outputs[0];
  if (graph.tensor(out).shape.empty() || element_count(graph.tensor(out).shape) != graph.tensor(out).shape.back()) return std::nullopt;
  std::optional<Middle> middle = middle_at(graph, uses, at);
  if (!middle || middle->second.epilogue.activation != Activation::none || middle->second.epilogue.residual_after_activation)
    return std::nullopt;
  // A Fused that multiplies a factor and adds it, too, is one reader of it.
  const TensorId residual = middle->second.epilogue.residual;
  if (residual.valid() && (residual == middle->first || residual == middle->up)) return std::nullopt;
  const auto maker_of = [&](TensorId id) -> std::optional<OneRow> {
    const ROperatorId maker = id.valid() ? uses.maker_for_one(id) : ROperatorId();
    std::optional<OneRow> found = maker.valid() ? one_row_at(graph, maker.index()) : std::nullopt;
    return found && !found->product.epilogue.residual.valid() ? found : std::nullopt;
  };
  std::optional<OneRow> first = maker_of(middle->first), up = maker_of(middle->up);
  if (!first || middle->up.valid() != up.has_value()) return std::nullopt;
  if (up) {
    if (first->product.epilogue.activation == Activation::none) std::swap(first, up);
    if (up->product.epilogue.activation != Activation::none || !normalise_alike(*first, *up)) return std::nullopt;
  }
  const auto count = [&](TensorId id) { return element_count(graph.tensor(id).shape); };
  FusionRegion region{{count(first->x), count(middle->first), count(out), up.has_value(), first->normalize != nullptr}, middle->rops, {}};
  region.rops.push_back(first->at);
  if (up) region.rops.push_back(up->at);
  middle->second.outputs = {out};
  middle->second.origin = graph.rops[at].origin;
  region.join = [first = *first, up, second = middle->second](Graph& from) { return join(from, first, up, second); };
  return region;
}

}  // namespace

std::optional<RowFeedSteps> row_feed_steps(const ROperator& rop) {
  const std::optional<FusedView> view = FusedView::of(rop);
  if (!view || rop.outputs.size() != 1) return std::nullopt;
  RowFeedSteps s{*view, nullptr, 0, {}};
  s.normalize = view->as<Normalize>(0);
  s.first = s.normalize ? 1 : 0;
  const size_t products = view->count() - s.first;
  if (products != 2 && products != 4) return std::nullopt;
  if (products == 4) s.up = s.first + 1;
  const Graph& body = view->body();
  const auto is_product = [&](size_t i, bool is_last) {
    const ROperator& step = view->step(i);
    const Shape& made = body.tensor(step.outputs[0]).shape;
    return view->as<MatMul>(i) && !view->as<MatMul>(i)->trans_a && step.inputs.size() == 2 && !step.epilogue.residual_after_activation &&
           !made.empty() && element_count(made) == made.back() && (is_last || !step.epilogue.residual.valid());
  };
  if (!is_product(s.first, false) || !is_product(s.second(), true) || view->step(s.second()).epilogue.activation != Activation::none)
    return std::nullopt;
  const auto reads_x = [&](size_t i) {
    return s.normalize ? view->feeds(0, i) : view->input(i, 0).valid() && view->input(i, 0) == view->input(0, 0);
  };
  if (!reads_x(s.first)) return std::nullopt;
  if (s.normalize) {
    const ROperator& step = view->step(0);
    const Shape& x = body.tensor(step.inputs[0]).shape;
    const auto is_row_or_none = [&](TensorId id) { return !id.valid() || body.tensor(id).shape == Shape{x.back()}; };
    if (x.empty() || s.normalize->axes != std::vector{static_cast<int64_t>(x.size()) - 1} || !is_row_or_none(operand(step, 1)) ||
        !is_row_or_none(operand(step, 2)) || operand(step, kNormalizeRows).valid())
      return std::nullopt;
  }
  if (!s.up) return view->feeds(s.first, s.second()) ? std::optional(s) : std::nullopt;
  const size_t middle = *s.up + 1;
  const auto* const chain = view->as<Elementwise>(middle);
  const bool multiplies = chain && chain->steps.size() == 1 && chain->steps[0].op == ElementwiseOp::mul &&
                          view->step(middle).inputs.size() == 2 && view->feeds(s.first, middle, 0) && view->feeds(*s.up, middle, 1);
  const bool takes = multiplies && is_product(*s.up, false) && view->step(*s.up).epilogue.activation == Activation::none &&
                     reads_x(*s.up) && view->feeds(middle, s.second());
  return takes ? std::optional(s) : std::nullopt;
}

FusionPattern row_feed_forwards() {
  return {.title = "feed-forward part of a row",
          .when = FusionTime::maps,
          .least_us_of_region = kLeastRegionUs,
          .regions = regions_at_each(region_at)};
}

}  // namespace tamp::kernels
