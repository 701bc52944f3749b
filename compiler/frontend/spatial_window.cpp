#include "compiler/frontend/spatial_window.h"

#include <algorithm>

#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// SAME_*: ceil(in / stride) outputs; an odd pad goes to the end for SAME_UPPER and to the start for SAME_LOWER.
void same_pads(SpatialWindow& window, const Shape& x, bool upper) {
  for (size_t d = 0; d < window.kernel.size(); ++d) {
    const int64_t in = x[d + 2];
    const int64_t out = ceil_div(in, window.strides[d]);
    const int64_t total = std::max<int64_t>((out - 1) * window.strides[d] + window.reach(d) - in, 0);
    window.pads_begin[d] = upper ? total / 2 : total - total / 2;
    window.pads_end[d] = total - window.pads_begin[d];
  }
}

}  // namespace

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

void expect_spatial(NodeImport& n, const Shape& x, size_t most, const char* what) {
  if (x.size() < 3) throw n.bad("input X has shape {}, expected [N,C,spatial...]", shape_text(x));
  if (x.size() > most + 2) throw n.refuse("{}-D {} (X has shape {}), supported: 1-D to {}-D", x.size() - 2, what, shape_text(x), most);
}

Ints spatial_attribute(NodeImport& n, const char* name, size_t spatial, int64_t fallback, int64_t low) {
  const Ints values = n.find_ints(name).value_or(Ints(spatial, fallback));
  if (values.size() != spatial) throw n.bad("attribute '{}' has {} values, expected {}", name, values.size(), spatial);
  for (const int64_t value : values) {
    if (value < low || value > kMaxAttribute) throw n.bad("attribute '{}' is {}, each must be at least {}", name, shape_text(values), low);
  }
  return values;
}

Ints kernel_attribute(NodeImport& n, const Shape& x) {
  if (!n.find("kernel_shape")) throw n.bad("attribute 'kernel_shape' is missing");
  return spatial_attribute(n, "kernel_shape", x.size() - 2, 1, 1);
}

Ints kernel_of_weights(NodeImport& n, const Shape& x, const Shape& w) {
  if (w.size() != x.size()) throw n.bad("W has shape {}, X has shape {}: ranks differ", shape_text(w), shape_text(x));
  const Ints kernel(w.begin() + 2, w.end());
  for (const int64_t extent : kernel) {
    if (extent < 1 || extent > kMaxAttribute) throw n.bad("W has shape {}, the kernel must not be empty", shape_text(w));
  }
  const Ints stated = n.find_ints("kernel_shape").value_or(kernel);
  if (stated != kernel) throw n.bad("attribute 'kernel_shape' is {}, W has shape {}", shape_text(stated), shape_text(w));
  return kernel;
}

SpatialWindow read_strides(NodeImport& n, Ints kernel, bool dilated) {
  const size_t spatial = kernel.size();
  SpatialWindow window;
  window.kernel = std::move(kernel);
  window.strides = spatial_attribute(n, "strides", spatial, 1, 1);
  window.dilations = dilated ? spatial_attribute(n, "dilations", spatial, 1, 1) : Ints(spatial, 1);
  for (size_t d = 0; d < spatial; ++d) {
    if (window.kernel[d] > kMaxAttribute / window.dilations[d]) throw n.bad("kernel_shape times dilations is too large");
  }
  window.pads_begin = window.pads_end = Ints(spatial, 0);
  return window;
}

void read_pads(NodeImport& n, SpatialWindow& window) {
  const std::optional<Ints> pads = n.find_ints("pads");
  if (!pads) return;
  const size_t spatial = window.kernel.size();
  if (pads->size() != 2 * spatial) throw n.bad("attribute 'pads' has {} values, expected {}", pads->size(), 2 * spatial);
  for (const int64_t pad : *pads) {
    if (pad < 0 || pad > kMaxAttribute) throw n.bad("attribute 'pads' is {}, each must be at least 0", shape_text(*pads));
  }
  window.pads_begin.assign(pads->begin(), pads->begin() + static_cast<std::ptrdiff_t>(spatial));
  window.pads_end.assign(pads->begin() + static_cast<std::ptrdiff_t>(spatial), pads->end());
}

AutoPad read_auto_pad(NodeImport& n) {
  const std::string auto_pad = n.attr_string("auto_pad", "NOTSET");
  if (auto_pad == "NOTSET" || auto_pad.empty()) return AutoPad::none;
  if (auto_pad == "SAME_UPPER") return AutoPad::upper;
  if (auto_pad == "SAME_LOWER") return AutoPad::lower;
  if (auto_pad == "VALID") return AutoPad::valid;
  throw n.bad("attribute 'auto_pad' is '{}', expected NOTSET, SAME_UPPER, SAME_LOWER, or VALID", printable(auto_pad));
}

SpatialWindow read_window(NodeImport& n, const Shape& x, Ints kernel, bool dilated, bool& ceil_mode) {
  SpatialWindow window = read_strides(n, std::move(kernel), dilated);
  const AutoPad auto_pad = read_auto_pad(n);
  if (auto_pad == AutoPad::none) {
    read_pads(n, window);
    return window;
  }
  n.ignore("pads");
  ceil_mode = false;  // SAME: the pads make the division exact or the rest is cropped; VALID: ONNX gives the same extent for both
  if (auto_pad != AutoPad::valid) same_pads(window, x, auto_pad == AutoPad::upper);
  return window;
}

}  // namespace tamp::frontend
