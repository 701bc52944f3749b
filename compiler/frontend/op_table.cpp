// `versions` lists every since_version in ONNX's change log of the operator, also versions that only widen its element types. So a model's
// opset always finds the definition that it means, never an older or newer one.
#include "compiler/frontend/op_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "compiler/frontend/container.h"
#include "compiler/frontend/importers.h"
#include "compiler/support/nearest.h"

namespace tamp::frontend {

// Importers with a file of their own are declared here, those of families in importers.h.
Importer import_affine_grid, import_deform_conv, import_einsum, import_grid_sample, import_non_max_suppression;
Importer import_tensor_scatter;  // import_indexing.cpp
// import_losses.cpp
Importer import_negative_log_likelihood_loss, import_softmax_cross_entropy_loss;
// import_normalize.cpp
Importer import_layer_normalization, import_instance_normalization, import_group_normalization, import_mean_variance_normalization,
    import_lp_normalization;
void import_rms_normalization(NodeImport& n, bool has_deviation);
// import_attention.cpp
Importer import_attention, import_ms_rotary_embedding, import_rotary_embedding;
// import_microsoft.cpp
Importer import_ms_gelu, import_quick_gelu, import_fused_matmul, import_embed_layer_normalization;
void import_bias_gelu(NodeImport& n, ElementwiseOp gelu);
void import_skip_layer_normalization(NodeImport& n, bool centered);
// import_ms_attention.cpp
Importer import_ms_attention, import_ms_multi_head_attention, import_ms_group_query_attention;

namespace {

// Operators that are an elementwise function and nothing else have their rows in kernels/shared/functions.h.
void append_functions(std::vector<OpRow>& table) {
  for (const FunctionRow& row : function_rows()) {
    if (row.onnx.name == nullptr) continue;
    const auto versions = row.onnx.versions.begin();
    table.push_back({row.onnx.name, std::vector<int>(versions, versions + static_cast<std::ptrdiff_t>(row.onnx.version_count)),
                     [op = row.op](NodeImport& n) { import_function(n, op); }, ""});
  }
}

// com.microsoft, version 1. What ONNX Runtime counts to the default domain (LayerNormalization before opset 17,
// SimplifiedLayerNormalization) has its rows there.
void append_microsoft(std::vector<OpRow>& table) {
  const auto row = [&](const char* name, std::function<void(NodeImport&)> import, const char* limits = "") {
    table.push_back({name, {static_cast<int>(kMicrosoftVersion)}, std::move(import), limits, kMicrosoft});
  };
  row("Attention", import_ms_attention, "without rotary embedding; a mask of [batch], [batch,keys], or [batch,length,keys]");
  row("BiasGelu", [](NodeImport& n) { import_bias_gelu(n, ElementwiseOp::gelu); });
  row("DequantizeLinear", import_ms_dequantize_linear);
  row("DynamicQuantizeMatMul", import_ms_dynamic_quantize_matmul);
  row("EmbedLayerNormalization", import_embed_layer_normalization);
  row("FastGelu", [](NodeImport& n) { import_bias_gelu(n, ElementwiseOp::gelu_tanh); });
  row("FusedMatMul", import_fused_matmul, "without transBatchA and transBatchB");
  row("GatherBlockQuantized", import_ms_gather_block_quantized,
      "data, scales and zero_points must be constants; an index of run time outside of the axis takes the nearest element");
  row("Gelu", import_ms_gelu);
  row("GroupQueryAttention", import_ms_group_query_attention,
      "total_sequence_length of run time with a cache of constant size; without quantised keys");
  row("LayerNormalization", import_layer_normalization);
  row("MatMulBnb4", import_ms_matmul_bnb4, "B and absmax must be constants");
  row("MatMulIntegerToFloat", import_ms_matmul_integer_to_float);
  row("MatMulNBits", import_ms_matmul_n_bits, "2, 4 and 8 bits; all operands but A and bias must be constants");
  row("MultiHeadAttention", import_ms_multi_head_attention, "without past_sequence_length and cache_indirection; masks as of Attention");
  row("QGemm", import_ms_qgemm);
  row("QLinearAdd", [](NodeImport& n) { import_ms_qlinear_binary(n, ElementwiseOp::add); });
  row("QLinearAveragePool", import_ms_qlinear_average_pool, "1-D to 6-D");
  row("QLinearConcat", import_ms_qlinear_concat);
  row("QLinearGlobalAveragePool", import_ms_qlinear_global_average_pool);
  row("QLinearLeakyRelu", import_ms_qlinear_leaky_relu);
  row("QLinearMul", [](NodeImport& n) { import_ms_qlinear_binary(n, ElementwiseOp::mul); });
  row("QLinearSigmoid", import_ms_qlinear_sigmoid);
  row("QLinearSoftmax", import_ms_qlinear_softmax);
  row("QLinearWhere", import_ms_qlinear_where);
  row("QuantizeLinear", import_ms_quantize_linear);
  row("QuickGelu", import_quick_gelu);
  row("RotaryEmbedding", import_ms_rotary_embedding, "without scale and is_packed_batching");
  row("SimplifiedLayerNormalization", [](NodeImport& n) { import_rms_normalization(n, /*has_deviation=*/true); });
  row("SkipLayerNormalization", [](NodeImport& n) { import_skip_layer_normalization(n, /*centered=*/true); });
  row("SkipSimplifiedLayerNormalization", [](NodeImport& n) { import_skip_layer_normalization(n, /*centered=*/false); });
}

// Sequences are lists of tensors at import; what decides about their length must be known there.
void append_sequences(std::vector<OpRow>& table) {
  const auto row = [&](const char* name, std::vector<int> versions, std::function<void(NodeImport&)> import, const char* limits = "") {
    table.push_back({name, std::move(versions), std::move(import), limits, "", /*takes_sequences=*/true});
  };
  row("ConcatFromSequence", {11}, import_concat_from_sequence);
  row("SequenceAt", {11}, import_sequence_at, "position must be a constant");
  row("SequenceConstruct", {11}, import_sequence_construct);
  row("SequenceEmpty", {11}, import_sequence_empty);
  row("SequenceErase", {11}, import_sequence_erase, "position must be a constant");
  row("SequenceInsert", {11}, import_sequence_insert, "position must be a constant");
  row("SequenceLength", {11}, import_sequence_length);
  row("SequenceMap", {17}, import_sequence_map, "is unrolled");
  row("SplitToSequence", {11, 24}, import_split_to_sequence, "lengths must be constants");
}

std::function<Importer> window_of(const std::array<double, 3>& coefficients) {
  return [coefficients](NodeImport& n) { import_window(n, coefficients); };
}

std::vector<OpRow> make_table() {
  std::vector<OpRow> table = {
      {"AffineGrid", {20}, import_affine_grid, "size must be a constant"},
      {"ArgMax", {1, 11, 12, 13}, [](NodeImport& n) { import_arg_extreme(n, true); }, ""},
      {"ArgMin", {1, 11, 12, 13}, [](NodeImport& n) { import_arg_extreme(n, false); }, ""},
      {"Attention", {23, 24, 25}, import_attention, ""},
      {"AveragePool", {1, 7, 10, 11, 19, 22}, import_average_pool, "1-D to 6-D"},
      {"BatchNormalization", {1, 6, 7, 9, 14, 15}, import_batch_normalization, "inference"},
      {"BlackmanWindow", {17}, window_of({0.42, 0.5, 0.08}), "size must be a constant"},
      {"BitShift", {11, 28}, import_bit_shift, ""},
      {"Cast", {1, 6, 9, 13, 19, 21, 23, 24, 25, 28}, import_cast, ""},
      {"CastLike", {15, 19, 21, 23, 24, 25}, import_cast_like, ""},
      {"CenterCropPad", {18}, import_center_crop_pad, "shape must be a constant"},
      {"Clip", {1, 6, 11, 12, 13}, import_clip, ""},
      {"Col2Im", {18}, import_col2im, "1-D to 3-D, image_shape and block_shape must be constants"},
      {"Compress", {9, 11, 28}, import_compress, "of a condition of run time the result is padded, as NonZero's"},
      {"Concat", {1, 4, 11, 13}, import_concat, ""},
      {"Constant", {1, 9, 11, 12, 13, 19, 21, 23, 24, 25}, import_constant, "no strings, no sparse tensors"},
      {"ConstantOfShape", {9, 20, 21, 23, 24, 25}, import_constant_of_shape, "shape must be a constant"},
      {"Conv", {1, 11, 22}, import_conv, "1-D to 3-D"},
      {"ConvInteger", {10}, import_conv_integer, "1-D to 3-D"},
      {"ConvTranspose", {1, 11, 22}, import_conv_transpose, "1-D to 3-D"},
      {"CumProd", {26}, [](NodeImport& n) { import_cumulate(n, true); }, "axis must be a constant"},
      {"CumSum", {11, 14}, [](NodeImport& n) { import_cumulate(n, false); }, "axis must be a constant"},
      {"DFT", {17, 20}, import_dft, "dft_length and axis must be constants; not both inverse and onesided"},
      {"DeformConv", {19, 22}, import_deform_conv, "2-D"},
      {"DepthToSpace", {1, 11, 13, 28}, import_depth_to_space, ""},
      {"DequantizeLinear", {10, 13, 19, 21, 23, 24, 25, 28}, import_dequantize_linear, ""},
      {"Dropout", {1, 6, 7, 10, 12, 13, 22}, import_dropout, "inference"},
      {"DynamicQuantizeLinear", {11}, import_dynamic_quantize_linear, ""},
      {"Einsum", {12, 28}, import_einsum, ""},
      {"Expand", {8, 13}, import_expand, "shape must be a constant"},
      {"EyeLike", {9, 22}, import_eye_like, ""},
      {"Flatten", {1, 9, 11, 13, 21, 23, 24, 25}, import_flatten, ""},
      {"GRU", {1, 3, 7, 14, 22}, [](NodeImport& n) { import_recurrent(n, CellKind::gru); }, ""},
      {"Gather", {1, 11, 13}, import_gather, ""},
      {"GatherElements", {11, 13}, import_gather_elements, ""},
      {"GatherND", {11, 12, 13}, import_gather_nd, ""},
      {"Gelu", {20}, import_gelu, ""},
      {"Gemm", {1, 6, 7, 9, 11, 13}, import_gemm, ""},
      {"GlobalAveragePool", {1, 22}, [](NodeImport& n) { import_global_pool(n, ReduceKind::mean); }, ""},
      {"GlobalLpPool", {1, 2, 22}, import_global_lp_pool, ""},
      {"GlobalMaxPool", {1, 22}, [](NodeImport& n) { import_global_pool(n, ReduceKind::max); }, ""},
      {"GroupNormalization", {18, 21}, import_group_normalization, ""},
      {"GridSample", {16, 20, 22}, import_grid_sample, "2-D and 3-D, cubic in 2-D"},
      {"HammingWindow", {17}, window_of({25.0 / 46, 1 - 25.0 / 46, 0}), "size must be a constant"},
      {"HannWindow", {17}, window_of({0.5, 0.5, 0}), "size must be a constant"},
      {"Hardmax", {1, 11, 13}, import_hardmax, ""},
      {"Identity", {1, 13, 14, 16, 19, 21, 23, 24, 25}, import_identity, ""},
      {"If", {1, 11, 13, 16, 19, 21, 23, 24, 25}, import_if, ""},
      {"IsInf", {10, 20}, import_is_inf, ""},
      {"InstanceNormalization", {1, 6, 22}, import_instance_normalization, ""},
      {"LRN", {1, 13}, import_lrn, ""},
      {"LpPool", {1, 2, 11, 18, 22}, import_lp_pool, "1-D to 6-D"},
      {"LSTM", {1, 7, 14, 22}, [](NodeImport& n) { import_recurrent(n, CellKind::lstm); }, ""},
      {"LayerNormalization", {1, 17}, import_layer_normalization, ""},  // 1: ONNX Runtime's own
      {"LogSoftmax", {1, 11, 13}, [](NodeImport& n) { import_softmax(n, true); }, ""},
      {"Loop",
       {1, 11, 13, 16, 19, 21, 23, 24, 25},
       import_loop,
       "is unrolled where the trip count is known; shapes stay the same from iteration to iteration"},
      {"LpNormalization", {1, 22}, import_lp_normalization, ""},
      {"MatMul", {1, 9, 13}, import_matmul, ""},
      {"MatMulInteger", {10}, import_matmul_integer, ""},
      {"Max", {1, 6, 8, 12, 13}, [](NodeImport& n) { import_variadic(n, ElementwiseOp::max); }, ""},
      {"MaxPool", {1, 8, 10, 11, 12, 22}, import_max_pool, "1-D to 6-D, with Indices to 3-D"},
      {"MaxRoiPool", {1, 22}, import_max_roi_pool, ""},
      {"MaxUnpool", {9, 11, 22}, import_max_unpool, "output_shape must be a constant"},
      {"Mean", {1, 6, 8, 13}, import_mean, ""},
      {"MeanVarianceNormalization", {9, 13}, import_mean_variance_normalization, ""},
      {"Min", {1, 6, 8, 12, 13}, [](NodeImport& n) { import_variadic(n, ElementwiseOp::min); }, ""},
      {"Mod", {10, 13, 28}, import_mod, ""},
      {"NegativeLogLikelihoodLoss", {12, 13, 22}, import_negative_log_likelihood_loss, ""},
      {"NonMaxSuppression",
       {10, 11},
       import_non_max_suppression,
       "max_output_boxes_per_class and thresholds must be constants; the result is padded with -1, a further output NAME.count says how "
       "much is valid"},
      {"NonZero", {9, 13}, import_non_zero, "the result is padded with -1, a further output NAME.count says how much is valid"},
      {"OneHot", {9, 11, 28}, import_one_hot, "depth must be a constant"},
      {"PRelu", {1, 6, 7, 9, 16}, import_prelu, ""},
      {"Pad", {1, 2, 11, 13, 18, 19, 21, 23, 24, 25}, import_pad, "pads must be constants"},
      {"Pow", {1, 7, 12, 13, 15}, import_pow, ""},
      {"QLinearConv", {10}, import_qlinear_conv, "1-D to 3-D"},
      {"QLinearMatMul", {10, 21}, import_qlinear_matmul, "integers of 8 bits"},
      {"QuantizeLinear", {10, 13, 19, 21, 23, 24, 25, 28}, import_quantize_linear, ""},
      {"RMSNormalization", {23}, [](NodeImport& n) { import_rms_normalization(n, /*has_deviation=*/false); }, ""},
      {"RNN", {1, 7, 14, 22}, [](NodeImport& n) { import_recurrent(n, CellKind::rnn); }, ""},
      {"Range", {11, 27}, import_range, "operands must be constants"},
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
      {"Reshape", {1, 5, 13, 14, 19, 21, 23, 24, 25}, import_reshape, "shape must be a constant"},
      {"Resize", {10, 11, 13, 18, 19}, import_resize, "scales, sizes and roi must be constants"},
      {"ReverseSequence", {10, 28}, import_reverse_sequence, ""},
      {"RoiAlign", {10, 16, 22}, import_roi_align, ""},
      {"RotaryEmbedding", {23}, import_rotary_embedding, ""},
      {"STFT", {17}, import_stft, "frame_step and frame_length must be constants"},
      {"Scan", {8, 9, 11, 16, 19, 21, 23, 24, 25}, import_scan, "from opset 9; is unrolled where it goes along no length"},
      {"Scatter", {9, 11}, import_scatter_elements, ""},
      {"ScatterElements", {11, 13, 16, 18}, import_scatter_elements, ""},
      {"ScatterND", {11, 13, 16, 18}, import_scatter_nd, ""},
      {"Shape", {1, 13, 15, 19, 21, 23, 24, 25}, import_shape, ""},
      {"SimplifiedLayerNormalization", {1}, [](NodeImport& n) { import_rms_normalization(n, /*has_deviation=*/true); }, ""},
      {"Size", {1, 13, 19, 21, 23, 24, 25}, import_size, ""},
      {"Slice",
       {1, 10, 11, 13},
       import_slice,
       "axes and steps must be constants; starts and ends, too, or one place and that plus a constant"},
      {"Softmax", {1, 11, 13}, [](NodeImport& n) { import_softmax(n, false); }, ""},
      {"SoftmaxCrossEntropyLoss", {12, 13}, import_softmax_cross_entropy_loss, ""},
      {"SpaceToDepth", {1, 13, 28}, import_space_to_depth, ""},
      {"Split", {1, 2, 11, 13, 18}, import_split, "lengths must be constants"},
      {"Squeeze", {1, 11, 13, 21, 23, 24, 25}, import_squeeze, "axes must be constants"},
      {"Sum", {1, 6, 8, 13}, [](NodeImport& n) { import_variadic(n, ElementwiseOp::add); }, ""},
      {"TensorScatter", {24}, import_tensor_scatter, ""},
      {"Tile", {1, 6, 13}, import_tile, "repeats must be constants"},
      {"TopK", {1, 10, 11, 24}, import_top_k, "K must be a constant"},
      {"Transpose", {1, 13, 21, 23, 24, 25}, import_transpose, ""},
      {"Trilu", {14}, import_trilu, ""},
      {"Unique", {11, 28}, import_unique, "of constants"},
      {"Unsqueeze", {1, 11, 13, 21, 23, 24, 25}, import_unsqueeze, "axes must be constants"},
      {"Upsample", {1, 7, 9, 10}, import_upsample, "until opset 9; scales must be constants"},
      {"Where", {9, 16}, import_where, ""},
  };
  append_functions(table);
  append_microsoft(table);
  append_sequences(table);
  for (OpRow& row : table) {
    if (row.domain.empty() && (row.name == "Identity" || row.name == "Loop" || row.name == "If")) row.takes_sequences = true;
  }
  std::sort(table.begin(), table.end(),
            [](const OpRow& a, const OpRow& b) { return std::tie(a.domain, a.name) < std::tie(b.domain, b.name); });
  return table;
}

std::vector<std::string> names_in(std::string_view domain) {
  std::vector<std::string> names;
  for (const OpRow& row : op_table()) {
    if (row.domain == domain) names.push_back(row.name);
  }
  return names;
}

// Why an operator has no row: some are of a kind that a static program cannot have, some hold weights of a few bits.
std::string why_unknown(std::string_view domain, std::string_view op_type) {
  const auto has = [&](std::string_view word) { return op_type.find(word) != std::string_view::npos; };
  if (op_type.empty()) return "the node names no operator";
  if (op_type.starts_with("Optional")) return "optional values are not supported; export the model without them";
  if (domain == kMicrosoft && (has("FpQ4") || has("FpA4W") || has("BlockQuantized")))
    return "weights of this kind are not supported; MatMulNBits and GatherBlockQuantized are";
  if (domain == kMicrosoft && (op_type.starts_with("Q") || has("Quantize")))
    return "the quantised operator of ONNX Runtime is not supported; quantise with QuantFormat.QDQ, or give the float model";
  const std::string near = op_type.size() < 4 ? "" : did_you_mean(op_type, names_in(domain));  // Det is no DFT
  if (domain == kMicrosoft) {
    return "the operator of ONNX Runtime is not supported ('tamp ops' lists what is); if its optimiser wrote this node, give the model "
           "before that" +
           near;
  }
  return "the operator is not supported ('tamp ops' lists what is)" + near;
}

}  // namespace

const std::vector<OpRow>& op_table() {
  static const std::vector<OpRow> table = make_table();
  return table;
}

OpChoice choose_op(std::string_view domain, std::string_view op_type, int64_t opset) {
  OpChoice choice;
  const std::string_view key = is_default_domain(std::string(domain)) ? "" : domain;
  if (!key.empty() && key != kMicrosoft) {
    choice.refusal = "operators of other domains than ai.onnx and com.microsoft are not supported; export with ONNX's own";
    return choice;
  }
  const auto& table = op_table();
  const auto before = [](const OpRow& row, const std::pair<std::string_view, std::string_view>& wanted) {
    return std::pair<std::string_view, std::string_view>(row.domain, row.name) < wanted;
  };
  const auto row = std::lower_bound(table.begin(), table.end(), std::pair(key, op_type), before);
  if (row == table.end() || row->domain != key || row->name != op_type) {
    choice.refusal = why_unknown(key, op_type);
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
