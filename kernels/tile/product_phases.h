// What the families that compute a Product (kernels/tile/product.h) share on the host: epilogues, the sum of split k, the
// rows that a rTask stores.
#pragma once

#include <optional>
#include <vector>

#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/tile/product.h"

namespace tamp::kernels {

// Rounds to the nearest, ties away from zero; NaN and infinity stay what they are.
float round_to_tf32(float x);

std::vector<int64_t> to_vector(const std::array<int64_t, 4>& a);

// [groups][padded]: `groups` equal parts of the values, or of the bias, padded with zeros.
std::vector<float> padded_by_group(const std::vector<float>& values, int64_t groups, int64_t padded);
std::vector<float> padded_bias(const Graph& graph, const Product& product, int64_t groups, int64_t padded);

// Powers of two, [group][channel], that bring the weights of each output channel into the range of fp16. Then a weight down to
// 2^-28 of its channel's largest is what rounding to tf32 makes of it; a smaller weight is wrong by at most 2^-39 of that largest, which
// is less than an fp32 sum keeps.
std::vector<float> scales_of(const float* data, const Product& product);
// Steps of which all weights of an output channel are whole multiples that a signed byte holds; none where a channel has no such step.
std::optional<std::vector<float>> byte_scales_of(const float* data, const Product& product);
bool has_byte_scales(const Graph& graph, const Product& product);  // remembered as long as the weights exist

// rk::ClipArgs of kernels/tile/lean_epilogue.cuh.
ArgValue clip_arg(const Epilogue& epilogue, bool residual_after);

// rk::EpilogueArgs with the bias at byte `bias_at` of the packed data; empty where partial sums are stored (!applies).
ArgValue product_epilogue(const ROperator& rop, const Product& product, bool applies, int64_t bias_at);
// 1 where 4 channels are one aligned access, for `channels` channels without a gap (those of a group or all).
int64_t vector_residual(const Graph& graph, const Product& product, int64_t channels);
int64_t vector_out(const Graph& graph, const Product& product, int64_t channels);
// The same for the residual of a product without groups whose last 4 channels may not all exist: such loads also read the padding behind
// the channels (kernels/vectors.h).
bool loads_residual_vectors(const Graph& graph, const Product& product);

// The second phase of a product whose k was split, split_k_sum.cuh. Partial sums are [splits][rows][pitch] of the scratch.
int64_t partial_pitch(const Product& product);
std::array<int64_t, 4> partial_strides(const Product& product);             // image, channel, h, w
int64_t sum_rows_of(const ShapedVDevice& vdevice, const Product& product);  // rows of a rTask: about one rTask per vEU
Phase sum_phase(const Request& request, const Product& product, int64_t splits, int64_t sum_rows);
Bytes pack_sum(const Graph& graph, const Product& product);
void sum_accesses(const Graph& graph, const Product& product, int64_t splits, int64_t sum_rows, int64_t index, Accesses& out);

// Rows [first, last), flat channels [begin, end). partial_rows: of a split's partial sums; add_stores: of the output as a write, and of
// the residual as a read.
Region partial_rows(const Product& product, int64_t split, int64_t first, int64_t last, int64_t begin, int64_t end);
void add_stores(const Graph& graph, const Product& product, int64_t first, int64_t last, int64_t begin, int64_t end, Accesses& out);

// The box [low, high) of a tensor's pixels, where it is not empty; strides: image, channel, h, w.
using PixelBox = std::array<int64_t, 4>;  // image, h, w, channel
void append_pixels(const Graph& graph, TensorId id, const std::array<int64_t, 4>& strides, const PixelBox& low, const PixelBox& high,
                   std::vector<Region>& regions);

}  // namespace tamp::kernels
