// Three sweeps. Forwards: a tensor may be known to be the rows of another tensor, its base, in some order (a table). rOperators that work
// on each row alone are then done on the base, in the base's order, and so is attention within windows of the rows, which takes the table
// as an operand. Backwards: a Gather that is left is moved up over rOperators that work on each row alone, until a Normalize can take its
// table as an operand. Last, a Normalize behind a Gather that is left takes its rows itself.
#include "compiler/passes/views/move_rows.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/ops/ops.h"
#include "compiler/passes/rewrite.h"
#include "compiler/passes/view_strides.h"
#include "compiler/passes/views/row_work.h"
#include "compiler/passes/views/take_rows.h"
#include "compiler/passes/views/window_heads.h"

namespace tamp::passes {
namespace {

constexpr int64_t kLeastRow = 32;  // elements; shorter rows are no work for copies of rows
constexpr int64_t kMostRows = int64_t{1} << 20;
constexpr int kMostViews = 64;  // in a chain that is looked through, since every view of the chain asks
// Of attention by a table: rows of a window, and columns of a head. Larger ones have bodies of their own, which take no table.
constexpr int64_t kMostWindowRows = 64, kMostHeadColumns = 32;

using RowTable = std::vector<int64_t>;

int64_t row_count(const Shape& shape) { return element_count(Shape(shape.begin(), shape.end() - 1)); }
Shape matrix_shape(const Shape& shape) { return {row_count(shape), shape.back()}; }

bool is_counted(const RowTable& table, int64_t count) { return table == range(0, count); }

// The table's inverse if it is a permutation; else empty.
RowTable inverse_of(const RowTable& table) {
  RowTable inverse(table.size(), -1);
  for (size_t i = 0; i < table.size(); ++i) {
    const auto at = static_cast<size_t>(table[i]);
    if (at >= table.size() || inverse[at] >= 0) return {};
    inverse[at] = static_cast<int64_t>(i);
  }
  return inverse;
}

// The rOperator on operands whose rows are those of `shape`: attributes that count dimensions.
OpAttrs for_rank(const OpAttrs& attrs, size_t rank) {
  OpAttrs made = attrs;
  if (auto* normalize = std::get_if<Normalize>(&made)) normalize->axes = {static_cast<int64_t>(rank) - 1};
  return made;
}

// Tensors, Reshapes and tables that both sweeps add to the graph.
struct RowMaker {
  Graph& graph;

  TensorId tensor(const std::string& name, Shape shape) {
    return add_tensor(graph, {name + ".rows" + std::to_string(graph.tensors.size()), DType::f32, std::move(shape)});
  }
  // `shape` is a copy, since the caller's may be that of a tensor, which moves when one is added.
  TensorId reshaped(TensorId id, Shape shape, const ROperator& reason, std::vector<ROperator>& out) {
    if (graph.tensor(id).shape == shape) return id;
    const Reshape view{shape};
    return viewed(view, id, std::move(shape), reason, out);
  }
  TensorId viewed(OpAttrs view, TensorId id, Shape shape, const ROperator& reason, std::vector<ROperator>& out) {
    const TensorId to = tensor(graph.tensor(id).name, std::move(shape));
    out.push_back({graph.tensor(to).name, std::move(view), {}, {id}, {to}, reason.origin});
    return to;
  }
  TensorId table(const std::string& name, const RowTable& table) { return table_in(name, table, {static_cast<int64_t>(table.size())}); }
  TensorId table_in(const std::string& name, const RowTable& table, const Shape& shape) {
    return add_constant(graph, name + ".table" + std::to_string(graph.tensors.size()), DType::i64, shape, packed_bytes(table));
  }
};

// ---- forwards ----

// A tensor whose row r is row table[r] of `base`. Example: table {2, 0, 1}: its rows are base's rows 2, 0 and 1.
struct MovedRows {
  TensorId base;
  RowTable table;
  std::optional<Placement> view;  // the tensor's place as a view of a base that lies row by row, if strides can express it
};

class RowSinker {
 public:
  RowSinker(Graph graph, const Estimator& estimator)
      : graph_(std::move(graph)), estimator_(estimator), uses_(uses_of(graph_)), old_(graph_.rops), make_{graph_} {}

  Graph run(bool& changed) {
    for (const ROperator& rop : old_) {
      if (!sink_attention(rop) && !sink_movement(rop) && !sink_work(rop)) emit(rop);
    }
    changed = changed_;
    graph_.rops = std::move(out_);
    return std::move(graph_);
  }

 private:
  const Shape& shape_of(TensorId id) const { return graph_.tensor(id).shape; }
  void emit(ROperator rop) {
    const bool base = makes_base(rop), product = makes_product(rop);
    for (const TensorId id : rop.outputs) {
      maker_[id] = out_.size();
      if (base) bases_.insert(id);
      if (product) products_.insert(id);
    }
    out_.push_back(std::move(rop));
  }

  // What is known of the tensor; else the tensor as its own base, if its rows are long enough to be copied and it lies row by row.
  std::optional<MovedRows> rows(TensorId id) const {
    if (const auto found = rows_.find(id); found != rows_.end()) return found->second;
    const Shape& shape = shape_of(id);
    if (shape.size() < 2 || shape.back() < kLeastRow || shape.back() % 4 != 0 || row_count(shape) > kMostRows || row_count(shape) == 0)
      return std::nullopt;
    if (!is_base(id)) return std::nullopt;
    return MovedRows{id, range(0, row_count(shape)), Placement{BufferId(), 0, row_major_strides(shape)}};
  }
  bool is_base(TensorId id) const { return bases_.contains(id); }
  bool makes_base(const ROperator& rop) const {
    const std::optional<RowWork> work = row_work(graph_, rop);
    if (!work || !std::holds_alternative<Elementwise>(rop.attrs)) return work.has_value();
    if (work->mains.size() == 1) return is_base(rop.inputs[work->mains[0]]);
    return std::any_of(work->mains.begin(), work->mains.end(), [&](size_t i) { return is_product(rop.inputs[i]); });
  }
  // Made by a product, but for steps that an epilogue may take.
  bool is_product(TensorId id) const { return products_.contains(id); }
  bool makes_product(const ROperator& rop) const {
    if (std::holds_alternative<MatMul>(rop.attrs)) return true;
    if (!std::holds_alternative<Elementwise>(rop.attrs)) return false;
    const std::optional<RowWork> work = row_work(graph_, rop);
    return work && work->mains.size() == 1 && is_product(rop.inputs[work->mains[0]]);
  }
  static bool is_moved(const std::optional<MovedRows>& rows) { return rows && !rows->view; }

  // ---- movement ----

  bool sink_movement(const ROperator& rop) {
    const bool concat = std::holds_alternative<Concat>(rop.attrs);
    if (!is_view(rop.attrs) && !concat) return false;
    const TensorId made = rop.outputs[0];
    if (graph_.tensor(made).dtype != DType::f32 || shape_of(made).empty() || element_count(shape_of(made)) == 0) return false;
    std::vector<MovedRows> from;
    const auto left = concat ? left_.end() : left_.find(rop.inputs[0]);
    for (const TensorId id : rop.inputs) {
      const std::optional<MovedRows> one = left != left_.end() ? left->second : rows(id);
      if (!one || (!from.empty() && (one->base != from[0].base || shape_of(id).back() != shape_of(rop.inputs[0]).back()))) return false;
      from.push_back(*one);
    }
    const Shape& shape = shape_of(made);
    if (concat && std::get<Concat>(rop.attrs).axis + 1 == static_cast<int64_t>(shape.size())) return side_by_side(rop, from);
    const std::optional<RowTable> table = moved(rop, from);
    if (!table || static_cast<int64_t>(table->size()) > kMostRows) return false;
    MovedRows result{from[0].base, *table, std::nullopt};
    if (is_counted(result.table, row_count(shape_of(result.base))))
      result.view = Placement{BufferId(), 0, row_major_strides(shape)};
    else if (!concat && from[0].view)
      result.view = view_place(graph_, rop, *from[0].view);
    const bool stays = result.view && from[0].view && !concat;
    if (!stays && !concat && (from[0].view || left != left_.end()) && can_be_made_there(rop, result.base)) {
      emit(rop);
      left_[made] = std::move(result);
      return true;
    }
    if (stays)
      emit(rop);
    else
      define(rop, result);
    rows_[made] = std::move(result);
    return true;
  }

  // Whether the base can be written so that the result lies row by row: passes/assign_layout needs no copy then.
  bool can_be_made_there(const ROperator& rop, TensorId base) const {
    std::optional<Placement> place = Placement{BufferId(), 0, row_major_strides(shape_of(rop.outputs[0]))};
    const ROperator* at = &rop;
    for (int views = 0; views < kMostViews; ++views) {
      place = source_place(graph_, *at, *place);
      if (!place) return false;
      if (at->inputs[0] == base) return true;
      const auto maker = maker_.find(at->inputs[0]);
      if (maker == maker_.end() || !is_view(out_[maker->second].attrs)) return false;
      at = &out_[maker->second];
    }
    return false;
  }

  // Does the movement on a tensor of row numbers instead of rows; nothing if the movement takes rows apart.
  std::optional<RowTable> moved(const ROperator& rop, const std::vector<MovedRows>& from) const {
    const Shape &in = shape_of(rop.inputs[0]), &to = shape_of(rop.outputs[0]);
    ROperator numbers = rop;
    if (std::holds_alternative<Reshape>(numbers.attrs)) {
      if (in.back() != to.back()) return std::nullopt;
      return from[0].table;
    }
    if (const auto* op = std::get_if<Transpose>(&numbers.attrs)) {
      if (op->perm.back() + 1 != static_cast<int64_t>(op->perm.size())) return std::nullopt;
    } else if (auto* slice = std::get_if<Slice>(&numbers.attrs)) {
      if (slice->starts.back() != 0 || slice->steps.back() != 1 || to.back() != in.back()) return std::nullopt;
      slice->extents.back() = 1;
    }
    Graph small;
    std::vector<ops::Value> values;
    const auto add = [&](Shape shape) {
      shape.back() = 1;
      return add_tensor(small, {"", DType::i64, std::move(shape)});
    };
    for (size_t i = 0; i < from.size(); ++i) {
      numbers.inputs[i] = add(shape_of(rop.inputs[i]));
      values.push_back(ops::raw_value(DType::i64, small.tensor(numbers.inputs[i]).shape, from[i].table));
    }
    numbers.outputs = {add(to)};
    const std::vector<ops::Value> result =
        ops::evaluate(small, numbers, [&](TensorId id) -> const ops::Value& { return values[id.index()]; });
    return ops::raw_numbers<int64_t>(result[0]);
  }

  // A Concat that joins rows of one base to longer rows becomes one Gather, instead of copies of copies.
  bool side_by_side(const ROperator& rop, const std::vector<MovedRows>& from) {
    const auto is_whole = [&](const MovedRows& one) { return is_counted(one.table, row_count(shape_of(one.base))); };
    const bool copies = std::none_of(from.begin(), from.end(), is_whole);  // all are parts, which are copied even where strides say them
    if (!copies && std::none_of(from.begin(), from.end(), [](const MovedRows& one) { return !one.view; })) return false;
    RowTable table;
    for (size_t r = 0; r < from[0].table.size(); ++r) {
      for (const MovedRows& one : from) table.push_back(one.table[r]);
    }
    if (static_cast<int64_t>(table.size()) > kMostRows) return false;
    define(rop, {from[0].base, table, std::nullopt});
    return true;
  }

  // The rOperator's result is rows of another tensor, or that tensor as it is.
  void define(const ROperator& rop, const MovedRows& rows) {
    changed_ = true;
    const TensorId from = is_counted(rows.table, row_count(shape_of(rows.base))) ? rows.base : gathered(rows.base, rows.table, rop);
    emit({rop.name, Reshape{shape_of(rop.outputs[0])}, {}, {from}, rop.outputs, rop.origin});
  }

  TensorId gathered(TensorId base, const RowTable& table, const ROperator& reason) {
    const auto [found, is_new] = gathered_.try_emplace(std::pair(base, table));
    if (!is_new) return found->second;
    const TensorId rows = make_.reshaped(base, matrix_shape(shape_of(base)), reason, out_);
    const TensorId to = make_.tensor(graph_.tensor(base).name, {static_cast<int64_t>(table.size()), shape_of(base).back()});
    const TensorId indices = make_.table(graph_.tensor(base).name, table);
    emit({graph_.tensor(to).name, Gather{0}, {}, {rows, indices}, {to}, reason.origin});
    return found->second = to;
  }

  // ---- work ----

  bool sink_work(const ROperator& rop) {
    const std::optional<RowWork> work = row_work(graph_, rop);
    if (!work) return false;
    const std::optional<MovedRows> lead = lead_of(rop, *work);
    if (!lead) return false;
    const RowTable inverse = work->mains.size() > 1 ? inverse_of(lead->table) : RowTable();
    ROperator done = rop;
    for (const size_t i : work->mains) {
      const std::optional<MovedRows> known = rows(rop.inputs[i]);
      const MovedRows one = known ? *known : MovedRows{rop.inputs[i], range(0, row_count(shape_of(rop.inputs[i]))), std::nullopt};
      const bool same = one.base == lead->base && one.table == lead->table;
      done.inputs[i] = same ? lead->base : in_order(one, *lead, inverse, rop);
    }
    Shape shape = shape_of(lead->base);
    shape.back() = shape_of(rop.outputs[0]).back();
    done.attrs = for_rank(rop.attrs, shape.size());
    const TensorId result = make_.tensor(graph_.tensor(rop.outputs[0]).name, shape);
    done.name = graph_.tensor(result).name;
    done.outputs = {result};
    emit(done);
    const MovedRows made{result, lead->table, std::nullopt};
    define(rop, made);
    rows_[rop.outputs[0]] = made;
    return true;
  }

  // The operand in whose order the work is done. Of the moved operands a product's result is preferred: its epilogue can then take the
  // others.
  std::optional<MovedRows> lead_of(const ROperator& rop, const RowWork& work) const {
    std::optional<MovedRows> lead;
    for (const size_t i : work.mains) {
      const std::optional<MovedRows> one = rows(rop.inputs[i]);
      if (!is_moved(one) || (work.mains.size() > 1 && !is_permutation(*one))) continue;
      if (!lead || (!is_product(lead->base) && is_product(one->base))) lead = one;
    }
    return lead;
  }
  bool is_permutation(const MovedRows& rows) const {
    return static_cast<int64_t>(rows.table.size()) == row_count(shape_of(rows.base)) && !inverse_of(rows.table).empty();
  }

  // The operand with its rows in the order of the lead's base, and of its shape.
  TensorId in_order(const MovedRows& one, const MovedRows& lead, const RowTable& inverse, const ROperator& rop) {
    RowTable table(inverse.size());
    for (size_t j = 0; j < table.size(); ++j) table[j] = one.table[static_cast<size_t>(inverse[j])];
    const bool is_whole = is_counted(table, row_count(shape_of(one.base)));
    const TensorId from = is_whole ? one.base : gathered(one.base, table, rop);
    return make_.reshaped(from, shape_of(lead.base), rop, out_);
  }

  // ---- attention ----

  // Q, K or V of attention within windows: heads' columns of rows that are those of `base` by a table.
  struct WindowOperand {
    TensorId base;
    RowTable table;
    WindowHeads heads;
  };

  // Attention within windows that are cut out of rows by a table is done on the rows as they are, by that table. Where the heads' results
  // have been put side by side, its result is rows of another tensor again.
  bool sink_attention(const ROperator& rop) {
    const TensorId made = rop.outputs[0];
    if (const auto found = attended_.find(made); found != attended_.end()) {
      if (found->second) define_rows(rop, *found->second);
      return true;
    }
    if (!std::holds_alternative<Attention>(rop.attrs) || ends_at_length(rop.attrs) || rop.inputs.size() > kAttentionRowTable) return false;
    std::vector<WindowOperand> operands;  // Q, K and V
    for (size_t i = 0; i < 3; ++i) {
      const std::optional<WindowOperand> one = window_operand(rop.inputs[i], shape_of(made));
      if (!one || (i > 0 && !(one->heads.same_parts(operands[0].heads) && one->table == operands[0].table))) return false;
      operands.push_back(*one);
    }
    const WindowHeads& values = operands[2].heads;
    if (values.heads * values.columns < kLeastRow || values.heads * values.columns % 4 != 0) return false;
    std::optional<Shape> bias;
    if (const TensorId given = bias_of(rop); given.valid()) {
      bias = window_bias(shape_of(given), Shape(shape_of(made).begin(), shape_of(made).end() - 2), values.window_dimensions);
      if (!bias) return false;
    }
    const std::optional<std::vector<TensorId>> joined = joined_heads(made, values);
    if (!joined || !has_rkernel(rop, operands, bias)) return false;
    const MovedRows rows{emit_attention(rop, operands, bias), operands[0].table, std::nullopt};
    for (const TensorId id : *joined) attended_[id] = std::nullopt;  // nobody else reads these
    attended_[joined->back()] = rows;
    if (joined->back() == made) define_rows(rop, rows);
    return true;
  }

  void define_rows(const ROperator& rop, const MovedRows& rows) {
    define(rop, rows);
    rows_[rop.outputs[0]] = rows;
  }
  static TensorId bias_of(const ROperator& rop) { return operand(rop, kAttentionBias); }

  // What an operand of attention with a result of shape `made` is of moved rows, if it is views of all of these.
  std::optional<WindowOperand> window_operand(TensorId id, const Shape& made) const {
    const Shape& shape = shape_of(id);
    if (shape.size() != made.size() || !std::equal(shape.begin(), shape.end() - 2, made.begin())) return std::nullopt;
    if (shape[shape.size() - 2] > kMostWindowRows || shape.back() > kMostHeadColumns) return std::nullopt;
    std::vector<const ROperator*> views;
    auto rows = rows_.find(id);
    for (; rows == rows_.end() || rows->second.view; rows = rows_.find(id)) {
      const auto maker = maker_.find(id);
      if (maker == maker_.end() || !is_view(out_[maker->second].attrs)) return std::nullopt;
      views.push_back(&out_[maker->second]);
      id = views.back()->inputs[0];
    }
    if (!is_permutation(rows->second)) return std::nullopt;
    std::optional<Placement> place = Placement{BufferId(), 0, row_major_strides(shape_of(id))};
    for (size_t v = views.size(); v-- > 0 && place;) place = view_place(graph_, *views[v], *place);
    const std::optional<WindowHeads> heads = place ? window_heads(shape, *place, shape_of(id).back()) : std::nullopt;
    if (!heads || heads->windows * heads->rows != static_cast<int64_t>(rows->second.table.size())) return std::nullopt;
    return WindowOperand{rows->second.base, rows->second.table, *heads};
  }

  // The result of attention and the views behind it, each the only reader of the one before, up to the one that has all heads side by side
  // and lies row by row then.
  std::optional<std::vector<TensorId>> joined_heads(TensorId made, const WindowHeads& values) const {
    const int64_t elements = element_count(shape_of(made)), row = values.heads * values.columns;
    std::vector<TensorId> found = {made};
    std::optional<Placement> place = joined_place(shape_of(made), values.window_dimensions);
    while (true) {
      const Shape& shape = shape_of(found.back());
      const bool is_whole = shape.size() >= 2 && shape.back() == row && element_count(shape) == elements;
      if (is_whole && place->strides == row_major_strides(shape)) return found;
      const ROperatorId reader = uses_.only_reader(found.back());
      if (!reader.valid()) return std::nullopt;
      const ROperator& view = old_[reader.index()];
      if (!is_view(view.attrs)) return std::nullopt;
      place = view_place(graph_, view, *place);
      if (!place) return std::nullopt;
      found.push_back(view.outputs[0]);
    }
  }

  // Whether anything can compute the attention by the operands' table.
  bool has_rkernel(const ROperator& rop, const std::vector<WindowOperand>& operands, const std::optional<Shape>& bias) const {
    if (!estimator_) return false;
    Graph asked = graph_;
    const auto add = [&](Shape shape, DType dtype = DType::f32) { return add_tensor(asked, {"", dtype, std::move(shape)}); };
    ROperator attention = rop;
    attention.inputs.assign(kAttentionRowTable + 1, TensorId());
    for (size_t i = 0; i < operands.size(); ++i) {
      const WindowHeads& heads = operands[i].heads;
      attention.inputs[i] = add({heads.heads, heads.windows * heads.rows, heads.columns});
    }
    if (bias) attention.inputs[kAttentionBias] = add(*bias);
    const WindowHeads& values = operands[2].heads;
    attention.inputs[kAttentionRowTable] = add({values.windows, values.rows}, DType::i64);
    attention.outputs = {add({values.heads, values.windows * values.rows, values.columns})};
    return estimator_(asked, attention).has_value();
  }

  // Attention by the operands' table, and its heads side by side: rows in the order of the operands' bases.
  TensorId emit_attention(const ROperator& rop, const std::vector<WindowOperand>& operands, const std::optional<Shape>& bias) {
    ROperator done = rop;
    done.inputs.assign(kAttentionRowTable + 1, TensorId());
    for (size_t i = 0; i < operands.size(); ++i) done.inputs[i] = heads_of(operands[i], rop);
    if (bias) done.inputs[kAttentionBias] = in_windows(bias_of(rop), *bias, rop);
    const WindowHeads& values = operands[2].heads;
    const int64_t count = values.windows * values.rows;
    done.inputs[kAttentionRowTable] = make_.table_in(graph_.tensor(rop.outputs[0]).name, operands[0].table, {values.windows, values.rows});
    done.outputs = {make_.tensor(graph_.tensor(rop.outputs[0]).name, {values.heads, count, values.columns})};
    done.name = graph_.tensor(done.outputs[0]).name;
    const TensorId made = done.outputs[0];
    out_.push_back(std::move(done));
    const TensorId turned = make_.viewed(Transpose{{1, 0, 2}}, made, {count, values.heads, values.columns}, rop, out_);
    Shape shape = shape_of(operands[0].base);
    shape.back() = values.heads * values.columns;
    return make_.reshaped(turned, shape, rop, out_);
  }

  // [heads,rows,columns] of all rows of the operand's base.
  TensorId heads_of(const WindowOperand& operand, const ROperator& rop) {
    const WindowHeads& heads = operand.heads;
    Slice cut = whole_slice(shape_of(operand.base));
    cut.starts.back() = heads.first;
    cut.extents.back() = heads.heads * heads.columns;
    const Shape shape = cut.extents;
    const TensorId columns = shape == shape_of(operand.base) ? operand.base : make_.viewed(cut, operand.base, shape, rop, out_);
    const int64_t count = heads.windows * heads.rows;
    const TensorId divided = make_.reshaped(columns, {count, heads.heads, heads.columns}, rop, out_);
    return make_.viewed(Transpose{{1, 0, 2}}, divided, {heads.heads, count, heads.columns}, rop, out_);
  }

  // The bias in this shape. A constant stays one.
  TensorId in_windows(TensorId bias, const Shape& shape, const ROperator& rop) {
    Shape padded = shape_of(bias);
    padded.insert(padded.begin(), shape.size() - std::min(shape.size(), padded.size()), 1);
    if (padded == shape) return bias;
    if (!is_constant(graph_, bias)) return make_.reshaped(bias, shape, rop, out_);
    const Tensor& constant = graph_.tensor(bias);
    return add_tensor(
        graph_, {constant.name + ".windows" + std::to_string(graph_.tensors.size()), constant.dtype, shape, constant.role, constant.data});
  }

  Graph graph_;
  const Estimator& estimator_;
  Uses uses_;  // of the graph as it was, whose rOperators are old_
  std::vector<ROperator> old_;
  RowMaker make_;
  std::vector<ROperator> out_;
  std::map<TensorId, size_t> maker_;  // in out_
  std::set<TensorId> bases_, products_;
  std::map<TensorId, MovedRows> rows_;
  std::map<TensorId, MovedRows> left_;  // movements left to assign_layout; a further one that it could not do begins at their base
  std::map<std::pair<TensorId, RowTable>, TensorId> gathered_;
  std::map<TensorId, std::optional<MovedRows>> attended_;  // results of attention that was sunk, and of views behind it: rows, or unused
  bool changed_ = false;
};

// ---- backwards ----

class GatherLifter {
 public:
  explicit GatherLifter(Graph graph) : graph_(std::move(graph)), uses_(uses_of(graph_)), make_{graph_} {}

  // Lifts the last Gather that can be lifted over one rOperator. Returns whether there was one.
  bool step() {
    for (size_t i = graph_.rops.size(); i-- > 0;) {
      if (lift(i)) return true;
    }
    return false;
  }
  Graph take() { return remove_dead(std::move(graph_)); }

 private:
  bool lift(size_t at) {
    const ROperator gather = graph_.rops[at];
    if (!gathers_rows(graph_, gather)) return false;
    const Tensor &data = graph_.tensor(gather.inputs[0]), &indices = graph_.tensor(gather.inputs[1]);
    const int64_t count = indices.shape[0];
    if (count > data.shape[0]) return false;

    const std::optional<size_t> found = worker_behind(gather.inputs[0]);
    if (!found) return false;
    const ROperator worker = graph_.rops[*found];
    const std::optional<RowWork> work = row_work(graph_, worker);
    if (!work || work->mains.size() != 1) return false;
    const TensorId main = worker.inputs[work->mains[0]];
    const Shape from = graph_.tensor(main).shape;
    if (from.back() > data.shape[1] || row_count(from) != data.shape[0]) return false;  // longer rows are more to copy

    std::vector<ROperator> made;
    ROperator done = worker;
    done.attrs = for_rank(worker.attrs, 2);
    done.name = gather.name;
    done.outputs = gather.outputs;
    done.origin.insert(done.origin.end(), gather.origin.begin(), gather.origin.end());
    const TensorId rows = make_.reshaped(main, matrix_shape(from), worker, made);
    if (std::holds_alternative<Normalize>(worker.attrs)) {
      done.inputs.resize(4);
      done.inputs[0] = rows;
      done.inputs[kNormalizeRows] = gather.inputs[1];
    } else {
      const TensorId moved = make_.tensor(graph_.tensor(main).name, {count, from.back()});
      made.push_back({graph_.tensor(moved).name, Gather{0}, {}, {rows, gather.inputs[1]}, {moved}, gather.origin});
      done.inputs[work->mains[0]] = moved;
    }
    made.push_back(std::move(done));
    graph_.rops.erase(graph_.rops.begin() + static_cast<std::ptrdiff_t>(at));
    graph_.rops.insert(graph_.rops.begin() + static_cast<std::ptrdiff_t>(at), made.begin(), made.end());
    return true;
  }

  // The rOperator that makes the rows, if nothing else reads them.
  std::optional<size_t> worker_behind(TensorId id) const {
    while (true) {
      const ROperatorId producer = uses_.maker_for_one(id);
      if (!producer.valid()) return std::nullopt;
      const ROperator& rop = graph_.rop(producer);
      if (!std::holds_alternative<Reshape>(rop.attrs)) return producer.index();
      if (graph_.tensor(rop.inputs[0]).shape.empty() || graph_.tensor(rop.inputs[0]).shape.back() != graph_.tensor(id).shape.back())
        return std::nullopt;
      id = rop.inputs[0];
    }
  }

  Graph graph_;
  Uses uses_;
  RowMaker make_;
};

// Makes one of Gathers that take the same rows of one tensor. Those behind the products of queries, keys and values, lifted over them, are
// such; a Normalize in front of the products has one reader then, and can take the table.
Graph share_gathers(Graph graph) {
  std::vector<TensorId> source(graph.tensors.size());  // of the rows, which Reshapes leave whole
  std::map<std::pair<TensorId, RowTable>, TensorId> known;
  Replacements replacements(graph);
  std::vector<bool> dead(graph.rops.size(), false);
  for (size_t id = 0; id < source.size(); ++id) source[id] = TensorId(static_cast<uint32_t>(id));
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    const ROperator& rop = graph.rops[i];
    if (rop.inputs.empty() || !rop.inputs[0].valid()) continue;
    const TensorId from = rop.inputs[0], to = rop.outputs[0];
    const Shape &shape = graph.tensor(from).shape, &made = graph.tensor(to).shape;
    if (std::holds_alternative<Reshape>(rop.attrs) && !shape.empty() && !made.empty() && shape.back() == made.back())
      source[to.index()] = source[from.index()];
    if (!gathers_rows(graph, rop)) continue;
    const Tensor& indices = graph.tensor(rop.inputs[1]);
    if (std::find(graph.outputs.begin(), graph.outputs.end(), to) != graph.outputs.end()) continue;
    const int64_t* numbers = i64_data(indices);
    const auto [first, is_new] = known.try_emplace({source[from.index()], RowTable(numbers, numbers + indices.shape[0])}, to);
    dead[i] = !is_new;
    if (dead[i]) replacements.replace(to, first->second);
  }
  return remove_dead(erase_rops(replacements.apply(std::move(graph)), dead));
}

}  // namespace

Graph move_rows(Graph graph, const Estimator& estimator) {
  bool changed = false;
  Graph moved = RowSinker(graph, estimator).run(changed);
  if (!changed) return graph;
  moved = remove_dead(std::move(moved));
  for (bool again = true; again;) {
    GatherLifter lifter(std::move(moved));
    again = lifter.step();
    moved = share_gathers(lifter.take());
  }
  return take_rows(std::move(moved));
}

}  // namespace tamp::passes
