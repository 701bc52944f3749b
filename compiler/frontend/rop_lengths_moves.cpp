// Rules of what takes elements to other places.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "compiler/frontend/rop_lengths.h"
#include "compiler/ir/length_rules.h"
#include "compiler/ir/loops.h"

namespace tamp::frontend {

void RopLengths::apply(const Transpose& op) {
  LengthAxes axes;
  for (size_t d = 0; d < op.perm.size(); ++d) {
    if (const auto extent = extent_at(axes_of(0), static_cast<size_t>(op.perm[d]))) add(axes, d, *extent);
  }
  result(0, axes);
}

// A part from the first element on or from some element to the end; all others by their numbers.
void RopLengths::apply(const Slice& op) {
  LengthAxes axes;
  for (size_t d = 0; d < op.steps.size(); ++d) {
    const std::optional<Extent> own = extent_at(axes_of(0), d);
    if (own && op.steps[d] > 1)
      note({own->length, own->times, own->plus + (op.steps[d] - 1 - op.starts[d]) * own->over, own->over * op.steps[d]});
    const std::optional<Extent> start = line_of([&](const ROperator& rop) {
      const auto& there = std::get<Slice>(rop.attrs);
      return there.extents[d] == 0 ? op.starts[d] : there.starts[d];
    });
    const std::optional<Extent> count = extent_of_result(0, d);
    if (count) add(axes, d, *count);
    if (start || (own && op.steps[d] < 0)) {
      take_by_number(op, d, start);
      continue;
    }
    const int64_t last = op.starts[d] + (op.extents[d] - 1) * op.steps[d];
    if (own && !count && last >= least(*own))
      throw Mixes{fmt::format("takes element {} of dimension {} of {}, which has only {} in some runs", last, d, name(0), least(*own))};
  }
  result(0, axes);
}

// start, start + step, ..
void RopLengths::take_by_number(const Slice& op, size_t d, const std::optional<Extent>& start) {
  std::vector<int64_t> steps;
  for (int64_t i = 0; i < op.extents[d]; ++i) steps.push_back(i * op.steps[d]);
  const TensorId first = start ? number_of(*start, DType::i64) : scalar(DType::i64, static_cast<double>(op.starts[d]));
  TensorId numbers = elementwise(ElementwiseOp::add, {first, constant_i64(steps)});
  const auto most = static_cast<double>(shape(0)[d] - 1);  // behind the result's end
  numbers = elementwise(ElementwiseOp::max, {elementwise(ElementwiseOp::min, {numbers, scalar(DType::i64, most)}), scalar(DType::i64, 0)});
  inputs_[0] = emit(Gather{static_cast<int64_t>(d)}, {inputs_[0], numbers});
  auto& slice = std::get<Slice>(attrs_);
  slice.starts[d] = 0;
  slice.steps[d] = 1;
}

// What comes in front moves the end. What comes behind it has no fixed place: it is put behind the largest, and rows are taken by number.
void RopLengths::apply(const Concat& op) {
  const auto along = static_cast<size_t>(op.axis);
  LengthAxes axes;
  std::optional<Extent> end;
  TensorId number, made = inputs_[0];  // of rows so far, where that is no extent
  int64_t before = 0;
  const bool goes_on = std::any_of(rop_->inputs.begin(), rop_->inputs.end() - 1,
                                   [&](TensorId id) { return extent_at(axes_[id.index()], along).has_value(); });
  for (size_t i = 0; i < rop_->inputs.size(); ++i) {
    const auto own = extent_at(axes_of(i), along);
    for (const LengthAxis& axis : axes_of(i)) {
      if (static_cast<size_t>(axis.dim) != along) add(axes, static_cast<size_t>(axis.dim), axis.extent);
    }
    if (i > 0 && goes_on)
      made = end || number.valid() ? behind(made, number.valid() ? number : number_of(*end, DType::i64), i) : emit(op, {made, inputs_[i]});
    const auto own_number = [&] { return own ? number_of(*own, DType::i64) : scalar(DType::i64, static_cast<double>(shape(i)[along])); };
    if (number.valid()) {
      number = elementwise(ElementwiseOp::add, {number, own_number()});
    } else if (end && end->over == 1 && (!own || (own->over == 1 && own->length == end->length))) {
      end = Extent{end->length, end->times + (own ? own->times : 0), end->plus + (own ? own->plus : shape(i)[along]), 1};
    } else if (end) {
      number = elementwise(ElementwiseOp::add, {number_of(*end, DType::i64), own_number()});
    } else if (own) {
      end = Extent{own->length, own->times, own->plus + before * own->over, own->over};
    }
    before += shape(i)[along];
  }
  if (number.valid()) end = end_of_all(along);
  if (end) add(axes, along, *end);
  result(0, axes);
  if (!goes_on) return;
  attrs_ = Elementwise{{{ElementwiseOp::identity, {0}}}};
  inputs_ = {made};
}

// Where the result ends, of operands that end at several extents: at a multiple of their product, if they are the maps of one image.
Extent RopLengths::end_of_all(size_t along) {
  try {
    const auto number = [&](const Probe& probe) { return probe.graph.tensor(twin(probe).outputs[0]).shape[along]; };
    if (const auto found = line_or_product(result_shape()[along], number)) return *found;
  } catch (const Mixes&) {
  }
  throw Mixes{fmt::format("puts {} behind the end of {}, and both end at lengths of run time", name(1), name(0))};
}

// Row r of the first `end` rows of `made`, behind them row r - end of operand i.
TensorId RopLengths::behind(TensorId made, TensorId end, size_t i) {
  const auto along = static_cast<size_t>(std::get<Concat>(attrs_).axis);
  const int64_t most = graph_.tensor(made).shape[along], all = most + shape(i)[along];
  std::vector<int64_t> rows(static_cast<size_t>(all));
  std::iota(rows.begin(), rows.end(), 0);
  const TensorId row = constant_i64(rows);
  const TensorId gap = elementwise(ElementwiseOp::sub, {scalar(DType::i64, static_cast<double>(most)), end});
  const TensorId moved =
      elementwise(ElementwiseOp::min, {elementwise(ElementwiseOp::add, {row, gap}), scalar(DType::i64, static_cast<double>(all - 1))});
  const TensorId from = elementwise(ElementwiseOp::where, {elementwise(ElementwiseOp::less, {row, end}), row, moved});
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

// Tables that are cut off at the end say for each length where an element comes from. Those of run time are sums of Gathers.
void RopLengths::apply(const Resample& op) {
  LengthAxes axes;
  for (const LengthAxis& axis : axes_of(0)) {
    if (std::find(op.axes.begin(), op.axes.end(), axis.dim) == op.axes.end()) add(axes, static_cast<size_t>(axis.dim), axis.extent);
  }
  Resample rest{{}, op.outside};
  std::vector<TensorId> tables;
  for (size_t a = 0; a < op.axes.size(); ++a) {
    const size_t table = 1 + 2 * a;
    if (const auto end = extent_at(axes_of(table), 0)) add(axes, static_cast<size_t>(op.axes[a]), *end);
    if (operand(table).role == Role::constant && operand(table + 1).role == Role::constant) {
      rest.axes.push_back(op.axes[a]);
      tables.insert(tables.end(), {inputs_[table], inputs_[table + 1]});
    } else {
      inputs_[0] = resampled(inputs_[0], op.axes[a], inputs_[table], inputs_[table + 1]);
    }
  }
  result(0, axes);
  if (rest.axes.size() == op.axes.size()) return;
  tables.insert(tables.begin(), inputs_[0]);
  inputs_ = tables;
  attrs_ = rest;
  if (rest.axes.empty()) attrs_ = Elementwise{{{ElementwiseOp::identity, {0}}}};
}

TensorId RopLengths::resampled(TensorId x, int64_t axis, TensorId indices, TensorId weights) {
  const Shape table = graph_.tensor(indices).shape;
  Shape along(graph_.tensor(x).shape.size(), 1);
  along[static_cast<size_t>(axis)] = table[0];
  TensorId sum;
  for (int64_t t = 0; t < table[1]; ++t) {
    const Slice column{{0, t}, {1, 1}, {table[0], 1}};
    const TensorId index = emit(Reshape{{table[0]}}, {emit(column, {indices})}), weight = emit(Reshape{along}, {emit(column, {weights})});
    const TensorId part = elementwise(ElementwiseOp::mul, {emit(Gather{axis}, {x, index}), weight});
    sum = sum.valid() ? elementwise(ElementwiseOp::add, {sum, part}) : part;
  }
  return sum;
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

// Updates behind an end have a number that is out of range, so that they are left out.
void RopLengths::apply(const Scatter& op) {
  const auto along = static_cast<size_t>(op.axis);
  const LengthAxes axes = axes_of(0);
  if (const auto extent = extent_at(axes, along)) count_from_end(*extent);
  LengthAxes ends = axes_of(2);
  for (const LengthAxis& axis : axes_of(1)) add(ends, static_cast<size_t>(axis.dim), axis.extent);
  for (const LengthAxis& axis : ends) {
    const auto d = static_cast<size_t>(axis.dim);
    const auto of_x = d == along ? std::nullopt : extent_at(axes, d);
    if (of_x && *of_x != axis.extent) throw Mixes{fmt::format("has updates that end dimension {} at another length than {}", d, name(0))};
    if (!of_x) mask(1, d, axis.extent, static_cast<double>(shape(0)[along]));
  }
  result(0, axes);
}

}  // namespace tamp::frontend
