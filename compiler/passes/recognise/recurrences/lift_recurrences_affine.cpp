#include "compiler/passes/recognise/recurrences/lift_recurrences_affine.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/passes/rewrite.h"

namespace tamp::passes::lift {
namespace {

constexpr int kMaxVisited = 64;  // tensors of one gate; a cell has about ten

bool is_whole(const Graph& graph, TensorId id, const RowRange& range) {
  return range.row == 0 && range.step == 1 && range.rows == all_rows(graph, id).rows;
}

}  // namespace

bool Constants::same(TensorId a, TensorId b) const {
  const auto first_of = [&](TensorId id) {
    for (auto at = equal_.find(id.index()); at != equal_.end(); at = equal_.find(id.index())) id = at->second;
    return id;
  };
  a = first_of(a);
  b = first_of(b);
  if (a == b) return true;
  const Tensor &x = graph_.tensor(a), &y = graph_.tensor(b);
  if (x.dtype != y.dtype || x.shape != y.shape || (x.data != y.data && *x.data != *y.data)) return false;
  equal_[std::max(a, b).index()] = std::min(a, b);
  return true;
}

bool Constants::same(const Block& a, const Block& b) const {
  return a.transposed == b.transposed && a.row == b.row && a.rows == b.rows && a.col == b.col && a.cols == b.cols && a.scale == b.scale &&
         same(a.constant, b.constant);
}

bool Constants::same(const std::vector<Vector>& a, const std::vector<Vector>& b) const {
  const auto equal = [&](const Vector& x, const Vector& y) {
    return x.col == y.col && x.cols == y.cols && x.scale == y.scale && same(x.constant, y.constant);
  };
  if (a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), equal)) return true;
  const int64_t cols = !a.empty() ? a[0].cols : !b.empty() ? b[0].cols : 0;
  const std::vector<double> x = sum(a, cols), y = sum(b, cols);
  for (size_t i = 0; i < x.size(); ++i) {
    // Constants that were added up ahead have been rounded to f32 on the way.
    const double size = std::max({std::abs(x[i]), std::abs(y[i]), 1e-30});
    if (!(std::abs(x[i] - y[i]) <= 4 * std::numeric_limits<float>::epsilon() * size)) return false;
  }
  return true;
}

bool Constants::is_filled(TensorId id, float value) const {
  if (!is_f32_constant(graph_, id)) return false;
  const float* values = f32_data(graph_.tensor(id));
  return std::all_of(values, values + count_of(graph_, id), [value](float x) { return x == value; });
}

bool Constants::is_one(TensorId id) const { return is_filled(id, 1); }

bool Constants::is_zero(TensorId id) const {
  if (!is_f32_constant(graph_, id)) return false;
  const auto [at, is_new] = zero_.try_emplace(id.index(), false);
  if (is_new) at->second = is_filled(id, 0);
  return at->second;
}

bool Constants::is_vector(TensorId id, int64_t cols) const {
  if (!is_f32_constant(graph_, id)) return false;
  const int64_t count = count_of(graph_, id);
  if (count == 1) return true;
  if (graph_.tensor(id).shape.back() != cols) return false;
  if (count == cols) return true;
  const auto [at, is_new] = vector_.try_emplace(id.index(), false);
  if (is_new) {
    const float* values = f32_data(graph_.tensor(id));
    at->second = std::equal(values + cols, values + count, values);  // every row is like the one before
  }
  return at->second;
}

std::vector<double> Constants::sum(const std::vector<Vector>& vectors, int64_t cols) const {
  std::vector<double> sums(static_cast<size_t>(cols), 0.0);
  for (const Vector& vector : vectors) {
    const float* values = f32_data(graph_.tensor(vector.constant));
    const bool varies = count_of(graph_, vector.constant) != 1;
    for (int64_t i = 0; i < cols; ++i)
      sums[static_cast<size_t>(i)] += static_cast<double>(vector.scale) * values[varies ? vector.col + i : 0];
  }
  return sums;
}

float Constants::value(const Block& block, int64_t row, int64_t col) const {
  const Tensor& constant = graph_.tensor(block.constant);
  row += block.row;
  col += block.col;
  if (block.transposed) std::swap(row, col);
  return block.scale * f32_data(constant)[row * constant.shape[1] + col];
}

std::optional<Affine> Collector::affine_of(const Rows& rows, std::vector<size_t>& inner) const {
  State state;
  state.inner = &inner;
  if (!add(state, rows, 1)) return std::nullopt;
  return std::move(state.affine);
}

bool Collector::add(State& state, const Rows& rows, float scale) const {
  if (++state.visited > kMaxVisited) return false;
  const TensorId root = rows.root;
  const std::optional<RowRange> range = range_of(graph_, rows);
  if (!range) return false;
  if (is_constant(graph_, root)) return add_constant(state, root, *range, scale);
  const ROperatorId producer = uses_.producer[root.index()];
  if (!producer.valid()) return false;
  const ROperator& rop = graph_.rop(producer);
  if (has_epilogue(rop)) return false;
  // An rOperator that computes for all steps at once belongs to no single cell.
  if (is_whole(graph_, root, *range)) state.inner->push_back(producer.index());

  if (std::holds_alternative<MatMul>(rop.attrs)) return add_product(state, rop, *range, scale);
  const ElementwiseStep* step = single_step(rop);
  if (!step) return false;
  if (step->op == ElementwiseOp::add || step->op == ElementwiseOp::sub) {
    const float second = step->op == ElementwiseOp::add ? scale : -scale;
    return add_operand(state, *range, rop.inputs[0], root, scale) && add_operand(state, *range, rop.inputs[1], root, second);
  }
  if (step->op == ElementwiseOp::mul && is_all(graph_, rows)) {
    state.affine.products.push_back({rop.inputs[0], rop.inputs[1], scale});
    return true;
  }
  return false;
}

// An operand of a sum or the third one of a MatMul.
bool Collector::add_operand(State& state, const RowRange& range, TensorId operand, TensorId result, float scale) const {
  if (is_constant(graph_, operand)) return add_constant(state, operand, range, scale);
  if (count_of(graph_, operand) != count_of(graph_, result)) return false;  // repeated over rows or columns
  if (all_rows(graph_, operand).cols != all_rows(graph_, result).cols) return false;
  return add(state, part_of(views_.rows_of(operand), range), scale);
}

bool Collector::add_constant(State& state, TensorId constant, const RowRange& range, float scale) const {
  if (!is_f32_constant(graph_, constant)) return false;
  if (constants_.is_zero(constant)) return true;
  const Shape& shape = graph_.tensor(constant).shape;
  const int64_t width = shape.empty() ? 1 : shape.back();
  if (!constants_.is_vector(constant, width)) return false;
  if (count_of(graph_, constant) != 1 && range.col + range.cols > width) return false;
  state.affine.vectors.push_back({constant, range.col, range.cols, scale});
  return true;
}

bool Collector::add_product(State& state, const ROperator& rop, const RowRange& range, float scale) const {
  const auto& op = std::get<MatMul>(rop.attrs);
  const TensorId a = rop.inputs[0], b = rop.inputs[1];
  if (op.trans_a || !is_f32_constant(graph_, b) || graph_.tensor(b).shape.size() != 2 || graph_.tensor(a).shape.size() < 2) return false;
  const bool has_sum = operand(rop, 2).valid();
  if (has_sum && !add_operand(state, range, rop.inputs[2], rop.outputs[0], scale * op.beta)) return false;

  const int64_t inner = graph_.tensor(a).shape.back();
  const Block block{b, op.trans_b, 0, inner, range.col, range.cols, scale * op.alpha};
  const bool whole = is_whole(graph_, a, range);
  return add_terms(state, part_of(views_.rows_of(a), {range.row, range.step, range.rows, 0, inner}), whole ? a : TensorId(), block);
}

// A Concat of columns is a sum of products with rows of the matrix.
bool Collector::add_terms(State& state, const Rows& operand, TensorId tensor, const Block& block) const {
  if (++state.visited > kMaxVisited) return false;
  if (is_constant(graph_, operand.root) && constants_.is_zero(operand.root)) return true;
  const ROperatorId producer = uses_.producer[operand.root.index()];
  const ROperator* rop = producer.valid() ? &graph_.rop(producer) : nullptr;
  const auto* concat = rop ? std::get_if<Concat>(&rop->attrs) : nullptr;
  const Shape& shape = graph_.tensor(operand.root).shape;
  const std::optional<RowRange> range = range_of(graph_, operand);
  if (!concat || concat->axis + 1 != static_cast<int64_t>(shape.size()) || !range || range->cols != shape.back()) {
    state.affine.terms.push_back({operand, tensor, block});
    return true;
  }
  const bool whole = is_whole(graph_, operand.root, *range);
  if (whole) state.inner->push_back(producer.index());
  Block part = block;
  for (const TensorId id : rop->inputs) {
    part.rows = graph_.tensor(id).shape.back();
    const Rows rows = part_of(views_.rows_of(id), {range->row, range->step, range->rows, 0, part.rows});
    if (!add_terms(state, rows, whole ? id : TensorId(), part)) return false;
    part.row += part.rows;
  }
  return true;
}

}  // namespace tamp::passes::lift
