#include "compiler/passes/fuse/cut_patches.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/passes/memory_order.h"
#include "compiler/passes/rewrite.h"
#include "compiler/passes/view_strides.h"

namespace tamp::passes {
namespace {

// A further level and the copy's body in the program cost what no estimate holds, so a small gain is none.
constexpr double kLeastCutGainUs = 2;

const Conv* patch_conv(const Graph& graph, const ROperator& rop) {
  const auto* conv = std::get_if<Conv>(&rop.attrs);
  if (!conv || has_prologue(*conv) || conv->group != 1 || rop.inputs.size() != 2 || !is_f32_constant(graph, rop.inputs[1])) return nullptr;
  if (conv->kernel != conv->strides || all_are(conv->kernel, 1) || !all_are(conv->dilations, 1)) return nullptr;
  if (!all_are(conv->pads_begin, 0) || !all_are(conv->pads_end, 0)) return nullptr;
  const Tensor& x = graph.tensor(rop.inputs[0]);
  const bool is_f32 = x.dtype == DType::f32 && graph.tensor(rop.outputs[0]).dtype == DType::f32;
  return is_f32 && x.role != Role::constant && element_count(graph.tensor(rop.outputs[0]).shape) > 0 ? conv : nullptr;
}

// Puts the steps between x and the Conv into `before`.
class Cutter {
 public:
  Cutter(Graph& graph, const ROperator& conv, std::vector<ROperator>& before)
      : graph_(graph), name_(conv.name), tensor_name_(graph.tensor(conv.outputs[0]).name), before_(before) {}

  // A view of `from`; `part` makes its name.
  TensorId view(const char* part, OpAttrs attrs, TensorId from, Shape shape) {
    const TensorId made = add_like(graph_, from, tensor_name_ + part, std::move(shape));
    before_.push_back({name_ + part, std::move(attrs), {}, {from}, {made}, {}});
    return made;
  }
  TensorId reshaped(const char* part, TensorId from, const Shape& shape) { return view(part, Reshape{shape}, from, shape); }
  TensorId transposed(const char* part, TensorId from, const std::vector<size_t>& order) {
    Transpose op;
    Shape shape;
    for (const size_t d : order) {
      op.perm.push_back(static_cast<int64_t>(d));
      shape.push_back(graph_.tensor(from).shape[d]);
    }
    return view(part, op, from, std::move(shape));
  }

 private:
  Graph& graph_;
  std::string name_, tensor_name_;
  std::vector<ROperator>& before_;
};

// The values [M,C,kernel..] as [M,kernel..,C].
std::vector<float> channels_last_weights(const Tensor& weights) {
  const float* const data = f32_data(weights);
  const int64_t channels = weights.shape[1], taps = element_count(weights.shape) / (weights.shape[0] * channels);
  std::vector<float> values;
  values.reserve(static_cast<size_t>(element_count(weights.shape)));
  for (int64_t m = 0; m < weights.shape[0]; ++m) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (int64_t c = 0; c < channels; ++c) values.push_back(data[(m * channels + c) * taps + tap]);
    }
  }
  return values;
}

TensorId product_weights(Graph& graph, TensorId id, bool channels_last) {
  const Tensor& old = graph.tensor(id);
  Shape shape(old.shape.size(), 1);
  shape[0] = old.shape[0];
  shape[1] = element_count(old.shape) / old.shape[0];
  if (channels_last) return add_f32_constant(graph, old.name + ".patches", shape, channels_last_weights(old));
  return add_tensor(graph, {old.name + ".patches", old.dtype, std::move(shape), old.role, old.data});
}

// Rewrites the Conv at `at`. `channels_last`: the order of a patch's values, which is best that of x.
Graph cut(Graph graph, size_t at, bool channels_last) {
  ROperator product = graph.rops[at];
  const auto conv = std::get<Conv>(product.attrs);
  const size_t spatial = conv.kernel.size();
  const Shape y = graph.tensor(product.outputs[0]).shape;
  std::vector<ROperator> before;
  Cutter cutter(graph, product, before);
  TensorId x = product.inputs[0];
  const Shape whole = graph.tensor(x).shape;

  Shape part = whole, blocks = {whole[0], whole[1]}, rows = {whole[0]};
  for (size_t d = 0; d < spatial; ++d) {
    part[d + 2] = y[d + 2] * conv.kernel[d];
    blocks.insert(blocks.end(), {y[d + 2], conv.kernel[d]});
    rows.push_back(y[d + 2]);
  }
  rows.push_back(whole[1] * std::accumulate(conv.kernel.begin(), conv.kernel.end(), int64_t{1}, std::multiplies<>()));
  if (part != whole) {
    Slice slice = whole_slice(whole);
    slice.extents = part;
    x = cutter.view(".cropped", slice, x, part);
  }

  // [N,C,h,kh,w,kw] to [N,h,w,C,kh,kw] or [N,h,w,kh,kw,C]
  std::vector<size_t> order = {0}, taps;
  for (size_t d = 0; d < spatial; ++d) {
    order.push_back(2 + 2 * d);
    taps.push_back(3 + 2 * d);
  }
  taps.insert(channels_last ? taps.end() : taps.begin(), 1);
  order.insert(order.end(), taps.begin(), taps.end());
  x = cutter.reshaped(".blocks", x, blocks);
  x = cutter.transposed(".patches", x, order);
  x = cutter.reshaped(".rows", x, rows);
  std::vector<size_t> channels_first(rows.size());
  std::iota(channels_first.begin(), channels_first.end(), size_t{0});
  std::rotate(channels_first.begin() + 1, channels_first.end() - 1, channels_first.end());
  x = cutter.transposed(".columns", x, channels_first);

  const std::vector<int64_t> ones(spatial, 1), zeros(spatial, 0);
  product.attrs = Conv{.kernel = ones, .strides = ones, .dilations = ones, .pads_begin = zeros, .pads_end = zeros};
  product.inputs = {x, product_weights(graph, product.inputs[1], channels_last)};
  graph.rops[at] = std::move(product);
  graph.rops.insert(graph.rops.begin() + static_cast<std::ptrdiff_t>(at), before.begin(), before.end());
  return remove_dead(std::move(graph));
}

}  // namespace

Graph cut_patches(Graph graph, const GraphEstimator& estimator, int64_t cell) {
  if (!estimator) return graph;
  std::optional<double> now_us;
  for (size_t at = 0; at < graph.rops.size(); ++at) {
    if (!patch_conv(graph, graph.rops[at])) continue;
    const TensorId x = graph.rops[at].inputs[0];
    const std::vector<int64_t> strides = preferred_strides(graph, cell)[x.index()];
    const bool channels_last = order_of(graph.tensor(x).shape, strides).back() == 1;
    Graph patched = cut(graph, at, channels_last);
    if (!now_us) now_us = estimator(graph);
    const double us = estimator(patched);
    if (!gains(*now_us, us, kLeastCutGainUs)) continue;
    at += patched.rops.size() - graph.rops.size();
    now_us = us;
    graph = std::move(patched);
  }
  return graph;
}

}  // namespace tamp::passes
