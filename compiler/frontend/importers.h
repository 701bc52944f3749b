// One function per ONNX operator or family of similar operators. op_table.cpp says which function imports which operator, and in which
// versions.
#pragma once

#include <array>

#include "compiler/frontend/node_import.h"

namespace tamp::frontend {

using Importer = void(NodeImport& n);

// import_conv.cpp
Importer import_conv;
struct SpatialWindow;
TensorId convolution(NodeImport& n, TensorId x, TensorId w, TensorId bias);  // with the node's attributes; operands of one type
TensorId convolution_of(NodeImport& n, TensorId x, TensorId w, TensorId bias, const SpatialWindow& window, int64_t group);

// import_conv_transpose.cpp
Importer import_conv_transpose, import_col2im;

// import_pool.cpp
Importer import_max_pool, import_average_pool, import_lp_pool, import_max_unpool, import_global_lp_pool;
void import_global_pool(NodeImport& n, ReduceKind kind);
struct PoolAttributes {  // that the operator has
  bool dilated = false, rounds_up = false, counts_pads = false;
};
TensorId average_pooled(NodeImport& n, TensorId x, const PoolAttributes& has);

// import_resize.cpp
Importer import_resize, import_upsample;

// import_regions.cpp
Importer import_roi_align, import_max_roi_pool, import_center_crop_pad;

// import_normalization.cpp
Importer import_batch_normalization, import_lrn, import_dropout;
void import_softmax(NodeImport& n, bool log);

// import_matmul.cpp
Importer import_gemm, import_matmul;
TensorId matrix_product(NodeImport& n, TensorId a, TensorId b);  // of one type, by the rules of MatMul

// import_quantized.cpp
Importer import_quantize_linear, import_dequantize_linear, import_dynamic_quantize_linear, import_matmul_integer, import_qlinear_matmul,
    import_conv_integer, import_qlinear_conv, import_ms_quantize_linear, import_ms_dequantize_linear;

// import_weights.cpp
Importer import_ms_matmul_n_bits, import_ms_matmul_bnb4, import_ms_gather_block_quantized;

// import_qlinear.cpp
Importer import_ms_dynamic_quantize_matmul, import_ms_matmul_integer_to_float, import_ms_qgemm, import_ms_qlinear_average_pool,
    import_ms_qlinear_concat, import_ms_qlinear_global_average_pool, import_ms_qlinear_leaky_relu, import_ms_qlinear_sigmoid,
    import_ms_qlinear_softmax, import_ms_qlinear_where;
void import_ms_qlinear_binary(NodeImport& n, ElementwiseOp op);

// import_unary.cpp
Importer import_gelu, import_clip, import_cast, import_cast_like, import_is_inf;
TensorId narrow_float(NodeImport& n, TensorId x, NarrowType to, bool saturate);  // rounded to the type's numbers

// import_binary.cpp
Importer import_bit_shift, import_pow, import_mod, import_prelu, import_where, import_mean;
void import_function(NodeImport& n, ElementwiseOp op);  // functions whose row in functions.h is all that is needed
void import_variadic(NodeImport& n, ElementwiseOp op);  // Min, Max, Sum

// import_recurrent.cpp
void import_recurrent(NodeImport& n, CellKind kind);

// import_control_flow.cpp
Importer import_if, import_loop, import_scan;

// import_reduce.cpp
void import_reduce(NodeImport& n, ReduceKind kind, int axes_input_since);

// import_data_movement.cpp
Importer import_identity, import_concat, import_transpose, import_slice, import_split, import_pad, import_gather, import_expand,
    import_tile;

// import_sequences.cpp
Importer import_concat_from_sequence, import_sequence_at, import_sequence_construct, import_sequence_empty, import_sequence_erase,
    import_sequence_insert, import_sequence_length, import_sequence_map, import_split_to_sequence;

// import_signal.cpp
Importer import_dft, import_stft;
void import_window(NodeImport& n, const std::array<double, 3>& coefficients);  // of a constant and of cosines of one and two periods

// import_shapes.cpp
Importer import_reshape, import_flatten, import_squeeze, import_unsqueeze, import_shape, import_size, import_depth_to_space,
    import_space_to_depth;

// import_indexing.cpp
Importer import_gather_elements, import_gather_nd, import_scatter_elements, import_scatter_nd, import_reverse_sequence, import_compress,
    import_non_zero;

// import_masks.cpp
Importer import_one_hot, import_trilu, import_eye_like;

// import_order.cpp
Importer import_top_k, import_hardmax, import_unique;
void import_arg_extreme(NodeImport& n, bool largest);  // ArgMax, ArgMin
void import_cumulate(NodeImport& n, bool product);     // CumSum, CumProd

// import_constants.cpp
Importer import_constant, import_constant_of_shape, import_range;

}  // namespace tamp::frontend
