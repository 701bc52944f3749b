#include "compiler/passes/fuse/fuse_epilogue.h"

#include <algorithm>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// Longest way from any graph input, in rOperators.
std::vector<int> depths_of(const Graph& graph, const Uses& uses) {
  std::vector<int> depths(graph.rops.size(), 0);
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    for (const TensorId id : reads_of(graph.rops[i])) {
      const ROperatorId producer = uses.producer[id.index()];
      if (producer.valid()) depths[i] = std::max(depths[i], depths[producer.index()] + 1);
    }
  }
  return depths;
}

class EpilogueFuser {
 public:
  explicit EpilogueFuser(Graph graph)
      : graph_(std::move(graph)), uses_(uses_of(graph_)), depths_(depths_of(graph_, uses_)), dead_(graph_.rops.size(), false) {}

  Graph run() {
    for (size_t i = 0; i < graph_.rops.size(); ++i) {
      const ElementwiseStep* step = single_step(graph_.rops[i]);
      if (!step || graph_.tensor(graph_.rops[i].outputs[0]).dtype != DType::f32) continue;
      const ROperatorId at(static_cast<int64_t>(i));
      if (fuse_activation(at, *step)) continue;
      if (fuse_silu(at, *step)) continue;
      fuse_sum(at, *step);
    }
    return remove_dead(erase_rops(std::move(graph_), dead_));
  }

 private:
  // The Conv or MatMul that makes `id`, if it is read `reads` times and its shape is that of `at`'s result; else none.
  ROperatorId carrier(TensorId id, ROperatorId at, size_t reads) const {
    const ROperatorId producer = uses_.producer[id.index()];
    if (!producer.valid() || uses_.is_output[id.index()] || uses_.consumers[id.index()].size() != reads) return ROperatorId();
    const Tensor &made = graph_.tensor(id), &wanted = graph_.tensor(graph_.rop(at).outputs[0]);
    if (made.shape != wanted.shape || made.dtype != wanted.dtype) return ROperatorId();
    const OpAttrs& attrs = graph_.rop(producer).attrs;
    return std::holds_alternative<Conv>(attrs) || std::holds_alternative<MatMul>(attrs) ? producer : ROperatorId();
  }
  Epilogue& epilogue(ROperatorId id) { return graph_.rop(id).epilogue; }

  bool fuse_activation(ROperatorId at, const ElementwiseStep& step) {
    const Activation activation = activation_of(step.op);
    if (activation == Activation::none) return false;
    const ROperatorId from = carrier(graph_.rop(at).inputs[0], at, 1);
    if (!from.valid() || epilogue(from).activation != Activation::none) return false;
    epilogue(from).activation = activation;
    epilogue(from).a = step.a;
    epilogue(from).b = step.b;
    absorb(from, at);
    return true;
  }

  // y = x * sigmoid(x), in either order.
  bool fuse_silu(ROperatorId at, const ElementwiseStep& step) {
    const std::vector<TensorId> inputs = graph_.rop(at).inputs;
    if (step.op != ElementwiseOp::mul || inputs.size() != 2) return false;
    for (size_t i = 0; i < 2; ++i) {
      const TensorId x = inputs[i], gate = inputs[1 - i];
      const ROperatorId sigmoid = uses_.maker_for_one(gate);
      if (!sigmoid.valid()) continue;
      const ElementwiseStep* gate_step = single_step(graph_.rop(sigmoid));
      if (!gate_step || gate_step->op != ElementwiseOp::sigmoid || graph_.rop(sigmoid).inputs[0] != x) continue;
      const ROperatorId from = carrier(x, at, 2);
      if (!from.valid() || epilogue(from).activation != Activation::none) continue;
      epilogue(from).activation = Activation::silu;
      dead_[sigmoid.index()] = true;
      prepend_origin(graph_.rop(at), graph_.rop(sigmoid));
      absorb(from, at);
      return true;
    }
    return false;
  }

  bool fuse_sum(ROperatorId at, const ElementwiseStep& step) {
    const std::vector<TensorId> inputs = graph_.rop(at).inputs;
    const bool sum = step.op == ElementwiseOp::add, difference = step.op == ElementwiseOp::sub;
    if ((!sum && !difference) || inputs.size() != 2) return false;
    if (difference) return fuse_bias(at, inputs[0], inputs[1], -1);
    if (fuse_bias(at, inputs[0], inputs[1], 1) || fuse_bias(at, inputs[1], inputs[0], 1)) return true;

    ROperatorId best;
    TensorId residual;
    for (size_t i = 0; i < 2; ++i) {
      const ROperatorId from = carrier(inputs[i], at, 1);
      if (!from.valid() || epilogue(from).residual.valid()) continue;
      const Tensor &other = graph_.tensor(inputs[1 - i]), &out = graph_.tensor(graph_.rop(at).outputs[0]);
      if (other.shape != out.shape || other.dtype != out.dtype) continue;
      const auto rank = [&](ROperatorId id) { return std::pair(depths_[id.index()], id); };
      if (best.valid() && rank(from) < rank(best)) continue;
      best = from;
      residual = inputs[1 - i];
    }
    if (!best.valid()) return false;
    epilogue(best).residual = residual;
    epilogue(best).residual_after_activation = epilogue(best).activation != Activation::none;
    absorb(best, at);
    return true;
  }

  // x + sign * constant, the constant a vector along the channels or a scalar.
  bool fuse_bias(ROperatorId at, TensorId x, TensorId constant, float sign) {
    const ROperatorId from = carrier(x, at, 1);
    if (!from.valid() || epilogue(from).activation != Activation::none || !is_f32_constant(graph_, constant)) return false;
    const Shape& out = graph_.tensor(x).shape;
    const size_t axis = std::holds_alternative<Conv>(graph_.rop(from).attrs) ? 1 : out.size() - 1;
    std::optional<std::vector<float>> values = values_along(graph_.tensor(constant), out, axis);
    if (!values) return false;
    const TensorId old = epilogue(from).bias;
    for (size_t c = 0; c < values->size(); ++c) (*values)[c] = sign * (*values)[c] + (old.valid() ? f32_data(graph_.tensor(old))[c] : 0.0F);
    epilogue(from).bias = add_f32_constant(graph_, graph_.rop(from).name + ".bias", {static_cast<int64_t>(values->size())}, *values);
    uses_.grow(graph_.tensors.size());
    absorb(from, at);
    return true;
  }

  // `from`, whose epilogue is already extended, takes the place of `at` and makes its result.
  void absorb(ROperatorId from, ROperatorId at) {
    ROperator fused = std::move(graph_.rop(from));
    ROperator& last = graph_.rop(at);
    fused.outputs = last.outputs;
    fused.origin.insert(fused.origin.end(), last.origin.begin(), last.origin.end());
    last = std::move(fused);
    dead_[from.index()] = true;
    uses_.producer[last.outputs[0].index()] = at;
    const std::vector<TensorId> reads = reads_of(last);
    const auto is_either = [&](ROperatorId reader) { return reader == from || reader == at; };
    for (const TensorId id : reads) std::erase_if(uses_.consumers[id.index()], is_either);
    for (const TensorId id : reads) uses_.consumers[id.index()].push_back(at);
  }

  Graph graph_;
  Uses uses_;
  std::vector<int> depths_;
  std::vector<bool> dead_;
};

}  // namespace

Graph fuse_epilogue(Graph graph) { return EpilogueFuser(std::move(graph)).run(); }

}  // namespace tamp::passes
