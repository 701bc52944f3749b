// NormalizedConv: a Conv with its bias, and a walk over the channels of each pixel, which may be in another order.
#include <cmath>
#include <numeric>

#include "compiler/ops/operator.h"
#include "compiler/ops/window.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

Conv conv_of(const NormalizedConv& op) { return {op.kernel, op.strides, op.dilations, op.pads_begin, op.pads_end}; }

// The pixels of S in the order of Y.
std::vector<int64_t> order_of_pixels(const Call& call, int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (!call.has_input(kPatchPixels)) return order;
  const Numbers<int64_t> pixels(call.input(kPatchPixels));
  std::vector<bool> taken(order.size(), false);
  for (int64_t i = 0; i < count; ++i) {
    if (pixels[i] < 0 || pixels[i] >= count || taken[static_cast<size_t>(pixels[i])])
      throw bad_input(where(call.rop) + ": pixel " + std::to_string(pixels[i]) + " is outside of the result or comes twice");
    taken[static_cast<size_t>(pixels[i])] = true;
    order[static_cast<size_t>(i)] = pixels[i];
  }
  return order;
}

// Operand i of one value for each channel; `absent` where there is none.
std::vector<double> of_channels(const Call& call, size_t i, int64_t channels, double absent) {
  if (!call.has_input(i)) return std::vector<double>(static_cast<size_t>(channels), absent);
  const Numbers<double> values(call.input(i));
  return {values.data(), values.data() + channels};
}

}  // namespace

TensorTypes infer(const NormalizedConv& op, const Given& given) {
  given.expect(2, kPatchPixels + 1);
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
  if (given.has(kPatchPixels)) {
    const Shape& map = types[0].shape;
    const Shape all = {saturating_product({map[0], map[2], map[3]})};
    if (given.type(kPatchPixels) != TensorType{DType::i64, all})
      throw bad_input("pixels have shape " + shape_text(given.shape(kPatchPixels)) + " of " + name_of(given.dtype(kPatchPixels)) +
                      ", expected " + shape_text(all) + " of i64");
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
  const std::vector<int64_t> order = order_of_pixels(call, shape[0] * pixels);
  const auto first_of = [&](int64_t pixel) { return pixel / pixels * channels * pixels + pixel % pixels; };
  for (int64_t at = 0; at < shape[0] * pixels; ++at) {
    const int64_t first = first_of(order[static_cast<size_t>(at)]), to = first_of(at);
    double mean = 0, squares = 0;
    for (int64_t c = 0; c < channels && op.centered; ++c) mean += x[first + c * pixels] / static_cast<double>(channels);
    for (int64_t c = 0; c < channels; ++c) squares += (x[first + c * pixels] - mean) * (x[first + c * pixels] - mean);
    const double factor = 1 / std::sqrt(squares / static_cast<double>(channels) + op.epsilon);
    for (int64_t c = 0; c < channels; ++c) {
      const auto of = static_cast<size_t>(c);
      y[static_cast<size_t>(to + c * pixels)] = (x[first + c * pixels] - mean) * factor * scale[of] + shift[of];
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
