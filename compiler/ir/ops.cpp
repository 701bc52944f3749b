#include "compiler/ir/ops.h"

#include <algorithm>
#include <array>

#include "compiler/support/error.h"

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

OpAttrs::OpAttrs() = default;
OpAttrs::OpAttrs(const OpAttrs& other) = default;
OpAttrs::OpAttrs(OpAttrs&& other) noexcept = default;
OpAttrs& OpAttrs::operator=(const OpAttrs& other) = default;
OpAttrs& OpAttrs::operator=(OpAttrs&& other) noexcept = default;
OpAttrs::~OpAttrs() = default;
bool OpAttrs::operator==(const OpAttrs& other) const {
  return static_cast<const AnyOperator&>(*this) == static_cast<const AnyOperator&>(other);
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

bool ends_at_length(const OpAttrs& attrs) {
  if (const auto* pad = std::get_if<Pad>(&attrs)) return !pad->ends.empty() || pad->number;
  if (const auto* softmax = std::get_if<Softmax>(&attrs)) return softmax->end.has_value();
  if (const auto* recurrent = std::get_if<Recurrent>(&attrs))
    return std::any_of(recurrent->cells.begin(), recurrent->cells.end(), [](const RecurrentCell& cell) { return cell.end.has_value(); });
  const auto* attention = std::get_if<Attention>(&attrs);
  return attention && attention->end;
}

// The words of an enum's values in their order, up to its last one.
#define TAMP_NAMES(Enum, last, ...)                                      \
  std::span<const char* const> names_of(Enum) {                          \
    static constexpr std::array kNames = {__VA_ARGS__};                  \
    static_assert(kNames.size() == static_cast<size_t>(Enum::last) + 1); \
    return kNames;                                                       \
  }
TAMP_NAMES(Activation, rounded, "none", "relu", "clip", "sigmoid", "tanh", "hard_sigmoid", "hard_swish", "leaky_relu", "silu", "gelu",
           "gelu_tanh", "rounded")
TAMP_NAMES(ReduceKind, log_sum_exp, "sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp")
TAMP_NAMES(Weightless, zero, "nan", "zero_if_masked", "zero")
TAMP_NAMES(PadMode, wrap, "constant", "reflect", "edge", "wrap")
TAMP_NAMES(Packed, out, "none", "in", "out")
TAMP_NAMES(Interpolation, cubic, "linear", "nearest", "cubic")
TAMP_NAMES(Outside, reflection, "zeros", "border", "reflection")
TAMP_NAMES(ScatterKind, min, "none", "add", "mul", "max", "min")
TAMP_NAMES(CellKind, rnn, "LSTM", "GRU", "RNN")
TAMP_NAMES(CellFunctionKind, softplus, "Sigmoid", "Tanh", "Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid",
           "Elu", "Softsign", "Softplus")
#undef TAMP_NAMES

}  // namespace tamp
