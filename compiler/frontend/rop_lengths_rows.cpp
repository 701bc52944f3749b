// Reshapes. Exporters write a linear layer of x[B,L,8] as Reshape to [B*L,8], MatMul, Reshape to [B,L,4]: what has joined rows is made with
// its dimensions apart, [B,L,8] x [8,4], until a Reshape has them apart as well. Where that is not possible, elements are taken by their
// numbers to the places that they have in the other shape.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compiler/frontend/rop_lengths.h"
#include "compiler/ir/length_rules.h"
#include "compiler/ir/loops.h"

namespace tamp::frontend {
namespace {

Shape with_rest(Shape apart, const Shape& shape) {
  apart.insert(apart.end(), shape.begin() + 1, shape.end());
  return apart;
}

}  // namespace

RopLengths::Rows RopLengths::follow_rows() {
  if (const auto* op = std::get_if<Reshape>(&rop_->attrs); op && rows_of(0) == 0) return join_rows(*op) ? Rows::made : Rows::none;
  size_t first = 0;
  while (first < rop_->inputs.size() && rows_of(first) == 0) ++first;
  if (first == rop_->inputs.size() || is_of_loop(rop_->attrs)) return Rows::none;
  const size_t parts = rows_of(first);
  const Shape& made = graph_.tensor(inputs_[first]).shape;
  const Shape apart(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(parts));
  if (const auto* op = std::get_if<Reshape>(&rop_->attrs)) {
    if (const auto axes = reshaped_axes(made, axes_of(0), op->shape)) {
      result(0, *axes);
      return Rows::apart;
    }
  }
  if (rop_->outputs.size() == 1 && shift_rows(first, parts, apart)) {
    emit_rows(first, apart);
    return Rows::made;
  }
  attrs_ = rop_->attrs;
  for (size_t i = first; i < rop_->inputs.size(); ++i) {
    if (rows_of(i) > 0) join_operand(i);
  }
  return Rows::none;
}

void RopLengths::join_operand(size_t i) {
  inputs_[i] = joined(rop_->inputs[i], [&](const Probe& probe) { return twin(probe).inputs[i]; });
}

// The tensor as the model has it, its rows one behind the other.
TensorId RopLengths::joined(TensorId id, const IdIn& id_in) {
  const Shape& to = original_.tensor(id).shape;
  LengthAxes made;
  for (size_t d = 0; d < to.size(); ++d) {
    const auto extent = line_or_product(to[d], [&](const Probe& probe) { return probe.graph.tensor(id_in(probe)).shape[d]; });
    if (extent) add(made, d, *extent);
  }
  const Taken taken = taken_by_number(mapped_[id.index()], axes_[id.index()], to, made);
  mapped_[id.index()] = emit(taken.gather, {taken.from, taken.numbers});
  axes_[id.index()] = made;
  rows_[id.index()] = 0;
  return mapped_[id.index()];
}

void RopLengths::apply(const Reshape& op) {
  if (const auto axes = reshaped_axes(shape(0), axes_of(0), op.shape)) return result(0, *axes);
  LengthAxes made;
  for (size_t d = 0; d < op.shape.size(); ++d) {
    const auto extent =
        line_or_product(op.shape[d], [&](const Probe& probe) { return probe.graph.tensor(twin(probe).outputs[0]).shape[d]; });
    if (extent) add(made, d, *extent);
  }
  const Taken taken = taken_by_number(inputs_[0], axes_of(0), op.shape, made);
  attrs_ = taken.gather;
  inputs_ = {taken.from, taken.numbers};
  result(0, made);
}

// Where lengths end a Reshape; none if elements do not stay where they are before one end for each dimension.
std::optional<LengthAxes> RopLengths::reshaped_axes(const Shape& from, const LengthAxes& axes, const Shape& to) const {
  LengthAxes made;
  for (const LengthAxis& axis : axes) {
    const std::optional<LengthAxis> found = reshaped(axis, from, to);
    if (!found || extent_at(made, static_cast<size_t>(found->dim))) return std::nullopt;
    add(made, static_cast<size_t>(found->dim), found->extent);
  }
  for (const Probe& probe : probes_) {
    const Shape& there = probe.graph.tensor(twin(probe).outputs[0]).shape;
    for (size_t d = 0; d < to.size(); ++d) {
      const auto extent = extent_at(made, d);
      if (d >= there.size() || there[d] != (extent ? at(*extent, probe.values) : to[d])) return std::nullopt;
    }
  }
  return made;
}

namespace {

// factor * of, where `of` is a number of run time or 1.
struct Stride {
  int64_t factor = 1;
  TensorId of;
};

}  // namespace

// Element r of the result is the r-th in memory at each length, too: its number there is counted by the result's true extents, taken apart
// by the operand's, and counted by those of the largest lengths. Dimensions in front and behind that both have alike are left out.
RopLengths::Taken RopLengths::taken_by_number(TensorId x, const LengthAxes& axes, const Shape& to, const LengthAxes& made) {
  const Shape from = graph_.tensor(x).shape;
  const auto are_alike = [&](size_t f, size_t t) { return from[f] == to[t] && extent_at(axes, f) == extent_at(made, t); };
  size_t first = 0, from_end = from.size(), to_end = to.size();
  while (first < from.size() && first < to.size() && are_alike(first, first)) ++first;
  while (from_end > first && to_end > first && are_alike(from_end - 1, to_end - 1)) --from_end, --to_end;

  const auto with = [&](ElementwiseOp op, TensorId a, TensorId b) { return elementwise(op, {a, b}); };
  const auto plus = [&](TensorId a, TensorId b) { return a.valid() ? with(ElementwiseOp::add, a, b) : b; };
  TensorId rest;
  Stride stride;
  for (size_t d = to_end; d-- > first;) {
    const std::optional<Extent> extent = extent_at(made, d);
    if (to[d] > 1) {
      Shape along(to_end - first, 1);
      along[d - first] = to[d];
      std::vector<int64_t> places;
      for (int64_t i = 0; i < to[d]; ++i) places.push_back(i * stride.factor);
      const TensorId place = add_constant(graph_, unique("length.constant"), DType::i64, along, packed_bytes(places));
      rest = plus(rest, stride.of.valid() ? with(ElementwiseOp::mul, place, stride.of) : place);
    }
    if (!extent)
      stride.factor *= to[d];
    else
      stride.of = stride.of.valid() ? with(ElementwiseOp::mul, stride.of, number_of(*extent, DType::i64)) : number_of(*extent, DType::i64);
  }
  TensorId numbers;
  int64_t step = 1;
  for (size_t d = from_end; d-- > first && rest.valid();) {
    const bool is_last = product(from, first, d) == 1;
    const std::optional<Extent> extent = extent_at(axes, d);
    const TensorId count = extent ? number_of(*extent, DType::i64) : scalar(DType::i64, static_cast<double>(from[d]));
    const TensorId digit = is_last ? rest : with(ElementwiseOp::mod, rest, count);
    if (from[d] > 1)
      numbers = plus(numbers, step == 1 ? digit : with(ElementwiseOp::mul, digit, scalar(DType::i64, static_cast<double>(step))));
    if (is_last) break;
    rest = with(ElementwiseOp::div, rest, count);
    step *= from[d];
  }
  const Shape part(to.begin() + static_cast<std::ptrdiff_t>(first), to.begin() + static_cast<std::ptrdiff_t>(to_end));
  const int64_t all = product(from, first, from_end);
  if (numbers.valid())
    numbers = with(ElementwiseOp::min, numbers, scalar(DType::i64, static_cast<double>(all - 1)));  // behind the result's end
  else
    numbers = constant(DType::i64, part, 0);
  Shape view(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(first));
  view.push_back(all);
  view.insert(view.end(), from.begin() + static_cast<std::ptrdiff_t>(from_end), from.end());
  return {Gather{static_cast<int64_t>(first)}, emit(Reshape{view}, {x}), numbers};
}

// Whether the Reshape joins the first dimensions, one of which ends behind others.
bool RopLengths::join_rows(const Reshape& op) {
  const Shape& from = shape(0);
  size_t parts = 1;
  while (parts < from.size() && !op.shape.empty() && product(from, 0, parts) < op.shape[0]) ++parts;
  const auto is_behind = [&](const LengthAxis& axis) { return axis.dim > 0 && product(from, 0, static_cast<size_t>(axis.dim)) > 1; };
  const auto is_joined = [&](const LengthAxis& axis) { return static_cast<size_t>(axis.dim) < parts; };
  const LengthAxes& axes = axes_of(0);
  if (from.empty() || op.shape.empty() || product(from, 0, parts) != op.shape[0] || std::none_of(axes.begin(), axes.end(), is_behind) ||
      !std::all_of(axes.begin(), axes.end(), is_joined))
    return false;
  const Shape apart(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(parts));
  attrs_ = Reshape{with_rest(apart, op.shape)};
  emit_rows(0, apart);
  return true;
}

// The attributes for rows apart. Operands without such rows must be the same for each of them.
bool RopLengths::shift_rows(size_t first, size_t parts, const Shape& apart) {
  const auto more = static_cast<int64_t>(parts) - 1;
  const auto is_same_for_all = [&](size_t i) {
    return !has(i) || (axes_of(i).empty() && (shape(i).size() < result_shape().size() || shape(i)[0] == 1));
  };
  for (size_t i = 0; i < rop_->inputs.size(); ++i) {
    if (rows_of(i) == 0) continue;
    const Shape& made = graph_.tensor(inputs_[i]).shape;
    if (rows_of(i) != parts || axes_of(i) != axes_of(first) || !std::equal(apart.begin(), apart.end(), made.begin())) return false;
  }
  if (auto* op = std::get_if<Elementwise>(&attrs_)) {
    for (size_t i = 0; i < rop_->inputs.size(); ++i) {
      if (rows_of(i) == 0 && !is_same_for_all(i)) return false;
      if (rows_of(i) > 0 && shape(i).size() != result_shape().size()) return false;
    }
    return op->shape.empty();
  }
  if (auto* op = std::get_if<MatMul>(&attrs_))
    return first == 0 && rows_of(1) == 0 && rows_of(2) == 0 && axes_of(1).empty() && shape(0).size() == 2 && shape(1).size() == 2 &&
           !op->trans_a && is_same_for_all(2);
  if (auto* op = std::get_if<Reshape>(&attrs_)) {
    if (op->shape.empty() || op->shape[0] != shape(0)[0]) return false;
    op->shape = with_rest(apart, op->shape);
    return true;
  }
  if (auto* op = std::get_if<Softmax>(&attrs_)) {
    op->first_axis += more;
    op->last_axis += more;
    return op->first_axis > more;
  }
  if (auto* op = std::get_if<Normalize>(&attrs_)) {
    for (size_t i = 1; i < rop_->inputs.size(); ++i) {
      if (!is_same_for_all(i) || rows_of(i) > 0 || (has(i) && shape(i).size() == result_shape().size())) return false;
    }
    for (int64_t& axis : op->axes) axis += more;
    return !has(3) && std::all_of(op->axes.begin(), op->axes.end(), [&](int64_t axis) { return axis > more; });
  }
  if (auto* op = std::get_if<Slice>(&attrs_)) {
    if (op->starts[0] != 0 || op->steps[0] != 1 || op->extents[0] != shape(0)[0]) return false;
    op->starts.insert(op->starts.begin(), parts - 1, 0);
    op->steps.insert(op->steps.begin(), parts - 1, 1);
    op->extents = with_rest(apart, op->extents);
    return true;
  }
  if (auto* op = std::get_if<Gather>(&attrs_); op && first == 1 && op->axis == 0 && rows_of(0) == 0 && axes_of(0).empty()) {
    for (const LengthAxis& axis : axes_of(1)) inputs_[1] = masked_tensor(inputs_[1], static_cast<size_t>(axis.dim), axis.extent, 0);
    return true;
  }
  return false;
}

void RopLengths::emit_rows(size_t from, const Shape& apart) {
  const TensorId id = rop_->outputs[0];
  const LengthAxes axes = axes_of(from);
  for (const Probe& probe : probes_) {
    Shape there = apart;
    for (const LengthAxis& axis : axes) there[static_cast<size_t>(axis.dim)] = at(axis.extent, probe.values);
    Shape wanted = result_shape();
    wanted[0] = product(there, 0, there.size());
    if (probe.graph.tensor(twin(probe).outputs[0]).shape != wanted)
      throw Mixes{fmt::format("has a result of shape {} with {}, which does not follow from its operands",
                              shape_text(probe.graph.tensor(twin(probe).outputs[0]).shape), values_text(probe))};
  }
  mapped_[id.index()] = emit(attrs_, inputs_);
  axes_[id.index()] = axes;
  rows_[id.index()] = apart.size();
}

}  // namespace tamp::frontend
