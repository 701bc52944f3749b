#include "kernels/window.h"

#include <algorithm>

#include "compiler/support/error.h"
#include "kernels/args.h"
#include "kernels/loop.h"
#include "kernels/vectors.h"

namespace tamp::kernels {
namespace {

// Strides of [N, C, W] or [N, C, H, W] as batch, channel, row, column.
std::array<int64_t, 4> four_strides(const Tensor& tensor) {
  const std::vector<int64_t>& s = tensor.place.strides;
  return s.size() == 3 ? std::array<int64_t, 4>{s[0], s[1], 0, s[2]} : std::array<int64_t, 4>{s[0], s[1], s[2], s[3]};
}

template <class Attrs>
void set_window(Window& window, const Attrs& attrs) {
  const size_t shift = 2 - attrs.kernel.size();
  for (size_t d = 0; d < attrs.kernel.size(); ++d) {
    window.kernel[d + shift] = attrs.kernel[d];
    window.stride[d + shift] = attrs.strides[d];
    window.dilation[d + shift] = attrs.dilations[d];
    window.pad[d + shift] = attrs.pads_begin[d];
    window.pad_end[d + shift] = attrs.pads_end[d];
  }
}

bool is_vector(const Graph& graph, TensorId id, const std::array<int64_t, 4>& strides) {
  return strides[1] == 1 && strides[0] % 4 == 0 && strides[2] % 4 == 0 && strides[3] % 4 == 0 && graph.tensor(id).place.offset % 4 == 0;
}

int64_t channels_of_group(const Window& w) { return ceil_div(w.channels, w.vector) / w.channel_groups; }
int64_t items_below(const Window& w) { return ceil_div(w.out_height, w.lines); }

// Extents of the items' dimensions, outermost first, in the order in which items are numbered.
std::array<int64_t, 5> item_extents(const Window& w) {
  const int64_t column_blocks = ceil_div(w.out_width, w.pixels);
  if (w.channels_innermost && w.by_columns) return {w.batch, w.channel_groups, column_blocks, items_below(w), channels_of_group(w)};
  if (w.channels_innermost) return {w.batch, w.channel_groups, items_below(w), column_blocks, channels_of_group(w)};
  return {1, w.batch, ceil_div(w.channels, w.vector), items_below(w), column_blocks};
}

// [low, high) of batch, channel, row, column.
struct Block {
  std::array<int64_t, 4> low, high;
};

Block output_block(const Window& w, const std::vector<int64_t>& low, const std::vector<int64_t>& high) {
  std::array<size_t, 4> at = w.channels_innermost ? std::array<size_t, 4>{0, 4, 2, 3} : std::array<size_t, 4>{1, 2, 3, 4};
  if (w.channels_innermost && w.by_columns) std::swap(at[2], at[3]);
  Block block;
  for (size_t d = 0; d < 4; ++d) {
    const std::array<int64_t, 4> steps{1, w.vector, w.lines, w.pixels};
    block.low[d] = low[at[d]] * steps[d];
    block.high[d] = high[at[d]] * steps[d];
  }
  if (w.channels_innermost) {  // a block of several groups has all channels of each
    block.low[1] += low[1] * channels_of_group(w) * w.vector;
    block.high[1] += (high[1] - 1) * channels_of_group(w) * w.vector;
  }
  block.high[1] = std::min(block.high[1], w.channels);
  block.high[2] = std::min(block.high[2], w.out_height);
  block.high[3] = std::min(block.high[3], w.out_width);
  return block;
}

Block input_block(const Window& w, const Block& out) {
  Block in = out;
  const int64_t group_out = w.channels / w.groups, group_in = w.in_channels / w.groups;
  in.low[1] = out.low[1] / group_out * group_in;
  in.high[1] = ((out.high[1] - 1) / group_out + 1) * group_in;
  for (size_t d = 0; d < 2; ++d) {
    const int64_t extent = d == 0 ? w.height : w.width;
    in.low[2 + d] = std::clamp<int64_t>(out.low[2 + d] * w.stride[d] - w.pad[d], 0, extent);
    in.high[2 + d] = std::clamp<int64_t>((out.high[2 + d] - 1) * w.stride[d] - w.pad[d] + (w.kernel[d] - 1) * w.dilation[d] + 1, 0, extent);
  }
  return in;
}

// The part of the tensor that loads of whole vectors read for the block.
Block as_vectors(const Window& w, Block block) {
  const bool channel_by_channel = w.groups == w.channels;
  if (channel_by_channel && w.vector == 4) block.high[1] = whole_vectors(block.high[1]);
  return block;
}

void append_block(const Graph& graph, TensorId id, const Block& block, std::vector<Region>& regions) {
  std::vector<int64_t> low(block.low.begin(), block.low.end()), high(block.high.begin(), block.high.end());
  if (graph.tensor(id).shape.size() == 3) {
    low.erase(low.begin() + 2);
    high.erase(high.begin() + 2);
  }
  append_box(graph, id, low, high, regions);
}

}  // namespace

int64_t Window::items() const {
  int64_t count = 1;
  for (const int64_t extent : item_extents(*this)) count *= extent;
  return count;
}

Window window_of(const Graph& graph, const ROperator& rop) {
  Window w;
  w.in = rop.inputs[0];
  w.out = rop.outputs[0];
  w.residual = rop.epilogue.residual;
  const Tensor& in = graph.tensor(w.in);
  const Tensor& out = graph.tensor(w.out);
  TAMP_CHECK(in.shape.size() == 3 || in.shape.size() == 4, "'" + in.name + "' has no window");
  w.batch = out.shape[0];
  w.in_channels = in.shape[1];
  w.channels = out.shape[1];
  w.width = in.shape.back();
  w.out_width = out.shape.back();
  if (in.shape.size() == 4) {
    w.height = in.shape[2];
    w.out_height = out.shape[2];
  }
  w.in_strides = four_strides(in);
  w.out_strides = four_strides(out);
  if (w.residual.valid()) w.residual_strides = four_strides(graph.tensor(w.residual));
  w.channels_innermost = w.out_strides[1] == 1;
  w.groups = w.channels;
  if (const auto* pool = std::get_if<Pool>(&rop.attrs)) set_window(w, *pool);
  if (const auto* conv = std::get_if<Conv>(&rop.attrs)) {
    set_window(w, *conv);
    w.groups = conv->group;
  }
  return w;
}

bool is_copy(const Pool& pool) {
  const auto all = [](const std::vector<int64_t>& values, int64_t wanted) {
    return std::all_of(values.begin(), values.end(), [wanted](int64_t value) { return value == wanted; });
  };
  return all(pool.kernel, 1) && all(pool.strides, 1) && all(pool.pads_begin, 0) && all(pool.pads_end, 0);
}

bool has_vector_outputs(const Graph& graph, const Window& w) {
  return w.channels % 4 == 0 && is_vector(graph, w.out, w.out_strides) &&
         (!w.residual.valid() || is_vector(graph, w.residual, w.residual_strides));
}

bool has_vector_inputs(const Graph& graph, const Window& w) { return w.in_channels % 4 == 0 && is_vector(graph, w.in, w.in_strides); }

bool has_aligned_pixels(const Graph& graph, const Window& w) {
  const auto may_read = [&](TensorId id, const std::array<int64_t, 4>& strides) {
    return is_vector(graph, id, strides) && ends_in_padding(strides, w.channels);
  };
  return may_read(w.in, w.in_strides) && is_vector(graph, w.out, w.out_strides) &&
         (!w.residual.valid() || may_read(w.residual, w.residual_strides));
}

int64_t items_per_rtask(const Window& window, const ShapedVDevice& vdevice, int64_t rtasks) {
  return std::max(vdevice.compute_threads, ceil_div(window.items(), rtasks));
}

ArgValue window_arg(const Window& w, int64_t per_rtask) {
  const auto array = [](const auto& values) { return array_arg(std::vector<int64_t>(values.begin(), values.end())); };
  return struct_arg({{"out", arg(TensorArg{w.out})},
                     {"in", arg(TensorArg{w.in})},
                     {"out_strides", array(w.out_strides)},
                     {"in_strides", array(w.in_strides)},
                     {"height", arg(w.height)},
                     {"width", arg(w.width)},
                     {"out_width", arg(w.out_width)},
                     {"kernel", array(w.kernel)},
                     {"stride", array(w.stride)},
                     {"dilation", array(w.dilation)},
                     {"pad", array(w.pad)},
                     {"channel_blocks", divisor_arg(channels_of_group(w))},
                     {"rows", divisor_arg(items_below(w))},
                     {"column_blocks", divisor_arg(ceil_div(w.out_width, w.pixels))},
                     {"items", arg(w.items())},
                     {"items_per_rtask", arg(per_rtask)},
                     {"channels_innermost", arg(int64_t{w.channels_innermost})}});
}

void window_accesses(const Graph& graph, const ROperator& rop, const Window& w, int64_t per_rtask, int64_t index, Accesses& out) {
  const std::array<int64_t, 5> extents = item_extents(w);
  const int64_t end = std::min((index + 1) * per_rtask, w.items());
  for_each_box({extents.begin(), extents.end()}, index * per_rtask, end,
               [&](const std::vector<int64_t>& low, const std::vector<int64_t>& high) {
                 const Block block = output_block(w, low, high);
                 append_block(graph, w.out, block, out.writes);
                 if (w.residual.valid()) append_block(graph, w.residual, as_vectors(w, block), out.reads);
                 append_block(graph, w.in, as_vectors(w, input_block(w, block)), out.reads);
                 append_bias(graph, rop, block.low[1], block.high[1], out.reads);
               });
}

double window_bytes(const Window& w, double items, double reads_per_output, DType in, DType out) {
  const double outputs = items * static_cast<double>(w.vector * w.pixels * w.lines);
  const double read = static_cast<double>(bytes_of(in)), stored = static_cast<double>(bytes_of(out));
  return outputs * (stored + read * reads_per_output + (w.residual.valid() ? stored : 0));
}

}  // namespace tamp::kernels
