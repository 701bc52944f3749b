#include "compiler/passes/place/wide_values.h"

#include <algorithm>
#include <cmath>

#include "compiler/ir/fused.h"
#include "compiler/ir/products.h"
#include "compiler/passes/view_strides.h"

namespace tamp::passes {
namespace {

// Where values come from, if they may be masks.
enum class From : uint8_t { elsewhere, input, large_constant };

// Whether the result has its operands' values, one of them, or sums and products of them.
bool passes_on(const OpAttrs& attrs) {
  return is_view(attrs) || std::holds_alternative<Concat>(attrs) || std::holds_alternative<Pad>(attrs) ||
         std::holds_alternative<Gather>(attrs) || std::holds_alternative<Scatter>(attrs) || std::holds_alternative<Reduce>(attrs) ||
         std::holds_alternative<Pool>(attrs) || std::holds_alternative<TopK>(attrs) || std::holds_alternative<Cumulate>(attrs);
}
bool passes_on(ElementwiseOp op) {
  switch (op) {
    case ElementwiseOp::identity:
    case ElementwiseOp::neg:
    case ElementwiseOp::abs:
    case ElementwiseOp::relu:
    case ElementwiseOp::clip:
    case ElementwiseOp::add:
    case ElementwiseOp::sub:
    case ElementwiseOp::mul:
    case ElementwiseOp::div:
    case ElementwiseOp::min:
    case ElementwiseOp::max:
    case ElementwiseOp::where:
    case ElementwiseOp::cast: return true;
    default: return false;
  }
}
// Operands of a step whose values get into its result.
std::vector<int32_t> passed_operands(const ElementwiseStep& step) {
  if (!passes_on(step.op)) return {};
  if (step.op == ElementwiseOp::where) return {step.operands[1], step.operands[2]};
  if (step.op == ElementwiseOp::div) return {step.operands[0]};
  return step.operands;
}
// Inputs of a chain whose values get into the operands, numbered as those of a step.
std::vector<TensorId> passed_inputs(const ROperator& rop, const Elementwise& chain, const std::vector<int32_t>& operands) {
  std::vector<TensorId> passed;
  std::vector<bool> needed(chain.steps.size(), false);
  const auto need = [&](int32_t operand) {
    if (operand >= 0)
      passed.push_back(rop.inputs[static_cast<size_t>(operand)]);
    else
      needed[static_cast<size_t>(-1 - operand)] = true;
  };
  std::for_each(operands.begin(), operands.end(), need);
  for (size_t i = chain.steps.size(); i-- > 0;) {
    if (!needed[i]) continue;
    const std::vector<int32_t> of_step = passed_operands(chain.steps[i]);
    std::for_each(of_step.begin(), of_step.end(), need);
  }
  return passed;
}
// Inputs of a chain whose values get into sines and their kind.
std::vector<TensorId> angles_of(const ROperator& rop, const Elementwise& chain) {
  std::vector<int32_t> angles;
  for (const ElementwiseStep& step : chain.steps) {
    if (step.op == ElementwiseOp::sin || step.op == ElementwiseOp::cos || step.op == ElementwiseOp::tan) angles.push_back(step.operands[0]);
  }
  return passed_inputs(rop, chain, angles);
}

// Whether a product has sums of one element, as positions times frequencies are written.
bool is_outer(const Graph& graph, const ROperator& rop) {
  const auto* const product = std::get_if<MatMul>(&rop.attrs);
  if (product == nullptr) return false;
  const std::vector<int64_t>& shape = graph.tensor(rop.inputs[0]).shape;
  return shape.size() > 1 && shape[shape.size() - (product->trans_a ? 2 : 1)] == 1;
}

// Floats whose values get into the results of `rop`.
std::vector<TensorId> passed_by(const Graph& graph, const ROperator& rop) {
  std::vector<TensorId> passed;
  if (const auto* const chain = std::get_if<Elementwise>(&rop.attrs))
    passed = passed_inputs(rop, *chain, {-static_cast<int32_t>(chain->steps.size())});
  else if (passes_on(rop.attrs) || is_outer(graph, rop))
    passed = rop.inputs;
  passed.push_back(rop.epilogue.residual);
  std::erase_if(passed, [&](TensorId id) { return !id.valid() || !is_float(graph.tensor(id).dtype); });
  return passed;
}

class WideValues {
 public:
  WideValues(const Graph& graph, DType to, MagnitudeCache& magnitudes)
      : graph_(graph),
        to_(to),
        magnitudes_(magnitudes),
        from_(graph.buffers.size()),
        to_softmax_(graph.buffers.size()),
        to_sine_(graph.buffers.size()) {}

  std::vector<bool> run() {
    for (size_t b = 0; b < from_.size(); ++b) {
      if (graph_.buffers[b].kind == BufferKind::input) from_[b] = From::input;
    }
    for (const ROperator& rop : graph_.rops) follow(rop);
    for (size_t i = graph_.rops.size(); i-- > 0;) trace(graph_.rops[i]);
    std::vector<bool> may(from_.size());
    for (size_t b = 0; b < may.size(); ++b) {
      const bool is_mask = from_[b] == From::large_constant || (from_[b] == From::input && to_softmax_[b]);
      may[b] = !is_mask && !to_sine_[b];
    }
    for (const ROperator& rop : graph_.rops) {
      const BufferId buffer = graph_.tensor(rop.outputs[0]).place.buffer;
      if (buffer.valid() && sums_whole_numbers(rop)) may[buffer.index()] = false;
    }
    return may;
  }

 private:
  // A third of the largest number, so that sums of two of them with scores fit, too. bf16 has the range of f32, where such sums are no
  // better: only the largest numbers are lost by rounding.
  double largest() const { return to_ == DType::f16 ? 65504.0 / 3 : 3.38e38; }

  // Whether it multiplies integers that floats carry: their sums have more digits than 16 bits, and may be larger.
  bool sums_whole_numbers(const ROperator& rop) {
    const bool is_product = std::holds_alternative<Conv>(rop.attrs) || std::holds_alternative<MatMul>(rop.attrs);
    if (!is_product || rop.epilogue.activation == Activation::rounded || !holds_whole_numbers(graph_, rop.inputs[0])) return false;
    const Tensor& weights = graph_.tensor(rop.inputs[1]);
    if (weights.role != Role::constant) return holds_whole_numbers(graph_, rop.inputs[1]);
    constexpr double kLeastStep = 1;  // weights with a scale are far below the largest integer of 8 bits
    return weights.dtype == DType::f32 && magnitudes_.of(weights) >= kLeastStep;
  }

  From from(TensorId id) {
    const Tensor& tensor = graph_.tensor(id);
    if (tensor.role == Role::constant)
      return tensor.dtype == DType::f32 && magnitudes_.of(tensor) > largest() ? From::large_constant : From::elsewhere;
    return tensor.place.buffer.valid() ? from_[tensor.place.buffer.index()] : From::elsewhere;
  }
  void follow(const ROperator& rop) {
    From made = From::elsewhere;
    for (const TensorId id : passed_by(graph_, rop)) made = std::max(made, from(id));
    for (const TensorId out : rop.outputs) {
      const BufferId buffer = graph_.tensor(out).place.buffer;
      if (buffer.valid()) from_[buffer.index()] = std::max(from_[buffer.index()], made);
    }
  }

  void mark(std::vector<bool>& marked, const std::vector<TensorId>& ids) {
    for (const TensorId id : ids) {
      const BufferId buffer = id.valid() ? graph_.tensor(id).place.buffer : BufferId();
      if (buffer.valid()) marked[buffer.index()] = true;
    }
  }
  void trace(const ROperator& rop) {
    if (std::holds_alternative<Softmax>(rop.attrs)) mark(to_softmax_, {rop.inputs[0]});
    if (std::holds_alternative<Attention>(rop.attrs)) mark(to_softmax_, {operand(rop, kAttentionBias)});
    if (const auto* const chain = std::get_if<Elementwise>(&rop.attrs)) mark(to_sine_, angles_of(rop, *chain));
    const std::optional<FusedView> steps = FusedView::of(rop);
    for (size_t i = 0; steps && i < steps->count(); ++i) {
      if (steps->as<Attention>(i)) mark(to_softmax_, {steps->input(i, kAttentionBias)});
    }
    for (std::vector<bool>* const marked : {&to_softmax_, &to_sine_}) {
      const auto is_marked = [&](TensorId out) {
        const BufferId buffer = graph_.tensor(out).place.buffer;
        return buffer.valid() && (*marked)[buffer.index()];
      };
      if (std::any_of(rop.outputs.begin(), rop.outputs.end(), is_marked)) mark(*marked, passed_by(graph_, rop));
    }
  }

  const Graph& graph_;
  DType to_;
  MagnitudeCache& magnitudes_;
  std::vector<From> from_;        // of each buffer
  std::vector<bool> to_softmax_;  // whether its values get to a Softmax
  std::vector<bool> to_sine_;     // whether its values get to a sine, cosine or tangent
};

}  // namespace

double MagnitudeCache::of(const Tensor& constant) {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = magnitudes_.try_emplace(constant.data, 0.0);
  if (!is_new) return found->second;
  const std::shared_ptr<const Bytes> held = constant.data.hold();
  const auto* const values = reinterpret_cast<const float*>(held->data());
  float largest = 0;
  for (size_t i = 0; i < constant.data.size() / sizeof(float); ++i) {
    const float magnitude = std::abs(values[i]);
    if (magnitude > largest && std::isfinite(magnitude)) largest = magnitude;
  }
  return found->second = static_cast<double>(largest);
}

std::vector<bool> may_be_narrow(const Graph& placed, DType to, MagnitudeCache& magnitudes) {
  return WideValues(placed, to, magnitudes).run();
}

}  // namespace tamp::passes
