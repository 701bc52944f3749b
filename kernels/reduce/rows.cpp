#include "kernels/reduce/rows.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "kernels/args.h"
#include "kernels/reduce/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = rk::kRowsRank;

int64_t smallest_stride(const Loop& loop, size_t operand) {
  int64_t smallest = int64_t{1} << 40;
  for (const LoopDim& dim : loop) smallest = std::min(smallest, std::abs(dim.strides[operand]));
  return smallest;
}

int64_t power_of_two_from(int64_t n) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1)))); }

Loop in_units(Loop loop, int64_t vector) {
  if (vector == 1) return loop;
  loop.back().extent /= vector;
  for (int64_t& stride : loop.back().strides) stride *= vector;
  return loop;
}

}  // namespace

void lay_threads(Rows& rows, const ShapedVDevice& vdevice) {
  const int64_t threads = vdevice.compute_threads;
  rows.lanes_first = smallest_stride(rows.kept, 0) < smallest_stride(rows.reduced, 0);
  // Two elements per thread keep the tree short and the loads wide; 32 lanes (128 bytes) or 32 parts make whole lines.
  const int64_t parts = std::clamp<int64_t>(power_of_two_from(ceil_div(rows.reduced_elements(), 2)), 1, threads);
  const int64_t line = rows.vector == 4 ? 8 : 32;
  if (rows.lanes_first)
    rows.lanes = std::clamp<int64_t>(threads / parts, std::min(line, power_of_two_from(rows.rows())), threads);
  else
    rows.lanes = threads / parts;
  // With rows to spare, a warp or less per row has fewer steps to combine; four threads, where neighbours have neighbouring rows.
  const int64_t least = rows.lanes_first ? 4 : 32;
  while (ceil_div(rows.rows(), rows.lanes) > vdevice.veus() && threads / rows.lanes > least) rows.lanes *= 2;
}

std::vector<Rows> layouts_of(Rows rows, const ShapedVDevice& vdevice) {
  lay_threads(rows, vdevice);
  std::vector<Rows> layouts = {rows};
  if (!rows.lanes_first) return layouts;
  const auto groups = [&](int64_t lanes) { return ceil_div(rows.rows(), lanes); };
  const auto elements = [&](int64_t lanes) { return rows.reduced_elements() * lanes / vdevice.compute_threads; };  // of a thread
  while (rows.lanes > 1 && groups(rows.lanes / 2) <= vdevice.veus() && elements(rows.lanes / 2) >= 2) {
    rows.lanes /= 2;
    if (groups(rows.lanes) > groups(layouts.back().lanes)) layouts.push_back(rows);
  }
  return layouts;
}

double sector_factor(const Rows& rows, size_t operand, int64_t value_bytes) {
  if (!rows.lanes_first) return 1;
  constexpr int64_t kSector = 32;
  const auto bytes = [&](int64_t elements) { return std::min(elements * value_bytes, kSector); };
  // Sectors that the next reduced element shares with this one are read whole after all.
  return std::max(
      1.0, static_cast<double>(bytes(smallest_stride(rows.reduced, operand))) / static_cast<double>(bytes(rows.lanes * rows.vector)));
}

int64_t rows_per_rtask(const Rows& rows, int64_t rtasks) {
  const int64_t groups = std::max<int64_t>(1, ceil_div(rows.rows(), rows.lanes));
  return ceil_div(groups, std::max<int64_t>(1, rtasks)) * rows.lanes;
}

ArgValue rows_arg(const Rows& rows, const ArgValue& in, const ArgValue& out, int64_t per_rtask) {
  const Loop kept = in_units(rows.kept, rows.vector);
  return struct_arg({{"in", in},
                     {"out", out},
                     {"kept_in", array_arg(strides(kept, 0), kRank)},
                     {"kept_out", array_arg(strides(kept, 1), kRank)},
                     {"reduced_in", array_arg(strides(rows.reduced, 0), kRank)},
                     {"reduced_out", array_arg(strides(rows.reduced, 1), kRank)},
                     {"kept_divisors", divisors_arg(inner_extents(kept), kRank - 1)},
                     {"reduced_divisors", divisors_arg(inner_extents(rows.reduced), kRank - 1)},
                     {"rows", arg(rows.rows())},
                     {"reduced", arg(rows.reduced_elements())},
                     {"rows_per_rtask", arg(per_rtask)},
                     {"kept_rank", arg(static_cast<int64_t>(kept.size()))},
                     {"reduced_rank", arg(static_cast<int64_t>(rows.reduced.size()))},
                     {"lanes_log2", log2_arg(rows.lanes)},
                     {"lanes_first", arg(int64_t{rows.lanes_first})}});
}

int64_t kept_per_thread(const Rows& rows, const ShapedVDevice& vdevice) {
  constexpr int64_t kMostKept = 24, kBatch = 4;
  const int64_t each = ceil_div(ceil_div(rows.reduced_elements() * rows.lanes, vdevice.compute_threads), kBatch) * kBatch;
  return each <= kMostKept ? each : 0;
}

RKernel rows_rkernel(const std::string& family, const Rows& rows, int64_t per_rtask, Phase phase) {
  phase.rtasks = std::max<int64_t>(1, ceil_div(rows.rows(), per_rtask));
  return one_phase(family + "<" + std::to_string(rows.lanes) + " rows, " + std::to_string(phase.rtasks) + ">",
                   {{"rows_per_rtask", per_rtask}}, phase);
}

void append_rows(const Rows& rows, const Graph& graph, const ROperator& rop, const RKernel& rkernel, int64_t index, Accesses& out) {
  const int64_t per_rtask = rkernel.config_value("rows_per_rtask");
  const int64_t begin = index * per_rtask, end = std::min(begin + per_rtask, rows.rows());
  append_row_reads(rows, graph, rop.inputs[0], begin, end, out.reads);
  Loop nest = rows.kept;
  nest.insert(nest.end(), rows.reduced.begin(), rows.reduced.end());
  const int64_t each = rows.reduced_elements();
  append_runs(nest, 1, rop.outputs[0], graph.tensor(rop.outputs[0]).place.offset, begin * each, end * each, out.writes);
}

void append_row_reads(const Rows& rows, const Graph& graph, TensorId in, int64_t begin, int64_t end, std::vector<Region>& regions) {
  // Rows as the outer part of one nest: the elements of a row follow each other in its flattened order.
  Loop nest = rows.kept;
  nest.insert(nest.end(), rows.reduced.begin(), rows.reduced.end());
  const int64_t each = rows.reduced_elements();
  append_runs(nest, 0, in, graph.tensor(in).place.offset, begin * each, end * each, regions);
}

}  // namespace tamp::kernels
