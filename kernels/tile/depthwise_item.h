// Host side of depthwise_item.cuh.
#pragma once

#include <cstdint>
#include <string>

namespace tamp::kernels {

// An item of a body with a depthwise convolution: `pixels` neighbouring pixels of a row, which `parts` threads
// compute together.
struct DepthwiseItem {
  int64_t pixels, parts;

  int64_t own() const;                // pixels whose sums a thread has in the end
  int64_t trips(int64_t taps) const;  // rows of the filter that a thread loads one after another
  std::string text() const;           // for the names of rKernels
};

}  // namespace tamp::kernels
