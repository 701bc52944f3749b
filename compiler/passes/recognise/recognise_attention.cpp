// The match begins at the Softmax: forwards to the product with V, backwards over the bias and the scale to the product of Q and K.
#include "compiler/passes/recognise/recognise_attention.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "compiler/passes/rewrite.h"
#include "compiler/passes/view_strides.h"

namespace tamp::passes {
namespace {

constexpr int64_t kSummedBytes = int64_t{16} << 20;  // a sum of constants takes no more

// A constant that is added to the scores while they are seen in `shape`.
struct AddedConstant {
  TensorId id;
  Shape shape;
};

// A constant that is the same for all of the last two dimensions, and by which the scores are multiplied or divided.
struct FactorOfHeads {
  TensorId id;
  ElementwiseOp op;  // mul or div
};

struct AttentionMatch {
  TensorId q, k, v, bias;
  std::vector<FactorOfHeads> factors;
  std::vector<AddedConstant> constants;  // in place of the bias: their sum, in the shape of the scores
  bool keys_last = false;                // K is [..,size,keys]
  double scale = 1;
  Weightless weightless = Weightless::nan;
  std::optional<Extent> end;  // there are only so many keys
  TensorId kept;              // where it is false, the weight is set to 0, so the bias must be -infinity there; or none
  std::vector<size_t> steps;  // all but the last one, in the graph's order
  size_t last = 0;            // the product with V
};

class AttentionMatcher {
 public:
  explicit AttentionMatcher(const Graph& graph) : graph_(graph), uses_(uses_of(graph)) {}

  // The attention whose softmax `rop` is.
  std::optional<AttentionMatch> match(size_t rop) const {
    const auto* softmax = std::get_if<Softmax>(&graph_.rops[rop].attrs);
    if (!softmax || softmax->log) return std::nullopt;
    const TensorId weights = graph_.rops[rop].outputs[0];
    const auto last_axis = static_cast<int64_t>(graph_.tensor(weights).shape.size()) - 1;
    if (softmax->first_axis != last_axis || softmax->last_axis != last_axis) return std::nullopt;
    AttentionMatch found;
    found.steps = {rop};
    found.end = softmax->end;
    if (!take_values(select_weights(weights, found), found) || !take_scores(graph_.rops[rop].inputs[0], found)) return std::nullopt;
    if (found.kept.valid() && !(found.bias.valid() && is_masked(found.bias, found.kept))) return std::nullopt;
    return found;
  }

 private:
  bool is_f32(TensorId id) const { return graph_.tensor(id).dtype == DType::f32; }

  // A product of two tensors in f32 and nothing more, but for a factor.
  const MatMul* plain_product(const ROperator& rop) const {
    const auto* product = std::get_if<MatMul>(&rop.attrs);
    const bool has_c = operand(rop, 2).valid();
    return product && !has_c && !product->trans_a && is_f32(rop.outputs[0]) ? product : nullptr;
  }

  bool is_scalar(TensorId id, float value) const { return scalar_value(graph_, id) == value; }

  // Behind the Softmax, weights may be selected once more, for queries whose keys are all masked: PyTorch's exporter writes Where(IsNaN(w),
  // 0, w), the importer of ONNX's Attention Where(kept, w, 0). Returns the selected weights, or the weights themselves.
  TensorId select_weights(TensorId weights, AttentionMatch& found) const {
    for (const ROperatorId reader : uses_.consumers[weights.index()]) {
      const ROperator& rop = graph_.rop(reader);
      const ElementwiseStep* const step = single_step(rop);
      if (!step || step->op != ElementwiseOp::where || graph_.tensor(rop.outputs[0]).shape != graph_.tensor(weights).shape) continue;
      const ROperator* const is_nan =
          uses_.maker_for_one(rop.inputs[0]).valid() ? maker_by(graph_, uses_, rop.inputs[0], ElementwiseOp::is_nan) : nullptr;
      const size_t readers = uses_.consumers[weights.index()].size();
      if (uses_.is_output[weights.index()]) continue;
      if (rop.inputs[2] == weights && is_nan && is_nan->inputs[0] == weights && is_scalar(rop.inputs[1], 0) && readers == 2) {
        found.weightless = Weightless::zero;
        found.steps.push_back(uses_.producer[rop.inputs[0].index()].index());
      } else if (rop.inputs[1] == weights && is_scalar(rop.inputs[2], 0) && readers == 1) {
        found.weightless = Weightless::zero_if_masked;
        found.kept = rop.inputs[0];
      } else {
        continue;
      }
      found.steps.push_back(reader.index());
      return rop.outputs[0];
    }
    return weights;
  }

  // Whether the bias is -infinity wherever `kept` is false. Looks through at most `steps` steps, one behind the other.
  bool is_masked(TensorId bias, TensorId kept, int steps = 8) const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    if (steps == 0) return false;
    const ROperator* const chosen = maker_by(graph_, uses_, bias, ElementwiseOp::where);
    if (chosen && chosen->inputs[0] == kept && is_scalar(chosen->inputs[2], -kInfinity)) return true;
    const ROperator* const sum = maker_by(graph_, uses_, bias, ElementwiseOp::add);
    if (sum && (is_masked(sum->inputs[0], kept, steps - 1) || is_masked(sum->inputs[1], kept, steps - 1))) return true;
    if (const ROperator* const both = maker_by(graph_, uses_, kept, ElementwiseOp::logical_and))
      return is_masked(bias, both->inputs[0], steps - 1) && is_masked(bias, both->inputs[1], steps - 1);
    const ROperator* const above = maker_by(graph_, uses_, kept, ElementwiseOp::greater);
    return above && above->inputs[0] == bias && is_scalar(above->inputs[1], -kInfinity);
  }

  bool take_values(TensorId weights, AttentionMatch& found) const {
    if (!uses_.maker_for_one(weights).valid()) return false;
    found.last = uses_.consumers[weights.index()][0].index();
    const ROperator& rop = graph_.rops[found.last];
    const MatMul* product = plain_product(rop);
    if (!product || product->trans_b || product->alpha != 1 || rop.inputs[0] != weights) return false;
    found.v = found.end ? without_mask(rop.inputs[1], *found.end) : rop.inputs[1];
    return true;
  }

  // V without the zeros behind its end, where attention reads nothing.
  TensorId without_mask(TensorId v, const Extent& end) const {
    const ROperator* const masked = maker_by(graph_, uses_, v, ElementwiseOp::where);
    if (!masked || !is_scalar(masked->inputs[2], 0)) return v;
    const ROperator* const valid = maker_of(graph_, uses_, masked->inputs[0]);
    const auto* const pad = valid ? std::get_if<Pad>(&valid->attrs) : nullptr;
    const auto rank = static_cast<int64_t>(graph_.tensor(masked->inputs[0]).shape.size());
    const bool is_of_rows = pad && pad->ends.size() == 1 && pad->ends[0].extent == end && rank == 2 && pad->ends[0].dim == 0;
    return is_of_rows ? masked->inputs[1] : v;
  }

  bool take_scores(TensorId scores, AttentionMatch& found) const {
    const Shape& shape = graph_.tensor(scores).shape;
    if (const auto sums = sum_of_constants(scores)) {
      found.constants = sums->constants;
      found.steps.insert(found.steps.begin(), sums->steps.begin(), sums->steps.end());
      scores = sums->scores;
    } else if (const auto bias = sum_of(scores, found)) {
      found.bias = bias->second;
      scores = bias->first;
    }
    take_factor(scores, found);
    const ROperatorId maker = uses_.maker_for_one(scores);
    const MatMul* product = maker.valid() ? plain_product(graph_.rop(maker)) : nullptr;
    if (!product) return false;
    found.steps.insert(found.steps.begin(), maker.index());
    found.scale *= product->alpha;
    found.q = graph_.rop(maker).inputs[0];
    found.k = graph_.rop(maker).inputs[1];
    found.keys_last = !product->trans_b;
    take_factor(found.q, found);
    take_factor(found.k, found);
    // Only the dimensions in front of the matrices may broadcast, and the bias must not enlarge the scores.
    return graph_.tensor(scores).shape == shape;
  }

  // Several constants may be added one after another, with Reshapes in between (for a mask of windows, the windows are a dimension of their
  // own). A Reshape leaves the order of elements, so their sum is one constant.
  struct ConstantSums {
    TensorId scores;
    std::vector<AddedConstant> constants;
    std::vector<size_t> steps;
  };
  std::optional<ConstantSums> sum_of_constants(TensorId id) const {
    ConstantSums sums;
    while (!leads_to_product(id)) {
      const ROperatorId maker = uses_.maker_for_one(id);
      if (!maker.valid()) return std::nullopt;
      const ROperator& rop = graph_.rop(maker);
      TensorId next = rop.inputs[0];
      if (!std::holds_alternative<Reshape>(rop.attrs)) {
        const ElementwiseStep* step = single_step(rop);
        if (!step || step->op != ElementwiseOp::add) return std::nullopt;
        const size_t i = is_f32_constant(graph_, rop.inputs[0]) ? 0 : 1;
        next = rop.inputs[1 - i];
        if (!is_f32_constant(graph_, rop.inputs[i]) || graph_.tensor(next).shape != graph_.tensor(id).shape) return std::nullopt;
        sums.constants.push_back({rop.inputs[i], graph_.tensor(id).shape});
      }
      sums.steps.insert(sums.steps.begin(), maker.index());
      id = next;
    }
    sums.scores = id;
    if (sums.constants.empty() || sums.steps.size() < 2 || element_count(graph_.tensor(id).shape) * bytes_of(DType::f32) > kSummedBytes)
      return std::nullopt;
    return sums;
  }

  // The scores and what is added to them.
  std::optional<std::pair<TensorId, TensorId>> sum_of(TensorId id, AttentionMatch& found) const {
    const ROperatorId maker = uses_.maker_for_one(id);
    const ElementwiseStep* step = maker.valid() ? single_step(graph_.rop(maker)) : nullptr;
    if (!step || step->op != ElementwiseOp::add) return std::nullopt;
    const std::vector<TensorId>& inputs = graph_.rop(maker).inputs;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      if (!leads_to_product(inputs[i]) || inputs[i] == inputs[1 - i] || !is_f32(inputs[1 - i])) continue;
      found.steps.insert(found.steps.begin(), maker.index());
      return std::pair(inputs[i], inputs[1 - i]);
    }
    return std::nullopt;
  }
  bool leads_to_product(TensorId id) const {
    AttentionMatch ignored;
    take_factor(id, ignored);
    const ROperatorId maker = uses_.maker_for_one(id);
    return maker.valid() && plain_product(graph_.rop(maker));
  }

  bool is_factor_of_heads(TensorId id) const {
    const Shape& shape = graph_.tensor(id).shape;
    return is_f32_constant(graph_, id) && shape.size() >= 2 && shape.back() == 1 && shape[shape.size() - 2] == 1;
  }

  // id = x * factor or x / factor becomes x.
  void take_factor(TensorId& id, AttentionMatch& found) const {
    const ROperatorId maker = uses_.maker_for_one(id);
    const ElementwiseStep* step = maker.valid() ? single_step(graph_.rop(maker)) : nullptr;
    if (!step || (step->op != ElementwiseOp::mul && step->op != ElementwiseOp::div)) return;
    const std::vector<TensorId>& inputs = graph_.rop(maker).inputs;
    for (const size_t i : {size_t{1}, size_t{0}}) {
      const std::optional<float> factor = scalar_value(graph_, inputs[i]);
      if ((!factor && !is_factor_of_heads(inputs[i])) || (i == 0 && step->op == ElementwiseOp::div)) continue;
      if (graph_.tensor(inputs[1 - i]).shape != graph_.tensor(id).shape) continue;
      if (!factor)
        found.factors.push_back({inputs[i], step->op});
      else
        found.scale = step->op == ElementwiseOp::mul ? found.scale * *factor : found.scale / *factor;
      found.steps.insert(found.steps.begin(), maker.index());
      id = inputs[1 - i];
      return;
    }
  }

  const Graph& graph_;
  Uses uses_;
};

// The constants' sum in `shape`, with extent 1 along dimensions that the sum does not vary along. Added in double and rounded once.
TensorId summed(Graph& graph, const std::vector<AddedConstant>& constants, Shape shape, const std::string& name) {
  std::vector<double> sums(static_cast<size_t>(element_count(shape)), 0.0);
  for (const AddedConstant& added : constants) {
    const std::vector<float> values = broadcast_values(graph.tensor(added.id), added.shape);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
  }
  std::vector<float> values(sums.begin(), sums.end());
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto inner = static_cast<size_t>(element_count(Shape(shape.begin() + static_cast<std::ptrdiff_t>(d) + 1, shape.end())));
    const size_t whole = inner * static_cast<size_t>(shape[d]);
    std::vector<float> first;
    bool varies = false;
    for (size_t i = 0; i < values.size() && !varies; ++i) {
      varies = values[i] != values[i / whole * whole + i % inner];
      if (i % whole < inner) first.push_back(values[i]);
    }
    if (varies) continue;
    values = std::move(first);
    shape[d] = 1;
  }
  return add_f32_constant(graph, name, shape, values);
}

// [..,size,keys] as [..,keys,size]. A Transpose is a view.
TensorId with_keys_first(Graph& graph, TensorId k, const ROperator& reader, std::vector<ROperator>& made) {
  Shape shape = graph.tensor(k).shape;
  std::swap(shape[shape.size() - 2], shape.back());
  const TensorId to = add_like(graph, k, graph.tensor(k).name + ".turned." + reader.name, shape);
  made.push_back({reader.name + ".keys", Transpose{swapped(shape.size(), shape.size() - 2)}, {}, {k}, {to}, reader.origin});
  return to;
}

// Q times the factors of its heads.
TensorId with_factors(Graph& graph, TensorId q, const std::vector<FactorOfHeads>& factors, const ROperator& reader,
                      std::vector<ROperator>& made) {
  for (size_t i = 0; i < factors.size(); ++i) {
    const TensorId to = add_like(graph, q, fmt::format("{}.scaled{}.{}", graph.tensor(q).name, i, reader.name), graph.tensor(q).shape);
    const ElementwiseStep step{.op = factors[i].op, .operands = {0, 1}};
    made.push_back({fmt::format("{}.scale{}", reader.name, i), Elementwise{{step}}, {}, {q, factors[i].id}, {to}, reader.origin});
    q = to;
  }
  return q;
}

// Products whose operand is a view of x * factor multiply x, and the result. Example: q * (k * 0.18) with k seen as [..,size,keys].
class FactorsBehindViews {
 public:
  explicit FactorsBehindViews(Graph graph) : graph_(std::move(graph)), uses_(uses_of(graph_)) {}

  Graph run() {
    for (ROperator& rop : graph_.rops) {
      auto* const product = std::get_if<MatMul>(&rop.attrs);
      if (!product || (operand(rop, 2).valid()) || graph_.tensor(rop.outputs[0]).dtype != DType::f32) continue;
      for (const size_t i : {size_t{0}, size_t{1}}) take(rop, i, *product);
    }
    return remove_dead(std::move(graph_));
  }

 private:
  void take(const ROperator& rop, size_t i, MatMul& product) {
    ROperatorId reader, maker = uses_.maker_for_one(rop.inputs[i]);
    while (maker.valid() && is_view(graph_.rop(maker).attrs)) {
      reader = maker;
      maker = uses_.maker_for_one(graph_.rop(reader).inputs[0]);
    }
    if (!maker.valid() || !reader.valid()) return;  // without a view in between there is nothing to do
    const ROperator& scaled = graph_.rop(maker);
    const ElementwiseStep* const step = single_step(scaled);
    if (!step || step->op != ElementwiseOp::mul) return;
    for (const size_t x : {size_t{0}, size_t{1}}) {
      const std::optional<float> factor = scalar_value(graph_, scaled.inputs[1 - x]);
      if (!factor || graph_.tensor(scaled.inputs[x]).shape != graph_.tensor(scaled.outputs[0]).shape) continue;
      product.alpha *= *factor;
      graph_.rops[reader.index()].inputs[0] = scaled.inputs[x];
      return;
    }
  }

  Graph graph_;
  Uses uses_;
};

}  // namespace

Graph recognise_attention(Graph graph, const Estimator& estimator) {
  if (!estimator) return graph;
  graph = FactorsBehindViews(std::move(graph)).run();
  const Graph before = graph;
  const AttentionMatcher matcher(before);
  std::vector<std::vector<ROperator>> made(before.rops.size());  // in place of the product with V
  for (size_t i = 0; i < before.rops.size(); ++i) {
    const std::optional<AttentionMatch> match = matcher.match(i);
    if (!match) continue;
    ROperator rop = before.rops[match->last];
    rop.attrs = Attention{static_cast<float>(match->scale), match->weightless, match->end};
    for (size_t s = match->steps.size(); s-- > 0;) prepend_origin(rop, before.rops[match->steps[s]]);
    const size_t tensors = graph.tensors.size();
    std::vector<ROperator> turned;
    const TensorId k = match->keys_last ? with_keys_first(graph, match->k, rop, turned) : match->k;
    const TensorId q = with_factors(graph, match->q, match->factors, rop, turned);
    rop.inputs = {q, k, match->v};
    if (match->bias.valid()) rop.inputs.push_back(match->bias);
    if (!match->constants.empty()) {
      const Shape& scores = before.tensor(before.rops[i].inputs[0]).shape;
      rop.inputs.push_back(summed(graph, match->constants, scores, rop.name + ".bias"));
    }
    if (!estimator(graph, rop)) {
      graph.tensors.resize(tensors);
      continue;
    }
    turned.push_back(std::move(rop));
    made[match->last] = std::move(turned);
  }
  return remove_dead(replace_rops(std::move(graph), std::move(made)));
}

}  // namespace tamp::passes
