// Host side of depthwise_boxes.cuh. rTask t is group * tiles + tile; a group is the channels of a box, and tiles are counted along the rows
// of the map, image by image, as InputBoxes also wants. The family takes the Conv alone, or a Fused of the Conv, the Transpose that makes
// rows of its pixels, their Moments, and a copy of the convolution's result where that is wanted rounded as well.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "compiler/ir/fused.h"
#include "kernels/args.h"
#include "kernels/depthwise/numbers.cuh"
#include "kernels/family.h"
#include "kernels/loop.h"
#include "kernels/tile/product_phases.h"
#include "kernels/window.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kTaps = 7;
constexpr int64_t kColumns[] = {7, 8};  // of a tile; the body keeps up to eight sums in a thread
constexpr int64_t kTileRows[] = {2, 4, 7, 8};
constexpr int64_t kMostElements = int64_t{1} << 26;  // of a tensor, so that 32-bit offsets suffice wherever the tensor lies

// The rOperator, and how it is cut.
struct Tiled {
  Window window;
  TensorId weights, bias, kept, rounded;  // kept: the moments
  DType in = DType::f32, out = DType::f32;
  int64_t columns = 0, rows = 0;  // of a tile

  int64_t channels() const { return InputBoxes::kBoxRowBytes / bytes_of(in); }  // of a box
  int64_t groups() const { return ceil_div(window.channels, channels()); }
  int64_t slots() const { return rk::kComputeWarps * rk::kWarp * 2 / channels(); }
  int64_t parts_log2() const { return std::bit_width(static_cast<uint64_t>(slots() / rows)) - 1; }
  int64_t tiles_w() const { return ceil_div(window.out_width, columns); }
  int64_t tiles_h() const { return ceil_div(window.out_height, rows); }
  int64_t tiles() const { return window.batch * tiles_h() * tiles_w(); }
  int64_t block_floats() const { return (kTaps * kTaps + 1) * channels(); }  // weights and bias of a group
};

// The steps of a convolution with moments of its pixels.
std::optional<FusedView> moment_steps(const ROperator& rop) {
  const std::optional<FusedView> steps = FusedView::of(rop);
  if (!steps || !steps->as<Conv>(0) || !steps->as<Transpose>(1) || !steps->as<Moments>(2)) return std::nullopt;
  const bool of_pixels = steps->as<Transpose>(1)->perm == std::vector<int64_t>{0, 2, 3, 1} && steps->feeds(0, 1) && steps->feeds(1, 2);
  const bool ends = steps->count() == 3 || (steps->count() == 4 && steps->copies(0, 3));
  return of_pixels && ends && steps->output(0).valid() && steps->output(2).valid() ? steps : std::nullopt;
}

ROperator plain_conv(const ROperator& rop) {
  const std::optional<FusedView> steps = moment_steps(rop);
  return steps ? steps->alone(0) : rop;
}

// Without a tile. None where the body cannot compute the rOperator.
std::optional<Tiled> tiled_of(const Graph& graph, const ROperator& rop) {
  const ROperator conv = plain_conv(rop);
  if (!std::holds_alternative<Conv>(conv.attrs)) return std::nullopt;
  const Tensor &in = graph.tensor(conv.inputs[0]), &out = graph.tensor(conv.outputs[0]);
  if (in.shape.size() != 4 || element_count(in.shape) > kMostElements || element_count(out.shape) > kMostElements) return std::nullopt;
  const auto& attrs = std::get<Conv>(conv.attrs);
  const Activation activation = conv.epilogue.activation;
  if (has_prologue(attrs) || conv.inputs.size() != 2 || conv.epilogue.residual.valid() ||
      (activation != Activation::none && activation != Activation::relu && activation != Activation::clip))
    return std::nullopt;
  Tiled t;
  t.window = window_of(graph, conv);
  const Window& w = t.window;
  if (w.groups != w.in_channels || w.channels != w.in_channels || w.channels % 4 != 0) return std::nullopt;
  for (size_t d = 0; d < 2; ++d) {
    if (w.kernel[d] != kTaps || w.stride[d] != 1 || w.dilation[d] != 1) return std::nullopt;
  }
  t.weights = conv.inputs[1];
  t.bias = conv.epilogue.bias;
  if (!are_f32_constants(graph, {t.weights, t.bias})) return std::nullopt;
  if (const std::optional<FusedView> steps = moment_steps(rop)) {
    t.kept = steps->output(2);
    if (steps->count() > 3) t.rounded = steps->output(3);
  }
  t.in = in.dtype;
  t.out = out.dtype;
  return t;
}

// Whether tensors lie and have types as the body wants it.
bool takes_places(const Graph& graph, const Tiled& t) {
  const Window& w = t.window;
  const Tensor &in = graph.tensor(w.in), &out = graph.tensor(w.out);
  if (!is_plain_values(in) || !is_plain_values(out) || !lies_for_boxes(in)) return false;
  if (is_narrow(t.in) && is_narrow(t.out) && t.in != t.out) return false;
  if (in.role == Role::constant || graph.buffers[in.place.buffer.index()].kind != BufferKind::arena) return false;
  if (w.out_strides[1] != 1 || w.out_strides[0] % 4 != 0 || w.out_strides[2] % 4 != 0 || w.out_strides[3] % 4 != 0 ||
      out.place.offset % 4 != 0)
    return false;
  if (t.rounded.valid()) {
    const Tensor& rounded = graph.tensor(t.rounded);
    const bool lies_alike = rounded.place.strides == out.place.strides && rounded.place.offset % 4 == 0;
    if (t.out != DType::f32 || rounded.dtype != DType::f16 || !is_plain_values(rounded) || !lies_alike) return false;
  }
  return !t.kept.valid() || (w.channels % kMomentColumns == 0 && is_plain_f32(graph.tensor(t.kept)) && is_row_major(graph.tensor(t.kept)));
}

InputBoxes boxes_of(const Tiled& t) {
  const Window& w = t.window;
  InputBoxes boxes;
  boxes.tensor = w.in;
  boxes.extents = {w.channels, w.width, w.height, w.batch};
  boxes.strides = {1, w.in_strides[3], w.in_strides[2], w.in_strides[0]};
  for (size_t d = 1; d < 4; ++d) {
    if (boxes.extents[d] == 1) boxes.strides[d] = ceil_div(w.channels, 8) * 8;  // never used; the copy engine wants a valid stride
  }
  boxes.box_w = rk::kDepthwiseColumns;
  boxes.box_h = t.rows + kTaps - 1;
  boxes.tiles_w = t.tiles_w();
  boxes.tiles_h = t.tiles_h();
  boxes.images = w.batch;
  boxes.begin_w = -w.pad[1];
  boxes.begin_h = -w.pad[0];
  boxes.step_w = t.columns;
  boxes.step_h = t.rows;
  boxes.group_channels = t.channels();
  boxes.boxes = boxes.boxes_per_split = boxes.boxes_per_chunk = 1;
  boxes.value_bytes = bytes_of(t.in);
  return boxes;
}

Phase phase_of(const Request& request, const Tiled& t) {
  const Window& w = t.window;
  const ROperator conv = plain_conv(request.rop);
  Phase phase = body_phase("kernels/depthwise/depthwise_boxes.cuh", "rk::depthwise_boxes", "rk::DepthwiseBoxesArgs");
  phase.template_args = {{"kTaps", std::to_string(kTaps)},
                         {"kPixels", std::to_string(t.columns)},
                         {"kKeeps", t.kept.valid() ? "true" : "false"},
                         {"In", value_type(t.in)},
                         {"Out", value_type(t.out)}};
  if (t.rounded.valid()) phase.template_args.emplace_back("kRounds", "true");
  phase.args = {{"out", arg(TensorArg{w.out})},
                {"kept", tensor_arg(t.kept)},
                {"rounded", tensor_arg(t.rounded)},
                {"out_strides", array_arg({w.out_strides[0], w.out_strides[2], w.out_strides[3]})},
                {"channels", arg(w.channels)},
                {"grid_h", arg(w.out_height)},
                {"grid_w", arg(w.out_width)},
                {"tile_h", arg(t.rows)},
                {"parts_log2", arg(t.parts_log2())},
                {"kept_parts", arg(w.channels / kMomentColumns)},
                {"clip", clip_arg(conv.epilogue, false)},
                {"tiles", divisor_arg(t.tiles())},
                {"tiles_w", divisor_arg(t.tiles_w())},
                {"tiles_h", divisor_arg(t.tiles_h())}};
  phase.rtasks = t.groups() * t.tiles();
  phase.work_bytes = rk::depthwise_work_bytes(static_cast<int>(t.columns));
  phase.ring = {t.block_floats() * 4, 1, t.tiles(), t.groups()};
  phase.boxes = boxes_of(t);

  const ShapedVDevice& d = request.vdevice;
  const auto cost = [&](const char* name) { return d.cost(std::string("depthwise_boxes.") + name); };
  const double copied = static_cast<double>(phase.boxes->copied_bytes()), results = static_cast<double>(t.rows * t.columns * t.channels());
  phase.cost.flops = results * 2 * static_cast<double>(kTaps * kTaps);
  phase.cost.activation_bytes = copied + results * static_cast<double>(bytes_of(t.out) + (t.rounded.valid() ? 2 : 0));
  phase.cost.weight_bytes = static_cast<double>(t.block_floats() * 4);
  const int64_t rows_of_filter = ceil_div(kTaps, int64_t{1} << t.parts_log2());  // of a thread
  phase.cost.calibrated_cycles = cost("fixed_cycles") + (t.kept.valid() ? cost("moments_cycles") : 0) +
                                 cost("column_cycles") * static_cast<double>(rows_of_filter * t.columns) +
                                 cost("input_byte_cycles") * copied;
  return phase;
}

RKernel rkernel_of(const Request& request, const Tiled& t) {
  const std::string name = fmt::format("depthwise_boxes<{}, {}x{} pixels{}>", kTaps, t.rows, t.columns,
                                       !t.kept.valid()     ? ""
                                       : t.rounded.valid() ? ", moments, rounded"
                                                           : ", moments");
  return one_phase(name, {{"columns", t.columns}, {"rows", t.rows}}, phase_of(request, t));
}

std::vector<RKernel> offers(const Request& request) {
  const ShapedVDevice& d = request.vdevice;
  if (d.input_stages == 0) return {};
  std::optional<Tiled> t = tiled_of(request.graph, request.rop);
  if (!t || !takes_places(request.graph, *t) || t->block_floats() * 4 > d.weight_stage_bytes) return {};
  std::vector<RKernel> rkernels;
  for (const int64_t columns : kColumns) {
    t->columns = columns;
    for (const int64_t rows : kTileRows) {
      t->rows = rows;
      const bool fits =
          boxes_of(*t).box_bytes() <= d.input_stage_bytes && rk::depthwise_work_bytes(static_cast<int>(columns)) <= d.work_beside_inputs();
      if (rows <= t->slots() && fits) rkernels.push_back(rkernel_of(request, *t));
    }
  }
  return rkernels;
}

Tiled tiled_as(const Graph& graph, const ROperator& rop, const RKernel& rkernel) {
  Tiled t = *tiled_of(graph, rop);
  t.columns = rkernel.config_value("columns");
  t.rows = rkernel.config_value("rows");
  return t;
}

// w[c][0][ky][kx] -> group by group [ky][kx][c], then the bias of the group's channels; zeros for channels that do not exist.
Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int) {
  const Tiled t = tiled_as(graph, rop, rkernel);
  const float* const weights = f32_data(graph.tensor(t.weights));
  const float* const bias = f32_data_or_null(graph, t.bias);
  constexpr int64_t kAllTaps = kTaps * kTaps;
  std::vector<float> packed(static_cast<size_t>(t.groups() * t.block_floats()));
  for (int64_t c = 0; c < t.window.channels; ++c) {
    float* const to = packed.data() + c / t.channels() * t.block_floats() + c % t.channels();
    for (int64_t tap = 0; tap < kAllTaps; ++tap) to[tap * t.channels()] = weights[c * kAllTaps + tap];
    if (bias != nullptr) to[kAllTaps * t.channels()] = bias[c];
  }
  return packed_bytes(packed);
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const Tiled t = tiled_as(graph, rop, rkernel);
  const Window& w = t.window;
  const InputBoxes boxes = boxes_of(t);
  const int64_t tile = index % t.tiles(), image = tile / t.tiles_w() / t.tiles_h();
  const int64_t first_c = index / t.tiles() * t.channels(), last_c = std::min(first_c + t.channels(), w.channels);
  const int64_t first_h = tile / t.tiles_w() % t.tiles_h() * t.rows, last_h = std::min(first_h + t.rows, w.out_height);
  const int64_t first_w = tile % t.tiles_w() * t.columns, last_w = std::min(first_w + t.columns, w.out_width);
  for (const TensorId id : {w.out, t.rounded}) {
    if (id.valid()) append_box(graph, id, {image, first_c, first_h, first_w}, {image + 1, last_c, last_h, last_w}, out.writes);
  }
  const auto inside = [](int64_t at, int64_t extent) { return std::clamp<int64_t>(at, 0, extent); };
  append_box(graph, w.in, {image, first_c, inside(first_h - w.pad[0], w.height), inside(first_w - w.pad[1], w.width)},
             {image + 1, last_c, inside(first_h - w.pad[0] + boxes.box_h, w.height), inside(first_w - w.pad[1] + boxes.box_w, w.width)},
             out.reads);
  for (int64_t h = first_h; h < last_h && t.kept.valid(); ++h) {
    const int64_t row = (image * w.out_height + h) * w.out_width;
    append_box(graph, t.kept, {row + first_w, first_c / kMomentColumns, 0}, {row + last_w, last_c / kMomentColumns, 2}, out.writes);
  }
}

}  // namespace

Family depthwise_boxes() { return {"depthwise_boxes", offers, pack, accesses}; }

}  // namespace tamp::kernels
