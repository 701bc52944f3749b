// CumSum and CumProd. Floats are summed in double and each result is rounded once; integers wrap.
#include "compiler/ops/operator.h"
#include "kernels/shared/functions.h"

namespace tamp::ops {
namespace {

template <class T>
Value cumulate(const Cumulate& op, const Call& call) {
  const Shape& shape = call.input(0).shape;
  const Numbers<T> x(call.input(0));
  const int64_t outer = product(shape, 0, op.axis), extent = shape[static_cast<size_t>(op.axis)];
  const int64_t inner = product(shape, op.axis + 1, static_cast<int64_t>(shape.size()));
  std::vector<T> result(static_cast<size_t>(outer * extent * inner));
  for (int64_t l = 0; l < outer * inner; ++l) {
    const int64_t line = l / inner * extent * inner + l % inner;
    T total = op.product ? T{1} : T{0};
    for (int64_t i = 0; i < extent; ++i) {
      const int64_t at = line + (op.reverse ? extent - 1 - i : i) * inner;
      const T next = op.product ? rk::functions::product(total, x[at]) : rk::functions::sum(total, x[at]);
      result[static_cast<size_t>(at)] = op.exclusive ? total : next;
      total = next;
    }
  }
  return output_from(call, result);
}

}  // namespace

TensorTypes infer(const Cumulate& op, const Given& given) {
  given.expect(1);
  if (op.axis < 0 || op.axis >= given.rank(0)) throw bad_input("axis is {}, the input has {} dimensions", op.axis, given.rank(0));
  return {given.type(0)};
}

std::vector<Value> evaluate(const Cumulate& op, const Call& call) {
  if (is_float(call.output().dtype)) return {cumulate<double>(op, call)};
  return {cumulate<int64_t>(op, call)};  // u64 as well: the low bits are the same
}

Traits traits_of(const Cumulate&) { return {Layout::row_major, InF32::none}; }
int64_t own_work(const Cumulate&, const Given&, const TensorTypes&) { return 0; }

}  // namespace tamp::ops
