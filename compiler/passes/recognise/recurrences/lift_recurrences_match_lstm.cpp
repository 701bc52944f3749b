// h = o * tanh(c), c = f * c_before + i * g
#include "compiler/passes/recognise/recurrences/lift_recurrences_match.h"
#include "compiler/passes/rewrite.h"

namespace tamp::passes::lift {
namespace {

// Gate order of ONNX.
enum : size_t { kI, kO, kF, kC };

}  // namespace

std::optional<Cell> Matcher::lstm_of(size_t rop) const {
  const ElementwiseStep* step = single_step(graph_.rops[rop]);
  if (!step || step->op != ElementwiseOp::mul || graph_.rops[rop].inputs.size() != 2) return std::nullopt;
  const std::optional<Cell> cell = begin(rop, CellKind::lstm);
  if (!cell) return std::nullopt;
  for (const auto& [gate, state] :
       {Pair(graph_.rops[rop].inputs[0], graph_.rops[rop].inputs[1]), Pair(graph_.rops[rop].inputs[1], graph_.rops[rop].inputs[0])}) {
    if (std::optional<Cell> found = lstm_with(*cell, gate, state)) return found;
  }
  return std::nullopt;
}

// `state` is tanh(c).
std::optional<Cell> Matcher::lstm_with(Cell cell, TensorId output_gate, TensorId state) const {
  const ROperatorId producer = uses_.producer[views_.whole_of(state).index()];
  const ROperator* function = producer.valid() ? &graph_.rop(producer) : nullptr;
  if (!function || !fills(cell, state) || !single_step(*function) || function->inputs.size() != 1) return std::nullopt;
  const ROperator* sum = maker(function->inputs[0], ElementwiseOp::add);
  const ROperator* product = maker(function->inputs[0], ElementwiseOp::mul);
  if (!sum && !product) return std::nullopt;
  const std::optional<CellFunction> h = cell_function_of(*function);
  const std::optional<Gate> o = h ? plain_gate(cell, output_gate) : std::nullopt;
  if (!o) return std::nullopt;
  cell.functions[2] = *h;
  cell.inner.push_back(producer.index());
  cell.c = views_.whole_of(function->inputs[0]);
  if (!fills(cell, cell.c)) return std::nullopt;
  cell.inner.push_back(uses_.producer[cell.c.index()].index());

  if (product) {
    cell.has_forget_gate = false;
    return lstm_with(std::move(cell), *o, nullptr, Pair(product->inputs[0], product->inputs[1]));
  }
  const ROperator *left = maker(sum->inputs[0], ElementwiseOp::mul), *right = maker(sum->inputs[1], ElementwiseOp::mul);
  if (!left || !right) return std::nullopt;
  cell.inner.insert(cell.inner.end(), {index_of(*left), index_of(*right)});
  const Pair a(left->inputs[0], left->inputs[1]), b(right->inputs[0], right->inputs[1]);
  // An initial cell state may be the result of something that looks like a gate; if there is a choice, such a value is taken for a gate.
  for (const bool gate_as_state : {false, true}) {
    for (const auto& [forgotten, added] : {std::pair(a, b), std::pair(b, a)}) {
      for (const Pair& order : {forgotten, Pair(forgotten.second, forgotten.first)}) {
        if (std::optional<Cell> found = lstm_with(cell, *o, order, added, gate_as_state)) return found;
      }
    }
  }
  return std::nullopt;
}

// c = forgotten.first * forgotten.second + added.first * added.second, the first of `forgotten` a gate.
std::optional<Cell> Matcher::lstm_with(Cell cell, const Gate& o, Pair forgotten, Pair added, bool gate_as_state) const {
  const TensorId before = forgotten.second;
  const bool is_zero = constants_.is_zero(before);
  if (!is_zero && (!fills(cell, before) || plain_gate(cell, before).has_value() != gate_as_state)) return std::nullopt;
  if (is_zero && gate_as_state) return std::nullopt;
  const std::optional<Gate> f = plain_gate(cell, forgotten.first);
  if (!f || f->function != o.function) return std::nullopt;
  cell.c_before = is_zero ? TensorId() : views_.whole_of(before);
  return lstm_with(std::move(cell), o, &*f, added);
}

std::optional<Cell> Matcher::lstm_with(Cell cell, const Gate& o, const Gate* f, Pair added) const {
  for (const Pair& order : {added, Pair(added.second, added.first)}) {
    const std::optional<Gate> i = plain_gate(cell, order.first), g = plain_gate(cell, order.second);
    if (!i || !g) return std::nullopt;
    if (i->function != o.function) continue;
    cell.functions[0] = o.function;
    cell.functions[1] = g->function;
    if (!add_gate(cell, kI, *i) || !add_gate(cell, kO, o) || (f && !add_gate(cell, kF, *f)) || !add_gate(cell, kC, *g)) return std::nullopt;
    return is_complete(cell) ? std::optional(std::move(cell)) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace tamp::passes::lift
