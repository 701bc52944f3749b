// The attributes of operators that slide a window over the spatial dimensions of X[N,C,spatial..], checked. auto_pad is resolved here: the
// results have explicit pads.
#pragma once

#include "compiler/frontend/node_import.h"

namespace tamp::frontend {

// Larger attributes make no sense, and arithmetic with them could overflow.
inline constexpr int64_t kMaxAttribute = int64_t{1} << 30;

struct SpatialWindow {
  Ints kernel, strides, dilations, pads_begin, pads_end;

  // The extent that the taps of one window span.
  int64_t reach(size_t d) const { return (kernel[d] - 1) * dilations[d] + 1; }
};

int64_t ceil_div(int64_t a, int64_t b);

// X has at least one spatial dimension and at most `most`; `what` is a word for what is done to it.
void expect_spatial(NodeImport& n, const Shape& x, size_t most, const char* what);

// One value for each spatial dimension, each at least `low`.
Ints spatial_attribute(NodeImport& n, const char* name, size_t spatial, int64_t fallback, int64_t low);

// kernel_shape, which must be there, or must be W's where there is W[M,C,kernel..].
Ints kernel_attribute(NodeImport& n, const Shape& x);
Ints kernel_of_weights(NodeImport& n, const Shape& x, const Shape& w);

// strides and (if `dilated`) dilations; pads are zeros.
SpatialWindow read_strides(NodeImport& n, Ints kernel, bool dilated);
// The attribute 'pads', where it is there.
void read_pads(NodeImport& n, SpatialWindow& window);
// read_strides, then pads or auto_pad. Sets ceil_mode to false where auto_pad leaves it no meaning.
SpatialWindow read_window(NodeImport& n, const Shape& x, Ints kernel, bool dilated, bool& ceil_mode);

// NOTSET where there is none.
enum class AutoPad { none, upper, lower, valid };
AutoPad read_auto_pad(NodeImport& n);

}  // namespace tamp::frontend
