// Host side of excite.cuh. The only choice is how many pixels a rTask has. ChannelExcite has a body for parts of hidden values and one for
// sums of channels; quantised networks have one of their own, for a Fused.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "compiler/support/error.h"
#include "kernels/args.h"
#include "kernels/excite/map.h"
#include "kernels/excite/numbers.cuh"
#include "kernels/excite/rounded_excitation.h"
#include "kernels/family.h"
#include "kernels/loop.h"

namespace tamp::kernels {
namespace {

enum Operand : size_t { kMap, kSums, kWeights, kHiddenBias, kBias, kFirstWeights };
static_assert(kFirstWeights == kExciteFirstWeights);

struct Excitation {
  TensorId in, sums, out;
  TensorId weights, hidden_bias, bias, first_weights;
  ChannelMap map;
  int64_t hidden = 0, parts = 0;
  bool of_sums = false;  // and not of parts of hidden values
  std::optional<RoundedExcitation> rounded{};
  bool vector = true;  // four channels at once; decided when tensors have places

  int64_t padded() const { return padded_hidden(hidden); }
  int64_t pixels_at_once() const { return rk::kExciteThreads / (vector ? rk::kExciteChannels / 4 : rk::kExciteChannels); }
  // Threads that share a part, four values each.
  int64_t lanes() const { return lanes_for(std::min<int64_t>(of_sums ? map.channels : padded(), rk::kExciteMostHidden) / 4); }
  int64_t first_lanes() const { return lanes_for(hidden); }  // of_sums: threads that have a hidden value each
  static int64_t lanes_for(int64_t values) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(values))); }
  // of_sums: turns of a thread with a cell of channels each.
  int64_t turns() const { return ceil_div(ceil_div(map.channels, rk::kExciteCell), rk::kExciteThreads / first_lanes()); }
};

// How the weights are cut into chunks of the ring: `k` hidden values in each of `count` chunks, behind `first_count` chunks of
// `first_cells` cells of channels each.
struct Chunks {
  int64_t k = 0, count = 0;
  int64_t first_cells = 0, first_count = 0;

  int64_t all() const { return first_count + count; }
  int64_t bytes(const Excitation& e, bool narrow) const {
    const int64_t own = rk::excite_chunk_bytes(static_cast<int>(k), static_cast<int>(weight_bytes_of(narrow)));
    return first_count == 0 ? own : std::max<int64_t>(own, first_bytes(e));
  }
  int64_t first_bytes(const Excitation& e) const {
    return rk::excite_first_bytes(static_cast<int>(first_cells), static_cast<int>(e.padded()));
  }
};

Excitation operands_of(const ROperator& rop) {
  Excitation e;
  e.in = rop.inputs[kMap];
  e.sums = rop.inputs[kSums];
  e.out = rop.outputs[0];
  e.weights = rop.inputs[kWeights];
  e.hidden_bias = operand(rop, kHiddenBias);
  e.bias = operand(rop, kBias);
  e.first_weights = operand(rop, kFirstWeights);
  return e;
}
Excitation operands_of(const RoundedExcitation& rounded, const ROperator& rop) {
  Excitation e;
  e.in = rounded.map;
  e.sums = rounded.sums;
  e.out = rop.outputs[0];
  e.weights = rounded.gate.weights;
  e.hidden_bias = rounded.hidden.bias;
  e.bias = rounded.gate.bias;
  e.first_weights = rounded.hidden.weights;
  e.rounded = rounded;
  return e;
}

// What can be said before tensors have places; none where no body computes the rOperator.
std::optional<Excitation> unplaced(const Graph& graph, const ROperator& rop) {
  const std::optional<RoundedExcitation> rounded = rounded_excitation_of(graph, rop);
  if (has_epilogue(rop) || (!rounded && !std::holds_alternative<ChannelExcite>(rop.attrs))) return std::nullopt;
  Excitation e = rounded ? operands_of(*rounded, rop) : operands_of(rop);
  if (!are_f32_constants(graph, {e.weights, e.hidden_bias, e.bias, e.first_weights})) return std::nullopt;
  e.map = map_of(graph.tensor(e.in));
  e.hidden = graph.tensor(e.weights).shape[1];
  e.parts = graph.tensor(e.sums).shape[2];
  e.of_sums = e.first_weights.valid();
  if (e.of_sums && (e.map.channels % 4 != 0 || e.hidden > rk::kExciteMostFirst)) return std::nullopt;
  if (e.map.images * e.map.channels * e.map.pixels() == 0 || e.hidden == 0 || e.parts == 0 || e.hidden > rk::kExciteMostHidden)
    return std::nullopt;
  return e;
}

// Halves lose nothing of weights that are whole multiples of a step.
bool weights_are_narrow(const Excitation& e, Precision precision) { return e.rounded || precision != Precision::fp32; }

Chunks chunks_of(const Excitation& e, const ShapedVDevice& d, bool narrow) {
  constexpr int64_t kGranule = 8;
  const int weight_bytes = static_cast<int>(weight_bytes_of(narrow));
  const int64_t fixed = rk::excite_chunk_bytes(0, weight_bytes), of_k = rk::excite_chunk_bytes(1, weight_bytes) - fixed;
  const int64_t most = (d.weight_stage_bytes - fixed) / of_k / kGranule * kGranule;
  if (most <= 0) return {};
  const int64_t count = ceil_div(e.hidden, most), k = ceil_div(ceil_div(e.hidden, count), kGranule) * kGranule;
  Chunks chunks{k, ceil_div(e.hidden, k)};
  if (!e.of_sums) return chunks;
  const int padded = static_cast<int>(e.padded());
  const int64_t scales = rk::excite_first_bytes(0, padded), of_cell = rk::excite_first_bytes(1, padded) - scales;
  const int64_t cells = ceil_div(e.map.channels, rk::kExciteCell), fitting = (d.weight_stage_bytes - scales) / of_cell;
  if (!narrow || fitting <= 0) return {};
  // All chunks are as long as the longest one, so that few chunks have much padding. A further chunk costs as much as some bytes more.
  constexpr int64_t kChunkBytes = 3072;
  Chunks best;
  for (int64_t pieces = ceil_div(cells, fitting); pieces <= cells; ++pieces) {
    chunks.first_cells = ceil_div(cells, pieces);
    chunks.first_count = ceil_div(cells, chunks.first_cells);
    const auto cost = [&](const Chunks& c) { return c.all() * (c.bytes(e, narrow) + kChunkBytes); };
    if (best.count == 0 || cost(chunks) < cost(best)) best = chunks;
  }
  return best;
}

// Without the sums of channels.
int64_t gate_bytes_of(const Excitation& e, const Chunks& chunks) {
  return rk::excite_work_bytes(static_cast<int>(e.padded()), static_cast<int>(chunks.k * chunks.count));
}
int64_t work_bytes_of(const Excitation& e, const Chunks& chunks) {
  const int64_t channels = chunks.first_count * chunks.first_cells * rk::kExciteCell;
  return gate_bytes_of(e, chunks) + (e.of_sums ? rk::excite_sums_bytes(static_cast<int>(channels)) : 0) +
         (e.rounded ? 2 * rk::kExciteTable * int64_t{sizeof(float)} : 0);
}

// Tiles of pixels of an image, for about `rtasks` rTasks.
int64_t tiles_for(const Excitation& e, int64_t rtasks) {
  return std::clamp<int64_t>(rtasks / (e.map.images * e.map.blocks()), 1, ceil_div(e.map.pixels(), e.pixels_at_once()));
}

double bytes_of_rtask(const Graph& graph, const Excitation& e, int64_t tile_pixels) {
  const double values = static_cast<double>(tile_pixels * kSqueezeBlock);
  return values * static_cast<double>(bytes_of(graph.tensor(e.in).dtype) + bytes_of(graph.tensor(e.out).dtype)) +
         4 * static_cast<double>(e.parts * (e.of_sums ? e.map.channels : e.padded()));
}

// What a rTask takes beside the cost of every rTask: trips to L2, or its bytes, at the rate that a vEU has for itself. All rTasks read the
// same sums, so what they read together says little.
double body_us(const Graph& graph, const Excitation& e, const ShapedVDevice& d, int64_t tile_pixels) {
  const double bytes_us = bytes_of_rtask(graph, e, tile_pixels) / (d.cost("excite.bytes_a_cycle") * d.clock_ghz * 1e3);
  const int64_t of_map = ceil_div(tile_pixels, rk::kExciteAhead * e.pixels_at_once());
  const int64_t of_sums = ceil_div(e.parts, rk::kExcitePartsAhead * (rk::kExciteThreads / e.lanes()));
  const double trips_us = static_cast<double>(of_map + of_sums - 2) * d.cost("excite.turn_us");
  const double first_us = e.of_sums ? d.cost("excite.sums_us") +
                                          static_cast<double>(e.turns()) * d.cost(e.rounded ? "excite.rounded_cell_us" : "excite.cell_us")
                                    : 0;
  return d.cost("excite.finish_us") + first_us + std::max(trips_us, bytes_us);
}

// Makes the phase one that begins with sums of channels.
void add_first(const Excitation& e, const Chunks& chunks, Phase& phase) {
  for (Arg& a : phase.args) {
    if (a.name == "lanes_log2") a.value = log2_arg(e.first_lanes());
  }
  phase.body = "rk::excite_of_sums";
  phase.args_type = "rk::ExciteOfSumsArgs";
  phase.args = {{"excite", struct_arg(std::move(phase.args))},
                {"sums_lanes_log2", log2_arg(e.lanes())},
                {"first_cells", arg(chunks.first_cells)},
                {"first_chunks", arg(chunks.first_count)},
                {"work_at", arg(gate_bytes_of(e, chunks))}};
}

// Makes the phase one that rounds.
void add_rounding(const Graph& graph, const Excitation& e, const Chunks& chunks, Phase& phase) {
  const RoundedExcitation& r = *e.rounded;
  const auto rounded_to = [](const RoundedTo& to) {
    return struct_arg({{"scale", float_arg(to.scale)}, {"low", float_arg(to.low)}, {"high", float_arg(to.high)}});
  };
  const auto number = [](int64_t value) { return float_arg(static_cast<float>(value)); };
  phase.body = e.of_sums ? "rk::excite_rounded_of_sums" : "rk::excite_rounded";
  phase.args_type = e.of_sums ? "rk::RoundedOfSumsArgs" : "rk::RoundedExciteArgs";
  const int64_t ring_bytes = phase.ring.blocks * phase.ring.chunks_per_rtask * phase.ring.chunk_bytes;
  const ArgValue steps = struct_arg({{"out", rounded_to(r.out)},
                                     {"hidden_low", number(r.hidden.sums.low)},
                                     {"hidden_high", number(r.hidden.sums.high)},
                                     {"gate_low", number(r.gate.sums.low)},
                                     {"gate_high", number(r.gate.sums.high)},
                                     {"tables", ArgValue{PackedArg{ring_bytes}}},
                                     {"tables_at", arg(work_bytes_of(e, chunks) - 2 * rk::kExciteTable * int64_t{sizeof(float)})},
                                     {"in_low", number(low_of(graph, e.in))},
                                     {"out_low", number(low_of(graph, e.out))}});
  phase.args = {{"excite", struct_arg(std::move(phase.args))}, {"steps", steps}};
  if (e.of_sums) phase.args.push_back({"mean", rounded_to(r.mean)});
  if (is_whole_byte(graph.tensor(e.in).dtype) || is_whole_byte(graph.tensor(e.out).dtype)) phase.header = "kernels/excite/excite_bytes.cuh";
}

ArgValue call_arg(const ActivationCall& call) {
  return struct_arg({{"kind", activation_arg(call.kind)}, {"a", float_arg(call.a)}, {"b", float_arg(call.b)}});
}

RKernel rkernel_of(const Request& request, const Excitation& e, const Chunks& chunks, int64_t tiles, bool narrow) {
  const auto* const op = std::get_if<ChannelExcite>(&request.rop.attrs);
  const Tensor &in = request.graph.tensor(e.in), &out = request.graph.tensor(e.out), &sums = request.graph.tensor(e.sums);
  const int64_t tile_pixels = ceil_div(e.map.pixels(), tiles);
  tiles = ceil_div(e.map.pixels(), tile_pixels);
  const auto in_a_row = [](const Tensor& tensor) { return tensor.place.strides[2] == tensor.shape[3] * tensor.place.strides[3]; };
  Phase phase = early_phase("kernels/excite/excite.cuh", "rk::excite", "rk::ExciteArgs");
  phase.template_args = {{"kVector", e.vector ? "4" : "1"}};
  if (!e.rounded) phase.template_args.emplace_back("NARROW", narrow ? "true" : "false");
  add_value_types(phase, in.dtype, out.dtype);
  phase.args = {{"in", arg(TensorArg{e.in})},
                {"out", arg(TensorArg{e.out})},
                {"sums", arg(TensorArg{e.sums})},
                {"in_strides", map_strides(in)},
                {"out_strides", map_strides(out)},
                {"sums_image", arg(sums.place.strides[0])},
                {"sums_part", arg(sums.place.strides[2])},
                {"parts", arg(e.parts)},
                {"hidden", arg(e.hidden)},
                {"padded_hidden", arg(e.padded())},
                {"channels", arg(e.map.channels)},
                {"lanes_log2", log2_arg(e.lanes())},
                {"chunk_k", arg(chunks.k)},
                {"chunks", arg(chunks.count)},
                {"pixels", arg(e.map.pixels())},
                {"tile_pixels", arg(tile_pixels)},
                {"tiles", divisor_arg(tiles)},
                {"blocks", divisor_arg(e.map.blocks())},
                {"width", divisor_arg(in_a_row(in) && in_a_row(out) ? e.map.pixels() : e.map.width)},
                {"hidden_activation", call_arg(op ? op->hidden : ActivationCall{})},
                {"gate", call_arg(op ? op->gate : ActivationCall{})}};
  phase.rtasks = e.map.images * e.map.blocks() * tiles;
  phase.work_bytes = work_bytes_of(e, chunks);
  phase.ring = {chunks.bytes(e, narrow), chunks.all(), tiles, e.map.blocks()};
  phase.cost.activation_bytes = bytes_of_rtask(request.graph, e, tile_pixels);
  phase.cost.weight_bytes = static_cast<double>(phase.ring.chunk_bytes * chunks.all());
  phase.cost.calibrated_cycles =
      (request.vdevice.rtask_us + body_us(request.graph, e, request.vdevice, tile_pixels)) * request.vdevice.clock_ghz * 1e3;
  if (e.of_sums) add_first(e, chunks, phase);
  if (e.rounded) add_rounding(request.graph, e, chunks, phase);
  const std::string name =
      fmt::format("excite{}<{} channels, {}>",
                  std::string(e.rounded ? "_rounded" : "") + (e.of_sums ? "_of_sums" : "") + (narrow && !e.rounded ? "_16bit" : ""),
                  e.vector ? 4 : 1, phase.rtasks);
  RKernel rkernel = one_phase(name, {{"tile_pixels", tile_pixels}, {"chunk_k", chunks.k}, {"narrow", narrow}}, phase);
  if (e.of_sums) rkernel.config.insert(rkernel.config.end(), {{"first_cells", chunks.first_cells}, {"first_chunks", chunks.first_count}});
  return rkernel;
}

std::vector<RKernel> offers(const Request& request) {
  std::optional<Excitation> e = unplaced(request.graph, request.rop);
  if (!e) return {};
  const Tensor &in = request.graph.tensor(e->in), &out = request.graph.tensor(e->out), &sums = request.graph.tensor(e->sums);
  if (!takes_map(in, request.precision, e->rounded.has_value()) || !takes_map(out, request.precision, e->rounded.has_value())) return {};
  if (!is_plain_f32(sums)) return {};
  const std::vector<int64_t>& s = sums.place.strides;
  if (s[1] != 1 || s[0] % 4 != 0 || s[2] % 4 != 0 || sums.place.offset % 4 != 0) return {};
  e->vector = has_vector_pixels(in) && has_vector_pixels(out);
  if (e->rounded && !e->vector && (is_whole_byte(in.dtype) || is_whole_byte(out.dtype))) return {};
  const bool narrow = weights_are_narrow(*e, request.precision);
  const Chunks chunks = chunks_of(*e, request.vdevice, narrow);
  if (chunks.count == 0 || work_bytes_of(*e, chunks) > request.vdevice.work_bytes()) return {};
  std::vector<RKernel> rkernels;
  for (const int64_t share : {1, 2, 4}) {
    RKernel rkernel = rkernel_of(request, *e, chunks, tiles_for(*e, request.vdevice.veus() / share), narrow);
    if (rkernels.empty() || rkernels.back().rtasks() != rkernel.rtasks()) rkernels.push_back(std::move(rkernel));
  }
  return rkernels;
}

// The chunks of a block that come first, the same for all blocks: cells of channels for all hidden values, then the values' scales.
void pack_first(const Graph& graph, const Excitation& e, const RKernel& rkernel, std::byte* to) {
  const Tensor& weights = graph.tensor(e.first_weights);
  const int64_t hidden = weights.shape[0], channels = weights.shape[1], padded = padded_hidden(hidden);
  const int64_t cells = rkernel.config_value("first_cells"), chunks = rkernel.config_value("first_chunks");
  const float share = e.rounded ? 1 : 1 / static_cast<float>(e.map.pixels());
  const float* const data = f32_data(weights);
  std::vector<std::byte> row(static_cast<size_t>(chunks * cells * rk::kExciteCell * 2));
  for (int64_t r = 0; r < hidden; ++r) {
    const float scale = share * pack_weights({data + r * channels, data + (r + 1) * channels}, /*narrow=*/true, row.data());
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      std::byte* const of_chunk = to + chunk * rkernel.phases[0].ring.chunk_bytes;
      for (int64_t cell = 0; cell < cells; ++cell)
        std::memcpy(of_chunk + (cell * padded + r) * 16, row.data() + (chunk * cells + cell) * 16, 16);
      std::memcpy(of_chunk + cells * padded * 16 + r * 4, &scale, 4);
    }
  }
}

// The numbers of a table, or of the sums themselves.
void append_table(const Graph& graph, const RoundedProduct& product, Bytes& bytes) {
  for (int64_t i = 0; i < rk::kExciteTable; ++i) {
    const int64_t count = product.sums.high - product.sums.low + 1, at = std::min(i, count - 1);
    const float number = product.table.valid() ? f32_data(graph.tensor(product.table))[at] : static_cast<float>(product.sums.low + at);
    const auto* const from = reinterpret_cast<const std::byte*>(&number);
    bytes.insert(bytes.end(), from, from + sizeof(number));
  }
}

// For each block and chunk: the products' weights, ExciteColumn[32], and the hidden biases. Behind all, the tables.
Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int) {
  const RingWeights& ring = rkernel.phases[0].ring;
  const bool narrow = rkernel.config_value("narrow") != 0;
  const int64_t chunk_k = rkernel.config_value("chunk_k"), row_bytes = chunk_k * weight_bytes_of(narrow);
  const Excitation e = known(unplaced(graph, rop), "excite", rop);
  const Tensor& weights = graph.tensor(e.weights);
  const int64_t channels = weights.shape[0], hidden = weights.shape[1];
  const float *const data = f32_data(weights), *const hidden_bias = f32_data_or_null(graph, e.hidden_bias),
                     *const bias = f32_data_or_null(graph, e.bias);
  Bytes bytes(static_cast<size_t>(ring.blocks * ring.chunks_per_rtask * ring.chunk_bytes));
  const auto put = [](std::byte* to, int64_t index, float value) { std::memcpy(to + index * 4, &value, 4); };
  const int64_t first = e.of_sums ? rkernel.config_value("first_chunks") : 0;
  for (int64_t block = 0; block < ring.blocks && first > 0; ++block)
    pack_first(graph, e, rkernel, bytes.data() + block * ring.chunks_per_rtask * ring.chunk_bytes);
  const int64_t chunks = ring.chunks_per_rtask - first;
  std::vector<std::byte> row(static_cast<size_t>(chunks * row_bytes));
  for (int64_t c = 0; c < ring.blocks * kSqueezeBlock; ++c) {
    float scale = 0;
    std::fill(row.begin(), row.end(), std::byte{0});
    if (c < channels) scale = pack_weights({data + c * hidden, data + (c + 1) * hidden}, narrow, row.data());
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      std::byte* const to =
          reinterpret_cast<std::byte*>(bytes.data()) + (c / kSqueezeBlock * ring.chunks_per_rtask + first + chunk) * ring.chunk_bytes;
      std::memcpy(to + c % kSqueezeBlock * row_bytes, row.data() + chunk * row_bytes, static_cast<size_t>(row_bytes));
      std::byte* const columns = to + kSqueezeBlock * row_bytes;
      put(columns, c % kSqueezeBlock * 2, scale);
      put(columns, c % kSqueezeBlock * 2 + 1, bias != nullptr && c < channels ? bias[c] : 0.0F);
      for (int64_t k = 0; k < chunk_k && hidden_bias != nullptr && chunk * chunk_k + k < hidden; ++k)
        put(columns, 2 * kSqueezeBlock + k, hidden_bias[chunk * chunk_k + k]);
    }
  }
  if (e.rounded) {
    append_table(graph, e.rounded->hidden, bytes);
    append_table(graph, e.rounded->gate, bytes);
  }
  return bytes;
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const Excitation e = known(unplaced(graph, rop), "excite", rop);
  const TensorId in = e.in, sums = e.sums, made = e.out;
  const ChannelMap& map = e.map;
  const int64_t tile_pixels = rkernel.config_value("tile_pixels"), tiles = ceil_div(map.pixels(), tile_pixels);
  const int64_t tile = index % tiles, block = index / tiles % map.blocks(), image = index / tiles / map.blocks();
  const bool vector = has_vector_pixels(graph.tensor(in)) && has_vector_pixels(graph.tensor(made));
  const int64_t begin = block * kSqueezeBlock, end = std::min(begin + kSqueezeBlock, map.channels);
  for_each_box({map.height, map.width}, tile * tile_pixels, std::min((tile + 1) * tile_pixels, map.pixels()),
               [&](const std::vector<int64_t>& low, const std::vector<int64_t>& high) {
                 const int64_t read = vector ? (end + 3) / 4 * 4 : end;
                 append_box(graph, in, {image, begin, low[0], low[1]}, {image + 1, read, high[0], high[1]}, out.reads);
                 append_box(graph, made, {image, begin, low[0], low[1]}, {image + 1, end, high[0], high[1]}, out.writes);
               });
  const Shape& shape = graph.tensor(sums).shape;
  append_box(graph, sums, {image, 0, 0}, {image + 1, shape[1], shape[2]}, out.reads);
}

// Before places are known: assumes four channels at a time, as in every map that a rKernel makes. None where a vEU would run so many
// rTasks one after another that computing all their gates takes longer than the two separate rOperators would. (Of quantised networks
// these would be five, and the estimate of the whole graph decides.)
std::optional<Estimate> estimate_unplaced(const Request& request) {
  const ShapedVDevice& d = request.vdevice;
  const std::optional<Excitation> e = unplaced(request.graph, request.rop);
  if (!e || request.graph.tensor(e->in).dtype != DType::f32) return std::nullopt;
  const Chunks chunks = chunks_of(*e, d, weights_are_narrow(*e, request.precision));
  if (chunks.count == 0 || work_bytes_of(*e, chunks) > d.work_bytes()) return std::nullopt;
  const int64_t tiles = tiles_for(*e, d.veus()), tile_pixels = ceil_div(e->map.pixels(), tiles);
  const double rounds = static_cast<double>(ceil_div(e->map.images * e->map.blocks() * tiles, d.veus()));
  const double least_us = d.edge_us + rounds * (d.rtask_us + d.cost("excite.finish_us"));
  if (!e->rounded && least_us > 2 * (d.edge_us + d.rtask_us) + d.cost("excite.two_bodies_us")) return std::nullopt;
  return Estimate{d.edge_us + rounds * (d.rtask_us + body_us(request.graph, *e, d, tile_pixels))};
}

}  // namespace

Family excite() {
  return {"excite", offers, pack, accesses, estimate_unplaced, Narrowed::computes, /*takes_sums=*/false, /*takes_bytes=*/true};
}

}  // namespace tamp::kernels
