#include "compiler/ir/ops.h"

#include <algorithm>
#include <array>

#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp {
namespace {

using rk::functions::Result;
using rk::functions::Speed;
using rk::functions::Types;

constexpr std::array kRows = {
#define TAMP_ROW(name, arity, attributes, types, result, speed, price, onnx, formula)                                                     \
  FunctionRow{ElementwiseOp::name,   #name, arity, FunctionRow::Attributes attributes, Types::types, Result::result, Speed::speed, price, \
              FunctionRow::Onnx onnx},
    RK_FUNCTIONS(TAMP_ROW)
#undef TAMP_ROW
};

}  // namespace

std::span<const FunctionRow> function_rows() { return kRows; }

const FunctionRow& row_of(ElementwiseOp op) { return kRows[static_cast<size_t>(op)]; }

const char* name_of(ElementwiseOp op) { return row_of(op).name; }

bool has_prologue(const Conv& conv) { return conv.depthwise.has_value() || conv.input_activation.kind != Activation::none; }

bool is_pointwise(const Conv& conv) {
  const auto all = [](const std::vector<int64_t>& values, int64_t wanted) {
    return std::all_of(values.begin(), values.end(), [&](int64_t value) { return value == wanted; });
  };
  return conv.group == 1 && all(conv.kernel, 1) && all(conv.strides, 1) && all(conv.pads_begin, 0) && all(conv.pads_end, 0);
}

int arity_of(ElementwiseOp op) { return row_of(op).arity; }

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
