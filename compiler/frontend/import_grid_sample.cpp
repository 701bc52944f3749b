// GridSample and AffineGrid, which makes grids for it. Version 20 gave GridSample's modes other names and allowed more dimensions than two.
#include <algorithm>

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
  throw n.bad("attribute 'mode' is '{}', expected {}, nearest, or {}", printable(mode), linear, cubic);
}

Outside padding_of(NodeImport& n) {
  const std::string padding = n.attr_string("padding_mode", "zeros");
  if (padding == "zeros") return Outside::zeros;
  if (padding == "border") return Outside::border;
  if (padding == "reflection") return Outside::reflection;
  throw n.bad("attribute 'padding_mode' is '{}', expected zeros, border, or reflection", printable(padding));
}

// Coordinate i of `extent` in [-1, 1].
double place_of(int64_t i, int64_t extent, bool align_corners) {
  const auto n = static_cast<double>(extent), at = static_cast<double>(i);
  if (!align_corners) return (2 * at + 1) / n - 1;
  return extent == 1 ? -1 : 2 * at / (n - 1) - 1;
}

// [1, pixels, 1]: coordinate `d` of each pixel of an image of these extents.
TensorId places_along(NodeImport& n, const Shape& extents, size_t d, bool align_corners) {
  const int64_t pixels = element_count(extents);
  n.charge(pixels * static_cast<int64_t>(sizeof(float)));
  int64_t inner = 1;
  for (size_t i = d + 1; i < extents.size(); ++i) inner *= extents[i];
  std::vector<float> places;
  for (int64_t p = 0; p < pixels; ++p) places.push_back(static_cast<float>(place_of(p / inner % extents[d], extents[d], align_corners)));
  return n.constant(ops::raw_value(DType::f32, {1, pixels, 1}, places));
}

}  // namespace

// grid[n,p] = theta[n] * (x, y, 1) of pixel p, in 3-D with z. Sums of products and no MatMul, which might round to tf32.
void import_affine_grid(NodeImport& n) {
  n.expect_counts(2, 2);
  const TensorId theta = n.in(0);
  n.expect_float({theta});
  const Shape given = n.shape(theta);
  const Ints size = n.ints(1, "size");
  const bool align_corners = n.attr_flag("align_corners", false);
  if (size.size() != 4 && size.size() != 5) throw n.bad("input size is {}, expected [N,C,H,W] or [N,C,D,H,W]", shape_text(size));
  const Shape extents(size.begin() + 2, size.end());
  int64_t pixels = 1;
  for (const int64_t extent : extents) pixels *= std::clamp<int64_t>(extent, 0, 1 << 20);
  if (size[0] < 1 || pixels < 1 || pixels > (1 << 30) || *std::max_element(extents.begin(), extents.end()) > (1 << 20))
    throw n.bad("input size is {}, expected extents of at least 1 and an image that fits into memory", shape_text(size));
  const auto spatial = static_cast<int64_t>(extents.size());
  if (given != Shape{size[0], spatial, spatial + 1}) {
    throw n.bad("input theta has shape {}, expected [{},{},{}] for size {}", shape_text(given), size[0], spatial, spatial + 1,
                shape_text(size));
  }
  const TensorId columns = n.add(Transpose{{0, 2, 1}}, {n.cast(theta, DType::f32)});
  TensorId sum;
  for (int64_t j = 0; j <= spatial; ++j) {  // x is the last extent's
    Slice slice = whole_slice(n.shape(columns));
    slice.starts[1] = j;
    slice.extents[1] = 1;
    TensorId term = n.add(slice, {columns});
    if (j < spatial)
      term = n.elementwise(ElementwiseOp::mul, {term, places_along(n, extents, static_cast<size_t>(spatial - 1 - j), align_corners)});
    sum = sum.valid() ? n.elementwise(ElementwiseOp::add, {sum, term}) : term;
  }
  Shape grid{size[0]};
  grid.insert(grid.end(), extents.begin(), extents.end());
  grid.push_back(spatial);
  n.result(0, n.cast(n.reshape(sum, grid), n.dtype(theta)));
}

void import_grid_sample(NodeImport& n) {
  n.expect_counts(2, 2);
  n.expect_float({n.in(0)});
  n.expect_float({n.in(1)});
  const GridSample sample{interpolation_of(n), padding_of(n), n.attr_flag("align_corners", false)};
  n.result(0, n.add(sample, {n.in(0), n.cast(n.in(1), DType::f32)}));
}

}  // namespace tamp::frontend
