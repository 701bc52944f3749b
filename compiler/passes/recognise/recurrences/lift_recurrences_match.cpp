#include "compiler/passes/recognise/recurrences/lift_recurrences_match.h"

#include <algorithm>

#include "compiler/passes/rewrite.h"

namespace tamp::passes::lift {
namespace {

std::optional<CellFunction> function_of(const ElementwiseStep& step) {
  using Kind = CellFunctionKind;
  switch (step.op) {
    case ElementwiseOp::sigmoid: return CellFunction{Kind::sigmoid, 0, 0};
    case ElementwiseOp::tanh: return CellFunction{Kind::tanh, 0, 0};
    case ElementwiseOp::relu: return CellFunction{Kind::relu, 0, 0};
    case ElementwiseOp::leaky_relu: return CellFunction{Kind::leaky_relu, step.a, 0};
    case ElementwiseOp::elu: return CellFunction{Kind::elu, step.a, 0};
    case ElementwiseOp::hard_sigmoid: return CellFunction{Kind::hard_sigmoid, step.a, step.b};
    case ElementwiseOp::softplus: return CellFunction{Kind::softplus, 0, 0};
    default: return std::nullopt;
  }
}

void join_inner(Cell& cell, const std::vector<size_t>& inner) { cell.inner.insert(cell.inner.end(), inner.begin(), inner.end()); }

}  // namespace

std::optional<CellFunction> cell_function_of(const ROperator& rop) {
  const ElementwiseStep* step = single_step(rop);
  return step ? function_of(*step) : std::nullopt;
}

bool is_odd_around_half(const CellFunction& f) {
  return f.kind == CellFunctionKind::sigmoid || (f.kind == CellFunctionKind::hard_sigmoid && f.b == 0.5F);
}

std::optional<Cell> Matcher::begin(size_t rop, CellKind kind) const {
  const TensorId h = graph_.rops[rop].outputs[0];
  const Tensor& tensor = graph_.tensor(h);
  if (tensor.dtype != DType::f32 || tensor.shape.size() < 2 || element_count(tensor.shape) == 0) return std::nullopt;
  Cell cell;
  cell.kind = kind;
  cell.functions = default_functions(kind);
  cell.hidden = tensor.shape.back();
  cell.batch = element_count(tensor.shape) / cell.hidden;
  cell.h = h;
  cell.inner = {rop};
  return cell;
}

const ROperator* Matcher::maker(TensorId id, ElementwiseOp op) const {
  const ROperatorId producer = uses_.producer[views_.whole_of(id).index()];
  if (!producer.valid()) return nullptr;
  const ROperator& rop = graph_.rop(producer);
  const ElementwiseStep* step = single_step(rop);
  return step && step->op == op && rop.inputs.size() == 2 ? &rop : nullptr;
}

bool Matcher::fills(const Cell& cell, TensorId id) const {
  const Rows rows = all_rows(graph_, id);
  return graph_.tensor(id).dtype == DType::f32 && rows.rows == cell.batch && rows.cols == cell.hidden;
}

bool Matcher::same(TensorId a, TensorId b) const {
  a = views_.whole_of(a);
  b = views_.whole_of(b);
  return a == b || (is_constant(graph_, a) && is_constant(graph_, b) && constants_.same(a, b));
}

std::optional<Gate> Matcher::gate(const Cell& cell, TensorId id) const {
  const Rows rows = views_.rows_of(id);
  const ROperatorId producer = uses_.producer[rows.root.index()];
  if (!producer.valid() || rows.rows != cell.batch || rows.cols != cell.hidden) return std::nullopt;
  const std::optional<CellFunction> function = cell_function_of(graph_.rop(producer));
  const std::optional<RowRange> range = range_of(graph_, rows);
  if (!function || !range) return std::nullopt;
  Gate gate{*function, {}, {producer.index()}};
  const Rows argument = part_of(views_.rows_of(graph_.rop(producer).inputs[0]), *range);
  std::optional<Affine> affine = collector_.affine_of(argument, gate.inner);
  if (!affine) return std::nullopt;
  gate.affine = *std::move(affine);
  return gate;
}

std::optional<Gate> Matcher::plain_gate(const Cell& cell, TensorId id) const {
  std::optional<Gate> found = gate(cell, id);
  return found && found->affine.products.empty() && !found->affine.terms.empty() ? found : std::nullopt;
}

bool Matcher::add_terms(Cell& cell, size_t number, const std::vector<Term>& terms) const {
  for (const Term& term : terms) {
    if (term.operand.rows != cell.batch) return false;
    const auto is_it = [&](const Part& part) { return part.operand == term.operand; };
    auto part = std::find_if(cell.parts.begin(), cell.parts.end(), is_it);
    if (part == cell.parts.end()) part = cell.parts.insert(part, Part{term.operand, term.tensor, {}});
    if (part->blocks[number]) return false;  // a sum of two matrices
    part->blocks[number] = term.block;
  }
  return true;
}

bool Matcher::add_gate(Cell& cell, size_t number, const Gate& gate) const {
  cell.bias[number] = gate.affine.vectors;
  join_inner(cell, gate.inner);
  return add_terms(cell, number, gate.affine.terms);
}

bool Matcher::is_complete(const Cell& cell) const {
  const auto gates = static_cast<size_t>(gates_of(cell.kind));
  for (const Part& part : cell.parts) {
    for (size_t g = 0; g < gates; ++g) {
      const bool is_left_out = cell.kind == CellKind::lstm && g == 2 && !cell.has_forget_gate;
      if (!part.blocks[g] && !is_left_out) return false;
    }
  }
  return !cell.parts.empty();
}

std::optional<Cell> Matcher::rnn_of(size_t rop) const {
  if (!cell_function_of(graph_.rops[rop])) return std::nullopt;
  std::optional<Cell> cell = begin(rop, CellKind::rnn);
  if (!cell) return std::nullopt;
  const std::optional<Gate> all = plain_gate(*cell, cell->h);
  if (!all || !add_gate(*cell, 0, *all)) return std::nullopt;
  cell->functions[0] = all->function;
  return is_complete(*cell) ? cell : std::nullopt;
}

}  // namespace tamp::passes::lift
