// Host side of resample.cuh. The rOperator's operands for indices and weights are packed into tables of taps, with the input's strides
// multiplied in.
#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/loop.h"
#include "kernels/sample/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = 8, kAxes = rk::kResampleAxes, kFirstAxis = 2;  // kFirstAxis: operand of a Loop

struct Tap {  // rk::ResampleTap
  int32_t at;
  float weight;
};

// An axis of the body. The body has three: axes that the rOperator lacks come first, and have one tap.
struct Axis {
  size_t dimension = 0;
  int64_t coordinates = 0, taps = 1, first = 0;  // first: in the packed taps
  TensorId indices, weights;                     // none: no axis
};

std::array<Axis, kAxes> axes_of(const Graph& graph, const ROperator& rop) {
  const std::vector<int64_t>& axes = std::get<Resample>(rop.attrs).axes;
  std::array<Axis, kAxes> out;
  int64_t first = 1;  // tap 0 is for axes that the rOperator lacks
  for (size_t a = 0; a < axes.size(); ++a) {
    Axis& axis = out[kAxes - axes.size() + a];
    axis.indices = rop.inputs[1 + 2 * a];
    axis.weights = rop.inputs[2 + 2 * a];
    axis.dimension = static_cast<size_t>(axes[a]);
    axis.coordinates = graph.tensor(axis.indices).shape[0];
    axis.taps = graph.tensor(axis.indices).shape[1];
    axis.first = first;
    first += axis.coordinates * axis.taps;
  }
  return out;
}

// Operands: output, x (0 along axes), the taps of each axis.
Loop loop_of(const Graph& graph, const ROperator& rop) {
  const Tensor &out = graph.tensor(rop.outputs[0]), &in = graph.tensor(rop.inputs[0]);
  Loop loop;
  for (size_t d = 0; d < out.shape.size(); ++d) {
    LoopDim dim{out.shape[d], {out.place.strides[d], in.place.strides[d]}};
    for (const Axis& axis : axes_of(graph, rop)) {
      const bool is_this = axis.indices.valid() && axis.dimension == d;
      dim.strides.push_back(is_this ? axis.taps : 0);
      if (is_this) dim.strides[1] = 0;
    }
    loop.push_back(dim);
  }
  return normalised(loop);
}

// Four neighbours in memory that are neighbours in x, and whose taps are the same.
bool has_vectors(const Graph& graph, const ROperator& rop, const Loop& loop) {
  if (loop.empty() || loop.back().extent % 4 != 0) return false;
  const std::vector<int64_t>& inner = loop.back().strides;
  if (inner[0] != 1 || inner[1] != 1 || std::any_of(inner.begin() + 2, inner.end(), [](int64_t stride) { return stride != 0; }))
    return false;
  const Tensor &out = graph.tensor(rop.outputs[0]), &in = graph.tensor(rop.inputs[0]);
  bool aligned = out.place.offset % 4 == 0 && in.place.offset % 4 == 0;
  for (size_t d = 0; d + 1 < loop.size(); ++d) aligned &= loop[d].strides[0] % 4 == 0 && loop[d].strides[1] % 4 == 0;
  for (const Axis& axis : axes_of(graph, rop)) aligned &= !axis.indices.valid() || in.place.strides[axis.dimension] % 4 == 0;
  return aligned;
}

// The loop in items of `vector` elements.
Loop in_items(Loop loop, int64_t vector) {
  if (vector == 1) return loop;
  loop.back().extent /= vector;
  for (int64_t& stride : loop.back().strides) stride *= vector;
  return loop;
}

// Taps of a row and of a column as template arguments; 0: whatever there are.
std::pair<int64_t, int64_t> unrolled(int64_t rows, int64_t columns) {
  const bool known = columns == 1 || columns == 2 || columns == 4;
  return known && (rows == 1 || rows == columns) ? std::pair{rows, columns} : std::pair{int64_t{0}, int64_t{0}};
}

RKernel rkernel_of(const Request& request, int64_t rtasks) {
  const ROperator& rop = request.rop;
  const Loop elements = loop_of(request.graph, rop);
  const int64_t vector = has_vectors(request.graph, rop, elements) ? 4 : 1;
  const Loop loop = in_items(elements, vector);
  const int64_t items = loop_elements(loop);
  const int64_t per_rtask = std::max(request.vdevice.compute_threads, ceil_div(items, rtasks));
  const std::array<Axis, kAxes> axes = axes_of(request.graph, rop);
  const auto [rows, columns] = unrolled(axes[1].taps, axes[2].taps);
  ArgList tap_strides;
  std::vector<int64_t> first, counts;
  double taps = 1;
  for (size_t a = 0; a < kAxes; ++a) {
    tap_strides.push_back(array_arg(strides(loop, kFirstAxis + a), kRank));
    first.push_back(axes[a].first);
    counts.push_back(axes[a].taps);
    taps *= static_cast<double>(axes[a].taps);
  }
  Phase phase = body_phase("kernels/sample/resample.cuh", "rk::resample", "rk::ResampleArgs");
  phase.template_args = {{"kVector", std::to_string(vector)}, {"kRows", std::to_string(rows)}, {"kColumns", std::to_string(columns)}};
  phase.args = {{"in", arg(TensorArg{rop.inputs[0]})}, {"out", arg(TensorArg{rop.outputs[0]})}, {"taps", ArgValue{PackedArg{0}}}};
  add_nest_args(phase, "nest", loop, {"out_strides", "in_strides"});
  add_args(phase, {{"tap_strides", ArgValue{tap_strides}},
                   {"first_tap", array_arg(first)},
                   {"taps_of", array_arg(counts)},
                   {"items", arg(items)},
                   {"items_per_rtask", arg(per_rtask)},
                   {"outside", float_arg(std::get<Resample>(rop.attrs).outside)}});
  phase.rtasks = std::max<int64_t>(1, ceil_div(items, per_rtask));
  const auto share = static_cast<double>(per_rtask);
  phase.cost.activation_bytes = share * 4 * static_cast<double>(vector) * (1 + taps);
  phase.cost.flops = share * (60 + taps * (4 + 4 * static_cast<double>(vector)));
  phase.cost.efficiency = request.vdevice.cost("resample.efficiency");
  return one_phase("resample<" + std::to_string(vector) + ", " + std::to_string(phase.rtasks) + ">",
                   {{"elements_per_rtask", per_rtask * vector}}, phase);
}

std::vector<RKernel> offers(const Request& request) {
  const auto& [graph, rop, vdevice, precision] = request;
  if (!std::holds_alternative<Resample>(rop.attrs) || has_epilogue(rop)) return {};
  if (!is_plain_f32(graph.tensor(rop.inputs[0])) || !is_plain_f32(graph.tensor(rop.outputs[0]))) return {};
  for (const Axis& axis : axes_of(graph, rop)) {
    if (axis.indices.valid() && (graph.tensor(axis.indices).data == nullptr || graph.tensor(axis.weights).data == nullptr)) return {};
  }
  if (loop_of(graph, rop).size() > kRank) return {};
  return for_all_and_a_quarter(vdevice, [&](int64_t rtasks) { return rkernel_of(request, rtasks); });
}

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel&, int) {
  const std::vector<int64_t>& in_strides = graph.tensor(rop.inputs[0]).place.strides;
  std::vector<Tap> taps = {{0, 1.0F}};
  for (const Axis& axis : axes_of(graph, rop)) {
    if (!axis.indices.valid()) continue;
    const Bytes &indices = *graph.tensor(axis.indices).data, &weights = *graph.tensor(axis.weights).data;
    for (int64_t i = 0; i < axis.coordinates * axis.taps; ++i) {
      int64_t index;
      Tap tap;
      std::memcpy(&index, indices.data() + i * static_cast<int64_t>(sizeof index), sizeof index);
      std::memcpy(&tap.weight, weights.data() + i * static_cast<int64_t>(sizeof tap.weight), sizeof tap.weight);
      tap.at = index < 0 ? rk::kResampleOutside : static_cast<int32_t>(index * in_strides[axis.dimension]);
      taps.push_back(tap);
    }
  }
  return packed_bytes(taps);
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  append_share(graph, rop, rkernel, loop_of(graph, rop), index, out.writes);
  append_whole(graph, rop.inputs[0], out.reads);
}

}  // namespace

Family resample() { return {"resample", offers, pack, accesses}; }

}  // namespace tamp::kernels
