// Rules of work that goes along a length: sums, normalisation, windows, order, steps.
#include "compiler/frontend/rop_lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "compiler/ir/length_rules.h"

namespace tamp::frontend {
namespace {

double lowest_of(DType dtype) {
  switch (dtype) {
    case DType::i8: return -128;
    case DType::i16: return -32768;
    case DType::i32: return -2147483648.0;
    case DType::i64: return -9223372036854775808.0;
    case DType::boolean:
    case DType::u8:
    case DType::u16:
    case DType::u32:
    case DType::u64: return 0;
    default: return -std::numeric_limits<double>::infinity();
  }
}
double highest_of(DType dtype) {
  switch (dtype) {
    case DType::i8: return 127;
    case DType::i16: return 32767;
    case DType::i32: return 2147483647.0;
    case DType::boolean: return 1;
    case DType::u8: return 255;
    case DType::u16: return 65535;
    case DType::u32: return 4294967295.0;
    case DType::i64:
    case DType::u64: throw Mixes{"takes the least of integers of 64 bits along a length of run time"};
    default: return std::numeric_limits<double>::infinity();
  }
}

double neutral_of(ReduceKind kind, DType dtype) {
  switch (kind) {
    case ReduceKind::max: return lowest_of(dtype);
    case ReduceKind::min: return highest_of(dtype);
    case ReduceKind::prod: return 1;
    case ReduceKind::log_sum_exp: return -std::numeric_limits<double>::infinity();
    default: return 0;
  }
}

}  // namespace

void RopLengths::apply(const Elementwise& op) {
  const size_t rank = result_shape().size();
  LengthAxes axes;
  for (size_t i = 0; i < rop_->inputs.size(); ++i) {
    if (has(i)) add_aligned(axes, i, rank);
  }
  // A dimension that `identity` repeats a value along has the length of the attribute.
  for (size_t d = 0; d < rank; ++d) {
    if (op.shape.empty() || extent_at(axes, d)) continue;
    if (const auto extent = extent_of_result(0, d)) add(axes, d, *extent);
  }
  result(0, axes);
}

void RopLengths::apply(const MatMul& op) {
  const size_t rank = result_shape().size();
  LengthAxes axes;
  std::optional<Extent> summed;
  for (size_t i = 0; i < 2; ++i) {
    const size_t own = shape(i).size();
    for (const LengthAxis& axis : axes_of(i)) {
      const size_t back = own - static_cast<size_t>(axis.dim);  // 1: the last dimension
      if (back > 2) {
        add(axes, rank - back, axis.extent);
        continue;
      }
      const bool is_last = back == 1, is_summed = i == 0 ? is_last != op.trans_a : is_last == op.trans_b;
      if (!is_summed) {
        add(axes, rank - (i == 0 ? 2 : 1), axis.extent);
        continue;
      }
      if (summed && *summed != axis.extent) throw Mixes{"sums over a dimension that ends at two lengths"};
      summed = axis.extent;
    }
  }
  if (has(2)) add_aligned(axes, 2, rank);
  if (summed) {
    for (size_t i = 0; i < 2; ++i) {
      const bool is_last = i == 0 ? !op.trans_a : op.trans_b;
      mask(i, shape(i).size() - (is_last ? 1 : 2), *summed, 0);
    }
  }
  result(0, axes);
}

void RopLengths::apply(const Softmax& op) {
  for (const LengthAxis& axis : axes_of(0)) {
    if (axis.dim < op.first_axis || axis.dim > op.last_axis) continue;
    if (product(shape(0), static_cast<size_t>(op.first_axis), static_cast<size_t>(op.last_axis) + 1) !=
        shape(0)[static_cast<size_t>(axis.dim)])
      throw Mixes{fmt::format("normalises over several dimensions of {} together, one of which ends at a length of run time", name(0))};
    std::get<Softmax>(attrs_).end = axis.extent;
  }
  result(0, axes_of(0));
}

void RopLengths::apply(const Reduce& op) {
  LengthAxes kept;
  std::vector<LengthAxis> summed;
  for (const LengthAxis& axis : axes_of(0)) {
    const bool is_reduced = std::find(op.axes.begin(), op.axes.end(), axis.dim) != op.axes.end();
    const auto gone = std::count_if(op.axes.begin(), op.axes.end(), [&](int64_t d) { return d < axis.dim; });
    if (is_reduced)
      summed.push_back(axis);
    else
      kept.push_back({axis.dim - (op.keepdims ? 0 : gone), axis.extent});
  }
  if (!summed.empty()) reduce_masked(op, summed);
  result(0, kept);
}

void RopLengths::reduce_masked(const Reduce& op, const std::vector<LengthAxis>& summed) {
  if (op.kind == ReduceKind::mean) {
    // The sum of each element's share, so that no sum is larger than the elements are.
    std::get<Reduce>(attrs_).kind = ReduceKind::sum;
    int64_t others = 1;
    for (const int64_t d : op.axes) {
      if (!extent_at(axes_of(0), static_cast<size_t>(d))) others *= shape(0)[static_cast<size_t>(d)];
    }
    inputs_[0] = elementwise(ElementwiseOp::mul, {inputs_[0], share_of(summed, others)});
    for (const LengthAxis& axis : summed) inputs_[0] = masked_tensor(inputs_[0], static_cast<size_t>(axis.dim), axis.extent, 0);
    return;
  }
  for (const LengthAxis& axis : summed) mask(0, static_cast<size_t>(axis.dim), axis.extent, neutral_of(op.kind, operand(0).dtype));
}

// 1 divided by the number of elements of `others` dimensions and of those that end.
TensorId RopLengths::share_of(const std::vector<LengthAxis>& ends, int64_t others) {
  const DType dtype = operand(0).dtype;
  if (dtype != DType::f32 && dtype != DType::f64 && dtype != DType::f16 && dtype != DType::bf16)
    throw Mixes{"takes the mean of integers along a length of run time"};
  TensorId count = scalar(dtype, static_cast<double>(others));
  for (const LengthAxis& axis : ends) count = elementwise(ElementwiseOp::mul, {count, number_of(axis.extent, dtype)});
  return elementwise(ElementwiseOp::div, {scalar(dtype, 1), count});
}

void RopLengths::apply(const Normalize& op) {
  LengthAxes axes = axes_of(0);
  for (size_t i = 1; i < rop_->inputs.size(); ++i) {
    if (has(i)) add_aligned(axes, i, shape(0).size());
  }
  std::vector<LengthAxis> inside;
  for (const LengthAxis& axis : axes) {
    if (std::find(op.axes.begin(), op.axes.end(), axis.dim) != op.axes.end()) inside.push_back(axis);
  }
  if (!inside.empty()) normalize_masked(op, inside);
  result(0, axes);
}

// (x - mean) / sqrt(mean of (x - mean)^2 + epsilon) * scale + bias, each mean over what there is.
void RopLengths::normalize_masked(const Normalize& op, const std::vector<LengthAxis>& inside) {
  const DType dtype = operand(0).dtype;
  if (has(3)) throw Mixes{"normalises rows by a table along a length of run time"};
  int64_t others = 1;
  for (const int64_t d : op.axes) {
    if (std::none_of(inside.begin(), inside.end(), [&](const LengthAxis& axis) { return axis.dim == d; }))
      others *= shape(0)[static_cast<size_t>(d)];
  }
  const TensorId share = share_of(inside, others);
  const auto masked = [&](TensorId x) {
    for (const LengthAxis& axis : inside) x = masked_tensor(x, static_cast<size_t>(axis.dim), axis.extent, 0);
    return x;
  };
  const auto mean = [&](TensorId x) {
    return emit(Reduce{ReduceKind::sum, op.axes, true}, {masked(elementwise(ElementwiseOp::mul, {x, share}))});
  };
  TensorId x = inputs_[0];
  if (op.centered) x = elementwise(ElementwiseOp::sub, {x, mean(x)});
  const TensorId variance = elementwise(ElementwiseOp::add, {mean(elementwise(ElementwiseOp::mul, {x, x})), scalar(dtype, op.epsilon)});
  TensorId y = elementwise(ElementwiseOp::div, {x, elementwise(ElementwiseOp::sqrt, {variance})});
  if (has(1)) y = elementwise(ElementwiseOp::mul, {y, inputs_[1]});
  if (has(2)) y = elementwise(ElementwiseOp::add, {y, inputs_[2]});
  attrs_ = Elementwise{{{ElementwiseOp::identity, {0}}}};
  inputs_ = {y};
}

// Rules of windows over spatial dimensions. `fill`: what is masked in front of windows that hang over the end. Where the last window is
// there even if a part of it is not, so many elements are padded that it is there at each length.
template <class Window>
LengthAxes RopLengths::window_axes(const Window& op, double fill) {
  LengthAxes axes;
  for (const LengthAxis& axis : axes_of(0)) {
    if (axis.dim == 0) add(axes, 0, axis.extent);
    if (axis.dim < 2) continue;
    const auto d = static_cast<size_t>(axis.dim), s = d - 2;
    int64_t& after = std::get<Window>(attrs_).pads_end[s];
    const auto pads_there = [&](const Probe& probe) { return std::get<Window>(twin(probe).attrs).pads_end[s]; };
    if (op.pads_begin[s] < 0 || after < 0) throw Mixes{fmt::format("crops {} along a length of run time", name(0))};
    const auto extent = [&] {
      return windowed(axis.extent, op.pads_begin[s] + after, op.kernel[s], op.strides[s], op.dilations[s], original_.lengths);
    };
    const auto size_there = [&](const Probe& probe) { return probe.graph.tensor(twin(probe).outputs[0]).shape[d]; };
    if (!fits(extent(), result_shape()[d], size_there)) {
      for (const Probe& probe : probes_) after = std::min(after, pads_there(probe));
      after += op.strides[s] - 1;
    }
    add(axes, d, extent());
    if (after > 0) mask(0, d, axis.extent, fill);
  }
  return axes;
}

void RopLengths::apply(const Conv& op) {
  require_none_from(1, "weights");
  if (extent_at(axes_of(0), 1)) throw Mixes{fmt::format("sums over the channels of {}, which end at a length of run time", name(0))};
  result(0, window_axes(op, 0));
}

void RopLengths::apply(const Pool& op) {
  LengthAxes axes = window_axes(op, op.kind == PoolKind::max ? lowest_of(operand(0).dtype) : 0);
  if (const auto channels = extent_at(axes_of(0), 1)) add(axes, 1, *channels);
  result(0, axes);
  Pool& own = std::get<Pool>(attrs_);
  const bool is_ceiled = op.ceil_mode || std::any_of(probes_.begin(), probes_.end(),
                                                     [&](const Probe& probe) { return std::get<Pool>(twin(probe).attrs).ceil_mode; });
  if (is_ceiled) pad_last_windows(own);
  const auto hangs_over = [&](const LengthAxis& axis) { return axis.dim >= 2 && own.pads_end[static_cast<size_t>(axis.dim) - 2] > 0; };
  const bool is_over = is_ceiled || std::any_of(axes_of(0).begin(), axes_of(0).end(), hangs_over);
  if (op.kind != PoolKind::average || !is_over || (op.count_include_pad && !is_ceiled)) return;
  const auto is_padded = [](int64_t pad) { return pad != 0; };
  if (op.count_include_pad && (std::any_of(op.pads_begin.begin(), op.pads_begin.end(), is_padded) ||
                               std::any_of(op.pads_end.begin(), op.pads_end.end(), is_padded)))
    throw Mixes{"has ceil_mode and counts padded elements along a length of run time"};
  average_masked(own);
}

// So many elements that no window is rounded up to.
void RopLengths::pad_last_windows(Pool& op) const {
  op.ceil_mode = false;
  for (size_t s = 0; s < op.kernel.size(); ++s) {
    const int64_t end = (result_shape()[s + 2] - 1) * op.strides[s] + (op.kernel[s] - 1) * op.dilations[s] + 1;
    op.pads_end[s] = std::max(op.pads_end[s], end - op.pads_begin[s] - shape(0)[s + 2]);
  }
}

// The sum of a window's elements divided by their number: both as averages over whole windows.
void RopLengths::average_masked(Pool op) {
  op.count_include_pad = true;
  const TensorId sums = emit(op, inputs_);
  Shape ones = shape(0);
  ones[0] = ones[1] = 1;
  TensorId counts = constant(operand(0).dtype, ones, 1);
  for (const LengthAxis& axis : axes_of(0)) {
    if (axis.dim >= 2) counts = masked_tensor(counts, static_cast<size_t>(axis.dim), axis.extent, 0);
  }
  const TensorId shares = emit(op, {counts});
  attrs_ = Elementwise{{{ElementwiseOp::div, {0, 1}}}};
  inputs_ = {sums, shares};
}

void RopLengths::apply(const BatchNorm&) {
  require_none_from(1, "statistics");
  if (extent_at(axes_of(0), 1))
    throw Mixes{fmt::format("takes the channels of {} to be fixed, which end at a length of run time", name(0))};
  result(0, axes_of(0));
}

void RopLengths::apply(const Lrn&) {
  if (extent_at(axes_of(0), 1)) throw Mixes{fmt::format("sums over the channels of {}, which end at a length of run time", name(0))};
  result(0, axes_of(0));
}

void RopLengths::apply(const TopK& op) {
  if (const auto extent = extent_at(axes_of(0), static_cast<size_t>(op.axis))) {
    if (op.k > least(*extent))
      throw Mixes{
          fmt::format("takes {} elements of dimension {} of {}, which has only {} in some runs", op.k, op.axis, name(0), least(*extent))};
    if (op.last_of_equals) throw Mixes{"takes the last of equal elements along a length of run time"};
    // What is last in order, so that all that there is comes before it.
    const double last = op.largest ? lowest_of(operand(0).dtype) : highest_of(operand(0).dtype);
    mask(0, static_cast<size_t>(op.axis), *extent, !op.nan_first && std::isinf(last) ? std::numeric_limits<double>::quiet_NaN() : last);
  }
  LengthAxes axes;
  for (const LengthAxis& axis : axes_of(0)) {
    if (axis.dim != op.axis) axes.push_back(axis);
  }
  for (size_t k = 0; k < rop_->outputs.size(); ++k) result(k, axes);
}

void RopLengths::apply(const Cumulate& op) {
  const auto extent = extent_at(axes_of(0), static_cast<size_t>(op.axis));
  if (extent && op.reverse) mask(0, static_cast<size_t>(op.axis), *extent, op.product ? 1 : 0);
  result(0, axes_of(0));
}

void RopLengths::apply(const Recurrent& op) {
  if (op.cells.size() != 1) throw Mixes{"has several cells"};
  const RecurrentCell& cell = op.cells[0];
  std::optional<Extent> steps, batch;
  const auto note = [](std::optional<Extent>& known, const Extent& extent) {
    if (known && *known != extent) throw Mixes{"has operands that end at different lengths of run time"};
    known = extent;
  };
  for (const int32_t sequence : {cell.x}) {
    for (const LengthAxis& axis : axes_of(static_cast<size_t>(sequence))) {
      if (axis.dim > 1)
        throw Mixes{fmt::format("sums over a dimension of {} that ends at a length of run time", name(static_cast<size_t>(sequence)))};
      note(axis.dim == 0 ? steps : batch, axis.extent);
    }
  }
  for (const int32_t state : {cell.h0, cell.c0}) {
    if (state < 0) continue;
    for (const LengthAxis& axis : axes_of(static_cast<size_t>(state))) {
      if (axis.dim > 0) throw Mixes{"has states that end at a length of run time"};
      note(batch, axis.extent);
    }
  }
  auto& own = std::get<Recurrent>(attrs_).cells[0];
  if (steps && cell.lengths < 0 && !cell.reverse) {
    own.end = steps;
  } else if (steps && cell.lengths < 0) {
    own.lengths = static_cast<int32_t>(inputs_.size());
    const TensorId each = number_of(*steps, DType::i32);
    inputs_.push_back(emit(Elementwise{{{ElementwiseOp::identity, {0}}}, {op.batch}, DType::i32}, {each}));
  } else if (batch && cell.lengths >= 0) {
    mask(static_cast<size_t>(cell.lengths), 0, *batch, 0);
  }
  for (const int32_t at : {cell.y, cell.y_h, cell.y_c}) {
    if (at < 0) continue;
    LengthAxes axes;
    if (at == cell.y && steps) axes.push_back({0, *steps});
    if (batch) axes.push_back({at == cell.y ? 1 : 0, *batch});
    result(static_cast<size_t>(at), axes);
  }
}

}  // namespace tamp::frontend
