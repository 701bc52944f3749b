// MomentConv: a depthwise Conv with its bias, and the moments of its pixels.
#include <tuple>

#include "compiler/ops/moments.h"
#include "compiler/ops/operator.h"
#include "compiler/ops/window.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

Conv conv_of(const MomentConv& op, const Shape& weights) {
  return {op.kernel, op.strides, op.dilations, op.pads_begin, op.pads_end, weights[0]};
}

}  // namespace

TensorTypes infer(const MomentConv& op, const Given& given) {
  given.expect(2, 3);
  if (given.rank(0) != 4) throw bad_input("input X has shape " + shape_text(given.shape(0)) + ", expected [N,C,H,W]");
  if (given.rank(1) != 4 || given.shape(1)[0] != given.shape(0)[1])
    throw bad_input("W has shape " + shape_text(given.shape(1)) + ", expected a filter for each of " + std::to_string(given.shape(0)[1]) +
                    " channels");
  TensorTypes types = infer(conv_of(op, given.shape(1)), given);
  const Shape y = types[0].shape;
  if (y[1] % kMomentColumns != 0 || y[1] == 0)
    throw bad_input("X has " + std::to_string(y[1]) + " channels, expected a multiple of " + std::to_string(kMomentColumns));
  types.push_back({given.dtype(0), {y[0] * y[2] * y[3], y[1] / kMomentColumns, 2}});
  if (op.keeps_rounded) types.push_back(types[0]);
  return types;
}

std::vector<Value> evaluate(const MomentConv& op, const Call& call) {
  Value convolved = std::move(evaluate(conv_of(op, call.input(1).shape), call)[0]);  // adds the bias, which has the same place
  const Shape& y = convolved.shape;
  const Numbers<double> values(convolved);
  const int64_t pixels = y[2] * y[3], parts = y[1] / kMomentColumns;
  std::vector<double> moments;
  for (int64_t at = 0; at < y[0] * pixels * parts; ++at) {
    const int64_t row = at / parts, first = (row / pixels * y[1] + at % parts * kMomentColumns) * pixels + row % pixels;
    append_moments([&](int64_t i) { return values[first + i * pixels]; }, moments);
  }
  const auto& [graph, outputs] = std::tie(call.graph, call.rop.outputs);
  std::vector<Value> results = {std::move(convolved)};
  results.push_back(value_from(graph.tensor(outputs[kKeptMoments]).dtype, graph.tensor(outputs[kKeptMoments]).shape, moments));
  if (op.keeps_rounded) {
    const Tensor& rounded = graph.tensor(outputs[kKeptRounded]);
    const Numbers<double> y_values(results[0]);
    results.push_back(
        value_from(rounded.dtype, rounded.shape, std::vector<double>(y_values.data(), y_values.data() + element_count(rounded.shape))));
  }
  return results;
}

Layout layout_of(const MomentConv&) { return Layout::channels_last; }
bool is_identity(const MomentConv&, const Shape&) { return false; }
bool is_f32_only(const MomentConv&, DType) { return true; }
int64_t own_work(const MomentConv& op, const Given& given, const TensorTypes& results) {
  return saturating_sum(own_work(conv_of(op, given.shape(1)), given, results), 2 * kWorkOfRead * element_count(results[0].shape));
}

}  // namespace tamp::ops
