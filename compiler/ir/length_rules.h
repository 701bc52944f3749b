// How a dimension that ends at a length of run time goes through views and windows, for who follows lengths: frontend/lengths, which makes
// the graph right for each of them, and passes/place/mark_ends, which finds what is not needed.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/length.h"
#include "compiler/ir/tensor.h"

namespace tamp {

// The axis in another shape of the same elements; none if these do not stay in order before one end. Example: of [1,512,768] with axis 1
// that ends at L, [512,12,64] has axis 0 that ends at L, and [393216] has axis 0 that ends at 768 * L.
std::optional<LengthAxis> reshaped(const LengthAxis& axis, const Shape& from, const Shape& to);

// The extent of the results of windows over a dimension. `pads`: on both sides together.
Extent windowed(const Extent& extent, int64_t pads, int64_t kernel, int64_t stride, int64_t dilation, const std::vector<Length>& lengths);

bool is_exact(const Extent& extent, const std::vector<Length>& lengths);  // nothing is rounded: times 3 it is 3 * times and 3 * plus

// The same numbers in the smallest terms, as values are multiples of the length's step: (L + 1) / 2 is L / 2 for even L.
Extent reduced(Extent extent, const std::vector<Length>& lengths);

}  // namespace tamp
