// Hands the questions of ops.h to the operator's own file. Also the verifier, which checks that the graph's types are those that `infer`
// gives. A user's mistakes are found by the frontend, with the same `infer`, so all failures here are bugs in tamp.
#include <limits>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {

int64_t Given::elements() const {
  int64_t sum = 0;
  for (size_t i = 0; i < operands_.size(); ++i) sum += elements(i);
  return sum;
}

void Given::expect(size_t least, size_t most) const {
  if (operands_.size() < least || operands_.size() > most) throw bad_input("has {} inputs", operands_.size());
  for (size_t i = 0; i < least; ++i) {
    if (!has(i)) throw bad_input("input {} is missing", i);
  }
}

void Given::expect_shape(size_t i, const char* name, const Shape& shape) const {
  if (has(i) && this->shape(i) != shape)
    throw bad_input("{} has shape {}, expected {}", name, shape_text(this->shape(i)), shape_text(shape));
}

void Given::expect_entries(const std::vector<int64_t>& list, const char* attribute, size_t rank) const {
  if (list.size() == rank) return;
  throw bad_input("attribute '{}' has {} entries for {} dimensions", attribute, list.size(), rank);
}

int64_t saturating_product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return std::numeric_limits<int64_t>::max();
  }
  return product;
}

int64_t saturating_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.size() > to.size()) return false;
  const size_t shift = to.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] != 1 && from[d] != to[d + shift]) return false;
  }
  return true;
}

namespace {

OperandList operands_of(const Graph& graph, const ROperator& rop) {
  OperandList operands;
  for (const TensorId id : rop.inputs) {
    if (id.valid())
      operands.push_back(Operand{{graph.tensor(id).dtype, graph.tensor(id).shape}, graph.tensor(id).data.in_memory()});
    else
      operands.push_back(std::nullopt);
  }
  return operands;
}

}  // namespace

std::vector<TensorType> infer(const OpAttrs& attrs, const OperandList& operands) {
  return std::visit([&](const auto& op) { return infer(op, Given(operands)); }, attrs);
}

int64_t work_of(const OpAttrs& attrs, const OperandList& operands, const std::vector<TensorType>& results) {
  constexpr int64_t kPerResult = 35;  // measured on copies and elementwise chains of millions of elements
  const Given given(operands);
  const int64_t own = std::visit([&](const auto& op) { return own_work(op, given, results); }, attrs);
  return saturating_sum(own, saturating_sum(given.elements(), saturating_product({kPerResult, element_count(results[0].shape)})));
}

int64_t work_of(const Graph& graph, const ROperator& rop) {
  std::vector<TensorType> results;
  for (const TensorId id : rop.outputs) results.push_back({graph.tensor(id).dtype, graph.tensor(id).shape});
  return work_of(rop.attrs, operands_of(graph, rop), results);
}

namespace {

Traits traits_of_any(const OpAttrs& attrs) {
  return std::visit([](const auto& op) { return traits_of(op); }, attrs);
}

}  // namespace

Layout layout_of(const OpAttrs& attrs) { return traits_of_any(attrs).layout; }
bool is_identity(const OpAttrs& attrs) { return traits_of_any(attrs).is_identity; }
bool is_f32_only(const OpAttrs& attrs, DType dtype) {
  const InF32 in_f32 = traits_of_any(attrs).in_f32;
  return in_f32 == InF32::all || (in_f32 == InF32::halves && (dtype == DType::f16 || dtype == DType::bf16));
}

namespace {

void check_epilogue(const Graph& graph, const ROperator& rop) {
  const Epilogue& epilogue = rop.epilogue;
  const Shape& y = graph.tensor(rop.outputs[0]).shape;
  if (epilogue.bias.valid()) {
    const Shape& bias = graph.tensor(epilogue.bias).shape;
    const bool last = has_channels_last(rop.attrs);
    TAMP_CHECK(y.size() >= 2 && element_count(bias) == (last ? y.back() : y[1]),
               where(rop) + ": epilogue bias " + shape_text(bias) + " for " + shape_text(y));
  }
  if (!epilogue.residual.valid()) return;
  const Shape& residual = graph.tensor(epilogue.residual).shape;
  TAMP_CHECK(residual == y, where(rop) + ": epilogue residual " + shape_text(residual) + " for " + shape_text(y));
}

std::string text_of(DType dtype, const Shape& shape) { return name_of(dtype) + shape_text(shape); }

}  // namespace

void verify_shapes(const Graph& graph, const ROperator& rop) {
  std::vector<TensorType> expected;
  try {
    expected = infer(rop.attrs, operands_of(graph, rop));
  } catch (const Error& error) {
    TAMP_CHECK(false, where(rop) + ": " + error.what());
  }
  TAMP_CHECK(rop.outputs.size() == expected.size(),
             where(rop) + ": has " + std::to_string(rop.outputs.size()) + " outputs, expected " + std::to_string(expected.size()));
  for (size_t k = 0; k < expected.size(); ++k) {
    TAMP_CHECK(rop.outputs[k].valid(), where(rop) + ": output " + std::to_string(k) + " is missing");
    const Tensor& found = graph.tensor(rop.outputs[k]);
    TAMP_CHECK(found.shape == expected[k].shape && found.dtype == expected[k].dtype, where(rop) + ": output " + std::to_string(k) + " is " +
                                                                                         text_of(found.dtype, found.shape) + ", expected " +
                                                                                         text_of(expected[k].dtype, expected[k].shape));
  }
  check_epilogue(graph, rop);
}

}  // namespace tamp::ops
