// Where two products of rows with an activation between them become one rOperator (the feed-forward part of a transformer's block): two
// levels less, or one where there is no normalisation in front. Reshapes that keep rows may stand between them.
#include <algorithm>
#include <optional>

#include "compiler/passes/rewrite.h"
#include "compiler/passes/row_products.h"
#include "kernels/chain/feed_forward.h"

namespace tamp::kernels {
namespace {

constexpr double kLeastFeedGainUs = 2;  // a further body in the program costs what no estimate holds
constexpr double kLeastResultGainUs = 0.5;
constexpr const char* kFeedTitle = "fused MLP";

bool normalises_last(const Graph& body, const ROperator& step, const Normalize& normalize) {
  return normalize.axes == std::vector<int64_t>{static_cast<int64_t>(body.tensor(step.inputs[0]).shape.size()) - 1} &&
         !operand(step, kNormalizeRows).valid();
}
bool is_plain_product(const ROperator& step) {
  const auto* const matmul = std::get_if<MatMul>(&step.attrs);
  return matmul && *matmul == MatMul{} && step.inputs.size() == 2 && !step.epilogue.residual_after_activation;
}

struct FeedMatch {
  ROperatorId normalize;  // or none
  size_t first, second;
};

RegionSteps join_feed(Graph& graph, const FeedMatch& match) {
  ROperator first = graph.rops[match.first], second = graph.rops[match.second];
  Shape shape = graph.tensor(second.outputs[0]).shape;
  const int64_t columns = shape.back(), k = graph.tensor(first.inputs[0]).shape.back(), inner = graph.tensor(first.outputs[0]).shape.back();
  RegionSteps made;
  const bool normalizes = match.normalize.valid();
  const passes::ProductValues values = passes::values_of_product(graph, first, normalizes ? &graph.rop(match.normalize) : nullptr);
  shape.back() = k;
  TensorId x = passes::in_shape(graph, made.around, normalizes ? graph.rop(match.normalize).inputs[0] : first.inputs[0], shape);
  made.operands = {x};
  if (normalizes) {
    ROperator normalize = graph.rop(match.normalize);
    std::get<Normalize>(normalize.attrs).axes = {static_cast<int64_t>(shape.size()) - 1};
    normalize.inputs = {x};
    x = passes::add_like(graph, x, second.name + ".normalised", shape);
    normalize.outputs = {x};
    made.steps.push_back(std::move(normalize));
  }
  shape.back() = inner;
  const TensorId between = passes::add_like(graph, second.outputs[0], second.name + ".between", shape);
  first.inputs = {x, add_f32_constant(graph, second.name + ".first_weight", {k, inner}, values.weights)};
  first.epilogue.bias = add_f32_constant(graph, second.name + ".first_bias", {inner}, values.bias);
  first.outputs = {between};
  second.inputs = {between, add_f32_constant(graph, second.name + ".weight", {inner, columns},
                                             passes::values_of_product(graph, graph.rops[match.second]).weights)};
  first.attrs = second.attrs = MatMul{};
  made.operands.insert(made.operands.end(), {first.inputs[1], second.inputs[1], first.epilogue.bias, second.epilogue.bias});
  made.results = second.outputs;
  made.steps.insert(made.steps.end(), {first, second});
  return made;
}

std::optional<FusionRegion> feed_at(const Graph& graph, const Uses& uses, size_t at) {
  const ROperator& second = graph.rops[at];
  if (!passes::is_row_product(graph, second) || second.epilogue.activation != Activation::none) return std::nullopt;
  const TensorId residual = second.epilogue.residual;
  const Shape& z = graph.tensor(second.outputs[0]).shape;
  if (residual.valid() && (graph.tensor(residual).shape != z || graph.tensor(residual).dtype != DType::f32)) return std::nullopt;
  const ROperatorId maker = passes::only_maker_of(graph, uses, second.inputs[0]);
  if (!maker.valid() || !passes::is_row_product(graph, graph.rop(maker))) return std::nullopt;
  const ROperator& first = graph.rop(maker);
  if (!feed_activation(first.epilogue.activation) || first.epilogue.residual.valid()) return std::nullopt;
  const int64_t inner = graph.tensor(second.inputs[0]).shape.back(), columns = z.back(), k = graph.tensor(first.inputs[0]).shape.back();
  if (columns > kMostFeedColumns || k > kMostFeedColumns || columns == 0 || k == 0) return std::nullopt;
  FeedMatch match{{}, maker.index(), at};
  FusionRegion region{{}, {maker.index(), at}, {}};
  const ROperatorId front = passes::only_maker_of(graph, uses, first.inputs[0]);
  if (front.valid() && passes::normalizes_rows(graph, graph.rop(front))) {
    match.normalize = front;
    region.rops.push_back(front.index());
  }
  region.kind = {element_count(z) / columns, k, inner, columns, match.normalize.valid(), residual.valid()};
  region.join = [match](Graph& from) { return join_feed(from, match); };
  return region;
}

// Whether the second Transpose undoes the first.
bool undoes(const Transpose& first, const Transpose& second) {
  for (size_t d = 0; d < second.perm.size(); ++d) {
    if (first.perm[static_cast<size_t>(second.perm[d])] != static_cast<int64_t>(d)) return false;
  }
  return true;
}

// The maker of `rows`, apart from two Transposes of which one undoes the other, as around pixels that are a map in between; none where
// something else reads what lies between.
ROperatorId maker_of_rows(const Graph& graph, const Uses& uses, TensorId rows) {
  const auto transpose_of = [&](ROperatorId id) { return id.valid() ? std::get_if<Transpose>(&graph.rop(id).attrs) : nullptr; };
  const ROperatorId maker = uses.maker_for_one(rows);
  const auto* const second = transpose_of(maker);
  if (second == nullptr) return maker;
  const ROperatorId before = uses.maker_for_one(graph.rop(maker).inputs[0]);
  const auto* const first = transpose_of(before);
  return first != nullptr && undoes(*first, *second) ? uses.maker_for_one(graph.rop(before).inputs[0]) : ROperatorId();
}

std::optional<FusionRegion> normalised_feed_at(const Graph& graph, const Uses& uses, size_t at) {
  if (!passes::normalizes_rows(graph, graph.rops[at])) return std::nullopt;
  const TensorId rows = graph.rops[at].inputs[0];
  const ROperatorId maker = maker_of_rows(graph, uses, rows);
  const std::optional<FeedForwardSteps> feed = maker.valid() ? feed_forward_steps(graph.rop(maker)) : std::nullopt;
  if (!feed || feed->result || feed->keeps_moments) return std::nullopt;
  const Shape& shape = graph.tensor(rows).shape;
  const auto join = [maker, at](const Graph& from) {
    ROperator normalize = from.rops[at];
    normalize.inputs[0] = from.rop(maker).outputs[0];
    return RegionSteps{{from.rop(maker), normalize}, normalize.outputs};
  };
  return FusionRegion{{element_count(shape) / shape.back(), shape.back()}, {maker.index(), at}, join};
}

}  // namespace

std::optional<FeedForwardSteps> feed_forward_steps(const ROperator& rop) {
  const std::optional<FusedView> view = FusedView::of(rop);
  if (!view) return std::nullopt;
  FeedForwardSteps s{*view};
  const Normalize* const front = view->as<Normalize>(0);
  if (front && view->step(0).inputs.size() == 1 && normalises_last(view->body(), view->step(0), *front)) {
    s.normalize = front;
    s.first = 1;
  }
  const size_t count = view->count(), behind = s.second() + 1;
  if (count < behind || count > behind + 1 || (s.normalize && !view->feeds(0, s.first)) || !view->feeds(s.first, s.second()) ||
      !is_plain_product(view->step(s.first)) || !is_plain_product(view->step(s.second())) || s.between().residual.valid() ||
      view->step(s.second()).epilogue.activation != Activation::none ||
      view->body().tensor(view->step(s.second()).inputs[1]).shape.size() != 2)
    return std::nullopt;
  if (count == behind) return s;
  s.result = view->as<Normalize>(behind);
  s.keeps_moments = view->as<Moments>(behind) != nullptr;
  const bool is_last =
      view->feeds(s.second(), behind) && rop.outputs.size() == (s.keeps_moments ? 2 : 1) && rop.outputs.back() == view->output(behind);
  const bool is_result = s.result && normalises_last(view->body(), view->step(behind), *s.result);
  return is_last && (is_result || s.keeps_moments) ? std::optional(s) : std::nullopt;
}

const char* feed_activation(Activation activation) {
  switch (activation) {
    case Activation::gelu: return "rk::kGelu";
    case Activation::gelu_tanh: return "rk::kGeluTanh";
    case Activation::silu: return "rk::kSilu";
    case Activation::relu: return "rk::kRelu";
    default: return nullptr;
  }
}

FusionPattern feed_forwards() {
  return {.title = kFeedTitle, .when = FusionTime::rows, .least_us_of_kind = kLeastFeedGainUs, .regions = regions_at_each(feed_at)};
}
FusionPattern normalised_feed_forwards() {
  return {.title = kFeedTitle,
          .when = FusionTime::rows,
          .least_us_of_kind = kLeastResultGainUs,
          .regions = regions_at_each(normalised_feed_at)};
}

}  // namespace tamp::kernels
