// Example: y = Softmax(x @ w) along a dimension that ends at L of 512 becomes y = Softmax(x @ w) {end = L}; s = ReduceSum(y) along it
// becomes s = ReduceSum(where(valid, y, 0)), where valid is 1 before L and 0 behind it.
//
// Odd: whether a number in the model, such as the start of a Slice, depends on a length is not to be seen from the graph, since importers
// have folded the arithmetic of shapes. So the model is read with other lengths, too (Probe), and what differs between these graphs must be
// what a rule or a straight line through the values explains.
#include "compiler/frontend/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "compiler/ir/length_rules.h"
#include "compiler/ir/loops.h"
#include "compiler/ops/ops.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// Why a node is not right for every length.
struct Mixes {
  std::string why;
};

int64_t product(const Shape& shape, size_t begin, size_t end) {
  int64_t elements = 1;
  for (size_t d = begin; d < end; ++d) elements *= shape[d];
  return elements;
}

// Attributes without the extents that follow from the results' shapes.
OpAttrs without_extents(OpAttrs attrs) {
  if (auto* op = std::get_if<Reshape>(&attrs)) op->shape.clear();
  if (auto* op = std::get_if<Elementwise>(&attrs)) op->shape.clear();
  if (auto* op = std::get_if<Slice>(&attrs)) op->starts.clear(), op->extents.clear();
  if (auto* op = std::get_if<Recurrent>(&attrs)) {
    op->batch = 1;
    for (RecurrentCell& cell : op->cells) cell.steps = 0;
  }
  return attrs;
}

bool are_alike(const OpAttrs& own, OpAttrs other) {
  if (auto* op = std::get_if<Slice>(&other); op && std::holds_alternative<Slice>(own)) {
    for (size_t d = 0; d < op->steps.size() && d < std::get<Slice>(own).steps.size(); ++d) {
      if (op->extents[d] < 2) op->steps[d] = std::get<Slice>(own).steps[d];  // of one element there is none
    }
  }
  return without_extents(std::move(other)) == without_extents(own);
}

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

class Lengths {
 public:
  Lengths(Graph graph, const std::vector<Probe>& probes) : original_(graph), graph_(std::move(graph)), probes_(probes) {
    mapped_.resize(original_.tensors.size());
    axes_.resize(original_.tensors.size());
    rows_.resize(original_.tensors.size());
    for (size_t i = 0; i < mapped_.size(); ++i) mapped_[i] = TensorId(static_cast<int32_t>(i));
    for (const Tensor& tensor : original_.tensors) names_.insert(tensor.name);
    for (const ROperator& rop : original_.rops) names_.insert(rop.name);
  }

  const std::string& where() const { return where_; }

  Graph run() {
    graph_.rops.clear();
    for (const ROperator& rop : original_.rops) {
      set_where(rop);
      if (is_of_loop(rop.attrs)) throw Mixes{"is a loop or a branch of run time, which a program with lengths of run time cannot have"};
    }
    for (const Probe& probe : probes_) require_same_kinds(probe);
    take_inputs();
    for (size_t i = 0; i < original_.rops.size(); ++i) follow(i);
    give_outputs();
    return remove_dead(std::move(graph_));
  }

 private:
  // --- Rules. Each says where lengths end the results' dimensions, by result(). ---

  void apply(const Elementwise& op) {
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

  void apply(const MatMul& op) {
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

  void apply(const Softmax& op) {
    for (const LengthAxis& axis : axes_of(0)) {
      if (axis.dim < op.first_axis || axis.dim > op.last_axis) continue;
      if (product(shape(0), static_cast<size_t>(op.first_axis), static_cast<size_t>(op.last_axis) + 1) !=
          shape(0)[static_cast<size_t>(axis.dim)])
        throw Mixes{fmt::format("normalises over several dimensions of {} together, one of which ends at a length of run time", name(0))};
      std::get<Softmax>(attrs_).end = axis.extent;
    }
    result(0, axes_of(0));
  }

  void apply(const Reduce& op) {
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

  static double neutral_of(ReduceKind kind, DType dtype) {
    switch (kind) {
      case ReduceKind::max: return lowest_of(dtype);
      case ReduceKind::min: return highest_of(dtype);
      case ReduceKind::prod: return 1;
      case ReduceKind::log_sum_exp: return -std::numeric_limits<double>::infinity();
      default: return 0;
    }
  }

  void reduce_masked(const Reduce& op, const std::vector<LengthAxis>& summed) {
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
  TensorId share_of(const std::vector<LengthAxis>& ends, int64_t others) {
    const DType dtype = operand(0).dtype;
    if (dtype != DType::f32 && dtype != DType::f64 && dtype != DType::f16 && dtype != DType::bf16)
      throw Mixes{"takes the mean of integers along a length of run time"};
    TensorId count = scalar(dtype, static_cast<double>(others));
    for (const LengthAxis& axis : ends) count = elementwise(ElementwiseOp::mul, {count, number_of(axis.extent, dtype)});
    return elementwise(ElementwiseOp::div, {scalar(dtype, 1), count});
  }

  void apply(const Normalize& op) {
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
  void normalize_masked(const Normalize& op, const std::vector<LengthAxis>& inside) {
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

  // Rules of windows over spatial dimensions. `fill`: what is masked in front of windows that hang over the end.
  template <class Window>
  LengthAxes window_axes(const Window& op, double fill) {
    LengthAxes axes;
    for (const LengthAxis& axis : axes_of(0)) {
      if (axis.dim == 0) add(axes, 0, axis.extent);
      if (axis.dim < 2) continue;
      const auto s = static_cast<size_t>(axis.dim) - 2;
      if (op.pads_begin[s] < 0 || op.pads_end[s] < 0) throw Mixes{fmt::format("crops {} along a length of run time", name(0))};
      add(axes, static_cast<size_t>(axis.dim),
          windowed(axis.extent, op.pads_begin[s] + op.pads_end[s], op.kernel[s], op.strides[s], op.dilations[s]));
      if (op.pads_end[s] > 0) mask(0, static_cast<size_t>(axis.dim), axis.extent, fill);
    }
    return axes;
  }

  void apply(const Conv& op) {
    require_none_from(1, "weights");
    if (extent_at(axes_of(0), 1)) throw Mixes{fmt::format("sums over the channels of {}, which end at a length of run time", name(0))};
    result(0, window_axes(op, 0));
  }

  void apply(const Pool& op) {
    LengthAxes axes;
    bool hangs_over = false;
    for (const LengthAxis& axis : axes_of(0)) {
      if (axis.dim < 2) continue;
      const auto s = static_cast<size_t>(axis.dim) - 2;
      if (op.ceil_mode) throw Mixes{"has ceil_mode along a length of run time"};
      hangs_over = hangs_over || op.pads_end[s] > 0;
    }
    axes = window_axes(op, op.kind == PoolKind::max ? lowest_of(operand(0).dtype) : 0);
    if (const auto channels = extent_at(axes_of(0), 1)) add(axes, 1, *channels);
    if (hangs_over && op.kind == PoolKind::average && !op.count_include_pad) average_masked(op);
    result(0, axes);
  }

  // The sum of a window's elements divided by their number: both as averages over whole windows.
  void average_masked(Pool op) {
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

  void apply(const BatchNorm&) {
    require_none_from(1, "statistics");
    if (extent_at(axes_of(0), 1))
      throw Mixes{fmt::format("takes the channels of {} to be fixed, which end at a length of run time", name(0))};
    result(0, axes_of(0));
  }

  void apply(const Lrn&) {
    if (extent_at(axes_of(0), 1)) throw Mixes{fmt::format("sums over the channels of {}, which end at a length of run time", name(0))};
    result(0, axes_of(0));
  }

  void apply(const Reshape& op) {
    LengthAxes axes;
    for (const LengthAxis& axis : axes_of(0)) {
      const std::optional<LengthAxis> made = reshaped(axis, shape(0), op.shape);
      if (!made) throw mixes_reshape(op, static_cast<size_t>(axis.dim));
      add(axes, static_cast<size_t>(made->dim), made->extent);
    }
    result(0, axes);
  }
  Mixes mixes_reshape(const Reshape& op, size_t d) const {
    return {fmt::format("mixes dimension {} of {} {}, which ends at a length of run time, with others in {}", d, name(0),
                        shape_text(shape(0)), shape_text(op.shape))};
  }

  void apply(const Transpose& op) {
    LengthAxes axes;
    for (size_t d = 0; d < op.perm.size(); ++d) {
      if (const auto extent = extent_at(axes_of(0), static_cast<size_t>(op.perm[d]))) add(axes, d, *extent);
    }
    result(0, axes);
  }

  // A part from the first element on; from some element to the end; or some elements counted from the end, by their numbers.
  void apply(const Slice& op) {
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
  void apply(const Concat& op) {
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
  TensorId behind(TensorId made, const Extent& end, size_t i, const std::optional<Extent>& own) {
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

  void apply(const Pad& op) {
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

  void apply(const Gather& op) {
    const auto along = static_cast<size_t>(op.axis);
    const size_t index_rank = shape(1).size();
    LengthAxes axes;
    for (const LengthAxis& axis : axes_of(0)) {
      const auto d = static_cast<size_t>(axis.dim);
      if (d != along)
        add(axes, d < along ? d : d - 1 + index_rank, axis.extent);
      else
        count_from_end(axis.extent);
    }
    for (const LengthAxis& axis : axes_of(1)) {
      add(axes, along + static_cast<size_t>(axis.dim), axis.extent);
      mask(1, static_cast<size_t>(axis.dim), axis.extent, 0);  // what lies there may be no number of a row
    }
    result(0, axes);
  }

  // Negative numbers count from the end of the run's rows.
  void count_from_end(const Extent& extent) {
    const DType dtype = operand(1).dtype;
    const TensorId is_negative = elementwise(ElementwiseOp::less, {inputs_[1], scalar(dtype, 0)});
    const TensorId moved = elementwise(ElementwiseOp::add, {inputs_[1], number_of(extent, dtype)});
    inputs_[1] = elementwise(ElementwiseOp::where, {is_negative, moved, inputs_[1]});
  }

  void apply(const TopK& op) {
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

  void apply(const Cumulate& op) {
    const auto extent = extent_at(axes_of(0), static_cast<size_t>(op.axis));
    if (extent && op.reverse) mask(0, static_cast<size_t>(op.axis), *extent, op.product ? 1 : 0);
    result(0, axes_of(0));
  }

  void apply(const Recurrent& op) {
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

  // Tables that are cut off at the end, as those of nearest neighbours by a whole factor, say for each length where an element comes from.
  void apply(const Resample& op) {
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

  void apply(const GridSample&) {
    LengthAxes axes;
    for (const LengthAxis& axis : axes_of(0)) {
      if (axis.dim > 1) throw Mixes{fmt::format("samples dimension {} of {}, which ends at a length of run time", axis.dim, name(0))};
      add(axes, static_cast<size_t>(axis.dim), axis.extent);
    }
    for (const LengthAxis& axis : axes_of(1)) add(axes, static_cast<size_t>(axis.dim > 0 ? axis.dim + 1 : 0), axis.extent);
    result(0, axes);
  }

  void apply(const Scatter& op) {
    LengthAxes axes = axes_of(0);
    if (extent_at(axes, static_cast<size_t>(op.axis)) || !axes_of(1).empty() || !axes_of(2).empty())
      throw Mixes{"scatters along, or by numbers along, a length of run time"};
    result(0, axes);
  }

  template <class Op>
  void apply(const Op&) {
    throw Mixes{"has no rule for lengths of run time"};
  }

  // --- The parts of rules ---
  bool has(size_t i) const { return i < rop_->inputs.size() && rop_->inputs[i].valid(); }
  const Tensor& operand(size_t i) const { return original_.tensor(rop_->inputs[i]); }
  const Shape& shape(size_t i) const { return operand(i).shape; }
  const Shape& result_shape(size_t k = 0) const { return original_.tensor(rop_->outputs[k]).shape; }
  std::string name(size_t i) const { return fmt::format("'{}'", printable(operand(i).name)); }
  const LengthAxes& axes_of(size_t i) const { return axes_[rop_->inputs[i].index()]; }
  int64_t least(const Extent& extent) const { return extent.at(original_.lengths[static_cast<size_t>(extent.length)].smallest); }
  void result(size_t k, LengthAxes axes) { results_.at(k) = std::move(axes); }

  static std::optional<Extent> extent_at(const LengthAxes& axes, size_t d) {
    for (const LengthAxis& axis : axes) {
      if (static_cast<size_t>(axis.dim) == d) return axis.extent;
    }
    return std::nullopt;
  }
  static void add(LengthAxes& axes, size_t d, const Extent& extent) {
    if (const auto known = extent_at(axes, d)) {
      if (*known != extent)
        throw Mixes{fmt::format("has operands that end dimension {} of its result at different lengths of run time", d)};
      return;
    }
    const auto at = std::find_if(axes.begin(), axes.end(), [&](const LengthAxis& axis) { return static_cast<size_t>(axis.dim) > d; });
    axes.insert(at, {static_cast<int64_t>(d), extent});
  }
  // Those of an operand that broadcasts to the result.
  void add_aligned(LengthAxes& axes, size_t i, size_t rank) const {
    for (const LengthAxis& axis : axes_of(i)) add(axes, rank - shape(i).size() + static_cast<size_t>(axis.dim), axis.extent);
  }
  void require_none_from(size_t first, const char* what) const {
    for (size_t i = first; i < rop_->inputs.size(); ++i) {
      if (has(i) && !axes_of(i).empty()) throw Mixes{fmt::format("has {} that end at a length of run time", what)};
    }
  }

  // --- New tensors ---
  std::string unique(const std::string& wanted) {
    std::string name = wanted;
    for (int i = 2; !names_.insert(name).second; ++i) name = fmt::format("{}.{}", wanted, i);
    return name;
  }
  TensorId emit(OpAttrs attrs, std::vector<TensorId> inputs) {
    ops::OperandList operands;
    for (const TensorId id : inputs) {
      operands.emplace_back();
      if (!id.valid()) continue;
      const Tensor& tensor = graph_.tensor(id);
      operands.back() = ops::Operand{{tensor.dtype, tensor.shape}, tensor.data.get()};
    }
    const std::vector<ops::TensorType> types = ops::infer(attrs, operands);
    const std::string name = unique(fmt::format("{}.length", rop_ != nullptr ? rop_->name : "input"));
    const TensorId to = add_tensor(graph_, {.name = unique(name + ".value"), .dtype = types[0].dtype, .shape = types[0].shape});
    graph_.rops.push_back(
        {name, std::move(attrs), {}, std::move(inputs), {to}, rop_ != nullptr ? rop_->origin : std::vector<std::string>()});
    return to;
  }
  TensorId elementwise(ElementwiseOp op, std::vector<TensorId> inputs) {
    ElementwiseStep step{op, {}};
    for (size_t i = 0; i < inputs.size(); ++i) step.operands.push_back(static_cast<int32_t>(i));
    return emit(Elementwise{{step}}, std::move(inputs));
  }
  TensorId constant(DType dtype, const Shape& shape, double value) {
    const ops::Value one = value_of(dtype, value);
    auto data = std::make_shared<Bytes>();
    for (int64_t i = element_count(shape); i > 0; --i) data->insert(data->end(), one.data->begin(), one.data->end());
    return add_constant(graph_, unique("length.constant"), dtype, shape, std::move(*data));
  }
  TensorId scalar(DType dtype, double value) { return constant(dtype, {}, value); }
  TensorId constant_i64(const std::vector<int64_t>& values) {
    return add_constant(graph_, unique("length.constant"), DType::i64, {static_cast<int64_t>(values.size())}, packed_bytes(values));
  }
  // A number as the element type has it.
  static ops::Value value_of(DType dtype, double value) {
    Graph one;
    const TensorId from = add_constant(one, "x", DType::f64, {}, packed_bytes(std::vector<double>{value}));
    const TensorId to = add_tensor(one, {.name = "y", .dtype = dtype, .shape = {}});
    one.rops = {{"cast", Elementwise{{{ElementwiseOp::cast, {0}}}, {}, dtype}, {}, {from}, {to}, {}}};
    one.outputs = {to};
    return ops::run(one, {})[0];
  }

  // 1 before the extent, 0 behind it.
  TensorId valid(const Extent& extent, int64_t largest, size_t dims_behind, DType dtype) {
    const auto key = std::tuple(extent.length, extent.times, extent.plus, extent.over, dims_behind, static_cast<int>(dtype));
    TensorId& made = valid_[key];
    if (made.valid()) return made;
    Shape shape(dims_behind + 1, 1);
    shape[0] = largest;
    Pad pad;
    pad.before = pad.after = std::vector<int64_t>(shape.size(), 0);
    pad.ends = {{0, extent}};
    return made = emit(pad, {constant(dtype, shape, 1)});
  }
  // The extent itself, as a scalar.
  TensorId number_of(const Extent& extent, DType dtype) {
    const auto key = std::tuple(extent.length, extent.times, extent.plus, extent.over, static_cast<int>(dtype));
    TensorId& made = number_[key];
    if (made.valid()) return made;
    const Length& length = original_.lengths[static_cast<size_t>(extent.length)];
    const bool is_plain = extent.times > 0 && extent.at(length.smallest) >= 0;
    const Extent read = is_plain ? extent : Extent{extent.length};
    const DType counted = dtype == DType::i32 ? DType::i32 : DType::i64;
    Pad pad;
    pad.before = pad.after = {0};
    pad.number = read;
    TensorId number = emit(Reshape{{}}, {emit(pad, {constant(counted, {1}, static_cast<double>(read.at(length.largest)))})});
    if (!is_plain) {
      number = elementwise(ElementwiseOp::mul, {number, scalar(counted, static_cast<double>(extent.times))});
      number = elementwise(ElementwiseOp::add, {number, scalar(counted, static_cast<double>(extent.plus))});
      if (extent.over != 1) throw Mixes{"has a number that falls with a length, in steps"};
    }
    if (counted != dtype) number = emit(Elementwise{{{ElementwiseOp::cast, {0}}}, {}, dtype}, {number});
    return made = number;
  }
  TensorId masked_tensor(TensorId x, size_t dim, const Extent& extent, double fill) {
    const Tensor tensor = graph_.tensor(x);
    const DType condition = tensor.dtype == DType::f32 ? DType::f32 : DType::boolean;
    const TensorId mask = valid(extent, tensor.shape[dim], tensor.shape.size() - 1 - dim, condition);
    return elementwise(ElementwiseOp::where, {mask, x, scalar(tensor.dtype, fill)});
  }
  // Operand i of the rOperator is `fill` behind the extent. Constants need no mask where they are multiplied by zeros.
  void mask(size_t i, size_t dim, const Extent& extent, double fill) {
    if (!extent_at(axes_of(i), dim) && operand(i).role != Role::constant)
      throw Mixes{fmt::format("takes all of dimension {} of {} along a length of run time", dim, name(i))};
    const TensorId x = inputs_[i];
    const Filled key = filled(x, dim, fill, extent);
    if (is_filled_.contains(key)) return;
    const bool meets_zeros = std::holds_alternative<MatMul>(attrs_) && operand(1 - i).role != Role::constant;
    if (operand(i).role == Role::constant && fill == 0 && meets_zeros) return;
    TensorId& made = masked_[key];
    if (!made.valid()) made = masked_tensor(x, dim, extent, fill);
    inputs_[i] = made;
  }

  // --- What the probes say ---
  const ROperator& twin(const Probe& probe) const { return probe.graph.rops[at_]; }

  void require_same_kinds(const Probe& probe) {
    const auto& rops = probe.graph.rops;
    for (size_t i = 0; i < original_.rops.size() || i < rops.size(); ++i) {
      const bool is_same = i < original_.rops.size() && i < rops.size() && original_.rops[i].attrs.index() == rops[i].attrs.index() &&
                           original_.rops[i].inputs.size() == rops[i].inputs.size() &&
                           original_.rops[i].outputs.size() == rops[i].outputs.size();
      if (is_same) continue;
      if (i < original_.rops.size()) set_where(original_.rops[i]);
      throw Mixes{
          fmt::format("is another one with {}: the model does other work then; give a range in which it does not", values_text(probe))};
    }
  }
  std::string values_text(const Probe& probe) const {
    std::vector<std::string> parts;
    for (size_t l = 0; l < probe.values.size(); ++l)
      parts.push_back(fmt::format("{}={}", printable(original_.lengths[l].name), probe.values[l]));
    return join(parts, " ");
  }
  const std::vector<int64_t>& largest_values() {
    if (largest_.empty()) {
      for (const Length& length : original_.lengths) largest_.push_back(length.largest);
    }
    return largest_;
  }

  // The straight line over a length that gives `own` at the largest lengths and number(probe) at each probe; none if all are the same.
  std::optional<Extent> line(int64_t own, const std::function<int64_t(const Probe&)>& number) {
    std::optional<Extent> found;
    for (const Probe& probe : probes_) {
      const int64_t other = number(probe);
      if (other == own) continue;
      for (size_t l = 0; l < probe.values.size() && !found; ++l) {
        const int64_t run = largest_values()[l] - probe.values[l];
        if (run == 0) continue;
        if ((own - other) % run == 0) {
          const int64_t times = (own - other) / run;
          found = Extent{static_cast<int32_t>(l), times, own - times * largest_values()[l], 1};
        }
      }
    }
    for (const Extent& known : known_) {  // of a strided convolution
      if (!found || !fits(*found, own, number)) {
        if (fits(known, own, number) && std::any_of(probes_.begin(), probes_.end(), [&](const Probe& p) { return number(p) != own; }))
          found = known;
      }
    }
    if (found && !fits(*found, own, number)) throw Mixes{"has a number that depends on the length in a way that no straight line gives"};
    if (!found && std::any_of(probes_.begin(), probes_.end(), [&](const Probe& p) { return number(p) != own; }))
      throw Mixes{"has a number that depends on the length in a way that no straight line gives"};
    return found;
  }
  bool fits(const Extent& extent, int64_t own, const std::function<int64_t(const Probe&)>& number) {
    const auto l = static_cast<size_t>(extent.length);
    if (extent.at(largest_values()[l]) != own) return false;
    return std::all_of(probes_.begin(), probes_.end(), [&](const Probe& probe) { return extent.at(probe.values[l]) == number(probe); });
  }
  std::optional<Extent> line_of(const std::function<int64_t(const ROperator&)>& number) {
    return line(number(*rop_), [&](const Probe& probe) { return number(twin(probe)); });
  }
  std::optional<Extent> extent_of_result(size_t k, size_t d) {
    return line(result_shape(k)[d], [&](const Probe& probe) { return probe.graph.tensor(twin(probe).outputs[k]).shape[d]; });
  }

  using IdIn = std::function<TensorId(const Probe&)>;

  void take_operand(size_t i) {
    const TensorId id = rop_->inputs[i];
    inputs_[i] = take_constant(id, [&](const Probe& probe) { return twin(probe).inputs[i]; });
  }
  // A constant: where lengths cut it off; or, if its numbers depend on a length, what computes them.
  TensorId take_constant(TensorId id, const IdIn& id_in) {
    const Tensor& own = original_.tensor(id);
    const std::string name = fmt::format("'{}'", printable(own.name));
    const auto other = [&](const Probe& probe) -> const Tensor& { return probe.graph.tensor(id_in(probe)); };
    LengthAxes axes;
    for (const Probe& probe : probes_) {
      if (other(probe).role != Role::constant || other(probe).dtype != own.dtype || other(probe).shape.size() != own.shape.size())
        throw Mixes{fmt::format("has another kind of operand {} with {}", name, values_text(probe))};
    }
    for (size_t d = 0; d < own.shape.size(); ++d) {
      const auto extent = line(own.shape[d], [&](const Probe& probe) { return other(probe).shape[d]; });
      if (extent) require_rising(*extent);
      if (extent) add(axes, d, *extent);
    }
    axes_[id.index()] = axes;
    const auto is_cut = [&](const Probe& probe) {
      const Tensor& there = other(probe);
      return element_count(there.shape) > element_count(own.shape) ? is_cut_of(there, own) : is_cut_of(own, there);
    };
    if (std::all_of(probes_.begin(), probes_.end(), is_cut)) return id;
    if (!axes.empty() || (own.dtype != DType::i64 && element_count(own.shape) != 1))
      throw Mixes{fmt::format("has a constant {} whose numbers change with the length", name)};
    return of_lines(own, other, name);
  }
  // Whether the constant is the beginning of the other one along all dimensions.
  static bool is_cut_of(const Tensor& whole, const Tensor& part) {
    if (whole.data == part.data) return true;
    if (!whole.data || !part.data) return whole.shape == part.shape;
    if (whole.shape == part.shape) return *whole.data == *part.data;
    const auto each = static_cast<size_t>(bytes_of(whole.dtype));
    const std::vector<int64_t> strides = row_major_strides(whole.shape);
    std::vector<int64_t> at(part.shape.size(), 0);
    for (int64_t e = 0; e < element_count(part.shape); ++e) {
      int64_t rest = e, from = 0;
      for (size_t d = part.shape.size(); d-- > 0; rest /= part.shape[d]) from += rest % part.shape[d] * strides[d];
      if (std::memcmp(whole.data->data() + static_cast<size_t>(from) * each, part.data->data() + static_cast<size_t>(e) * each, each) != 0)
        return false;
    }
    return true;
  }
  // A scalar, or a few integers as Shape gives them, each of which is a straight line over a length.
  TensorId of_lines(const Tensor& own, const std::function<const Tensor&(const Probe&)>& other, const std::string& name) {
    const auto numbers_of = [&](const Tensor& tensor) {
      std::vector<int64_t> numbers;
      for (const double value : values_of(tensor)) {
        if (!(std::fabs(value) < 9007199254740992.0) || value != std::floor(value))
          throw Mixes{fmt::format("has a constant {} that changes with the length", name)};
        numbers.push_back(static_cast<int64_t>(value));
      }
      return numbers;
    };
    const std::vector<int64_t> numbers = numbers_of(own);
    std::vector<std::vector<int64_t>> there;
    for (const Probe& probe : probes_) there.push_back(numbers_of(other(probe)));
    std::vector<TensorId> parts;
    for (size_t e = 0; e < numbers.size(); ++e) {
      const auto extent = line(numbers[e], [&](const Probe& probe) { return there[static_cast<size_t>(&probe - probes_.data())].at(e); });
      const TensorId part = extent ? number_of(*extent, own.dtype) : scalar(own.dtype, static_cast<double>(numbers[e]));
      if (own.shape.empty()) return part;
      parts.push_back(emit(Reshape{{1}}, {part}));
    }
    const TensorId all = parts.size() == 1 ? parts[0] : emit(Concat{0}, parts);
    return own.shape.size() == 1 ? all : emit(Reshape{own.shape}, {all});
  }
  static std::vector<double> values_of(const Tensor& tensor) {
    Graph one;
    const TensorId from = add_constant(one, "x", tensor.dtype, tensor.shape, Bytes(*tensor.data));
    const TensorId to = add_tensor(one, {.name = "y", .dtype = DType::f64, .shape = tensor.shape});
    one.rops = {{"cast", Elementwise{{{ElementwiseOp::cast, {0}}}, {}, DType::f64}, {}, {from}, {to}, {}}};
    one.outputs = {to};
    std::vector<double> values(static_cast<size_t>(element_count(tensor.shape)));
    std::memcpy(values.data(), ops::run(one, {})[0].data->data(), values.size() * sizeof(double));
    return values;
  }

  // --- The walk ---
  void set_where(const ROperator& rop) {
    where_ = fmt::format("node '{}' ({})", printable(rop.origin.empty() ? rop.name : rop.origin[0]), name_of(rop.attrs));
  }

  void take_inputs() {
    for (size_t i = 0; i < original_.inputs.size(); ++i) {
      const TensorId id = original_.inputs[i];
      const LengthAxes& axes = original_.input_axes[i];
      axes_[id.index()] = axes;
      for (const LengthAxis& axis : axes) note(axis.extent);
      if (axes.empty()) continue;
      where_ = fmt::format("input '{}'", printable(graph_.tensor(id).name));
      mapped_[id.index()] = emit(packing(graph_.tensor(id).shape.size(), axes, Packed::in), {id});
      for (const LengthAxis& axis : axes) is_filled_.insert(filled(mapped_[id.index()], static_cast<size_t>(axis.dim), 0, axis.extent));
    }
  }
  static Pad packing(size_t rank, const LengthAxes& axes, Packed packed) {
    // The stride of the first dimension is a product of these.
    if (std::count_if(axes.begin(), axes.end(), [](const LengthAxis& axis) { return axis.dim > 0; }) > 2)
      throw Mixes{"has more than two dimensions behind the first that end at lengths of run time"};
    Pad pad;
    pad.before = pad.after = std::vector<int64_t>(rank, 0);
    pad.ends = axes;
    pad.packed = packed;
    return pad;
  }
  void note(const Extent& extent) {
    if (std::find(known_.begin(), known_.end(), extent) == known_.end()) known_.push_back(extent);
  }

  void follow(size_t i) {
    at_ = i;
    rop_ = &original_.rops[i];
    set_where(*rop_);
    attrs_ = rop_->attrs;
    inputs_.clear();
    for (const TensorId id : rop_->inputs) inputs_.push_back(id.valid() ? mapped_[id.index()] : id);
    for (size_t k = 0; k < rop_->inputs.size(); ++k) {
      if (has(k) && operand(k).role == Role::constant) take_operand(k);
    }
    for (const Probe& probe : probes_) {
      if (!are_alike(rop_->attrs, twin(probe).attrs)) throw Mixes{fmt::format("has other attributes with {}", values_text(probe))};
    }
    results_.assign(rop_->outputs.size(), {});
    const bool has_axes =
        std::any_of(rop_->inputs.begin(), rop_->inputs.end(), [&](TensorId id) { return id.valid() && !axes_[id.index()].empty(); });
    const bool has_own = std::holds_alternative<Elementwise>(rop_->attrs) || std::holds_alternative<Slice>(rop_->attrs);
    const bool has_rows =
        std::any_of(rop_->inputs.begin(), rop_->inputs.end(), [&](TensorId id) { return id.valid() && rows_[id.index()] > 0; });
    if (follow_rows()) return;
    if (!has_rows && (has_axes || has_own)) std::visit([&](const auto& op) { apply(op); }, rop_->attrs);
    for (size_t k = 0; k < rop_->outputs.size(); ++k) settle(k);
    ROperator rop = *rop_;
    rop.attrs = attrs_;
    rop.inputs = inputs_;
    graph_.rops.push_back(std::move(rop));
  }

  // --- Rows. Exporters write a linear layer of x[B,L,8] as Reshape to [B*L,8], MatMul, Reshape to [B,L,4]. What has joined rows of lengths
  // of run time is made with its dimensions apart, [B,L,8] x [8,4], until a Reshape has them apart as well. ---
  bool follow_rows() {
    if (const auto* op = std::get_if<Reshape>(&rop_->attrs); op && rows_of(0) == 0) return join_rows(*op);
    size_t first = 0;
    while (first < rop_->inputs.size() && rows_of(first) == 0) ++first;
    if (first == rop_->inputs.size()) return false;
    const size_t parts = rows_of(first);
    const Shape& made = graph_.tensor(inputs_[first]).shape;
    const Shape apart(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(parts));
    if (const auto* op = std::get_if<Reshape>(&rop_->attrs)) {
      if (std::equal(apart.begin(), apart.end(), op->shape.begin(),
                     op->shape.begin() + static_cast<std::ptrdiff_t>(std::min(parts, op->shape.size())))) {
        result(0, axes_of(0));
        return false;  // apart again
      }
    }
    if (rop_->outputs.size() != 1 || !shift_rows(first, parts, apart)) throw Mixes{"takes rows of several lengths of run time together"};
    emit_rows(first, apart);
    return true;
  }
  size_t rows_of(size_t i) const { return has(i) ? rows_[rop_->inputs[i].index()] : 0; }

  // Whether the Reshape joins the first dimensions, one of which ends behind others.
  bool join_rows(const Reshape& op) {
    const Shape& from = shape(0);
    size_t parts = 1;
    while (parts < from.size() && !op.shape.empty() && product(from, 0, parts) < op.shape[0]) ++parts;
    const auto is_behind = [&](const LengthAxis& axis) { return axis.dim > 0 && product(from, 0, static_cast<size_t>(axis.dim)) > 1; };
    const auto is_joined = [&](const LengthAxis& axis) { return static_cast<size_t>(axis.dim) < parts; };
    const LengthAxes& axes = axes_of(0);
    if (op.shape.empty() || product(from, 0, parts) != op.shape[0] || std::none_of(axes.begin(), axes.end(), is_behind) ||
        !std::all_of(axes.begin(), axes.end(), is_joined))
      return false;
    const Shape apart(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(parts));
    attrs_ = Reshape{with_rest(apart, op.shape)};
    emit_rows(0, apart);
    return true;
  }
  static Shape with_rest(Shape apart, const Shape& shape) {
    apart.insert(apart.end(), shape.begin() + 1, shape.end());
    return apart;
  }

  // The attributes for rows apart. Operands without such rows must be the same for each of them.
  bool shift_rows(size_t first, size_t parts, const Shape& apart) {
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

  void emit_rows(size_t from, const Shape& apart) {
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

  // The shapes that the rule gives the result are those that the probes have.
  void settle(size_t k) {
    const LengthAxes& axes = results_[k];
    for (size_t d = 0; d < result_shape(k).size(); ++d) {
      const auto extent = extent_at(axes, d);
      for (const Probe& probe : probes_) {
        const Shape& there = probe.graph.tensor(twin(probe).outputs[k]).shape;
        const int64_t wanted = extent ? extent->at(probe.values[static_cast<size_t>(extent->length)]) : result_shape(k)[d];
        if (there.size() != result_shape(k).size() || there[d] != wanted)
          throw Mixes{fmt::format("has a result of shape {} with {}, which does not follow from its operands", shape_text(there),
                                  values_text(probe))};
      }
      if (!extent) continue;
      require_rising(*extent);
      if (least(*extent) < 1) {
        throw Mixes{fmt::format("has a result without elements at {}={}",
                                printable(original_.lengths[static_cast<size_t>(extent->length)].name),
                                original_.lengths[static_cast<size_t>(extent->length)].smallest)};
      }
      note(*extent);
    }
    const TensorId id = rop_->outputs[k];
    axes_[id.index()] = axes;
    if (std::holds_alternative<Softmax>(attrs_) && std::get<Softmax>(attrs_).end && !std::get<Softmax>(attrs_).log) {
      const auto& op = std::get<Softmax>(attrs_);
      is_filled_.insert(filled(id, static_cast<size_t>(op.last_axis), 0, *op.end));
    }
  }

  void require_rising(const Extent& extent) const {
    if (extent.times < 0) throw Mixes{"has a dimension that falls with a length"};
  }

  // Outputs become dense.
  void give_outputs() {
    graph_.output_axes.resize(original_.outputs.size());
    rop_ = nullptr;
    for (size_t i = 0; i < original_.outputs.size(); ++i) {
      const TensorId id = original_.outputs[i];
      where_ = fmt::format("output '{}'", printable(original_.tensor(id).name));
      if (original_.tensor(id).role == Role::constant)
        mapped_[id.index()] = take_constant(id, [i](const Probe& probe) { return probe.graph.outputs.at(i); });
      if (rows_[id.index()] > 0) throw Mixes{"has rows of several lengths of run time, one behind the other"};
      const LengthAxes axes = axes_[id.index()];
      graph_.output_axes[i] = axes;
      if (axes.empty()) {
        graph_.outputs[i] = mapped_[id.index()];
        if (graph_.outputs[i] != id) exchange_names(id, graph_.outputs[i]);
        continue;
      }
      graph_.outputs[i] = emit(packing(graph_.tensor(id).shape.size(), axes, Packed::out), {mapped_[id.index()]});
      exchange_names(id, graph_.outputs[i]);
    }
  }

  void exchange_names(TensorId id, TensorId with) {
    if (graph_.tensor(id).role != Role::input) std::swap(graph_.tensor(id).name, graph_.tensor(with).name);
  }

  using Filled = std::tuple<size_t, size_t, uint64_t, int32_t, int64_t, int64_t, int64_t>;
  static Filled filled(TensorId id, size_t dim, double fill, const Extent& e) {
    return {id.index(), dim, std::bit_cast<uint64_t>(fill), e.length, e.times, e.plus, e.over};  // NaN is in no order
  }

  const Graph original_;
  Graph graph_;
  const std::vector<Probe>& probes_;
  std::vector<TensorId> mapped_;  // per tensor of the original: the tensor that readers take
  std::vector<LengthAxes> axes_;  // per tensor of the original; of rows_, of the tensor that readers take
  std::vector<size_t> rows_;      // per tensor of the original: of how many dimensions its first one is made, where those stay apart; or 0
  std::set<std::string> names_;
  std::string where_;
  std::vector<int64_t> largest_;
  std::vector<Extent> known_;
  std::set<Filled> is_filled_;  // tensors whose elements behind an end are known already
  std::map<Filled, TensorId> masked_;
  std::map<std::tuple<int32_t, int64_t, int64_t, int64_t, size_t, int>, TensorId> valid_;
  std::map<std::tuple<int32_t, int64_t, int64_t, int64_t, int>, TensorId> number_;

  size_t at_ = 0;
  const ROperator* rop_ = nullptr;  // of the original
  OpAttrs attrs_;                   // what it becomes
  std::vector<TensorId> inputs_;
  std::vector<LengthAxes> results_;
};

}  // namespace

Graph with_lengths(const std::string& file, Graph graph, const std::vector<Probe>& probes) {
  Lengths lengths(std::move(graph), probes);
  try {
    return lengths.run();
  } catch (const Mixes& mixes) {
    throw unsupported(fmt::format("{}: {}{}{}", file, lengths.where(), lengths.where().empty() ? "the model " : " ", mixes.why));
  }
}

}  // namespace tamp::frontend
