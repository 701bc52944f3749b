// ChannelSqueeze: parts of a product with the means of all channels, of a map or of a depthwise convolution of it.
#include "compiler/ops/operator.h"
#include "compiler/ops/window.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

int64_t parts_of(int64_t extent, int64_t size) { return (extent + size - 1) / size; }

// The shape of the product's operand: X's, or that of the depthwise convolution of X.
Shape squeezed_shape(const ChannelSqueeze& op, const Given& given) {
  const Shape& x = given.shape(0);
  if (op.depthwise.has_value() != given.has(kSqueezeWeights))
    throw bad_input("depthwise weights without a depthwise convolution, or none with one");
  if (!op.depthwise) return x;
  Shape weights{x[1], 1};
  weights.insert(weights.end(), op.depthwise->kernel.begin(), op.depthwise->kernel.end());
  if (given.shape(kSqueezeWeights) != weights)
    throw bad_input("depthwise weights are {}, expected {}", shape_text(given.shape(kSqueezeWeights)), shape_text(weights));
  if (given.has(kSqueezeBias) && given.shape(kSqueezeBias) != Shape{x[1]})
    throw bad_input("depthwise bias is {}", shape_text(given.shape(kSqueezeBias)));
  return slid(*op.depthwise, given, x[1], /*ceil_mode=*/false);
}

std::vector<double> convolved(const ChannelSqueeze& op, const Call& call, const Numbers<double>& x, const Shape& made) {
  const Shape& given = call.input(0).shape;
  const Numbers<double> weights(call.input(kSqueezeWeights));
  std::vector<double> bias(static_cast<size_t>(made[1]), 0.0);
  if (call.has_input(kSqueezeBias)) {
    const Numbers<double> values(call.input(kSqueezeBias));
    bias.assign(values.data(), values.data() + made[1]);
  }
  const Window w = window_of(*op.depthwise, given, made);
  const int64_t taps = w.y.kernel * w.x.kernel;
  std::vector<double> y;
  y.reserve(static_cast<size_t>(element_count(made)));
  for (int64_t plane = 0; plane < made[0] * made[1]; ++plane) {
    const int64_t c = plane % made[1];
    for (int64_t pixel = 0; pixel < w.y.out * w.x.out; ++pixel) {
      double sum = bias[static_cast<size_t>(c)];
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t iy = w.y.start(pixel / w.x.out) + tap / w.x.kernel * w.y.dilation;
        const int64_t ix = w.x.start(pixel % w.x.out) + tap % w.x.kernel * w.x.dilation;
        if (iy < 0 || iy >= w.y.in || ix < 0 || ix >= w.x.in) continue;
        sum += x[(plane * w.y.in + iy) * w.x.in + ix] * weights[c * taps + tap];
      }
      y.push_back(activate(op.depthwise->activation, sum));
    }
  }
  return y;
}

}  // namespace

TensorTypes infer(const ChannelSqueeze& op, const Given& given) {
  given.expect(2, kSqueezeBias + 1);
  if (given.rank(0) != 4) throw bad_input("input X has shape {}, expected [N,C,H,W]", shape_text(given.shape(0)));
  const Shape &x = given.shape(0), &w = given.shape(1);
  if (w.size() != 4 || w[1] != x[1] || w[2] != 1 || w[3] != 1) throw bad_input("W has shape {}, expected [R,{},1,1]", shape_text(w), x[1]);
  if (op.rows < 1) throw bad_input("attribute 'rows' is {}", op.rows);
  const Shape squeezed = squeezed_shape(op, given);
  TensorTypes types = {{given.dtype(0), {x[0], padded_hidden(w[0]), parts_of(x[1], kSqueezeBlock) * parts_of(squeezed[2], op.rows)}}};
  if (op.depthwise) types.push_back({given.dtype(0), squeezed});
  return types;
}

std::vector<Value> evaluate(const ChannelSqueeze& op, const Call& call) {
  const Shape shape = op.depthwise ? call.graph.tensor(call.rop.outputs[1]).shape : call.input(0).shape;
  const Numbers<double> x(call.input(0)), w(call.input(1));
  std::vector<double> made;
  if (op.depthwise) made = convolved(op, call, x, shape);
  const double* element = op.depthwise ? made.data() : x.data();
  const int64_t hidden = call.input(1).shape[0], channels = shape[1], tiles = parts_of(shape[2], op.rows), parts = call.output().shape[2];
  std::vector<double> sums(static_cast<size_t>(element_count(call.output().shape)), 0.0);
  for (int64_t n = 0; n < shape[0]; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      std::vector<double> of_tile(static_cast<size_t>(tiles), 0.0);
      for (int64_t i = 0; i < shape[2] * shape[3]; ++i) of_tile[static_cast<size_t>(i / shape[3] / op.rows)] += *element++;
      for (int64_t r = 0; r < hidden; ++r) {
        const double weight = w[r * channels + c] / static_cast<double>(shape[2] * shape[3]);
        double* const to = sums.data() + (n * call.output().shape[1] + r) * parts + c / kSqueezeBlock * tiles;
        for (int64_t t = 0; t < tiles; ++t) to[t] += weight * of_tile[static_cast<size_t>(t)];
      }
    }
  }
  std::vector<Value> values = {output_from(call, sums)};
  if (op.depthwise) values.push_back(value_from(call.graph.tensor(call.rop.outputs[1]).dtype, shape, made));
  return values;
}

Traits traits_of(const ChannelSqueeze&) { return {Layout::channels_last, InF32::all}; }
int64_t own_work(const ChannelSqueeze& op, const Given& given, const TensorTypes& results) {
  const int64_t convolution =
      op.depthwise ? saturating_product({element_count(results[1].shape), window_elements(op.depthwise->kernel), kWorkOfRead}) : 0;
  return saturating_sum(convolution, saturating_sum(given.elements(0), element_count(results[0].shape)));
}

}  // namespace tamp::ops
