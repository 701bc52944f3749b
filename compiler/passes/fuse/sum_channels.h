// What the passes that let a convolution add up its channels have in common: recognise_excitation and pool_by_sums.
#pragma once

#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes {

// A map [N,C,H,W] of f32.
bool is_f32_map(const Graph& graph, TensorId id);
// The mean of each channel of such a map; the result may keep two extents of 1 or drop them.
bool is_mean_of_channels(const Graph& graph, const ROperator& rop);

ActivationCall activation_call(const Epilogue& epilogue);

// Tiles that all pixels of a map [N,C,H,W] can be cut into, of about as many pixels as bodies of convolutions have, or fewer by a quarter:
// with a halo, input for as many may be too much.
std::vector<std::vector<int64_t>> tiles_for_sums(const Shape& map);

// The tensor of the sums of a map's channels, as yet without a shape.
TensorId add_sums(Graph& graph, const Tensor& map);
Shape shape_of_sums(const Shape& map, const std::vector<int64_t>& tile);

// `conv`, a Conv with an epilogue but without a prologue, and TileSums of its result. A residual must come before the activation. `sums`
// has its shape.
ROperator summed_conv(const Graph& graph, const ROperator& conv, TensorId sums, const std::vector<int64_t>& tile);

}  // namespace tamp::passes
