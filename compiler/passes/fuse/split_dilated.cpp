#include "compiler/passes/fuse/split_dilated.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

constexpr double kLeastShare = 0.98;  // of the time before: a dozen further levels cost what no estimate holds

const Conv* dilated_conv(const Graph& graph, const ROperator& rop) {
  const auto* const conv = std::get_if<Conv>(&rop.attrs);
  if (!conv || has_prologue(*conv) || conv->group != 1 || rop.inputs.size() != 2 || !is_f32_constant(graph, rop.inputs[1])) return nullptr;
  if (all_are(conv->dilations, 1) || all_are(conv->kernel, 1) || !all_are(conv->strides, 1) || conv->kernel.size() != 2) return nullptr;
  const Tensor& x = graph.tensor(rop.inputs[0]);
  const bool is_f32 = x.dtype == DType::f32 && graph.tensor(rop.outputs[0]).dtype == DType::f32;
  return is_f32 && x.role != Role::constant && !rop.epilogue.residual.valid() && element_count(graph.tensor(rop.outputs[0]).shape) > 0
             ? conv
             : nullptr;
}

// What one tap reads along one dimension: input elements [start, start + extent), as the results [before, before + extent) of `out`.
struct Reach {
  int64_t start = 0, extent = 0, before = 0, after = 0;
};
Reach reach_of(int64_t in, int64_t out, int64_t offset) {  // result i reads element i + offset
  Reach reach;
  reach.before = std::clamp<int64_t>(-offset, 0, out);
  reach.start = std::max<int64_t>(offset, 0);
  reach.extent = std::min(in - reach.start, out - reach.before);
  reach.after = out - reach.before - reach.extent;
  return reach;
}

struct Tap {
  int64_t number = 0;  // in the kernel
  Reach h, w;
};
std::vector<Tap> taps_of(const Graph& graph, const ROperator& rop, const Conv& conv) {
  const Shape &x = graph.tensor(rop.inputs[0]).shape, &y = graph.tensor(rop.outputs[0]).shape;
  std::vector<Tap> taps;
  for (int64_t i = 0; i < conv.kernel[0]; ++i) {
    for (int64_t j = 0; j < conv.kernel[1]; ++j) {
      const Tap tap{i * conv.kernel[1] + j, reach_of(x[2], y[2], i * conv.dilations[0] - conv.pads_begin[0]),
                    reach_of(x[3], y[3], j * conv.dilations[1] - conv.pads_begin[1])};
      if (tap.h.extent > 0 && tap.w.extent > 0) taps.push_back(tap);
    }
  }
  return taps;
}

TensorId weights_of_tap(Graph& graph, TensorId weights, int64_t tap) {
  const Tensor old = graph.tensor(weights);
  const int64_t taps = old.shape[2] * old.shape[3];
  std::vector<float> values;
  for (int64_t i = 0; i < old.shape[0] * old.shape[1]; ++i) values.push_back(f32_data(old)[i * taps + tap]);
  return add_f32_constant(graph, old.name + ".tap" + std::to_string(tap), {old.shape[0], old.shape[1], 1, 1}, values);
}

Graph split(Graph graph, size_t at, const std::vector<Tap>& taps) {
  const ROperator whole = graph.rops[at];
  const Tensor y = graph.tensor(whole.outputs[0]);
  std::vector<ROperator> made;
  TensorId sum;
  for (const Tap& tap : taps) {
    const std::string part = ".tap" + std::to_string(tap.number);
    Slice slice = whole_slice(graph.tensor(whole.inputs[0]).shape);
    slice.starts[2] = tap.h.start, slice.starts[3] = tap.w.start;
    slice.extents[2] = tap.h.extent, slice.extents[3] = tap.w.extent;
    const TensorId read = add_like(graph, whole.inputs[0], y.name + part + ".read", slice.extents);
    made.push_back({whole.name + part + ".read", std::move(slice), {}, {whole.inputs[0]}, {read}, whole.origin});
    const bool is_last = &tap == &taps.back();
    ROperator product = whole;
    if (!is_last) product.name += part;
    product.attrs = Conv{.kernel = {1, 1},
                         .strides = {1, 1},
                         .dilations = {1, 1},
                         .pads_begin = {tap.h.before, tap.w.before},
                         .pads_end = {tap.h.after, tap.w.after}};
    product.inputs = {read, weights_of_tap(graph, whole.inputs[1], tap.number)};
    if (!is_last) {
      product.epilogue = {};
      product.outputs = {add_tensor(graph, {y.name + part, y.dtype, y.shape})};
    }
    product.epilogue.residual = sum;
    sum = product.outputs[0];
    made.push_back(std::move(product));
  }
  const auto here = graph.rops.begin() + static_cast<std::ptrdiff_t>(at);
  graph.rops.insert(graph.rops.erase(here), made.begin(), made.end());
  return remove_dead(std::move(graph));
}

}  // namespace

Graph split_dilated(Graph graph, const GraphEstimator& estimator) {
  if (!estimator) return graph;
  std::optional<double> now_us;
  for (size_t at = 0; at < graph.rops.size(); ++at) {
    const Conv* const conv = dilated_conv(graph, graph.rops[at]);
    const std::vector<Tap> taps = conv ? taps_of(graph, graph.rops[at], *conv) : std::vector<Tap>();
    if (taps.size() < 2) continue;
    Graph apart = split(graph, at, taps);
    if (!now_us) now_us = estimator(graph);
    const double us = estimator(apart);
    if (!gains(*now_us * kLeastShare, us, 0)) continue;
    at += apart.rops.size() - graph.rops.size();
    now_us = us;
    graph = std::move(apart);
  }
  return graph;
}

}  // namespace tamp::passes
