// StepAttention: attention whose keys and values come in two parts, with Q and K turned first where there are cos and sin.
#include <map>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

// Operands of the Attention that is left when the parts are joined.
constexpr size_t kAttentionOperands = 4;

Shape joined(const Given& given, size_t past, size_t own) {
  Shape shape = given.shape(own);
  if (shape.size() < 2) throw bad_input("K and V have shapes " + shape_text(shape) + ", expected matrices");
  if (!given.has(past)) return shape;
  Shape before = given.shape(past);
  if (before.size() != shape.size()) throw bad_input("keys before have shape " + shape_text(before) + ", own keys " + shape_text(shape));
  const size_t row = shape.size() - 2;
  const int64_t count = before[row];
  before[row] = shape[row];
  if (before != shape) throw bad_input("keys before have shape " + shape_text(given.shape(past)) + ", own keys " + shape_text(shape));
  shape[row] += count;
  return shape;
}

// X * cos + concat(-X[..,S/2:], X[..,:S/2]) * sin
std::vector<double> turned(const Numbers<double>& x, const Shape& shape, const Value& cos_value, const Value& sin_value) {
  const Numbers<double> cos(cos_value), sin(sin_value);
  std::vector<int64_t> at_cos, at_sin;
  for_each_offset(shape, broadcast_strides(cos_value.shape, shape), 0, [&](int64_t at) { at_cos.push_back(at); });
  for_each_offset(shape, broadcast_strides(sin_value.shape, shape), 0, [&](int64_t at) { at_sin.push_back(at); });
  std::vector<double> y(at_cos.size());
  const int64_t size = shape.back(), half = size / 2;
  for (size_t i = 0; i < y.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const double other = at % size < half ? -x[at + half] : x[at - half];
    y[i] = x[at] * cos[at_cos[i]] + other * sin[at_sin[i]];
  }
  return y;
}

// The rows of `before`, if there are any, then those of `own`, for each matrix.
Value joined_value(const Value* before, const std::vector<double>& own, Shape shape) {
  const int64_t columns = shape.back(), matrices = product(shape, 0, static_cast<int64_t>(shape.size()) - 2);
  const int64_t rows = shape[shape.size() - 2], rows_before = before ? before->shape[shape.size() - 2] : 0;
  std::vector<double> past;
  if (before) {
    const Numbers<double> values(*before);
    past.assign(values.data(), values.data() + element_count(before->shape));
  }
  std::vector<double> all;
  for (int64_t m = 0; m < matrices; ++m) {
    all.insert(all.end(), past.begin() + m * rows_before * columns, past.begin() + (m + 1) * rows_before * columns);
    all.insert(all.end(), own.begin() + m * rows * columns, own.begin() + (m + 1) * rows * columns);
  }
  shape[shape.size() - 2] = rows_before + rows;
  return value_from(DType::f64, shape, all);
}

}  // namespace

TensorTypes infer(const StepAttention& op, const Given& given) {
  given.expect(3, kStepSin + 1);
  if (given.has(kStepPastK) != given.has(kStepPastV)) throw bad_input("keys before need values before, and the other way round");
  if (given.has(kStepCos) != given.has(kStepSin)) throw bad_input("cos needs sin, and the other way round");
  std::vector<TensorType> types = {
      {given.dtype(0), given.shape(0)}, {given.dtype(1), joined(given, kStepPastK, 1)}, {given.dtype(2), joined(given, kStepPastV, 2)}};
  for (size_t i = kStepCos; i <= kStepSin && given.has(kStepCos); ++i) {
    if (given.shape(0).back() % 2 != 0)
      throw bad_input("rows of Q have " + std::to_string(given.shape(0).back()) + " elements, an odd number");
    for (const size_t x : {size_t{0}, size_t{1}}) {
      if (!broadcasts_to(given.shape(i), given.shape(x)))
        throw bad_input("cos or sin has shape " + shape_text(given.shape(i)) + ", which does not broadcast to " +
                        shape_text(given.shape(x)));
    }
  }
  if (given.has(kStepBias)) types.push_back({given.dtype(kStepBias), given.shape(kStepBias)});
  OperandList operands;
  for (const TensorType& type : types) operands.push_back(Operand{type});
  return infer(Attention{op.scale, op.weightless}, Given(operands));
}

std::vector<Value> evaluate(const StepAttention& op, const Call& call) {
  std::map<TensorId, Value> made;
  ROperator plain = call.rop;
  plain.inputs.resize(std::min(plain.inputs.size(), kAttentionOperands));
  for (const size_t i : {size_t{0}, size_t{1}, size_t{2}}) {
    const Value& own = call.input(i);
    const Numbers<double> x(own);
    std::vector<double> rows(x.data(), x.data() + element_count(own.shape));
    if (i < 2 && call.has_input(kStepCos)) rows = turned(x, own.shape, call.input(kStepCos), call.input(kStepSin));
    const size_t past = i == 1 ? kStepPastK : kStepPastV;
    const Value* const before = i > 0 && call.has_input(past) ? &call.input(past) : nullptr;
    plain.inputs[i] = TensorId(static_cast<int64_t>(call.graph.tensors.size() + i));
    made.emplace(plain.inputs[i], joined_value(before, rows, own.shape));
  }
  const ValueOf value_of = [&](TensorId id) -> const Value& {
    const auto found = made.find(id);
    return found == made.end() ? call.value_of(id) : found->second;
  };
  return evaluate(Attention{op.scale, op.weightless}, Call{call.graph, plain, value_of});
}

Layout layout_of(const StepAttention&) { return Layout::row_major; }
bool is_identity(const StepAttention&, const Shape&) { return false; }
bool is_f32_only(const StepAttention&, DType) { return true; }
int64_t own_work(const StepAttention& op, const Given& given, const TensorTypes& results) {
  OperandList operands;
  const std::vector<TensorType> types = {
      {given.dtype(0), given.shape(0)}, {given.dtype(1), joined(given, kStepPastK, 1)}, {given.dtype(2), joined(given, kStepPastV, 2)}};
  for (const TensorType& type : types) operands.push_back(Operand{type});
  return own_work(Attention{op.scale, op.weightless}, Given(operands), results);
}

}  // namespace tamp::ops
