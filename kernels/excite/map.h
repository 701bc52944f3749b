// What the two families of squeeze-and-excite have in common: a map [N,C,H,W] in blocks of channels.
#pragma once

#include <array>

#include "compiler/ir/graph.h"
#include "compiler/ir/rkernel.h"
#include "compiler/ir/vdevice.h"

namespace tamp::kernels {

struct ChannelMap {
  int64_t images = 1, channels = 1, height = 1, width = 1;
  int64_t pixels() const { return height * width; }
  int64_t blocks() const;  // of kSqueezeBlock channels
};
ChannelMap map_of(const Tensor& tensor);

// Four channels of a pixel are one aligned access, also the last ones.
bool has_vector_pixels(const Tensor& tensor);
ArgValue map_strides(const Tensor& tensor);

// The rows [row, row_end) of a block of channels, all columns; `vector`: as loads of four channels read it.
void append_map(const Graph& graph, TensorId id, int64_t image, int64_t block, int64_t row, int64_t row_end, bool vector,
                std::vector<Region>& regions);

// One row of weights as it is packed: 16-bit ones are divided by a power of two, which is returned.
float pack_weights(const std::vector<float>& weights, bool narrow, std::byte* to);
inline int64_t weight_bytes_of(bool narrow) { return narrow ? 2 : 4; }

// f32, or of 16 bits where activations may be.
bool takes_map(const Tensor& tensor, Precision precision);

}  // namespace tamp::kernels
