// h = (1 - z) * n + z * h_before, where
//   n = act(W x + b + r * (R h_before + b'))   linear before reset: PyTorch, Keras with reset_after
//   n = act(W x + b + R (r * h_before))        the form of the paper: TensorFlow, Keras without
#include <algorithm>

#include "compiler/passes/recognise/recurrences/lift_recurrences_match.h"
#include "compiler/passes/rewrite.h"

namespace tamp::passes::lift {
namespace {

// Gate order of ONNX.
enum : size_t { kZ, kR, kN };

void negate(Gate& gate) {
  for (Term& term : gate.affine.terms) term.block.scale = -term.block.scale;
  for (Vector& vector : gate.affine.vectors) vector.scale = -vector.scale;
}

}  // namespace

TensorId Matcher::complement_of(TensorId id) const {
  const ROperator* difference = maker(id, ElementwiseOp::sub);
  return difference && constants_.is_one(difference->inputs[0]) ? difference->inputs[1] : TensorId();
}

// (1 - z) * kept + z * other
void Matcher::add_products_blends(const ROperator& left, const ROperator& right, std::vector<Blend>& blends) const {
  for (size_t i = 0; i < 2; ++i) {
    const TensorId z = complement_of(left.inputs[i]);
    if (!z.valid()) continue;
    const size_t difference = uses_.producer[views_.whole_of(left.inputs[i]).index()].index();
    for (size_t j = 0; j < 2; ++j) {
      if (!same(z, right.inputs[j])) continue;
      blends.push_back({z, left.inputs[1 - i], right.inputs[1 - j], {index_of(left), index_of(right), difference}});
    }
  }
}

// kept + z * (other - kept), or kept - z * (kept - other)
void Matcher::add_difference_blends(TensorId kept, const ROperator& product, bool is_sum, std::vector<Blend>& blends) const {
  for (size_t i = 0; i < 2; ++i) {
    const ROperator* difference = maker(product.inputs[i], ElementwiseOp::sub);
    if (!difference || !same(difference->inputs[is_sum ? 1 : 0], kept)) continue;
    blends.push_back({product.inputs[1 - i], kept, difference->inputs[is_sum ? 0 : 1], {index_of(product), index_of(*difference)}});
  }
}

std::vector<Blend> Matcher::blends_of(const ROperator& rop) const {
  const ElementwiseStep* step = single_step(rop);
  const bool is_sum = step && step->op == ElementwiseOp::add;
  if (!step || rop.inputs.size() != 2 || (!is_sum && step->op != ElementwiseOp::sub)) return {};
  const ROperator *left = maker(rop.inputs[0], ElementwiseOp::mul), *right = maker(rop.inputs[1], ElementwiseOp::mul);
  std::vector<Blend> blends;
  if (is_sum && left && right) {
    add_products_blends(*left, *right, blends);
    add_products_blends(*right, *left, blends);
  }
  if (right) add_difference_blends(rop.inputs[0], *right, is_sum, blends);
  if (is_sum && left) add_difference_blends(rop.inputs[1], *left, is_sum, blends);
  return blends;
}

std::optional<Cell> Matcher::gru_of(size_t rop) const {
  const std::vector<Blend> blends = blends_of(graph_.rops[rop]);
  const std::optional<Cell> begun = blends.empty() ? std::nullopt : begin(rop, CellKind::gru);
  if (!begun) return std::nullopt;
  for (const Blend& blend : blends) {
    for (const bool is_negated : {false, true}) {
      if (std::optional<Cell> cell = gru_with(*begun, blend, is_negated)) return cell;
    }
  }
  return std::nullopt;
}

// Negated: the gate is 1 - z, the share of n.
std::optional<Cell> Matcher::gru_with(const Cell& begun, const Blend& blend, bool is_negated) const {
  Cell cell = begun;
  const TensorId before = is_negated ? blend.kept : blend.other;
  if (!constants_.is_zero(before)) {
    if (!fills(cell, before)) return std::nullopt;
    cell.h_before = before;
  }
  std::optional<Gate> n = gate(cell, is_negated ? blend.other : blend.kept);
  std::optional<Gate> z = n ? plain_gate(cell, blend.z) : std::nullopt;
  if (!z || (is_negated && !is_odd_around_half(z->function))) return std::nullopt;
  if (is_negated) negate(*z);
  cell.functions = {z->function, n->function, CellFunction{}};
  cell.inner.insert(cell.inner.end(), blend.inner.begin(), blend.inner.end());
  if (!add_gate(cell, kZ, *z) || !add_reset(cell, *n) || !add_gate(cell, kN, *n)) return std::nullopt;
  return is_complete(cell) ? std::optional(std::move(cell)) : std::nullopt;
}

bool Matcher::is_before(const Cell& cell, TensorId id) const {
  return cell.h_before.valid() ? views_.rows_of(id) == views_.rows_of(cell.h_before) : constants_.is_zero(id);
}

// Adds the reset gate and takes what it scales out of `n`.
bool Matcher::add_reset(Cell& cell, Gate& n) const {
  cell.linear_before_reset = !n.affine.products.empty();
  return cell.linear_before_reset ? add_reset_behind(cell, n) : add_reset_ahead(cell, n);
}

// r * (R h + b')
bool Matcher::add_reset_behind(Cell& cell, Gate& n) const {
  const Product product = n.affine.products[0];
  if (n.affine.products.size() != 1 || product.scale != 1) return false;
  for (const auto& [first, second] : {Pair(product.a, product.b), Pair(product.b, product.a)}) {
    std::vector<size_t> inner;
    const std::optional<Gate> r = plain_gate(cell, first);
    const std::optional<Affine> scaled = r ? collector_.affine_of(views_.rows_of(second), inner) : std::nullopt;
    if (!scaled || r->function != cell.functions[0] || !scaled->products.empty() || all_rows(graph_, second).cols != cell.hidden) continue;
    const auto is_state = [&](const Term& term) { return cell.h_before.valid() && term.operand == views_.rows_of(cell.h_before); };
    if (!std::all_of(scaled->terms.begin(), scaled->terms.end(), is_state)) continue;
    cell.inner.insert(cell.inner.end(), inner.begin(), inner.end());
    cell.inner_bias = scaled->vectors;
    n.affine.products.clear();
    return add_gate(cell, kR, *r) && add_terms(cell, kN, scaled->terms);
  }
  return false;
}

// R (r * h)
bool Matcher::add_reset_ahead(Cell& cell, Gate& n) const {
  for (size_t i = 0; i < n.affine.terms.size(); ++i) {
    Term& term = n.affine.terms[i];
    const ROperator* product = is_all(graph_, term.operand) ? maker(term.operand.root, ElementwiseOp::mul) : nullptr;
    if (!product || term.operand.cols != cell.hidden) continue;
    for (const auto& [first, second] : {Pair(product->inputs[0], product->inputs[1]), Pair(product->inputs[1], product->inputs[0])}) {
      const std::optional<Gate> r = is_before(cell, second) ? plain_gate(cell, first) : std::nullopt;
      if (!r || r->function != cell.functions[0]) continue;
      cell.inner.push_back(index_of(*product));
      if (cell.h_before.valid()) {
        term.operand = views_.rows_of(cell.h_before);
        term.tensor = cell.h_before;
      } else {
        n.affine.terms.erase(n.affine.terms.begin() + static_cast<std::ptrdiff_t>(i));
      }
      return add_gate(cell, kR, *r);
    }
  }
  return false;
}

}  // namespace tamp::passes::lift
