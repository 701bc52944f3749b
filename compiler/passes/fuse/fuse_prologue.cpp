#include "compiler/passes/fuse/fuse_prologue.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/ir/products.h"
#include "compiler/passes/by_kind.h"
#include "compiler/passes/fuse/defer_normalize.h"
#include "compiler/passes/fuse/fuse_normalize.h"
#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// A further body in the program costs what no estimate holds, so a small gain is none.
constexpr double kLeastPrologueGainUs = 0.5;

// Rows, k, steps, whether they are normalised, the columns of the products that read them.
using PrologueKind = std::tuple<int64_t, int64_t, size_t, bool, std::vector<int64_t>>;

struct Prologue {
  std::optional<size_t> steps, normalize;  // at least one of them
  std::vector<size_t> products;
  PrologueKind kind;
};

class PrologueMatcher {
 public:
  explicit PrologueMatcher(const Graph& graph) : graph_(graph), uses_(uses_of(graph)) {}

  // The rows that rOperator `at` makes.
  std::optional<Prologue> match(size_t at) const {
    const ROperator& rop = graph_.rops[at];
    Prologue found;
    if (normalizes_rows(graph_, rop)) {
      found.normalize = at;
      const ROperatorId maker = uses_.maker_for_one(rop.inputs[0]);
      if (maker.valid() && are_steps_of_rows(graph_.rop(maker))) found.steps = maker.index();
    } else if (are_steps_of_rows(rop)) {
      found.steps = at;
    } else {
      return std::nullopt;
    }
    const Shape& shape = graph_.tensor(rop.outputs[0]).shape;
    const int64_t k = shape.back(), rows = element_count(shape) / std::max<int64_t>(1, k);
    if (rows == 0 || rows > kMostPrologueRows || !collect_products(rop.outputs[0], k, found.products) || found.products.empty())
      return std::nullopt;
    std::vector<int64_t> columns;
    for (const size_t product : found.products) columns.push_back(graph_.tensor(graph_.rops[product].outputs[0]).shape.back());
    const size_t steps = found.steps ? std::get<Elementwise>(graph_.rops[*found.steps].attrs).steps.size() : 0;
    found.kind = {rows, k, steps, found.normalize.has_value(), columns};
    return found;
  }

 private:
  bool are_steps_of_rows(const ROperator& rop) const {
    if (!std::holds_alternative<Elementwise>(rop.attrs)) return false;
    const Tensor& made = graph_.tensor(rop.outputs[0]);
    const auto is_alike = [&](TensorId id) {
      const Tensor& x = graph_.tensor(id);
      return x.shape == made.shape && x.dtype == DType::f32 && x.role != Role::constant;
    };
    return made.dtype == DType::f32 && !made.shape.empty() && std::all_of(rop.inputs.begin(), rop.inputs.end(), is_alike);
  }

  bool is_product_of(TensorId rows, const ROperator& rop) const {
    const auto* matmul = std::get_if<MatMul>(&rop.attrs);
    if (!matmul || matmul->trans_a || rop.inputs.size() != 2 || rop.inputs[0] != rows || rop.epilogue.residual == rows) return false;
    const TensorId bias = rop.epilogue.bias;
    return is_f32_constant(graph_, rop.inputs[1]) && graph_.tensor(rop.inputs[1]).shape.size() == 2 &&
           (!bias.valid() || is_f32_constant(graph_, bias));
  }

  // Appends the products that read these rows; false if anything else reads them.
  bool collect_products(TensorId rows, int64_t k, std::vector<size_t>& products) const {
    if (uses_.is_output[rows.index()]) return false;
    for (const ROperatorId reader : uses_.consumers[rows.index()]) {
      const ROperator& rop = graph_.rop(reader);
      if (keeps_order(graph_, rop)) {
        if (!collect_products(rop.outputs[0], k, products)) return false;
      } else if (is_product_of(rows, rop) && graph_.tensor(rows).shape.back() == k) {
        products.push_back(reader.index());
      } else {
        return false;
      }
    }
    return true;
  }

  const Graph& graph_;
  Uses uses_;
};

std::vector<Prologue> prologues_of(const Graph& graph) {
  const PrologueMatcher matcher(graph);
  std::vector<Prologue> found;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    if (std::optional<Prologue> prologue = matcher.match(i)) found.push_back(std::move(*prologue));
  }
  return found;
}

// Makes PrologueMatMuls of the products of one Prologue.
class PrologueJoiner {
 public:
  PrologueJoiner(Graph& graph, std::vector<ROperator>& views, const Prologue& prologue)
      : graph_(graph), views_(views), prologue_(prologue) {}

  void join() {
    for (const size_t at : prologue_.products) join(graph_.rops[at]);
  }

 private:
  void join(ROperator& product) {
    const auto matmul = std::get<MatMul>(product.attrs);
    const Shape shape = graph_.tensor(product.inputs[0]).shape;
    PrologueMatMul made;
    made.trans_b = matmul.trans_b;
    made.alpha = matmul.alpha;
    std::vector<TensorId> inputs = {product.inputs[1], TensorId(), TensorId()};
    std::vector<TensorId> operands;
    if (prologue_.normalize) {
      const ROperator& rop = graph_.rops[*prologue_.normalize];
      const auto& op = std::get<Normalize>(rop.attrs);
      made.normalize = true;
      made.centered = op.centered;
      made.epsilon = op.epsilon;
      for (size_t i = 1; i < std::min<size_t>(rop.inputs.size(), 3); ++i) inputs[i] = rop.inputs[i];
      operands = {rop.inputs[0]};
      prepend_origin(product, rop);
    }
    if (prologue_.steps) {
      const ROperator& rop = graph_.rops[*prologue_.steps];
      made.steps = std::get<Elementwise>(rop.attrs).steps;
      for (ElementwiseStep& step : made.steps) {
        for (int32_t& operand : step.operands) operand += operand >= 0 ? static_cast<int32_t>(kPrologueRows) : 0;
      }
      operands = rop.inputs;
      prepend_origin(product, rop);
    }
    for (const TensorId operand : operands) inputs.push_back(in_shape(operand, shape));
    product.attrs = std::move(made);
    product.inputs = std::move(inputs);
  }

  // The tensor, or a view of it, in the shape that the product's rows have.
  TensorId in_shape(TensorId id, const Shape& shape) {
    if (graph_.tensor(id).shape == shape) return id;
    TensorId& view = of_shape_[{id.index(), shape}];
    if (view.valid()) return view;
    ROperator reshape;
    reshape.name = graph_.tensor(id).name + ".rows" + std::to_string(graph_.tensors.size());
    reshape.attrs = Reshape{shape};
    reshape.inputs = {id};
    view = add_like(graph_, id, reshape.name, shape);
    reshape.outputs = {view};
    views_.push_back(std::move(reshape));
    return view;
  }

  Graph& graph_;
  std::vector<ROperator>& views_;
  const Prologue& prologue_;
  std::map<std::pair<size_t, Shape>, TensorId> of_shape_;
};

Graph with_prologues(Graph graph, const std::vector<Prologue>& prologues) {
  std::vector<ROperator> views;  // added in the end, since rOperators have numbers until then
  for (const Prologue& prologue : prologues) PrologueJoiner(graph, views, prologue).join();
  graph.rops.insert(graph.rops.end(), views.begin(), views.end());
  return remove_dead(sort_topologically(std::move(graph)));
}

// Whether each product has a body that makes its rows.
bool has_prologue_bodies(const Graph& graph, const Estimator& estimator) {
  return std::all_of(graph.rops.begin(), graph.rops.end(), [&](const ROperator& rop) {
    return !std::holds_alternative<PrologueMatMul>(rop.attrs) || estimator(graph, rop).has_value();
  });
}

template <class Op>
bool has_any(const Graph& graph) {
  return std::any_of(graph.rops.begin(), graph.rops.end(), [](const ROperator& rop) { return std::holds_alternative<Op>(rop.attrs); });
}

}  // namespace

Graph fuse_prologue(Graph graph, const Estimator& estimator, const GraphEstimator& graphs) {
  if (!estimator || !graphs) return graph;
  return change_by_kind(std::move(graph), graphs, kLeastPrologueGainUs, prologues_of,
                        [&](const Graph& from, const std::vector<Prologue>& prologues) {
                          Graph changed = with_prologues(from, prologues);
                          return has_prologue_bodies(changed, estimator) ? std::optional(std::move(changed)) : std::nullopt;
                        });
}

namespace {

Graph fused_rows(const Graph& graph, const Estimator& estimator, const GraphEstimator& graphs) {
  Graph prologue_first = fuse_prologue(graph, estimator, graphs);
  if (!has_any<PrologueMatMul>(prologue_first)) return fuse_normalize(graph, graphs);
  Graph normalize_first = fuse_normalize(graph, graphs);
  if (!has_any<NormalizedMatMul>(normalize_first)) return fuse_normalize(std::move(prologue_first), graphs);
  prologue_first = fuse_normalize(std::move(prologue_first), graphs);
  normalize_first = fuse_prologue(std::move(normalize_first), estimator, graphs);
  return graphs(normalize_first) < graphs(prologue_first) ? normalize_first : prologue_first;
}

}  // namespace

Graph fuse_rows(const Graph& graph, const Estimator& estimator, const GraphEstimator& graphs, bool rounds) {
  Graph fused = fused_rows(graph, estimator, graphs);
  if (!has_any<NormalizedMatMul>(fused)) return fused;
  // A normalisation that is no part of the product in front may be none of its own either (defer_normalize). So what counts is the time
  // behind that pass.
  const Graph deferred = defer_normalize(graph, graphs, rounds);
  if (std::none_of(deferred.rops.begin(), deferred.rops.end(), is_by_moments)) return fused;
  return graphs(deferred) < graphs(defer_normalize(fused, graphs, rounds)) ? graph : fused;
}

}  // namespace tamp::passes
