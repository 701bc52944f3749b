// MaxPool, AveragePool, LpPool, MaxUnpool and the global pools. A Pool has two spatial dimensions at most; more of them are pooled one
// after another, because a maximum of maxima is the maximum of all, and the count that an average divides by is the product of one per
// dimension.
#include <algorithm>

#include "compiler/frontend/importers.h"
#include "compiler/frontend/spatial_window.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

constexpr size_t kMaxPooled = 6;  // spatial dimensions

Pool pool_of(PoolKind kind, const SpatialWindow& window, bool count_include_pad) {
  return Pool{kind, window.kernel, window.strides, window.dilations, window.pads_begin, window.pads_end, count_include_pad};
}

// ceil_mode stays only where it makes a difference.
TensorId add_pool(NodeImport& n, Pool pool, TensorId x) {
  const bool ceil_mode = pool.ceil_mode;
  pool.ceil_mode = false;
  const std::vector<ops::TensorType> floored = n.infer(pool, {x});
  pool.ceil_mode = ceil_mode;
  if (n.infer(pool, {x}) == floored) pool.ceil_mode = false;
  return n.add(pool, {x});
}

bool does_nothing(const Pool& pool, size_t d) {
  return pool.kernel[d] == 1 && pool.strides[d] == 1 && pool.pads_begin[d] == 0 && pool.pads_end[d] == 0;
}

// Pools dimension d alone, as the rows of an image whose columns are all dimensions behind d.
Pool pool_along(const Pool& pool, size_t d) {
  Pool one = pool;
  one.kernel = {pool.kernel[d], 1};
  one.strides = {pool.strides[d], 1};
  one.dilations = {pool.dilations[d], 1};
  one.pads_begin = {pool.pads_begin[d], 0};
  one.pads_end = {pool.pads_end[d], 0};
  return one;
}

int64_t product_of(const Shape& shape, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t d = begin; d < end; ++d) product *= shape[d];
  return product;
}

// The last two dimensions together, then one after another.
TensorId pool_volume(NodeImport& n, const Pool& pool, TensorId x) {
  const size_t spatial = pool.kernel.size();
  Shape shape = n.shape(x);
  const size_t rank = shape.size();
  Pool last = pool;
  for (Ints* list : {&last.kernel, &last.strides, &last.dilations, &last.pads_begin, &last.pads_end})
    list->erase(list->begin(), list->end() - 2);
  if (!does_nothing(last, 0) || !does_nothing(last, 1)) {
    x = add_pool(n, last, n.reshape(x, {shape[0], product_of(shape, 1, rank - 2), shape[rank - 2], shape[rank - 1]}));
    shape[rank - 2] = n.shape(x)[2];
    shape[rank - 1] = n.shape(x)[3];
  }
  for (size_t d = spatial - 2; d-- > 0;) {
    if (does_nothing(pool, d)) continue;
    x = n.reshape(x, {shape[0], product_of(shape, 1, d + 2), shape[d + 2], product_of(shape, d + 3, rank)});
    x = add_pool(n, pool_along(pool, d), x);
    shape[d + 2] = n.shape(x)[2];
  }
  return n.reshape(x, shape);
}

TensorId pooled(NodeImport& n, const Pool& pool, TensorId x) {
  return pool.kernel.size() > 2 ? pool_volume(n, pool, x) : add_pool(n, pool, x);
}

// Every window must cover an element of the input.
void expect_small_pads(NodeImport& n, const SpatialWindow& window) {
  for (size_t d = 0; d < window.kernel.size(); ++d) {
    if (std::max(window.pads_begin[d], window.pads_end[d]) < window.reach(d)) continue;
    throw n.refuse("pads {} and {} are not smaller than the window, which spans {}", window.pads_begin[d], window.pads_end[d],
                   window.reach(d));
  }
}

struct PoolNode {
  TensorId x;
  SpatialWindow window;
  bool ceil_mode = false;
};

PoolNode read_pool(NodeImport& n, TensorId x, bool dilated, bool has_ceil_mode) {
  PoolNode node;
  node.x = x;
  const Shape shape = n.shape(node.x);
  expect_spatial(n, shape, kMaxPooled, "pooling");
  node.ceil_mode = has_ceil_mode && n.attr_flag("ceil_mode", false);
  node.window = read_window(n, shape, kernel_attribute(n, shape), dilated, node.ceil_mode);
  expect_small_pads(n, node.window);
  return node;
}

// A scalar, f32 or f64.
TensorId number_of(NodeImport& n, double value, DType dtype) {
  return dtype == DType::f64 ? n.constant_f64(value) : n.constant_f32(static_cast<float>(value));
}

// |x|^p, and its inverse where x is none below zero; of f32 or f64, so that narrow floats are rounded once, at the end.
TensorId power(NodeImport& n, TensorId x, float p) {
  if (p == 2) return n.elementwise(ElementwiseOp::mul, {x, x});
  const TensorId magnitude = n.elementwise(ElementwiseOp::abs, {x});
  return p == 1 ? magnitude : n.elementwise(ElementwiseOp::pow, {magnitude, number_of(n, static_cast<double>(p), n.dtype(x))});
}
TensorId root(NodeImport& n, TensorId x, float p) {
  if (p == 1) return x;
  if (p == 2) return n.elementwise(ElementwiseOp::sqrt, {x});
  const double inverse = n.dtype(x) == DType::f64 ? 1 / static_cast<double>(p) : static_cast<double>(1 / p);
  return n.elementwise(ElementwiseOp::pow, {x, number_of(n, inverse, n.dtype(x))});
}
TensorId widened(NodeImport& n, TensorId x) { return n.dtype(x) == DType::f64 ? x : n.cast(x, DType::f32); }

float exponent_of(NodeImport& n) {
  const float p = n.version() == 1 ? n.attr_float("p", 2) : static_cast<float>(n.attr_int("p", 2));
  if (!(p > 0) || p > 1e6F) throw n.bad("attribute 'p' is {}, expected more than 0", p);
  return p;
}

// X of a pool: floats, and for MaxPool bytes.
void expect_pool_type(NodeImport& n, TensorId x, bool bytes) {
  const DType dtype = n.dtype(x);
  if (!bytes || (dtype != DType::i8 && dtype != DType::u8)) n.expect_float({x});
}

}  // namespace

void import_max_pool(NodeImport& n) {
  n.expect_counts(1, 1, n.version() >= 8 ? 2 : 1);
  expect_pool_type(n, n.in(0), n.version() >= 12);
  const bool column_major = n.version() >= 8 && n.attr_flag("storage_order", false);
  const PoolNode node = read_pool(n, n.in(0), n.version() >= 10, n.version() >= 10);
  Pool pool = pool_of(PoolKind::max, node.window, /*count_include_pad=*/false);
  pool.ceil_mode = node.ceil_mode;
  if (n.wants(0)) n.result(0, pooled(n, pool, node.x));
  if (!n.wants(1)) return;
  expect_spatial(n, n.shape(node.x), 3, "pooling with output Indices");
  const PoolIndices indices{pool.kernel, pool.strides, pool.dilations, pool.pads_begin, pool.pads_end, pool.ceil_mode, column_major};
  if (n.dtype(node.x) == DType::f64 && !n.is_constant(node.x))
    throw n.refuse("output 1 (Indices) of an X of f64, supported: f32, f16, bf16, i8, u8");
  n.result(1, n.add(indices, {n.cast(node.x, DType::f32)}));
}

void import_average_pool(NodeImport& n) {
  n.expect_counts(1, 1);
  expect_pool_type(n, n.in(0), /*bytes=*/false);
  n.result(0, average_pooled(n, n.in(0), {.dilated = n.version() >= 19, .rounds_up = n.version() >= 10, .counts_pads = n.version() >= 7}));
}

TensorId average_pooled(NodeImport& n, TensorId x, const PoolAttributes& has) {
  const bool count_include_pad = has.counts_pads && n.attr_flag("count_include_pad", false);
  const PoolNode node = read_pool(n, x, has.dilated, has.rounds_up);
  Pool pool = pool_of(PoolKind::average, node.window, count_include_pad);
  pool.ceil_mode = node.ceil_mode;
  return pooled(n, pool, node.x);
}

// (sum of |x|^p)^(1/p): the sum is a mean over all of the window, pads and what hangs over the end included, times their number.
void import_lp_pool(NodeImport& n) {
  n.expect_counts(1, 1);
  expect_pool_type(n, n.in(0), /*bytes=*/false);
  const float p = exponent_of(n);
  const PoolNode node = read_pool(n, n.in(0), n.version() >= 18, n.version() >= 18);
  Pool pool = pool_of(PoolKind::average, node.window, /*count_include_pad=*/true);
  pool.ceil_mode = node.ceil_mode;
  const Shape in = n.shape(node.x), out = n.infer(pool, {node.x})[0].shape;
  double elements = 1;
  for (size_t d = 0; d < pool.kernel.size(); ++d) {
    const int64_t needed = (out[d + 2] - 1) * pool.strides[d] + node.window.reach(d) - in[d + 2] - pool.pads_begin[d];
    pool.pads_end[d] = std::max(pool.pads_end[d], needed);
    elements *= static_cast<double>(pool.kernel[d]);
  }
  pool.ceil_mode = false;
  const TensorId mean = pooled(n, pool, power(n, widened(n, node.x), p));
  const TensorId count = number_of(n, elements, n.dtype(mean));
  n.result(0, n.cast(root(n, n.elementwise(ElementwiseOp::mul, {mean, count}), p), n.dtype(node.x)));
}

void import_max_unpool(NodeImport& n) {
  n.expect_counts(2, 3);
  const TensorId x = n.in(0), indices = n.in(1);
  n.expect_float({x});
  const Shape xs = n.shape(x);
  expect_spatial(n, xs, kMaxPooled, "unpooling");
  SpatialWindow window = read_strides(n, kernel_attribute(n, xs), /*dilated=*/false);
  read_pads(n, window);
  Shape shape = xs;
  for (size_t d = 0; d < window.kernel.size(); ++d) {
    shape[d + 2] = (xs[d + 2] - 1) * window.strides[d] + window.kernel[d] - window.pads_begin[d] - window.pads_end[d];
    if (xs[d + 2] < 1 || shape[d + 2] < 1)
      throw n.bad("nothing is left of dimension {} of X of shape {} by strides, kernel_shape and pads", d + 2, shape_text(xs));
  }
  TensorId y = n.add(MaxUnpool{shape}, {x, indices});
  if (const std::optional<Ints> wanted = n.optional_ints(2, "output_shape")) {
    if (wanted->size() != shape.size()) throw n.bad("input output_shape is {}, X has shape {}", shape_text(*wanted), shape_text(xs));
    Pad pad{Ints(shape.size(), 0), {}};
    for (size_t d = 0; d < shape.size(); ++d) {
      pad.after.push_back((*wanted)[d] - shape[d]);
      if (pad.after[d] < 0 || (*wanted)[d] > kMaxAttribute)
        throw n.bad("input output_shape is {}, expected at least {}", shape_text(*wanted), shape_text(shape));
    }
    if (*wanted != shape) y = n.add(pad, {y});
  }
  n.result(0, y);
}

void import_global_pool(NodeImport& n, ReduceKind kind) {
  n.expect_counts(1, 1);
  const TensorId x = n.float_in(0);
  const Shape shape = n.shape(x);
  if (shape.size() < 3) throw n.bad("input X has shape {}, expected [N,C,spatial...]", shape_text(shape));
  n.result(0, n.add(Reduce{kind, range(2, n.rank(x)), /*keepdims=*/true}, {x}));
}

void import_global_lp_pool(NodeImport& n) {
  const float p = exponent_of(n);
  if (p == 1 || p == 2) return import_global_pool(n, p == 1 ? ReduceKind::l1 : ReduceKind::l2);
  n.expect_counts(1, 1);
  const TensorId x = n.float_in(0);
  if (n.rank(x) < 3) throw n.bad("input X has shape {}, expected [N,C,spatial...]", shape_text(n.shape(x)));
  const Reduce sum{ReduceKind::sum, range(2, n.rank(x)), true};
  n.result(0, n.cast(root(n, n.add(sum, {power(n, widened(n, x), p)}), p), n.dtype(x)));
}

}  // namespace tamp::frontend
