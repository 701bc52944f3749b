// SummedConv: a Conv with its bias, residual and activation, and the sums of its channels over tiles of pixels.
#include "compiler/ops/operator.h"
#include "compiler/ops/window.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

int64_t tiles_of(int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; }

Conv conv_of(const SummedConv& op) { return {op.kernel, op.strides, op.dilations, op.pads_begin, op.pads_end, op.group}; }

// X, W and B, which are the Conv's, too.
OperandList operands_of_conv(const Given& given) {
  OperandList operands = given.all();
  if (operands.size() > kSummedResidual) operands.resize(kSummedResidual);
  return operands;
}

}  // namespace

TensorTypes infer(const SummedConv& op, const Given& given) {
  given.expect(2, kSummedResidual + 1);
  if (given.rank(0) != 4) throw bad_input("input X has shape " + shape_text(given.shape(0)) + ", expected [N,C,H,W]");
  const OperandList operands = operands_of_conv(given);
  TensorTypes types = infer(conv_of(op), Given(operands));
  const Shape y = types[0].shape;
  if (op.tile.size() != 2 || op.tile[0] < 1 || op.tile[1] < 1) throw bad_input("attribute 'tile' is not two positive numbers");
  if (y[1] % 4 != 0) throw bad_input("W has shape " + shape_text(given.shape(1)) + ", expected a multiple of 4 output channels");
  if (given.has(kSummedResidual) && given.shape(kSummedResidual) != y)
    throw bad_input("R has shape " + shape_text(given.shape(kSummedResidual)) + ", expected " + shape_text(y));
  types.push_back({given.dtype(0), {y[0], y[1], tiles_of(y[2], op.tile[0]) * tiles_of(y[3], op.tile[1])}});
  return types;
}

std::vector<Value> evaluate(const SummedConv& op, const Call& call) {
  const Value convolved = std::move(evaluate(conv_of(op), call)[0]);  // adds the bias, which has the same place in a Conv's operands
  const Shape &y = call.output().shape, &parts = call.graph.tensor(call.rop.outputs[1]).shape;
  const Numbers<double> values(convolved);
  std::vector<double> made(values.data(), values.data() + element_count(y)), sums(static_cast<size_t>(element_count(parts)), 0.0);
  if (call.has_input(kSummedResidual)) {
    const Numbers<double> residual(call.input(kSummedResidual));
    for (int64_t i = 0; i < element_count(y); ++i) made[static_cast<size_t>(i)] += residual[i];
  }
  for (double& value : made) value = activate(op.activation, value);
  for (int64_t i = 0; i < element_count(y); ++i) {
    const int64_t plane = i / (y[2] * y[3]), h = i / y[3] % y[2], w = i % y[3];
    const int64_t part = h / op.tile[0] * tiles_of(y[3], op.tile[1]) + w / op.tile[1];
    sums[static_cast<size_t>(plane * parts[2] + part)] += made[static_cast<size_t>(i)];
  }
  return {output_from(call, made), value_from(call.graph.tensor(call.rop.outputs[1]).dtype, parts, sums)};
}

Layout layout_of(const SummedConv&) { return Layout::channels_last; }
bool is_identity(const SummedConv&, const Shape&) { return false; }
bool is_f32_only(const SummedConv&, DType) { return true; }
int64_t own_work(const SummedConv& op, const Given& given, const TensorTypes& results) {
  const OperandList operands = operands_of_conv(given);
  return own_work(conv_of(op), Given(operands), results);
}

}  // namespace tamp::ops
