// Gather: slices along one dimension, by their numbers.
#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {

TensorTypes infer(const Gather& op, const Given& given) {
  given.expect(2);
  const Shape& x = given.shape(0);
  if (op.axis < 0 || op.axis >= given.rank(0)) throw bad_input("attribute 'axis' is {}, the input has {} dimensions", op.axis, x.size());
  if (given.dtype(1) != DType::i64 && given.dtype(1) != DType::i32)
    throw bad_input("indices are {}, expected i64", name_of(given.dtype(1)));
  Shape result(x.begin(), x.begin() + op.axis);
  result.insert(result.end(), given.shape(1).begin(), given.shape(1).end());
  result.insert(result.end(), x.begin() + op.axis + 1, x.end());
  return {{given.dtype(0), result}};
}

std::vector<Value> evaluate(const Gather& op, const Call& call) {
  const Value& x = call.input(0);
  const Numbers<int64_t> indices(call.input(1));
  const int64_t index_count = element_count(call.input(1).shape);
  const int64_t outer = product(x.shape, 0, op.axis);
  const int64_t extent = x.shape[static_cast<size_t>(op.axis)];
  const int64_t row = product(x.shape, op.axis + 1, static_cast<int64_t>(x.shape.size())) * bytes_of(x.dtype);
  Bytes bytes;
  bytes.reserve(output_bytes(call));
  for (int64_t i = 0; i < index_count; ++i) {
    if (indices[i] >= -extent && indices[i] < extent) continue;
    throw bad_input("{}: index {} is out of range for axis {} of shape {}", where(call.rop), indices[i], op.axis, shape_text(x.shape));
  }
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < index_count; ++i) {
      const int64_t at = indices[i] < 0 ? indices[i] + extent : indices[i];
      const std::byte* from = x.data->data() + (o * extent + at) * row;
      bytes.insert(bytes.end(), from, from + row);
    }
  }
  return {output_of(call, std::move(bytes))};
}

Traits traits_of(const Gather&) { return {Layout::row_major, InF32::none}; }
int64_t own_work(const Gather&, const Given&, const TensorTypes&) { return 0; }

}  // namespace tamp::ops
