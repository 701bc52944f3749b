#include "compiler/passes/fuse/defer_normalize.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/ir/fused.h"
#include "compiler/ir/products.h"
#include "compiler/passes/by_kind.h"
#include "compiler/passes/rewrite.h"
#include "compiler/passes/row_products.h"

namespace tamp::passes {
namespace {

constexpr double kLeastDeferredGainUs = 2;  // a further body in the program costs what no estimate holds

const std::vector<int64_t> kRowsOfPixels = {0, 2, 3, 1};  // of a Transpose
constexpr const char* kByMoments = "product by moments";  // the title

// Which rows, and how the products read them: all of them as they are; those that may be bounded as they are; all of them rounded.
enum class DeferredRows : uint8_t { all, bounded, rounded };

enum class DeferredResidual : uint8_t { none, input, inside };  // an input of the model may lie in another type than the results

// Rows, columns, k of the product in front (of a convolution its taps, negative), its residual, columns of the products behind.
using DeferredKind = std::tuple<int64_t, int64_t, int64_t, DeferredResidual, std::vector<int64_t>>;

struct Deferred {
  size_t maker, normalize;
  std::vector<size_t> products;  // behind
  DeferredKind kind;
};

// Whether the rOperator's one result is the last of several products.
bool is_chain(const Graph& graph, const ROperator& rop) {
  const std::optional<FusedView> steps = FusedView::of(rop);
  if (!steps || rop.outputs.size() != 1 || graph.tensor(rop.outputs[0]).dtype != DType::f32) return false;
  const size_t last = steps->count() - 1;
  return products_of(graph, rop).size() > 1 && steps->as<MatMul>(last) && steps->output(last).valid() &&
         steps->step(last).epilogue.activation == Activation::none;
}
bool is_maker(const Graph& graph, const ROperator& rop) {
  if (is_chain(graph, rop)) return true;
  return is_row_product(graph, rop) && rop.epilogue.activation == Activation::none;
}
// A depthwise convolution of a map, whose pixels are rows.
bool is_maker_of_pixels(const Graph& graph, const ROperator& rop) {
  const auto* conv = std::get_if<Conv>(&rop.attrs);
  if (!conv || has_prologue(*conv) || rop.inputs.size() != 2 || !is_f32_constant(graph, rop.inputs[1])) return false;
  const Tensor &x = graph.tensor(rop.inputs[0]), &made = graph.tensor(rop.outputs[0]);
  return made.shape.size() == 4 && made.dtype == DType::f32 && conv->group == x.shape[1] && made.shape[1] == x.shape[1] &&
         is_row_or_none(graph, rop.epilogue.bias, x.shape[1]) && !rop.epilogue.residual.valid() &&
         rop.epilogue.activation == Activation::none;
}
// Whether the result has its operand's pixels as rows.
bool makes_rows_of_pixels(const ROperator& rop) {
  const auto* transpose = std::get_if<Transpose>(&rop.attrs);
  return transpose && transpose->perm == kRowsOfPixels;
}

class DeferredMatcher {
 public:
  DeferredMatcher(const Graph& graph, DeferredRows rows) : graph_(graph), uses_(uses_of(graph)), rows_(rows) {}

  std::optional<Deferred> match(size_t at) const {
    const ROperator& rop = graph_.rops[at];
    if (!normalizes_rows(graph_, rop)) return std::nullopt;
    const Shape& shape = graph_.tensor(rop.inputs[0]).shape;
    const int64_t columns = shape.back(), rows = element_count(shape) / std::max<int64_t>(1, columns);
    if (columns == 0 || columns % kMomentColumns != 0 || rows == 0) return std::nullopt;
    const ROperatorId maker = maker_of_rows(rop.inputs[0], columns);
    if (!maker.valid()) return std::nullopt;
    const bool of_pixels = is_maker_of_pixels(graph_, graph_.rop(maker));
    if (!of_pixels && !is_maker(graph_, graph_.rop(maker))) return std::nullopt;
    if (!of_pixels && !has_whole_rows(graph_.tensor(graph_.rop(maker).outputs[0]).shape, columns)) return std::nullopt;
    const bool of_chain = is_chain(graph_, graph_.rop(maker));
    if (rows_ == DeferredRows::rounded && of_chain) return std::nullopt;
    if (rows_ == DeferredRows::bounded && (of_pixels || of_chain || adds_unbounded(graph_.rop(maker)))) return std::nullopt;
    if (rows > kMostDeferredRows) return std::nullopt;
    Deferred found{maker.index(), at, {}, {}};
    collect_products(rop.outputs[0], columns, found.products);
    if (found.products.empty()) return std::nullopt;
    std::vector<int64_t> behind;
    for (const size_t product : found.products) behind.push_back(graph_.tensor(graph_.rops[product].outputs[0]).shape.back());
    const ROperator& front = graph_.rop(maker);
    const int64_t k = of_pixels ? -element_count(std::get<Conv>(front.attrs).kernel) : graph_.tensor(front.inputs[0]).shape.back();
    found.kind = {rows, columns, k, residual_of_maker(front), behind};
    return found;
  }

 private:
  // Whether the residual is not known to be normalised. A sum of such rows is not bounded (passes/value_bounds).
  bool adds_unbounded(const ROperator& maker) const {
    TensorId residual = maker.epilogue.residual;
    if (!residual.valid()) return false;
    while (uses_.producer[residual.index()].valid() && keeps_order(graph_, graph_.rop(uses_.producer[residual.index()])))
      residual = graph_.rop(uses_.producer[residual.index()]).inputs[0];
    const ROperatorId from = uses_.producer[residual.index()];
    if (!from.valid()) return graph_.tensor(residual).role != Role::constant;
    return !std::holds_alternative<Normalize>(graph_.rop(from).attrs) && !normalizes_in_sums(graph_.rop(from));
  }
  DeferredResidual residual_of_maker(const ROperator& maker) const {
    const std::optional<FusedView> steps = FusedView::of(maker);
    TensorId residual = steps ? steps->residual(steps->count() - 1) : maker.epilogue.residual;
    if (!residual.valid()) return DeferredResidual::none;
    while (uses_.producer[residual.index()].valid() && keeps_order(graph_, graph_.rop(uses_.producer[residual.index()])))
      residual = graph_.rop(uses_.producer[residual.index()]).inputs[0];
    return graph_.tensor(residual).role == Role::input ? DeferredResidual::input : DeferredResidual::inside;
  }
  // Whether rows of so many columns are one or several of the maker's rows side by side, of whose columns there are moments.
  static bool has_whole_rows(const Shape& made, int64_t columns) {
    return made.back() > 0 && made.back() % kMomentColumns == 0 && columns % made.back() == 0;
  }
  // Apart from what keeps the elements' order, and from the Transpose of a map whose pixels are the rows.
  ROperatorId maker_of_rows(TensorId rows, int64_t columns) const {
    bool keeps_rows = true;
    ROperatorId maker = uses_.producer[rows.index()];
    while (maker.valid() && keeps_order(graph_, graph_.rop(maker))) {
      const TensorId from = graph_.rop(maker).inputs[0];
      keeps_rows &= !graph_.tensor(from).shape.empty() && graph_.tensor(from).shape.back() == columns;
      maker = uses_.producer[from.index()];
    }
    if (!maker.valid() || !makes_rows_of_pixels(graph_.rop(maker))) return maker;
    if (!keeps_rows) return {};
    const ROperatorId front = uses_.producer[graph_.rop(maker).inputs[0].index()];
    return front.valid() && is_maker_of_pixels(graph_, graph_.rop(front)) ? front : ROperatorId();
  }
  void collect_products(TensorId rows, int64_t columns, std::vector<size_t>& products) const {
    for (const ROperatorId reader : uses_.consumers[rows.index()]) {
      const ROperator& rop = graph_.rop(reader);
      if (keeps_order(graph_, rop)) {
        const Shape& shape = graph_.tensor(rop.outputs[0]).shape;
        if (!shape.empty() && shape.back() == columns) collect_products(rop.outputs[0], columns, products);
      } else if (is_row_product(graph_, rop) && rop.inputs[0] == rows && rop.epilogue.residual != rows) {
        products.push_back(reader.index());
      }
    }
  }

  const Graph& graph_;
  Uses uses_;
  DeferredRows rows_;
};

std::vector<Deferred> deferrals_of(const Graph& graph, DeferredRows rows) {
  const DeferredMatcher matcher(graph, rows);
  std::vector<bool> taken(graph.rops.size(), false);
  std::vector<Deferred> matches;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    std::optional<Deferred> match = matcher.match(i);
    if (!match || taken[match->maker]) continue;
    taken[match->maker] = true;
    matches.push_back(*std::move(match));
  }
  return matches;
}

// Puts the moments of its rows behind the maker of one Normalize's rows, and a NormalizeBy in front of the products behind it.
struct Deferral {
  Graph& graph;
  std::vector<ROperator>& views;
  const Deferred& match;
  bool rounds;
  TensorId moments{}, rounded{};  // of the normalised rows

  void apply() {
    keep_moments(graph.rops[match.maker]);
    for (const size_t product : match.products) take_moments(graph.rops[product]);
  }

  static ROperator step(const ROperator& rop, OpAttrs attrs, std::vector<TensorId> inputs, TensorId output) {
    return {rop.name, std::move(attrs), {}, std::move(inputs), {output}, {}};
  }
  static Shape shape_of_moments(const Shape& rows) { return {element_count(rows) / rows.back(), rows.back() / kMomentColumns, 2}; }

  void keep_moments(ROperator& maker) {
    std::vector<ROperator> steps = {maker};
    const TensorId made = maker.outputs[0];
    const std::string name = graph.tensor(made).name;
    const bool convolves = std::holds_alternative<Conv>(maker.attrs), is_fused = std::holds_alternative<Fused>(maker.attrs);
    const TensorId rows = convolves ? pixels_of(made) : made;
    if (convolves) steps.push_back(step(maker, Transpose{kRowsOfPixels}, {made}, rows));
    moments = add_like(graph, made, name + ".moments", shape_of_moments(graph.tensor(rows).shape));
    steps.push_back(step(maker, Moments{}, {rows}, moments));
    std::vector<TensorId> results = {made, moments};
    if (rounds) {
      results.push_back(add_like(graph, made, name + ".rounded", graph.tensor(made).shape));
      steps.push_back(make_copy(maker.name, made, results[2]));
      rounded = convolves ? view_of_pixels(results[2]) : results[2];
    }
    const std::string title = is_fused ? title_of(maker) : convolves ? "depthwise convolution with moments" : kByMoments;
    maker = fuse(graph, title, steps, results, reads_of(maker));
  }

  // The product is no Fused yet: what it makes is normalised later, if at all.
  void take_moments(ROperator& product) {
    const ROperator& normalize = graph.rops[match.normalize];
    const auto& norm = std::get<Normalize>(normalize.attrs);
    ROperator matmul = product;
    const Shape shape = graph.tensor(matmul.inputs[0]).shape;
    fold(matmul, operand(normalize, 1), operand(normalize, 2));
    std::vector<TensorId> rows = {in_shape(graph, views, normalize.inputs[0], shape)};
    rows.push_back(in_shape(graph, views, moments, shape_of_moments(shape)));
    if (rounded.valid()) rows.push_back(in_shape(graph, views, rounded, shape));
    matmul.inputs[0] = add_like(graph, rows[0], product.name + ".normalised", shape);
    const std::vector<TensorId> operands = {rows[0], matmul.inputs[1], matmul.epilogue.bias, matmul.epilogue.residual};
    ROperator by = step(product, NormalizeBy{norm.centered, norm.epsilon}, rows, matmul.inputs[0]);
    by.origin = normalize.origin;
    product = fuse(graph, kByMoments, {by, matmul}, product.outputs, operands);
  }

  // Multiplies row k of the weights by scale[k], and adds the shift's product to the bias.
  void fold(ROperator& product, TensorId scale, TensorId shift) {
    const auto& op = std::get<MatMul>(product.attrs);
    const Tensor weights = graph.tensor(product.inputs[1]);
    const auto k = static_cast<size_t>(weights.shape[op.trans_b ? 1 : 0]), columns = static_cast<size_t>(weights.shape[op.trans_b ? 0 : 1]);
    // In the order of memory: lines are rows of k, or with trans_b columns.
    const size_t lines = op.trans_b ? columns : k, length = op.trans_b ? k : columns;
    if (shift.valid()) {
      std::vector<double> sums(columns, 0);
      const std::shared_ptr<const Bytes> held = weights.data.hold();
      const auto* const data = reinterpret_cast<const float*>(held->data());
      const float* const shifts = f32_data(graph.tensor(shift));
      for (size_t line = 0; line < lines; ++line) {
        const float* const values = data + line * length;
        if (op.trans_b) {
          for (size_t i = 0; i < length; ++i) sums[line] += static_cast<double>(shifts[i]) * values[i];
        } else {
          for (size_t i = 0; i < length; ++i) sums[i] += static_cast<double>(shifts[line]) * values[i];
        }
      }
      std::vector<float> bias;
      const TensorId own = product.epilogue.bias;
      for (size_t i = 0; i < columns; ++i)
        bias.push_back(static_cast<float>(op.alpha * sums[i] + (own.valid() ? f32_data(graph.tensor(own))[i] : 0.0F)));
      product.epilogue.bias = add_f32_constant(graph, product.name + ".shifted_bias", {static_cast<int64_t>(columns)}, bias);
    }
    if (!scale.valid()) return;
    const float* const scales = f32_data(graph.tensor(scale));
    product.inputs[1] = add_scaled(graph, product.name + ".scaled_weight", weights, {scales, scales + k}, op.trans_b);
  }

  // A map's pixels as rows.
  TensorId pixels_of(TensorId map) {
    const Shape shape = graph.tensor(map).shape;
    return add_like(graph, map, graph.tensor(map).name + ".rows", {shape[0], shape[2], shape[3], shape[1]});
  }
  TensorId view_of_pixels(TensorId map) {
    const TensorId rows = pixels_of(map);
    views.push_back({graph.tensor(rows).name, Transpose{kRowsOfPixels}, {}, {map}, {rows}, {}});
    return rows;
  }
};

Graph with_deferrals(Graph graph, const std::vector<Deferred>& matches, bool rounds) {
  std::vector<ROperator> views;  // added in the end, since rOperators have numbers until then
  for (const Deferred& match : matches) Deferral{graph, views, match, rounds}.apply();
  graph.rops.insert(graph.rops.end(), views.begin(), views.end());
  return remove_dead(sort_topologically(std::move(graph)));
}

}  // namespace

Graph defer_normalize(Graph graph, const GraphEstimator& estimator, bool rounds) {
  if (!estimator) return graph;
  const auto change = [&](DeferredRows rows) {
    const bool rounded = rows == DeferredRows::rounded;
    graph = change_by_kind(
        std::move(graph), estimator, kLeastDeferredGainUs, [&](const Graph& from) { return deferrals_of(from, rows); },
        [&](const Graph& from, const std::vector<Deferred>& matches) { return std::optional(with_deferrals(from, matches, rounded)); });
  };
  change(rounds ? DeferredRows::bounded : DeferredRows::all);
  if (rounds) change(DeferredRows::rounded);
  return graph;
}

}  // namespace tamp::passes
