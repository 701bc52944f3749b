// NormalizedConv: a Conv with its bias, and a walk over the channels of each pixel.
#include <cmath>

#include "compiler/ops/operator.h"
#include "compiler/ops/window.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

Conv conv_of(const NormalizedConv& op) { return {op.kernel, op.strides, op.dilations, op.pads_begin, op.pads_end}; }

// Operand i of one value for each channel; `absent` where there is none.
std::vector<double> of_channels(const Call& call, size_t i, int64_t channels, double absent) {
  if (!call.has_input(i)) return std::vector<double>(static_cast<size_t>(channels), absent);
  const Numbers<double> values(call.input(i));
  return {values.data(), values.data() + channels};
}

}  // namespace

TensorTypes infer(const NormalizedConv& op, const Given& given) {
  given.expect(2, kPatchShift + 1);
  if (given.rank(0) != 4) throw bad_input("input X has shape " + shape_text(given.shape(0)) + ", expected [N,C,H,W]");
  OperandList conv = given.all();
  conv.resize(2);
  const TensorTypes types = infer(conv_of(op), Given(conv));
  const Shape channels = {types[0].shape[1]};
  if (channels[0] % 4 != 0 || channels[0] == 0)
    throw bad_input("W has shape " + shape_text(given.shape(1)) + ", expected a multiple of 4 filters");
  for (const size_t i : {kPatchBias, kPatchScale, kPatchShift}) {
    if (given.has(i) && given.shape(i) != channels)
      throw bad_input("operand " + std::to_string(i) + " has shape " + shape_text(given.shape(i)) + ", expected " + shape_text(channels));
  }
  return types;
}

std::vector<Value> evaluate(const NormalizedConv& op, const Call& call) {
  ROperator plain = call.rop;
  plain.inputs.resize(std::min<size_t>(plain.inputs.size(), kPatchBias + 1));
  const Value convolved = std::move(evaluate(conv_of(op), Call{call.graph, plain, call.value_of})[0]);
  const Numbers<double> x(convolved);
  const Shape& shape = convolved.shape;
  const int64_t channels = shape[1], pixels = shape[2] * shape[3];
  const std::vector<double> scale = of_channels(call, kPatchScale, channels, 1), shift = of_channels(call, kPatchShift, channels, 0);
  std::vector<double> y(static_cast<size_t>(element_count(shape)));
  for (int64_t at = 0; at < shape[0] * pixels; ++at) {
    const int64_t first = at / pixels * channels * pixels + at % pixels;
    double mean = 0, squares = 0;
    for (int64_t c = 0; c < channels && op.centered; ++c) mean += x[first + c * pixels] / static_cast<double>(channels);
    for (int64_t c = 0; c < channels; ++c) squares += (x[first + c * pixels] - mean) * (x[first + c * pixels] - mean);
    const double factor = 1 / std::sqrt(squares / static_cast<double>(channels) + op.epsilon);
    for (int64_t c = 0; c < channels; ++c) {
      const auto of = static_cast<size_t>(c);
      y[static_cast<size_t>(first + c * pixels)] = (x[first + c * pixels] - mean) * factor * scale[of] + shift[of];
    }
  }
  return {output_from(call, y)};
}

Layout layout_of(const NormalizedConv&) { return Layout::channels_last; }
bool is_identity(const NormalizedConv&, const Shape&) { return false; }
bool is_f32_only(const NormalizedConv&, DType) { return true; }
int64_t own_work(const NormalizedConv& op, const Given& given, const TensorTypes& results) {
  return saturating_sum(own_work(conv_of(op), given, results), 2 * kWorkOfRead * element_count(results[0].shape));
}

}  // namespace tamp::ops
