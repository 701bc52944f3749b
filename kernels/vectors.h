// Loads of four neighbouring channels where the number of channels is no multiple of four. Example: a pixel has 39 channels and takes 40
// places in memory. The last load of the pixel also reads place 39: padding, whose value nobody uses. rTasks still declare that read.
// If the 39 channels are a part of a wider pixel (a view of a Concat), the same load would read a channel of the next part, which another
// rTask may be writing. So there are no such loads there.
#pragma once

#include <array>
#include <cstdint>

namespace tamp::kernels {

constexpr int64_t whole_vectors(int64_t channels) { return (channels + 3) / 4 * 4; }

// `strides` are those of batch, channel, row, column.
constexpr bool ends_in_padding(const std::array<int64_t, 4>& strides, int64_t channels) {
  return channels % 4 == 0 || strides[3] == whole_vectors(channels);
}

}  // namespace tamp::kernels
