#include "kernels/conv/staged_conv_pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/support/error.h"
#include "kernels/conv/product_phases.h"
#include "kernels/conv/split_k_normalize.h"
#include "kernels/narrow.h"

namespace tamp::kernels::staged {
ROperator without_sums(const ROperator& rop) {
  const auto& op = std::get<SummedConv>(rop.attrs);
  ROperator conv;
  conv.name = rop.name;
  conv.attrs = Conv{op.kernel, op.strides, op.dilations, op.pads_begin, op.pads_end, op.group};
  conv.inputs = {rop.inputs[0], rop.inputs[1]};
  conv.outputs = {rop.outputs[0]};
  conv.epilogue.activation = op.activation.kind;
  conv.epilogue.a = op.activation.a;
  conv.epilogue.b = op.activation.b;
  if (rop.inputs.size() > kSummedBias) conv.epilogue.bias = rop.inputs[kSummedBias];
  if (rop.inputs.size() > kSummedResidual) conv.epilogue.residual = rop.inputs[kSummedResidual];
  return conv;
}

bool has_sums(const ROperator& rop) { return std::holds_alternative<SummedConv>(rop.attrs); }

std::optional<Product> staged_product(const Graph& graph, const ROperator& rop) {
  if (is_normalized(rop)) return product_of(graph, product_before_normalize(rop), Activations::narrow);
  if (!has_sums(rop)) return product_of(graph, rop, Activations::narrow);
  std::optional<Product> p = product_of(graph, without_sums(rop), Activations::narrow);
  if (p) p->keeps_tiles = true;
  return p;
}

int64_t ring_bytes(const Product& p, const Config& c) {
  const Blocks b = blocks_of(p, c);
  return groups_of(p, c).count * b.n * c.splits * b.chunks * c.chunk_steps * step_bytes_of(c);
}

namespace {

// Weight of output channel n, input channel `channel` of merged group `group`.
float merged_weight(const float* data, const Product& p, const Groups& groups, int64_t group, int64_t n, int64_t tap, int64_t channel) {
  if (n >= groups.channels || channel >= groups.in_channels || tap >= p.taps()) return 0;
  if (n / p.channels != channel / p.in_channels || group * groups.merged + n / p.channels >= p.groups) return 0;
  return weight_at(data, p, group * groups.merged + n / p.channels, n % p.channels, tap * p.in_channels + channel % p.in_channels);
}

uint32_t pair_of(const Config& c, float low, float high) {
  if (static_cast<Precision>(c.precision) == Precision::fp16) return half_of(low) | static_cast<uint32_t>(half_of(high)) << 16;
  return bfloat_of(low) | static_cast<uint32_t>(bfloat_of(high)) << 16;
}

// One step of weights, with g = lane / 4 and t = lane % 4.
//   tf32: [team][unit][warp on channels][lane][tile of 16 channels]{A[g][t], A[g + 8][t], A[g][t + 4], A[g + 8][t + 4]};
//   16 bits: [team][unit][tile of 16 channels][lane] of pairs, {A[g][t], A[g][t + 4]}, ..., {A[g][t + 8], A[g][t + 12]}, ...;
//   16 bits, narrow inputs: the same with the pairs {A[g][2 t], A[g][2 t + 1]}, ..., {A[g][2 t + 8], A[g][2 t + 9]}, ...
// Rows g and g + 8 of the mt tiles of a warp are 2 mt neighbouring channels. `scale`: powers of two for the group's channels.
void pack_rows(const float* data, const Product& p, const Config& c, int64_t group, int64_t first_n, int64_t box, int64_t tap,
               std::byte* to) {
  const Shape& s = shape_of(c);
  const Groups groups = groups_of(p, c);
  for (int64_t row = 0; row < s.channels(); ++row) {
    const int64_t m = row / 16, n = first_n + m / s.mt * 16 * s.mt + (row % 8 * s.mt + m % s.mt) * 2 + row % 16 / 8;
    for (int64_t k = 0; k < channels_of_box(p); k += 2) {
      const auto weight = [&](int64_t i) { return merged_weight(data, p, groups, group, n, tap, box * channels_of_box(p) + i); };
      const uint32_t pair = pair_of(c, weight(k), weight(k + 1));
      std::memcpy(to + row * InputBoxes::kBoxRowBytes + ((k / 8) ^ (row % 8)) * 16 + k % 8 * 2, &pair, 4);
    }
  }
}
void pack_step(const float* data, const Product& p, const Config& c, const float* scale, int64_t group, int64_t first_n, int64_t box,
               int64_t step, std::byte* to) {
  if (c.deep != 0 && c.narrow != 0) return pack_rows(data, p, c, group, first_n, box, step, to);
  const Shape& s = shape_of(c);
  const Groups groups = groups_of(p, c);
  const int64_t units = units_of_box(c), team_boxes = boxes_of_step(c), team_taps = taps_of_step(c);
  for (int64_t team = 0; team < teams_of(c); ++team) {
    const int64_t first_channel = (box + (team_boxes > 1 ? team : 0)) * channels_of_box(p),
                  tap = step * team_taps + (team_taps > 1 ? team : 0);
    for (int64_t unit = 0; unit < units; ++unit, to += s.channels() / 16 * tile_bytes_of(c)) {
      for (int64_t m = 0; m < s.channels() / 16; ++m) {
        for (int64_t i = 0; i < 128; ++i) {
          const int64_t lane = i / 4, t = lane % 4, n = first_n + m / s.mt * 16 * s.mt + (lane / 4 * s.mt + m % s.mt) * 2 + i % 2;
          const auto weight = [&](int64_t k) {
            return merged_weight(data, p, groups, group, n, tap, first_channel + unit * (channels_of_box(p) / units) + k);
          };
          if (is_tf32(c)) {
            const uint16_t half = n < groups.channels ? half_of(weight(t + i % 4 / 2 * 4) / scale[n]) : uint16_t{0};
            std::memcpy(to + (((m / s.mt * 32 + lane) * s.mt + m % s.mt) * 4 + i % 4) * 2, &half, 2);
          } else {
            const int64_t k = (c.narrow != 0 ? 2 * t : t) + i % 4 / 2 * 8;
            const uint32_t pair = pair_of(c, weight(k), weight(k + (c.narrow != 0 ? 1 : 4)));
            std::memcpy(to + (m * 128 + i) * 4, &pair, 4);
          }
        }
      }
    }
  }
}

// Powers of two, [merged group][channel], that bring the weights of each output channel into the range of fp16. Then a weight down to
// 2^-28 of its channel's largest is what rounding to tf32 makes of it; a smaller weight is wrong by at most 2^-39 of that largest, which
// is less than an fp32 sum keeps.
std::vector<float> scales_of(const float* data, const Product& p) {
  std::vector<float> scales, weights(static_cast<size_t>(p.k()));
  for (int64_t n = 0; n < p.groups * p.channels; ++n) {
    for (int64_t k = 0; k < p.k(); ++k) weights[static_cast<size_t>(k)] = weight_at(data, p, n / p.channels, n % p.channels, k);
    scales.push_back(std::ldexp(1.0F, half_exponent(weights)));
  }
  return scales;
}

void pack_ring(const float* data, const Product& p, const Config& c, const std::vector<float>& scales, std::byte* to) {
  const Shape& s = shape_of(c);
  const Blocks b = blocks_of(p, c);
  const Groups groups = groups_of(p, c);
  const int64_t pair = boxes_of_step(c);
  for (int64_t group = 0; group < groups.count; ++group) {
    for (int64_t n = 0; n < b.n; ++n) {
      for (int64_t split = 0; split < c.splits; ++split) {
        const int64_t first = split * c.boxes_per_split, last = std::min(first + c.boxes_per_split, b.boxes);
        for (int64_t box = first; box < last; box += pair) {
          const int64_t before = steps_of_split(p, c, box - first);
          for (int64_t i = 0; i < steps_of_boxes(p, c, pair); ++i)
            pack_step(data, p, c, scales.data() + group * groups.channels, group, n * s.channels(), box, i,
                      to + (before + i) * step_bytes_of(c));
        }
        to += b.chunks * c.chunk_steps * step_bytes_of(c);
      }
    }
  }
}

int64_t padded_channels(const Product& p, const Config& c) { return blocks_of(p, c).n * shape_of(c).channels(); }  // of a group

}  // namespace

int64_t scale_bytes(const Product& p, const Config& c) { return is_tf32(c) ? groups_of(p, c).count * padded_channels(p, c) * 4 : 0; }

Product product_for(const Graph& graph, const ROperator& rop, const Config& c) {
  std::optional<Product> p = staged_product(graph, rop);
  if (p && c.pairs != 0) p = by_pairs(*p);
  TAMP_CHECK(p.has_value(), "staged_conv of '" + rop.name + "'");
  return *p;
}

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase) {
  const Config c = config_of(rkernel);
  const Product p = product_for(graph, rop, c);
  if (phase == 1) return c.normalized != 0 ? pack_normalize(graph, rop, p) : pack_sum(graph, p);
  const float* const data = f32_data(graph.tensor(p.weights));
  std::vector<float> scales = scales_of(data, p), bias;
  const Groups groups = groups_of(p, c);
  const auto padded = [&](std::vector<float> values) {
    values.resize(static_cast<size_t>(groups.count * groups.channels), 0.0F);  // groups that the last merged one does not have
    return padded_by_group(values, groups.count, padded_channels(p, c));
  };
  if (has_bias(p) && c.splits == 1) bias = padded(bias_of(graph, p));
  Bytes bytes(static_cast<size_t>(ring_bytes(p, c) + scale_bytes(p, c)) + bias.size() * 4);
  scales.resize(static_cast<size_t>(groups.count * groups.channels), 1.0F);
  pack_ring(data, p, c, scales, bytes.data());
  for (float& scale : scales) scale *= 1 + rk::kTf32Share;
  scales = padded(std::move(scales));
  if (is_tf32(c)) std::memcpy(bytes.data() + ring_bytes(p, c), scales.data(), scales.size() * 4);
  if (!bias.empty()) std::memcpy(bytes.data() + ring_bytes(p, c) + scale_bytes(p, c), bias.data(), bias.size() * 4);
  return bytes;
}

}  // namespace tamp::kernels::staged
