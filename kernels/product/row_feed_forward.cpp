// Host side of row_feed_forward.cuh. rTask t of the first phase has columns [t * columns, (t + 1) * columns) of y.
#include "kernels/product/row_feed_forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "kernels/args.h"
#include "kernels/loop.h"
#include "kernels/narrow.h"
#include "kernels/product/gemv_cell.h"
#include "kernels/product/numbers.cuh"
#include "kernels/product/row_feed_forward_numbers.cuh"

namespace tamp::kernels {
namespace {

// --- the rOperator -----------------------------------------------------------------------------------------------------

// Constant weights [K, N], or with `turned` [N, K], `alpha` times.
struct FeedWeights {
  TensorId id, bias;
  int64_t k = 0, n = 0;
  bool turned = false;
  float alpha = 1;
};

struct RowFeed {
  RowFeedSteps steps;
  FeedWeights gate{}, up{}, second{};
  TensorId x{}, residual{}, z{}, scale{}, shift{};
  rk::GemvCell first_cell = rk::kCellHalves, second_cell = rk::kCellHalves;

  bool is_packed() const { return first_cell != rk::kCellHalves; }  // the first products' weights
  int factors() const { return steps.up ? 2 : 1; }
  int64_t inner() const { return gate.n; }
  int64_t columns() const { return second.n; }
  int64_t pitch() const { return ceil_div(columns(), rk::kRowFeedTurn) * rk::kRowFeedTurn; }
  rk::RowFeedSlice slice(int64_t of_rtask) const {
    return {static_cast<int>(gate.k), static_cast<int>(of_rtask), factors(), first_cell, second_cell};
  }
};

// K of x in registers, and columns of y that one warp makes.
constexpr int64_t kMostK = 8192, kMostColumns = 128;

std::optional<FeedWeights> weights_of(const Graph& graph, const FusedView& view, size_t step) {
  const MatMul& product = *view.as<MatMul>(step);
  const TensorId id = view.input(step, 1);
  const Shape& shape = graph.tensor(id).shape;
  if (!is_f32_constant(graph, id) || shape.size() != 2 || !are_f32_constants(graph, {view.bias(step)})) return std::nullopt;
  return FeedWeights{id, view.bias(step), shape[product.trans_b ? 1 : 0], shape[product.trans_b ? 0 : 1], product.trans_b, product.alpha};
}

// Of tensors that need no place.
std::optional<RowFeed> unplaced_feed(const Graph& graph, const ROperator& rop) {
  const std::optional<RowFeedSteps> steps = row_feed_steps(rop);
  if (!steps) return std::nullopt;
  RowFeed f{*steps};
  const auto take = [&](size_t step, FeedWeights& to) {
    const std::optional<FeedWeights> found = weights_of(graph, steps->view, step);
    if (found) to = *found;
    return found.has_value();
  };
  if (!take(steps->first, f.gate) || (steps->up && !take(*steps->up, f.up)) || !take(steps->second(), f.second)) return std::nullopt;
  f.x = steps->x();
  f.residual = steps->view.residual(steps->second());
  f.z = rop.outputs[0];
  if (steps->normalize) {
    f.scale = steps->view.input(0, 1);
    f.shift = steps->view.input(0, 2);
  }
  const bool fits = element_count(graph.tensor(f.x).shape) == f.gate.k && f.gate.k % 4 == 0 && f.gate.k > 0 && f.gate.k <= kMostK &&
                    f.inner() > 0 && f.columns() > 0 && f.columns() < INT32_MAX / 2 && are_f32_constants(graph, {f.scale, f.shift});
  return fits ? std::optional(f) : std::nullopt;
}

std::optional<RowFeed> feed_of(const Graph& graph, const ROperator& rop) {
  std::optional<RowFeed> f = unplaced_feed(graph, rop);
  if (!f) return std::nullopt;
  const Tensor &x = graph.tensor(f->x), &z = graph.tensor(f->z);
  const auto is_row = [](const Tensor& t) { return is_plain_values(t) && (t.place.strides.back() == 1 || t.shape.back() == 1); };
  if (!is_row(x) || x.place.offset % 4 != 0 || !is_row(z)) return std::nullopt;
  if (f->residual.valid() && (!is_row(graph.tensor(f->residual)) || graph.tensor(f->residual).dtype != z.dtype)) return std::nullopt;
  return f;
}

// --- how it is divided -------------------------------------------------------------------------------------------------

// As few columns, whole times `unit` of them, as let all rTasks run at once. 0: there are none.
int64_t columns_of_rtask(const RowFeed& f, const ShapedVDevice& d, int64_t unit) {
  const int64_t columns = ceil_div(ceil_div(f.inner(), d.veus()), unit) * unit;
  return columns <= kMostColumns ? columns : 0;
}

rk::GemvCell cell_of(const Graph& graph, const FeedWeights& w) {
  return kernels::cell_of(graph, {w.id, w.k, w.n, w.turned ? 1 : w.n, w.turned ? w.k : 1});
}

// How the weights of both factors can lie, which lie alike.
rk::GemvCell first_cell_of(const Graph& graph, const RowFeed& f) {
  const rk::GemvCell gate = cell_of(graph, f.gate), up = f.steps.up ? cell_of(graph, f.up) : gate;
  if (gate == rk::kCellHalves || up == rk::kCellHalves) return rk::kCellHalves;
  const auto is_one = [&](rk::GemvCell cell) { return gate == cell || up == cell; };
  if (is_one(rk::kCellBytesFrom)) return rk::kCellBytesFrom;
  if (is_one(rk::kCellBytes)) return rk::kCellBytes;
  return is_one(rk::kCellNibblesFrom) ? rk::kCellNibblesFrom : rk::kCellNibbles;
}

// How the rOperator may be divided: so many columns of y a rTask, and weights of the second product that lie in such cells. Those of
// quantised ones have a step for each 32 rows, so rTasks have whole 32 columns.
struct RowFeedTiling {
  int64_t columns = 0;
  rk::GemvCell second = rk::kCellHalves;
};
std::vector<RowFeedTiling> tilings_of(const Graph& graph, const RowFeed& f, const ShapedVDevice& d) {
  std::vector<RowFeedTiling> tilings;
  const rk::GemvCell second = cell_of(graph, f.second);
  if (second != rk::kCellHalves) tilings.push_back({columns_of_rtask(f, d, rk::kRowFeedDepth), second});
  const int64_t columns = columns_of_rtask(f, d, rk::kRowFeedTile);
  if (tilings.empty() || tilings[0].columns != columns) tilings.push_back({columns, rk::kCellHalves});
  std::erase_if(tilings, [](const RowFeedTiling& t) { return t.columns == 0; });
  return tilings;
}

// Calls put(chunk, byte, part, number) for each part of a rTask's stream in turn: blocks of the first products (0), what is known of their
// columns (1), and steps of the second one (2). Returns how many chunks there are.
template <class Put>
int64_t for_each_cell(const RowFeed& f, int64_t of_rtask, int64_t chunk_bytes, const Put& put) {
  const rk::RowFeedSlice s = f.slice(of_rtask);
  int64_t chunk = 0, at = 0;
  const auto place = [&](int64_t bytes, int part, int64_t number) {
    if (chunk_bytes - at < bytes) ++chunk, at = 0;
    put(chunk, at, part, number);
    at += bytes;
  };
  for (int64_t b = 0; b < s.blocks(); ++b) place(s.block_bytes(), 0, b);
  place(s.info_bytes(), 1, 0);
  for (int64_t i = 0; i < f.pitch() / rk::kRowFeedTurn * s.steps(); i += s.together()) place(s.together() * s.step_bytes(), 2, i);
  return chunk + 1;
}
int64_t chunks_of(const RowFeed& f, int64_t of_rtask, int64_t chunk_bytes) {
  return for_each_cell(f, of_rtask, chunk_bytes, [](int64_t, int64_t, int, int64_t) {});
}

// The size of chunks with which the fewest bytes are read; of equal ones, the largest. 0: a block does not fit.
int64_t chunk_bytes_of(const RowFeed& f, int64_t of_rtask, int64_t stage_bytes) {
  const rk::RowFeedSlice s = f.slice(of_rtask);
  const int64_t least = std::max({s.block_bytes(), s.together() * s.step_bytes(), s.info_bytes()});
  int64_t best = 0, best_bytes = 0;
  for (int64_t bytes = stage_bytes / 128 * 128; bytes >= std::max(least, stage_bytes * 3 / 4); bytes -= 128) {
    const int64_t all = bytes * chunks_of(f, of_rtask, bytes);
    if (best == 0 || all < best_bytes) best = bytes, best_bytes = all;
  }
  return best;
}

// --- packed data -------------------------------------------------------------------------------------------------------

struct ColumnInfo {
  float scale = 1, bias = 0;
};

// Calls f(row, column, weight) for a part of weights [K, N], alpha times, in the order in which they lie.
void for_each_weight(const Graph& graph, const FeedWeights& w, int64_t row, int64_t row_end, int64_t column, int64_t column_end,
                     const auto& f) {
  const float* const data = f32_data(graph.tensor(w.id));
  if (w.turned) {
    for (int64_t c = column; c < column_end; ++c) {
      for (int64_t r = row; r < row_end; ++r) f(r, c, w.alpha * data[c * w.k + r]);
    }
  } else {
    for (int64_t r = row; r < row_end; ++r) {
      for (int64_t c = column; c < column_end; ++c) f(r, c, w.alpha * data[r * w.n + c]);
    }
  }
}

// The normalisation's scale, if x is multiplied by it; else weights are.
std::span<const float> factors_of(const Graph& graph, const RowFeed& f) {
  if (!f.is_packed() || !f.scale.valid()) return {};
  const std::span factors(f32_data(graph.tensor(f.scale)), static_cast<size_t>(f.gate.k));
  return std::all_of(factors.begin(), factors.end(), [](float factor) { return factor == 1; }) ? std::span<const float>() : factors;
}

// Some columns of a first product, with the normalisation's scale (unless x is multiplied by it) and shift; zeros behind k and behind the
// last column.
struct FirstColumns {
  int64_t padded = 0;            // k of a column
  std::vector<uint16_t> halves;  // [column][padded], or
  std::vector<float> values;     // the same, of quantised weights, with what they are divided by
  std::vector<float> scales;
  std::vector<ColumnInfo> infos;
};
FirstColumns first_columns(const Graph& graph, const RowFeed& f, const FeedWeights& w, int64_t begin, int64_t count) {
  FirstColumns made;
  made.padded = f.slice(count).blocks() * rk::kRowFeedDepth;
  made.infos.resize(static_cast<size_t>(count));
  made.scales.resize(static_cast<size_t>(count), 1.0F);
  if (f.is_packed())
    made.values.resize(static_cast<size_t>(count * made.padded));
  else
    made.halves.resize(static_cast<size_t>(count * made.padded));
  const int64_t there = std::min(count, f.inner() - begin), line = w.k + 16;  // powers of two would bring all columns to the same lines
  std::vector<float> columns(static_cast<size_t>(there * line));
  for_each_weight(graph, w, 0, w.k, begin, begin + there,
                  [&](int64_t k, int64_t c, float v) { columns[static_cast<size_t>((c - begin) * line + k)] = v; });
  const float *const scale = f32_data_or_null(graph, f.scale), *const shift = f32_data_or_null(graph, f.shift),
                     *const bias = f32_data_or_null(graph, w.bias);
  for (int64_t i = 0; i < there; ++i) {
    const std::span column = std::span(columns).subspan(static_cast<size_t>(i * line), static_cast<size_t>(w.k));
    double shifted = bias != nullptr ? bias[begin + i] : 0;
    for (size_t k = 0; k < column.size(); ++k) {
      if (shift != nullptr) shifted += static_cast<double>(shift[k]) * column[k];
      if (scale != nullptr && !f.is_packed()) column[k] *= scale[k];
    }
    const float scale_of_halves = half_scale(column);
    made.scales[static_cast<size_t>(i)] = scale_of_halves;
    if (f.is_packed())
      std::copy(column.begin(), column.end(), made.values.begin() + i * made.padded);
    else
      halves_of(column.data(), w.k, 1 / scale_of_halves, made.halves.data() + i * made.padded);
    made.infos[static_cast<size_t>(i)] = {scale_of_halves, static_cast<float>(shifted)};
  }
  return made;
}

// The exponent of each column of the second product.
std::vector<int> second_exponents(const Graph& graph, const FeedWeights& w) {
  std::vector<float> largest(static_cast<size_t>(w.n), 0.0F);
  for_each_weight(graph, w, 0, w.k, 0, w.n, [&](int64_t, int64_t c, float v) {
    float& to = largest[static_cast<size_t>(c)];
    const float magnitude = std::abs(v);
    if (magnitude > to && std::isfinite(magnitude)) to = magnitude;
  });
  std::vector<int> exponents;
  for (const float& v : largest) exponents.push_back(half_exponent(std::span(&v, 1)));
  return exponents;
}

// `of_rtask` rows of the second product's weights, [row][f.pitch()]; zeros behind the last row and column, up to whole steps. Divided by
// the power of two of each column.
std::vector<float> second_rows(const Graph& graph, const RowFeed& f, const std::vector<int>& exponents, int64_t begin, int64_t of_rtask) {
  const int64_t there = std::min(of_rtask, f.inner() - begin), count = f.slice(of_rtask).steps() * f.slice(of_rtask).step_rows();
  std::vector<float> factors, rows(static_cast<size_t>(count * f.pitch()));
  for (const int exponent : exponents) factors.push_back(std::ldexp(1.0F, -exponent));
  for_each_weight(graph, f.second, begin, begin + there, 0, f.columns(), [&](int64_t h, int64_t c, float v) {
    rows[static_cast<size_t>((h - begin) * f.pitch() + c)] = v * factors[static_cast<size_t>(c)];
  });
  return rows;
}

// Step `number` of the second product's weights.
void put_step(const RowFeed& f, const rk::RowFeedSlice& s, const std::vector<float>& rows, int64_t number, std::byte* at) {
  const int64_t first_column = number / s.steps() * rk::kRowFeedTurn, first_h = number % s.steps() * s.step_rows();
  const auto value = [&](int64_t h, int64_t c) { return rows[static_cast<size_t>((first_h + h) * f.pitch() + first_column + c)]; };
  if (s.is_second_packed()) {
    constexpr int64_t kColumns = 2 * rk::kGemvCellColumns, kRows = rk::kRowFeedDepth;
    for (int64_t column = 0; column < rk::kRowFeedTurn; column += kColumns, at += 2 * rk::gemv_cell_bytes(f.second_cell)) {
      float values[kColumns * kRows];
      for (int64_t i = 0; i < kColumns * kRows; ++i) values[i] = value(i % kRows, column + i / kRows);
      pack_cells(
          f.second_cell, 2,
          [&](int64_t c) {
            return CellColumn{{values + c * kRows, kRows}, 1};
          },
          at);
    }
    return;
  }
  for (int64_t lane = 0; lane < rk::kComputeWarps * rk::kWarp; ++lane) {
    float values[8];
    uint16_t halves[8];
    for (int64_t i = 0; i < 8; ++i) {
      const int64_t c = lane / rk::kWarp * rk::kRowFeedColumns + i / 4 * 8 + lane % rk::kWarp / 4;
      values[i] = value(lane % 4 * 2 + i / 2 % 2 * 8 + i % 2, c);
    }
    halves_of(values, 8, 1, halves);
    std::memcpy(at + lane * 16, halves, sizeof halves);
  }
}

// The chunks of a rTask whose columns of y begin at `begin`.
void pack_rtask(const Graph& graph, const RowFeed& f, const std::vector<int>& exponents, int64_t begin, int64_t of_rtask,
                int64_t chunk_bytes, std::byte* to) {
  const rk::RowFeedSlice s = f.slice(of_rtask);
  std::vector<FirstColumns> first = {first_columns(graph, f, f.gate, begin, of_rtask)};
  if (f.steps.up) first.push_back(first_columns(graph, f, f.up, begin, of_rtask));
  const std::vector<float> second = second_rows(graph, f, exponents, begin, of_rtask);
  const auto put_block = [&](std::byte* at, int64_t block) {
    for (int64_t tile = 0; tile < s.tiles(); ++tile) {
      if (f.is_packed()) {
        pack_cells(
            f.first_cell, std::ssize(first),
            [&](int64_t c) {
              const FirstColumns& of = first[static_cast<size_t>(c / rk::kRowFeedTile)];
              const int64_t column = tile * rk::kRowFeedTile + c % rk::kRowFeedTile;
              return CellColumn{{of.values.data() + column * of.padded + block * rk::kRowFeedDepth, rk::kRowFeedDepth},
                                of.scales[static_cast<size_t>(column)]};
            },
            at);
        at += std::ssize(first) * rk::gemv_cell_bytes(f.first_cell);
        continue;
      }
      for (const FirstColumns& of : first) {
        for (int64_t n = 0; n < rk::kRowFeedTile; ++n, at += rk::kRowFeedDepth * 2) {
          const int64_t from = (tile * rk::kRowFeedTile + n) * of.padded + block * rk::kRowFeedDepth;
          std::memcpy(at, of.halves.data() + from, rk::kRowFeedDepth * 2);
        }
      }
    }
  };
  for_each_cell(f, of_rtask, chunk_bytes, [&](int64_t chunk, int64_t byte, int part, int64_t number) {
    std::byte* at = to + chunk * chunk_bytes + byte;
    if (part == 0) put_block(at, number);
    for (int64_t i = 0; part == 2 && i < s.together(); ++i) put_step(f, s, second, number + i, at + i * s.step_bytes());
    if (part != 1) return;
    for (const FirstColumns& of : first) {
      std::memcpy(at, of.infos.data(), of.infos.size() * sizeof(ColumnInfo));
      at += of.infos.size() * sizeof(ColumnInfo);
    }
  });
}

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase_number) {
  RowFeed f = *feed_of(graph, rop);
  f.first_cell = static_cast<rk::GemvCell>(config_or(rkernel, "first_cell", rk::kCellHalves));
  f.second_cell = static_cast<rk::GemvCell>(config_or(rkernel, "second_cell", rk::kCellHalves));
  const std::vector<int> exponents = second_exponents(graph, f.second);
  if (phase_number == 1) {
    std::vector<float> infos;
    const float* const bias = f32_data_or_null(graph, f.second.bias);
    for (size_t c = 0; c < exponents.size(); ++c) infos.insert(infos.end(), {std::ldexp(1.0F, exponents[c]), bias ? bias[c] : 0.0F});
    return packed_bytes(infos);
  }
  const Phase& phase = rkernel.phases[0];
  const int64_t of_rtask = rkernel.config_value("columns"), rtask_bytes = phase.ring.chunk_bytes * phase.ring.chunks_per_rtask;
  const std::span<const float> factors = factors_of(graph, f);
  Bytes bytes = zero_bytes(static_cast<size_t>(phase.rtasks * rtask_bytes) + factors.size_bytes());
  if (!factors.empty()) std::memcpy(bytes.data() + phase.rtasks * rtask_bytes, factors.data(), factors.size_bytes());
  for (int64_t t = 0; t < phase.rtasks; ++t)
    pack_rtask(graph, f, exponents, t * of_rtask, of_rtask, phase.ring.chunk_bytes, bytes.data() + t * rtask_bytes);
  return bytes;
}

// --- candidates --------------------------------------------------------------------------------------------------------

const char* norm_of(const RowFeed& f) {
  if (!f.steps.normalize) return "rk::kGemvAsIs";
  return f.steps.normalize->centered ? "rk::kGemvCentred" : "rk::kGemvScaled";
}

Phase slices_phase(const Request& request, const RowFeed& f, int64_t of_rtask, int64_t chunk_bytes) {
  const Graph& graph = request.graph;
  const ShapedVDevice& d = request.vdevice;
  const DType x = graph.tensor(f.x).dtype;
  const Epilogue& between = f.steps.view.step(f.steps.first).epilogue;
  Phase phase = early_phase("kernels/product/row_feed_forward.cuh", "rk::row_feed_forward", "rk::RowFeedArgs");
  phase.template_args = {{"K", std::to_string(f.gate.k)},
                         {"COLUMNS", std::to_string(of_rtask)},
                         {"FACTORS", std::to_string(f.factors())},
                         {"FIRST", text_of(f.first_cell)},
                         {"SECOND", text_of(f.second_cell)},
                         {"SCALED", factors_of(graph, f).empty() ? "false" : "true"},
                         {"NORM", norm_of(f)},
                         {"ACTIVATION", activation_text(between.activation)},
                         {"CHUNK_BYTES", std::to_string(chunk_bytes)},
                         {"In", value_type(x)},
                         {"WORDS", "0"}};
  const Normalize norm = f.steps.normalize ? *f.steps.normalize : Normalize{};
  phase.args = {{"in", ArgValue{WordsArg{f.x, 0}}},   {"partial", ArgValue{ScratchArg{0}}},
                {"columns", arg(f.columns())},        {"inverse_k", float_arg(1.0F / static_cast<float>(f.gate.k))},
                {"epsilon", float_arg(norm.epsilon)}, {"a", float_arg(between.a)},
                {"b", float_arg(between.b)}};
  phase.may_await = {words_use(graph, f.x, 0)};
  phase.rtasks = ceil_div(f.inner(), of_rtask);
  const rk::RowFeedSlice slice = f.slice(of_rtask);
  phase.work_bytes = slice.work_floats() * 4;
  phase.ring = {chunk_bytes, chunks_of(f, of_rtask, chunk_bytes), 1, phase.rtasks};
  if (!factors_of(graph, f).empty())
    phase.args.push_back({"factors", ArgValue{PackedArg{phase.rtasks * phase.ring.chunk_bytes * phase.ring.chunks_per_rtask}}});
  Cost& cost = phase.cost;
  const auto k = static_cast<double>(f.gate.k), columns = static_cast<double>(of_rtask), z = static_cast<double>(f.pitch());
  cost.flops = 2 * columns * (f.factors() * k + z);
  cost.efficiency = d.cost("gemv.row_efficiency");
  cost.activation_bytes = k * static_cast<double>(bytes_of(x)) + z * 4;
  // Nothing interrupts the stream, so it comes at DRAM's pace. Other products wait for each other, which their bytes are charged for.
  cost.weight_bytes = static_cast<double>(phase.ring.chunk_bytes * phase.ring.chunks_per_rtask) * d.cost("row_feed_forward.stream_share");
  cost.latency_us = d.cost("gemv.row_us") + static_cast<double>(phase.ring.chunks_per_rtask) * d.cost("gemv.row_chunk_us");
  if (f.is_packed()) cost.latency_us += d.cost("row_feed_forward.cells_us");
  if (f.steps.normalize) cost.latency_us += d.cost("gemv.row_norm_us");
  cost.early_us = d.cost("gemv.row_early_us");
  return phase;
}

Phase sum_phase(const Request& request, const RowFeed& f, int64_t parts) {
  const Graph& graph = request.graph;
  const DType z = graph.tensor(f.z).dtype;
  Phase phase = early_phase("kernels/product/row_feed_forward.cuh", "rk::row_feed_sum", "rk::RowFeedSumArgs");
  phase.template_args = {{"Out", value_type(z)}, {"WORDS", "0"}};
  phase.args = {{"partial", ArgValue{ScratchArg{0}}},
                {"infos", ArgValue{PackedArg{0}}},
                {"residual", tensor_arg(f.residual)},
                {"out", tensor_arg(f.z)},
                {"out_words", ArgValue{WordsArg{f.z, rk::kGemvOutBit, /*else_null=*/true}}},
                {"parts", arg(parts)},
                {"pitch", arg(f.pitch())},
                {"columns", arg(f.columns())}};
  phase.may_publish = {words_use(graph, f.z, rk::kGemvOutBit, "rk::kGemvOutWords")};
  phase.rtasks = ceil_div(f.columns(), rk::kRowFeedSumColumns);
  phase.work_bytes = rk::kComputeWarps * rk::kRowFeedSumColumns * 4;
  const auto columns = static_cast<double>(rk::kRowFeedSumColumns);
  phase.cost.activation_bytes = columns * (4 * static_cast<double>(parts) + 2 * static_cast<double>(bytes_of(z)));
  phase.cost.flops = columns * static_cast<double>(parts);
  phase.cost.latency_us = request.vdevice.cost("row_feed_forward.sum_us");  // it waits for the slowest of all vEUs
  return phase;
}

std::optional<RKernel> rkernel_of(const Request& request, const RowFeed& f, int64_t of_rtask) {
  const ShapedVDevice& d = request.vdevice;
  const int64_t chunk_bytes = chunk_bytes_of(f, of_rtask, d.weight_stage_bytes);
  if (chunk_bytes == 0) return std::nullopt;
  RKernel rkernel;
  rkernel.config = {{"columns", of_rtask}};
  if (f.is_packed()) rkernel.config.emplace_back("first_cell", f.first_cell);
  if (f.second_cell != rk::kCellHalves) rkernel.config.emplace_back("second_cell", f.second_cell);
  const int bits = std::max(bits_of_cell(f.first_cell), bits_of_cell(f.second_cell));
  rkernel.name = fmt::format("row_feed_forward{}<{} columns>", bits < 16 ? fmt::format("_{}bit", bits) : "", of_rtask);
  rkernel.phases = {slices_phase(request, f, of_rtask, chunk_bytes)};
  rkernel.phases.push_back(sum_phase(request, f, rkernel.phases[0].rtasks));
  rkernel.scratch_elements = rkernel.phases[0].rtasks * f.pitch();
  return rkernel.phases[0].work_bytes <= d.work_bytes() ? std::optional(rkernel) : std::nullopt;
}

std::vector<RKernel> offers(const Request& request) {
  const ShapedVDevice& d = request.vdevice;
  if (request.precision == Precision::fp32 || !d.tf32 || d.weight_stages < 2) return {};  // the same GPUs multiply 16 bits
  std::optional<RowFeed> f = feed_of(request.graph, request.rop);
  if (!f) return {};
  f->first_cell = first_cell_of(request.graph, *f);
  std::vector<RKernel> rkernels;
  for (const RowFeedTiling& tiling : tilings_of(request.graph, *f, d)) {
    f->second_cell = tiling.second;
    if (std::optional<RKernel> rkernel = rkernel_of(request, *f, tiling.columns)) rkernels.push_back(std::move(*rkernel));
  }
  return rkernels;
}

// --- accesses ----------------------------------------------------------------------------------------------------------

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase, int64_t index, Accesses& out) {
  const RowFeed f = *feed_of(graph, rop);
  if (phase == 0) {
    for (const Run& run : whole_runs(graph.tensor(f.x))) out.reads.push_back({f.x, run});
    out.writes.push_back({TensorId(), {index * f.pitch(), 1, 0, f.pitch()}});
    return;
  }
  const int64_t first = index * rk::kRowFeedSumColumns, count = std::min<int64_t>(rk::kRowFeedSumColumns, f.columns() - first);
  out.reads.push_back({TensorId(), {first, rkernel.phases[0].rtasks, f.pitch(), rk::kRowFeedSumColumns}});
  const auto columns = [&](TensorId id) { return Region{id, {graph.tensor(id).place.offset + first, 1, 0, count}}; };
  if (f.residual.valid()) out.reads.push_back(columns(f.residual));
  out.writes.push_back(columns(f.z));
}

}  // namespace

Family row_feed_forward() { return {"row_feed_forward", offers, pack, accesses}; }

}  // namespace tamp::kernels
