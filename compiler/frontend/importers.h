// One function per ONNX operator or family of similar operators. op_table.cpp says which function imports which operator, and in which
// versions.
#pragma once

#include <array>

#include "compiler/frontend/node_import.h"

namespace tamp::frontend {

// import_conv.cpp
struct SpatialWindow;
void import_conv(NodeImport& n);
TensorId convolution(NodeImport& n, TensorId x, TensorId w, TensorId bias);  // with the node's attributes; operands of one type
TensorId convolution_of(NodeImport& n, TensorId x, TensorId w, TensorId bias, const SpatialWindow& window, int64_t group);

// import_conv_transpose.cpp
void import_conv_transpose(NodeImport& n);
void import_col2im(NodeImport& n);

// import_pool.cpp
void import_max_pool(NodeImport& n);
void import_average_pool(NodeImport& n);
void import_lp_pool(NodeImport& n);
void import_max_unpool(NodeImport& n);
void import_global_pool(NodeImport& n, ReduceKind kind);
void import_global_lp_pool(NodeImport& n);

// import_resize.cpp
void import_resize(NodeImport& n);
void import_upsample(NodeImport& n);

// import_regions.cpp
void import_roi_align(NodeImport& n);
void import_max_roi_pool(NodeImport& n);
void import_center_crop_pad(NodeImport& n);

// import_normalization.cpp
void import_batch_normalization(NodeImport& n);
void import_lrn(NodeImport& n);
void import_softmax(NodeImport& n, bool log);
void import_dropout(NodeImport& n);

// import_matmul.cpp
void import_gemm(NodeImport& n);
void import_matmul(NodeImport& n);
TensorId matrix_product(NodeImport& n, TensorId a, TensorId b);  // of one type, by the rules of MatMul

// import_quantized.cpp
void import_quantize_linear(NodeImport& n);
void import_dequantize_linear(NodeImport& n);
void import_dynamic_quantize_linear(NodeImport& n);
void import_matmul_integer(NodeImport& n);
void import_qlinear_matmul(NodeImport& n);
void import_conv_integer(NodeImport& n);
void import_qlinear_conv(NodeImport& n);

// import_unary.cpp
void import_gelu(NodeImport& n);
void import_clip(NodeImport& n);
void import_cast(NodeImport& n);
void import_cast_like(NodeImport& n);
void import_is_inf(NodeImport& n);

// import_binary.cpp
void import_function(NodeImport& n, ElementwiseOp op);  // functions whose row in functions.h is all that is needed
void import_bit_shift(NodeImport& n);
void import_pow(NodeImport& n);
void import_mod(NodeImport& n);
void import_prelu(NodeImport& n);
void import_where(NodeImport& n);
void import_variadic(NodeImport& n, ElementwiseOp op);  // Min, Max, Sum
void import_mean(NodeImport& n);

// import_recurrent.cpp
void import_recurrent(NodeImport& n, CellKind kind);

// import_control_flow.cpp
void import_if(NodeImport& n);
void import_loop(NodeImport& n);
void import_scan(NodeImport& n);

// import_reduce.cpp
void import_reduce(NodeImport& n, ReduceKind kind, int axes_input_since);

// import_data_movement.cpp
void import_identity(NodeImport& n);
void import_concat(NodeImport& n);
void import_transpose(NodeImport& n);
void import_slice(NodeImport& n);
void import_split(NodeImport& n);
void import_pad(NodeImport& n);
void import_gather(NodeImport& n);
void import_expand(NodeImport& n);
void import_tile(NodeImport& n);

// import_sequences.cpp
void import_concat_from_sequence(NodeImport& n);
void import_sequence_at(NodeImport& n);
void import_sequence_construct(NodeImport& n);
void import_sequence_empty(NodeImport& n);
void import_sequence_erase(NodeImport& n);
void import_sequence_insert(NodeImport& n);
void import_sequence_length(NodeImport& n);
void import_sequence_map(NodeImport& n);
void import_split_to_sequence(NodeImport& n);

// import_signal.cpp
void import_dft(NodeImport& n);
void import_stft(NodeImport& n);
void import_window(NodeImport& n, const std::array<double, 3>& coefficients);  // of a constant and of cosines of one and two periods

// import_shapes.cpp
void import_reshape(NodeImport& n);
void import_flatten(NodeImport& n);
void import_squeeze(NodeImport& n);
void import_unsqueeze(NodeImport& n);
void import_shape(NodeImport& n);
void import_size(NodeImport& n);

void import_depth_to_space(NodeImport& n);
void import_space_to_depth(NodeImport& n);

// import_indexing.cpp
void import_gather_elements(NodeImport& n);
void import_gather_nd(NodeImport& n);
void import_scatter_elements(NodeImport& n);
void import_scatter_nd(NodeImport& n);
void import_reverse_sequence(NodeImport& n);
void import_compress(NodeImport& n);
void import_non_zero(NodeImport& n);

// import_masks.cpp
void import_one_hot(NodeImport& n);
void import_trilu(NodeImport& n);
void import_eye_like(NodeImport& n);

// import_order.cpp
void import_top_k(NodeImport& n);
void import_arg_extreme(NodeImport& n, bool largest);  // ArgMax, ArgMin
void import_hardmax(NodeImport& n);
void import_cumulate(NodeImport& n, bool product);  // CumSum, CumProd
void import_unique(NodeImport& n);

// import_constants.cpp
void import_constant(NodeImport& n);
void import_constant_of_shape(NodeImport& n);
void import_range(NodeImport& n);

}  // namespace tamp::frontend
