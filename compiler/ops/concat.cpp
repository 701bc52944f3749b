// Concat: tensors side by side along one dimension.
#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {

TensorTypes infer(const Concat& op, const Given& given) {
  given.expect(1, given.count());
  Shape result = given.shape(0);
  if (op.axis < 0 || op.axis >= given.rank(0))
    throw bad_input("attribute 'axis' is {}, the inputs have {} dimensions", op.axis, result.size());
  const auto axis = static_cast<size_t>(op.axis);
  for (size_t i = 1; i < given.count(); ++i) {
    if (!given.has(i)) throw bad_input("input {} is missing", i);
    if (given.dtype(i) != given.dtype(0))
      throw bad_input("operands of different types: {} and {}", name_of(given.dtype(0)), name_of(given.dtype(i)));
    Shape other = given.shape(i);
    if (other.size() == result.size()) other[axis] = given.shape(0)[axis];
    if (other != given.shape(0)) {
      throw bad_input("input {} has shape {}, which does not join {} along axis {}", i, shape_text(given.shape(i)),
                      shape_text(given.shape(0)), op.axis);
    }
    result[axis] += given.shape(i)[axis];
  }
  return {{given.dtype(0), result}};
}

std::vector<Value> evaluate(const Concat& op, const Call& call) {
  const Shape& shape = call.output().shape;
  const int64_t outer = product(shape, 0, op.axis);
  Bytes bytes;
  bytes.reserve(output_bytes(call));
  for (int64_t o = 0; o < outer; ++o) {
    for (size_t i = 0; i < call.rop.inputs.size(); ++i) {
      const int64_t row = static_cast<int64_t>(call.input(i).data.size()) / outer;
      const std::byte* from = call.input(i).data->data() + o * row;
      bytes.insert(bytes.end(), from, from + row);
    }
  }
  return {output_of(call, std::move(bytes))};
}

Traits traits_of(const Concat&) { return {Layout::like_largest, InF32::none, /*is_identity=*/true}; }
int64_t own_work(const Concat&, const Given&, const TensorTypes&) { return 0; }

}  // namespace tamp::ops
