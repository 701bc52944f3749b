// Host side of normalize_split.cuh: which rows are cut into how many shares.
#include "kernels/reduce/normalize_split.h"

#include <algorithm>
#include <utility>

#include "kernels/args.h"
#include "kernels/loop.h"
#include "kernels/reduce/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = rk::kRowsRank;
constexpr int64_t kMomentWords = 2, kMomentBytes = 12;  // of a share in scratch; of a thread in shared memory

bool are_multiples(const std::vector<int64_t>& values, int64_t of) {
  return std::all_of(values.begin(), values.end(), [of](int64_t value) { return value % of == 0; });
}

// Whether reduced elements are neighbours in whole, aligned groups of `vector`.
bool has_vectors(const Graph& graph, const ROperator& rop, const Rows& rows, int64_t vector) {
  if (rows.reduced.empty() || rows.reduced.back().extent % vector != 0) return false;
  const Loop outer(rows.reduced.begin(), rows.reduced.end() - 1);
  const auto aligned = [&](NormalizeOperand which, TensorId id) {
    return are_multiples(strides(rows.kept, which), vector) && are_multiples(strides(outer, which), vector) &&
           graph.tensor(id).place.offset % vector == 0;
  };
  const std::vector<int64_t>& steps = rows.reduced.back().strides;
  for (const auto& [which, id] : {std::pair{kNormalizeIn, rop.inputs[0]}, std::pair{kNormalizeOut, rop.outputs[0]}}) {
    if (steps[which] != 1 || !aligned(which, id)) return false;
  }
  for (const auto& [which, i] : {std::pair{kNormalizeScale, size_t{1}}, std::pair{kNormalizeBias, size_t{2}}}) {
    if (operand(rop, i).valid() && steps[which] == 1 && !aligned(which, operand(rop, i))) return false;
  }
  return true;
}

// Rows whose reduced elements are counted in units of `vector`, with threads laid over them.
struct Split {
  Rows rows;
  int64_t vector = 1, shares = 0, units_per_share = 0;
};

// Only so many rows side by side as whole sectors want: the more threads a row has, the fewer shares does each of them combine.
Rows narrowest_whole_sectors(const Rows& rows, int64_t value_bytes, const ShapedVDevice& vdevice) {
  const std::vector<Rows> layouts = layouts_of(rows, vdevice);
  for (const Rows& layout : layouts) {
    if (!layout.lanes_first || layout.lanes * value_bytes <= 32) return layout;
  }
  return layouts.back();
}

std::optional<Split> split_of(const Request& request, const Rows& rows) {
  const ShapedVDevice& vdevice = request.vdevice;
  Split split;
  split.rows = narrowest_whole_sectors(rows, bytes_of(request.graph.tensor(request.rop.inputs[0]).dtype), vdevice);
  for (const int64_t vector : {4, 2}) {
    if (split.vector > 1 || split.rows.lanes_first || !has_vectors(request.graph, request.rop, rows, vector)) continue;
    split.vector = vector;
    LoopDim& inner = split.rows.reduced.back();
    inner.extent /= vector;
    for (int64_t& stride : inner.strides) stride *= vector;
    lay_threads(split.rows, vdevice);
  }
  const int64_t blocks = ceil_div(split.rows.rows(), split.rows.lanes), units = split.rows.reduced_elements();
  if (blocks == 0 || units == 0) return std::nullopt;
  // Each thread has a unit, at least.
  const int64_t shares = std::min(vdevice.veus() / blocks, units * split.rows.lanes / vdevice.compute_threads);
  if (shares < 2) return std::nullopt;
  split.units_per_share = ceil_div(units, shares);
  split.shares = ceil_div(units, split.units_per_share);
  return split;
}

// What memory delivers for each byte of operand `which`: groups of channels are pieces of lines.
double delivered(const Rows& rows, NormalizeOperand which, int64_t value_bytes) {
  constexpr int64_t kSector = 32;
  if (rows.lanes_first) return sector_factor(rows, which, value_bytes);
  const LoopDim& inner = rows.reduced.back();
  if (inner.strides[which] != 1) return static_cast<double>(kSector) / static_cast<double>(value_bytes);
  const int64_t bytes = inner.extent * value_bytes;
  return rows.reduced.size() == 1 ? 1 : static_cast<double>(ceil_div(bytes, kSector) * kSector) / static_cast<double>(bytes);
}

std::vector<Arg> args_of(const Request& request, const Split& split) {
  const ROperator& rop = request.rop;
  const Normalize& attrs = std::get<Normalize>(rop.attrs);
  const Rows& rows = split.rows;
  const auto step = [&](NormalizeOperand which) { return rows.reduced.back().strides[which] / split.vector; };
  return {{"rows", rows_arg(rows, arg(TensorArg{rop.inputs[0]}), arg(TensorArg{rop.outputs[0]}), rows.lanes)},
          {"scale", tensor_arg(operand(rop, 1))},
          {"bias", tensor_arg(operand(rop, 2))},
          {"moments", ArgValue{ScratchArg{0}}},
          {"kept_scale", array_arg(strides(rows.kept, kNormalizeScale), kRank)},
          {"reduced_scale", array_arg(strides(rows.reduced, kNormalizeScale), kRank)},
          {"kept_bias", array_arg(strides(rows.kept, kNormalizeBias), kRank)},
          {"reduced_bias", array_arg(strides(rows.reduced, kNormalizeBias), kRank)},
          {"shares", divisor_arg(split.shares)},
          {"units_per_share", arg(split.units_per_share)},
          {"scale_step", arg(step(kNormalizeScale))},
          {"bias_step", arg(step(kNormalizeBias))},
          {"centered", arg(int64_t{attrs.centered})},
          {"epsilon", float_arg(attrs.epsilon)}};
}

// Cycles of a rTask that reads and writes so many bytes.
double cycles_of(const ShapedVDevice& vdevice, const Split& split, double bytes) {
  const double of_byte =
      vdevice.cost("normalize.split_byte_cycles") *
      (split.vector == 4 ? 1 : vdevice.cost(split.vector == 2 ? "normalize.split_pair_factor" : "normalize.split_single_factor"));
  return vdevice.cost("normalize.split_fixed_cycles") + bytes * of_byte;
}

Phase phase_of(const Request& request, const Rows& rows, const Split& split, bool writes) {
  const ShapedVDevice& vdevice = request.vdevice;
  const DType in = request.graph.tensor(request.rop.inputs[0]).dtype, out = request.graph.tensor(request.rop.outputs[0]).dtype;
  Phase phase = early_phase("kernels/reduce/normalize_split.cuh", writes ? "rk::normalize_shares" : "rk::normalize_moments",
                            "rk::NormalizeSplitArgs");
  phase.template_args = {{"kVector", std::to_string(split.vector)}, {"kFlat", rows.reduced.size() <= 1 ? "true" : "false"}};
  add_value_types(phase, in, writes ? out : DType::f32);
  phase.args = args_of(request, split);
  phase.rtasks = ceil_div(split.rows.rows(), split.rows.lanes) * split.shares;
  phase.work_bytes = vdevice.compute_threads * kMomentBytes;
  const double elements = static_cast<double>(split.rows.lanes * split.units_per_share * split.vector);
  const auto bytes = [&](NormalizeOperand which, DType dtype) {
    Rows laid = rows;
    laid.lanes = split.rows.lanes;
    laid.lanes_first = split.rows.lanes_first;
    return static_cast<double>(bytes_of(dtype)) * delivered(laid, which, bytes_of(dtype));
  };
  phase.cost.activation_bytes = elements * (bytes(kNormalizeIn, in) + (writes ? bytes(kNormalizeOut, out) : 0));
  phase.cost.calibrated_cycles =
      cycles_of(vdevice, split, phase.cost.activation_bytes) + (writes ? vdevice.cost("normalize.split_combine_cycles") : 0);
  return phase;
}

}  // namespace

std::optional<RKernel> split_normalize(const Request& request, const Rows& rows) {
  const std::optional<Split> split = split_of(request, rows);
  if (!split) return std::nullopt;
  const Phase moments = phase_of(request, rows, *split, false);
  RKernel rkernel = one_phase(
      "normalize<split, " + std::to_string(moments.rtasks) + ">",
      {{"lanes", split->rows.lanes}, {"shares", split->shares}, {"elements_per_share", split->units_per_share * split->vector}}, moments);
  rkernel.phases.push_back(phase_of(request, rows, *split, true));
  rkernel.scratch_elements = rows.rows() * split->shares * kMomentWords;
  return rkernel;
}

bool is_split_normalize(const RKernel& rkernel) { return rkernel.phases[0].body == "rk::normalize_moments"; }

void split_normalize_accesses(const Graph& graph, const ROperator& rop, const Rows& rows, const RKernel& rkernel, int phase, int64_t index,
                              Accesses& out) {
  const int64_t lanes = rkernel.config_value("lanes"), shares = rkernel.config_value("shares");
  const int64_t share = index % shares, first = index / shares * lanes, last = std::min(first + lanes, rows.rows());
  const int64_t begin = share * rkernel.config_value("elements_per_share");
  const int64_t end = std::min(begin + rkernel.config_value("elements_per_share"), rows.reduced_elements());
  Loop nest = rows.kept;
  nest.insert(nest.end(), rows.reduced.begin(), rows.reduced.end());
  const auto append = [&](NormalizeOperand which, TensorId id, std::vector<Region>& regions) {
    const int64_t offset = graph.tensor(id).place.offset;
    for_each_box(extents(rows.kept), first, last, [&](const std::vector<int64_t>& kept_low, const std::vector<int64_t>& kept_high) {
      for_each_box(extents(rows.reduced), begin, end, [&](std::vector<int64_t> low, std::vector<int64_t> high) {
        low.insert(low.begin(), kept_low.begin(), kept_low.end());
        high.insert(high.begin(), kept_high.begin(), kept_high.end());
        append_nest_box(nest, which, id, offset, low, high, regions);
      });
    });
  };
  append(kNormalizeIn, rop.inputs[0], out.reads);
  if (phase == 0) {
    out.writes.push_back({TensorId(), {(first * shares + share) * kMomentWords, last - first, shares * kMomentWords, kMomentWords}});
  } else {
    out.reads.push_back({TensorId(), {first * shares * kMomentWords, 1, 0, (last - first) * shares * kMomentWords}});
    append(kNormalizeOut, rop.outputs[0], out.writes);
  }
}

}  // namespace tamp::kernels
