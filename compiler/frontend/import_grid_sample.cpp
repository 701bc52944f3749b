// GridSample. Version 20 gave the modes other names and allowed more dimensions than two.
#include <fmt/format.h>

#include "compiler/frontend/importers.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

Interpolation interpolation_of(NodeImport& n) {
  const bool is_old = n.version() < 20;
  const std::string linear = is_old ? "bilinear" : "linear", cubic = is_old ? "bicubic" : "cubic";
  const std::string mode = n.attr_string("mode", linear);
  if (mode == linear) return Interpolation::linear;
  if (mode == "nearest") return Interpolation::nearest;
  if (mode == cubic) return Interpolation::cubic;
  throw n.bad(fmt::format("attribute 'mode' is '{}', expected {}, nearest, or {}", printable(mode), linear, cubic));
}

Outside padding_of(NodeImport& n) {
  const std::string padding = n.attr_string("padding_mode", "zeros");
  if (padding == "zeros") return Outside::zeros;
  if (padding == "border") return Outside::border;
  if (padding == "reflection") return Outside::reflection;
  throw n.bad(fmt::format("attribute 'padding_mode' is '{}', expected zeros, border, or reflection", printable(padding)));
}

}  // namespace

void import_grid_sample(NodeImport& n) {
  n.expect_inputs(2, 2);
  n.expect_outputs(1);
  n.expect_float({n.in(0)});
  n.expect_float({n.in(1)});
  const GridSample sample{interpolation_of(n), padding_of(n), n.attr_flag("align_corners", false)};
  n.result(0, n.add(sample, {n.in(0), n.cast(n.in(1), DType::f32)}));
}

}  // namespace tamp::frontend
