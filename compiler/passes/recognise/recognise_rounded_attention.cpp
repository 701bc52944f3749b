// The match begins at the Softmax, as that of recognise_attention does.
#include "compiler/passes/recognise/recognise_rounded_attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

struct RoundedMatch {
  TensorId q, k, v, bias;
  float bias_steps = 1;    // what the bias is to be multiplied by
  bool keys_last = false;  // K is [..,size,keys]
  double scale = 1;
  AttentionRounding rounding;
  std::vector<size_t> steps;  // all but the last one, in any order
  size_t last = 0;            // what makes the result
};

class RoundedMatcher {
 public:
  explicit RoundedMatcher(const Graph& graph) : graph_(graph), uses_(uses_of(graph)) {}

  // The attention whose softmax `rop` is.
  std::optional<RoundedMatch> match(size_t rop) const {
    const auto* const softmax = std::get_if<Softmax>(&graph_.rops[rop].attrs);
    if (!softmax || softmax->log || softmax->end) return std::nullopt;
    const auto last_axis = static_cast<int64_t>(graph_.tensor(graph_.rops[rop].outputs[0]).shape.size()) - 1;
    if (softmax->first_axis != last_axis || softmax->last_axis != last_axis) return std::nullopt;
    RoundedMatch found;
    found.steps = {rop};
    if (!take_values(graph_.rops[rop].outputs[0], found) || !take_scores(graph_.rops[rop].inputs[0], found)) return std::nullopt;
    return found;
  }

 private:
  // The only rOperator that reads the tensor.
  const ROperator* reader(TensorId id) const {
    return uses_.maker_for_one(id).valid() ? &graph_.rop(uses_.consumers[id.index()][0]) : nullptr;
  }
  size_t index_of(const ROperator& rop) const { return static_cast<size_t>(&rop - graph_.rops.data()); }

  // The number that the rOperator multiplies the tensor with, if it does nothing else.
  std::optional<double> factor(const ROperator* rop, TensorId of) const {
    const ElementwiseStep* const step = rop ? single_step(*rop) : nullptr;
    const bool divides = step && step->op == ElementwiseOp::div;
    if (!step || (step->op != ElementwiseOp::mul && !divides) || rop->inputs.size() != 2) return std::nullopt;
    if (graph_.tensor(of).shape != graph_.tensor(rop->outputs[0]).shape) return std::nullopt;
    for (size_t i = 0; i < (divides ? 1 : 2); ++i) {
      const std::optional<float> number = rop->inputs[i] == of ? scalar_value(graph_, rop->inputs[1 - i]) : std::nullopt;
      if (number && *number != 0 && std::isfinite(*number)) return divides ? 1.0 / *number : *number;
    }
    return std::nullopt;
  }
  static std::optional<RoundedTo> rounding(const ROperator* rop) {
    const ElementwiseStep* const step = rop ? single_step(*rop) : nullptr;
    if (!step || step->op != ElementwiseOp::rounded || rop->inputs.size() != 1) return std::nullopt;
    return RoundedTo{step->a, step->b};
  }
  // A product of two tensors and nothing more, but for a factor.
  const MatMul* plain_product(const ROperator* rop) const {
    const auto* const product = rop ? std::get_if<MatMul>(&rop->attrs) : nullptr;
    const bool is_plain = product && !operand(*rop, 2).valid() && !product->trans_a && rop->epilogue.activation == Activation::none;
    return is_plain && graph_.tensor(rop->outputs[0]).dtype == DType::f32 ? product : nullptr;
  }

  // From the softmax on: rounded weights, the product with V, and its rounding.
  bool take_values(TensorId weights, RoundedMatch& found) const {
    AttentionRounding& by = found.rounding;
    const ROperator* rop = reader(weights);
    if (const std::optional<double> steps = factor(rop, weights)) {
      by.weight_steps = static_cast<float>(*steps);
      found.steps.push_back(index_of(*rop));
      weights = rop->outputs[0];
      rop = reader(weights);
    }
    const std::optional<RoundedTo> to = rounding(rop);
    if (!to) return false;
    by.weights = *to;
    found.steps.push_back(index_of(*rop));
    weights = rop->outputs[0];
    rop = reader(weights);
    if (std::optional<Again> again = take_again(rop, weights)) {
      by.again = again->to;
      by.again_step = static_cast<float>(again->step);
      found.steps.insert(found.steps.end(), again->steps.begin(), again->steps.end());
      weights = again->made;
      rop = reader(weights);
    }
    const MatMul* const product = plain_product(rop);
    if (!product || product->trans_b || rop->inputs[0] != weights || rop->inputs[1] == weights) return false;
    found.v = rop->inputs[1];
    by.result_steps = product->alpha;
    found.last = index_of(*rop);
    const ROperator* const end = reader(rop->outputs[0]);
    if (const std::optional<RoundedTo> results = rounding(end)) {
      by.results = *results;
      found.steps.push_back(found.last);
      found.last = index_of(*end);
    }
    return true;
  }

  // Factors and a rounding of rounded weights, which torch's guard against NaN leaves (passes/drop_roundings).
  struct Again {
    RoundedTo to;
    double step = 1;
    std::vector<size_t> steps;
    TensorId made;
  };
  std::optional<Again> take_again(const ROperator* rop, TensorId weights) const {
    Again found;
    for (std::optional<double> one; (one = factor(rop, weights)); rop = reader(weights)) {
      found.step *= *one;
      found.steps.push_back(index_of(*rop));
      weights = rop->outputs[0];
    }
    const std::optional<RoundedTo> to = rounding(rop);
    if (!to) return std::nullopt;
    found.to = *to;
    found.steps.push_back(index_of(*rop));
    found.made = rop->outputs[0];
    return found;
  }

  // `id` is made for one reader: takes what it is multiplied with, and then its rounding.
  double take_factors(TensorId& id, RoundedMatch& found) const {
    double all = 1;
    while (uses_.maker_for_one(id).valid()) {
      const ROperator& maker = graph_.rop(uses_.maker_for_one(id));
      std::optional<double> one;
      for (const TensorId input : maker.inputs) {
        if (!one && (one = factor(&maker, input))) id = input;
      }
      if (!one) break;
      all *= *one;
      found.steps.push_back(index_of(maker));
    }
    return all;
  }
  RoundedTo take_rounding(TensorId& id, RoundedMatch& found) const {
    const ROperatorId maker = uses_.maker_for_one(id);
    const std::optional<RoundedTo> to = maker.valid() ? rounding(&graph_.rop(maker)) : std::nullopt;
    if (!to) return {};
    found.steps.push_back(maker.index());
    id = graph_.rop(maker).inputs[0];
    return *to;
  }
  // What is added to `id`, which is without it then; or none.
  TensorId take_bias(TensorId& id, RoundedMatch& found) const {
    const ROperatorId maker = uses_.maker_for_one(id);
    const ElementwiseStep* const step = maker.valid() ? single_step(graph_.rop(maker)) : nullptr;
    if (!step || step->op != ElementwiseOp::add) return {};
    const std::vector<TensorId>& inputs = graph_.rop(maker).inputs;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      if (inputs.size() != 2 || !leads_to_product(inputs[i]) || graph_.tensor(inputs[1 - i]).dtype != DType::f32) continue;
      if (inputs[i] == inputs[1 - i] || graph_.tensor(inputs[i]).shape != graph_.tensor(id).shape) continue;
      found.steps.push_back(maker.index());
      id = inputs[i];
      return inputs[1 - i];
    }
    return {};
  }
  bool leads_to_product(TensorId id) const {
    RoundedMatch ignored;
    take_factors(id, ignored);
    take_rounding(id, ignored);
    take_factors(id, ignored);
    const ROperatorId maker = uses_.maker_for_one(id);
    return maker.valid() && plain_product(&graph_.rop(maker));
  }

  // From the softmax back: f1 * sums(f2 * (f3 * products(f4 * Q * K') + bias)), where roundings and the bias may be missing.
  bool take_scores(TensorId scores, RoundedMatch& found) const {
    const Shape shape = graph_.tensor(scores).shape;
    const double f1 = take_factors(scores, found);
    const RoundedTo sums = take_rounding(scores, found);
    const double f2 = take_factors(scores, found);
    found.bias = take_bias(scores, found);
    const double f3 = take_factors(scores, found);
    const RoundedTo products = take_rounding(scores, found);
    const double f4 = take_factors(scores, found);
    const ROperatorId maker = uses_.maker_for_one(scores);
    const MatMul* const product = maker.valid() ? plain_product(&graph_.rop(maker)) : nullptr;
    if (!product || graph_.tensor(scores).shape != shape) return false;
    found.steps.push_back(maker.index());
    found.q = graph_.rop(maker).inputs[0];
    found.k = graph_.rop(maker).inputs[1];
    found.keys_last = !product->trans_b;
    const bool is_sum = found.bias.valid() || products.rounds();  // else `sums` is the rounding of the product itself
    AttentionRounding& by = found.rounding;
    by.products = is_sum ? products : sums;
    by.sums = is_sum ? sums : RoundedTo{};
    const double scale = is_sum ? f4 : f4 * f3 * f2, step = is_sum ? f3 * f2 : f1;  // in front of the first rounding, and behind it
    found.scale = product->alpha * (by.products.rounds() ? scale : scale * step);
    by.product_step = by.products.rounds() ? static_cast<float>(step) : 1.0F;
    by.sum_step = is_sum ? static_cast<float>(f1) : 1.0F;
    found.bias_steps = static_cast<float>(f2);
    return true;
  }

  const Graph& graph_;
  Uses uses_;
};

// The bias in the unit of the sums that are rounded.
TensorId in_steps(Graph& graph, const RoundedMatch& match, const ROperator& rop, std::vector<ROperator>& made) {
  if (!match.bias.valid() || match.bias_steps == 1) return match.bias;
  const Tensor bias = graph.tensor(match.bias);
  const std::string name = rop.name + ".bias";
  if (is_f32_constant(graph, match.bias)) {
    std::vector<float> values(f32_data(bias), f32_data(bias) + element_count(bias.shape));
    for (float& value : values) value *= match.bias_steps;
    return add_f32_constant(graph, name, bias.shape, values);
  }
  const TensorId steps = add_f32_constant(graph, name + ".steps", {}, {match.bias_steps});
  const TensorId to = add_like(graph, match.bias, name, bias.shape);
  made.push_back(make_elementwise(name, {{ElementwiseOp::mul, {0, 1}}}, {match.bias, steps}, to));
  made.back().origin = rop.origin;
  return to;
}

// The attention, and what makes its operands in front of it.
std::vector<ROperator> rounded_attention(Graph& graph, const Graph& before, RoundedMatch match) {
  ROperator rop = before.rops[match.last];
  std::sort(match.steps.begin(), match.steps.end());
  for (size_t s = match.steps.size(); s-- > 0;) prepend_origin(rop, before.rops[match.steps[s]]);
  rop.attrs = Attention{static_cast<float>(match.scale), Weightless::nan, {}, match.rounding};
  std::vector<ROperator> made;
  TensorId k = match.k;
  if (match.keys_last) {  // a Transpose is a view
    Shape shape = graph.tensor(k).shape;
    std::swap(shape[shape.size() - 2], shape.back());
    const TensorId turned = add_like(graph, k, graph.tensor(k).name + ".turned." + rop.name, shape);
    made.push_back({rop.name + ".keys", Transpose{swapped(shape.size(), shape.size() - 2)}, {}, {k}, {turned}, rop.origin});
    k = turned;
  }
  rop.inputs = {match.q, k, match.v};
  if (match.bias.valid()) rop.inputs.push_back(in_steps(graph, match, rop, made));
  made.push_back(std::move(rop));
  return made;
}

}  // namespace

Graph recognise_rounded_attention(Graph graph, const Estimator& estimator) {
  if (!estimator) return graph;
  const Graph before = graph;
  const RoundedMatcher matcher(before);
  std::vector<std::vector<ROperator>> made(before.rops.size());  // in place of what makes the result
  for (size_t i = 0; i < before.rops.size(); ++i) {
    const std::optional<RoundedMatch> match = matcher.match(i);
    if (!match) continue;
    const size_t tensors = graph.tensors.size();
    std::vector<ROperator> rops = rounded_attention(graph, before, *match);
    if (estimator(graph, rops.back()))
      made[match->last] = std::move(rops);
    else
      graph.tensors.resize(tensors);
  }
  return remove_dead(replace_rops(std::move(graph), std::move(made)));
}

}  // namespace tamp::passes
