#include "compiler/passes/recognise_activations.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

bool near(float value, double wanted) { return std::abs(value - wanted) <= 1e-4 * std::abs(wanted); }

class Matcher {
 public:
  explicit Matcher(const Graph& graph) : graph_(graph), uses_(uses_of(graph)) {}

  // x, where y = gelu(x) or hard_swish(x) is made by `rop`; none if it is not.
  TensorId gelu_of(const ROperator& rop) const {
    std::vector<TensorId> factors = factors_of(rop);
    if (factors.size() != 3) return TensorId();
    std::sort(factors.begin(), factors.end());
    do {
      const std::optional<float> half = scalar_value(graph_, factors[0]);
      if (half && near(*half, 0.5) && one_plus_erf_of(factors[1]) == factors[2]) return same_shape(rop, factors[2]);
    } while (std::next_permutation(factors.begin(), factors.end()));
    return TensorId();
  }

  // ONNX nodes of `rop` and of all that it is made of, back to x, in the graph's order.
  std::vector<std::string> origin_back_to(size_t rop, TensorId x) const {
    std::set<size_t> found, open = {rop};
    while (!open.empty()) {
      const size_t next = *open.begin();
      open.erase(open.begin());
      found.insert(next);
      for (const TensorId id : graph_.rops[next].inputs) {
        if (id != x && uses_.producer[id.index()].valid()) open.insert(uses_.producer[id.index()].index());
      }
    }
    std::vector<std::string> origin;
    for (const size_t i : found) origin.insert(origin.end(), graph_.rops[i].origin.begin(), graph_.rops[i].origin.end());
    return origin;
  }

  TensorId hard_swish_of(const ROperator& rop) const {
    const std::vector<TensorId> factors = factors_of(rop);
    if (factors.size() != 2) return TensorId();
    for (const auto& [x, gate] : {std::pair{factors[0], factors[1]}, std::pair{factors[1], factors[0]}}) {
      const ROperator* maker = maker_of(gate, ElementwiseOp::hard_sigmoid);
      const ElementwiseStep* step = maker ? single_step(*maker) : nullptr;
      if (step && near(step->a, 1.0 / 6) && near(step->b, 0.5) && maker->inputs[0] == x) return same_shape(rop, x);
    }
    return TensorId();
  }

 private:
  TensorId same_shape(const ROperator& rop, TensorId x) const {
    return graph_.tensor(x).shape == graph_.tensor(rop.outputs[0]).shape ? x : TensorId();
  }

  // The Elementwise of one step `op` that makes a tensor which is read only once.
  const ROperator* maker_of(TensorId id, ElementwiseOp op) const {
    const ROperatorId producer = uses_.producer[id.index()];
    if (!producer.valid() || uses_.is_output[id.index()] || uses_.consumers[id.index()].size() != 1) return nullptr;
    const ROperator& rop = graph_.rop(producer);
    const ElementwiseStep* step = single_step(rop);
    return step && step->op == op ? &rop : nullptr;
  }

  // The operands of a multiplication; one that is a multiplication itself (of two operands only) is opened.
  std::vector<TensorId> factors_of(const ROperator& rop) const {
    const ElementwiseStep* step = single_step(rop);
    if (!step || step->op != ElementwiseOp::mul || rop.inputs.size() != 2) return {};
    for (size_t i = 0; i < 2; ++i) {
      const ROperator* inner = maker_of(rop.inputs[i], ElementwiseOp::mul);
      if (inner && inner->inputs.size() == 2) return {inner->inputs[0], inner->inputs[1], rop.inputs[1 - i]};
    }
    return rop.inputs;
  }

  // x of 1 + erf(x / sqrt(2)).
  TensorId one_plus_erf_of(TensorId id) const {
    const ROperator* sum = maker_of(id, ElementwiseOp::add);
    if (!sum || sum->inputs.size() != 2) return TensorId();
    for (size_t i = 0; i < 2; ++i) {
      const std::optional<float> one = scalar_value(graph_, sum->inputs[i]);
      const ROperator* erf = maker_of(sum->inputs[1 - i], ElementwiseOp::erf);
      if (one && *one == 1.0F && erf) return scaled_of(erf->inputs[0]);
    }
    return TensorId();
  }

  TensorId scaled_of(TensorId id) const {
    if (const ROperator* quotient = maker_of(id, ElementwiseOp::div); quotient && quotient->inputs.size() == 2) {
      const std::optional<float> root = scalar_value(graph_, quotient->inputs[1]);
      return root && near(*root, std::sqrt(2.0)) ? quotient->inputs[0] : TensorId();
    }
    const ROperator* product = maker_of(id, ElementwiseOp::mul);
    if (!product || product->inputs.size() != 2) return TensorId();
    for (size_t i = 0; i < 2; ++i) {
      const std::optional<float> root = scalar_value(graph_, product->inputs[i]);
      if (root && near(*root, std::sqrt(0.5))) return product->inputs[1 - i];
    }
    return TensorId();
  }

  const Graph& graph_;
  Uses uses_;
};

}  // namespace

Graph recognise_activations(Graph graph) {
  const Graph before = graph;
  const Matcher matcher(before);
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    if (before.tensor(before.rops[i].outputs[0]).dtype != DType::f32) continue;
    const TensorId gelu = matcher.gelu_of(before.rops[i]);
    const TensorId x = gelu.valid() ? gelu : matcher.hard_swish_of(before.rops[i]);
    if (!x.valid()) continue;
    graph.rops[i].attrs = Elementwise{{{gelu.valid() ? ElementwiseOp::gelu : ElementwiseOp::hard_swish, {0}}}};
    graph.rops[i].inputs = {x};
    graph.rops[i].origin = matcher.origin_back_to(i, x);
  }
  return remove_dead(std::move(graph));
}

}  // namespace tamp::passes
