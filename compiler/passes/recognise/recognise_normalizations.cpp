// The match begins at the quotient and goes back to x; scale and bias are looked for behind the quotient. Steps with other readers are not
// matched.
#include "compiler/passes/recognise/recognise_normalizations.h"

#include <cmath>
#include <limits>
#include <utility>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

struct Match {
  TensorId x, scale, bias;
  Normalize attrs;
  size_t last = 0;        // the rOperator whose place it takes
  int64_t of_length = 0;  // not 0: rows of so many elements become rows of length 1, and `scale` is still to be made
};

class NormalizationMatcher {
 public:
  explicit NormalizationMatcher(const Graph& graph) : graph_(graph), uses_(uses_of(graph)) {}

  // The normalisation whose quotient `rop` is.
  std::optional<Match> match(size_t rop) const {
    const std::optional<std::pair<TensorId, TensorId>> quotient = quotient_of(graph_.rops[rop]);
    if (!quotient) return std::nullopt;
    const auto [numerator, deviation] = *quotient;
    Match found;
    if (read_length(numerator, deviation, found) && graph_.tensor(graph_.rops[rop].outputs[0]).shape == graph_.tensor(found.x).shape) {
      found.last = rop;
      return found;
    }
    TensorId squared;
    if (!read_deviation(deviation, squared, found.attrs)) return std::nullopt;
    found.x = numerator;
    found.attrs.centered = false;
    if (const TensorId x = centred_of(numerator, found.attrs.axes);
        x.valid() && (squared == numerator || centred_of(squared, found.attrs.axes) == x)) {
      found.x = x;
      found.attrs.centered = true;
    } else if (squared != numerator) {
      return std::nullopt;
    }
    const Shape& shape = graph_.tensor(found.x).shape;
    if (graph_.tensor(graph_.rops[rop].outputs[0]).shape != shape) return std::nullopt;
    found.last = rop;
    found.scale = take(found.last, ElementwiseOp::mul, shape);
    if (found.scale.valid()) found.bias = take(found.last, ElementwiseOp::add, shape);
    return found;
  }

  std::vector<std::string> origin_of(const Match& match) const {
    return origin_between(graph_, uses_, {match.x, match.scale, match.bias}, match.last);
  }

 private:
  // The operands of the Elementwise of the one step `op` that makes the tensor; empty if something else makes it.
  std::vector<TensorId> operands_of(TensorId id, ElementwiseOp op) const {
    const ROperator* rop = maker_by(graph_, uses_, id, op);
    return rop ? rop->inputs : std::vector<TensorId>();
  }
  bool is_scalar(TensorId id, float wanted) const { return scalar_value(graph_, id) == wanted; }

  // a / b, also as a * (1 / b).
  std::optional<std::pair<TensorId, TensorId>> quotient_of(const ROperator& rop) const {
    const ElementwiseStep* step = single_step(rop);
    if (!step || rop.inputs.size() != 2 || graph_.tensor(rop.outputs[0]).dtype != DType::f32) return std::nullopt;
    if (step->op == ElementwiseOp::div) return std::pair(rop.inputs[0], rop.inputs[1]);
    if (step->op != ElementwiseOp::mul) return std::nullopt;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const TensorId inverse = reciprocal_of(rop.inputs[1 - i]);
      if (inverse.valid()) return std::pair(rop.inputs[i], inverse);
    }
    return std::nullopt;
  }
  TensorId reciprocal_of(TensorId id) const {
    if (const auto operand = operands_of(id, ElementwiseOp::reciprocal); operand.size() == 1) return operand[0];
    const auto quotient = operands_of(id, ElementwiseOp::div);
    return quotient.size() == 2 && is_scalar(quotient[0], 1) ? quotient[1] : TensorId();
  }

  // The tensor that is averaged, if `id` is a mean; sets `axes`.
  TensorId averaged_of(TensorId id, std::vector<int64_t>& axes) const {
    const ROperator* rop = maker_of(graph_, uses_, id);
    const auto* reduce = rop ? std::get_if<Reduce>(&rop->attrs) : nullptr;
    if (!reduce || reduce->kind != ReduceKind::mean || !reduce->keepdims || reduce->axes.empty()) return TensorId();
    axes = reduce->axes;
    return rop->inputs[0];
  }

  // sqrt(mean(squared^2) + epsilon).
  bool read_deviation(TensorId id, TensorId& squared, Normalize& attrs) const {
    const auto root = operands_of(id, ElementwiseOp::sqrt);
    if (root.size() != 1) return false;
    const auto sum = operands_of(root[0], ElementwiseOp::add);
    for (size_t i = 0; i < 2 && sum.size() == 2; ++i) {
      const std::optional<float> epsilon = scalar_value(graph_, sum[i]);
      const TensorId square = averaged_of(sum[1 - i], attrs.axes);
      if (!epsilon || !(*epsilon >= 0) || !square.valid()) continue;
      attrs.epsilon = *epsilon;
      squared = root_of(square);
      return squared.valid();
    }
    return false;
  }
  // max(|x|, epsilon) of rows of x, maybe repeated to x's shape.
  bool read_length(TensorId x, TensorId id, Match& found) const {
    if (const auto repeated = operands_of(id, ElementwiseOp::identity); repeated.size() == 1) id = repeated[0];
    const ROperator* clip = maker_by(graph_, uses_, id, ElementwiseOp::clip);
    const ElementwiseStep* step = clip ? single_step(*clip) : nullptr;
    if (!step || !(step->b >= std::numeric_limits<float>::max())) return false;
    const ROperator* rop = maker_of(graph_, uses_, clip->inputs[0]);
    const auto* reduce = rop ? std::get_if<Reduce>(&rop->attrs) : nullptr;
    const Shape& shape = graph_.tensor(x).shape;
    const auto last = static_cast<int64_t>(shape.size()) - 1;
    if (!reduce || reduce->kind != ReduceKind::l2 || !reduce->keepdims || reduce->axes != std::vector{last} || rop->inputs[0] != x)
      return false;
    found.of_length = shape.back();
    found.attrs.axes = reduce->axes;
    found.attrs.centered = false;
    found.attrs.epsilon = step->a * step->a / static_cast<float>(std::max<int64_t>(1, found.of_length));
    found.x = x;
    return found.attrs.epsilon >= std::numeric_limits<float>::min();
  }
  TensorId root_of(TensorId square) const {
    if (const auto power = operands_of(square, ElementwiseOp::pow); power.size() == 2 && is_scalar(power[1], 2)) return power[0];
    const auto product = operands_of(square, ElementwiseOp::mul);
    return product.size() == 2 && product[0] == product[1] ? product[0] : TensorId();
  }

  // x of x - mean(x).
  TensorId centred_of(TensorId id, const std::vector<int64_t>& axes) const {
    const auto difference = operands_of(id, ElementwiseOp::sub);
    if (difference.size() != 2) return TensorId();
    std::vector<int64_t> found;
    const TensorId averaged = averaged_of(difference[1], found);
    return averaged.valid() && averaged == difference[0] && found == axes ? averaged : TensorId();
  }

  // If the only reader of `last`'s result is an `op`, and the op's other operand broadcasts to `shape`: returns that operand and sets
  // `last` to the reader.
  TensorId take(size_t& last, ElementwiseOp op, const Shape& shape) const {
    const TensorId result = graph_.rops[last].outputs[0];
    const ROperatorId behind = uses_.only_reader(result);
    if (!behind.valid()) return TensorId();
    const ROperator& reader = graph_.rop(behind);
    const ElementwiseStep* step = single_step(reader);
    if (!step || step->op != op || reader.inputs.size() != 2 || reader.inputs[0] == reader.inputs[1]) return TensorId();
    const TensorId other = reader.inputs[0] == result ? reader.inputs[1] : reader.inputs[0];
    if (graph_.tensor(reader.outputs[0]).shape != shape || graph_.tensor(other).dtype != DType::f32) return TensorId();
    if (graph_.tensor(other).role != Role::constant) return TensorId();  // a residual is an operand of what comes next
    last = behind.index();
    return other;
  }

  const Graph& graph_;
  Uses uses_;
};

}  // namespace

Graph recognise_normalizations(Graph graph) {
  const Graph before = graph;
  const NormalizationMatcher matcher(before);
  for (size_t i = 0; i < before.rops.size(); ++i) {
    const std::optional<Match> match = matcher.match(i);
    if (!match) continue;
    ROperator& rop = graph.rops[match->last];
    rop.attrs = match->attrs;
    rop.inputs = {match->x};
    if (match->of_length > 0) {
      const std::vector<float> scale(static_cast<size_t>(match->of_length), 1 / std::sqrt(static_cast<float>(match->of_length)));
      const TensorId id = add_f32_constant(graph, rop.name + ".length", {match->of_length}, scale);
      graph.rops[match->last].inputs.push_back(id);
    }
    if (match->scale.valid()) rop.inputs.push_back(match->scale);
    if (match->bias.valid()) rop.inputs.push_back(match->bias);
    rop.origin = matcher.origin_of(*match);
  }
  return remove_dead(std::move(graph));
}

}  // namespace tamp::passes
