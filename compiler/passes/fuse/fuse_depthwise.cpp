#include "compiler/passes/fuse/fuse_depthwise.h"

#include <algorithm>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// Activations that are cheap enough to compute once per reader, and 0 at 0, because a body may apply them to the zeros of the pads as well.
std::optional<ActivationCall> input_activation_of(const ElementwiseStep& step) {
  switch (step.op) {
    case ElementwiseOp::relu: return ActivationCall{Activation::relu};
    case ElementwiseOp::leaky_relu: return ActivationCall{Activation::leaky_relu, step.a, step.b};
    case ElementwiseOp::clip:
      if (step.a <= 0 && step.b >= 0) return ActivationCall{Activation::clip, step.a, step.b};
      return std::nullopt;
    default: return std::nullopt;
  }
}

class DepthwiseFuser {
 public:
  DepthwiseFuser(Graph graph, const Estimator& estimator)
      : graph_(std::move(graph)), estimator_(estimator), uses_(uses_of(graph_)), dead_(graph_.rops.size(), false) {}

  Graph run() {
    for (size_t i = 0; i < graph_.rops.size(); ++i) fuse_convolution(i);
    uses_ = uses_of(erase_in_place());
    for (size_t i = 0; i < graph_.rops.size(); ++i) fuse_activation(i);
    return remove_dead(erase_in_place());
  }

 private:
  const Graph& erase_in_place() {
    graph_ = erase_rops(std::move(graph_), dead_);
    dead_.assign(graph_.rops.size(), false);
    return graph_;
  }

  // A Conv of two operands in f32, two spatial dimensions, weights constant.
  const Conv* canonical_conv(const ROperator& rop) const {
    const auto* conv = std::get_if<Conv>(&rop.attrs);
    if (!conv || conv->kernel.size() != 2 || rop.inputs.size() != 2 || !is_f32_constant(graph_, rop.inputs[1])) return nullptr;
    const bool is_f32 = graph_.tensor(rop.inputs[0]).dtype == DType::f32 && graph_.tensor(rop.outputs[0]).dtype == DType::f32;
    return is_f32 ? conv : nullptr;
  }

  // The depthwise convolution that makes `id` for one reader alone, or null.
  const ROperator* depthwise_maker(TensorId id) const {
    const ROperatorId producer = uses_.maker_for_one(id);
    if (!producer.valid()) return nullptr;
    const ROperator& rop = graph_.rop(producer);
    const Conv* conv = canonical_conv(rop);
    if (!conv || has_prologue(*conv) || rop.epilogue.residual.valid()) return nullptr;
    const int64_t channels = graph_.tensor(id).shape[1];
    return conv->group == channels && graph_.tensor(rop.inputs[0]).shape[1] == channels ? &rop : nullptr;
  }

  void fuse_convolution(size_t at) {
    const ROperator& pointwise = graph_.rops[at];
    const Conv* conv = canonical_conv(pointwise);
    if (!conv || has_prologue(*conv) || !is_pointwise(*conv)) return;
    const ROperator* depthwise = depthwise_maker(pointwise.inputs[0]);
    if (!depthwise) return;
    ROperator fused = joined(*depthwise, pointwise);
    if (!estimator_(graph_, fused)) return;
    dead_[uses_.producer[pointwise.inputs[0].index()].index()] = true;
    graph_.rops[at] = std::move(fused);
  }

  static ROperator joined(const ROperator& depthwise, const ROperator& pointwise) {
    const auto& filter = std::get<Conv>(depthwise.attrs);
    const Epilogue& epilogue = depthwise.epilogue;
    ROperator fused = pointwise;
    std::get<Conv>(fused.attrs).depthwise = DepthwisePrologue{
        filter.kernel, filter.strides, filter.dilations, filter.pads_begin, filter.pads_end, {epilogue.activation, epilogue.a, epilogue.b}};
    fused.inputs = {depthwise.inputs[0], pointwise.inputs[1], TensorId(), depthwise.inputs[1]};
    if (epilogue.bias.valid()) fused.inputs.push_back(epilogue.bias);
    prepend_origin(fused, depthwise);
    return fused;
  }

  void fuse_activation(size_t at) {
    const ROperator& activation = graph_.rops[at];
    const ElementwiseStep* step = single_step(activation);
    if (!step || graph_.tensor(activation.outputs[0]).dtype != DType::f32) return;
    const std::optional<ActivationCall> call = input_activation_of(*step);
    const TensorId made = activation.outputs[0];
    if (!call || uses_.is_output[made.index()] || graph_.tensor(activation.inputs[0]).shape != graph_.tensor(made).shape) return;
    std::vector<ROperator> fused;
    for (const ROperatorId reader : uses_.consumers[made.index()]) {
      std::optional<ROperator> conv = activated(graph_.rop(reader), activation, *call);
      if (!conv || !estimator_(graph_, *conv)) return;
      fused.push_back(*std::move(conv));
    }
    for (size_t i = 0; i < fused.size(); ++i) graph_.rop(uses_.consumers[made.index()][i]) = std::move(fused[i]);
    dead_[at] = true;
  }

  // `reader` with the activation in front of it, if it is a Conv that reads it as its input only.
  static std::optional<ROperator> activated(const ROperator& reader, const ROperator& activation, const ActivationCall& call) {
    const TensorId made = activation.outputs[0];
    const auto* conv = std::get_if<Conv>(&reader.attrs);
    const std::vector<TensorId> reads = reads_of(reader);
    if (!conv || conv->input_activation.kind != Activation::none || reader.inputs[0] != made) return std::nullopt;
    if (std::count(reads.begin(), reads.end(), made) != 1) return std::nullopt;
    ROperator fused = reader;
    std::get<Conv>(fused.attrs).input_activation = call;
    fused.inputs[0] = activation.inputs[0];
    prepend_origin(fused, activation);
    return fused;
  }

  Graph graph_;
  const Estimator& estimator_;
  Uses uses_;
  std::vector<bool> dead_;
};

}  // namespace

Graph fuse_depthwise(Graph graph, const Estimator& estimator) {
  if (!estimator) return graph;
  return DepthwiseFuser(std::move(graph), estimator).run();
}

}  // namespace tamp::passes
