// Host side of channel_sums.cuh: the first half of squeeze-and-excite in quantised networks (rounded_excitation.h). The rOperator fixes the
// tiles.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "compiler/support/error.h"
#include "kernels/args.h"
#include "kernels/excite/map.h"
#include "kernels/excite/numbers.cuh"
#include "kernels/excite/rounded_excitation.h"
#include "kernels/family.h"
#include "kernels/loop.h"
#include "kernels/tile/depthwise_item.h"
#include "kernels/tile/numbers.cuh"

namespace tamp::kernels {
namespace {

struct Summing {
  ChannelSums of;
  ChannelMap map;
  int64_t tiles = 0;
  int64_t taps = 0, stride = 1;  // taps: of a row of the filter; 0: there is no filter
  int64_t hidden = 0;            // products with the means; 0: the sums are the result

  TensorId in() const { return of.conv ? of.conv->inputs[0] : of.map; }
  int64_t rtasks() const { return map.images * map.blocks() * tiles; }
  int64_t first_bytes() const { return taps > 0 ? rk::squeeze_filter_bytes(static_cast<int>(taps * taps)) : 0; }
};

// What can be said before tensors have places; none where no body computes the rOperator.
std::optional<Summing> unplaced(const Graph& graph, const ROperator& rop) {
  std::optional<ChannelSums> found = has_epilogue(rop) ? std::nullopt : channel_sums_of(graph, rop);
  if (!found || graph.tensor(found->map).shape.size() != 4) return std::nullopt;
  Summing s;
  s.of = *std::move(found);
  s.map = map_of(graph.tensor(s.of.map));
  s.tiles = ceil_div(s.map.height, s.of.rows);
  if (s.rtasks() == 0 || s.map.width == 0 || s.map.channels % 4 != 0) return std::nullopt;
  if (s.of.weights.valid()) {
    if (!are_f32_constants(graph, {s.of.weights}) || s.tiles != 1) return std::nullopt;
    s.hidden = graph.tensor(s.of.weights).shape[0];
  }
  if (!s.of.conv) return s;
  const auto& conv = std::get<Conv>(s.of.conv->attrs);
  const Epilogue& e = s.of.conv->epilogue;
  if (!has_square_filter(conv.kernel, conv.strides, conv.dilations) || e.activation != Activation::rounded || e.residual.valid() || e.sum ||
      !rounded_range(e))
    return std::nullopt;
  if (conv.group != s.map.channels || !are_f32_constants(graph, {s.of.conv->inputs[1], e.bias})) return std::nullopt;
  if (s.of.lookup.table.valid() && s.of.lookup.low != rounded_range(e)->low) return std::nullopt;
  s.taps = conv.kernel[0];
  s.stride = conv.strides[0];
  return s;
}

const Conv& conv_of(const Summing& s) { return std::get<Conv>(s.of.conv->attrs); }

std::vector<DepthwiseItem> items_of(const Summing& s) {
  if (s.taps == 0) return {{1, 1}};
  if (s.taps == 3) return {{2, 1}, {4, 1}};
  return {{7, 4}};
}

// Rows of the product in a chunk of weights: as few chunks as there can be, of the same size. 0: not even one turn fits.
int64_t chunk_rows_of(const Summing& s, const ShapedVDevice& d) {
  constexpr int64_t kGranule = rk::kWarp / rk::kSqueezeLanes;
  const int64_t all = ceil_div(s.hidden, kGranule) * kGranule;
  const int64_t most = (d.weight_stage_bytes - s.first_bytes()) / rk::squeeze_chunk_bytes(0, 1, 2) / kGranule * kGranule;
  return most <= 0 ? 0 : ceil_div(ceil_div(all, ceil_div(all, most)), kGranule) * kGranule;
}
// Whether chunks of weights fit.
bool has_chunks(const Summing& s, const ShapedVDevice& d) {
  return s.first_bytes() <= d.weight_stage_bytes && (s.hidden == 0 || chunk_rows_of(s, d) > 0);
}

void append_product(const Graph& graph, const Summing& s, int64_t chunk_rows, Phase& phase) {
  if (s.hidden == 0) return;
  const Tensor& sums = graph.tensor(s.of.sums);
  phase.args.push_back({"product", struct_arg({{"sums", arg(TensorArg{s.of.sums})},
                                               {"sums_image", arg(sums.place.strides[0])},
                                               {"sums_part", arg(sums.place.strides[2])},
                                               {"hidden", arg(s.hidden)},
                                               {"padded_hidden", arg(padded_hidden(s.hidden))},
                                               {"channels", arg(s.map.channels)},
                                               {"chunk_rows", arg(chunk_rows)},
                                               {"chunks", arg(ceil_div(s.hidden, chunk_rows))},
                                               {"chunk_first", arg(s.first_bytes())},
                                               {"tiles", divisor_arg(s.tiles)},
                                               {"blocks", divisor_arg(s.map.blocks())}})});
  phase.args.push_back(
      {"mean",
       struct_arg({{"scale", float_arg(s.of.mean.scale)}, {"low", float_arg(s.of.mean.low)}, {"high", float_arg(s.of.mean.high)}})});
}

ArgValue sums_arg(const Graph& graph, const Summing& s) {
  const Tensor& sums = graph.tensor(s.of.sums);
  return struct_arg({{"sums", arg(TensorArg{s.of.sums})},
                     {"sums_image", arg(sums.place.strides[0])},
                     {"sums_part", arg(sums.place.strides[2])},
                     {"channels", arg(s.map.channels)},
                     {"low", float_arg(static_cast<float>(low_of(graph, s.of.map)))},
                     {"tiles", divisor_arg(s.tiles)},
                     {"blocks", divisor_arg(s.map.blocks())}});
}

void set_header(const Graph& graph, const Summing& s, Phase& phase) {
  if (is_whole_byte(graph.tensor(s.in()).dtype) || is_whole_byte(graph.tensor(s.of.map).dtype))
    phase.header = "kernels/excite/channel_sums_bytes.cuh";
}

constexpr int64_t kAtOnce = rk::kExciteThreads / (rk::kExciteChannels / 4);  // pixels
int64_t pixels_of_thread(const Summing& s) { return ceil_div(std::min(s.of.rows, s.map.height) * s.map.width, kAtOnce); }

void add_plain(const Graph& graph, const Summing& s, Phase& phase) {
  const Tensor& in = graph.tensor(s.of.map);
  set_body(phase, "kernels/excite/channel_sums.cuh", "rk::channel_sums", "rk::ChannelSumsArgs");
  phase.template_args = {{"kVector", "4"}, {"kSqueezes", s.hidden > 0 ? "true" : "false"}};
  if (in.dtype != DType::f32) phase.template_args.emplace_back("In", value_type(in.dtype));
  if (const int64_t ahead = loads_ahead(in, pixels_of_thread(s)); ahead != rk::kExciteAhead)
    phase.template_args.emplace_back("kAhead", std::to_string(ahead));
  phase.args = {{"in", arg(TensorArg{s.of.map})}, {"sums", sums_arg(graph, s)}, {"in_strides", map_strides(in)},
                {"height", arg(s.map.height)},    {"rows", arg(s.of.rows)},     {"width", divisor_arg(s.map.width)}};
}

int64_t ring_bytes(const Phase& phase) { return phase.ring.blocks * phase.ring.chunks_per_rtask * phase.ring.chunk_bytes; }

void add_depthwise(const Graph& graph, const Summing& s, DepthwiseItem item, Phase& phase) {
  const Tensor &in = graph.tensor(s.in()), &made = graph.tensor(s.of.map);
  const Conv& conv = conv_of(s);
  const bool has_table = s.of.lookup.table.valid();
  set_body(phase, "kernels/excite/channel_sums.cuh", "rk::depthwise_sums", "rk::DepthwiseSumsArgs");
  phase.template_args = {{"kTaps", std::to_string(s.taps)},
                         {"kStride", std::to_string(s.stride)},
                         {"kPixels", std::to_string(item.pixels)},
                         {"kParts", std::to_string(item.parts)},
                         {"kSqueezes", s.hidden > 0 ? "true" : "false"}};
  if (has_table || in.dtype != DType::f32 || made.dtype != DType::f32) {
    phase.template_args.emplace_back("In", value_type(in.dtype));
    phase.template_args.emplace_back("Out", value_type(made.dtype));
  }
  if (has_table) phase.template_args.emplace_back("kTable", "true");
  const int64_t outside = 0x01010101 * (-low_of(graph, s.in()) & 0xFF);
  const Epilogue& e = s.of.conv->epilogue;
  phase.args = {{"outside", array_arg({outside, outside, outside, outside})},
                {"in", arg(TensorArg{s.in()})},
                {"out", arg(TensorArg{s.of.map})},
                {"sums", sums_arg(graph, s)},
                {"in_strides", map_strides(in)},
                {"out_strides", map_strides(made)},
                {"height", arg(in.shape[2])},
                {"width", arg(in.shape[3])},
                {"out_height", arg(s.map.height)},
                {"out_width", arg(s.map.width)},
                {"pad", array_arg({conv.pads_begin[0], conv.pads_begin[1]})},
                {"rows", arg(s.of.rows)},
                {"column_blocks", divisor_arg(ceil_div(s.map.width, item.pixels))},
                {"a", float_arg(e.a)},
                {"b", float_arg(e.b)},
                {"table", has_table ? ArgValue{PackedArg{ring_bytes(phase)}} : null_arg()}};
}

double bytes_of_rtask(const Graph& graph, const Summing& s) {
  const double values = static_cast<double>(std::min(s.of.rows, s.map.height) * s.map.width * kSqueezeBlock);
  const double in = static_cast<double>(bytes_of(graph.tensor(s.in()).dtype));
  if (s.taps == 0) return values * in;
  const double read = values * static_cast<double>(s.taps * s.stride);  // the pixels of an item share columns
  return read * in + values * static_cast<double>(bytes_of(graph.tensor(s.of.map).dtype));
}
double flops_of_rtask(const Summing& s) {
  const double values = static_cast<double>(std::min(s.of.rows, s.map.height) * s.map.width * kSqueezeBlock);
  return values * static_cast<double>(s.taps == 0 ? 1 : 2 * s.taps * s.taps + 20) + static_cast<double>(2 * s.hidden * kSqueezeBlock);
}

// The time of a rTask's bytes and arithmetic while all vEUs are at work, and that of trips to L2 and of what is computed between them.
double busy_us(const Graph& graph, const Summing& s, const ShapedVDevice& d) {
  const double veus = static_cast<double>(d.veus());
  return std::max(bytes_of_rtask(graph, s) / (d.l2_gb_per_s * 1e3 / veus),
                  flops_of_rtask(s) / (d.fp32_tflops * 1e6 / veus * d.cost("depthwise.vector_efficiency")));
}
double latency_us(const Graph& graph, const Summing& s, const ShapedVDevice& d, DepthwiseItem item) {
  const int64_t items = std::min(s.of.rows, s.map.height) * ceil_div(s.map.width, item.pixels);
  const double trips_us = s.taps == 0 ? sum_turns_us(graph.tensor(s.of.map), pixels_of_thread(s), d)
                                      : static_cast<double>(ceil_div(items * item.parts, kAtOnce)) *
                                            (static_cast<double>(item.trips(s.taps)) * d.cost("squeeze.row_us") +
                                             static_cast<double>(item.own()) * d.cost("squeeze.pixel_us"));
  return d.cost("squeeze.finish_us") + std::max(trips_us - busy_us(graph, s, d), 0.0);
}

RKernel rkernel_of(const Request& request, const Summing& s, DepthwiseItem item) {
  Phase phase;
  const int64_t chunk_rows = s.hidden > 0 ? chunk_rows_of(s, request.vdevice) : 0;
  if (s.taps > 0 || s.hidden > 0) {
    phase.ring = {rk::squeeze_chunk_bytes(static_cast<int>(s.first_bytes()), static_cast<int>(chunk_rows), 2),
                  chunk_rows > 0 ? ceil_div(s.hidden, chunk_rows) : 1, s.tiles, s.map.blocks()};
  }
  if (s.taps > 0)
    add_depthwise(request.graph, s, item, phase);
  else
    add_plain(request.graph, s, phase);
  append_product(request.graph, s, chunk_rows, phase);
  set_header(request.graph, s, phase);
  phase.awaits_inputs = true;
  phase.rtasks = s.rtasks();
  phase.work_bytes = rk::kSqueezeWorkBytes;
  phase.cost.activation_bytes = bytes_of_rtask(request.graph, s);
  phase.cost.weight_bytes = static_cast<double>(phase.ring.chunk_bytes * phase.ring.chunks_per_rtask);
  phase.cost.flops = flops_of_rtask(s);
  phase.cost.efficiency = request.vdevice.cost("depthwise.vector_efficiency");
  phase.cost.latency_us = latency_us(request.graph, s, request.vdevice, item);
  const char* const squeezes = s.hidden > 0 ? ", squeezes" : "";
  const std::string name = s.taps > 0 ? fmt::format("depthwise_sums<{}, {}, {}{}>", s.taps, item.text(), phase.rtasks, squeezes)
                                      : fmt::format("channel_sums<{}{}>", phase.rtasks, squeezes);
  return one_phase(name, {{"pixels", item.pixels}, {"parts", item.parts}, {"chunk_rows", chunk_rows}}, phase);
}

std::vector<RKernel> offers(const Request& request) {
  const auto& [graph, rop, vdevice, precision] = request;
  const std::optional<Summing> s = unplaced(graph, rop);
  if (!s) return {};
  for (const TensorId id : {s->in(), s->of.map}) {
    const Tensor& tensor = graph.tensor(id);
    if (!takes_map(tensor, precision, /*bytes=*/true) || !has_vector_pixels(tensor)) return {};
  }
  const Tensor& sums = graph.tensor(s->of.sums);
  const std::vector<int64_t>& strides = sums.place.strides;
  if (!is_plain_f32(sums) || strides[1] != 1 || !has_chunks(*s, vdevice)) return {};
  std::vector<RKernel> out;
  for (const DepthwiseItem item : items_of(*s)) out.push_back(rkernel_of(request, *s, item));
  return out;
}

// Filters and biases of a block, with what bytes that begin at another number than 0 bring to each sum.
void pack_filters(const Graph& graph, const Summing& s, const RingWeights& ring, Bytes& bytes) {
  const int64_t taps = s.taps * s.taps, low = low_of(graph, s.in());
  const float* const filters = f32_data(graph.tensor(s.of.conv->inputs[1]));
  const float* const biases = f32_data_or_null(graph, s.of.conv->epilogue.bias);
  for (int64_t c = 0; c < s.map.channels; ++c) {
    std::byte* const to = bytes.data() + c / kSqueezeBlock * ring.chunks_per_rtask * ring.chunk_bytes;
    const auto put = [&](int64_t row, float value) { std::memcpy(to + (row * kSqueezeBlock + c % kSqueezeBlock) * 4, &value, 4); };
    double bias = biases != nullptr ? biases[c] : 0;
    for (int64_t tap = 0; tap < taps; ++tap) {
      put(tap, filters[c * taps + tap]);
      bias += static_cast<double>(low) * filters[c * taps + tap];
    }
    put(taps, static_cast<float>(bias));
  }
}

// The block's columns of rows [row, row + chunk_rows) of FW, and the rows' scales.
void pack_product(const Graph& graph, const Summing& s, const RingWeights& ring, int64_t chunk_rows, Bytes& bytes) {
  const float* const data = f32_data(graph.tensor(s.of.weights));
  for (int64_t block = 0; block < ring.blocks; ++block) {
    const int64_t begin = block * kSqueezeBlock, count = std::min(kSqueezeBlock, s.map.channels - begin);
    for (int64_t row = 0; row < s.hidden; ++row) {
      std::byte* const to = bytes.data() + (block * ring.chunks_per_rtask + row / chunk_rows) * ring.chunk_bytes + s.first_bytes();
      const float* const from = data + row * s.map.channels + begin;
      const float scale = pack_weights({from, from + count}, /*narrow=*/true, to + row % chunk_rows * kSqueezeBlock * 2);
      std::memcpy(to + chunk_rows * kSqueezeBlock * 2 + row % chunk_rows * 4, &scale, 4);
    }
  }
}

// The blocks' chunks. Behind all, the table, as its numbers are stored.
Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int) {
  const Summing s = known(unplaced(graph, rop), "channel_sums", rop);
  const RingWeights& ring = rkernel.phases[0].ring;
  Bytes bytes(static_cast<size_t>(ring.blocks * ring.chunks_per_rtask * ring.chunk_bytes));
  if (s.taps > 0) pack_filters(graph, s, ring, bytes);
  if (s.hidden > 0) pack_product(graph, s, ring, rkernel.config_value("chunk_rows"), bytes);
  if (!s.of.lookup.table.valid()) return bytes;
  const Tensor& table = graph.tensor(s.of.lookup.table);
  const size_t at = bytes.size();
  bytes.resize(at + static_cast<size_t>(rk::kTableNumbers) * 4);
  for (int64_t i = 0; i < element_count(table.shape); ++i) {
    const float number = f32_data(table)[i] - static_cast<float>(low_of(graph, s.of.map));
    std::memcpy(bytes.data() + at + i * 4, &number, 4);
  }
  return bytes;
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel&, int, int64_t index, Accesses& out) {
  const Summing s = known(unplaced(graph, rop), "channel_sums", rop);
  const int64_t tile = index % s.tiles, block = index / s.tiles % s.map.blocks(), image = index / s.tiles / s.map.blocks();
  const int64_t row = tile * s.of.rows, row_end = std::min(row + s.of.rows, s.map.height), begin = block * kSqueezeBlock;
  if (s.hidden > 0)
    append_box(graph, s.of.sums, {image, 0, block}, {image + 1, padded_hidden(s.hidden), block + 1}, out.writes);
  else
    append_box(graph, s.of.sums, {image, begin, tile}, {image + 1, std::min(begin + kSqueezeBlock, s.map.channels), tile + 1}, out.writes);
  if (s.taps == 0) {
    append_map(graph, s.of.map, image, block, row, row_end, /*vector=*/true, out.reads);
    return;
  }
  append_map(graph, s.of.map, image, block, row, row_end, /*vector=*/false, out.writes);
  const Conv& conv = conv_of(s);
  const int64_t height = graph.tensor(s.in()).shape[2];
  const int64_t low = std::clamp<int64_t>(row * conv.strides[0] - conv.pads_begin[0], 0, height);
  const int64_t high = std::clamp<int64_t>((row_end - 1) * conv.strides[0] - conv.pads_begin[0] + conv.kernel[0], low, height);
  append_map(graph, s.in(), image, block, low, high, /*vector=*/true, out.reads);
}

std::optional<Estimate> estimate_unplaced(const Request& request) {
  const ShapedVDevice& d = request.vdevice;
  const std::optional<Summing> s = unplaced(request.graph, request.rop);
  if (!s || request.graph.tensor(s->in()).dtype != DType::f32 || !has_chunks(*s, d)) return std::nullopt;
  const double rounds = static_cast<double>(ceil_div(s->rtasks(), d.veus()));
  double us = std::numeric_limits<double>::infinity();
  for (const DepthwiseItem item : items_of(*s)) us = std::min(us, latency_us(request.graph, *s, d, item));
  return Estimate{d.edge_us + rounds * (d.rtask_us + us + busy_us(request.graph, *s, d))};
}

}  // namespace

Family channel_sums() {
  return {"channel_sums", offers, pack, accesses, estimate_unplaced, Narrowed::computes, /*takes_sums=*/false, /*takes_bytes=*/true};
}

}  // namespace tamp::kernels
