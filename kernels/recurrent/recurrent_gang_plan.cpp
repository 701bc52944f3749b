// First a cell's time per step as a function of its number of shares; then the shares of all cells, so that no cell is much slower than
// the others.
#include "kernels/recurrent/recurrent_gang_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>

#include "kernels/args.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kWarps = rk::kComputeWarps, kThreads = kWarps * rk::kWarp;
constexpr int64_t kRegisterFloats = 96;  // of R, in a thread
constexpr int64_t kMaxLaneRows = 8;
constexpr int64_t kMaxExchangeBytes = int64_t{1} << 30;

// Costs of the vDevice (docs/vdevices.md), read once for all divisions of a rOperator.
struct GangCosts {
  explicit GangCosts(const ShapedVDevice& d) : vdevice(d) {}

  const ShapedVDevice& vdevice;
  double shared_bytes_per_cycle = of("shared_bytes_per_cycle");
  double edges_per_hop = of("edges_per_hop");
  double share_cycles = of("share_cycles");
  double many_rows = of("many_rows"), many_rows_cycles = of("many_rows_cycles");
  double finish_cycles = of("finish_cycles"), round_cycles = of("round_cycles");
  double long_input_ratio = of("long_input_ratio"), long_input_factor = of("long_input_factor");
  double stage_cycles = of("stage_cycles");
  double chunk_cycles = of("chunk_cycles");
  double conversion_cycles = of("conversion_cycles");  // of a weight of 16 bits
  double barrier_cycles = of("barrier_cycles");
  double shuffle_cycles = of("shuffle_cycles");
  double partial_sum_cycles = of("partial_sum_cycles");
  double cycles_per_us = vdevice.clock_ghz * 1e3;

 private:
  double of(const char* name) const { return vdevice.cost(std::string("recurrent_gang.") + name); }
};

// --- time ---------------------------------------------------------------------------------------------------------------

struct StepTime {
  double input_us = 0, hidden_us = 0, finish_us = 0, hop_us = 0;
  int64_t groups = 1;
  bool long_input = false;

  double work_us() const { return input_us + hidden_us + finish_us; }
  double lag_us() const { return hop_us + work_us(); }
  double step_us() const {
    // Measured: the work of one group does not hide the hop of another, and the product of a long input is not hidden behind a hop (7
    // layers of 256 units, I = 1312, fp16, H200: 1.8 us a step, 0.9 with the product ahead).
    const double before_us = long_input ? hop_us + input_us : std::max(hop_us, input_us);
    return static_cast<double>(groups) * (before_us + hidden_us + finish_us);
  }
};

// `streamed`: bytes of weights that all vEUs together read again in each step.
double stream_us(const ShapedVDevice& d, double bytes_of_veu, double streamed) {
  const double gb_per_s = streamed > d.l2_bytes ? std::min(d.dram_gb_per_s, d.l2_gb_per_s) : d.l2_gb_per_s;
  return bytes_of_veu / (gb_per_s / static_cast<double>(d.veus()) * 1e3);
}

// A product of `warps` warps.
struct Chunks {
  int64_t warps, all, shared, streamed;
};

double product_us(const GangCosts& costs, const GangShape& s, const Chunks& chunks, int64_t shares) {
  if (chunks.all == 0) return 0;
  const double rows = static_cast<double>(s.lane_rows), batch = static_cast<double>(s.batch);
  const int64_t schedulers = 4, warps_each = ceil_div(chunks.warps, schedulers);
  const double conversions = s.weights == rk::kFloats ? 0 : costs.conversion_cycles * 4 * rows;
  const double arithmetic = static_cast<double>(chunks.all * warps_each) * (4 * rows * batch + conversions + costs.chunk_cycles);
  const double chunk_bytes = static_cast<double>(chunks.warps * s.chunk_floats() * 4);
  const double reads = static_cast<double>(chunks.shared) * chunk_bytes / costs.shared_bytes_per_cycle +
                       static_cast<double>(chunks.all * chunks.warps) * batch;
  const double stream_bytes = static_cast<double>(chunks.streamed) * chunk_bytes;
  const double us = (std::max(arithmetic, reads) + costs.stage_cycles) / costs.cycles_per_us;
  return std::max(us, stream_us(costs.vdevice, stream_bytes, stream_bytes * static_cast<double>(shares)));
}

StepTime time_of(const GangCosts& costs, const GangShape& s) {
  const int64_t shares = ceil_div(s.hidden, s.units);
  const int64_t rounds = ceil_div(s.units * s.batch * s.item_lanes(), kThreads);
  StepTime t;
  t.groups = s.groups();
  t.input_us = product_us(costs, s, {kWarps, s.chunks_x(), s.w_shared, s.stream_x()}, shares);
  // Measured at I = 1312, H = 256 on an H200: a share with so long an input takes more than twice the sum of its parts.
  t.long_input = s.from == rk::kFromTensor && static_cast<double>(s.input) > costs.long_input_ratio * static_cast<double>(s.hidden);
  if (t.long_input) t.input_us *= costs.long_input_factor;
  t.hidden_us = product_us(costs, s, {kWarps, s.chunks_h(), s.r_shared, s.stream_h()}, shares);
  const int64_t levels = s.split == 8 ? 2 : s.split == 4 ? 1 : 0, products = s.kind == rk::kGru ? 2 : 1;
  const double sum_cycles = costs.shuffle_cycles * static_cast<double>(levels * s.lane_rows * s.batch * products) +
                            costs.partial_sum_cycles * static_cast<double>(s.slots());
  const double round_cycles = costs.finish_cycles + costs.round_cycles * static_cast<double>(rounds - 1);
  const double rows_cycles = static_cast<double>(s.batch) >= costs.many_rows ? costs.many_rows_cycles : 0;
  t.finish_us = (sum_cycles + round_cycles + rows_cycles + (s.alone ? costs.barrier_cycles : 0)) / costs.cycles_per_us;
  t.hop_us =
      s.alone ? 0 : costs.edges_per_hop * costs.vdevice.edge_us + costs.share_cycles * static_cast<double>(shares) / costs.cycles_per_us;
  return t;
}

// --- one cell -------------------------------------------------------------------------------------------------------------

struct CellSizes {
  CellKind kind;
  int32_t from;
  int64_t input, hidden, batch;
  bool plain;
  int64_t weights;
  auto key() const { return std::tuple(kind, from, input, hidden, batch, plain, weights); }
};

struct Option {
  int64_t shares = 0;
  GangShape shape;
  StepTime time;
};

// Gives the weights their places; false if the share does not fit even with all weights streamed.
bool place_weights(const ShapedVDevice& d, GangShape& s) {
  const int64_t room = d.work_bytes() - s.work_floats() * 4;
  if (room < 0) return false;
  const int64_t sums = s.lane_rows * s.batch * (s.kind == rk::kGru ? 2 : 1);
  const auto place = [&](int64_t floats) {
    s.r_registers = std::clamp<int64_t>((floats - std::max<int64_t>(0, sums - 8)) / (4 * s.lane_rows), 0, s.chunks_h());
    const int64_t r_bytes = kWarps * s.chunk_floats() * 4, w_bytes = kWarps * s.chunk_floats() * 4;
    s.r_shared = std::min(room / r_bytes, s.chunks_h() - s.r_registers);
    s.w_shared = std::min((room - s.r_shared * r_bytes) / w_bytes, s.chunks_x());
  };
  place(kRegisterFloats);
  // Weights that are streamed need registers while they are loaded.
  if (s.stream_h() + s.stream_x() > 0) place(kRegisterFloats - 8 * s.lane_rows);
  return true;
}

// The best shape of one share of `units` units.
std::optional<Option> option_of(const GangCosts& costs, const CellSizes& sizes, int64_t units) {
  std::optional<Option> best;
  for (const int64_t split : {1, 2, 4, 8}) {
    for (int64_t batch = 1; batch == 1 || (batch <= 8 && batch < 2 * sizes.batch); batch *= 2) {
      GangShape s;
      s.kind = device_kind(sizes.kind);
      s.from = sizes.from;
      s.input = sizes.input;
      s.hidden = sizes.hidden;
      s.units = units;
      s.split = split;
      s.lane_rows = ceil_div(units * s.gates(), s.row_lanes());
      s.batch = batch;
      s.alone = units == sizes.hidden;
      s.all_rows = sizes.batch;
      s.plain = sizes.plain;
      s.weights = sizes.weights;
      if (s.lane_rows > kMaxLaneRows || s.lane_rows * batch * (s.kind == rk::kGru ? 2 : 1) > 48) continue;
      if (!place_weights(costs.vdevice, s)) continue;
      const StepTime time = time_of(costs, s);
      if (!best || time.step_us() < best->time.step_us()) best = Option{ceil_div(sizes.hidden, units), s, time};
    }
  }
  return best;
}

// By number of shares, from few to many, each faster than the one before.
std::vector<Option> options_of(const GangCosts& costs, const CellSizes& sizes, int64_t veus) {
  std::vector<Option> options;
  int64_t units_before = 0;
  for (int64_t shares = 1; shares <= std::min(veus, sizes.hidden); ++shares) {
    const int64_t units = ceil_div(sizes.hidden, shares);
    if (units == units_before) continue;
    units_before = units;
    std::optional<Option> option = option_of(costs, sizes, units);
    if (!option) continue;
    if (!options.empty() && option->time.step_us() >= options.back().time.step_us()) continue;
    options.push_back(*option);
  }
  return options;
}

// --- all cells --------------------------------------------------------------------------------------------------------------

class Divider {
 public:
  Divider(const Recurrent& recurrent, const std::vector<int64_t>& input_sizes, const ShapedVDevice& d, int64_t weights, int64_t veus)
      : recurrent_(recurrent), vdevice_(d), veus_(veus) {
    const GangCosts costs(d);
    std::map<decltype(CellSizes{}.key()), std::vector<Option>> known;
    for (size_t c = 0; c < recurrent.cells.size(); ++c) {
      const RecurrentCell& cell = recurrent.cells[c];
      const CellSizes sizes{cell.kind,      input_kind(cell), cell.x_is_gates ? 0 : input_sizes[c], cell.hidden, recurrent.batch,
                            is_plain(cell), weights};
      const auto [at, is_new] = known.try_emplace(sizes.key());
      if (is_new) at->second = options_of(costs, sizes, veus);
      options_.push_back(at->second);
    }
  }

  std::optional<GangPlan> run() const {
    // Equal times per step suit layers that follow each other, equal times in all networks side by side.
    std::optional<GangPlan> best;
    for (const bool whole : {false, true}) {
      std::optional<GangPlan> plan = balanced(whole);
      if (plan && (!best || plan->us < best->us)) best = std::move(plan);
    }
    return best;
  }

 private:
  double time(size_t cell, const Option& option, bool whole) const {
    return option.time.step_us() * (whole ? static_cast<double>(recurrent_.cells[cell].steps) : 1);
  }

  // The fewest shares with which every cell is done within `limit`; empty if there are not so many vEUs.
  std::vector<const Option*> within(double limit, bool whole) const {
    std::vector<const Option*> chosen;
    int64_t used = 0;
    for (size_t c = 0; c < options_.size(); ++c) {
      const auto fits = [&](const Option& option) { return time(c, option, whole) <= limit; };
      const auto at = std::find_if(options_[c].begin(), options_[c].end(), fits);
      if (at == options_[c].end()) return {};
      chosen.push_back(&*at);
      used += at->shares;
    }
    return used <= veus_ ? chosen : std::vector<const Option*>();
  }

  std::optional<GangPlan> balanced(bool whole) const {
    std::vector<double> limits;
    for (size_t c = 0; c < options_.size(); ++c) {
      for (const Option& option : options_[c]) limits.push_back(time(c, option, whole));
    }
    std::sort(limits.begin(), limits.end());
    const auto first = std::partition_point(limits.begin(), limits.end(), [&](double limit) { return within(limit, whole).empty(); });
    if (first == limits.end()) return std::nullopt;
    return plan_of(within(*first, whole));
  }

  std::optional<GangPlan> plan_of(const std::vector<const Option*>& chosen) const {
    GangPlan plan;
    double image_bytes = 0, largest_image = 0;
    for (const Option* const option : chosen) {
      GangCell cell;
      cell.shape = option->shape;
      cell.shares = option->shares;
      cell.step_us = option->time.step_us();
      cell.lag_us = option->time.lag_us();
      cell.work_bytes = cell.shape.work_floats() * 4;
      const double bytes = 4 * static_cast<double>(cell.shape.image_floats());
      image_bytes += bytes * static_cast<double>(cell.shares);
      largest_image = std::max(largest_image, bytes);
      plan.shares += cell.shares;
      plan.cells.push_back(std::move(cell));
    }
    place_words(recurrent_, plan);
    if (plan.exchange_words * 8 > kMaxExchangeBytes) return std::nullopt;
    add_ends(plan, stream_us(vdevice_, largest_image, image_bytes));
    return plan;
  }

  void add_ends(GangPlan& plan, double weights_us) const {
    std::vector<double> first(plan.cells.size());
    for (size_t c = 0; c < plan.cells.size(); ++c) {
      const RecurrentCell& cell = recurrent_.cells[c];
      GangCell& to = plan.cells[c];
      const auto end_of = [&](int32_t other) { return other < 0 ? weights_us : plan.cells[static_cast<size_t>(other)].end_us; };
      const double begin =
          std::max({cell.x_cell < 0 ? weights_us : first[static_cast<size_t>(cell.x_cell)], end_of(cell.h0_cell), end_of(cell.c0_cell)});
      first[c] = begin + to.lag_us;
      to.end_us = first[c] + static_cast<double>(cell.steps - 1) * to.step_us;
      if (cell.x_cell >= 0) to.end_us = std::max(to.end_us, end_of(cell.x_cell) + to.lag_us);
      plan.us = std::max(plan.us, to.end_us);
    }
  }

  const Recurrent& recurrent_;
  const ShapedVDevice& vdevice_;
  int64_t veus_;
  std::vector<std::vector<Option>> options_;  // per cell
};

// Whether a gang can compute the network at all, whatever the sizes of its shares.
bool has_gang(const Recurrent& recurrent, const std::vector<int64_t>& input_sizes) {
  if (recurrent.batch < 1 || recurrent.cells.empty()) return false;
  for (size_t c = 0; c < recurrent.cells.size(); ++c) {
    const RecurrentCell& cell = recurrent.cells[c];
    if (cell.steps < 1 || cell.hidden < 1 || input_sizes[c] < 1) return false;
    // Here R is multiplied by reset * h, so a step would need two exchanges.
    if (cell.kind == CellKind::gru && !cell.linear_before_reset) return false;
    // The word of the last step is at a fixed place.
    for (const int32_t before : {cell.h0_cell, cell.c0_cell}) {
      if (before >= 0 && recurrent.cells[static_cast<size_t>(before)].end) return false;
    }
    if (cell.x_cell < 0) continue;
    // Words do not say that a sequence has ended.
    const RecurrentCell& from = recurrent.cells[static_cast<size_t>(cell.x_cell)];
    if (cell.lengths != from.lengths || cell.steps != from.steps || cell.end != from.end || cell.reverse != from.reverse) return false;
  }
  return true;
}

}  // namespace

void place_words(const Recurrent& recurrent, GangPlan& plan) {
  for (const RecurrentCell& cell : recurrent.cells) {
    for (const int32_t from : {cell.x_cell, cell.h0_cell}) {
      if (from >= 0) plan.cells[static_cast<size_t>(from)].publishes = true;
    }
    if (cell.c0_cell >= 0) plan.cells[static_cast<size_t>(cell.c0_cell)].publishes_c = true;
  }
  for (size_t c = 0; c < plan.cells.size(); ++c) {
    GangCell& cell = plan.cells[c];
    cell.publishes = cell.publishes || cell.shares > 1;
    cell.word_row = rk::gang_word_row(cell.shape.hidden);
    cell.word_step = recurrent.batch * cell.word_row;
    cell.own_words = plan.exchange_words;
    if (cell.publishes) plan.exchange_words += recurrent.cells[c].steps * cell.word_step;
    cell.c_words = plan.exchange_words;
    if (cell.publishes_c) plan.exchange_words += cell.word_step;
  }
}

bool is_plain(const RecurrentCell& cell) {
  return cell.functions == default_functions(cell.kind) && cell.clip == 0 && cell.peepholes < 0 && !cell.input_forget && cell.lengths < 0;
}

int32_t device_kind(CellKind kind) {
  static_assert(static_cast<int>(CellKind::lstm) == rk::kLstm && static_cast<int>(CellKind::gru) == rk::kGru &&
                static_cast<int>(CellKind::rnn) == rk::kRnn);
  return static_cast<int32_t>(kind);
}

int32_t input_kind(const RecurrentCell& cell) {
  return cell.x_is_gates ? rk::kFromGates : cell.x_cell >= 0 ? rk::kFromWords : rk::kFromTensor;
}

std::optional<GangPlan> plan_gang(const Recurrent& recurrent, const std::vector<int64_t>& input_sizes, const ShapedVDevice& vdevice,
                                  int64_t weights, int64_t veus) {
  if (!has_gang(recurrent, input_sizes)) return std::nullopt;
  return Divider(recurrent, input_sizes, vdevice, weights, veus).run();
}

}  // namespace tamp::kernels
