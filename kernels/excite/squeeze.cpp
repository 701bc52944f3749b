// Host side of squeeze.cuh and depthwise_squeeze.cuh. The rOperator fixes the parts; the only choice is the items of the depthwise body.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "compiler/support/error.h"
#include "kernels/args.h"
#include "kernels/excite/map.h"
#include "kernels/excite/numbers.cuh"
#include "kernels/family.h"
#include "kernels/loop.h"
#include "kernels/tile/depthwise_item.h"

namespace tamp::kernels {
namespace {

struct Squeezing {
  const ChannelSqueeze* op = nullptr;
  TensorId in, made, weights, sums;  // made: the depthwise convolution's result
  ChannelMap map;                    // the map that is squeezed
  int64_t hidden = 0, tiles = 0;
  int64_t taps = 0, stride = 1;  // taps: of a row of the filter; 0: there is no filter
  bool vector = true;            // four channels at once; decided when tensors have places

  int64_t rtasks() const { return map.images * map.blocks() * tiles; }
  int64_t first_bytes() const { return taps > 0 ? rk::squeeze_filter_bytes(static_cast<int>(taps * taps)) : 0; }
  int64_t rows_at_once() const { return rk::kExciteThreads / (vector ? rk::kExciteChannels / 4 : rk::kExciteChannels); }

  // Few choices, so that the depthwise convolutions of a network share bodies: each further body is code that comes from L2.
  std::vector<DepthwiseItem> items() const {
    if (!vector || taps == 0) return {{2, 1}};
    if (taps == 3) return {{2, 1}, {4, 1}};
    return {{7, 4}};
  }
};

// What can be said before tensors have places; none where no body computes the rOperator.
std::optional<Squeezing> unplaced(const Graph& graph, const ROperator& rop) {
  const auto* const op = std::get_if<ChannelSqueeze>(&rop.attrs);
  if (op == nullptr || has_epilogue(rop)) return std::nullopt;
  if (!are_f32_constants(graph, {rop.inputs.begin() + 1, rop.inputs.end()}) ||
      (op->depthwise && !has_square_filter(op->depthwise->kernel, op->depthwise->strides, op->depthwise->dilations)))
    return std::nullopt;
  Squeezing s;
  s.op = op;
  s.in = rop.inputs[0];
  s.weights = rop.inputs[1];
  s.sums = rop.outputs[0];
  s.map = map_of(graph.tensor(s.in));
  if (op->depthwise) {
    s.made = rop.outputs[1];
    s.map = map_of(graph.tensor(s.made));
    s.taps = op->depthwise->kernel[0];
    s.stride = op->depthwise->strides[0];
  }
  s.hidden = graph.tensor(s.weights).shape[0];
  s.tiles = ceil_div(s.map.height, op->rows);
  if (s.rtasks() == 0 || s.map.width == 0 || s.hidden == 0) return std::nullopt;
  return s;
}

Squeezing placed(const Graph& graph, Squeezing s) {
  s.vector = has_vector_pixels(graph.tensor(s.in)) && (!s.made.valid() || has_vector_pixels(graph.tensor(s.made)));
  return s;
}

// Rows of the product in a chunk: as few chunks as there can be, of the same size. 0: not even one turn fits.
int64_t chunk_rows_of(const Squeezing& s, const ShapedVDevice& d, bool narrow) {
  const int64_t granule = rk::kWarp / rk::kSqueezeLanes, all = ceil_div(s.hidden, granule) * granule;
  const int64_t row_bytes = rk::squeeze_chunk_bytes(0, 1, static_cast<int>(weight_bytes_of(narrow)));
  const int64_t most = (d.weight_stage_bytes - s.first_bytes()) / row_bytes / granule * granule;
  if (most <= 0) return 0;
  return ceil_div(ceil_div(all, ceil_div(all, most)), granule) * granule;
}

int64_t items_of(const Squeezing& s, int64_t pixels) { return std::min(s.op->rows, s.map.height) * ceil_div(s.map.width, pixels); }

ArgValue product_arg(const Graph& graph, const Squeezing& s, int64_t chunk_rows) {
  const Tensor& sums = graph.tensor(s.sums);
  return struct_arg({{"sums", arg(TensorArg{s.sums})},
                     {"sums_image", arg(sums.place.strides[0])},
                     {"sums_part", arg(sums.place.strides[2])},
                     {"hidden", arg(s.hidden)},
                     {"padded_hidden", arg(padded_hidden(s.hidden))},
                     {"channels", arg(s.map.channels)},
                     {"chunk_rows", arg(chunk_rows)},
                     {"chunks", arg(ceil_div(s.hidden, chunk_rows))},
                     {"chunk_first", arg(s.first_bytes())},
                     {"tiles", divisor_arg(s.tiles)},
                     {"blocks", divisor_arg(s.map.blocks())}});
}

void add_depthwise(const Graph& graph, const Squeezing& s, int64_t chunk_rows, DepthwiseItem item, bool narrow, Phase& phase) {
  const Tensor &in = graph.tensor(s.in), &made = graph.tensor(s.made);
  const DepthwisePrologue& conv = *s.op->depthwise;
  set_body(phase, "kernels/excite/depthwise_squeeze.cuh", "rk::depthwise_squeeze", "rk::DepthwiseSqueezeArgs");
  phase.template_args = {{"kVector", s.vector ? "4" : "1"},      {"kTaps", std::to_string(s.taps)},
                         {"kStride", std::to_string(s.stride)},  {"kPixels", std::to_string(item.pixels)},
                         {"kParts", std::to_string(item.parts)}, {"NARROW", narrow ? "true" : "false"}};
  add_value_types(phase, in.dtype, made.dtype);
  phase.args = {{"zeros", array_arg({0, 0, 0, 0})},
                {"in", arg(TensorArg{s.in})},
                {"out", arg(TensorArg{s.made})},
                {"product", product_arg(graph, s, chunk_rows)},
                {"in_strides", map_strides(in)},
                {"out_strides", map_strides(made)},
                {"height", arg(in.shape[2])},
                {"width", arg(in.shape[3])},
                {"out_height", arg(s.map.height)},
                {"out_width", arg(s.map.width)},
                {"pad", array_arg({conv.pads_begin[0], conv.pads_begin[1]})},
                {"rows", arg(s.op->rows)},
                {"column_blocks", divisor_arg(ceil_div(s.map.width, item.pixels))},
                {"activation", arg(static_cast<int64_t>(conv.activation.kind))},
                {"a", float_arg(conv.activation.a)},
                {"b", float_arg(conv.activation.b)}};
}

void add_plain(const Graph& graph, const Squeezing& s, int64_t chunk_rows, bool narrow, Phase& phase) {
  const Tensor& in = graph.tensor(s.in);
  set_body(phase, "kernels/excite/squeeze.cuh", "rk::squeeze", "rk::SqueezeArgs");
  phase.template_args = {{"kVector", s.vector ? "4" : "1"}, {"NARROW", narrow ? "true" : "false"}};
  if (is_narrow(in.dtype)) phase.template_args.emplace_back("In", value_type(in.dtype));
  if (const int64_t ahead = loads_ahead(in, ceil_div(items_of(s, 1), s.rows_at_once())); ahead != rk::kExciteAhead)
    phase.template_args.emplace_back("kAhead", std::to_string(ahead));
  phase.args = {{"in", arg(TensorArg{s.in})},    {"product", product_arg(graph, s, chunk_rows)},
                {"in_strides", map_strides(in)}, {"height", arg(s.map.height)},
                {"rows", arg(s.op->rows)},       {"width", divisor_arg(s.map.width)}};
}

double bytes_of_rtask(const Graph& graph, const Squeezing& s) {
  const double values = static_cast<double>(items_of(s, 1) * kSqueezeBlock), hidden = static_cast<double>(s.hidden);
  const double in = static_cast<double>(bytes_of(graph.tensor(s.in).dtype));
  if (s.taps == 0) return values * in + hidden * 4;
  const double read = values * static_cast<double>(s.taps * s.stride);  // the pixels of an item share columns
  return read * in + values * static_cast<double>(bytes_of(graph.tensor(s.made).dtype)) + hidden * 4;
}

double flops_of_rtask(const Squeezing& s) {
  const double values = static_cast<double>(items_of(s, 1) * kSqueezeBlock);
  return values * static_cast<double>(2 * s.taps * s.taps + 20) + static_cast<double>(2 * s.hidden * kSqueezeBlock);
}

double efficiency_of(const Squeezing& s, const ShapedVDevice& d) {
  return d.cost(s.vector ? "depthwise.vector_efficiency" : "depthwise.scalar_efficiency");
}

// The time of trips to L2 and of what is computed between them, one after another.
double trips_us(const Graph& graph, const Squeezing& s, const ShapedVDevice& d, DepthwiseItem item) {
  const int64_t at_once = s.rows_at_once();
  if (s.taps == 0) return sum_turns_us(graph.tensor(s.in), ceil_div(items_of(s, 1), at_once), d);
  return static_cast<double>(ceil_div(items_of(s, item.pixels) * item.parts, at_once)) *
         (static_cast<double>(item.trips(s.taps)) * d.cost("squeeze.row_us") +
          static_cast<double>(item.own()) * d.cost("squeeze.pixel_us"));
}

// The time of a rTask's bytes and arithmetic while all vEUs are at work.
double busy_us(const Graph& graph, const Squeezing& s, const ShapedVDevice& d) {
  const double veus = static_cast<double>(d.veus());
  return std::max(bytes_of_rtask(graph, s) / (d.l2_gb_per_s * 1e3 / veus),
                  flops_of_rtask(s) / (d.fp32_tflops * 1e6 / veus * efficiency_of(s, d)));
}

// What a rTask takes beside the cost of every rTask and beside busy_us: trips to L2 count as far as they are longer.
double latency_us(const Graph& graph, const Squeezing& s, const ShapedVDevice& d, DepthwiseItem item) {
  return d.cost("squeeze.finish_us") + std::max(trips_us(graph, s, d, item) - busy_us(graph, s, d), 0.0);
}

RKernel rkernel_of(const Request& request, const Squeezing& s, int64_t chunk_rows, DepthwiseItem item, bool narrow) {
  Phase phase;
  if (s.taps > 0)
    add_depthwise(request.graph, s, chunk_rows, item, narrow, phase);
  else
    add_plain(request.graph, s, chunk_rows, narrow, phase);
  phase.awaits_inputs = true;
  phase.rtasks = s.rtasks();
  phase.work_bytes = rk::kSqueezeWorkBytes;
  const int64_t chunks = ceil_div(s.hidden, chunk_rows);
  phase.ring = {
      rk::squeeze_chunk_bytes(static_cast<int>(s.first_bytes()), static_cast<int>(chunk_rows), static_cast<int>(weight_bytes_of(narrow))),
      chunks, s.tiles, s.map.blocks()};
  phase.cost.activation_bytes = bytes_of_rtask(request.graph, s);
  phase.cost.weight_bytes = static_cast<double>(phase.ring.chunk_bytes * chunks);
  phase.cost.flops = flops_of_rtask(s);
  phase.cost.efficiency = efficiency_of(s, request.vdevice);
  phase.cost.latency_us = latency_us(request.graph, s, request.vdevice, item);
  const std::string name = s.taps > 0 ? fmt::format("depthwise_squeeze{}<{} channels, {}, {}, {}>", narrow ? "_16bit" : "",
                                                    s.vector ? 4 : 1, s.taps, item.text(), phase.rtasks)
                                      : fmt::format("squeeze{}<{} channels, {}>", narrow ? "_16bit" : "", s.vector ? 4 : 1, phase.rtasks);
  return one_phase(name, {{"pixels", item.pixels}, {"parts", item.parts}, {"chunk_rows", chunk_rows}, {"narrow", narrow}}, phase);
}

std::vector<RKernel> offers(const Request& request) {
  const std::optional<Squeezing> found = unplaced(request.graph, request.rop);
  if (!found) return {};
  for (const TensorId id : {found->in, found->made}) {
    if (id.valid() && !takes_map(request.graph.tensor(id), request.precision)) return {};
  }
  const Tensor& sums = request.graph.tensor(found->sums);
  if (!is_plain_f32(sums) || sums.place.strides[1] != 1) return {};
  const Squeezing s = placed(request.graph, *found);
  const bool narrow = request.precision != Precision::fp32;
  const int64_t chunk_rows = chunk_rows_of(s, request.vdevice, narrow);
  if (chunk_rows == 0) return {};
  std::vector<RKernel> out;
  for (const DepthwiseItem item : s.items()) out.push_back(rkernel_of(request, s, chunk_rows, item, narrow));
  return out;
}

// The filters and biases of a block, then the block's columns of rows [row, row + chunk_rows) of W, and the rows' scales.
Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int) {
  const auto* const op = std::get_if<ChannelSqueeze>(&rop.attrs);
  TAMP_CHECK(op != nullptr, "squeeze of '" + rop.name + "'");
  const RingWeights& ring = rkernel.phases[0].ring;
  const bool narrow = rkernel.config_value("narrow") != 0;
  const int64_t chunk_rows = rkernel.config_value("chunk_rows"), row_bytes = kSqueezeBlock * weight_bytes_of(narrow);
  const Tensor& weights = graph.tensor(rop.inputs[1]);
  const int64_t hidden = weights.shape[0], channels = weights.shape[1];
  const Tensor& squeezed = graph.tensor(op->depthwise ? rop.outputs[1] : rop.inputs[0]);
  const float share = 1 / static_cast<float>(squeezed.shape[2] * squeezed.shape[3]);
  const int64_t taps = op->depthwise ? op->depthwise->kernel[0] * op->depthwise->kernel[1] : 0;
  const int64_t first = op->depthwise ? rk::squeeze_filter_bytes(static_cast<int>(taps)) : 0;
  const float* const filters = taps > 0 ? f32_data(graph.tensor(rop.inputs[kSqueezeWeights])) : nullptr;
  const float* const biases = f32_data_or_null(graph, operand(rop, kSqueezeBias));
  const float* const data = f32_data(weights);

  Bytes bytes(static_cast<size_t>(ring.blocks * ring.chunks_per_rtask * ring.chunk_bytes));
  const auto put = [](std::byte* to, int64_t index, float value) { std::memcpy(to + index * 4, &value, 4); };
  for (int64_t block = 0; block < ring.blocks; ++block) {
    const int64_t begin = block * kSqueezeBlock, count = std::min(kSqueezeBlock, channels - begin);
    for (int64_t chunk = 0; chunk < ring.chunks_per_rtask; ++chunk) {
      std::byte* const to = reinterpret_cast<std::byte*>(bytes.data()) + (block * ring.chunks_per_rtask + chunk) * ring.chunk_bytes;
      for (int64_t c = 0; c < count && taps > 0; ++c) {
        for (int64_t tap = 0; tap < taps; ++tap) put(to, tap * kSqueezeBlock + c, filters[(begin + c) * taps + tap]);
        put(to, taps * kSqueezeBlock + c, biases != nullptr ? biases[begin + c] : 0.0F);
      }
      for (int64_t row = 0; row < chunk_rows && chunk * chunk_rows + row < hidden; ++row) {
        const float* const from = data + (chunk * chunk_rows + row) * channels + begin;
        const float scale = pack_weights({from, from + count}, narrow, to + first + row * row_bytes);
        put(to + first + chunk_rows * row_bytes, row, scale * share);
      }
    }
  }
  return bytes;
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel&, int, int64_t index, Accesses& out) {
  const auto& op = std::get<ChannelSqueeze>(rop.attrs);
  const TensorId in = rop.inputs[0], made = op.depthwise ? rop.outputs[1] : TensorId();
  const ChannelMap map = map_of(graph.tensor(op.depthwise ? made : in));
  const int64_t tiles = ceil_div(map.height, op.rows);
  const int64_t tile = index % tiles, block = index / tiles % map.blocks(), image = index / tiles / map.blocks();
  const int64_t row = tile * op.rows, row_end = std::min(row + op.rows, map.height), part = block * tiles + tile;
  const bool vector = has_vector_pixels(graph.tensor(in)) && (!op.depthwise || has_vector_pixels(graph.tensor(made)));
  const TensorId sums = rop.outputs[0];
  append_box(graph, sums, {image, 0, part}, {image + 1, graph.tensor(sums).shape[1], part + 1}, out.writes);
  if (!op.depthwise) {
    append_map(graph, in, image, block, row, row_end, vector, out.reads);
    return;
  }
  append_map(graph, made, image, block, row, row_end, /*vector=*/false, out.writes);
  const DepthwisePrologue& conv = *op.depthwise;
  const int64_t height = graph.tensor(in).shape[2];
  const int64_t low = std::clamp<int64_t>(row * conv.strides[0] - conv.pads_begin[0], 0, height);
  const int64_t high = std::clamp<int64_t>((row_end - 1) * conv.strides[0] - conv.pads_begin[0] + conv.kernel[0], low, height);
  append_map(graph, in, image, block, low, high, vector, out.reads);
}

// Before places are known: assumes four channels at a time, as in every map that a rKernel makes. None where a vEU would run so many
// rTasks one after another that what each takes beside the map is more than the two separate rOperators (with a depthwise convolution:
// two more edges) would take.
std::optional<Estimate> estimate_unplaced(const Request& request) {
  const ShapedVDevice& d = request.vdevice;
  const std::optional<Squeezing> s = unplaced(request.graph, request.rop);
  if (!s || request.graph.tensor(s->in).dtype != DType::f32) return std::nullopt;
  if (chunk_rows_of(*s, d, request.precision != Precision::fp32) == 0) return std::nullopt;
  const double rounds = static_cast<double>(ceil_div(s->rtasks(), d.veus()));
  const double own_edge_us = s->taps > 0 ? 0 : d.edge_us;
  if (own_edge_us + rounds * (d.rtask_us + d.cost("squeeze.finish_us")) > 2 * (d.edge_us + d.rtask_us) + d.cost("squeeze.two_bodies_us"))
    return std::nullopt;
  double us = std::numeric_limits<double>::infinity();
  for (const DepthwiseItem item : s->items()) us = std::min(us, latency_us(request.graph, *s, d, item));
  return Estimate{d.edge_us + rounds * (d.rtask_us + us + busy_us(request.graph, *s, d))};
}

}  // namespace

Family squeeze() { return {"squeeze", offers, pack, accesses, estimate_unplaced}; }

}  // namespace tamp::kernels
