// Host side of kernels/vdevice/window.cuh: the geometry of pooling and direct convolution, its arguments, and the memory that
// a range of items touches. With one spatial dimension the height is 1.
#pragma once

#include <array>

#include "compiler/ir/graph.h"
#include "compiler/ir/rkernel.h"
#include "compiler/ir/shaped_vdevice.h"

namespace tamp::kernels {

struct Window {
  TensorId in, out, residual;
  int64_t batch = 1, in_channels = 1, height = 1, width = 1;
  int64_t channels = 1, out_height = 1, out_width = 1;
  int64_t groups = 1;  // an output channel sees the in_channels / groups channels of its group
  std::array<int64_t, 2> kernel{1, 1}, stride{1, 1}, dilation{1, 1}, pad{0, 0}, pad_end{0, 0};
  std::array<int64_t, 4> in_strides{}, out_strides{}, residual_strides{};
  bool channels_innermost = false;
  int64_t vector = 1, pixels = 1, lines = 1;  // channels of an item, neighbouring pixels of a row, and such rows
  // With channels innermost: channels are in `channel_groups` groups of equal size, and all items of one group come before those of the
  // next. by_columns: the items of a group go down the rows first, then to the next columns.
  int64_t channel_groups = 1;
  bool by_columns = false;

  int64_t items() const;
  double taps() const { return static_cast<double>(kernel[0] * kernel[1]); }
};

// The window of a Conv or Pool rOperator, with items of one channel and one pixel.
Window window_of(const Graph& graph, const ROperator& rop);

// One input per output, and none skipped: the pool is a copy.
bool is_copy(const Pool& pool);

// Four neighbouring output channels are one aligned vector in the output and the residual, and the same four (`input`) in
// the input.
bool has_vector_outputs(const Graph& graph, const Window& window);
bool has_vector_inputs(const Graph& graph, const Window& window);

// Both, for rOperators with as many input as output channels, any number of them: the last vector may have fewer than four channels, and is
// read with the padding behind it.
bool has_aligned_pixels(const Graph& graph, const Window& window);

// Items per rTask for about `rtasks` rTasks, never less than one per thread.
int64_t items_per_rtask(const Window& window, const ShapedVDevice& vdevice, int64_t rtasks);

ArgValue window_arg(const Window& window, int64_t items_per_rtask);

// What rTask `index` touches: its outputs, their residuals and biases, and the part of the input that their windows cover.
void window_accesses(const Graph& graph, const ROperator& rop, const Window& window, int64_t items_per_rtask, int64_t index, Accesses& out);

// Bytes that `items` items read and write, as Cost wants it; every tap is a read. `in`, `out`: of inputs, and of results and residuals.
double window_bytes(const Window& window, double items, double reads_per_output, DType in = DType::f32, DType out = DType::f32);

}  // namespace tamp::kernels
