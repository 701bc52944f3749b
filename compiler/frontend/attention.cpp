#include "compiler/frontend/attention.h"

#include <tuple>

#include "compiler/support/text.h"

namespace tamp::frontend {

TensorId scalar_of(NodeImport& n, float value, DType dtype) { return n.cast(n.constant_f32(value), dtype); }

TensorId bias_of(NodeImport& n, TensorId kept, float otherwise, DType dtype) {
  return n.elementwise(ElementwiseOp::where, {kept, scalar_of(n, 0, dtype), scalar_of(n, otherwise, dtype)});
}

TensorId take_rows(NodeImport& n, TensorId table, TensorId ids, const char* table_name) {
  const Shape shape = n.shape(table);
  if (shape.size() != 2 || shape[0] < 1)
    throw n.bad("input {} has shape {}, expected [rows,size] with at least one row", table_name, shape_text(shape));
  if (n.dtype(ids) != DType::i64 && n.dtype(ids) != DType::i32)
    throw n.bad("indices into input {} are {}, expected i32 or i64", table_name, name_of(n.dtype(ids)));
  for (const int64_t id : n.is_constant(ids) ? n.flat_ints(ids) : Ints()) {
    if (id < 0 || id >= shape[0]) throw n.bad("index {} is outside the {} rows of input {}", id, shape[0], table_name);
  }
  return n.add(Gather{0}, {table, ids});
}

TensorId split_heads(NodeImport& n, TensorId x, int64_t heads) {
  const Shape shape = n.shape(x);
  return n.add(Transpose{{0, 2, 1, 3}}, {n.reshape(x, {shape[0], shape[1], heads, shape[2] / heads})});
}

TensorId join_heads(NodeImport& n, TensorId x) {
  const Shape shape = n.shape(x);
  return n.reshape(n.add(Transpose{{0, 2, 1, 3}}, {x}), {shape[0], shape[2], shape[1] * shape[3]});
}

int64_t past_keys(NodeImport& n, size_t key, size_t value, TensorId k, TensorId v) {
  if (n.has(key) != n.has(value)) throw n.bad("one of past_key and past_value is missing");
  if (!n.has(key)) return 0;
  const int64_t count = n.rank(n.in(key)) == 4 ? n.shape(n.in(key))[2] : 0;
  for (const auto& [past, fresh, name] : {std::tuple{n.in(key), k, "past_key"}, std::tuple{n.in(value), v, "past_value"}}) {
    Shape expected = n.shape(fresh);
    expected[2] = count;
    if (n.shape(past) != expected) throw n.bad("input {} has shape {}, expected {}", name, shape_text(n.shape(past)), shape_text(expected));
    n.expect_same_dtype({past, fresh});
  }
  return count;
}

int64_t append_past(NodeImport& n, size_t key, size_t value, TensorId& k, TensorId& v) {
  const int64_t count = past_keys(n, key, value, k, v);
  if (count == 0) return 0;
  k = n.add(Concat{2}, {n.in(key), k});
  v = n.add(Concat{2}, {n.in(value), v});
  return count;
}

AttentionParts attend(NodeImport& n, TensorId q, TensorId k, TensorId v, const AttentionOptions& options, const AttentionMask& mask) {
  const Shape queries = n.shape(q), keys = n.shape(k), values = n.shape(v);
  const int64_t shared = queries[1] / keys[1];
  // For each head of queries its keys and values. No copies: passes/group_queries finds what is repeated.
  const auto repeated = [&](TensorId x, const Shape& shape) {
    if (shared == 1) return x;
    const TensorId apart = n.reshape(x, {shape[0], shape[1], 1, shape[2], shape[3]});
    return n.reshape(n.expand(apart, {shape[0], shape[1], shared, shape[2], shape[3]}), {shape[0], queries[1], shape[2], shape[3]});
  };
  const DType dtype = n.dtype(q);

  AttentionParts parts;
  const bool is_f64 = dtype == DType::f64;  // a MatMul's factor is f32, too narrow for f64
  if (is_f64) q = n.elementwise(ElementwiseOp::mul, {q, n.constant_f64(options.scale)});
  const MatMul scores{/*trans_a=*/false, /*trans_b=*/true, is_f64 ? 1 : static_cast<float>(options.scale), 1};
  parts.scores = n.add(scores, {q, repeated(k, keys), TensorId()});
  parts.capped = parts.scores;
  if (options.softcap != 0) {
    const TensorId cap = scalar_of(n, options.softcap, dtype);
    const TensorId bounded = n.elementwise(ElementwiseOp::tanh, {n.elementwise(ElementwiseOp::div, {parts.scores, cap})});
    parts.capped = n.elementwise(ElementwiseOp::mul, {bounded, cap});
  }
  parts.biased = mask.bias.valid() ? n.elementwise(ElementwiseOp::add, {parts.capped, mask.bias}) : parts.capped;
  const DType softmax_type = options.softmax_type.value_or(dtype);
  TensorId scored = parts.biased;
  const Shape shape = n.shape(scored);
  if (options.sink.valid()) scored = n.add(Concat{3}, {n.expand(options.sink, {shape[0], shape[1], shape[2], 1}), scored});
  parts.weights = n.cast(n.add(Softmax{3, 3, /*log=*/false}, {n.cast(scored, softmax_type)}), dtype);
  if (options.sink.valid()) parts.weights = n.slice_axis(parts.weights, 3, 1, shape[3]);
  if (mask.kept.valid()) parts.weights = n.elementwise(ElementwiseOp::where, {mask.kept, parts.weights, scalar_of(n, 0, dtype)});
  parts.y = n.add(MatMul{}, {parts.weights, repeated(n.cast(v, dtype), values), TensorId()});
  return parts;
}

}  // namespace tamp::frontend
