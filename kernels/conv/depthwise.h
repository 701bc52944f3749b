// Depthwise convolution, one filter per channel.
#pragma once

#include "kernels/catalogue.h"

namespace tamp::kernels {

// What threads of a body with a depthwise convolution compute at a time (depthwise_item.cuh): neighbouring pixels of a row, by so many
// threads.
struct DepthwiseItem {
  int64_t pixels, parts;

  int64_t own() const;                // pixels of a thread, in the end
  int64_t trips(int64_t taps) const;  // for rows of a filter, one after another
  std::string text() const;           // for names
};

const Family& depthwise();

}  // namespace tamp::kernels
