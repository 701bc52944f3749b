// ConvTranspose as a Conv. Without strides it is a Conv with the kernel turned round. With a stride s, an element of the result uses only
// every s-th tap, and which ones depends on its position modulo s, its phase: the taps of each of the s phases become output channels of
// one Conv, whose results are then put side by side. So a stride of 2 with a kernel of 2 x 2 (U-Net) is a product with four times the
// channels and one copy.
//
//   one dimension, stride 2, taps a b c d:   y[2q] = x[q] a + x[q-1] c,   y[2q+1] = x[q] b + x[q-1] d
//   the Conv's kernels, turned round: (c, a) and (d, b)
//
// Few phases of many channels are Convs of their own. Each can store its results where they belong, every other pixel of every other row,
// and nothing is copied.
//
// Col2Im is the ConvTranspose whose weights put tap k of a block in place k.
#include <algorithm>

#include "compiler/frontend/importers.h"
#include "compiler/frontend/spatial_window.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// One spatial dimension of a transposed convolution, and how a Conv computes the part of it that is wanted.
struct Axis {
  int64_t in = 1, kernel = 1, stride = 1, dilation = 1;
  int64_t begin = 0, out = 1;  // the wanted part of the full result of all taps; behind the full result it may go on with zeros

  // The Conv's taps and their dilation. With a stride above 1, zeros are put between dilated taps first.
  int64_t taps() const { return stride == 1 ? kernel : ceil_div((kernel - 1) * dilation + 1, stride); }
  int64_t step() const { return stride == 1 ? dilation : 1; }
  // The Conv's results that are needed, [first, last]; each holds `stride` elements of the wanted result.
  int64_t first() const { return begin / stride; }
  int64_t last() const { return std::min((begin + out - 1) / stride, in - 1 + (taps() - 1) * step()); }
  // How many elements of the wanted part these results make.
  int64_t made() const { return std::min(out, (last() + 1) * stride - begin); }
};

struct Transposed {
  std::vector<Axis> axes;
  int64_t group = 1;
};

Shape shape_with(Shape begin, const Shape& end) {
  begin.insert(begin.end(), end.begin(), end.end());
  return begin;
}

// Zeros behind dimension d, up to `extent`.
TensorId filled_up(NodeImport& n, TensorId x, size_t d, int64_t extent) {
  const Shape shape = n.shape(x);
  if (shape[d] >= extent) return x;
  Pad pad{Ints(shape.size(), 0), Ints(shape.size(), 0)};
  pad.after[d] = extent - shape[d];
  return n.add(pad, {x});
}

TensorId cut(NodeImport& n, TensorId x, size_t d, int64_t begin, int64_t extent) {
  return n.slice_axis(x, static_cast<int64_t>(d), begin, extent);
}

// Zeros between the taps of dimension d.
TensorId spread(NodeImport& n, TensorId w, size_t d, int64_t dilation) {
  const Shape shape = n.shape(w);
  if (dilation == 1 || shape[d] == 1) return w;
  Shape apart = shape;
  apart.insert(apart.begin() + static_cast<std::ptrdiff_t>(d) + 1, 1);
  Shape together = shape;
  together[d] *= dilation;
  w = n.reshape(filled_up(n, n.reshape(w, apart), d + 1, dilation), together);
  return cut(n, w, d, 0, (shape[d] - 1) * dilation + 1);
}

// Dimensions of a shape, counted on as it is made.
struct Dimensions {
  Shape shape;
  size_t add(int64_t extent) {
    shape.push_back(extent);
    return shape.size() - 1;
  }
};

int64_t phases_of(const Transposed& op) {
  int64_t phases = 1;
  for (const Axis& axis : op.axes) phases *= axis.stride;
  return phases;
}

// W[C, M/group, kernel..] -> [M * phases, C/group, taps..]. Without groups a phase is M neighbouring channels, so that the copy behind the
// Conv moves long runs; with groups each channel has its phases beside it, because a Conv wants groups to be neighbours.
TensorId conv_weights(NodeImport& n, TensorId w, const Transposed& op) {
  const Shape shape = n.shape(w);
  for (size_t d = 0; d < op.axes.size(); ++d) {
    const Axis& axis = op.axes[d];
    if (axis.stride == 1) continue;
    w = filled_up(n, spread(n, w, d + 2, axis.dilation), d + 2, axis.taps() * axis.stride);
  }
  Dimensions apart;
  const size_t group = apart.add(op.group), in = apart.add(shape[0] / op.group), out = apart.add(shape[1]);
  Ints taps, phases;
  for (const Axis& axis : op.axes) {
    taps.push_back(static_cast<int64_t>(apart.add(axis.taps())));
    if (axis.stride > 1) phases.push_back(static_cast<int64_t>(apart.add(axis.stride)));
  }
  w = n.reshape(w, apart.shape);
  Slice turned = whole_slice(apart.shape);
  for (const int64_t d : taps) {
    turned.starts[static_cast<size_t>(d)] = apart.shape[static_cast<size_t>(d)] - 1;
    turned.steps[static_cast<size_t>(d)] = -1;
  }
  w = n.add(turned, {w});
  Ints perm = {static_cast<int64_t>(group)};
  if (op.group == 1) perm = shape_with(perm, phases);
  perm.push_back(static_cast<int64_t>(out));
  if (op.group > 1) perm = shape_with(perm, phases);
  perm.push_back(static_cast<int64_t>(in));
  w = n.add(Transpose{shape_with(perm, taps)}, {w});
  Shape together = {op.group * shape[1] * phases_of(op), shape[0] / op.group};
  for (const Axis& axis : op.axes) together.push_back(axis.taps());
  return n.reshape(w, together);
}

// One for each of the Conv's channels.
TensorId conv_bias(NodeImport& n, TensorId bias, const Transposed& op) {
  const int64_t channels = n.shape(bias)[0], phases = phases_of(op);
  if (phases == 1) return bias;
  if (op.group == 1) return n.reshape(n.expand(bias, {phases, channels}), {phases * channels});
  return n.reshape(n.expand(n.reshape(bias, {channels, 1}), {channels, phases}), {channels * phases});
}

// [N, M * phases, extents..] -> [N, M, extents * strides..].
TensorId phases_side_by_side(NodeImport& n, TensorId y, const Transposed& op) {
  const int64_t phases = phases_of(op);
  if (phases == 1) return y;
  const Shape shape = n.shape(y);
  Dimensions apart;
  Ints strides;
  const int64_t channels = shape[1] / phases;
  apart.add(shape[0]);
  size_t channel = op.group > 1 ? apart.add(channels) : 0;
  for (const Axis& axis : op.axes) {
    if (axis.stride > 1) strides.push_back(static_cast<int64_t>(apart.add(axis.stride)));
  }
  if (op.group == 1) channel = apart.add(channels);
  Ints perm = {0, static_cast<int64_t>(channel)};
  Shape together = {shape[0], channels};
  size_t next = 0;
  for (size_t d = 0; d < op.axes.size(); ++d) {
    perm.push_back(static_cast<int64_t>(apart.add(shape[d + 2])));
    if (op.axes[d].stride > 1) perm.push_back(strides[next++]);
    together.push_back(shape[d + 2] * op.axes[d].stride);
  }
  return n.reshape(n.add(Transpose{perm}, {n.reshape(y, apart.shape)}), together);
}

// Whether each phase is a Conv of its own.
bool has_own_convs(const Transposed& op, int64_t channels) {
  constexpr int64_t kMostPhases = 4, kLeastChannels = 32;
  return op.group == 1 && phases_of(op) > 1 && phases_of(op) <= kMostPhases && channels >= kLeastChannels;
}

// The results [N, M, extents..] of each phase, the last dimension's phases fastest, as [N, M, extents * strides..].
TensorId interleaved(NodeImport& n, std::vector<TensorId> phases, const Transposed& op) {
  Shape together = n.shape(phases[0]);
  for (size_t d = op.axes.size(); d-- > 0;) {
    const auto stride = static_cast<size_t>(op.axes[d].stride);
    together[d + 2] *= op.axes[d].stride;
    if (stride == 1) continue;
    std::vector<TensorId> joined;
    for (size_t first = 0; first < phases.size(); first += stride) {
      std::vector<TensorId> beside;
      for (size_t i = first; i < first + stride; ++i) {
        Shape apart = n.shape(phases[i]);
        apart.insert(apart.begin() + static_cast<std::ptrdiff_t>(d) + 3, 1);
        beside.push_back(n.reshape(phases[i], apart));
      }
      joined.push_back(n.add(Concat{static_cast<int64_t>(d) + 3}, beside));
    }
    phases = std::move(joined);
  }
  return n.reshape(phases[0], together);
}

// The Conv whose results make the wanted part. Elements that its pads cannot leave out are cut off afterwards.
TensorId conv_part(NodeImport& n, TensorId x, TensorId w, TensorId bias, const Transposed& op) {
  SpatialWindow window;
  Ints cuts;
  for (const Axis& axis : op.axes) {
    const int64_t before = (axis.taps() - 1) * axis.step() - axis.first(), after = axis.last() - (axis.in - 1);
    window.kernel.push_back(axis.taps());
    window.strides.push_back(1);
    window.dilations.push_back(axis.step());
    window.pads_begin.push_back(std::max<int64_t>(before, 0));
    window.pads_end.push_back(std::max<int64_t>(after, 0));
    cuts.push_back(std::max<int64_t>(-before, 0));
  }
  TensorId y = convolution_of(n, x, w, bias, window, op.group);
  for (size_t d = 0; d < op.axes.size(); ++d) y = cut(n, y, d + 2, cuts[d], op.axes[d].last() - op.axes[d].first() + 1);
  return y;
}

TensorId transposed_convolution(NodeImport& n, TensorId x, TensorId w, TensorId bias, const Transposed& op) {
  const bool all_made = std::all_of(op.axes.begin(), op.axes.end(), [](const Axis& axis) { return axis.made() == axis.out; });
  const int64_t channels = n.shape(w)[1];
  const TensorId weights = conv_weights(n, w, op), early = all_made ? bias : TensorId();
  TensorId y;
  if (has_own_convs(op, channels)) {
    std::vector<TensorId> phases;
    for (int64_t p = 0; p < phases_of(op); ++p) phases.push_back(conv_part(n, x, cut(n, weights, 0, p * channels, channels), early, op));
    y = interleaved(n, std::move(phases), op);
  } else {
    y = phases_side_by_side(n, conv_part(n, x, weights, early.valid() ? conv_bias(n, early, op) : early, op), op);
  }
  for (size_t d = 0; d < op.axes.size(); ++d) {
    const Axis& axis = op.axes[d];
    y = cut(n, y, d + 2, axis.begin - axis.first() * axis.stride, axis.made());
  }
  for (size_t d = 0; d < op.axes.size(); ++d) y = filled_up(n, y, d + 2, op.axes[d].out);
  if (!bias.valid() || all_made) return y;
  Shape of_channels(n.shape(y).size(), 1);
  of_channels[1] = n.shape(bias)[0];
  return n.elementwise(ElementwiseOp::add, {y, n.reshape(bias, of_channels)});
}

// Sets which part of each dimension is wanted. An odd pad goes to the end for SAME_UPPER, to the start otherwise.
void set_parts(NodeImport& n, std::vector<Axis>& axes, SpatialWindow& window) {
  const size_t spatial = axes.size();
  const Ints more = spatial_attribute(n, "output_padding", spatial, 0, 0);
  const AutoPad auto_pad = read_auto_pad(n);
  std::optional<Ints> wanted = n.find_ints("output_shape");
  if (wanted && wanted->size() == spatial + 2) wanted->erase(wanted->begin(), wanted->begin() + 2);  // some write all of the shape
  if (wanted && wanted->size() != spatial) throw n.bad("attribute 'output_shape' has {} values, expected {}", wanted->size(), spatial);
  if (auto_pad == AutoPad::none && !wanted) read_pads(n, window);
  n.ignore("pads");
  const bool same = auto_pad == AutoPad::upper || auto_pad == AutoPad::lower;
  for (size_t d = 0; d < spatial; ++d) {
    Axis& axis = axes[d];
    const int64_t all = (axis.in - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1 + more[d];
    if (all > 4 * kMaxAttribute) throw n.refuse("an extent of {} before the pads are taken off", all);
    axis.begin = window.pads_begin[d];
    axis.out = all - window.pads_begin[d] - window.pads_end[d];
    if (wanted || same) {
      axis.out = wanted ? (*wanted)[d] : axis.in * axis.stride;
      const int64_t total = std::max<int64_t>(0, all - axis.out);
      axis.begin = auto_pad == AutoPad::upper ? total / 2 : total - total / 2;
    }
    if (axis.out < 1 || axis.out > kMaxAttribute || axis.last() < axis.first())
      throw n.bad("dimension {} of the result would have {} elements from element {} on of {}", d + 2, axis.out, axis.begin, all);
  }
}

}  // namespace

void import_conv_transpose(NodeImport& n) {
  n.expect_counts(2, 3);
  const TensorId x = n.in(0), w = n.in(1), bias = n.optional_in(2);
  n.expect_float({x, w});
  if (bias.valid()) n.expect_float({x, bias});
  const Shape xs = n.shape(x), ws = n.shape(w);
  expect_spatial(n, xs, 3, "transposed convolution");
  SpatialWindow window = read_strides(n, kernel_of_weights(n, xs, ws), /*dilated=*/true);
  Transposed op;
  op.group = n.attr_int("group", 1);
  if (op.group < 1 || xs[1] % op.group != 0) throw n.bad("attribute 'group' is {}, it must divide the {} channels of X", op.group, xs[1]);
  if (ws[0] != xs[1]) throw n.bad("X has shape {}, W has shape {}: expected {} channels first", shape_text(xs), shape_text(ws), xs[1]);
  if (ws[1] > kMaxAttribute / op.group) throw n.bad("W has shape {} and there are {} groups", shape_text(ws), op.group);
  if (bias.valid() && n.shape(bias) != Shape{ws[1] * op.group})
    throw n.bad("B has shape {}, expected [{}]", shape_text(n.shape(bias)), ws[1] * op.group);
  if (element_count(xs) == 0 || element_count(ws) == 0)
    throw n.refuse("X has shape {} and W has shape {}, supported: at least one element", shape_text(xs), shape_text(ws));
  for (size_t d = 0; d < window.kernel.size(); ++d)
    op.axes.push_back({xs[d + 2], window.kernel[d], window.strides[d], window.dilations[d], 0, 1});
  set_parts(n, op.axes, window);
  n.result(0, transposed_convolution(n, x, w, bias, op));
}

void import_col2im(NodeImport& n) {
  n.expect_counts(3, 3);
  const TensorId x = n.float_in(0);
  const Shape xs = n.shape(x);
  const Ints image = n.ints(1, "image_shape"), block = n.ints(2, "block_shape");
  const size_t spatial = block.size();
  if (spatial < 1 || spatial > 3) throw n.refuse("blocks of shape {}, supported: 1-D to 3-D", shape_text(block));
  if (image.size() != spatial) throw n.bad("image_shape is {}, block_shape is {}", shape_text(image), shape_text(block));
  int64_t taps = 1, blocks = 1;
  for (const int64_t extent : block) {
    if (extent < 1 || extent > 4096 || taps > 4096) throw n.refuse("block_shape is {}, supported: up to 4096 elements", shape_text(block));
    taps *= extent;
  }
  if (taps > 4096) throw n.refuse("block_shape is {}, supported: up to 4096 elements", shape_text(block));
  SpatialWindow window = read_strides(n, block, /*dilated=*/true);
  read_pads(n, window);
  Transposed op;
  Shape apart;
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t room = image[d] > kMaxAttribute ? -1 : image[d] + window.pads_begin[d] + window.pads_end[d] - window.reach(d);
    if (image[d] < 1 || room < 0)
      throw n.bad("a block of shape {} does not fit into image_shape {} with its pads", shape_text(block), shape_text(image));
    apart.push_back(room / window.strides[d] + 1);
    blocks *= apart.back();
    op.axes.push_back({apart.back(), block[d], window.strides[d], window.dilations[d], window.pads_begin[d], image[d]});
    if (blocks > kMaxAttribute || op.axes.back().last() < op.axes.back().first())
      throw n.bad("image_shape {} with the pads given has no place for blocks", shape_text(image));
  }
  if (xs.size() != 3 || xs[1] % taps != 0 || xs[2] != blocks)
    throw n.bad("input has shape {}, expected [N, C * {}, {}]", shape_text(xs), taps, blocks);
  if (element_count(xs) == 0) throw n.refuse("input has shape {}, supported: at least one element", shape_text(xs));
  op.group = xs[1] / taps;
  n.charge(xs[1] * taps * static_cast<int64_t>(sizeof(float)));
  std::vector<float> weights(static_cast<size_t>(xs[1] * taps));
  for (int64_t channel = 0; channel < xs[1]; ++channel) weights[static_cast<size_t>(channel * taps + channel % taps)] = 1;
  const TensorId w = n.constant(ops::raw_value(DType::f32, shape_with({xs[1], 1}, block), weights));
  n.result(0, transposed_convolution(n, n.reshape(x, shape_with({xs[0], xs[1]}, apart)), n.cast(w, n.dtype(x)), TensorId(), op));
}

}  // namespace tamp::frontend
