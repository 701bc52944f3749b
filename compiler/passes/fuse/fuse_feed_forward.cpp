#include "compiler/passes/fuse/fuse_feed_forward.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/passes/by_kind.h"
#include "compiler/passes/fuse/sum_channels.h"
#include "compiler/passes/rewrite.h"
#include "compiler/passes/row_products.h"

namespace tamp::passes {
namespace {

constexpr double kLeastFeedGainUs = 2;  // a further body in the program costs what no estimate holds
constexpr double kLeastResultGainUs = 0.5;

// Rows, columns of x, y and z, whether x is normalised, whether there is a residual.
using FeedKind = std::tuple<int64_t, int64_t, int64_t, int64_t, bool, bool>;

struct FeedMatch {
  ROperatorId normalize;  // or none
  size_t first, second;
  FeedKind kind;
};

bool has_feed_body(Activation activation) {
  return activation == Activation::gelu || activation == Activation::gelu_tanh || activation == Activation::silu ||
         activation == Activation::relu;
}

class FeedMatcher {
 public:
  explicit FeedMatcher(const Graph& graph) : graph_(graph), uses_(uses_of(graph)) {}

  std::optional<FeedMatch> match(size_t at) const {
    const ROperator& second = graph_.rops[at];
    if (!is_row_product(graph_, second) || second.epilogue.activation != Activation::none) return std::nullopt;
    const TensorId residual = second.epilogue.residual;
    const Shape& z = graph_.tensor(second.outputs[0]).shape;
    if (residual.valid() && (graph_.tensor(residual).shape != z || graph_.tensor(residual).dtype != DType::f32)) return std::nullopt;
    const ROperatorId maker = only_maker_of(graph_, uses_, second.inputs[0]);
    if (!maker.valid() || !is_row_product(graph_, graph_.rop(maker))) return std::nullopt;
    const ROperator& first = graph_.rop(maker);
    if (!has_feed_body(first.epilogue.activation) || first.epilogue.residual.valid()) return std::nullopt;
    const int64_t inner = graph_.tensor(second.inputs[0]).shape.back(), columns = z.back(), k = graph_.tensor(first.inputs[0]).shape.back();
    if (columns > kMostFeedColumns || k > kMostFeedColumns || columns == 0 || k == 0) return std::nullopt;
    FeedMatch found{{}, maker.index(), at, {}};
    const ROperatorId front = only_maker_of(graph_, uses_, first.inputs[0]);
    if (front.valid() && normalizes_rows(graph_, graph_.rop(front))) found.normalize = front;
    found.kind = {element_count(z) / columns, k, inner, columns, found.normalize.valid(), residual.valid()};
    return found;
  }

 private:
  const Graph& graph_;
  Uses uses_;
};

std::vector<FeedMatch> feed_forwards_of(const Graph& graph) {
  const FeedMatcher matcher(graph);
  std::vector<FeedMatch> matches;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    if (std::optional<FeedMatch> match = matcher.match(i)) matches.push_back(*std::move(match));
  }
  return matches;
}

void fuse_feed_forward_at(Graph& graph, std::vector<ROperator>& views, const FeedMatch& match, std::vector<bool>& dead) {
  const ROperator first = graph.rops[match.first];
  const auto [rows, k, inner, columns, normalizes, adds] = match.kind;
  std::vector<float> weights = weights_by_k(graph, first), bias(static_cast<size_t>(inner), 0.0F);
  if (first.epilogue.bias.valid()) std::copy_n(f32_data(graph.tensor(first.epilogue.bias)), bias.size(), bias.begin());
  FeedForward op;
  op.activation = activation_call(first.epilogue);
  TensorId x = first.inputs[0];
  if (normalizes) {
    const ROperator& normalize = graph.rop(match.normalize);
    const auto& norm = std::get<Normalize>(normalize.attrs);
    op.normalize = true;
    op.centered = norm.centered;
    op.epsilon = norm.epsilon;
    x = normalize.inputs[0];
    take_scale_and_shift(graph, operand(normalize, 1), operand(normalize, 2), weights, bias);
    dead[match.normalize.index()] = true;
  }
  Shape shape = graph.tensor(graph.rops[match.second].outputs[0]).shape;
  shape.back() = k;
  x = in_shape(graph, views, x, shape);
  ROperator& second = graph.rops[match.second];
  const std::string name = second.name;
  const TensorId first_weights = add_f32_constant(graph, name + ".first_weight", {k, inner}, weights);
  const TensorId second_weights = add_f32_constant(graph, name + ".weight", {inner, columns}, weights_by_k(graph, second));
  const TensorId first_bias = add_f32_constant(graph, name + ".first_bias", {inner}, bias);
  prepend_origin(second, first);
  if (normalizes) prepend_origin(second, graph.rop(match.normalize));
  second.attrs = op;
  second.inputs = {x, first_weights, second_weights, first_bias, second.epilogue.bias, second.epilogue.residual};
  second.inputs = without_last_none(std::move(second.inputs));
  second.epilogue = {};
  dead[match.first] = true;
}

// A normalisation of the rows that a FeedForward makes, which nothing else reads.
struct ResultMatch {
  size_t feed, normalize;
  std::tuple<int64_t, int64_t> kind;  // rows, columns
};

// Whether the second Transpose undoes the first.
bool undoes(const Transpose& first, const Transpose& second) {
  for (size_t d = 0; d < second.perm.size(); ++d) {
    if (first.perm[static_cast<size_t>(second.perm[d])] != static_cast<int64_t>(d)) return false;
  }
  return true;
}

// Who makes `rows`, apart from two Transposes of which one undoes the other, as around pixels that are a map in between; none where
// something else reads what lies between.
ROperatorId maker_of_rows(const Graph& graph, const Uses& uses, TensorId rows) {
  const auto only_maker = [&](TensorId id) {
    return uses.consumers[id.index()].size() == 1 && !uses.is_output[id.index()] ? uses.producer[id.index()] : ROperatorId();
  };
  const auto transpose_of = [&](ROperatorId id) { return id.valid() ? std::get_if<Transpose>(&graph.rop(id).attrs) : nullptr; };
  const ROperatorId maker = only_maker(rows);
  const auto* const second = transpose_of(maker);
  if (second == nullptr) return maker;
  const ROperatorId before = only_maker(graph.rop(maker).inputs[0]);
  const auto* const first = transpose_of(before);
  return first != nullptr && undoes(*first, *second) ? only_maker(graph.rop(before).inputs[0]) : ROperatorId();
}

std::vector<ResultMatch> normalised_results_of(const Graph& graph) {
  const Uses uses = uses_of(graph);
  std::vector<ResultMatch> matches;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    const ROperator& rop = graph.rops[i];
    if (!normalizes_rows(graph, rop)) continue;
    const TensorId rows = rop.inputs[0];
    const ROperatorId maker = maker_of_rows(graph, uses, rows);
    const auto* const feed = maker.valid() ? std::get_if<FeedForward>(&graph.rop(maker).attrs) : nullptr;
    if (feed == nullptr || feed->normalize_result) continue;
    const Shape& shape = graph.tensor(rows).shape;
    matches.push_back({maker.index(), i, {element_count(shape) / shape.back(), shape.back()}});
  }
  return matches;
}

Graph with_normalised_results(Graph graph, const std::vector<ResultMatch>& matches) {
  std::vector<bool> dead(graph.rops.size(), false);
  for (const ResultMatch& match : matches) {
    ROperator& feed = graph.rops[match.feed];
    const ROperator& normalize = graph.rops[match.normalize];
    const auto& norm = std::get<Normalize>(normalize.attrs);
    auto& op = std::get<FeedForward>(feed.attrs);
    op.normalize_result = true;
    op.result_centered = norm.centered;
    op.result_epsilon = norm.epsilon;
    feed.inputs.resize(kFeedScale);
    feed.inputs.push_back(operand(normalize, 1));
    feed.inputs.push_back(operand(normalize, 2));
    feed.inputs = without_last_none(std::move(feed.inputs));
    feed.outputs[0] = normalize.outputs[0];
    feed.origin.insert(feed.origin.end(), normalize.origin.begin(), normalize.origin.end());
    dead[match.normalize] = true;
  }
  return remove_dead(erase_rops(std::move(graph), dead));
}

Graph with_feed_forwards(Graph graph, const std::vector<FeedMatch>& matches) {
  std::vector<ROperator> views;  // added in the end, since rOperators have numbers until then
  std::vector<bool> dead(graph.rops.size(), false);
  for (const FeedMatch& match : matches) fuse_feed_forward_at(graph, views, match, dead);
  graph = erase_rops(std::move(graph), dead);
  graph.rops.insert(graph.rops.end(), views.begin(), views.end());
  return remove_dead(sort_topologically(std::move(graph)));
}

}  // namespace

Graph fuse_feed_forward(Graph graph, const GraphEstimator& estimator) {
  if (!estimator) return graph;
  graph = change_by_kind(
      std::move(graph), estimator, kLeastFeedGainUs, feed_forwards_of,
      [](const Graph& from, const std::vector<FeedMatch>& matches) { return std::optional(with_feed_forwards(from, matches)); });
  return change_by_kind(
      std::move(graph), estimator, kLeastResultGainUs, normalised_results_of,
      [](const Graph& from, const std::vector<ResultMatch>& matches) { return std::optional(with_normalised_results(from, matches)); });
}

}  // namespace tamp::passes
