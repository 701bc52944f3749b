// Rules of what takes elements to other places.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "compiler/frontend/rop_lengths.h"
#include "compiler/ir/length_rules.h"
#include "compiler/ir/loops.h"

namespace tamp::frontend {

void RopLengths::apply(const Reshape& op) {
  LengthAxes axes;
  for (const LengthAxis& axis : axes_of(0)) {
    const std::optional<LengthAxis> made = reshaped(axis, shape(0), op.shape);
    if (!made) throw mixes_reshape(op, static_cast<size_t>(axis.dim));
    add(axes, static_cast<size_t>(made->dim), made->extent);
  }
  result(0, axes);
}

Mixes RopLengths::mixes_reshape(const Reshape& op, size_t d) const {
  return {fmt::format("mixes dimension {} of {} {}, which ends at a length of run time, with others in {}", d, name(0),
                      shape_text(shape(0)), shape_text(op.shape))};
}

void RopLengths::apply(const Transpose& op) {
  LengthAxes axes;
  for (size_t d = 0; d < op.perm.size(); ++d) {
    if (const auto extent = extent_at(axes_of(0), static_cast<size_t>(op.perm[d]))) add(axes, d, *extent);
  }
  result(0, axes);
}

// A part from the first element on; from some element to the end; or some elements counted from the end, by their numbers.
void RopLengths::apply(const Slice& op) {
  LengthAxes axes;
  for (size_t d = 0; d < op.steps.size(); ++d) {
    if (extent_at(axes_of(0), d)) continue;
    const auto count = extent_of_result(0, d);
    if (count && line_of([&](const ROperator& rop) { return std::get<Slice>(rop.attrs).starts[d]; }))
      throw Mixes{fmt::format("takes a part of dimension {} of {} that begins at a length of run time", d, name(0))};
    if (count) add(axes, d, *count);
  }
  for (const LengthAxis& axis : axes_of(0)) {
    const auto d = static_cast<size_t>(axis.dim);
    if (op.steps[d] < 0) throw Mixes{fmt::format("reverses dimension {} of {}, which ends at a length of run time", d, name(0))};
    const Extent& e = axis.extent;
    if (op.steps[d] > 1) note({e.length, e.times, e.plus + (op.steps[d] - 1 - op.starts[d]) * e.over, e.over * op.steps[d]});
    const std::optional<Extent> start = line_of([&](const ROperator& rop) { return std::get<Slice>(rop.attrs).starts[d]; });
    const std::optional<Extent> count = extent_of_result(0, d);
    if (!start) {
      if (count) {
        add(axes, d, *count);
        if (*count == axis.extent || op.steps[d] > 1) continue;
      }
      const int64_t last = op.starts[d] + (op.extents[d] - 1) * op.steps[d];
      if (!count && last >= least(axis.extent))
        throw Mixes{
            fmt::format("takes element {} of dimension {} of {}, which has only {} in some runs", last, d, name(0), least(axis.extent))};
      continue;
    }
    if (count || start->over != 1)
      throw Mixes{fmt::format("takes a part of dimension {} of {} that begins at a length of run time", d, name(0))};
    // By numbers: start, start + step, ..
    std::vector<int64_t> steps;
    for (int64_t i = 0; i < op.extents[d]; ++i) steps.push_back(i * op.steps[d]);
    const TensorId numbers = elementwise(ElementwiseOp::add, {number_of(*start, DType::i64), constant_i64(steps)});
    inputs_[0] = emit(Gather{axis.dim}, {inputs_[0], numbers});
    auto& slice = std::get<Slice>(attrs_);
    slice.starts[d] = 0;
    slice.steps[d] = 1;
  }
  result(0, axes);
}

// What comes in front moves the end. What comes behind it has no fixed place: it is put behind the largest, and rows are taken by number.
void RopLengths::apply(const Concat& op) {
  const auto along = static_cast<size_t>(op.axis);
  LengthAxes axes;
  std::optional<Extent> end;
  TensorId made = inputs_[0];
  int64_t before = 0;
  const bool goes_on = std::any_of(rop_->inputs.begin(), rop_->inputs.end() - 1,
                                   [&](TensorId id) { return extent_at(axes_[id.index()], along).has_value(); });
  for (size_t i = 0; i < rop_->inputs.size(); ++i) {
    const auto own = extent_at(axes_of(i), along);
    for (const LengthAxis& axis : axes_of(i)) {
      if (static_cast<size_t>(axis.dim) != along) add(axes, static_cast<size_t>(axis.dim), axis.extent);
    }
    if (i > 0 && goes_on) made = end ? behind(made, *end, i, own) : emit(op, {made, inputs_[i]});
    if (end)
      end = Extent{end->length, end->times + (own ? own->times : 0), end->plus + (own ? own->plus : shape(i)[along]), 1};
    else if (own)
      end = Extent{own->length, own->times, own->plus + before * own->over, own->over};
    before += shape(i)[along];
  }
  if (end) add(axes, along, *end);
  result(0, axes);
  if (!goes_on) return;
  attrs_ = Elementwise{{{ElementwiseOp::identity, {0}}}};
  inputs_ = {made};
}

// Row r of `made`, where it has one, else row r - end of operand i.
TensorId RopLengths::behind(TensorId made, const Extent& end, size_t i, const std::optional<Extent>& own) {
  const auto along = static_cast<size_t>(std::get<Concat>(attrs_).axis);
  if (end.over != 1 || (own && (own->over != 1 || own->length != end.length)))
    throw Mixes{fmt::format("puts {} behind the end of {}, and both end at lengths of run time", name(i), name(i - 1))};
  const int64_t most = graph_.tensor(made).shape[along], all = most + shape(i)[along];
  std::vector<int64_t> rows(static_cast<size_t>(all));
  std::iota(rows.begin(), rows.end(), 0);
  const TensorId row = constant_i64(rows), number = number_of(end, DType::i64);
  const TensorId gap = elementwise(ElementwiseOp::sub, {scalar(DType::i64, static_cast<double>(most)), number});
  const TensorId moved =
      elementwise(ElementwiseOp::min, {elementwise(ElementwiseOp::add, {row, gap}), scalar(DType::i64, static_cast<double>(all - 1))});
  const TensorId from = elementwise(ElementwiseOp::where, {elementwise(ElementwiseOp::less, {row, number}), row, moved});
  return emit(Gather{std::get<Concat>(attrs_).axis}, {emit(attrs_, {made, inputs_[i]}), from});
}

void RopLengths::apply(const Pad& op) {
  LengthAxes axes;
  for (const LengthAxis& axis : axes_of(0)) {
    const auto d = static_cast<size_t>(axis.dim);
    const int64_t before = op.before[d], after = op.after[d];
    if (after < 0) throw Mixes{fmt::format("crops {} at the end of dimension {}, which is a length of run time", name(0), d)};
    if (after > 0 && op.mode != PadMode::constant)
      throw Mixes{fmt::format("repeats elements of {} behind the end of dimension {}, which is a length of run time", name(0), d)};
    if (before > 0 && op.mode == PadMode::wrap) throw Mixes{fmt::format("takes elements from the end of dimension {} of {}", d, name(0))};
    if (before > 0 && op.mode == PadMode::reflect && before >= least(axis.extent))
      throw Mixes{fmt::format("reflects {} elements of dimension {} of {}, which has only {} in some runs", before, d, name(0),
                              least(axis.extent))};
    if (after > 0) mask(0, d, axis.extent, op.value);
    add(axes, d, {axis.extent.length, axis.extent.times, axis.extent.plus + (before + after) * axis.extent.over, axis.extent.over});
  }
  result(0, axes);
}

void RopLengths::apply(const Gather& op) {
  const auto along = static_cast<size_t>(op.axis);
  const size_t index_rank = shape(1).size();
  LengthAxes axes;
  for (const LengthAxis& axis : axes_of(0)) {
    const auto d = static_cast<size_t>(axis.dim);
    if (d != along)
      add(axes, d < along ? d : d - 1 + index_rank, axis.extent);
    else if (!has_loops(original_) || !is_natural(*rop_, 1))
      count_from_end(axis.extent);
  }
  for (const LengthAxis& axis : axes_of(1)) {
    add(axes, along + static_cast<size_t>(axis.dim), axis.extent);
    mask(1, static_cast<size_t>(axis.dim), axis.extent, 0);  // what lies there may be no number of a row
  }
  result(0, axes);
}

// Negative numbers count from the end of the run's rows.
void RopLengths::count_from_end(const Extent& extent) {
  const DType dtype = operand(1).dtype;
  const TensorId is_negative = elementwise(ElementwiseOp::less, {inputs_[1], scalar(dtype, 0)});
  const TensorId moved = elementwise(ElementwiseOp::add, {inputs_[1], number_of(extent, dtype)});
  inputs_[1] = elementwise(ElementwiseOp::where, {is_negative, moved, inputs_[1]});
}

// Tables that are cut off at the end, as those of nearest neighbours by a whole factor, say for each length where an element comes from.
void RopLengths::apply(const Resample& op) {
  LengthAxes axes;
  for (const LengthAxis& axis : axes_of(0)) {
    if (std::find(op.axes.begin(), op.axes.end(), axis.dim) == op.axes.end()) add(axes, static_cast<size_t>(axis.dim), axis.extent);
  }
  for (size_t a = 0; a < op.axes.size(); ++a) {
    const auto d = static_cast<size_t>(op.axes[a]);
    const auto end = extent_at(axes_of(1 + 2 * a), 0);
    if (extent_at(axes_of(0), d).has_value() != end.has_value() || extent_at(axes_of(2 + 2 * a), 0) != end)
      throw Mixes{fmt::format("resizes dimension {} of {} from or to a length of run time", d, name(0))};
    if (end) add(axes, d, *end);
  }
  result(0, axes);
}

void RopLengths::apply(const GridSample&) {
  LengthAxes axes;
  for (const LengthAxis& axis : axes_of(0)) {
    if (axis.dim > 1) throw Mixes{fmt::format("samples dimension {} of {}, which ends at a length of run time", axis.dim, name(0))};
    add(axes, static_cast<size_t>(axis.dim), axis.extent);
  }
  for (const LengthAxis& axis : axes_of(1)) add(axes, static_cast<size_t>(axis.dim > 0 ? axis.dim + 1 : 0), axis.extent);
  result(0, axes);
}

// What lies behind an end is put nowhere: its numbers are behind the last element of x.
void RopLengths::apply(const Scatter& op) {
  const auto along = static_cast<size_t>(op.axis);
  const LengthAxes axes = axes_of(0);
  if (extent_at(axes, along))
    throw Mixes{fmt::format("scatters along dimension {} of {}, which ends at a length of run time", along, name(0))};
  LengthAxes ends = axes_of(2);
  for (const LengthAxis& axis : axes_of(1)) add(ends, static_cast<size_t>(axis.dim), axis.extent);
  for (const LengthAxis& axis : ends) {
    const auto d = static_cast<size_t>(axis.dim);
    const auto of_x = extent_at(axes, d);
    if (of_x && *of_x != axis.extent) throw Mixes{fmt::format("has updates that end dimension {} at another length than {}", d, name(0))};
    if (!of_x) mask(1, d, axis.extent, static_cast<double>(shape(0)[along]));
  }
  result(0, axes);
}

}  // namespace tamp::frontend
