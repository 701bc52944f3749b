#include "compiler/ir/ops.h"

#include <algorithm>
#include <array>

#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp {
namespace {

struct Row {
  ElementwiseOp op;
  const char* name;
  int arity;
};
constexpr std::array kRows = {
    Row{ElementwiseOp::identity, "identity", 1},
    Row{ElementwiseOp::neg, "neg", 1},
    Row{ElementwiseOp::abs, "abs", 1},
    Row{ElementwiseOp::sqrt, "sqrt", 1},
    Row{ElementwiseOp::reciprocal, "reciprocal", 1},
    Row{ElementwiseOp::exp, "exp", 1},
    Row{ElementwiseOp::log, "log", 1},
    Row{ElementwiseOp::erf, "erf", 1},
    Row{ElementwiseOp::sin, "sin", 1},
    Row{ElementwiseOp::cos, "cos", 1},
    Row{ElementwiseOp::floor, "floor", 1},
    Row{ElementwiseOp::ceil, "ceil", 1},
    Row{ElementwiseOp::round, "round", 1},
    Row{ElementwiseOp::sign, "sign", 1},
    Row{ElementwiseOp::relu, "relu", 1},
    Row{ElementwiseOp::leaky_relu, "leaky_relu", 1},
    Row{ElementwiseOp::elu, "elu", 1},
    Row{ElementwiseOp::clip, "clip", 1},
    Row{ElementwiseOp::sigmoid, "sigmoid", 1},
    Row{ElementwiseOp::hard_sigmoid, "hard_sigmoid", 1},
    Row{ElementwiseOp::hard_swish, "hard_swish", 1},
    Row{ElementwiseOp::tanh, "tanh", 1},
    Row{ElementwiseOp::softplus, "softplus", 1},
    Row{ElementwiseOp::gelu, "gelu", 1},
    Row{ElementwiseOp::gelu_tanh, "gelu_tanh", 1},
    Row{ElementwiseOp::add, "add", 2},
    Row{ElementwiseOp::sub, "sub", 2},
    Row{ElementwiseOp::mul, "mul", 2},
    Row{ElementwiseOp::div, "div", 2},
    Row{ElementwiseOp::pow, "pow", 2},
    Row{ElementwiseOp::min, "min", 2},
    Row{ElementwiseOp::max, "max", 2},
    Row{ElementwiseOp::mod, "mod", 2},
    Row{ElementwiseOp::fmod, "fmod", 2},
    Row{ElementwiseOp::prelu, "prelu", 2},
    Row{ElementwiseOp::equal, "equal", 2},
    Row{ElementwiseOp::less, "less", 2},
    Row{ElementwiseOp::less_equal, "less_equal", 2},
    Row{ElementwiseOp::greater, "greater", 2},
    Row{ElementwiseOp::greater_equal, "greater_equal", 2},
    Row{ElementwiseOp::logical_and, "logical_and", 2},
    Row{ElementwiseOp::logical_or, "logical_or", 2},
    Row{ElementwiseOp::logical_xor, "logical_xor", 2},
    Row{ElementwiseOp::logical_not, "logical_not", 1},
    Row{ElementwiseOp::where, "where", 3},
    Row{ElementwiseOp::cast, "cast", 1},
};

constexpr bool rows_in_order() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<size_t>(kRows[i].op) != i) return false;
  }
  return static_cast<size_t>(ElementwiseOp::cast) + 1 == kRows.size();
}
static_assert(rows_in_order(), "one row per ElementwiseOp, in the order of the enum");

}  // namespace

const char* name_of(ElementwiseOp op) { return kRows[static_cast<size_t>(op)].name; }

bool has_prologue(const Conv& conv) { return conv.depthwise.has_value() || conv.input_activation.kind != Activation::none; }

bool is_pointwise(const Conv& conv) {
  const auto all = [](const std::vector<int64_t>& values, int64_t wanted) {
    return std::all_of(values.begin(), values.end(), [&](int64_t value) { return value == wanted; });
  };
  return conv.group == 1 && all(conv.kernel, 1) && all(conv.strides, 1) && all(conv.pads_begin, 0) && all(conv.pads_end, 0);
}

int arity_of(ElementwiseOp op) { return kRows[static_cast<size_t>(op)].arity; }

const char* name_of(const OpAttrs& attrs) {
  return std::visit(overloaded{
                        [](const Conv&) { return "Conv"; },
                        [](const MatMul&) { return "MatMul"; },
                        [](const Pool& p) { return p.kind == PoolKind::max ? "MaxPool" : "AveragePool"; },
                        [](const Reduce&) { return "Reduce"; },
                        [](const Softmax& s) { return s.log ? "LogSoftmax" : "Softmax"; },
                        [](const Lrn&) { return "LRN"; },
                        [](const BatchNorm&) { return "BatchNorm"; },
                        [](const Elementwise&) { return "Elementwise"; },
                        [](const Reshape&) { return "Reshape"; },
                        [](const Transpose&) { return "Transpose"; },
                        [](const Slice&) { return "Slice"; },
                        [](const Concat&) { return "Concat"; },
                        [](const Pad&) { return "Pad"; },
                        [](const Gather&) { return "Gather"; },
                        [](const Recurrent&) { return "Recurrent"; },
                    },
                    attrs);
}

const char* name_of(Activation activation) {
  switch (activation) {
    case Activation::none: return "none";
    case Activation::relu: return "relu";
    case Activation::clip: return "clip";
    case Activation::sigmoid: return "sigmoid";
    case Activation::tanh: return "tanh";
    case Activation::hard_sigmoid: return "hard_sigmoid";
    case Activation::hard_swish: return "hard_swish";
    case Activation::leaky_relu: return "leaky_relu";
    case Activation::silu: return "silu";
    case Activation::gelu: return "gelu";
  }
  TAMP_CHECK(false, "activation out of range");
}

const char* name_of(CellKind kind) {
  switch (kind) {
    case CellKind::lstm: return "LSTM";
    case CellKind::gru: return "GRU";
    case CellKind::rnn: return "RNN";
  }
  TAMP_CHECK(false, "cell kind out of range");
}

const char* name_of(CellFunctionKind kind) {
  switch (kind) {
    case CellFunctionKind::sigmoid: return "Sigmoid";
    case CellFunctionKind::tanh: return "Tanh";
    case CellFunctionKind::relu: return "Relu";
    case CellFunctionKind::affine: return "Affine";
    case CellFunctionKind::leaky_relu: return "LeakyRelu";
    case CellFunctionKind::thresholded_relu: return "ThresholdedRelu";
    case CellFunctionKind::scaled_tanh: return "ScaledTanh";
    case CellFunctionKind::hard_sigmoid: return "HardSigmoid";
    case CellFunctionKind::elu: return "Elu";
    case CellFunctionKind::softsign: return "Softsign";
    case CellFunctionKind::softplus: return "Softplus";
  }
  TAMP_CHECK(false, "cell function out of range");
}

}  // namespace tamp
