// LayerNormalization and its relatives -> Normalize. Group normalisation is Normalize of the channels cut into groups. LpNormalization,
// which has no mean and variance, is a Reduce and a quotient.
#include "compiler/frontend/import_normalize.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>

#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// All of them are computed in f32, whatever the types of the operands are.
void expect_f32_stash(NodeImport& n) {
  const int64_t type = n.attr_int("stash_type", 1);
  if (type == 1) return;
  const std::string name = type >= 0 && type < 100 ? onnx_type_name(static_cast<int>(type)) : fmt::format("{}", type);
  throw n.refuse("attribute 'stash_type' is {}, supported: FLOAT", name);
}

TensorId scalar(NodeImport& n, float value, DType dtype) { return n.cast(n.constant_f32(value), dtype); }

// Mean and 1 / standard deviation, which are f32 and of x's shape with extents 1 where it is normalised.
struct Statistics {
  TensorId mean, inverse_deviation;
};
Statistics statistics_of(NodeImport& n, const LayerNorm& norm, TensorId x) {
  const TensorId wide = n.cast(x, DType::f32);
  const Reduce average{ReduceKind::mean, range(norm.axis, n.rank(x)), /*keepdims=*/true};
  Statistics found;
  TensorId centred = wide;
  if (norm.centered) {
    found.mean = n.add(average, {wide});
    centred = n.elementwise(ElementwiseOp::sub, {wide, found.mean});
  }
  const TensorId variance = n.add(average, {n.elementwise(ElementwiseOp::mul, {centred, centred})});
  const TensorId deviation =
      n.elementwise(ElementwiseOp::sqrt, {n.elementwise(ElementwiseOp::add, {variance, n.constant_f32(norm.epsilon)})});
  found.inverse_deviation = n.elementwise(ElementwiseOp::reciprocal, {deviation});
  return found;
}

// One number for each channel, so that it broadcasts to X[N,C,...] or to X cut into groups [N,G,C/G,...].
TensorId per_channel(NodeImport& n, TensorId numbers, const char* name, const Shape& expected, size_t rank) {
  const Shape shape = n.shape(numbers);
  const int64_t count = std::accumulate(expected.begin(), expected.end(), int64_t{1}, std::multiplies<>());
  if (shape != Shape{count}) throw n.bad("input {} has shape {}, expected {}", name, shape_text(shape), shape_text({count}));
  Shape aligned = expected;
  aligned.resize(rank - 1, 1);
  return n.reshape(numbers, aligned);
}

void expect_channels(NodeImport& n, TensorId x) {
  if (n.rank(x) < 3) throw n.bad("input X has shape {}, expected [N,C,...] with at least 3 dimensions", shape_text(n.shape(x)));
}

}  // namespace

void refuse_outputs(const NodeImport& n, std::initializer_list<size_t> outputs) {
  for (const size_t k : outputs) {
    if (n.wants(k)) throw n.refuse("output {} is used, which is of training only", k);
  }
}

TensorId layer_norm(NodeImport& n, const LayerNorm& norm, TensorId x, TensorId scale, TensorId bias) {
  const Normalize normalize{range(norm.axis, n.rank(x)), norm.centered, norm.epsilon};
  const DType result = scale.valid() ? n.dtype(scale) : bias.valid() ? n.dtype(bias) : n.dtype(x);
  if (result == n.dtype(x) && scale.valid())
    return n.add(normalize, bias.valid() ? std::vector<TensorId>{x, scale, bias} : std::vector<TensorId>{x, scale});
  TensorId y = n.cast(n.add(normalize, {x}), result);
  for (const auto& [factor, op] : {std::pair{scale, ElementwiseOp::mul}, std::pair{bias, ElementwiseOp::add}}) {
    if (!factor.valid()) continue;
    if (n.broadcast(n.shape(x), n.shape(factor)) != n.shape(x))
      throw n.bad("input Scale or B has shape {}, which does not broadcast to X's {}", shape_text(n.shape(factor)), shape_text(n.shape(x)));
    y = n.elementwise(op, {y, factor});
  }
  return y;
}

// ONNX Runtime writes it into models of older opsets too, as version 1 of its own.
void import_layer_normalization(NodeImport& n) {
  n.expect_counts(2, 3, 3);
  const TensorId x = n.in(0), scale = n.in(1), bias = n.optional_in(2);
  n.expect_float({x});
  n.expect_float(bias.valid() ? std::vector<TensorId>{scale, bias} : std::vector<TensorId>{scale});
  expect_f32_stash(n);
  LayerNorm norm;
  norm.axis = n.axis(n.attr_int("axis", -1), n.rank(x), "attribute 'axis'");
  norm.epsilon = n.attr_float("epsilon", 1e-5F);
  n.result(0, layer_norm(n, norm, x, scale, bias));
  if (!n.wants(1) && !n.wants(2)) return;
  const Statistics statistics = statistics_of(n, norm, x);
  n.result(1, statistics.mean);
  n.result(2, statistics.inverse_deviation);
}

// ONNX's RMSNormalization, and what ONNX Runtime calls SimplifiedLayerNormalization, which has the inverse deviation as a second output.
void import_rms_normalization(NodeImport& n, bool has_deviation) {
  n.expect_counts(2, 2, has_deviation ? 2 : 1);
  const TensorId x = n.in(0), scale = n.in(1);
  n.expect_float({x});
  n.expect_float({scale});
  expect_f32_stash(n);
  LayerNorm norm;
  norm.axis = n.axis(n.attr_int("axis", -1), n.rank(x), "attribute 'axis'");
  norm.epsilon = n.attr_float("epsilon", 1e-5F);
  norm.centered = false;
  n.result(0, layer_norm(n, norm, x, scale, TensorId()));
  if (n.wants(1)) n.result(1, statistics_of(n, norm, x).inverse_deviation);
}

void import_instance_normalization(NodeImport& n) {
  n.expect_counts(3, 3);
  if (n.version() == 1) n.ignore("consumed_inputs");
  const TensorId x = n.in(0);
  n.expect_float({x, n.in(1), n.in(2)});
  expect_channels(n, x);
  const Shape shape = n.shape(x);
  const TensorId scale = per_channel(n, n.in(1), "scale", {shape[1]}, shape.size());
  const TensorId bias = per_channel(n, n.in(2), "B", {shape[1]}, shape.size());
  const Normalize normalize{range(2, n.rank(x)), /*centered=*/true, n.attr_float("epsilon", 1e-5F)};
  n.result(0, n.add(normalize, {x, scale, bias}));
}

// Version 18 has a scale and a bias for each group, version 21 one for each channel.
void import_group_normalization(NodeImport& n) {
  n.expect_counts(3, 3);
  const TensorId x = n.in(0);
  n.expect_float({x, n.in(1), n.in(2)});
  expect_channels(n, x);
  if (n.version() >= 21) expect_f32_stash(n);
  const Shape shape = n.shape(x);
  const std::optional<int64_t> groups = n.find_int("num_groups");
  if (!groups) throw n.bad("attribute 'num_groups' is missing");
  if (*groups < 1 || shape[1] % *groups != 0)
    throw n.bad("attribute 'num_groups' is {}, which does not divide the {} channels of X", *groups, shape[1]);
  Shape cut = shape;
  cut[1] = *groups;
  cut.insert(cut.begin() + 2, shape[1] / *groups);
  const Shape factors = n.version() >= 21 ? Shape{cut[1], cut[2]} : Shape{cut[1]};
  const TensorId scale = per_channel(n, n.in(1), "scale", factors, cut.size());
  const TensorId bias = per_channel(n, n.in(2), "bias", factors, cut.size());
  const Normalize normalize{range(2, static_cast<int64_t>(cut.size())), /*centered=*/true, n.attr_float("epsilon", 1e-5F)};
  n.result(0, n.reshape(n.add(normalize, {n.reshape(x, cut), scale, bias}), shape));
}

// ONNX adds 1e-9 to the deviation, which only keeps 0 / 0 away; the square of that, added to the variance, does the same.
void import_mean_variance_normalization(NodeImport& n) {
  n.expect_counts(1, 1);
  const TensorId x = n.float_in(0);
  const Ints axes = n.axes(n.find_ints("axes").value_or(Ints{0, 2, 3}), n.rank(x), "attribute 'axes'");
  n.result(0, n.add(Normalize{axes, /*centered=*/true, 1e-18F}, {x}));
}

// x / |x| along one axis, and 0 where |x| is 0.
void import_lp_normalization(NodeImport& n) {
  n.expect_counts(1, 1);
  const TensorId x = n.float_in(0);
  const int64_t axis = n.axis(n.attr_int("axis", -1), n.rank(x), "attribute 'axis'"), p = n.attr_int("p", 2);
  if (p != 1 && p != 2) throw n.bad("attribute 'p' is {}, expected 1 or 2", p);
  const TensorId norm = n.add(Reduce{p == 1 ? ReduceKind::l1 : ReduceKind::l2, {axis}, /*keepdims=*/true}, {x});
  const TensorId is_zero = n.elementwise(ElementwiseOp::equal, {norm, scalar(n, 0, n.dtype(x))});
  const TensorId divisor = n.elementwise(ElementwiseOp::where, {is_zero, scalar(n, 1, n.dtype(x)), norm});
  n.result(0, n.elementwise(ElementwiseOp::div, {x, divisor}));
}

}  // namespace tamp::frontend
