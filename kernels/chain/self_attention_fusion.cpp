// Where a normalisation of rows, the product that makes queries, keys and values of them, and their attention become one rOperator. Three
// levels become one, or two where the product makes its rows' normalisation itself. Queries, keys and values are views of the product that
// put the heads of a row side by side.
#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "compiler/passes/rewrite.h"
#include "compiler/passes/row_products.h"
#include "compiler/passes/view_strides.h"
#include "compiler/passes/views/window_heads.h"
#include "kernels/chain/numbers.cuh"
#include "kernels/chain/self_attention.h"

namespace tamp::kernels {
namespace {

constexpr double kLeastSelfGainUs = 2;  // a further body in the program costs what no estimate holds

struct SelfMatch {
  size_t normalize, product, attention;
  std::array<int64_t, 3> firsts;  // columns of the product where queries, keys and values begin
  int64_t rows, k, heads, windows, window_rows;
  std::optional<Shape> scores;  // shape of what is added to them
};

class SelfMatcher {
 public:
  explicit SelfMatcher(const Graph& graph) : graph_(graph), uses_(uses_of(graph)) {}

  std::optional<SelfMatch> match(size_t at) const {
    const ROperator& attention = graph_.rops[at];
    const auto* const op = std::get_if<Attention>(&attention.attrs);
    if (!op || op->rounding || ends_at_length(attention.attrs)) return std::nullopt;
    std::array<passes::HeadsOfRows, 3> parts;
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::optional<passes::HeadsOfRows> part = passes::heads_of_rows(graph_, uses_, attention.inputs[i]);
      if (!part || part->maker != (i == 0 ? part->maker : parts[0].maker)) return std::nullopt;
      if (i > 0 && !part->heads.same_parts(parts[0].heads)) return std::nullopt;
      if (part->heads.columns != rk::kSelfSize) return std::nullopt;
      parts[i] = *part;
    }
    const passes::WindowHeads& heads = parts[0].heads;
    const ROperator& product = graph_.rop(parts[0].maker);
    if (!passes::is_row_product(graph_, product)) return std::nullopt;
    const Shape& made = graph_.tensor(product.outputs[0]).shape;
    const int64_t rows = element_count(made) / std::max<int64_t>(1, made.back()), k = graph_.tensor(product.inputs[0]).shape.back();
    if (product.epilogue.activation != Activation::none || product.epilogue.residual.valid() || k == 0 || rows == 0 ||
        made.back() != 3 * heads.heads * heads.columns || heads.windows * heads.rows != rows)
      return std::nullopt;
    SelfMatch found{0, parts[0].maker.index(), at, {}, rows, k, heads.heads, heads.windows, heads.rows, std::nullopt};
    for (size_t i = 0; i < parts.size(); ++i) found.firsts[i] = parts[i].heads.first;
    if (!is_thirds(found.firsts, heads.heads * heads.columns) || !take_windows(attention, heads, found)) return std::nullopt;
    if (found.window_rows > rk::kSelfRows || !only_attention_reads(product.outputs[0], at)) return std::nullopt;
    const ROperatorId front = passes::only_maker_of(graph_, uses_, product.inputs[0]);
    if (!front.valid() || !passes::normalizes_rows(graph_, graph_.rop(front))) return std::nullopt;
    found.normalize = front.index();
    return found;
  }

 private:
  static bool is_thirds(std::array<int64_t, 3> firsts, int64_t columns) {
    std::sort(firsts.begin(), firsts.end());
    return firsts == std::array<int64_t, 3>{0, columns, 2 * columns};
  }

  // The windows of the table, if there is one, and what is added to the scores in their terms.
  bool take_windows(const ROperator& attention, const passes::WindowHeads& heads, SelfMatch& found) const {
    const Shape& made = graph_.tensor(attention.outputs[0]).shape;
    const TensorId table = operand(attention, kAttentionRowTable), bias = operand(attention, kAttentionBias);
    if (bias.valid() && !is_f32_constant(graph_, bias)) return false;
    const Shape leading(made.begin(), made.end() - 2);
    if (table.valid()) {
      if (heads.windows != 1 || leading.size() != 1 || !passes::is_constant(graph_, table)) return false;
      found.windows = graph_.tensor(table).shape[0];
      found.window_rows = graph_.tensor(table).shape[1];
      if (bias.valid()) {
        found.scores = Shape(4 - std::min<size_t>(4, graph_.tensor(bias).shape.size()), 1);
        found.scores->insert(found.scores->end(), graph_.tensor(bias).shape.begin(), graph_.tensor(bias).shape.end());
      }
      return true;
    }
    if (bias.valid()) found.scores = passes::window_bias(graph_.tensor(bias).shape, leading, heads.window_dimensions);
    return !bias.valid() || found.scores.has_value();
  }

  // Whether all that reads the tensor are views, and the attention behind these.
  bool only_attention_reads(TensorId id, size_t attention) const {
    std::vector<TensorId> left = {id};
    while (!left.empty()) {
      const TensorId seen = left.back();
      left.pop_back();
      if (uses_.is_output[seen.index()]) return false;
      for (const ROperatorId reader : uses_.consumers[seen.index()]) {
        if (reader.index() == attention) continue;
        if (!passes::is_view(graph_.rop(reader).attrs)) return false;
        left.push_back(graph_.rop(reader).outputs[0]);
      }
    }
    return true;
  }

  const Graph& graph_;
  Uses uses_;
};

class SelfFusion {
 public:
  SelfFusion(Graph& graph, const SelfMatch& match) : graph_(graph), match_(match), name_(graph.rops[match.attention].name) {}

  RegionSteps join() {
    ROperator normalize = graph_.rops[match_.normalize], product = graph_.rops[match_.product], attention = graph_.rops[match_.attention];
    const int64_t columns = 3 * match_.heads * rk::kSelfSize;
    const passes::ProductValues values = passes::values_of_product(graph_, product, &normalize);
    const TensorId x = normalize.inputs[0],
                   w = add_f32_constant(graph_, name_ + ".weight", {match_.k, columns}, in_thirds(values.weights, match_.k)),
                   b = add_f32_constant(graph_, name_ + ".shift", {columns}, in_thirds(values.bias, 1));
    const TensorId scores = match_.scores ? scores_in(operand(attention, kAttentionBias)) : TensorId();
    const TensorId given = operand(attention, kAttentionRowTable), table = given.valid() ? given : counted_rows();
    Shape shape = graph_.tensor(x).shape;
    normalize.inputs = {x};
    normalize.outputs = {passes::add_like(graph_, x, name_ + ".normalised", shape)};
    shape.back() = columns;
    product.attrs = MatMul{};
    product.inputs = {normalize.outputs[0], w};
    product.outputs = {passes::add_like(graph_, x, name_ + ".product", shape)};
    product.epilogue.bias = b;
    made_.operands = {x, w, b, scores, table};
    made_.steps = {normalize, product};
    attention.inputs = heads_of(product.outputs[0]);
    attention.inputs.insert(attention.inputs.end(), {scores, table});
    attention.outputs = {result_of(attention.outputs[0])};
    made_.results = attention.outputs;
    made_.steps.push_back(std::move(attention));
    return std::move(made_);
  }

 private:
  // Rows of all columns with those of queries first, then those of keys and of values.
  std::vector<float> in_thirds(const std::vector<float>& rows, int64_t count) const {
    const auto columns = static_cast<int64_t>(rows.size()) / count, third = columns / 3;
    std::vector<float> made;
    for (int64_t row = 0; row < count; ++row) {
      for (const int64_t first : match_.firsts) {
        const auto from = rows.begin() + row * columns + first;
        made.insert(made.end(), from, from + third);
      }
    }
    return made;
  }
  TensorId scores_in(TensorId bias) {
    if (graph_.tensor(bias).shape == *match_.scores) return bias;
    Tensor constant = graph_.tensor(bias);
    constant.name = name_ + ".scores";
    constant.shape = *match_.scores;
    return add_tensor(graph_, std::move(constant));
  }
  // The table of windows that lie one behind the other.
  TensorId counted_rows() {
    std::vector<int64_t> numbers(static_cast<size_t>(match_.rows));
    std::iota(numbers.begin(), numbers.end(), int64_t{0});
    return add_constant(graph_, name_ + ".table", DType::i64, {match_.windows, match_.window_rows}, packed_bytes(numbers));
  }
  // Queries, keys and values, [heads,rows,size], of the product's columns.
  std::vector<TensorId> heads_of(TensorId product) {
    const int64_t all = 3 * match_.heads, rows = match_.rows, size = rk::kSelfSize;
    TensorId from = viewed(made_.steps, Reshape{{rows, all, size}}, product, "columns", {rows, all, size});
    from = viewed(made_.steps, Transpose{{1, 0, 2}}, from, "parts", {all, rows, size});
    std::vector<TensorId> made;
    for (const char* part : {"queries", "keys", "values"}) {
      const Shape shape = {match_.heads, rows, size};
      const auto first = static_cast<int64_t>(made.size()) * match_.heads;
      made.push_back(viewed(made_.steps, Slice{{first, 0, 0}, {1, 1, 1}, shape}, from, part, shape));
    }
    return made;
  }
  // [heads,rows,size], of which the attention's result is a view. All of its leading dimensions of windows are in front of those of heads.
  TensorId result_of(TensorId made) {
    const int64_t heads = match_.heads, windows = match_.windows, rows = match_.window_rows, size = rk::kSelfSize;
    const Shape shape = {heads, match_.rows, size}, wanted = graph_.tensor(made).shape;
    if (wanted == shape) return made;
    const TensorId result = passes::add_like(graph_, made, name_ + ".heads", shape);
    TensorId from = result;
    if (windows > 1) {
      from = viewed(made_.around, Reshape{{heads, windows, rows, size}}, from, "windows", {heads, windows, rows, size});
      from = viewed(made_.around, Transpose{{1, 0, 2, 3}}, from, "turned", {windows, heads, rows, size});
    }
    made_.around.push_back({name_ + ".result", Reshape{wanted}, {}, {from}, {made}, {}});
    return result;
  }
  TensorId viewed(std::vector<ROperator>& to, OpAttrs view, TensorId from, const std::string& word, const Shape& shape) {
    const std::string name = name_ + "." + word;
    to.push_back({name, std::move(view), {}, {from}, {passes::add_like(graph_, from, name, shape)}, {}});
    return to.back().outputs[0];
  }

  Graph& graph_;
  const SelfMatch& match_;
  std::string name_;
  RegionSteps made_;
};

std::vector<FusionRegion> self_attentions_of(const Graph& graph) {
  const SelfMatcher matcher(graph);
  std::vector<FusionRegion> regions;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    const std::optional<SelfMatch> match = matcher.match(i);
    if (!match) continue;
    regions.push_back({{match->rows, match->k, match->heads, match->windows},
                       {match->normalize, match->product, match->attention},
                       [match](Graph& from) { return SelfFusion(from, *match).join(); }});
  }
  return regions;
}

}  // namespace

std::optional<SelfAttentionSteps> self_attention_steps(const ROperator& rop) {
  using S = SelfAttentionSteps;
  const std::optional<FusedView> view = FusedView::of(rop);
  if (!view || view->count() != S::kAttention + 1 || rop.outputs != std::vector{view->output(S::kAttention)}) return std::nullopt;
  const auto* const normalize = view->as<Normalize>(0);
  const auto* const product = view->as<MatMul>(S::kProduct);
  const auto* const turned = view->as<Transpose>(3);
  if (!normalize || view->step(0).inputs.size() != 1 || !product || !(*product == MatMul{}) || !view->as<Reshape>(2) || !turned ||
      turned->perm != std::vector<int64_t>{1, 0, 2} || !view->as<Attention>(S::kAttention))
    return std::nullopt;
  const Graph& body = view->body();
  const Epilogue& epilogue = view->step(S::kProduct).epilogue;
  const auto rank = static_cast<int64_t>(body.tensor(body.inputs[0]).shape.size());
  if (normalize->axes != std::vector{rank - 1} || epilogue.residual.valid() || epilogue.activation != Activation::none ||
      !view->feeds(0, 1) || !view->feeds(1, 2) || !view->feeds(2, 3))
    return std::nullopt;
  const Shape &made = body.tensor(view->step(S::kAttention).outputs[0]).shape,
              &weights = body.tensor(view->step(S::kProduct).inputs[1]).shape;
  if (made.size() != 3 || body.tensor(view->step(2).outputs[0]).shape != Shape{made[1], 3 * made[0], made[2]} || weights.size() != 2 ||
      weights[1] != 3 * made[0] * made[2])
    return std::nullopt;
  for (size_t part = 0; part < 3; ++part) {
    const auto* const slice = view->as<Slice>(4 + part);
    const Slice wanted{{static_cast<int64_t>(part) * made[0], 0, 0}, {1, 1, 1}, made};
    if (!slice || !(*slice == wanted) || !view->feeds(3, 4 + part) || !view->feeds(4 + part, S::kAttention, part)) return std::nullopt;
  }
  return S{*view};
}

FusionPattern self_attentions() {
  return {.title = "fused self-attention", .when = FusionTime::rows, .least_us_of_kind = kLeastSelfGainUs, .regions = self_attentions_of};
}

}  // namespace tamp::kernels
