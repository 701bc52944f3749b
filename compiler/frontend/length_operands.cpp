#include "compiler/frontend/length_operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// A number as the element type has it.
ops::Value value_of(DType dtype, double value) {
  Graph one;
  const TensorId from = add_constant(one, "x", DType::f64, {}, packed_bytes(std::vector<double>{value}));
  const TensorId to = add_tensor(one, {.name = "y", .dtype = dtype, .shape = {}});
  one.rops = {{"cast", Elementwise{{{ElementwiseOp::cast, {0}}}, {}, dtype}, {}, {from}, {to}, {}}};
  one.outputs = {to};
  return ops::run(one, {})[0];
}

}  // namespace

LengthOperands::LengthOperands(Graph graph, const std::vector<Probe>& probes) : LengthProbes(graph, probes), graph_(std::move(graph)) {
  mapped_.resize(original_.tensors.size());
  axes_.resize(original_.tensors.size());
  rows_.resize(original_.tensors.size());
  for (size_t i = 0; i < mapped_.size(); ++i) mapped_[i] = TensorId(static_cast<int32_t>(i));
  for (const Tensor& tensor : original_.tensors) names_.insert(tensor.name);
  for (const ROperator& rop : original_.rops) names_.insert(rop.name);
}

std::optional<Extent> LengthOperands::extent_at(const LengthAxes& axes, size_t d) {
  for (const LengthAxis& axis : axes) {
    if (static_cast<size_t>(axis.dim) == d) return axis.extent;
  }
  return std::nullopt;
}

void LengthOperands::add(LengthAxes& axes, size_t d, const Extent& extent) {
  if (const auto known = extent_at(axes, d)) {
    if (*known != extent) throw Mixes{fmt::format("has operands that end dimension {} of its result at different lengths of run time", d)};
    return;
  }
  const auto at = std::find_if(axes.begin(), axes.end(), [&](const LengthAxis& axis) { return static_cast<size_t>(axis.dim) > d; });
  axes.insert(at, {static_cast<int64_t>(d), extent});
}

void LengthOperands::add_aligned(LengthAxes& axes, size_t i, size_t rank) const {
  for (const LengthAxis& axis : axes_of(i)) add(axes, rank - shape(i).size() + static_cast<size_t>(axis.dim), axis.extent);
}

void LengthOperands::require_none_from(size_t first, const char* what) const {
  for (size_t i = first; i < rop_->inputs.size(); ++i) {
    if (has(i) && !axes_of(i).empty()) throw Mixes{fmt::format("has {} that end at a length of run time", what)};
  }
}

std::string LengthOperands::unique(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 2; !names_.insert(name).second; ++i) name = fmt::format("{}.{}", wanted, i);
  return name;
}

TensorId LengthOperands::emit(OpAttrs attrs, std::vector<TensorId> inputs) {
  ops::OperandList operands;
  for (const TensorId id : inputs) {
    operands.emplace_back();
    if (!id.valid()) continue;
    const Tensor& tensor = graph_.tensor(id);
    operands.back() = ops::Operand{{tensor.dtype, tensor.shape}, tensor.data.in_memory()};
  }
  const std::vector<ops::TensorType> types = ops::infer(attrs, operands);
  const std::string name = unique(fmt::format("{}.length", rop_ != nullptr ? rop_->name : "input"));
  const TensorId to = add_tensor(graph_, {.name = unique(name + ".value"), .dtype = types[0].dtype, .shape = types[0].shape});
  graph_.rops.push_back({name, std::move(attrs), {}, std::move(inputs), {to}, rop_ != nullptr ? rop_->origin : std::vector<std::string>()});
  return to;
}

TensorId LengthOperands::elementwise(ElementwiseOp op, std::vector<TensorId> inputs) {
  ElementwiseStep step{op, {}};
  for (size_t i = 0; i < inputs.size(); ++i) step.operands.push_back(static_cast<int32_t>(i));
  return emit(Elementwise{{step}}, std::move(inputs));
}

TensorId LengthOperands::constant(DType dtype, const Shape& shape, double value) {
  const ops::Value one = value_of(dtype, value);
  auto data = std::make_shared<Bytes>();
  for (int64_t i = element_count(shape); i > 0; --i) data->insert(data->end(), one.data->begin(), one.data->end());
  return add_constant(graph_, unique("length.constant"), dtype, shape, std::move(*data));
}

TensorId LengthOperands::constant_i64(const std::vector<int64_t>& values) {
  return add_constant(graph_, unique("length.constant"), DType::i64, {static_cast<int64_t>(values.size())}, packed_bytes(values));
}

TensorId LengthOperands::valid(const Extent& extent, int64_t largest, size_t dims_behind, DType dtype) {
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

TensorId LengthOperands::number_of(const Extent& extent, DType dtype) {
  const auto key = std::tuple(extent.length, extent.times, extent.plus, extent.over, static_cast<int>(dtype));
  TensorId& made = number_[key];
  if (made.valid()) return made;
  const bool is_plain = extent.times > 0 && least(extent) >= 0;
  const Extent read = is_plain ? extent : Extent{extent.length};
  const DType counted = dtype == DType::i32 ? DType::i32 : DType::i64;
  Pad pad;
  pad.before = pad.after = {0};
  pad.number = read;
  TensorId number = emit(Reshape{{}}, {emit(pad, {constant(counted, {1}, static_cast<double>(at(read, largest_)))})});
  if (!is_plain) {
    number = elementwise(ElementwiseOp::mul, {number, scalar(counted, static_cast<double>(extent.times))});
    number = elementwise(ElementwiseOp::add, {number, scalar(counted, static_cast<double>(extent.plus))});
    if (extent.over != 1) throw Mixes{"has a number that falls with a length, in steps"};
  }
  if (counted != dtype) number = emit(Elementwise{{{ElementwiseOp::cast, {0}}}, {}, dtype}, {number});
  return made = number;
}

TensorId LengthOperands::masked_tensor(TensorId x, size_t dim, const Extent& extent, double fill) {
  const Tensor tensor = graph_.tensor(x);
  const DType condition = tensor.dtype == DType::f32 ? DType::f32 : DType::boolean;
  const TensorId mask = valid(extent, tensor.shape[dim], tensor.shape.size() - 1 - dim, condition);
  return elementwise(ElementwiseOp::where, {mask, x, scalar(tensor.dtype, fill)});
}

// Constants need no mask where they are multiplied by zeros.
void LengthOperands::mask(size_t i, size_t dim, const Extent& extent, double fill) {
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

LengthOperands::Filled LengthOperands::filled(TensorId id, size_t dim, double fill, const Extent& e) {
  return {id.index(), dim, std::bit_cast<uint64_t>(fill), e.length, e.times, e.plus, e.over};  // NaN is in no order
}

void LengthOperands::take_operand(size_t i) {
  const TensorId id = rop_->inputs[i];
  inputs_[i] = take_constant(id, [&](const Probe& probe) { return twin(probe).inputs[i]; });
}

// A constant: where lengths cut it off; or, if its numbers depend on a length, what computes them.
TensorId LengthOperands::take_constant(TensorId id, const IdIn& id_in) {
  const Tensor& own = original_.tensor(id);
  const std::string name = fmt::format("'{}'", printable(own.name));
  const auto other = [&](const Probe& probe) -> const Tensor& { return probe.graph.tensor(id_in(probe)); };
  LengthAxes axes;
  for (const Probe& probe : probes_) {
    if (other(probe).role != Role::constant || other(probe).dtype != own.dtype || other(probe).shape.size() != own.shape.size())
      throw Mixes{fmt::format("has another kind of operand {} with {}", name, values_text(probe))};
  }
  for (size_t d = 0; d < own.shape.size(); ++d) {
    const auto extent = line_of_extent(own.shape[d], [&](const Probe& probe) { return other(probe).shape[d]; });
    if (extent) require_rising(*extent);
    if (extent) add(axes, d, *extent);
  }
  axes_[id.index()] = axes;
  if (is_cut(own, other)) return id;
  if (!axes.empty() || (own.dtype != DType::i64 && element_count(own.shape) != 1))
    throw Mixes{fmt::format("has a constant {} whose numbers change with the length", name)};
  return of_lines(own, other);
}

TensorId LengthOperands::of_lines(const Tensor& own, const Other& other) {
  std::vector<TensorId> parts;
  for (const Number& number : numbers_of(own, other)) {
    const TensorId part = number.extent ? number_of(*number.extent, own.dtype) : scalar(own.dtype, static_cast<double>(number.value));
    if (own.shape.empty()) return part;
    parts.push_back(emit(Reshape{{1}}, {part}));
  }
  const TensorId all = parts.size() == 1 ? parts[0] : emit(Concat{0}, parts);
  return own.shape.size() == 1 ? all : emit(Reshape{own.shape}, {all});
}

void LengthOperands::require_rising(const Extent& extent) const {
  if (extent.times < 0) throw Mixes{"has a dimension that falls with a length"};
}

}  // namespace tamp::frontend
