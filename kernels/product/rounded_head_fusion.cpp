#include <algorithm>
#include <utility>

#include "compiler/ir/fused.h"
#include "compiler/ir/products.h"
#include "compiler/passes/rewrite.h"
#include "compiler/passes/whole_chain.h"
#include "kernels/product/numbers.cuh"
#include "kernels/product/rounded_head.h"
#include "kernels/tile/requantised.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kMostSum = 1 << 24;  // of a channel: up to there sums of whole numbers are exact in any order

// --- what there is to join ----------------------------------------------------------------------------------------------

struct Match {
  TensorId map;
  size_t pooling, rounding, product;
  std::vector<size_t> views;
  float scale, low, high;     // of the means
  std::optional<size_t> end;  // what follows the rounded results: a factor, or a table
  float factor = 1;
  passes::WholeChain table{};  // empty: the factor
};

// A chain that is rounded(number * x), or rounded(x).
bool match_rounding(const Graph& graph, const ROperator& rop, TensorId x, Match& match) {
  const auto* const chain = std::get_if<Elementwise>(&rop.attrs);
  if (!chain || chain->may_change_type() || has_epilogue(rop)) return false;
  const std::vector<ElementwiseStep>& steps = chain->steps;
  const size_t count = steps.size();
  if (count == 0 || count > 2 || steps.back().op != ElementwiseOp::rounded) return false;
  match.scale = 1;
  match.low = steps.back().a;
  match.high = steps.back().b;
  const auto is_x = [&](int32_t v) { return v >= 0 && rop.inputs[static_cast<size_t>(v)] == x; };
  if (count == 1) return is_x(steps[0].operands[0]);
  if (steps[0].op != ElementwiseOp::mul || steps[1].operands[0] != -1) return false;
  const int32_t a = steps[0].operands[0], b = steps[0].operands[1], other = is_x(a) ? b : a;
  if ((!is_x(a) && !is_x(b)) || other < 0) return false;
  const std::optional<float> scale = passes::scalar_value(graph, rop.inputs[static_cast<size_t>(other)]);
  match.scale = scale.value_or(1);
  return scale.has_value();
}

// A chain that is a number times its operand.
std::optional<float> factor_of(const Graph& graph, const ROperator& rop) {
  const auto* const chain = std::get_if<Elementwise>(&rop.attrs);
  if (!chain || chain->may_change_type() || has_epilogue(rop) || chain->steps.size() != 1 || chain->steps[0].op != ElementwiseOp::mul)
    return std::nullopt;
  for (const TensorId id : rop.inputs) {
    if (const std::optional<float> number = passes::scalar_value(graph, id)) return number;
  }
  return std::nullopt;
}

class Matcher {
 public:
  Matcher(const Graph& graph, const Uses& uses) : graph_(graph), uses_(uses) {}

  // The head whose product is `at`.
  std::optional<Match> match(size_t at) const {
    const ROperator& product = graph_.rops[at];
    if (!is_product(product)) return std::nullopt;
    Match match;
    match.product = at;
    bool rounds = false;
    TensorId x = product.inputs[0];
    for (;;) {
      const ROperatorId maker = uses_.maker_for_one(x);
      if (!maker.valid()) return std::nullopt;
      const ROperator& rop = graph_.rop(maker);
      if (rop.inputs.empty()) return std::nullopt;
      x = rop.inputs[0];
      if (std::holds_alternative<Reshape>(rop.attrs)) {
        match.views.push_back(maker.index());
      } else if (!rounds && match_rounding(graph_, rop, activation_of(rop), match)) {
        x = activation_of(rop);
        match.rounding = maker.index();
        rounds = true;
      } else if (rounds && is_mean(rop)) {
        match.pooling = maker.index();
        break;
      } else {
        return std::nullopt;
      }
    }
    match.map = x;
    // Views in between leave images and channels as they are.
    const Shape& map = graph_.tensor(x).shape;
    const Shape& given = graph_.tensor(product.inputs[0]).shape;
    if (given[0] != map[0] || given[1] != map[1]) return std::nullopt;
    match_end(match);
    return match;
  }

 private:
  TensorId activation_of(const ROperator& rop) const {
    const auto at = std::find_if(rop.inputs.begin(), rop.inputs.end(), [&](TensorId id) { return !passes::scalar_value(graph_, id); });
    return at == rop.inputs.end() ? TensorId() : *at;
  }
  bool is_mean(const ROperator& rop) const {
    const auto* const reduce = std::get_if<Reduce>(&rop.attrs);
    const Tensor& map = graph_.tensor(rop.inputs[0]);
    if (!reduce || reduce->kind != ReduceKind::mean || reduce->axes != std::vector<int64_t>{2, 3} || map.shape.size() != 4) return false;
    const std::optional<WholeRange> range = whole_range(graph_, rop.inputs[0]);
    return map.dtype == DType::f32 && range && map.shape[2] * map.shape[3] * std::max(-range->low, range->high) <= kMostSum;
  }
  // A product of rows, [N,C] or [N,C,1,1], with constant weights, that rounds or has no activation but relu.
  bool is_product(const ROperator& rop) const {
    const auto* const conv = std::get_if<Conv>(&rop.attrs);
    const auto* const matmul = std::get_if<MatMul>(&rop.attrs);
    if (rop.inputs.size() != 2 || rop.outputs.size() != 1 || !is_f32_constant(graph_, rop.inputs[1])) return false;
    const Shape& shape = graph_.tensor(rop.inputs[0]).shape;
    if (conv && (!is_pointwise(*conv) || has_prologue(*conv) || shape.size() != 4 || shape[2] * shape[3] != 1)) return false;
    if (matmul && (matmul->trans_a || matmul->alpha != 1 || shape.size() != 2 || graph_.tensor(rop.inputs[1]).shape.size() != 2))
      return false;
    const Epilogue& e = rop.epilogue;
    const bool ends = e.activation == Activation::none || e.activation == Activation::relu || e.activation == Activation::rounded;
    return (conv || matmul) && ends && !e.residual.valid() && !e.sum && graph_.tensor(rop.outputs[0]).dtype == DType::f32;
  }
  void match_end(Match& match) const {
    const ROperator& product = graph_.rops[match.product];
    const TensorId y = product.outputs[0];
    const ROperatorId reader = uses_.only_reader(y);
    if (product.epilogue.activation != Activation::rounded || !reader.valid()) return;
    const ROperator& rop = graph_.rop(reader);
    if (!std::holds_alternative<Elementwise>(rop.attrs) || rop.outputs.size() != 1) return;
    if (graph_.tensor(rop.outputs[0]).shape != graph_.tensor(y).shape || graph_.tensor(rop.outputs[0]).dtype != DType::f32) return;
    if (const std::optional<float> factor = factor_of(graph_, rop)) {
      match.end = reader.index();
      match.factor = *factor;
      return;
    }
    const std::optional<WholeRange> range = rounded_range(product.epilogue);
    std::optional<passes::WholeChain> table = range ? passes::whole_chain_of(graph_, rop, y, *range, 1) : std::nullopt;
    if (!table || !table->row.empty()) return;
    match.end = reader.index();
    match.table = *std::move(table);
  }

  const Graph& graph_;
  const Uses& uses_;
};

// --- the steps that are made of it --------------------------------------------------------------------------------------

// The product as one of rows, which reads `mean` and makes `to`.
ROperator product_of_rows(Graph& graph, const ROperator& product, TensorId mean, TensorId to) {
  ROperator rows = product;
  if (std::holds_alternative<Conv>(product.attrs)) {
    const Tensor& weights = graph.tensor(product.inputs[1]);
    const int64_t channels = weights.shape[0], k = weights.shape[1];
    const float* const data = f32_data(weights);
    rows.inputs[1] = add_f32_constant(graph, product.name + ".rows", {channels, k}, {data, data + channels * k});
    rows.attrs = MatMul{false, /*trans_b=*/true};
  }
  rows.inputs[0] = mean;
  rows.outputs = {to};
  return rows;
}

// By sums of tiles of `rows` rows.
RegionSteps joined(Graph& graph, const Match& match, int64_t rows) {
  const Shape shape = graph.tensor(match.map).shape;
  const ROperator pooling = graph.rops[match.pooling], rounding = graph.rops[match.rounding], product = graph.rops[match.product];
  const auto made = [&](const std::string& name, Shape of) { return passes::add_like(graph, match.map, name, std::move(of)); };
  const auto number = [&](const char* what, float value) { return add_f32_constant(graph, rounding.name + what, {}, {value}); };
  const TensorId result = match.end ? graph.rops[*match.end].outputs[0] : product.outputs[0];
  const Shape of_result = graph.tensor(result).shape, of_rows = {of_result[0], of_result[1]};
  const TensorId sums = made(pooling.name + ".sums", {shape[0], shape[1], (shape[2] + rows - 1) / rows});
  const TensorId sum = made(pooling.name + ".sum", {shape[0], shape[1]}), mean = made(rounding.name + ".mean", {shape[0], shape[1]});
  const TensorId end = of_result.size() == 2 ? result : made(graph.tensor(result).name + ".rows", of_rows);
  RegionSteps region;
  region.around = {{pooling.name, TileSums{{rows, shape[3]}}, {}, {match.map}, {sums}, pooling.origin}};
  ROperator rounds = passes::make_elementwise(
      rounding.name, {{ElementwiseOp::div, {0, 1}}, {ElementwiseOp::mul, {-1, 2}}, {ElementwiseOp::rounded, {-2}, match.low, match.high}},
      {sum, number(".count", static_cast<float>(shape[2] * shape[3])), number(".scale", match.scale)}, mean);
  rounds.origin = rounding.origin;
  for (const size_t view : match.views) passes::prepend_origin(rounds, graph.rops[view]);
  const TensorId whole = match.end ? made(product.name + ".whole", of_rows) : end;
  region.steps = {{pooling.name + ".sum", Reduce{ReduceKind::sum, {2}, /*keepdims=*/false}, {}, {sums}, {sum}, {}},
                  std::move(rounds),
                  product_of_rows(graph, product, mean, whole)};
  if (match.end) {
    const ROperator last = graph.rops[*match.end];
    if (match.table.table.empty())
      region.steps.push_back(
          passes::make_elementwise(last.name, {{ElementwiseOp::mul, {0, 1}}}, {whole, number(".factor", match.factor)}, end));
    else
      append_lookup(graph, last.name, whole, end, match.table, region.steps);
    region.steps.back().origin = last.origin;
  }
  if (end != result) region.steps.push_back({product.name + ".pixel", Reshape{of_result}, {}, {end}, {result}, {}});
  region.results = {result};
  region.operands = {sums};
  return region;
}

std::optional<FusionRegion> region_at(const Graph& graph, const Uses& uses, size_t at) {
  const std::optional<Match> match = Matcher(graph, uses).match(at);
  if (!match) return std::nullopt;
  const Shape& shape = graph.tensor(match->map).shape;
  const ROperator& product = graph.rops[at];
  FusionRegion region;
  region.kind = shape;
  region.kind.insert(region.kind.end(), {graph.tensor(product.outputs[0]).shape[1], std::holds_alternative<Conv>(product.attrs),
                                         match->end.has_value(), std::ssize(match->table.table)});
  region.rops = {match->pooling, match->rounding, match->product};
  region.rops.insert(region.rops.end(), match->views.begin(), match->views.end());
  if (match->end) region.rops.push_back(*match->end);
  for (int64_t tiles = 1, last = 0; tiles <= shape[2]; ++tiles) {
    const int64_t rows = (shape[2] + tiles - 1) / tiles;
    if (rows != last) region.ways.push_back([match = *match, rows](Graph& from) { return joined(from, match, rows); });
    last = rows;
  }
  region.join = region.ways.front();
  return region;
}

bool has_steps(const FusedView& view, size_t at, std::initializer_list<ElementwiseOp> ops) {
  const auto* const chain = view.as<Elementwise>(at);
  return chain && std::equal(chain->steps.begin(), chain->steps.end(), ops.begin(), ops.end(),
                             [](const ElementwiseStep& step, ElementwiseOp op) { return step.op == op; });
}

}  // namespace

bool is_rounded_head(const ROperator& rop) {
  const std::optional<FusedView> view = FusedView::of(rop);
  if (!view || view->count() <= kHeadProduct || rop.outputs.size() != 1) return false;
  const auto* const sum = view->as<Reduce>(0);
  const auto* const product = view->as<MatMul>(kHeadProduct);
  return sum && product && *sum == Reduce{ReduceKind::sum, {2}, /*keepdims=*/false} && !product->trans_a && product->alpha == 1 &&
         has_steps(*view, 1, {ElementwiseOp::div, ElementwiseOp::mul, ElementwiseOp::rounded}) && view->feeds(0, 1) &&
         view->feeds(1, kHeadProduct);
}

std::optional<RoundedHead> rounded_head_of(const Graph& graph, const ROperator& rop) {
  if (!is_rounded_head(rop)) return std::nullopt;
  const FusedView view = *FusedView::of(rop);
  const std::optional<float> count = passes::scalar_value(graph, view.input(1, 1)), scale = passes::scalar_value(graph, view.input(1, 2));
  if (!count || !scale) return std::nullopt;
  const ElementwiseStep& rounding = view.as<Elementwise>(1)->steps.back();
  RoundedHead head;
  head.count = *count;
  head.scale = *scale;
  head.low = rounding.a;
  head.high = rounding.b;
  const Epilogue& e = view.step(kHeadProduct).epilogue;
  head.rounds = e.activation == Activation::rounded;
  if (e.residual.valid() || e.sum || !(head.rounds || e.activation == Activation::none || e.activation == Activation::relu))
    return std::nullopt;
  size_t at = kHeadProduct + 1;
  if (at < view.count() && has_steps(view, at, {ElementwiseOp::mul}) && view.feeds(at - 1, at)) {
    const std::optional<float> factor = passes::scalar_value(graph, view.input(at, 1));
    if (!head.rounds || !factor) return std::nullopt;
    head.factor = *factor;
    ++at;
  } else if (const std::optional<Lookup> lookup = lookup_at(graph, view, at)) {
    if (!head.rounds || static_cast<float>(lookup->low) != e.a) return std::nullopt;
    head.table = lookup->table;
    at += 2;
  }
  if (view.as<Reshape>(at) && view.feeds(at - 1, at)) ++at;
  return at == view.count() ? std::optional(head) : std::nullopt;
}

FusionPattern rounded_heads() {
  return {.title = "rounded head",
          .when = FusionTime::maps,
          .needs_estimate = true,
          .least_us_of_kind = 0.3,
          .regions = regions_at_each(region_at)};
}

}  // namespace tamp::kernels
