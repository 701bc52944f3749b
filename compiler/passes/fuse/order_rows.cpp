#include "compiler/passes/fuse/order_rows.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/fused.h"
#include "compiler/ops/ops.h"
#include "compiler/passes/rewrite.h"
#include "compiler/passes/row_products.h"
#include "compiler/passes/view_strides.h"
#include "compiler/passes/views/row_work.h"
#include "compiler/passes/views/window_heads.h"

namespace tamp::passes {
namespace {

// The rows that a Normalize puts side by side, if it takes each row of its operand once: its result's row-major order of them.
std::optional<std::vector<int64_t>> order_of_rows(const Graph& graph, const ROperator& rop) {
  if (!std::holds_alternative<Normalize>(rop.attrs) || !operand(rop, kNormalizeRows).valid()) return std::nullopt;
  const Tensor &x = graph.tensor(rop.inputs[0]), &table = graph.tensor(rop.inputs[kNormalizeRows]);
  if (table.shape.size() != 2 || table.shape[1] < 2) return std::nullopt;
  return permutation_of(table, x.shape[0]);
}

// All rOperators that work on the same rows, found from one of their tensors.
class RowsOfStage {
 public:
  RowsOfStage(const Graph& graph, const Uses& uses, int64_t rows) : graph_(graph), uses_(uses), rows_(rows) {}

  // False where anything stands in the way of another order.
  bool take(TensorId from) {
    std::vector<TensorId> open = {from};
    while (!open.empty()) {
      const TensorId id = open.back();
      open.pop_back();
      if (!id.valid()) return false;
      if (!seen_.insert(id).second) continue;
      const Tensor& tensor = graph_.tensor(id);
      if (tensor.dtype != DType::f32 || tensor.role != Role::activation || uses_.is_output[id.index()]) return false;
      if (tensor.shape.empty() || element_count(tensor.shape) % rows_ != 0) return false;
      if (!take_maker(id, open)) return false;
      for (const ROperatorId reader : uses_.consumers[id.index()]) {
        if (!take_reader(id, reader, open)) return false;
      }
    }
    return true;
  }

  std::vector<std::pair<size_t, size_t>> takers;  // by a table of rows of this stage; the operand that it is
  std::vector<size_t> givers;                     // Normalizes that make rows of this stage, by a table or from a map's pixels

 private:
  bool has_rows(TensorId id) const { return is_matrix(graph_.tensor(id).shape); }
  bool is_matrix(const Shape& shape) const { return !shape.empty() && shape.back() * rows_ == element_count(shape); }

  template <class Value>
  static void note(std::vector<Value>& list, const Value& value) {
    if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
  }
  std::pair<size_t, size_t> taker(const ROperator& rop, size_t table) const {
    return {static_cast<size_t>(&rop - graph_.rops.data()), table};
  }

  // The operands that have the result's rows, of an rOperator that works on each row alone; none for any other.
  std::optional<std::vector<TensorId>> mains_of(const ROperator& rop) const {
    if (keeps_order(graph_, rop)) return std::vector<TensorId>{rop.inputs[0]};
    if (!has_rows(rop.outputs[0])) return std::nullopt;
    std::vector<TensorId> mains;
    bool all = true;
    for_each_step(graph_, rop, [&](const Graph& steps, const ROperator& step) { all = all && take_step(rop, steps, step, mains); });
    return all ? std::optional(mains) : std::nullopt;
  }
  // Whether a step of `whole`, or itself, works on each row alone. The whole's operands that have these rows are added to `mains`.
  bool take_step(const ROperator& whole, const Graph& steps, const ROperator& step, std::vector<TensorId>& mains) const {
    std::vector<TensorId> own;
    if (is_row_product(steps, step)) {
      own = {step.inputs[0]};
      if (step.epilogue.residual.valid()) own.push_back(step.epilogue.residual);
    } else if (const std::optional<RowWork> work = row_work(steps, step)) {
      for (const size_t i : work->mains) own.push_back(step.inputs[i]);
    }
    const std::optional<FusedView> view = FusedView::of(whole);
    for (const TensorId id : own) {
      if (!is_matrix(steps.tensor(id).shape)) return false;
      if (const TensorId main = view ? view->outside(id) : id; main.valid()) mains.push_back(main);
    }
    return !own.empty();
  }

  // The place of the table in the operands of a Fused that ends in attention within windows of its first operand's rows: steps that work on
  // each row alone, then views that make heads of the rows, as queries, keys and values.
  std::optional<size_t> window_table(const ROperator& rop) const {
    const std::optional<FusedView> view = FusedView::of(rop);
    if (!view || !view->as<Attention>(view->count() - 1) || !has_rows(rop.inputs[0])) return std::nullopt;
    const Graph steps = steps_of(graph_, rop);
    const ROperator& attention = steps.rops.back();
    const TensorId table = view->outside(operand(attention, kAttentionRowTable));
    if (!table.valid() || !is_constant(graph_, table)) return std::nullopt;
    std::vector<TensorId> mains;
    bool views = false;
    for (size_t i = 0; i + 1 < steps.rops.size(); ++i) {
      views |= is_view(steps.rops[i].attrs);
      if (views ? !is_view(steps.rops[i].attrs) : !take_step(rop, steps, steps.rops[i], mains)) return std::nullopt;
    }
    const Uses uses = uses_of(steps);
    for (size_t i = 0; i < 3; ++i) {
      const std::optional<HeadsOfRows> part = heads_of_rows(steps, uses, attention.inputs[i]);
      if (!part || part->heads.windows != 1 || part->heads.rows != rows_) return std::nullopt;
    }
    if (std::any_of(mains.begin(), mains.end(), [&](TensorId main) { return main != rop.inputs[0]; })) return std::nullopt;
    return static_cast<size_t>(std::find(rop.inputs.begin(), rop.inputs.end(), table) - rop.inputs.begin());
  }
  // The attention within windows whose result the Transpose gives row by row.
  const ROperator* attention_behind(const ROperator& rop) const {
    const auto* const transpose = std::get_if<Transpose>(&rop.attrs);
    if (!transpose || transpose->perm != std::vector<int64_t>{1, 0, 2}) return nullptr;
    const ROperatorId maker = uses_.maker_for_one(rop.inputs[0]);
    return maker.valid() && window_table(graph_.rop(maker)) ? &graph_.rop(maker) : nullptr;
  }
  // Of rows that a map's pixels are.
  bool begins_at_map(const ROperator& rop) const {
    if (!normalizes_rows(graph_, rop)) return false;
    const ROperatorId maker = uses_.producer[rop.inputs[0].index()];
    const auto* const transpose = maker.valid() ? std::get_if<Transpose>(&graph_.rop(maker).attrs) : nullptr;
    return transpose != nullptr && transpose->perm == std::vector<int64_t>{0, 2, 3, 1};
  }

  bool take_maker(TensorId id, std::vector<TensorId>& open) {
    const ROperatorId maker = uses_.producer[id.index()];
    if (!maker.valid()) return false;
    const ROperator& rop = graph_.rop(maker);
    if (const ROperator* const attention = attention_behind(rop)) {
      note(takers, taker(*attention, *window_table(*attention)));
      open.push_back(attention->inputs[0]);
      return true;
    }
    if (std::holds_alternative<Normalize>(rop.attrs) && has_rows(id)) {
      if (operand(rop, kNormalizeRows).valid() ? is_constant(graph_, rop.inputs[kNormalizeRows]) : begins_at_map(rop)) {
        note(givers, maker.index());
        return true;
      }
    }
    const std::optional<std::vector<TensorId>> mains = mains_of(rop);
    if (mains) open.insert(open.end(), mains->begin(), mains->end());
    return mains.has_value();
  }

  bool take_reader(TensorId id, ROperatorId reader, std::vector<TensorId>& open) {
    const ROperator& rop = graph_.rop(reader);
    if (const std::optional<size_t> table = window_table(rop); table && rop.inputs[0] == id) {
      note(takers, taker(rop, *table));
      const std::vector<ROperatorId>& behind = uses_.consumers[rop.outputs[0].index()];
      if (behind.size() != 1 || attention_behind(graph_.rop(behind[0])) == nullptr) return false;
      open.push_back(graph_.rop(behind[0]).outputs[0]);
      return true;
    }
    if (std::holds_alternative<Normalize>(rop.attrs) && operand(rop, kNormalizeRows).valid()) {
      note(takers, taker(rop, kNormalizeRows));
      return rop.inputs[0] == id && has_rows(id) && is_constant(graph_, rop.inputs[kNormalizeRows]);
    }
    const std::optional<std::vector<TensorId>> mains = mains_of(rop);
    if (!mains || std::find(mains->begin(), mains->end(), id) == mains->end()) return false;
    open.push_back(rop.outputs[0]);
    return true;
  }

  const Graph& graph_;
  const Uses& uses_;
  int64_t rows_;
  std::set<TensorId> seen_;
};

class Ordering {
 public:
  // Row order[i] becomes row i.
  Ordering(Graph& graph, std::vector<int64_t> order) : graph_(graph), order_(std::move(order)), place_(order_.size()) {
    for (size_t i = 0; i < order_.size(); ++i) place_[static_cast<size_t>(order_[i])] = static_cast<int64_t>(i);
  }

  void apply(size_t normalize, const RowsOfStage& stage) {
    put_side_by_side(graph_.rops[normalize]);
    for (const auto& [taker, place] : stage.takers) {
      if (taker == normalize) continue;
      TensorId& table = graph_.rops[taker].inputs[place];
      table = with_table(table, [&](const int64_t* from, size_t i) { return place_[static_cast<size_t>(from[i])]; });
    }
    for (const size_t giver : stage.givers) give_in_order(giver);
    graph_.rops.insert(graph_.rops.end(), views_.begin(), views_.end());
    graph_ = remove_dead(sort_topologically(std::move(graph_)));
  }

 private:
  void put_side_by_side(ROperator& rop) {
    const Shape shape = graph_.tensor(rop.outputs[0]).shape;
    rop.inputs.resize(kNormalizeRows);
    rop.inputs = without_last_none(std::move(rop.inputs));
    rop.inputs[0] = in_shape(graph_, views_, rop.inputs[0], shape);
  }
  void give_in_order(size_t giver) {
    ROperator& rop = graph_.rops[giver];
    if (const TensorId table = operand(rop, kNormalizeRows); table.valid()) {
      const auto parts = static_cast<size_t>(element_count(graph_.tensor(table).shape)) / order_.size();
      rop.inputs[kNormalizeRows] = with_table(
          table, [&](const int64_t* from, size_t i) { return from[static_cast<size_t>(order_[i / parts]) * parts + i % parts]; });
      return;
    }
    // The pixels of a map: a Normalize of a matrix takes rows by a table.
    const TensorId made = rop.outputs[0];
    const Shape shape = graph_.tensor(made).shape, matrix = {static_cast<int64_t>(order_.size()), shape.back()};
    rop.inputs.resize(kNormalizeRows + 1);
    rop.inputs[0] = in_shape(graph_, views_, rop.inputs[0], matrix);
    rop.inputs[kNormalizeRows] = add_table(rop.name, {matrix[0]}, order_);
    std::get<Normalize>(rop.attrs).axes = {1};
    if (shape == matrix) return;
    rop.outputs = {add_like(graph_, made, graph_.tensor(made).name + ".ordered" + std::to_string(graph_.tensors.size()), matrix)};
    views_.push_back({graph_.tensor(made).name, Reshape{shape}, {}, rop.outputs, {made}, {}});
  }

  TensorId with_table(TensorId table, const auto& value) {
    const Tensor old = graph_.tensor(table);
    std::vector<int64_t> values;
    for (size_t i = 0; i < static_cast<size_t>(element_count(old.shape)); ++i) values.push_back(value(i64_data(old), i));
    return add_table(old.name, old.shape, values);
  }
  TensorId add_table(const std::string& name, const Shape& shape, const std::vector<int64_t>& values) {
    return add_constant(graph_, name + ".order" + std::to_string(graph_.tensors.size()), DType::i64, shape, packed_bytes(values));
  }

  Graph& graph_;
  std::vector<int64_t> order_, place_;
  std::vector<ROperator> views_;
};

// The last stage whose rows can be in another order.
bool order_one(Graph& graph) {
  const Uses uses = uses_of(graph);
  for (size_t at = graph.rops.size(); at-- > 0;) {
    std::optional<std::vector<int64_t>> order = order_of_rows(graph, graph.rops[at]);
    if (!order) continue;
    RowsOfStage stage(graph, uses, static_cast<int64_t>(order->size()));
    if (!stage.take(graph.rops[at].inputs[0])) continue;
    Ordering(graph, *std::move(order)).apply(at, stage);
    return true;
  }
  return false;
}

}  // namespace

Graph order_rows(Graph graph) {
  while (order_one(graph)) {
  }
  return graph;
}

}  // namespace tamp::passes
