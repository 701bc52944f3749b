#include "kernels/tile/product_phases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "kernels/args.h"
#include "kernels/narrow.h"
#include "kernels/tile/numbers.cuh"
#include "kernels/vectors.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kSumColumns = rk::kSumColumns;
constexpr int64_t kSumRows = rk::kSumRows;

// From so many rows of a thread on a rTask has several of them under way. Batch 1 has fewer.
constexpr int64_t kManyRows = 4;

// Rows of a thread of split_k_sum_rows at a time; 0: the body for few rows, which takes any channels and activations, runs.
int64_t rows_at_once(const Graph& graph, const ROperator& rop, const Product& p, int64_t splits, int64_t sum_rows) {
  const int64_t channels = p.groups * p.channels;
  const Activation activation = rop.epilogue.activation;
  const bool clips = activation == Activation::none || activation == Activation::relu || activation == Activation::clip;
  const bool vectors = vector_out(graph, p, channels) != 0 && (!p.residual.valid() || vector_residual(graph, p, channels) != 0);
  if (!clips || !vectors || channels % 4 != 0 || sum_rows < kManyRows * kSumRows) return 0;
  return splits <= rk::kSumLoads / 2 ? rk::kSumLoads / splits : 0;
}

// Cycles after the first rows of a rTask, which split_k_sum.fixed_cycles and .split_cycles are for: those of the trips to memory that
// follow each other, or of the bytes where these take longer.
double further_cycles(const ShapedVDevice& vdevice, const Product& p, int64_t splits, int64_t sum_rows, int64_t at_once, double bytes) {
  const int64_t rows = at_once > 0 ? at_once : 1, turns = ceil_div(sum_rows, rows * kSumRows);
  const int64_t trips_of_turn = at_once > 0 ? 1 : ceil_div(splits, rk::kSumLoads) + (p.residual.valid() ? 1 : 0);
  const double trips = static_cast<double>((turns - 1) * trips_of_turn), rest = static_cast<double>(turns - 1) / static_cast<double>(turns);
  return std::max(trips * vdevice.cost("split_k_sum.trip_cycles"), rest * bytes * vdevice.cost("split_k_sum.byte_cycles"));
}

}  // namespace

float round_to_tf32(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7f800000U) != 0x7f800000U) bits = (bits + 0x1000U) & 0xffffe000U;
  std::memcpy(&x, &bits, 4);
  return x;
}

std::vector<float> padded_by_group(const std::vector<float>& values, int64_t groups, int64_t padded) {
  const int64_t channels = static_cast<int64_t>(values.size()) / groups;
  std::vector<float> out(static_cast<size_t>(groups * padded), 0.0F);
  for (int64_t g = 0; g < groups; ++g) {
    std::copy_n(values.begin() + g * channels, channels, out.begin() + g * padded);
  }
  return out;
}

std::vector<float> padded_bias(const Graph& graph, const Product& p, int64_t groups, int64_t padded) {
  return padded_by_group(bias_of(graph, p), groups, padded);
}

std::vector<int64_t> to_vector(const std::array<int64_t, 4>& a) { return {a.begin(), a.end()}; }

ArgValue product_epilogue(const ROperator& rop, const Product& p, bool applies, int64_t bias_at) {
  if (!applies) return epilogue_arg({}, null_arg(), null_arg(), {}, false);
  return epilogue_arg(rop.epilogue, has_bias(p) ? ArgValue{PackedArg{bias_at}} : null_arg(), tensor_arg(p.residual),
                      to_vector(p.residual_strides), p.residual_after_activation);
}

ArgValue clip_arg(const Epilogue& e, bool residual_after) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const bool clips = e.activation == Activation::clip,
             other = e.sum || (!clips && e.activation != Activation::none && e.activation != Activation::relu);
  const float low = clips ? e.a : e.activation == Activation::relu ? 0 : -kInfinity;
  return struct_arg({{"other", arg(int64_t{other})},
                     {"after", arg(int64_t{residual_after})},
                     {"low", float_arg(low)},
                     {"high", float_arg(clips ? e.b : kInfinity)}});
}

int64_t vector_residual(const Graph& graph, const Product& p, int64_t channels) {
  return p.residual.valid() && has_vector_channels(graph.tensor(p.residual), p.residual_strides, channels) ? 1 : 0;
}
int64_t vector_out(const Graph& graph, const Product& p, int64_t channels) {
  return has_vector_channels(graph.tensor(p.out), p.out_strides, channels) ? 1 : 0;
}

bool loads_residual_vectors(const Graph& graph, const Product& p) {
  return p.residual.valid() && has_vector_channels(graph.tensor(p.residual), p.residual_strides, 4) &&
         ends_in_padding(p.residual_strides, p.channels);
}

int64_t partial_pitch(const Product& p) { return ceil_div(p.groups * p.channels, 4) * 4; }

std::array<int64_t, 4> partial_strides(const Product& p) {
  const int64_t pitch = partial_pitch(p);
  return {p.pixels[1] * p.pixels[2] * pitch, 1, p.pixels[2] * pitch, pitch};
}

int64_t sum_rows_of(const ShapedVDevice& vdevice, const Product& p) {
  const int64_t column_blocks = ceil_div(p.groups * p.channels, kSumColumns);
  const int64_t row_blocks = std::max<int64_t>(1, vdevice.veus() / column_blocks);
  return ceil_div(ceil_div(p.rows(), row_blocks), kSumRows) * kSumRows;
}

Phase sum_phase(const Request& request, const Product& p, int64_t splits, int64_t sum_rows) {
  const int64_t channels = p.groups * p.channels;
  const int64_t at_once = rows_at_once(request.graph, request.rop, p, splits, sum_rows);
  Phase phase = early_phase("kernels/tile/split_k_sum.cuh", at_once > 0 ? "rk::split_k_sum_rows" : "rk::split_k_sum", "rk::SplitKSumArgs");
  if (at_once > 0) phase.template_args = {{"kSplits", std::to_string(splits)}};
  const DType values = request.graph.tensor(p.out).dtype;
  if (values != DType::f32) phase.template_args.emplace_back("Out", value_type(values));
  if (is_whole_byte(values)) phase.header = "kernels/tile/split_k_sum_bytes.cuh";
  const int64_t row_blocks = ceil_div(p.rows(), sum_rows);
  phase.args = {
      {"partial", ArgValue{ScratchArg{0}}},
      {"out", arg(TensorArg{p.out})},
      {"epilogue", product_epilogue(request.rop, p, true, 0)},
      {"out_strides", array_arg(to_vector(p.out_strides))},
      {"split_stride", arg(p.rows() * partial_pitch(p))},
      {"rows", arg(p.rows())},
      {"channels", arg(channels)},
      {"pitch", arg(partial_pitch(p))},
      {"splits", arg(splits)},
      {"rows_per_rtask", arg(sum_rows)},
      {"vector_out", arg(vector_out(request.graph, p, channels))},
      {"vector_residual", arg(vector_residual(request.graph, p, channels))},
      {"row_blocks", divisor_arg(row_blocks)},
      {"pixels", divisor_arg(p.pixels[1] * p.pixels[2])},
      {"out_w", divisor_arg(p.pixels[2])},
      {"clip", clip_arg(request.rop.epilogue, p.residual_after_activation)},
  };
  if (const int64_t low = low_of(request.graph, p.out); low != 0) phase.args.push_back({"out_low", float_arg(static_cast<float>(low))});
  phase.rtasks = row_blocks * ceil_div(channels, kSumColumns);
  const double elements = static_cast<double>(sum_rows * kSumColumns);
  phase.cost.flops = elements * static_cast<double>(splits);
  phase.cost.activation_bytes = elements * static_cast<double>(4 * splits + bytes_of(values) * (p.residual.valid() ? 2 : 1));
  phase.cost.calibrated_cycles = request.vdevice.cost("split_k_sum.fixed_cycles") +
                                 request.vdevice.cost("split_k_sum.split_cycles") * static_cast<double>(splits) +
                                 further_cycles(request.vdevice, p, splits, sum_rows, at_once, phase.cost.activation_bytes);
  return phase;
}

Bytes pack_sum(const Graph& graph, const Product& p) {
  if (!has_bias(p)) return {};
  const std::vector<float> bias = padded_bias(graph, p, 1, ceil_div(p.groups * p.channels, kSumColumns) * kSumColumns);
  return packed_bytes(bias);
}

Region partial_rows(const Product& p, int64_t split, int64_t first, int64_t last, int64_t begin, int64_t end) {
  const int64_t pitch = partial_pitch(p);
  return {TensorId(), {(split * p.rows() + first) * pitch + begin, last - first, pitch, end - begin}};
}

void add_stores(const Graph& graph, const Product& p, int64_t first, int64_t last, int64_t begin, int64_t end, Accesses& out) {
  append_rows(p, p.out, graph.tensor(p.out).place.offset, p.out_strides, first, last, begin, end, out.writes);
  if (!p.residual.valid()) return;
  append_rows(p, p.residual, graph.tensor(p.residual).place.offset, p.residual_strides, first, last, begin, end, out.reads);
}

void sum_accesses(const Graph& graph, const Product& p, int64_t splits, int64_t sum_rows, int64_t index, Accesses& out) {
  const int64_t row_blocks = ceil_div(p.rows(), sum_rows);
  const int64_t first = index % row_blocks * sum_rows, last = std::min(first + sum_rows, p.rows());
  const int64_t begin = index / row_blocks * kSumColumns, end = std::min(begin + kSumColumns, p.groups * p.channels);
  for (int64_t split = 0; split < splits; ++split) {
    out.reads.push_back(partial_rows(p, split, first, last, begin, end));
  }
  add_stores(graph, p, first, last, begin, end, out);
}

void append_pixels(const Graph& graph, TensorId id, const std::array<int64_t, 4>& strides, const PixelBox& low, const PixelBox& high,
                   std::vector<Region>& regions) {
  Tensor t;
  t.shape = {high.begin(), high.end()};
  t.place.strides = {strides[0], strides[2], strides[3], strides[1]};
  t.place.offset = graph.tensor(id).place.offset;
  for (size_t d = 0; d < 4; ++d) {
    if (low[d] >= high[d]) return;
  }
  for (const Run& run : box_runs(t, {low.begin(), low.end()}, {high.begin(), high.end()})) regions.push_back({id, run});
}

namespace {

// Calls use(weights) for the weights of each output channel, until it returns false.
template <class Use>
void for_channels(const float* data, const Product& p, const Use& use) {
  std::vector<float> weights(static_cast<size_t>(p.k()));
  for (int64_t n = 0; n < p.groups * p.channels; ++n) {
    for (int64_t k = 0, tap = 0; k < p.k(); ++tap) {
      const WeightRow row(data, p, n / p.channels, n % p.channels, tap);
      for (int64_t channel = 0; channel < p.in_channels; ++channel) weights[static_cast<size_t>(k++)] = row[channel];
    }
    if (!use(weights)) return;
  }
}

}  // namespace

std::vector<float> scales_of(const float* data, const Product& p) {
  std::vector<float> scales;
  for_channels(data, p, [&](const std::vector<float>& weights) {
    scales.push_back(half_scale(weights));
    return true;
  });
  return scales;
}

std::optional<std::vector<float>> byte_scales_of(const float* data, const Product& p) {
  std::vector<float> scales;
  bool all = true;
  for_channels(data, p, [&](const std::vector<float>& weights) {
    const std::optional<float> scale = byte_scale(weights);
    if (scale) scales.push_back(*scale);
    return all = scale.has_value();
  });
  return all ? std::optional(scales) : std::nullopt;
}

bool has_byte_scales(const Graph& graph, const Product& p) {
  // By the constant, and by what says which of its numbers are a channel's.
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, float>;
  static std::mutex mutex;
  static std::map<std::weak_ptr<const void>, std::map<Key, bool>, std::owner_less<>> known;
  const TensorData& data = graph.tensor(p.weights).data;
  const Key key = {p.groups, p.channels, p.k(), p.weight_stride_n, p.weight_stride_channel, p.pairs ? p.pair_tap : 1, p.alpha};
  {
    const std::lock_guard lock(mutex);
    const auto of_data = known.find(data.life());
    if (of_data != known.end()) {
      if (const auto found = of_data->second.find(key); found != of_data->second.end()) return found->second;
    }
  }
  const std::shared_ptr<const Bytes> bytes = data.hold();
  const bool has = byte_scales_of(reinterpret_cast<const float*>(bytes->data()), p).has_value();
  const std::lock_guard lock(mutex);
  return known[data.life()][key] = has;
}

}  // namespace tamp::kernels
