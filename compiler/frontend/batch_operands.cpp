#include "compiler/frontend/batch_operands.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "compiler/frontend/initializers.h"
#include "compiler/support/error.h"

namespace tamp::frontend {

Places places_of(const Shape& shape, int64_t outer, int64_t batch) {
  Places exact, joined, in_last;
  int64_t count = 1;
  for (size_t d = 0; d < shape.size() && count > 0; count *= shape[d++]) {
    if (outer % count != 0 || shape[d] % (outer / count * batch) != 0) continue;
    const Place place{d, outer / count, shape[d] / (outer / count * batch)};
    const bool is_features = d > 0 && d + 1 == shape.size();
    (place.is_exact() ? exact : is_features ? in_last : joined).push_back(place);
  }
  if (!exact.empty()) return exact;
  std::stable_partition(joined.begin(), joined.end(), [](const Place& place) { return place.before == 1; });
  joined.insert(joined.end(), in_last.begin(), in_last.end());
  return joined;
}

BatchOperands::BatchOperands(const Graph& original, int64_t from, int64_t to, const ModelWords& words)
    : original_(original),
      from_(from),
      to_(to),
      words_(words),
      graph_(original),
      places_(original.tensors.size()),
      steps_(original.tensors.size(), 0) {
  for (const Tensor& tensor : original.tensors) tensor_names_.take(tensor.name);
  for (const ROperator& rop : original.rops) rop_names_.take(rop.name);
}

Shape BatchOperands::grown(Shape shape, const Place& place) const {
  shape[place.dim] = place.extent(to_);
  return shape;
}

Shape BatchOperands::split(Shape shape, const Place& place) const {
  shape[place.dim] = to_;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(place.dim) + 1, place.inner);
  if (place.before != 1) shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(place.dim), place.before);
  if (shape.size() > kMaxRank) throw Mixes{fmt::format("would need {} dimensions, supported: up to {}", shape.size(), kMaxRank)};
  return shape;
}

void BatchOperands::require_size(const Tensor& tensor) const {
  const std::string limit = shape_limit(tensor.shape);
  if (!limit.empty()) throw Mixes{fmt::format("its result '{}' {}", printable(tensor.name), limit)};
}

Elementwise BatchOperands::step(ElementwiseOp op) {
  std::vector<int32_t> operands;
  for (int32_t i = 0; i < arity_of(op); ++i) operands.push_back(i);
  return {{{op, operands}}};
}

std::vector<ops::TensorType> BatchOperands::types_of(const OpAttrs& attrs, const std::vector<TensorId>& inputs) const {
  ops::OperandList operands;
  for (const TensorId id : inputs) {
    if (!id.valid()) {
      operands.emplace_back();
      continue;
    }
    const Tensor& tensor = graph_.tensor(id);
    operands.push_back(ops::Operand{{tensor.dtype, tensor.shape}, tensor.data.in_memory()});
  }
  try {
    return ops::infer(attrs, operands);
  } catch (const Error& error) {
    throw Mixes{error.what()};
  }
}

TensorId BatchOperands::emit(OpAttrs attrs, std::vector<TensorId> inputs) {
  const ops::TensorType type = types_of(attrs, inputs).at(0);
  const Tensor tensor{tensor_names_.unique(rop_->name + ".batch", ":"), type.dtype, type.shape};
  require_size(tensor);
  const std::string name = rop_names_.unique(rop_->name + ".batch", ".");
  const TensorId id = add_tensor(graph_, tensor);
  add({name, std::move(attrs), {}, std::move(inputs), {id}, rop_->origin});
  return id;
}

TensorId BatchOperands::add_value(DType dtype, Shape shape, TensorData data) {
  return add_tensor(graph_, {tensor_names_.unique(rop_->name + ".batch", ":"), dtype, std::move(shape), Role::constant, std::move(data)});
}

void BatchOperands::require_table(const Shape& shape, DType dtype) const {
  const std::optional<int64_t> count = checked_count(shape);
  if (!count || *count > kFoldTensorBytes / bytes_of(dtype))
    throw Mixes{fmt::format("would need a table of shape {}, at most {} are folded", shape_text(shape), bytes_text(kFoldTensorBytes))};
}

TensorId BatchOperands::constant(DType dtype, const Shape& shape, const std::vector<int64_t>& values) {
  Bytes bytes(values.size() * static_cast<size_t>(bytes_of(dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto narrow = static_cast<int32_t>(values[i]);
    if (dtype == DType::i32 && narrow != values[i]) throw Mixes{"would need numbers beyond 32 bits"};
    if (dtype == DType::i32) std::memcpy(bytes.data() + i * sizeof narrow, &narrow, sizeof narrow);
    if (dtype == DType::i64) std::memcpy(bytes.data() + i * sizeof values[i], &values[i], sizeof values[i]);
  }
  return add_value(dtype, shape, std::make_shared<const Bytes>(std::move(bytes)));
}

TensorId BatchOperands::repeated(size_t i, const Place& batch) {
  const Tensor& tensor = operand(i);
  if (tensor.shape.at(batch.dim) != batch.extent(from_)) throw Mixes{fmt::format("repeats {} for each element of the batch", name(i))};
  if (const std::string limit = shape_limit(grown(tensor.shape, batch)); !limit.empty()) throw Mixes{fmt::format("{} {}", name(i), limit)};
  const int64_t outer = product(tensor.shape, 0, batch.dim) * batch.before;
  const int64_t each = element_count(tensor.shape) / std::max<int64_t>(1, outer * from_);
  const auto bytes = static_cast<size_t>(each * bytes_of(tensor.dtype));
  if (!tensor.data || outer * to_ * static_cast<int64_t>(bytes) > kFoldTensorBytes) return repeated_at_run_time(i, batch);
  Bytes made(static_cast<size_t>(outer * to_) * bytes);
  for (int64_t o = 0; o < outer; ++o) {
    const std::byte* first = tensor.data->data() + static_cast<size_t>(o * from_) * bytes;
    for (int64_t b = 1; b < from_; ++b) {
      if (std::memcmp(first, first + static_cast<size_t>(b) * bytes, bytes) != 0)
        throw Mixes{fmt::format("its constant {} has other values for one element of the batch than for another", name(i))};
    }
    for (int64_t b = 0; b < to_; ++b) std::memcpy(made.data() + static_cast<size_t>(o * to_ + b) * bytes, first, bytes);
  }
  return add_value(tensor.dtype, grown(tensor.shape, batch), std::make_shared<const Bytes>(std::move(made)));
}

TensorId BatchOperands::repeated_at_run_time(size_t i, const Place& batch) {
  if (from_ != 1) throw Mixes{fmt::format("{} may have other values for one element of the batch than for another", name(i))};
  Shape all = split(shape(i), batch), one = all;
  one[batch.dim + (batch.before == 1 ? 0 : 1)] = 1;
  const TensorId apart = emit(Reshape{one}, {inputs_[i]});
  const TensorId expanded = emit(Elementwise{{{ElementwiseOp::identity, {0}}}, all}, {apart});
  return emit(Reshape{grown(shape(i), batch)}, {expanded});
}

TensorId BatchOperands::offsets(const Shape& shape, const Place& batch, int64_t step, DType dtype) {
  Shape extents(shape.size(), 1);
  extents[batch.dim] = batch.extent(to_);
  require_table(extents, dtype);
  std::vector<int64_t> values(static_cast<size_t>(batch.extent(to_)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i) / batch.inner % to_ * step;
  return constant(dtype, extents, values);
}

void BatchOperands::take_step(size_t i) {
  if (step_of(i) == 0) return;
  const auto* elementwise = std::get_if<Elementwise>(&rop_->attrs);
  const bool is_step = elementwise && elementwise->steps.size() == 1;
  const bool is_cast = is_step && elementwise->steps[0].op == ElementwiseOp::cast && is_integer(original_.tensor(rop_->outputs[0]).dtype);
  const bool keeps = std::holds_alternative<Reshape>(rop_->attrs) || std::holds_alternative<Transpose>(rop_->attrs) || is_cast ||
                     (is_step && elementwise->steps[0].op == ElementwiseOp::add);
  if (!keeps && !(std::holds_alternative<Gather>(rop_->attrs) && i == 1))
    throw Mixes{fmt::format("computes with {}, which numbers the elements of the whole batch", name(i))};
  if (keeps) step_ += step_of(i);
}

bool BatchOperands::takes_first_numbers(size_t i, const Place& batch) {
  const Tensor& tensor = operand(i);
  const bool is_whole = tensor.dtype == DType::i64 || tensor.dtype == DType::i32;
  if (from_ == 1 || !tensor.data || !is_whole || element_count(tensor.shape) == 0 || tensor.shape[batch.dim] != batch.extent(from_))
    return false;
  require_table(grown(tensor.shape, batch), tensor.dtype);
  const std::vector<int64_t> numbers = whole_numbers(tensor);
  const int64_t outer = product(tensor.shape, 0, batch.dim) * batch.before, each = element_count(tensor.shape) / (outer * from_);
  const int64_t step = numbers.at(static_cast<size_t>(each)) - numbers[0];
  std::vector<int64_t> first;
  for (int64_t o = 0; o < outer; ++o) {
    const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(o * from_ * each);
    for (int64_t k = each; k < from_ * each; ++k) {
      if (begin[k] != begin[k % each] + k / each * step) return false;
    }
    for (int64_t b = 0; b < to_; ++b) first.insert(first.end(), begin, begin + static_cast<std::ptrdiff_t>(each));
  }
  inputs_[i] = constant(tensor.dtype, grown(tensor.shape, batch), first);
  step_ += step;
  return true;
}

TensorId BatchOperands::counted_from_beginning(TensorId numbers, int64_t rows) {
  const DType dtype = graph_.tensor(numbers).dtype;
  const TensorId is_negative = emit(ElementwiseOp::less, {numbers, constant(dtype, 0)});
  return emit(ElementwiseOp::where, {is_negative, emit(ElementwiseOp::add, {numbers, constant(dtype, rows)}), numbers});
}

TensorId BatchOperands::nearest(TensorId numbers, int64_t rows) {
  const DType dtype = graph_.tensor(numbers).dtype;
  const TensorId counted = counted_from_beginning(numbers, rows);
  return emit(ElementwiseOp::min, {emit(ElementwiseOp::max, {counted, constant(dtype, 0)}), constant(dtype, rows - 1)});
}

bool BatchOperands::are_within(size_t i, int64_t rows) const {
  const std::optional<NumberRange> range = range_of(graph_, makers_, inputs_[i]);
  return range && range->least >= 0 && range->most < rows;
}

TensorId BatchOperands::numbered(const Place& batch, int64_t each, const std::optional<Outside>& outside) {
  TensorId numbers = inputs_[1];
  const DType dtype = graph_.tensor(numbers).dtype;
  const TensorId shift = offsets(shape(1), batch, each, dtype);
  if (are_within(1, each)) return emit(ElementwiseOp::add, {numbers, shift});
  if (!outside) return emit(ElementwiseOp::add, {nearest(numbers, each), shift});
  if (outside->counts_back) numbers = counted_from_beginning(numbers, each);
  const TensorId is_inside = emit(ElementwiseOp::logical_and, {emit(ElementwiseOp::greater_equal, {numbers, constant(dtype, 0)}),
                                                               emit(ElementwiseOp::less, {numbers, constant(dtype, each)})});
  return emit(ElementwiseOp::where, {is_inside, emit(ElementwiseOp::add, {numbers, shift}), constant(dtype, outside->number)});
}

TensorId BatchOperands::interleaved(const Place& batch, const Place& rows) {
  const DType dtype = operand(1).dtype;
  const TensorId numbers = are_within(1, rows.extent(1)) ? inputs_[1] : nearest(inputs_[1], rows.extent(1));
  const TensorId shift = offsets(shape(1), batch, rows.inner, dtype), factor = constant(dtype, to_);
  if (rows.inner == 1) return emit(ElementwiseOp::add, {emit(ElementwiseOp::mul, {numbers, factor}), shift});
  const TensorId rest = emit(ElementwiseOp::mod, {numbers, constant(dtype, rows.inner)});
  const TensorId front = emit(ElementwiseOp::mul, {emit(ElementwiseOp::sub, {numbers, rest}), factor});
  return emit(ElementwiseOp::add, {emit(ElementwiseOp::add, {front, shift}), rest});
}

Place BatchOperands::common_place(size_t first) const {
  const Place& batch = *place(first);
  for (size_t i = first; i < rop_->inputs.size(); ++i) {
    if (is_stacked(i) && *place(i) != batch)
      throw Mixes{fmt::format("has the batch at another place in {} than in {}", name(i), name(first))};
  }
  return batch;
}

void BatchOperands::repeat_all(const Place& batch) {
  for (size_t i = 0; i < rop_->inputs.size(); ++i) {
    if (has(i) && !is_stacked(i)) inputs_[i] = repeated(i, batch);
  }
}

void BatchOperands::align(size_t i, size_t rank, const Place& batch) {
  const size_t own_rank = shape(i).size();
  const bool reaches = batch.dim + own_rank >= rank;
  const size_t d = reaches ? batch.dim + own_rank - rank : 0;
  if (is_stacked(i)) {
    if (reaches && *place(i) == batch.at(d)) return;
    throw Mixes{fmt::format("combines elements of the batch in {} with others in {}", name(first_stacked()), name(i))};
  }
  if (!reaches || shape(i)[d] == 1) return;
  if (shape(i)[d] != batch.extent(from_)) {
    throw Mixes{fmt::format("repeats {} along dimension {}, along which the elements of the batch lie", name(first_stacked()),
                            place(first_stacked())->dim)};
  }
  inputs_[i] = repeated(i, batch.at(d));
}

void BatchOperands::add(ROperator rop) {
  for (const TensorId id : rop.outputs) makers_[id] = graph_.rops.size();
  graph_.rops.push_back(std::move(rop));
}
}  // namespace tamp::frontend
