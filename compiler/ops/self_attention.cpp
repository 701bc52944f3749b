// SelfAttention: a normalisation of rows, the product that makes queries, keys and values of them, and attention.
#include <array>
#include <map>

#include "compiler/ops/moments.h"
#include "compiler/ops/operator.h"
#include "compiler/ops/row_products.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

constexpr std::array<size_t, 2> kOfAttention = {kSelfScores, kSelfRowTable};

// Elements of a row of Q, K or V.
int64_t head_size(const SelfAttention& op, const Given& given) {
  if (given.rank(0) < 1) throw bad_input("X has shape " + shape_text(given.shape(0)) + ", expected rows");
  if (op.heads < 1) throw bad_input("heads is " + std::to_string(op.heads) + ", expected at least 1");
  const Shape& w = given.shape(kSelfWeights);
  const int64_t k = given.shape(0).back(), heads = op.heads;
  if (w.size() != 2 || w[0] != k || w[1] == 0 || w[1] % (3 * heads) != 0)
    throw bad_input("W has shape " + shape_text(w) + ", expected [" + std::to_string(k) + ",columns], a multiple of " +
                    std::to_string(3 * heads) + " columns");
  return w[1] / (3 * heads);
}

// Q, K or V of all heads, [heads,rows,size].
Shape shape_of_heads(const SelfAttention& op, const Shape& x, int64_t size) { return {op.heads, rows_of(x), size}; }

// The operands of the Attention.
OperandList attention_operands(const SelfAttention& op, const Given& given) {
  const TensorType part{given.dtype(0), shape_of_heads(op, given.shape(0), head_size(op, given))};
  OperandList operands(3, Operand{part, nullptr});
  for (const size_t i : kOfAttention) operands.push_back(given.has(i) ? given.all()[i] : std::nullopt);
  return operands;
}

}  // namespace

TensorTypes infer(const SelfAttention& op, const Given& given) {
  given.expect(2, kSelfRowTable + 1);
  given.expect_shape(kSelfBias, "B", {3 * op.heads * head_size(op, given)});
  const OperandList operands = attention_operands(op, given);
  return infer(Attention{op.scale, op.weightless}, Given(operands));
}

std::vector<Value> evaluate(const SelfAttention& op, const Call& call) {
  const Value& x = call.input(0);
  const Value rows = normalised_rows(x, op.centered, op.epsilon);
  const int64_t count = rows_of(x.shape), k = x.shape.back(), columns = call.input(kSelfWeights).shape[1];
  const int64_t size = columns / (3 * op.heads);
  const std::vector<double> made = product_of_rows(call, Numbers<double>(rows), count, k, kSelfWeights, kSelfBias);
  std::map<TensorId, Value> parts;
  ROperator attention = call.rop;
  attention.inputs.clear();
  for (int64_t part = 0; part < 3; ++part) {
    std::vector<double> values;
    for (int64_t head = 0; head < op.heads; ++head) {
      for (int64_t row = 0; row < count; ++row) {
        const double* const from = made.data() + row * columns + (part * op.heads + head) * size;
        values.insert(values.end(), from, from + size);
      }
    }
    const TensorId id(static_cast<int64_t>(call.graph.tensors.size()) + part);
    attention.inputs.push_back(id);
    parts.emplace(id, value_from(x.dtype, shape_of_heads(op, x.shape, size), values));
  }
  for (const size_t i : kOfAttention) attention.inputs.push_back(call.has_input(i) ? call.rop.inputs[i] : TensorId());
  const ValueOf value_of = [&](TensorId id) -> const Value& {
    const auto found = parts.find(id);
    return found == parts.end() ? call.value_of(id) : found->second;
  };
  return evaluate(Attention{op.scale, op.weightless}, Call{call.graph, attention, value_of});
}

Layout layout_of(const SelfAttention&) { return Layout::row_major; }
bool is_identity(const SelfAttention&, const Shape&) { return false; }
bool is_f32_only(const SelfAttention&, DType) { return true; }
int64_t own_work(const SelfAttention& op, const Given& given, const TensorTypes& results) {
  const OperandList operands = attention_operands(op, given);
  return saturating_sum(saturating_sum(saturating_product({rows_of(given.shape(0)), given.elements(kSelfWeights)}),
                                       saturating_product({2, kWorkOfRead, given.elements(0)})),
                        own_work(Attention{op.scale, op.weightless}, Given(operands), results));
}

}  // namespace tamp::ops
