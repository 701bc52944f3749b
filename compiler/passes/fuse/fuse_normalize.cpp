#include "compiler/passes/fuse/fuse_normalize.h"

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/passes/by_kind.h"
#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// A further body in the program costs what no estimate holds, so a small gain is none.
constexpr double kLeastGainUs = 2;

using Kind = std::tuple<int64_t, int64_t, int64_t, bool>;  // rows, columns, k, whether there is a residual

struct Match {
  size_t product, normalize;
  Kind kind;
};

// A MatMul whose rows are sums that a body can normalise.
bool is_product_of_rows(const Graph& graph, const ROperator& rop) {
  const auto* matmul = std::get_if<MatMul>(&rop.attrs);
  if (!matmul || matmul->trans_a || rop.inputs.size() != 2 || rop.epilogue.activation != Activation::none) return false;
  const Tensor &b = graph.tensor(rop.inputs[1]), &sum = graph.tensor(rop.outputs[0]);
  return is_f32_constant(graph, rop.inputs[1]) && b.shape.size() == 2 && sum.dtype == DType::f32 && sum.shape.back() % 4 == 0 &&
         is_row_or_none(graph, rop.epilogue.bias, sum.shape.back());
}

// The product whose rows `rop` normalises, apart from Reshapes between the two.
std::optional<Match> match_of(const Graph& graph, const Uses& uses, size_t normalize) {
  if (!normalizes_rows(graph, graph.rops[normalize])) return std::nullopt;
  const int64_t columns = graph.tensor(graph.rops[normalize].inputs[0]).shape.back();
  ROperatorId maker = uses.producer[graph.rops[normalize].inputs[0].index()];
  while (maker.valid() && std::holds_alternative<Reshape>(graph.rop(maker).attrs)) {
    const TensorId from = graph.rop(maker).inputs[0];
    if (graph.tensor(from).shape.empty() || graph.tensor(from).shape.back() != columns) return std::nullopt;
    maker = uses.producer[from.index()];
  }
  if (!maker.valid() || !is_product_of_rows(graph, graph.rop(maker))) return std::nullopt;
  const ROperator& product = graph.rop(maker);
  const int64_t rows = element_count(graph.tensor(product.outputs[0]).shape) / columns;
  return Match{maker.index(), normalize,
               Kind{rows, columns, graph.tensor(product.inputs[0]).shape.back(), product.epilogue.residual.valid()}};
}

std::vector<Match> matches_of(const Graph& graph) {
  const Uses uses = uses_of(graph);
  std::vector<bool> taken(graph.rops.size(), false);
  std::vector<Match> matches;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    const std::optional<Match> match = match_of(graph, uses, i);
    if (!match || taken[match->product]) continue;
    taken[match->product] = true;
    matches.push_back(*match);
  }
  return matches;
}

// Makes the product a NormalizedMatMul, and the Normalize a view of its first result.
void join(Graph& graph, const Match& match) {
  ROperator& product = graph.rops[match.product];
  ROperator& normalize = graph.rops[match.normalize];
  const auto& matmul = std::get<MatMul>(product.attrs);
  const auto& op = std::get<Normalize>(normalize.attrs);
  Tensor made;
  made.name = graph.tensor(normalize.outputs[0]).name + ".rows";
  made.dtype = DType::f32;
  made.shape = graph.tensor(product.outputs[0]).shape;
  const TensorId rows = add_tensor(graph, std::move(made));
  product.attrs = NormalizedMatMul{matmul.trans_b, matmul.alpha, op.centered, op.epsilon, /*keeps_sum=*/true};
  product.inputs.insert(product.inputs.end(),
                        {product.epilogue.bias, product.epilogue.residual, operand(normalize, 1), operand(normalize, 2)});
  product.inputs = without_last_none(std::move(product.inputs));
  product.epilogue = {};
  product.outputs.insert(product.outputs.begin(), rows);
  product.origin.insert(product.origin.end(), normalize.origin.begin(), normalize.origin.end());
  normalize.attrs = Reshape{graph.tensor(normalize.outputs[0]).shape};
  normalize.inputs = {rows};
  normalize.origin.clear();
}

// Sums that nobody reads are no results.
void drop_sums(Graph& graph) {
  const Uses uses = uses_of(graph);
  for (ROperator& rop : graph.rops) {
    auto* const op = std::get_if<NormalizedMatMul>(&rop.attrs);
    if (!op || !op->keeps_sum || !uses.consumers[rop.outputs[1].index()].empty() || uses.is_output[rop.outputs[1].index()]) continue;
    op->keeps_sum = false;
    rop.outputs.pop_back();
  }
}

Graph joined(Graph graph, const std::vector<Match>& matches) {
  for (const Match& match : matches) join(graph, match);
  graph = remove_dead(std::move(graph));
  drop_sums(graph);
  return remove_dead(std::move(graph));
}

}  // namespace

Graph fuse_normalize(Graph graph, const GraphEstimator& estimator) {
  if (!estimator) return graph;
  return change_by_kind(std::move(graph), estimator, kLeastGainUs, matches_of,
                        [](const Graph& from, const std::vector<Match>& matches) { return std::optional(joined(from, matches)); });
}

}  // namespace tamp::passes
