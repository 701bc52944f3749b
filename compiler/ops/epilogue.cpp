// The epilogue, which a rKernel applies before it stores, as a separate step on the finished value: y = act(x + bias + residual), or act(x
// + bias) + residual. Added up in double and rounded once.
#include "compiler/ops/call.h"
#include "compiler/ops/functions.h"

namespace tamp::ops {
namespace {

// Elements that share one bias value lie `run` apart.
int64_t bias_run(const Call& call, const Shape& shape) {
  if (has_channels_last(call.rop.attrs)) return 1;
  return product(shape, 2, static_cast<int64_t>(shape.size()));
}

void add_bias(std::vector<double>& y, const Numbers<double>& bias, int64_t channels, int64_t run) {
  int64_t channel = 0;
  for (size_t i = 0; i < y.size(); i += static_cast<size_t>(run)) {
    for (size_t j = i; j < i + static_cast<size_t>(run); ++j) y[j] += bias[channel];
    channel = channel + 1 == channels ? 0 : channel + 1;
  }
}

}  // namespace

double activate(const ActivationCall& call, double x) {
  switch (call.kind) {
    case Activation::none: return x;
    case Activation::relu: return relu(x);
    case Activation::clip: return clip<double>(x, call.a, call.b);
    case Activation::sigmoid: return sigmoid(x);
    case Activation::tanh: return std::tanh(x);
    case Activation::hard_sigmoid: return hard_sigmoid<double>(x, call.a, call.b);
    case Activation::hard_swish: return hard_swish(x);
    case Activation::leaky_relu: return leaky_relu(x, call.a);
    case Activation::silu: return silu(x);
    case Activation::gelu: return gelu(x);
    case Activation::gelu_tanh: return gelu_tanh(x);
    case Activation::rounded: return rounded<double>(x, call.a, call.b);
  }
  TAMP_CHECK(false, "unknown activation");
}

Value apply_epilogue(const Call& call, Value value) {
  const Epilogue& epilogue = call.rop.epilogue;
  if (!epilogue.bias.valid() && !epilogue.residual.valid() && epilogue.activation == Activation::none && !epilogue.sum) return value;

  const Numbers<double> x(value);
  std::vector<double> y(x.data(), x.data() + element_count(value.shape));
  if (epilogue.bias.valid()) {
    const Value& bias = call.value_of(epilogue.bias);
    add_bias(y, Numbers<double>(bias), element_count(bias.shape), bias_run(call, value.shape));
  }
  const auto activate_all = [&] {
    const ActivationCall activation{epilogue.activation, epilogue.a, epilogue.b};
    for (double& element : y) element = activate(activation, element);
  };
  if (epilogue.sum) {
    activate_all();
    const ScaledSum& sum = *epilogue.sum;
    for (double& element : y) element *= sum.scale;
    if (epilogue.residual.valid()) {
      const Numbers<double> residual(call.value_of(epilogue.residual));
      for (size_t i = 0; i < y.size(); ++i) y[i] += residual[static_cast<int64_t>(i)] * sum.residual_scale;
    }
    for (double& element : y) element = sum.rounds ? rounded<double>(element, sum.low, sum.high) : element;
    return output_from(call, y);
  }
  if (epilogue.residual_after_activation) activate_all();
  if (epilogue.residual.valid()) {
    const Numbers<double> residual(call.value_of(epilogue.residual));
    for (size_t i = 0; i < y.size(); ++i) y[i] += residual[static_cast<int64_t>(i)];
  }
  if (!epilogue.residual_after_activation) activate_all();
  return output_from(call, y);
}

}  // namespace tamp::ops
