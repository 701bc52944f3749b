// Scatter: a tensor in which single elements are replaced by others, or combined with them.
#include <cstring>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"
#include "kernels/shared/numbers.h"

namespace tamp::ops {
namespace {

// Calls f(element of y, element of updates) for every update that has a place in y, in the order of the updates.
void for_each_update(const Scatter& op, const Call& call, auto&& f) {
  const Shape &x = call.input(0).shape, &updates = call.input(2).shape;
  const Numbers<int64_t> indices(call.input(1));
  const auto axis = static_cast<size_t>(op.axis);
  std::vector<int64_t> strides = dense_strides(x);
  const int64_t step = strides[axis], extent = x[axis];
  strides[axis] = 0;
  std::vector<int64_t> index_at;
  for_each_offset(updates, broadcast_strides(call.input(1).shape, updates), 0, [&](int64_t at) { index_at.push_back(at); });
  size_t update = 0;
  for_each_offset(updates, strides, 0, [&](int64_t base) {
    const int64_t given = indices[index_at[update]], index = given < 0 ? given + extent : given;
    if (index >= 0 && index < extent) f(base + index * step, static_cast<int64_t>(update));
    ++update;
  });
}

Bytes replaced(const Scatter& op, const Call& call) {
  Bytes y = *call.input(0).data;
  const auto size = static_cast<size_t>(bytes_of(call.output().dtype));
  const std::byte* updates = call.input(2).data->data();
  for_each_update(op, call, [&](int64_t at, int64_t update) {
    std::memcpy(y.data() + static_cast<size_t>(at) * size, updates + static_cast<size_t>(update) * size, size);
  });
  return y;
}

template <class T>
T combined(ScatterKind kind, T x, T y) {
  switch (kind) {
    case ScatterKind::none: return y;
    case ScatterKind::add: return rk::functions::sum(x, y);
    case ScatterKind::mul: return rk::functions::product(x, y);
    case ScatterKind::max: return rk::functions::max_of(x, y);
    case ScatterKind::min: return rk::functions::min_of(x, y);
  }
  TAMP_CHECK(false, "unknown kind of Scatter");
}

template <class T>
Value combine(const Scatter& op, const Call& call) {
  const Numbers<T> x(call.input(0)), updates(call.input(2));
  const auto type = static_cast<uint32_t>(call.output().dtype);
  std::vector<T> y(x.data(), x.data() + element_count(call.output().shape));
  for_each_update(op, call, [&](int64_t at, int64_t update) {
    T& element = y[static_cast<size_t>(at)];
    element = rk::settled(combined(op.kind, element, updates[update]), type);
  });
  return output_from(call, y);
}

std::string differs(const char* name, const Given& given, size_t i) {
  return std::string("input ") + name + " has shape " + shape_text(given.shape(i)) + ", data has " + shape_text(given.shape(0));
}

}  // namespace

TensorTypes infer(const Scatter& op, const Given& given) {
  given.expect(3);
  const Shape &x = given.shape(0), &indices = given.shape(1), &updates = given.shape(2);
  if (op.axis < 0 || op.axis >= given.rank(0)) throw bad_input("attribute 'axis' is {}, the input has {} dimensions", op.axis, x.size());
  if (given.dtype(1) != DType::i64 && given.dtype(1) != DType::i32)
    throw bad_input("indices are {}, expected i64", name_of(given.dtype(1)));
  if (given.dtype(2) != given.dtype(0)) throw bad_input("updates are {}, data is {}", name_of(given.dtype(2)), name_of(given.dtype(0)));
  if (updates.size() != x.size()) throw bad_input(differs("updates", given, 2));
  if (indices.size() != x.size()) throw bad_input(differs("indices", given, 1));
  for (size_t d = 0; d < x.size(); ++d) {
    const bool along = d == static_cast<size_t>(op.axis);
    if (!along && updates[d] > x[d]) throw bad_input(differs("updates", given, 2));
    if (indices[d] == updates[d] || (!along && indices[d] == 1)) continue;
    throw bad_input("input indices has shape {}, updates has {}", shape_text(indices), shape_text(updates));
  }
  return {given.type(0)};
}

std::vector<Value> evaluate(const Scatter& op, const Call& call) {
  const DType dtype = call.output().dtype;
  if (op.kind == ScatterKind::none) return {output_of(call, replaced(op, call))};
  if (is_float(dtype)) return {combine<double>(op, call)};
  if (dtype == DType::u64) return {combine<uint64_t>(op, call)};
  return {combine<int64_t>(op, call)};
}

Traits traits_of(const Scatter&) { return {Layout::row_major, InF32::none}; }

int64_t own_work(const Scatter&, const Given& given, const TensorTypes&) {
  return saturating_product({given.elements(2), 2 * kWorkOfRead});
}

}  // namespace tamp::ops
