// Joined rows of several lengths.
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

// of run time is made with its dimensions apart, [B,L,8] x [8,4], until a Reshape has them apart as well. ---
bool RopLengths::follow_rows() {
  if (const auto* op = std::get_if<Reshape>(&rop_->attrs); op && rows_of(0) == 0) return join_rows(*op);
  size_t first = 0;
  while (first < rop_->inputs.size() && rows_of(first) == 0) ++first;
  if (first == rop_->inputs.size() || is_of_loop(rop_->attrs)) return false;
  const size_t parts = rows_of(first);
  const Shape& made = graph_.tensor(inputs_[first]).shape;
  const Shape apart(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(parts));
  if (const auto* op = std::get_if<Reshape>(&rop_->attrs)) {
    if (const auto axes = axes_apart(made, *op)) {
      result(0, *axes);
      return false;  // apart again
    }
  }
  if (rop_->outputs.size() != 1 || !shift_rows(first, parts, apart)) throw Mixes{"takes rows of several lengths of run time together"};
  emit_rows(first, apart);
  return true;
}

// Where lengths end a Reshape of what was made with dimensions apart; none if it does not have them apart.
std::optional<LengthAxes> RopLengths::axes_apart(const Shape& made, const Reshape& op) const {
  LengthAxes axes;
  for (const LengthAxis& axis : axes_of(0)) {
    const std::optional<LengthAxis> found = reshaped(axis, made, op.shape);
    if (!found) return std::nullopt;
    axes.push_back(*found);
  }
  return axes;
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
    for (const LengthAxis& axis : axes)
      there[static_cast<size_t>(axis.dim)] = axis.extent.at(probe.values[static_cast<size_t>(axis.extent.length)]);
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
