// Conv, MaxPool, AveragePool, and the global pools. auto_pad is resolved here: what leaves has explicit pads.
#include <fmt/format.h>

#include "compiler/frontend/importers.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// Larger attributes would overflow the arithmetic below and mean nothing.
constexpr int64_t kMaxAttribute = int64_t{1} << 30;

struct Window {
  Ints kernel, strides, dilations, pads_begin, pads_end;
};

Ints spatial_attribute(NodeImport& n, const char* name, size_t spatial, int64_t fallback, int64_t low) {
  const Ints values = n.find_ints(name).value_or(Ints(spatial, fallback));
  if (values.size() != spatial) throw n.bad(fmt::format("attribute '{}' has {} values, expected {}", name, values.size(), spatial));
  for (const int64_t value : values) {
    if (value < low || value > kMaxAttribute)
      throw n.bad(fmt::format("attribute '{}' is {}, each must be at least {}", name, shape_text(values), low));
  }
  return values;
}

void explicit_pads(NodeImport& n, Window& window, const Ints& pads) {
  const size_t spatial = window.kernel.size();
  if (pads.size() != 2 * spatial) throw n.bad(fmt::format("attribute 'pads' has {} values, expected {}", pads.size(), 2 * spatial));
  for (const int64_t pad : pads) {
    if (pad < 0 || pad > kMaxAttribute) throw n.bad(fmt::format("attribute 'pads' is {}, each must be at least 0", shape_text(pads)));
  }
  window.pads_begin.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(spatial));
  window.pads_end.assign(pads.begin() + static_cast<std::ptrdiff_t>(spatial), pads.end());
}

// The extent that the taps of one window span.
int64_t reach(const Window& window, size_t d) { return (window.kernel[d] - 1) * window.dilations[d] + 1; }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// SAME_*: ceil(in / stride) outputs; an odd pad goes to the end for SAME_UPPER and to the start for SAME_LOWER.
void same_pads(Window& window, const Shape& x, bool upper) {
  for (size_t d = 0; d < window.kernel.size(); ++d) {
    const int64_t in = x[d + 2];
    const int64_t out = ceil_div(in, window.strides[d]);
    const int64_t total = std::max<int64_t>((out - 1) * window.strides[d] + reach(window, d) - in, 0);
    window.pads_begin[d] = upper ? total / 2 : total - total / 2;
    window.pads_end[d] = total - window.pads_begin[d];
  }
}

// `kernel`: from the attribute, or from W's shape. Sets ceil_mode to false where auto_pad leaves it no meaning.
Window read_window(NodeImport& n, const Shape& x, Ints kernel, bool dilated, bool& ceil_mode) {
  const size_t spatial = x.size() - 2;
  Window window;
  window.kernel = std::move(kernel);
  window.strides = spatial_attribute(n, "strides", spatial, 1, 1);
  window.dilations = dilated ? spatial_attribute(n, "dilations", spatial, 1, 1) : Ints(spatial, 1);
  for (size_t d = 0; d < spatial; ++d) {
    if (window.kernel[d] > kMaxAttribute / window.dilations[d]) throw n.bad("kernel_shape times dilations is too large");
  }
  window.pads_begin = window.pads_end = Ints(spatial, 0);
  const std::optional<Ints> pads = n.find_ints("pads");
  const std::string auto_pad = n.attr_string("auto_pad", "NOTSET");
  if (auto_pad == "NOTSET" || auto_pad.empty()) {
    if (pads) explicit_pads(n, window, *pads);
  } else if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
    same_pads(window, x, auto_pad == "SAME_UPPER");
    ceil_mode = false;  // the pads make the division exact or the rest is cropped
  } else if (auto_pad == "VALID") {
    ceil_mode = false;  // ONNX gives the same extent for both
  } else {
    throw n.bad(fmt::format("attribute 'auto_pad' is '{}', expected NOTSET, SAME_UPPER, SAME_LOWER, or VALID", printable(auto_pad)));
  }
  return window;
}

void expect_spatial(NodeImport& n, const Shape& x, const char* what) {
  if (x.size() < 3) throw n.bad(fmt::format("input X has shape {}, expected [N,C,spatial...]", shape_text(x)));
  if (x.size() > 4) throw n.refuse(fmt::format("{}-D {} (X has shape {}), supported: 1-D and 2-D", x.size() - 2, what, shape_text(x)));
}

void import_pool(NodeImport& n, PoolKind kind, bool dilated, bool has_ceil_mode) {
  const TensorId x = n.in(0);
  const Shape shape = n.shape(x);
  n.expect_float({x});
  expect_spatial(n, shape, "pooling");
  if (!n.find("kernel_shape")) throw n.bad("attribute 'kernel_shape' is missing");
  bool ceil_mode = has_ceil_mode && n.attr_flag("ceil_mode", false);
  const Window window = read_window(n, shape, spatial_attribute(n, "kernel_shape", shape.size() - 2, 1, 1), dilated, ceil_mode);
  Pool pool{kind, window.kernel, window.strides, window.dilations, window.pads_begin, window.pads_end};
  for (size_t d = 0; d < window.kernel.size(); ++d) {
    if (std::max(window.pads_begin[d], window.pads_end[d]) < reach(window, d)) continue;
    throw n.refuse(fmt::format("pads {} and {} are not smaller than the window, which spans {}", window.pads_begin[d], window.pads_end[d],
                               reach(window, d)));
  }
  if (kind == PoolKind::average && n.version() >= 7) pool.count_include_pad = n.attr_flag("count_include_pad", false);
  const std::vector<ops::TensorType> floored = n.infer(pool, {x});
  pool.ceil_mode = ceil_mode;
  if (n.infer(pool, {x}) == floored) pool.ceil_mode = false;  // it makes no difference here
  n.result(0, n.add(pool, {x}));
}

}  // namespace

void import_conv(NodeImport& n) {
  n.expect_inputs(2, 3);
  n.expect_outputs(1);
  const TensorId x = n.in(0), w = n.in(1), bias = n.optional_in(2);
  n.expect_float({x, w});
  if (bias.valid()) n.expect_float({x, bias});
  n.result(0, convolution(n, x, w, bias));
}

TensorId convolution(NodeImport& n, TensorId x, TensorId w, TensorId bias) {
  const Shape xs = n.shape(x), ws = n.shape(w);
  expect_spatial(n, xs, "convolution");
  if (ws.size() != xs.size()) throw n.bad(fmt::format("W has shape {}, X has shape {}: ranks differ", shape_text(ws), shape_text(xs)));
  const Ints kernel(ws.begin() + 2, ws.end());
  for (const int64_t extent : kernel) {
    if (extent < 1 || extent > kMaxAttribute) throw n.bad(fmt::format("W has shape {}, the kernel must not be empty", shape_text(ws)));
  }
  const Ints stated = n.find_ints("kernel_shape").value_or(kernel);
  if (stated != kernel) throw n.bad(fmt::format("attribute 'kernel_shape' is {}, W has shape {}", shape_text(stated), shape_text(ws)));
  const int64_t group = n.attr_int("group", 1);
  bool ceil_mode = false;
  const Window window = read_window(n, xs, kernel, /*dilated=*/true, ceil_mode);
  const Conv conv{window.kernel, window.strides, window.dilations, window.pads_begin, window.pads_end, group};
  return n.add(conv, {x, w, bias});
}

void import_max_pool(NodeImport& n) {
  n.expect_inputs(1, 1);
  n.expect_outputs(n.version() >= 8 ? 2 : 1);
  if (n.wants(1)) throw n.refuse("output 1 (Indices) is used, supported: output 0 alone");
  if (n.version() >= 8) n.attr_flag("storage_order", false);  // orders Indices only
  import_pool(n, PoolKind::max, n.version() >= 10, n.version() >= 10);
}

void import_average_pool(NodeImport& n) {
  n.expect_inputs(1, 1);
  n.expect_outputs(1);
  import_pool(n, PoolKind::average, n.version() >= 19, n.version() >= 10);
}

void import_global_pool(NodeImport& n, ReduceKind kind) {
  n.expect_inputs(1, 1);
  n.expect_outputs(1);
  const TensorId x = n.in(0);
  n.expect_float({x});
  const Shape shape = n.shape(x);
  if (shape.size() < 3) throw n.bad(fmt::format("input X has shape {}, expected [N,C,spatial...]", shape_text(shape)));
  Reduce reduce{kind, {}, true};
  for (size_t d = 2; d < shape.size(); ++d) {
    reduce.axes.push_back(static_cast<int64_t>(d));
  }
  n.result(0, n.add(reduce, {x}));
}

}  // namespace tamp::frontend
