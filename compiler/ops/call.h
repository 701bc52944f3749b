// Shared by all operators' files: the call that an operator answers (graph, rOperator, values), its operands as arrays of one number type,
// and the way back to a Value of the output tensor's element type. Internal to compiler/ops.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ops/number.h"
#include "compiler/ops/ops.h"

namespace tamp::ops {

struct Call {
  const Graph& graph;
  const ROperator& rop;
  const ValueOf& value_of;

  bool has_input(size_t i) const { return i < rop.inputs.size() && rop.inputs[i].valid(); }
  const Value& input(size_t i) const { return value_of(rop.inputs[i]); }
  const Tensor& output() const { return graph.tensor(rop.outputs[0]); }
};

// Whether the channels of the result, which an epilogue's bias belongs to, are its last dimension and not dimension 1.
inline bool has_channels_last(const OpAttrs& attrs) { return std::holds_alternative<MatMul>(attrs); }

// "node 'conv1' (Conv)", the beginning of every message about a rOperator.
std::string where(const ROperator& rop);

// A value's elements as T (see decode); its own memory where that is the element type already. Must not
// outlive the value.
template <class T>
class Numbers {
 public:
  explicit Numbers(const Value& value) {
    const int64_t count = element_count(value.shape);
    with_storage(value.dtype, [&](auto tag) {
      using Stored = decltype(tag);
      const auto* stored = reinterpret_cast<const Stored*>(value.data->data());
      if constexpr (std::is_same_v<Stored, T>) {
        data_ = stored;
      } else {
        converted_.resize(static_cast<size_t>(count));
        for (int64_t i = 0; i < count; ++i) converted_[static_cast<size_t>(i)] = decode<T>(stored[i]);
        data_ = converted_.data();
      }
    });
  }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;

  const T* data() const { return data_; }
  T operator[](int64_t i) const { return data_[i]; }

 private:
  std::vector<T> converted_;
  const T* data_ = nullptr;
};

// Numbers rounded to the element type of a new value.
template <class T>
Value value_from(DType dtype, const Shape& shape, const std::vector<T>& numbers) {
  Bytes bytes(numbers.size() * static_cast<size_t>(bytes_of(dtype)));
  with_storage(dtype, [&](auto tag) {
    using Stored = decltype(tag);
    auto* stored = reinterpret_cast<Stored*>(bytes.data());
    for (size_t i = 0; i < numbers.size(); ++i) stored[i] = encode<Stored>(numbers[i], dtype);
  });
  return Value{dtype, shape, std::make_shared<const Bytes>(std::move(bytes))};
}

template <class T>
Value output_from(const Call& call, const std::vector<T>& numbers) {
  return value_from(call.output().dtype, call.output().shape, numbers);
}

// Row-major strides with every dimension's own stride, extent 1 included (tensor.h's row_major_strides puts 0 there).
std::vector<int64_t> dense_strides(const Shape& shape);
// Strides that walk a dense `from` in the shape `to`, which it broadcasts to: 0 along every repeated dimension.
std::vector<int64_t> broadcast_strides(const Shape& from, const Shape& to);
// numpy's broadcast of two shapes, or none.
std::optional<Shape> joint_shape(const Shape& a, const Shape& b);
// The product of the extents of dimensions [begin, end).
int64_t product(const Shape& shape, int64_t begin, int64_t end);

// Calls f(offset) for every index of `shape` in row-major order.
void for_each_offset(const Shape& shape, const std::vector<int64_t>& strides, int64_t offset, auto&& f) {
  if (element_count(shape) == 0) return;
  if (shape.empty()) {
    f(offset);
    return;
  }
  const size_t inner = shape.size() - 1;
  std::vector<int64_t> index(shape.size(), 0);
  for (;;) {
    for (int64_t i = 0; i < shape[inner]; ++i) f(offset + i * strides[inner]);
    size_t d = inner;
    for (; d > 0; --d) {
      offset += strides[d - 1];
      if (++index[d - 1] < shape[d - 1]) break;
      offset -= strides[d - 1] * shape[d - 1];
      index[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

double activate(const ActivationCall& call, double x);

// y = act(x + bias + residual), or act(x + bias) + residual.
Value apply_epilogue(const Call& call, Value value);

// verify_shapes for one rOperator.
void verify_shapes(const Graph& graph, const ROperator& rop);

// The output as a strided walk over the first input, bytes as they are; offset and strides in elements.
Value strided_copy(const Call& call, int64_t offset, const std::vector<int64_t>& strides);
// The output of these bytes.
Value output_of(const Call& call, Bytes bytes);
size_t output_bytes(const Call& call);

}  // namespace tamp::ops
