// versions: every since_version that ONNX's change log lists for the operator, those that only widen its element types too; so
// that a model's opset always finds the definition that it means, and never an older or newer one.
#include "compiler/frontend/op_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/frontend/container.h"
#include "compiler/frontend/importers.h"

namespace tamp::frontend {
namespace {

std::vector<OpRow> make_table() {
  return {
      {"Abs", {1, 6, 13}, [](NodeImport& n) { import_number_unary(n, ElementwiseOp::abs); }, ""},
      {"Add", {1, 6, 7, 13, 14}, [](NodeImport& n) { import_arithmetic(n, ElementwiseOp::add); }, ""},
      {"And", {1, 7}, [](NodeImport& n) { import_logical(n, ElementwiseOp::logical_and); }, ""},
      {"AveragePool", {1, 7, 10, 11, 19, 22}, import_average_pool, "1-D and 2-D"},
      {"BatchNormalization", {1, 6, 7, 9, 14, 15}, import_batch_normalization, "inference"},
      {"Cast", {1, 6, 9, 13, 19, 21, 23, 24, 25, 28}, import_cast, "of constants; at run time f32 and bool"},
      {"Ceil", {1, 6, 13}, [](NodeImport& n) { import_unary(n, ElementwiseOp::ceil); }, ""},
      {"Clip", {1, 6, 11, 12, 13}, import_clip, ""},
      {"Concat", {1, 4, 11, 13}, import_concat, ""},
      {"Constant", {1, 9, 11, 12, 13, 19, 21, 23, 24, 25}, import_constant, "no strings, no sparse tensors"},
      {"ConstantOfShape", {9, 20, 21, 23, 24, 25}, import_constant_of_shape, "shape must be a constant"},
      {"Conv", {1, 11, 22}, import_conv, "1-D and 2-D"},
      {"Cos", {7, 22}, [](NodeImport& n) { import_unary(n, ElementwiseOp::cos); }, ""},
      {"Div", {1, 6, 7, 13, 14}, [](NodeImport& n) { import_arithmetic(n, ElementwiseOp::div); }, ""},
      {"Dropout", {1, 6, 7, 10, 12, 13, 22}, import_dropout, "inference"},
      {"Elu", {1, 6, 22}, [](NodeImport& n) { import_alpha_unary(n, ElementwiseOp::elu, 1.0F); }, ""},
      {"Equal", {1, 7, 11, 13, 19}, [](NodeImport& n) { import_compare(n, ElementwiseOp::equal); }, ""},
      {"Erf", {9, 13}, [](NodeImport& n) { import_unary(n, ElementwiseOp::erf); }, ""},
      {"Exp", {1, 6, 13}, [](NodeImport& n) { import_unary(n, ElementwiseOp::exp); }, ""},
      {"Expand", {8, 13}, import_expand, "shape must be a constant"},
      {"Flatten", {1, 9, 11, 13, 21, 23, 24, 25}, import_flatten, ""},
      {"Floor", {1, 6, 13}, [](NodeImport& n) { import_unary(n, ElementwiseOp::floor); }, ""},
      {"GRU", {1, 3, 7, 14, 22}, [](NodeImport& n) { import_recurrent(n, CellKind::gru); }, ""},
      {"Gather", {1, 11, 13}, import_gather, "indices must be constants"},
      {"Gelu", {20}, import_gelu, ""},
      {"Gemm", {1, 6, 7, 9, 11, 13}, import_gemm, ""},
      {"GlobalAveragePool", {1, 22}, [](NodeImport& n) { import_global_pool(n, ReduceKind::mean); }, ""},
      {"GlobalMaxPool", {1, 22}, [](NodeImport& n) { import_global_pool(n, ReduceKind::max); }, ""},
      {"Greater", {1, 7, 9, 13}, [](NodeImport& n) { import_compare(n, ElementwiseOp::greater); }, ""},
      {"GreaterOrEqual", {12, 16}, [](NodeImport& n) { import_compare(n, ElementwiseOp::greater_equal); }, ""},
      {"HardSigmoid", {1, 6, 22}, import_hard_sigmoid, ""},
      {"HardSwish", {14, 22}, [](NodeImport& n) { import_unary(n, ElementwiseOp::hard_swish); }, ""},
      {"Identity", {1, 13, 14, 16, 19, 21, 23, 24, 25}, import_identity, ""},
      {"If", {1, 11, 13, 16, 19, 21, 23, 24, 25}, import_if, "condition must be a constant"},
      {"LRN", {1, 13}, import_lrn, ""},
      {"LSTM", {1, 7, 14, 22}, [](NodeImport& n) { import_recurrent(n, CellKind::lstm); }, ""},
      {"LeakyRelu", {1, 6, 16}, [](NodeImport& n) { import_alpha_unary(n, ElementwiseOp::leaky_relu, 0.01F); }, ""},
      {"Less", {1, 7, 9, 13}, [](NodeImport& n) { import_compare(n, ElementwiseOp::less); }, ""},
      {"LessOrEqual", {12, 16}, [](NodeImport& n) { import_compare(n, ElementwiseOp::less_equal); }, ""},
      {"Log", {1, 6, 13}, [](NodeImport& n) { import_unary(n, ElementwiseOp::log); }, ""},
      {"LogSoftmax", {1, 11, 13}, [](NodeImport& n) { import_softmax(n, true); }, ""},
      {"Loop", {1, 11, 13, 16, 19, 21, 23, 24, 25}, import_loop, "trip count and condition must be constants; is unrolled"},
      {"MatMul", {1, 9, 13}, import_matmul, ""},
      {"Max", {1, 6, 8, 12, 13}, [](NodeImport& n) { import_variadic(n, ElementwiseOp::max); }, ""},
      {"MaxPool", {1, 8, 10, 11, 12, 22}, import_max_pool, "1-D and 2-D, without Indices"},
      {"Mean", {1, 6, 8, 13}, import_mean, ""},
      {"Min", {1, 6, 8, 12, 13}, [](NodeImport& n) { import_variadic(n, ElementwiseOp::min); }, ""},
      {"Mod", {10, 13, 28}, import_mod, ""},
      {"Mul", {1, 6, 7, 13, 14}, [](NodeImport& n) { import_arithmetic(n, ElementwiseOp::mul); }, ""},
      {"Neg", {1, 6, 13}, [](NodeImport& n) { import_number_unary(n, ElementwiseOp::neg); }, ""},
      {"Not", {1}, import_not, ""},
      {"Or", {1, 7}, [](NodeImport& n) { import_logical(n, ElementwiseOp::logical_or); }, ""},
      {"PRelu", {1, 6, 7, 9, 16}, import_prelu, ""},
      {"Pad", {1, 2, 11, 13, 18, 19, 21, 23, 24, 25}, import_pad, "pads and value must be constants"},
      {"Pow", {1, 7, 12, 13, 15}, import_pow, ""},
      {"RNN", {1, 7, 14, 22}, [](NodeImport& n) { import_recurrent(n, CellKind::rnn); }, ""},
      {"Range", {11, 27}, import_range, "operands must be constants"},
      {"Reciprocal", {1, 6, 13}, [](NodeImport& n) { import_unary(n, ElementwiseOp::reciprocal); }, ""},
      {"ReduceL1", {1, 11, 13, 18}, [](NodeImport& n) { import_reduce(n, ReduceKind::l1, 18); }, "axes must be constants"},
      {"ReduceL2", {1, 11, 13, 18}, [](NodeImport& n) { import_reduce(n, ReduceKind::l2, 18); }, "axes must be constants"},
      {"ReduceLogSum", {1, 11, 13, 18, 28}, [](NodeImport& n) { import_reduce(n, ReduceKind::log_sum, 18); }, "axes must be constants"},
      {"ReduceLogSumExp",
       {1, 11, 13, 18, 28},
       [](NodeImport& n) { import_reduce(n, ReduceKind::log_sum_exp, 18); },
       "axes must be constants"},
      {"ReduceMax", {1, 11, 12, 13, 18, 20}, [](NodeImport& n) { import_reduce(n, ReduceKind::max, 18); }, "axes must be constants"},
      {"ReduceMean", {1, 11, 13, 18}, [](NodeImport& n) { import_reduce(n, ReduceKind::mean, 18); }, "axes must be constants"},
      {"ReduceMin", {1, 11, 12, 13, 18, 20}, [](NodeImport& n) { import_reduce(n, ReduceKind::min, 18); }, "axes must be constants"},
      {"ReduceProd", {1, 11, 13, 18}, [](NodeImport& n) { import_reduce(n, ReduceKind::prod, 18); }, "axes must be constants"},
      {"ReduceSum", {1, 11, 13}, [](NodeImport& n) { import_reduce(n, ReduceKind::sum, 13); }, "axes must be constants"},
      {"ReduceSumSquare", {1, 11, 13, 18}, [](NodeImport& n) { import_reduce(n, ReduceKind::sum_square, 18); }, "axes must be constants"},
      {"Relu", {1, 6, 13, 14}, [](NodeImport& n) { import_number_unary(n, ElementwiseOp::relu); }, ""},
      {"Reshape", {1, 5, 13, 14, 19, 21, 23, 24, 25}, import_reshape, "shape must be a constant"},
      {"Round", {11, 22}, [](NodeImport& n) { import_unary(n, ElementwiseOp::round); }, ""},
      {"Scan", {8, 9, 11, 16, 19, 21, 23, 24, 25}, import_scan, "from opset 9; is unrolled"},
      {"Shape", {1, 13, 15, 19, 21, 23, 24, 25}, import_shape, ""},
      {"Sigmoid", {1, 6, 13}, [](NodeImport& n) { import_unary(n, ElementwiseOp::sigmoid); }, ""},
      {"Sign", {9, 13}, [](NodeImport& n) { import_number_unary(n, ElementwiseOp::sign); }, ""},
      {"Sin", {7, 22}, [](NodeImport& n) { import_unary(n, ElementwiseOp::sin); }, ""},
      {"Size", {1, 13, 19, 21, 23, 24, 25}, import_size, ""},
      {"Slice", {1, 10, 11, 13}, import_slice, "starts, ends, axes, steps must be constants"},
      {"Softmax", {1, 11, 13}, [](NodeImport& n) { import_softmax(n, false); }, ""},
      {"Softplus", {1, 22}, [](NodeImport& n) { import_unary(n, ElementwiseOp::softplus); }, ""},
      {"Split", {1, 2, 11, 13, 18}, import_split, "lengths must be constants"},
      {"Sqrt", {1, 6, 13}, [](NodeImport& n) { import_unary(n, ElementwiseOp::sqrt); }, ""},
      {"Squeeze", {1, 11, 13, 21, 23, 24, 25}, import_squeeze, "axes must be constants"},
      {"Sub", {1, 6, 7, 13, 14}, [](NodeImport& n) { import_arithmetic(n, ElementwiseOp::sub); }, ""},
      {"Sum", {1, 6, 8, 13}, [](NodeImport& n) { import_variadic(n, ElementwiseOp::add); }, ""},
      {"Tanh", {1, 6, 13}, [](NodeImport& n) { import_unary(n, ElementwiseOp::tanh); }, ""},
      {"Tile", {1, 6, 13}, import_tile, "repeats must be constants"},
      {"Transpose", {1, 13, 21, 23, 24, 25}, import_transpose, ""},
      {"Unsqueeze", {1, 11, 13, 21, 23, 24, 25}, import_unsqueeze, "axes must be constants"},
      {"Where", {9, 16}, import_where, ""},
      {"Xor", {1, 7}, [](NodeImport& n) { import_logical(n, ElementwiseOp::logical_xor); }, ""},
  };
}

// Why an operator of the default domain has no row: some are of a kind that a static program cannot have.
std::string why_unknown(std::string_view op_type) {
  if (op_type.empty()) return "the node names no operator";
  if (op_type.find("Sequence") != std::string_view::npos) return "sequences are not supported; export the model without them";
  if (op_type.substr(0, 8) == "Optional") return "optional values are not supported; export the model without them";
  return "the operator is not supported ('tamp ops' lists what is); export with another opset, or without it";
}

}  // namespace

const std::vector<OpRow>& op_table() {
  static const std::vector<OpRow> table = make_table();
  return table;
}

OpChoice choose_op(std::string_view domain, std::string_view op_type, int64_t opset) {
  OpChoice choice;
  if (!is_default_domain(std::string(domain))) {
    choice.refusal = "operators of other domains than ai.onnx are not supported; export with ONNX's own";
    return choice;
  }
  const auto& table = op_table();
  const auto row =
      std::lower_bound(table.begin(), table.end(), op_type, [](const OpRow& r, std::string_view name) { return r.name < name; });
  if (row == table.end() || row->name != op_type) {
    choice.refusal = why_unknown(op_type);
    return choice;
  }
  const auto newer = std::upper_bound(row->versions.begin(), row->versions.end(), opset);
  if (newer == row->versions.begin()) {
    choice.refusal = fmt::format("the operator came with opset {}; export with that one or a newer one", row->versions.front());
    return choice;
  }
  choice.row = &*row;
  choice.version = *std::prev(newer);
  return choice;
}

}  // namespace tamp::frontend
