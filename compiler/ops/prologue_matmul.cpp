// PrologueMatMul: elementwise steps, a normalisation and a product, one behind the other. The reference is the graph of the three.
#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

// The steps as those of an Elementwise on X0, X1, ...
std::vector<ElementwiseStep> steps_of_rows(const PrologueMatMul& op) {
  std::vector<ElementwiseStep> steps = op.steps;
  for (ElementwiseStep& step : steps) {
    for (int32_t& operand : step.operands) {
      if (operand < 0) continue;
      operand -= static_cast<int32_t>(kPrologueRows);
      if (operand < 0) throw bad_input("a step uses B, scale or shift");
    }
  }
  return steps;
}

MatMul plain_product(const PrologueMatMul& op) { return {false, op.trans_b, op.alpha, 1}; }

// The three rOperators as a graph whose inputs are those of the call, absent ones left out.
class PrologueGraph {
 public:
  PrologueGraph(const PrologueMatMul& op, const Call& call) {
    std::vector<TensorId> operands;
    for (size_t i = 0; i < call.rop.inputs.size(); ++i) operands.push_back(call.has_input(i) ? input(call.input(i)) : TensorId());
    const TensorType of_rows = type_of(operands[kPrologueRows]);
    TensorId rows = operands[kPrologueRows];
    if (!op.steps.empty())
      rows = add(Elementwise{steps_of_rows(op)}, {operands.begin() + static_cast<std::ptrdiff_t>(kPrologueRows), operands.end()}, of_rows);
    if (op.normalize) {
      const int64_t last = static_cast<int64_t>(of_rows.shape.size()) - 1;
      rows = add(Normalize{{last}, op.centered, op.epsilon}, {rows, operands[kPrologueScale], operands[kPrologueShift]}, of_rows);
    }
    graph_.outputs = {add(plain_product(op), {rows, operands[0]}, {call.output().dtype, call.output().shape})};
  }

  std::vector<Value> run() const { return ops::run(graph_, values_); }

 private:
  TensorType type_of(TensorId id) const { return {graph_.tensor(id).dtype, graph_.tensor(id).shape}; }
  TensorId tensor(const TensorType& type, Role role) {
    Tensor made;
    made.name = "t" + std::to_string(graph_.tensors.size());
    made.dtype = type.dtype;
    made.shape = type.shape;
    made.role = role;
    return add_tensor(graph_, std::move(made));
  }
  TensorId input(const Value& value) {
    graph_.inputs.push_back(tensor({value.dtype, value.shape}, Role::input));
    values_.push_back(value);
    return graph_.inputs.back();
  }
  TensorId add(OpAttrs attrs, std::vector<TensorId> inputs, const TensorType& result) {
    const TensorId made = tensor(result, Role::activation);
    graph_.rops.push_back({"rop" + std::to_string(graph_.rops.size()), std::move(attrs), {}, std::move(inputs), {made}, {}});
    return made;
  }

  Graph graph_;
  std::vector<Value> values_;
};

}  // namespace

TensorTypes infer(const PrologueMatMul& op, const Given& given) {
  given.expect(1, given.count());
  if (given.count() <= kPrologueRows) throw bad_input("has no rows");
  OperandList rows(given.all().begin() + static_cast<std::ptrdiff_t>(kPrologueRows), given.all().end());
  for (const std::optional<Operand>& x : rows) {
    if (!x) throw bad_input("one of the rows' operands is missing");
    if (x->type != rows[0]->type)
      throw bad_input("X has shape " + shape_text(x->type.shape) + ", expected " + shape_text(rows[0]->type.shape));
  }
  if (given.rank(0) != 2) throw bad_input("B has shape " + shape_text(given.shape(0)) + ", expected one matrix");
  if (op.steps.empty() && rows.size() != 1) throw bad_input("has " + std::to_string(rows.size()) + " operands and no steps");
  const TensorType made = op.steps.empty() ? rows[0]->type : infer(Elementwise{steps_of_rows(op)}, Given(rows))[0];
  if (made != rows[0]->type) throw bad_input("the steps make " + std::string(name_of(made.dtype)) + shape_text(made.shape));
  for (const size_t i : {kPrologueScale, kPrologueShift}) {
    if (!given.has(i)) continue;
    if (!op.normalize) throw bad_input("has a scale or shift and no normalisation");
    if (given.shape(i) != Shape{made.shape.back()})
      throw bad_input("operand " + std::to_string(i) + " has shape " + shape_text(given.shape(i)) + ", expected " +
                      shape_text({made.shape.back()}));
  }
  const OperandList product = {rows[0], given.all()[0]};
  return infer(plain_product(op), Given(product));
}

std::vector<Value> evaluate(const PrologueMatMul& op, const Call& call) { return PrologueGraph(op, call).run(); }

Layout layout_of(const PrologueMatMul&) { return Layout::row_major; }
bool is_identity(const PrologueMatMul&, const Shape&) { return false; }
bool is_f32_only(const PrologueMatMul&, DType) { return true; }
int64_t own_work(const PrologueMatMul& op, const Given& given, const TensorTypes& results) {
  const OperandList product = {given.all()[kPrologueRows], given.all()[0]};
  int64_t work = saturating_sum(own_work(plain_product(op), Given(product), results), 2 * kWorkOfRead * given.elements(kPrologueRows));
  if (!op.steps.empty()) work = saturating_sum(work, own_work(Elementwise{op.steps}, given, {given.type(kPrologueRows)}));
  return work;
}

}  // namespace tamp::ops
