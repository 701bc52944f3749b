#include "compiler/passes/fuse/fuse_self_attention.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/passes/by_kind.h"
#include "compiler/passes/rewrite.h"
#include "compiler/passes/row_products.h"
#include "compiler/passes/view_strides.h"
#include "compiler/passes/views/window_heads.h"

namespace tamp::passes {
namespace {

constexpr double kLeastSelfGainUs = 2;  // a further body in the program costs what no estimate holds

// Rows, columns of x, heads, windows.
using SelfKind = std::tuple<int64_t, int64_t, int64_t, int64_t>;

struct SelfMatch {
  size_t normalize, product, attention;
  std::array<int64_t, 3> firsts;  // columns of the product where queries, keys and values begin
  int64_t windows, window_rows;
  std::optional<Shape> scores;  // shape of what is added to them
  SelfKind kind;
};

int64_t product_rows(const Shape& shape) { return element_count(shape) / std::max<int64_t>(1, shape.back()); }

class SelfMatcher {
 public:
  explicit SelfMatcher(const Graph& graph) : graph_(graph), uses_(uses_of(graph)) {}

  std::optional<SelfMatch> match(size_t at) const {
    const ROperator& attention = graph_.rops[at];
    if (!std::holds_alternative<Attention>(attention.attrs)) return std::nullopt;
    std::array<Part, 3> parts;
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::optional<Part> part = part_of(attention.inputs[i]);
      if (!part || part->product != (i == 0 ? part->product : parts[0].product)) return std::nullopt;
      if (i > 0 && !part->heads.same_parts(parts[0].heads)) return std::nullopt;
      if (part->heads.columns != kSelfHeadSize) return std::nullopt;
      parts[i] = *part;
    }
    const WindowHeads& heads = parts[0].heads;
    const ROperator& product = graph_.rop(parts[0].product);
    const Shape& made = graph_.tensor(product.outputs[0]).shape;
    const int64_t rows = product_rows(made), k = graph_.tensor(product.inputs[0]).shape.back();
    if (product.epilogue.activation != Activation::none || product.epilogue.residual.valid() || k == 0 || rows == 0 ||
        made.back() != 3 * heads.heads * heads.columns || heads.windows * heads.rows != rows)
      return std::nullopt;
    SelfMatch found{0, parts[0].product.index(), at, {}, heads.windows, heads.rows, std::nullopt, {}};
    for (size_t i = 0; i < parts.size(); ++i) found.firsts[i] = parts[i].heads.first;
    if (!is_thirds(found.firsts, heads.heads * heads.columns) || !take_windows(attention, heads, found)) return std::nullopt;
    if (found.window_rows > kMostSelfRows || !only_attention_reads(product.outputs[0], at)) return std::nullopt;
    const ROperatorId front = only_maker_of(graph_, uses_, product.inputs[0]);
    if (!front.valid() || !normalizes_rows(graph_, graph_.rop(front))) return std::nullopt;
    found.normalize = front.index();
    found.kind = {rows, k, heads.heads, found.windows};
    return found;
  }

 private:
  struct Part {  // Q, K or V: columns of a product of rows
    ROperatorId product;
    WindowHeads heads;
  };

  std::optional<Part> part_of(TensorId id) const {
    const Shape& shape = graph_.tensor(id).shape;
    std::vector<const ROperator*> views;
    ROperatorId maker = uses_.producer[id.index()];
    for (; maker.valid() && is_view(graph_.rop(maker).attrs); maker = uses_.producer[views.back()->inputs[0].index()])
      views.push_back(&graph_.rop(maker));
    if (!maker.valid() || !is_row_product(graph_, graph_.rop(maker))) return std::nullopt;
    const Shape& rows = graph_.tensor(graph_.rop(maker).outputs[0]).shape;
    std::optional<Placement> place = Placement{BufferId(), 0, row_major_strides(rows)};
    for (size_t v = views.size(); v-- > 0 && place;) place = view_place(graph_, *views[v], *place);
    const std::optional<WindowHeads> heads = place ? window_heads(shape, *place, rows.back()) : std::nullopt;
    return heads ? std::optional(Part{maker, *heads}) : std::nullopt;
  }

  static bool is_thirds(std::array<int64_t, 3> firsts, int64_t columns) {
    std::sort(firsts.begin(), firsts.end());
    return firsts == std::array<int64_t, 3>{0, columns, 2 * columns};
  }

  // The windows of the table, if there is one, and what is added to the scores in their terms.
  bool take_windows(const ROperator& attention, const WindowHeads& heads, SelfMatch& found) const {
    const Shape& made = graph_.tensor(attention.outputs[0]).shape;
    const TensorId table = operand(attention, kAttentionRowTable), bias = operand(attention, kAttentionBias);
    if (bias.valid() && !is_f32_constant(graph_, bias)) return false;
    const Shape leading(made.begin(), made.end() - 2);
    if (table.valid()) {
      if (heads.windows != 1 || leading.size() != 1 || !is_constant(graph_, table)) return false;
      found.windows = graph_.tensor(table).shape[0];
      found.window_rows = graph_.tensor(table).shape[1];
      if (bias.valid()) {
        found.scores = Shape(4 - std::min<size_t>(4, graph_.tensor(bias).shape.size()), 1);
        found.scores->insert(found.scores->end(), graph_.tensor(bias).shape.begin(), graph_.tensor(bias).shape.end());
      }
      return true;
    }
    if (bias.valid()) found.scores = window_bias(graph_.tensor(bias).shape, leading, heads.window_dimensions);
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
        if (!is_view(graph_.rop(reader).attrs)) return false;
        left.push_back(graph_.rop(reader).outputs[0]);
      }
    }
    return true;
  }

  const Graph& graph_;
  Uses uses_;
};

std::vector<SelfMatch> self_attentions_of(const Graph& graph) {
  const SelfMatcher matcher(graph);
  std::vector<SelfMatch> matches;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    if (std::optional<SelfMatch> match = matcher.match(i)) matches.push_back(*std::move(match));
  }
  return matches;
}

class SelfFusion {
 public:
  SelfFusion(Graph& graph, std::vector<ROperator>& views, const SelfMatch& match) : graph_(graph), views_(views), match_(match) {}

  void apply(std::vector<bool>& dead) {
    const ROperator product = graph_.rops[match_.product], normalize = graph_.rops[match_.normalize];
    ROperator attention = graph_.rops[match_.attention];
    const auto [rows, k, heads, windows] = match_.kind;
    const int64_t columns = 3 * heads * kSelfHeadSize;
    std::vector<float> weights = weights_by_k(graph_, product), bias(static_cast<size_t>(columns), 0.0F);
    if (product.epilogue.bias.valid()) std::copy_n(f32_data(graph_.tensor(product.epilogue.bias)), bias.size(), bias.begin());
    take_scale_and_shift(graph_, operand(normalize, 1), operand(normalize, 2), weights, bias);
    const auto& norm = std::get<Normalize>(normalize.attrs);
    const auto& plain = std::get<Attention>(attention.attrs);
    SelfAttention op;
    op.heads = heads;
    op.scale = plain.scale;
    op.weightless = plain.weightless;
    op.centered = norm.centered;
    op.epsilon = norm.epsilon;
    const TensorId w = add_f32_constant(graph_, attention.name + ".weight", {k, columns}, in_thirds(weights, k)),
                   b = add_f32_constant(graph_, attention.name + ".shift", {columns}, in_thirds(bias, 1));
    const TensorId scores = match_.scores ? scores_in(operand(attention, kAttentionBias), attention.name) : TensorId();
    const TensorId given = operand(attention, kAttentionRowTable);
    prepend_origin(attention, product);
    prepend_origin(attention, normalize);
    attention.attrs = op;
    attention.inputs = {normalize.inputs[0], w, b, scores, given.valid() ? given : counted_rows(rows, attention.name)};
    attention.outputs = {result_of(attention.outputs[0], attention.name)};
    graph_.rops[match_.attention] = std::move(attention);
    dead[match_.product] = dead[match_.normalize] = true;
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
  TensorId scores_in(TensorId bias, const std::string& name) {
    if (graph_.tensor(bias).shape == *match_.scores) return bias;
    Tensor constant = graph_.tensor(bias);
    constant.name = name + ".scores";
    constant.shape = *match_.scores;
    return add_tensor(graph_, std::move(constant));
  }
  // The table of windows that lie one behind the other.
  TensorId counted_rows(int64_t rows, const std::string& name) {
    std::vector<int64_t> numbers(static_cast<size_t>(rows));
    std::iota(numbers.begin(), numbers.end(), int64_t{0});
    Bytes bytes(numbers.size() * sizeof(int64_t));
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    Tensor table;
    table.name = name + ".table";
    table.dtype = DType::i64;
    table.shape = {match_.windows, match_.window_rows};
    table.role = Role::constant;
    table.data = std::make_shared<const Bytes>(std::move(bytes));
    return add_tensor(graph_, std::move(table));
  }
  // [heads,rows,size], of which the attention's result is a view. All of its leading dimensions of windows are in front of those of heads.
  TensorId result_of(TensorId made, const std::string& name) {
    const auto [rows, k, heads, windows] = match_.kind;
    const Shape shape = {heads, rows, kSelfHeadSize};
    if (graph_.tensor(made).shape == shape) return made;
    const TensorId result = add_like(graph_, made, name + ".heads", shape);
    TensorId from = result;
    if (windows > 1) {
      from = viewed(Reshape{{heads, windows, match_.window_rows, kSelfHeadSize}}, from, made, name + ".windows",
                    {heads, windows, match_.window_rows, kSelfHeadSize});
      from = viewed(Transpose{{1, 0, 2, 3}}, from, made, name + ".turned", {windows, heads, match_.window_rows, kSelfHeadSize});
    }
    ROperator last;
    last.name = name + ".result";
    last.attrs = Reshape{graph_.tensor(made).shape};
    last.inputs = {from};
    last.outputs = {made};
    views_.push_back(std::move(last));
    return result;
  }
  TensorId viewed(OpAttrs view, TensorId from, TensorId like, const std::string& name, const Shape& shape) {
    ROperator rop;
    rop.name = name;
    rop.attrs = std::move(view);
    rop.inputs = {from};
    const TensorId made = add_like(graph_, like, name, shape);
    rop.outputs = {made};
    views_.push_back(std::move(rop));
    return made;
  }

  Graph& graph_;
  std::vector<ROperator>& views_;
  const SelfMatch& match_;
};

Graph with_self_attentions(Graph graph, const std::vector<SelfMatch>& matches) {
  std::vector<ROperator> views;  // added in the end, since rOperators have numbers until then
  std::vector<bool> dead(graph.rops.size(), false);
  for (const SelfMatch& match : matches) SelfFusion(graph, views, match).apply(dead);
  graph = erase_rops(std::move(graph), dead);
  graph.rops.insert(graph.rops.end(), views.begin(), views.end());
  return remove_dead(sort_topologically(std::move(graph)));
}

}  // namespace

Graph fuse_self_attention(Graph graph, const GraphEstimator& estimator) {
  if (!estimator) return graph;
  return change_by_kind(
      std::move(graph), estimator, kLeastSelfGainUs, self_attentions_of,
      [](const Graph& from, const std::vector<SelfMatch>& matches) { return std::optional(with_self_attentions(from, matches)); });
}

}  // namespace tamp::passes
