// Common parts of the families squeeze and excite: a map is a tensor [N,C,H,W], cut into blocks of channels.
#pragma once

#include "compiler/ir/graph.h"
#include "compiler/ir/rkernel.h"
#include "compiler/ir/shaped_vdevice.h"

namespace tamp::kernels {

struct ChannelMap {
  int64_t images = 1, channels = 1, height = 1, width = 1;
  int64_t pixels() const { return height * width; }
  int64_t blocks() const;  // of kSqueezeBlock channels
};
ChannelMap map_of(const Tensor& tensor);

// Whether four channels of a pixel are one aligned access, the last ones included.
bool has_vector_pixels(const Tensor& tensor);
ArgValue map_strides(const Tensor& tensor);

// The rows [row, row_end) of a block of channels, all columns; `vector`: what loads of four channels read, padding included.
void append_map(const Graph& graph, TensorId id, int64_t image, int64_t block, int64_t row, int64_t row_end, bool vector,
                std::vector<Region>& regions);

// Loads that a thread has under way where it adds up so many pixels of a map, and the time of its turns but the first.
int64_t loads_ahead(const Tensor& map, int64_t pixels);
double sum_turns_us(const Tensor& map, int64_t pixels, const ShapedVDevice& vdevice);

// Whether bodies with a depthwise convolution have this one: a square filter of 3, 5 or 7 taps, stride 1 or 2, no dilation.
bool has_square_filter(const std::vector<int64_t>& kernel, const std::vector<int64_t>& strides, const std::vector<int64_t>& dilations);

// Packs one row of weights. 16-bit weights are divided by a power of two, which is returned (for fp32: 1).
float pack_weights(const std::vector<float>& weights, bool narrow, std::byte* to);
inline int64_t weight_bytes_of(bool narrow) { return narrow ? 2 : 4; }

// Whether the map is f32, or has 16 bits and the precision lets activations have 16 bits; with `bytes`, also whole numbers in bytes.
bool takes_map(const Tensor& tensor, Precision precision, bool bytes = false);

}  // namespace tamp::kernels
