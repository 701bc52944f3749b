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

Slice whole_slice(const std::vector<int64_t>& shape) {
  return {std::vector<int64_t>(shape.size(), 0), std::vector<int64_t>(shape.size(), 1), shape};
}

const char* name_of(const OpAttrs& attrs) {
  return std::visit(
      []<class Op>(const Op& op) {
        if constexpr (requires { Op::kNames; })
          return Op::kNames[static_cast<size_t>(Op::which(op))];
        else
          return Op::kName;
      },
      attrs);
}

std::span<const char* const> names_of(Activation) {
  static constexpr std::array kNames = {"none",       "relu",       "clip", "sigmoid", "tanh",     "hard_sigmoid",
                                        "hard_swish", "leaky_relu", "silu", "gelu",    "gelu_tanh"};
  static_assert(kNames.size() == static_cast<size_t>(Activation::gelu_tanh) + 1);
  return kNames;
}

std::span<const char* const> names_of(ReduceKind) {
  static constexpr std::array kNames = {"sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp"};
  static_assert(kNames.size() == static_cast<size_t>(ReduceKind::log_sum_exp) + 1);
  return kNames;
}

std::span<const char* const> names_of(Weightless) {
  static constexpr std::array kNames = {"nan", "zero_if_masked", "zero"};
  static_assert(kNames.size() == static_cast<size_t>(Weightless::zero) + 1);
  return kNames;
}

std::span<const char* const> names_of(PadMode) {
  static constexpr std::array kNames = {"constant", "reflect", "edge", "wrap"};
  static_assert(kNames.size() == static_cast<size_t>(PadMode::wrap) + 1);
  return kNames;
}

std::span<const char* const> names_of(Interpolation) {
  static constexpr std::array kNames = {"linear", "nearest", "cubic"};
  static_assert(kNames.size() == static_cast<size_t>(Interpolation::cubic) + 1);
  return kNames;
}

std::span<const char* const> names_of(Outside) {
  static constexpr std::array kNames = {"zeros", "border", "reflection"};
  static_assert(kNames.size() == static_cast<size_t>(Outside::reflection) + 1);
  return kNames;
}

std::span<const char* const> names_of(ScatterKind) {
  static constexpr std::array kNames = {"none", "add", "mul", "max", "min"};
  static_assert(kNames.size() == static_cast<size_t>(ScatterKind::min) + 1);
  return kNames;
}

std::span<const char* const> names_of(CellKind) {
  static constexpr std::array kNames = {"LSTM", "GRU", "RNN"};
  static_assert(kNames.size() == static_cast<size_t>(CellKind::rnn) + 1);
  return kNames;
}

std::span<const char* const> names_of(CellFunctionKind) {
  static constexpr std::array kNames = {"Sigmoid",    "Tanh",        "Relu", "Affine",   "LeakyRelu", "ThresholdedRelu",
                                        "ScaledTanh", "HardSigmoid", "Elu",  "Softsign", "Softplus"};
  static_assert(kNames.size() == static_cast<size_t>(CellFunctionKind::softplus) + 1);
  return kNames;
}

}  // namespace tamp
