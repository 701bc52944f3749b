// What loads of four neighbouring channels read where the number of channels is no multiple of four. Of a pixel of 39 channels that lies
// as 40 the last load reads one element behind the last channel: padding, whose value nobody uses. It is read all the same, so rTasks
// declare it. Where the 39 channels are a part of a wider pixel (a view of a Concat), the same load would read a channel of the next
// part, which others may be writing: no such loads there.
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
