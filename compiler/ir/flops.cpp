#include "compiler/ir/flops.h"

#include <algorithm>
#include <optional>

#include "compiler/ir/fused.h"

namespace tamp {
namespace {

// Counts the arithmetic of a rOperator that is no Fused, without its epilogue.
class Arithmetic {
 public:
  Arithmetic(const Graph& graph, const ROperator& rop) : graph_(graph), rop_(rop), results_(elements(rop.outputs.at(0))) {}

  double operator()(const Conv& op) const {
    const Shape& y = graph_.tensor(rop_.outputs[0]).shape;
    const double read = results_ / static_cast<double>(std::max<int64_t>(1, y[1])) * extent(0, 1);  // of an input as large as the result
    return 2 * results_ * volume(op.kernel) * extent(0, 1) / static_cast<double>(op.group) + of(op.depthwise, read) +
           once(op.input_activation) * operand_elements(0);
  }
  double operator()(const MatMul& op) const { return 2 * results_ * extent(0, op.trans_a ? -2 : -1); }
  double operator()(const Pool& op) const { return results_ * volume(op.kernel); }
  double operator()(const PoolIndices& op) const { return results_ * volume(op.kernel); }
  double operator()(const Reduce& op) const {
    const bool maps = op.kind == ReduceKind::l1 || op.kind == ReduceKind::l2 || op.kind == ReduceKind::sum_square;
    return operand_elements(0) * (op.kind == ReduceKind::log_sum_exp ? 4 : maps ? 2 : 1);
  }
  double operator()(const Softmax&) const { return kOfSoftmax * results_; }
  double operator()(const Attention&) const {
    const double columns = extent(2, -1), keys = has(kAttentionRowTable) ? extent(kAttentionRowTable, -1) : extent(1, -2);
    const double scores = results_ / std::max(1.0, columns) * keys;
    return scores * (2 * extent(0, -1) + 2 * columns + kOfSoftmax + 1 + (has(kAttentionBias) ? 1 : 0));  // 1: the scale
  }
  double operator()(const ChannelSqueeze& op) const {
    const double pooled = op.depthwise ? elements(rop_.outputs.at(1)) : operand_elements(0);
    return of(op.depthwise, pooled) + pooled + 2 * extent(0, 0) * operand_elements(1);
  }
  double operator()(const ChannelExcite&) const {
    return results_ + operand_elements(1) + 2 * extent(0, 0) * (operand_elements(2) + operand_elements(kExciteFirstWeights));
  }
  double operator()(const Lrn& op) const { return results_ * static_cast<double>(2 * op.size + 4); }
  double operator()(const BatchNorm&) const { return 4 * results_; }
  double operator()(const Normalize& op) const { return results_ * ((op.centered ? 5 : 3) + (has(1) ? 1 : 0) + (has(2) ? 1 : 0)); }
  double operator()(const Moments&) const { return 4 * operand_elements(0); }
  double operator()(const NormalizeBy& op) const { return results_ * (op.centered ? 2 : 1); }
  double operator()(const TileSums&) const { return operand_elements(0); }
  double operator()(const Elementwise& op) const {
    return results_ * static_cast<double>(std::count_if(op.steps.begin(), op.steps.end(), [](const ElementwiseStep& step) {
             return step.op != ElementwiseOp::identity && step.op != ElementwiseOp::cast;
           }));
  }
  double operator()(const GridSample& op) const {
    const double along = op.mode == Interpolation::cubic ? 4 : 2;
    return op.mode == Interpolation::nearest ? 0 : 2 * results_ * (extent(1, -1) == 3 ? along * along * along : along * along);
  }
  double operator()(const Resample& op) const {
    double taps = 1;
    for (size_t i = 0; i < op.axes.size(); ++i) taps *= extent(1 + 2 * i, -1);
    return taps == 1 ? 0 : 2 * results_ * taps;
  }
  double operator()(const RoiAlign& op) const {
    return 8 * results_ * static_cast<double>(std::max<int64_t>(1, op.sampling_ratio * op.sampling_ratio));
  }
  double operator()(const Cumulate&) const { return results_; }
  double operator()(const NextToken&) const { return 8 * extent(0, -1); }
  double operator()(const Scatter& op) const { return op.kind == ScatterKind::none ? 0 : operand_elements(2); }
  double operator()(const Recurrent& op) const {
    double sum = 0;
    for (const RecurrentCell& cell : op.cells) {
      const double input = cell.x_is_gates ? 0
                           : cell.x < 0    ? static_cast<double>(op.cells.at(static_cast<size_t>(cell.x_cell)).hidden)
                                           : extent(static_cast<size_t>(cell.x), -1);
      sum +=
          2 * static_cast<double>(cell.steps * op.batch * gates_of(cell.kind) * cell.hidden) * (input + static_cast<double>(cell.hidden));
    }
    return sum;
  }
  template <class Moves>
  double operator()(const Moves&) const {
    return 0;
  }

  double of_epilogue() const {
    const Epilogue& epilogue = rop_.epilogue;
    return results_ * ((epilogue.bias.valid() ? 1 : 0) + (epilogue.residual.valid() ? 1 : 0) + once({epilogue.activation}));
  }

 private:
  static constexpr double kOfSoftmax = 5;

  static double volume(const std::vector<int64_t>& kernel) { return static_cast<double>(element_count(kernel)); }
  static double once(const ActivationCall& call) { return call.kind == Activation::none ? 0 : 1; }
  static double of(const std::optional<DepthwisePrologue>& depthwise, double made) {
    return depthwise ? made * (2 * volume(depthwise->kernel) + once(depthwise->activation)) : 0;
  }
  double elements(TensorId id) const { return static_cast<double>(element_count(graph_.tensor(id).shape)); }
  bool has(size_t input) const { return operand(rop_, input).valid(); }
  double operand_elements(size_t input) const { return has(input) ? elements(operand(rop_, input)) : 0; }
  // Negative dimensions count from the end.
  double extent(size_t input, int64_t dimension) const {
    const Shape& shape = graph_.tensor(rop_.inputs.at(input)).shape;
    return static_cast<double>(shape.at(static_cast<size_t>(dimension < 0 ? dimension + static_cast<int64_t>(shape.size()) : dimension)));
  }

  const Graph& graph_;
  const ROperator& rop_;
  double results_;
};

}  // namespace

double flops_of(const Graph& graph, const ROperator& rop) {
  double sum = 0;
  for_each_step(graph, rop, [&](const Graph& steps, const ROperator& step) {
    const Arithmetic arithmetic(steps, step);
    sum += std::visit(arithmetic, step.attrs) + arithmetic.of_epilogue();
  });
  return sum;
}

}  // namespace tamp
