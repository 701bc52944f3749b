#include "compiler/passes/tidy/fold_batch_norm.h"

#include <algorithm>
#include <cmath>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// y = scale * x + shift, per channel. In double, so that folding costs one rounding.
struct Affine {
  std::vector<double> scale, shift;
};

Affine affine_of(const Graph& graph, const ROperator& norm) {
  const float* scale = f32_data(graph.tensor(norm.inputs[1]));
  const float* offset = f32_data(graph.tensor(norm.inputs[2]));
  const float* mean = f32_data(graph.tensor(norm.inputs[3]));
  const float* var = f32_data(graph.tensor(norm.inputs[4]));
  const double epsilon = std::get<BatchNorm>(norm.attrs).epsilon;
  Affine affine;
  for (int64_t c = 0; c < element_count(graph.tensor(norm.inputs[1]).shape); ++c) {
    affine.scale.push_back(scale[c] / std::sqrt(static_cast<double>(var[c]) + epsilon));
    affine.shift.push_back(offset[c] - mean[c] * affine.scale.back());
  }
  return affine;
}

bool has_constant_operands(const Graph& graph, const ROperator& norm) {
  return std::all_of(norm.inputs.begin() + 1, norm.inputs.end(), [&](TensorId id) { return is_f32_constant(graph, id); });
}

std::vector<float> rounded(const std::vector<double>& values) { return std::vector<float>(values.begin(), values.end()); }

// Gives `rop` (Conv: operand C per channel; MatMul: per column) its new weights and bias.
void set_operands(Graph& graph, ROperator& rop, const std::vector<float>& weight, const Shape& bias_shape, const std::vector<float>& bias) {
  const Shape weight_shape = graph.tensor(rop.inputs[1]).shape;
  rop.inputs.resize(3);
  rop.inputs[1] = add_f32_constant(graph, rop.name + ".folded_weight", weight_shape, weight);
  rop.inputs[2] = add_f32_constant(graph, rop.name + ".folded_bias", bias_shape, bias);
}

bool fold_into_conv(Graph& graph, ROperator& conv, const Affine& affine) {
  if (!is_f32_constant(graph, conv.inputs[1])) return false;
  if (operand(conv, 2).valid() && !is_f32_constant(graph, conv.inputs[2])) return false;
  const Tensor& weight = graph.tensor(conv.inputs[1]);
  const int64_t channels = weight.shape[0];
  const int64_t each = channels > 0 ? element_count(weight.shape) / channels : 0;
  const float* old_weight = f32_data(weight);
  const float* old_bias = f32_data_or_null(graph, operand(conv, 2));
  std::vector<float> scaled, bias;
  for (int64_t c = 0; c < channels; ++c) {
    const double scale = affine.scale[static_cast<size_t>(c)];
    for (int64_t i = 0; i < each; ++i) scaled.push_back(static_cast<float>(old_weight[c * each + i] * scale));
    bias.push_back(static_cast<float>((old_bias ? old_bias[c] * scale : 0.0) + affine.shift[static_cast<size_t>(c)]));
  }
  set_operands(graph, conv, scaled, {channels}, bias);
  return true;
}

bool fold_into_matmul(Graph& graph, ROperator& rop, const Affine& affine) {
  auto& matmul = std::get<MatMul>(rop.attrs);
  const Shape out = graph.tensor(rop.outputs[0]).shape;
  if (out.size() != 2 || !is_f32_constant(graph, rop.inputs[1])) return false;  // with more dimensions, dimension 1 is not the column
  std::optional<std::vector<float>> old_bias = std::vector<float>(static_cast<size_t>(out[1]), 0.0F);
  if (operand(rop, 2).valid()) {
    if (!is_f32_constant(graph, rop.inputs[2])) return false;
    old_bias = values_along(graph.tensor(rop.inputs[2]), out, 1);
    if (!old_bias) return false;
  }
  const Tensor& weight = graph.tensor(rop.inputs[1]);
  std::vector<float> scaled(f32_data(weight), f32_data(weight) + element_count(weight.shape));
  const int64_t columns = out[1], depth = columns > 0 ? static_cast<int64_t>(scaled.size()) / columns : 0;
  for (size_t i = 0; i < scaled.size(); ++i) {
    const int64_t column = matmul.trans_b ? static_cast<int64_t>(i) / depth : static_cast<int64_t>(i) % columns;
    scaled[i] = static_cast<float>(scaled[i] * affine.scale[static_cast<size_t>(column)]);
  }
  std::vector<float> bias;
  for (size_t c = 0; c < affine.scale.size(); ++c)
    bias.push_back(static_cast<float>(matmul.beta * (*old_bias)[c] * affine.scale[c] + affine.shift[c]));
  matmul.beta = 1;
  set_operands(graph, rop, scaled, {columns}, bias);
  return true;
}

bool fold_into(Graph& graph, ROperator& producer, const Affine& affine) {
  if (has_epilogue(producer)) return false;
  if (std::holds_alternative<Conv>(producer.attrs)) return fold_into_conv(graph, producer, affine);
  if (std::holds_alternative<MatMul>(producer.attrs)) return fold_into_matmul(graph, producer, affine);
  return false;
}

// Whether a convolution may take `x`, scaled and shifted channel by channel, into its weights and its bias: no element that it multiplies
// is padding, which would have to stay zero.
bool takes_affine_input(const Graph& graph, const ROperator& rop, TensorId x) {
  const auto* const conv = std::get_if<Conv>(&rop.attrs);
  if (!conv || rop.inputs[0] != x || has_epilogue(rop) || !is_f32_constant(graph, rop.inputs[1])) return false;
  if (operand(rop, 2).valid() && !is_f32_constant(graph, rop.inputs[2])) return false;
  return all_are(conv->pads_begin, 0) && all_are(conv->pads_end, 0) && std::count(rop.inputs.begin(), rop.inputs.end(), x) == 1;
}

// Whether all that reads the normalised tensor takes the normalisation into its weights.
bool are_folded(const Graph& graph, const Uses& uses, const ROperator& norm) {
  const TensorId y = norm.outputs[0];
  const auto& readers = uses.consumers[y.index()];
  return !readers.empty() && !uses.is_output[y.index()] &&
         std::all_of(readers.begin(), readers.end(), [&](ROperatorId reader) { return takes_affine_input(graph, graph.rop(reader), y); });
}

// The convolution `rop` of norm(x) becomes one of x.
void fold_input(Graph& graph, ROperator& rop, const ROperator& norm, const Affine& affine) {
  const Tensor& weight = graph.tensor(rop.inputs[1]);
  const int64_t channels = weight.shape[0], inputs = weight.shape[1],
                taps = element_count(Shape(weight.shape.begin() + 2, weight.shape.end()));
  const int64_t of_group = channels / std::get<Conv>(rop.attrs).group;
  const float* old_weight = f32_data(weight);
  const float* old_bias = f32_data_or_null(graph, operand(rop, 2));
  std::vector<float> scaled, bias;
  for (int64_t c = 0; c < channels; ++c) {
    double sum = old_bias ? old_bias[c] : 0.0;
    for (int64_t i = 0; i < inputs; ++i) {
      const auto input = static_cast<size_t>(c / of_group * inputs + i);
      for (int64_t t = 0; t < taps; ++t) {
        const double w = old_weight[(c * inputs + i) * taps + t];
        scaled.push_back(static_cast<float>(w * affine.scale[input]));
        sum += w * affine.shift[input];
      }
    }
    bias.push_back(static_cast<float>(sum));
  }
  set_operands(graph, rop, scaled, {channels}, bias);
  rop.inputs[0] = norm.inputs[0];
  prepend_origin(rop, norm);
}

// [C,1,1] for [N,C,H,W]
Shape channel_shape(const Graph& graph, const ROperator& norm) {
  const Shape& x = graph.tensor(norm.inputs[0]).shape;
  Shape shape(x.size() - 1, 1);
  shape[0] = x[1];
  return shape;
}

ROperator affine_elementwise(Graph& graph, const ROperator& norm, const Affine& affine) {
  const TensorId scale = add_f32_constant(graph, norm.name + ".scale", channel_shape(graph, norm), rounded(affine.scale));
  const TensorId shift = add_f32_constant(graph, norm.name + ".shift", channel_shape(graph, norm), rounded(affine.shift));
  ROperator rop = make_elementwise(norm.name, {{ElementwiseOp::mul, {0, 1}}, {ElementwiseOp::add, {-1, 2}}}, {norm.inputs[0], scale, shift},
                                   norm.outputs[0]);
  rop.origin = norm.origin;
  return rop;
}

// The formula with operands known only at run time: their Reshapes to [C,1,1], then (x - mean) / sqrt(var + epsilon) * scale + b.
std::vector<ROperator> whole_formula(Graph& graph, const ROperator& norm) {
  std::vector<ROperator> made;
  std::vector<TensorId> inputs = {norm.inputs[0]};
  for (size_t i = 1; i < norm.inputs.size(); ++i) {
    const std::string name = norm.name + ".operand" + std::to_string(i);
    const Shape shape = channel_shape(graph, norm);
    inputs.push_back(append_view(graph, made, name, Reshape{shape}, norm.inputs[i], shape, norm.origin));
  }
  inputs.push_back(add_f32_constant(graph, norm.name + ".epsilon", {}, {std::get<BatchNorm>(norm.attrs).epsilon}));
  const std::vector<ElementwiseStep> steps = {
      {ElementwiseOp::sub, {0, 3}},   {ElementwiseOp::add, {4, 5}},  {ElementwiseOp::sqrt, {-2}},
      {ElementwiseOp::div, {-1, -3}}, {ElementwiseOp::mul, {-4, 1}}, {ElementwiseOp::add, {-5, 2}},
  };
  made.push_back(make_elementwise(norm.name, steps, std::move(inputs), norm.outputs[0]));
  made.back().origin = norm.origin;
  return made;
}

}  // namespace

Graph fold_batch_norm(Graph graph) {
  const Uses uses = uses_of(graph);
  std::vector<ROperator> rops;
  std::vector<size_t> moved(graph.rops.size());  // where the rOperator of an old index is in `rops`
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    moved[i] = rops.size();
    ROperator rop = std::move(graph.rops[i]);
    if (!std::holds_alternative<BatchNorm>(rop.attrs)) {
      rops.push_back(std::move(rop));
      continue;
    }
    if (!has_constant_operands(graph, rop)) {
      for (ROperator& made : whole_formula(graph, rop)) rops.push_back(std::move(made));
      moved[i] = rops.size() - 1;
      continue;
    }
    const Affine affine = affine_of(graph, rop);
    const TensorId x = rop.inputs[0];
    const ROperatorId producer = uses.maker_for_one(x);
    if (producer.valid() && fold_into(graph, rops[moved[producer.index()]], affine)) {
      ROperator& into = rops[moved[producer.index()]];
      into.outputs = rop.outputs;
      into.origin.insert(into.origin.end(), rop.origin.begin(), rop.origin.end());
      moved[i] = moved[producer.index()];  // BatchNorm after BatchNorm
    } else if (are_folded(graph, uses, rop)) {
      for (const ROperatorId reader : uses.consumers[rop.outputs[0].index()]) fold_input(graph, graph.rops[reader.index()], rop, affine);
    } else {
      rops.push_back(affine_elementwise(graph, rop, affine));
    }
  }
  graph.rops = std::move(rops);
  return remove_dead(std::move(graph));
}

}  // namespace tamp::passes
