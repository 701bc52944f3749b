// Resize and Upsample: per axis a table of which elements make which (resize_taps.h), then one Resample for all axes. Where each element is
// a copy of one other and not a float, a Gather per axis instead.
#include <algorithm>
#include <cmath>

#include "compiler/frontend/importers.h"
#include "compiler/frontend/resize_taps.h"
#include "compiler/frontend/spatial_window.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

constexpr size_t kAxesAtOnce = 3;
constexpr int64_t kTapsAtOnce = 16;  // of all axes together: beyond that one after another is less work

struct Named {
  const char* name;
  int value;
  int since, until;  // versions that have it
};

template <size_t kCount>
int choice(NodeImport& n, const char* attribute, const char* fallback, const Named (&names)[kCount]) {
  const std::string word = n.attr_string(attribute, fallback);
  std::string known;
  for (const Named& row : names) {
    if (n.version() < row.since || n.version() > row.until) continue;
    if (word == row.name) return row.value;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  throw n.bad("attribute '{}' is '{}', expected one of {}", attribute, printable(word), known);
}

constexpr int kEver = 1000;
constexpr Named kModes[] = {{"nearest", static_cast<int>(ResizeMode::nearest), 1, kEver},
                            {"linear", static_cast<int>(ResizeMode::linear), 7, kEver},
                            {"bilinear", static_cast<int>(ResizeMode::linear), 1, 1},
                            {"cubic", static_cast<int>(ResizeMode::cubic), 11, kEver}};
constexpr Named kPlaces[] = {{"half_pixel", static_cast<int>(ResizePlace::half_pixel), 11, kEver},
                             {"half_pixel_symmetric", static_cast<int>(ResizePlace::half_pixel_symmetric), 19, kEver},
                             {"pytorch_half_pixel", static_cast<int>(ResizePlace::pytorch_half_pixel), 11, kEver},
                             {"align_corners", static_cast<int>(ResizePlace::align_corners), 11, kEver},
                             {"asymmetric", static_cast<int>(ResizePlace::asymmetric), 11, kEver},
                             {"tf_half_pixel_for_nn", static_cast<int>(ResizePlace::tf_half_pixel_for_nn), 11, 11},
                             {"tf_crop_and_resize", static_cast<int>(ResizePlace::tf_crop_and_resize), 11, kEver}};
constexpr Named kNearest[] = {{"round_prefer_floor", static_cast<int>(ResizeNearest::round_prefer_floor), 11, kEver},
                              {"round_prefer_ceil", static_cast<int>(ResizeNearest::round_prefer_ceil), 11, kEver},
                              {"floor", static_cast<int>(ResizeNearest::floor), 11, kEver},
                              {"ceil", static_cast<int>(ResizeNearest::ceil), 11, kEver}};
enum class Policy { stretch, not_larger, not_smaller };
constexpr Named kPolicies[] = {{"stretch", static_cast<int>(Policy::stretch), 18, kEver},
                               {"not_larger", static_cast<int>(Policy::not_larger), 18, kEver},
                               {"not_smaller", static_cast<int>(Policy::not_smaller), 18, kEver}};

// The values of a constant operand of floats; none where it is left out or empty.
std::vector<float> floats_of(NodeImport& n, size_t i, const char* name) {
  if (!n.has(i)) return {};
  n.expect_constant(i, name);
  if (!is_float(n.dtype(n.in(i)))) throw n.bad("input {} ({}) is {}, expected f32", i, name, name_of(n.dtype(n.in(i))));
  if (n.rank(n.in(i)) != 1) throw n.bad("input {} ({}) has shape {}, expected one dimension", i, name, shape_text(n.shape(n.in(i))));
  return ops::raw_numbers<float>(n.value(n.cast(n.in(i), DType::f32)));
}

void set_scales(NodeImport& n, std::vector<ResizeAxis>& axes, const std::vector<float>& scales) {
  if (scales.size() != axes.size()) throw n.bad("{} scales for {} axes", scales.size(), axes.size());
  for (size_t a = 0; a < axes.size(); ++a) {
    if (!(scales[a] > 0) || !std::isfinite(scales[a])) throw n.bad("scale {} is {}, expected more than 0", a, scales[a]);
    const float out = std::floor(static_cast<float>(axes[a].in) * scales[a]);  // in float, as ONNX infers it
    if (!(out >= 1 && out <= static_cast<float>(kMaxAttribute)))
      throw n.bad("scale {} is {}, which makes {} of the extent {}", a, scales[a], out, axes[a].in);
    axes[a].scale = static_cast<double>(scales[a]);
    axes[a].out = static_cast<int64_t>(out);
  }
}

void set_sizes(NodeImport& n, std::vector<ResizeAxis>& axes, const Ints& sizes, Policy policy) {
  if (sizes.size() != axes.size()) throw n.bad("{} sizes for {} axes", sizes.size(), axes.size());
  double least = INFINITY, most = 0;
  for (size_t a = 0; a < axes.size(); ++a) {
    if (sizes[a] < 1 || sizes[a] > kMaxAttribute) throw n.bad("sizes are {}, each must be at least 1", shape_text(sizes));
    axes[a].out = sizes[a];
    axes[a].scale = static_cast<double>(sizes[a]) / static_cast<double>(axes[a].in);
    least = std::min(least, axes[a].scale);
    most = std::max(most, axes[a].scale);
  }
  if (policy == Policy::stretch) return;
  for (ResizeAxis& axis : axes) {
    axis.scale = policy == Policy::not_larger ? least : most;
    axis.out = std::max<int64_t>(1, static_cast<int64_t>(std::floor(axis.scale * static_cast<double>(axis.in) + 0.5)));
    if (axis.out > kMaxAttribute) throw n.bad("sizes {} make an extent of {}", shape_text(sizes), axis.out);
  }
}

void set_roi(NodeImport& n, std::vector<ResizeAxis>& axes, bool by_scales) {
  const std::vector<float> roi = floats_of(n, 1, "roi");
  if (roi.size() != 2 * axes.size()) throw n.bad("input roi has {} values for {} axes, expected two each", roi.size(), axes.size());
  for (size_t a = 0; a < axes.size(); ++a) {
    axes[a].roi_begin = static_cast<double>(roi[a]);
    axes[a].roi_end = static_cast<double>(roi[a + axes.size()]);
    if (!std::isfinite(axes[a].roi_begin) || !std::isfinite(axes[a].roi_end)) throw n.bad("input roi has a value that is not finite");
    // The extent of a part of the input after scaling is specified in two ways.
    if (by_scales && (axes[a].roi_begin != 0 || axes[a].roi_end != 1))
      throw n.refuse("input roi of a part of X together with scales, supported: with sizes");
  }
}

struct Table {
  int64_t axis = 0;
  double growth = 1;
  TapTable taps;
  TensorId indices = {}, weights = {};
};

TensorId weights_constant(NodeImport& n, const TapTable& table, const Shape& shape) {
  return n.constant(ops::raw_value(DType::f32, shape, table.weights));
}

TensorId resampled(NodeImport& n, TensorId x, std::vector<Table> tables, float outside) {
  std::sort(tables.begin(), tables.end(), [](const Table& a, const Table& b) { return a.axis < b.axis; });
  Resample attrs{{}, outside};
  std::vector<TensorId> inputs = {x};
  for (const Table& table : tables) {
    const Shape shape{static_cast<int64_t>(table.taps.indices.size()) / table.taps.taps, table.taps.taps};
    attrs.axes.push_back(table.axis);
    inputs.push_back(table.indices.valid() ? table.indices : n.constant_i64(table.taps.indices, shape));
    inputs.push_back(table.weights.valid() ? table.weights : weights_constant(n, table.taps, shape));
  }
  return n.add(attrs, inputs);
}

// In a model with lengths of run time tables are arithmetic on the extents that is folded, so that they can be had at each length.

// Places that do not depend on the input's extent, but for its last element.
void bound_taps(NodeImport& n, const ResizeRule& rule, ResizeAxis axis, Table& table) {
  const int64_t last = axis.in - 1;
  axis.in += axis.out + table.taps.taps;
  const TapTable free = tap_table(rule, axis);
  const Shape shape{axis.out, free.taps};
  table.indices = n.elementwise(ElementwiseOp::min, {n.constant_i64(free.indices, shape), n.constant_i64(last)});
  table.weights = weights_constant(n, free, shape);
}

// Where the scale is out / in, element o lies at a fraction of whole numbers: `above` / `below`.
void fraction_taps(NodeImport& n, const ResizeRule& rule, const ResizeAxis& axis, Table& table) {
  const auto with = [&](ElementwiseOp op, TensorId a, TensorId b) { return n.elementwise(op, {a, b}); };
  const auto number = [&](int64_t value) { return n.constant_i64(value); };
  const TensorId o = n.counting(axis.out, 2, 0), in = number(axis.in), out = number(axis.out), two = number(2);
  TensorId above = with(ElementwiseOp::mul, o, in), below = out;
  if (rule.place == ResizePlace::align_corners) {
    above = with(ElementwiseOp::mul, o, with(ElementwiseOp::sub, in, number(1)));
    below = with(ElementwiseOp::max, with(ElementwiseOp::sub, out, number(1)), number(1));
  } else if (rule.place != ResizePlace::asymmetric) {  // (o + 1/2) * in / out - 1/2
    above = with(ElementwiseOp::sub, with(ElementwiseOp::add, with(ElementwiseOp::mul, above, two), in), out);
    below = with(ElementwiseOp::mul, out, two);
  }
  // Rounded down; what is divided is made positive.
  const auto quotient = [&](TensorId a, TensorId b) {
    return with(ElementwiseOp::sub, with(ElementwiseOp::div, with(ElementwiseOp::add, a, b), b), number(1));
  };
  const auto inside = [&](TensorId at) {
    return with(ElementwiseOp::max, with(ElementwiseOp::min, at, with(ElementwiseOp::sub, in, number(1))), number(0));
  };
  if (rule.mode == ResizeMode::nearest) {
    const TensorId twice = with(ElementwiseOp::mul, below, two), double_above = with(ElementwiseOp::mul, above, two);
    TensorId at = quotient(above, below);
    if (rule.nearest == ResizeNearest::ceil)
      at = quotient(with(ElementwiseOp::add, above, with(ElementwiseOp::sub, below, number(1))), below);
    else if (rule.nearest == ResizeNearest::round_prefer_ceil)
      at = quotient(with(ElementwiseOp::add, double_above, below), twice);
    else if (rule.nearest == ResizeNearest::round_prefer_floor)
      at = quotient(with(ElementwiseOp::add, double_above, with(ElementwiseOp::sub, below, number(1))), twice);
    table.indices = inside(at);
    return;
  }
  const TensorId low = quotient(above, below);
  const TensorId rest = n.cast(with(ElementwiseOp::sub, above, with(ElementwiseOp::mul, low, below)), DType::f32);
  const TensorId share = with(ElementwiseOp::div, rest, n.cast(below, DType::f32));
  const TensorId one = n.constant(ops::raw_value(DType::f32, {}, std::vector<float>{1}));
  table.indices = n.add(Concat{1}, {inside(low), inside(with(ElementwiseOp::add, low, number(1)))});
  table.weights = n.add(Concat{1}, {with(ElementwiseOp::sub, one, share), share});
}

void make_foldable(NodeImport& n, const ResizeRule& rule, const ResizeAxis& axis, bool by_sizes, Table& table) {
  if (!n.keeps_copies() || rule.antialias || rule.exclude_outside) return;
  const bool is_whole = static_cast<double>(axis.out) / static_cast<double>(axis.in) == axis.scale;
  switch (rule.place) {
    case ResizePlace::align_corners:
      if (is_whole && rule.mode != ResizeMode::cubic) fraction_taps(n, rule, axis, table);
      return;
    case ResizePlace::pytorch_half_pixel:
      if (axis.out == 1) return;
      [[fallthrough]];
    case ResizePlace::half_pixel:
    case ResizePlace::asymmetric:
      if (by_sizes && is_whole && rule.mode != ResizeMode::cubic)
        fraction_taps(n, rule, axis, table);
      else if (!by_sizes)
        bound_taps(n, rule, axis, table);
      return;
    default: return;
  }
}

// The order of axes: axes that shrink X most come first.
TensorId resized(NodeImport& n, TensorId x, std::vector<Table> tables, bool copies, float outside) {
  std::stable_sort(tables.begin(), tables.end(), [](const Table& a, const Table& b) { return a.growth < b.growth; });
  const DType dtype = n.dtype(x);
  const bool narrow = dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
  const bool any_outside = std::any_of(tables.begin(), tables.end(), [](const Table& table) { return table.taps.has_outside(); });
  if (copies && !narrow && !any_outside) {
    for (const Table& table : tables)
      x = n.add(Gather{table.axis}, {x, n.constant_i64(table.taps.indices, {static_cast<int64_t>(table.taps.indices.size())})});
    return x;
  }
  if (!is_float(dtype)) throw n.refuse("interpolation of {}, supported: f32, f16, bf16; or mode 'nearest'", name_of(dtype));
  int64_t taps = 1;
  for (const Table& table : tables) taps = std::min(taps * table.taps.taps, kMaxAttribute);
  const size_t at_once = taps > kTapsAtOnce ? 1 : kAxesAtOnce;
  for (size_t first = 0; first < tables.size(); first += at_once) {
    const auto begin = tables.begin() + static_cast<std::ptrdiff_t>(first);
    x = resampled(n, x, {begin, begin + static_cast<std::ptrdiff_t>(std::min(at_once, tables.size() - first))}, outside);
  }
  return x;
}

// `dimensions`: of X, one for each of `axes`.
void resize(NodeImport& n, TensorId x, const ResizeRule& rule, const std::vector<ResizeAxis>& axes, const Ints& dimensions, float outside,
            bool by_sizes) {
  std::vector<Table> tables;
  for (size_t a = 0; a < axes.size(); ++a) {
    const int64_t row_bytes = taps_of(rule, axes[a].scale) * static_cast<int64_t>(sizeof(int64_t) + sizeof(float));
    n.charge(row_bytes > kMaxAttribute / 16 ? INT64_MAX / 2 : axes[a].out * row_bytes);
    Table table{dimensions[a], static_cast<double>(axes[a].out) / static_cast<double>(axes[a].in), tap_table(rule, axes[a])};
    const bool may_differ = n.keeps_copies() && by_sizes && dimensions[a] >= 2;  // at another length
    if (table.taps.is_identity(axes[a].in) && !may_differ) continue;
    make_foldable(n, rule, axes[a], by_sizes, table);
    tables.push_back(std::move(table));
  }
  n.result(0, tables.empty() ? x : resized(n, x, std::move(tables), rule.mode == ResizeMode::nearest, outside));
}

// All axes, or those of the attribute 'axes', in its order.
std::vector<ResizeAxis> axes_of(NodeImport& n, TensorId x, Ints& dimensions) {
  const Shape shape = n.shape(x);
  if (shape.empty()) throw n.bad("input X is a scalar");
  std::vector<ResizeAxis> axes;
  for (const int64_t d : dimensions) {
    const int64_t in = shape[static_cast<size_t>(d)];
    if (in < 1) throw n.refuse("input X has shape {}, which has no elements to resize", shape_text(shape));
    axes.push_back({in, in, 1, 0, 1});
  }
  return axes;
}

}  // namespace

void import_resize(NodeImport& n) {
  const bool is_first = n.version() == 10;
  n.expect_counts(is_first ? 2 : 1, is_first ? 2 : 4);
  const TensorId x = n.in(0);
  Ints dimensions = range(0, n.rank(x));
  ResizeRule rule;
  rule.mode = static_cast<ResizeMode>(choice(n, "mode", "nearest", kModes));
  float outside = 0;
  Policy policy = Policy::stretch;
  if (is_first) {
    rule.place = ResizePlace::asymmetric;
    rule.nearest = ResizeNearest::floor;
  } else {
    rule.place = static_cast<ResizePlace>(choice(n, "coordinate_transformation_mode", "half_pixel", kPlaces));
    rule.nearest = static_cast<ResizeNearest>(choice(n, "nearest_mode", "round_prefer_floor", kNearest));
    rule.cubic_coeff_a = static_cast<double>(n.attr_float("cubic_coeff_a", -0.75F));
    rule.exclude_outside = n.attr_flag("exclude_outside", false);
    outside = n.attr_float("extrapolation_value", 0);
  }
  if (n.version() >= 18) {
    rule.antialias = n.attr_flag("antialias", false);
    policy = static_cast<Policy>(choice(n, "keep_aspect_ratio_policy", "stretch", kPolicies));
    if (const std::optional<Ints> axes = n.find_ints("axes")) {
      n.axes(*axes, n.rank(x));  // no dimension twice
      dimensions.clear();
      for (const int64_t axis : *axes) dimensions.push_back(n.axis(axis, n.rank(x), "axes"));
    }
  }
  std::vector<ResizeAxis> axes = axes_of(n, x, dimensions);
  const std::vector<float> scales = floats_of(n, is_first ? 1 : 2, "scales");
  const Ints sizes = is_first ? Ints{} : n.optional_ints(3, "sizes").value_or(Ints{});
  if (!axes.empty() && scales.empty() == sizes.empty())
    throw n.bad(scales.empty() ? "neither scales nor sizes are given" : "both scales and sizes are given");
  if (!scales.empty()) set_scales(n, axes, scales);
  if (!sizes.empty()) set_sizes(n, axes, sizes, policy);
  if (rule.place == ResizePlace::tf_crop_and_resize) set_roi(n, axes, !scales.empty());
  resize(n, x, rule, axes, dimensions, outside, !sizes.empty());
}

// What Resize 10 does.
void import_upsample(NodeImport& n) {
  if (n.version() >= 10) throw n.bad("the operator ended with opset 9; Resize took its place");
  n.expect_counts(n.version() >= 9 ? 2 : 1, n.version() >= 9 ? 2 : 1);
  const TensorId x = n.in(0);
  Ints dimensions = range(0, n.rank(x));
  std::vector<ResizeAxis> axes = axes_of(n, x, dimensions);
  ResizeRule rule;
  rule.mode = static_cast<ResizeMode>(choice(n, "mode", "nearest", kModes));
  rule.place = ResizePlace::asymmetric;
  rule.nearest = ResizeNearest::floor;
  std::vector<float> scales;
  if (n.version() >= 9) {
    scales = floats_of(n, 1, "scales");
  } else if (n.version() >= 7) {
    scales = n.find_floats("scales").value_or(std::vector<float>{});
  } else {
    if (axes.size() != 4) throw n.bad("input X has shape {}, expected [N,C,H,W]", shape_text(n.shape(x)));
    scales = {1, 1, n.attr_float("height_scale", 0), n.attr_float("width_scale", 0)};
  }
  set_scales(n, axes, scales);
  resize(n, x, rule, axes, dimensions, 0, /*by_sizes=*/false);
}

}  // namespace tamp::frontend
