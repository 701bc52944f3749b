#include "kernels/product/staged_conv_pack.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "compiler/ir/fused.h"
#include "compiler/ir/products.h"
#include "compiler/support/error.h"
#include "kernels/narrow.h"
#include "kernels/product/split_k_normalize.h"
#include "kernels/product/staged_conv_moments.h"
#include "kernels/tile/product_phases.h"
#include "kernels/tile/requantised.h"

namespace tamp::kernels::staged {
const TileSums* sums_of(const ROperator& rop) {
  const std::optional<FusedView> steps = FusedView::of(rop);
  return steps && steps->count() == 2 && steps->as<Conv>(0) && steps->feeds(0, 1) ? steps->as<TileSums>(1) : nullptr;
}
ROperator plain_product(const Graph& graph, const ROperator& rop) {
  if (std::optional<Requantised> again = requantised_of(graph, rop)) return std::move(again->product);
  if (const std::optional<MomentSteps> steps = moment_steps(rop)) return steps->product;
  return sums_of(rop) ? FusedView::of(rop)->alone(0) : rop;
}

std::optional<Product> staged_product(const Graph& graph, const ROperator& rop) {
  if (normalized_product_steps(rop)) return product_of(graph, product_before_normalize(rop), Activations::narrow);
  if (!sums_of(rop)) return product_of(graph, plain_product(graph, rop), moment_steps(rop) ? Activations::mixed : Activations::bytes);
  std::optional<Product> p = product_of(graph, plain_product(graph, rop), Activations::narrow);
  if (p) p->keeps_tiles = true;
  return p;
}

int64_t ring_bytes(const Product& p, const Config& c) {
  const Blocks b = blocks_of(p, c);
  return groups_of(p, c).count * b.n * c.splits * b.chunks * c.chunk_steps * step_bytes_of(c);
}

namespace {

// The weights of output channel n of merged group `group`, by input channel of that: zero where the group does not have the one or the
// other.
class MergedRow {
 public:
  MergedRow() = default;
  MergedRow(const float* data, const Product& p, const Groups& groups, int64_t group, int64_t n, int64_t tap) {
    const int64_t own = n / p.channels;  // in the merged group
    if (n >= groups.channels || tap >= p.taps() || group * groups.merged + own >= p.groups) return;
    row_ = WeightRow(data, p, group * groups.merged + own, n % p.channels, tap);
    begin_ = own * p.in_channels;
    end_ = begin_ + p.in_channels;
  }
  float operator[](int64_t channel) const { return channel >= begin_ && channel < end_ ? row_[channel - begin_] : 0; }

 private:
  WeightRow row_;
  int64_t begin_ = 0, end_ = 0;
};

uint32_t pair_of(const Config& c, float low, float high) { return narrow_pair(static_cast<Precision>(c.precision), low, high); }

// A word of weights from input channel k of a box on, times `factor`: two of 16 bits, or four bytes.
uint32_t word_of(const Config& c, const MergedRow& weights, int64_t k, float factor) {
  if (c.narrow != kNarrowBytes) return pair_of(c, weights[k] * factor, weights[k + 1] * factor);
  uint32_t word = 0;
  for (int64_t i = 0; i < 4; ++i) {
    const auto whole = static_cast<int32_t>(std::lrint(weights[k + i] * factor));
    word |= (static_cast<uint32_t>(whole) & 0xffU) << 8 * i;
  }
  return word;
}

// One step of weights, with g = lane / 4 and t = lane % 4.
//   tf32: [team][unit][warp on channels][lane][tile of 16 channels]{A[g][t], A[g + 8][t], A[g][t + 4], A[g + 8][t + 4]};
//   16 bits: [team][unit][tile of 16 channels][lane] of pairs, {A[g][t], A[g][t + 4]}, ..., {A[g][t + 8], A[g][t + 12]}, ...;
//   16 bits, narrow inputs: the same with the pairs {A[g][2 t], A[g][2 t + 1]}, ..., {A[g][2 t + 8], A[g][2 t + 9]}, ...
//   bytes: the same with four neighbours, {A[g][4 t], ..}, ..., {A[g][4 t + 16], ..}, ...
// Rows g and g + 8 of the mt tiles of a warp are 2 mt neighbouring channels. `scale`: of the group's channels.
void pack_rows(const float* data, const Product& p, const Config& c, const float* scale, int64_t group, int64_t first_n, int64_t box,
               int64_t tap, std::byte* to) {
  const Shape& s = shape_of(c);
  const Groups groups = groups_of(p, c);
  const int64_t channels = channels_of_box(p);
  for (int64_t row = 0; row < s.channels(); ++row) {
    const int64_t m = row / 16, n = first_n + m / s.mt * 16 * s.mt + rk::dealt_channel(s.mt, m % s.mt, row % 16);
    const MergedRow weights(data, p, groups, group, n, tap);
    const float per_scale = c.whole != 0 && n < groups.channels ? 1 / scale[n] : 1;
    const int64_t of_cell = channels / 8, of_word = of_cell / 4;
    for (int64_t k = 0; k < channels; k += of_word) {
      const uint32_t word = word_of(c, weights, box * channels + k, per_scale);
      std::memcpy(to + rk::box_cell(row, k / of_cell) + k % of_cell / of_word * 4, &word, 4);
    }
  }
}
void pack_step(const float* data, const Product& p, const Config& c, const float* scale, int64_t group, int64_t first_n, int64_t box,
               int64_t step, std::byte* to) {
  if (c.deep != 0 && c.narrow != 0) return pack_rows(data, p, c, scale, group, first_n, box, step, to);
  const Shape& s = shape_of(c);
  const Groups groups = groups_of(p, c);
  const int64_t units = units_of_box(c), team_boxes = boxes_of_step(c), team_taps = taps_of_step(c);
  const bool narrow = c.narrow != 0, tf32 = is_tf32(c);
  for (int64_t team = 0; team < teams_of(c); ++team) {
    const int64_t box_channel = (box + (team_boxes > 1 ? team : 0)) * channels_of_box(p),
                  tap = step * team_taps + (team_taps > 1 ? team : 0);
    for (int64_t unit = 0; unit < units; ++unit, to += s.channels() / 16 * tile_bytes_of(c)) {
      const int64_t first = box_channel + unit * (channels_of_box(p) / units);
      for (int64_t m = 0; m < s.channels() / 16; ++m) {
        for (int64_t row = 0; row < 16; ++row) {
          const int64_t n = first_n + m / s.mt * 16 * s.mt + rk::dealt_channel(s.mt, m % s.mt, row);
          const MergedRow weights(data, p, groups, group, n, tap);
          for (int64_t t = 0; t < 4; ++t) {
            const int64_t lane = row % 8 * 4 + t;
            for (int64_t i = row / 8; i < 4; i += 2) {
              if (tf32) {
                const uint16_t half = n < groups.channels ? half_of(weights[first + t + i / 2 * 4] / scale[n]) : uint16_t{0};
                std::memcpy(to + (((m / s.mt * 32 + lane) * s.mt + m % s.mt) * 4 + i) * 2, &half, 2);
              } else {
                const float per_scale = c.whole != 0 && n < groups.channels ? 1 / scale[n] : 1;
                const int64_t k = first + t + i / 2 * 8, of_word = c.narrow == kNarrowBytes ? 4 : 2;
                const uint32_t word = narrow ? word_of(c, weights, first + of_word * (t + i / 2 * 4), per_scale)
                                             : pair_of(c, weights[k] * per_scale, weights[k + 4] * per_scale);
                std::memcpy(to + (m * 128 + lane * 4 + i) * 4, &word, 4);
              }
            }
          }
        }
      }
    }
  }
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

int64_t scale_bytes(const Product& p, const Config& c) { return has_scales(c) ? groups_of(p, c).count * padded_channels(p, c) * 4 : 0; }

int64_t bias_bytes(const Product& p, const Config& c) {
  return has_bias(p) && !c.has_second_phase() ? groups_of(p, c).count * padded_channels(p, c) * 4 : 0;
}

int64_t row_bytes(const Product& p, const Config& c) {
  return rk::has_row(static_cast<int>(c.whole)) ? groups_of(p, c).count * padded_channels(p, c) * 4 : 0;
}

namespace {

// Of each output channel, as rounded to 16 bits.
std::vector<float> column_sums(const float* data, const Product& p, const Config& c) {
  std::vector<float> sums;
  std::vector<float> weights(static_cast<size_t>(p.in_channels));
  for (int64_t n = 0; n < p.channels; ++n) {
    WeightRow(data, p, 0, n, 0).copy(weights);
    double sum = 0;
    for (const float w : weights)
      sum += static_cast<Precision>(c.precision) == Precision::fp16 ? float_of_half(half_of(w)) : float_of_bfloat(bfloat_of(w));
    sums.push_back(static_cast<float>(sum));
  }
  return sums;
}

// The row, and the table as results lie in memory.
void append_again(const Graph& graph, const Requantised& again, const Product& p, const auto& padded, Bytes& bytes) {
  const auto append = [&](const void* from, size_t count) {
    bytes.resize(bytes.size() + count);
    std::memcpy(bytes.data() + bytes.size() - count, from, count);
  };
  if (again.row.valid()) {
    const float* const first = f32_data(graph.tensor(again.row));
    const std::vector<float> row = padded(std::vector<float>(first, first + p.groups * p.channels));
    append(row.data(), row.size() * 4);
  }
  if (!again.table.valid()) return;
  const Tensor& table = graph.tensor(again.table);
  const int64_t low = is_whole_byte(graph.tensor(p.out).dtype) ? low_of(graph, p.out) : again.results.low;
  std::array<uint8_t, rk::kTableBytes> numbers{};
  for (int64_t i = 0; i < element_count(table.shape); ++i)
    numbers.at(static_cast<size_t>(i)) = static_cast<uint8_t>(static_cast<int64_t>(f32_data(table)[i]) - low);
  append(numbers.data(), numbers.size());
}

}  // namespace

Product product_for(const Graph& graph, const ROperator& rop, const Config& c) {
  const std::optional<Product> p = staged_product(graph, rop);
  return known(p && c.pairs != 0 ? by_pairs(*p) : p, "staged_conv", rop);
}

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase) {
  const Config c = config_of(rkernel);
  const Product p = product_for(graph, rop, c);
  if (phase == 1) return c.normalized != 0 ? pack_normalize(graph, rop, p) : pack_sum(graph, p);
  const float* const data = f32_data(graph.tensor(p.weights));
  std::vector<float> scales, bias, sums;
  if (has_scales(c)) scales = c.narrow == kNarrowBytes ? known(byte_scales_of(data, p), "steps of the weights", rop) : scales_of(data, p);
  const Groups groups = groups_of(p, c);
  const auto padded = [&](std::vector<float> values) {
    values.resize(static_cast<size_t>(groups.count * groups.channels), 0.0F);  // groups that the last merged one does not have
    return padded_by_group(values, groups.count, padded_channels(p, c));
  };
  if (has_bias(p) && !c.has_second_phase()) bias = padded(bias_of(graph, p));
  if (c.parts != 0) sums = padded(column_sums(data, p, c));
  bias.insert(bias.end(), sums.begin(), sums.end());
  Bytes bytes(static_cast<size_t>(ring_bytes(p, c) + scale_bytes(p, c)) + bias.size() * 4);
  scales.resize(static_cast<size_t>(groups.count * groups.channels), 1.0F);
  pack_ring(data, p, c, scales, bytes.data());
  if (is_tf32(c) && !holds_whole_numbers(graph, p.in)) {
    for (float& scale : scales) scale *= 1 + rk::kTf32Share;
  }
  scales = padded(std::move(scales));
  if (has_scales(c)) std::memcpy(bytes.data() + ring_bytes(p, c), scales.data(), scales.size() * 4);
  if (!bias.empty()) std::memcpy(bytes.data() + ring_bytes(p, c) + scale_bytes(p, c), bias.data(), bias.size() * 4);
  if (const std::optional<Requantised> again = requantised_of(graph, rop)) append_again(graph, *again, p, padded, bytes);
  return bytes;
}

}  // namespace tamp::kernels::staged
