// Two halves: reading a node (operands, attributes, axes), and emitting rOperators for it.
#include "compiler/frontend/node_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

std::string count_text(size_t min, size_t max) {
  if (min == max) return fmt::format("{}", min);
  return fmt::format("{} to {}", min, max);
}

// "; it follows from input 'k': --freeze k=FILE makes a constant of it", or nothing where it follows
// from many inputs or large ones.
std::string advice_to_freeze(const Graph& graph, TensorId id) {
  constexpr size_t kFew = 3;
  constexpr int64_t kMostElements = 64;
  std::vector<bool> follows(graph.tensors.size(), false);
  follows[id.index()] = true;
  for (auto rop = graph.rops.rbegin(); rop != graph.rops.rend(); ++rop) {  // in order: producers come before consumers
    if (std::none_of(rop->outputs.begin(), rop->outputs.end(), [&](TensorId out) { return follows[out.index()]; })) continue;
    for (const TensorId in : rop->inputs) {
      if (in.valid()) follows[in.index()] = true;
    }
  }
  std::vector<std::string> names, options;
  for (const TensorId input : graph.inputs) {
    if (!follows[input.index()]) continue;
    const Tensor& tensor = graph.tensor(input);
    const bool is_data = element_count(tensor.shape) > kMostElements || (is_float(tensor.dtype) && input != id);
    if (is_data) return "";  // and no setting
    const std::string name = printable(graph.tensor(input).name);
    names.push_back(fmt::format("'{}'", name));
    options.push_back(fmt::format("--freeze {}=FILE", name));
  }
  if (names.empty() || names.size() > kFew) return "";
  const bool is_one = names.size() == 1;
  return fmt::format("; it follows from {} {}: {} {} of {}", is_one ? "input" : "inputs", join(names, ", "), join(options, " "),
                     is_one ? "makes a constant" : "make constants", is_one ? "it" : "them");
}

}  // namespace

NodeImport::NodeImport(Builder& builder, const Node& node, Context context, std::vector<TensorId> inputs)
    : builder_(builder),
      node_(node),
      context_(std::move(context)),
      name_(own_name() + context_.suffix),
      inputs_(std::move(inputs)),
      known_attributes_(node.attributes.size(), false),
      results_(node.outputs.size()),
      first_new_tensor_(builder.graph.tensors.size()) {
  builder_.words.operators.try_emplace(own_name(), node.op_type);
}

std::string NodeImport::own_name() const {
  return node_.name.empty() ? fmt::format("{}{}#{}", context_.prefix, node_.op_type, node_.index) : node_.name;
}

Error NodeImport::bad(const std::string& why) const { return bad_input("{}: {}", context_.where, why); }
Error NodeImport::refuse(const std::string& why) const { return unsupported("{}: {}", context_.where, why); }

void NodeImport::expect_inputs(size_t min, size_t max) const {
  if (inputs_.size() < min || inputs_.size() > max) throw bad("has {} inputs, expected {}", inputs_.size(), count_text(min, max));
  for (size_t i = 0; i < min; ++i) in(i);
}

void NodeImport::expect_outputs(size_t max) const {
  if (node_.outputs.size() > max) throw bad("has {} outputs, expected at most {}", node_.outputs.size(), max);
}

TensorId NodeImport::in(size_t i) const {
  if (!has(i)) throw bad("input {} is missing", i);
  return inputs_[i];
}

std::optional<Builder::Padded> NodeImport::padding(TensorId id) const {
  const auto found = builder_.padded.find(id);
  return found == builder_.padded.end() ? std::nullopt : std::optional(found->second);
}

const std::vector<TensorId>& NodeImport::elements(size_t i) const {
  if (builder_.growing.contains(in(i)))
    throw refuse("input {} is a sequence that grows in a loop of run time, supported: SequenceInsert at one of its ends", i);
  const auto found = builder_.sequences.find(in(i));
  if (found == builder_.sequences.end()) throw bad("input {} is a tensor, expected a sequence", i);
  return found->second;
}

NarrowType NodeImport::narrow(TensorId id) const {
  const auto found = builder_.narrow.find(id);
  return found == builder_.narrow.end() ? NarrowType::none : found->second;
}

std::string NodeImport::type_text(TensorId id) const {
  const NarrowType type = narrow(id);
  return type == NarrowType::none ? name_of(dtype(id)) : onnx_type_name(static_cast<int>(type));
}

TensorId NodeImport::as_held(TensorId id) { return of_narrow(id, NarrowType::none); }

TensorId NodeImport::of_narrow(TensorId id, NarrowType type) {
  const NarrowType is = narrow(id);
  if (is == type) return id;
  const bool is_own = is == NarrowType::none && id.index() >= first_new_tensor_;  // of this node: nobody else reads it
  if (!is_own) id = is_constant(id) ? constant(value(id)) : elementwise(ElementwiseOp::identity, {id});
  if (type != NarrowType::none) builder_.narrow[id] = type;
  return id;
}

void NodeImport::expect_same_dtype(const std::vector<TensorId>& ids) const {
  for (const TensorId id : ids) {
    if (dtype(id) != dtype(ids[0]) || narrow(id) != narrow(ids[0]))
      throw bad("operands of different types: {} and {}", type_text(ids[0]), type_text(id));
  }
}

void NodeImport::expect_float(const std::vector<TensorId>& ids) const {
  expect_same_dtype(ids);
  if (!is_float(dtype(ids[0]))) throw bad("operands are {}, expected floats", name_of(dtype(ids[0])));
}

void NodeImport::expect_number(const std::vector<TensorId>& ids) const {
  expect_same_dtype(ids);
  if (dtype(ids[0]) == DType::boolean) throw bad("operands are bool, expected numbers");
}

void NodeImport::expect_whole(const std::vector<TensorId>& ids) const {
  expect_same_dtype(ids);
  if (!is_integer(dtype(ids[0]))) throw bad("operands are {}, expected integers", name_of(dtype(ids[0])));
}

void NodeImport::expect_bool(const std::vector<TensorId>& ids) const {
  expect_same_dtype(ids);
  if (dtype(ids[0]) != DType::boolean) throw bad("operands are {}, expected bool", name_of(dtype(ids[0])));
}

std::string NodeImport::freeze_advice(TensorId id) const { return advice_to_freeze(builder_.graph, id); }

void NodeImport::expect_constant(size_t i, std::string_view name) const {
  const TensorId id = in(i);
  if (is_constant(id)) return;
  throw unsupported("{}: input {} ({}, tensor '{}') is known only at run time, supported: a constant{}", context_.where, i, name,
                    printable(node_.inputs[i]), freeze_advice(id));
}

Ints NodeImport::flat_ints(TensorId id) const {
  const ops::Value value = builder_.value(id);
  if (value.dtype == DType::i64) return ops::raw_numbers<int64_t>(value);
  const std::vector<int32_t> narrow = ops::raw_numbers<int32_t>(value);
  return {narrow.begin(), narrow.end()};
}

Ints NodeImport::ints(size_t i, std::string_view name) const {
  expect_constant(i, name);
  const DType type = dtype(in(i));
  const Shape extents = shape(in(i));
  if (type != DType::i64 && type != DType::i32) throw bad("input {} ({}) is {}, expected i64", i, name, name_of(type));
  if (extents.size() > 1) throw bad("input {} ({}) has shape {}, expected one dimension", i, name, shape_text(extents));
  return flat_ints(in(i));
}

std::optional<Ints> NodeImport::optional_ints(size_t i, std::string_view name) const {
  return has(i) ? std::optional(ints(i, name)) : std::nullopt;
}

double NodeImport::number(size_t i, std::string_view name) const {
  expect_constant(i, name);
  ops::Value value = builder_.value(in(i));
  if (element_count(value.shape) != 1) throw bad("input {} ({}) has shape {}, expected one element", i, name, shape_text(value.shape));
  if (value.dtype == DType::f64) return ops::raw_numbers<double>(value)[0];
  Graph scratch;  // any other type by way of the reference's cast
  const TensorId from = add_constant(scratch, "from", value.dtype, {}, *value.data);
  const TensorId to = add_tensor(scratch, {"to", DType::f64, {}});
  const ROperator rop{"cast", Elementwise{{{ElementwiseOp::cast, {0}}}, {}, DType::f64}, {}, {from}, {to}, {}};
  value.shape = {};
  return ops::raw_numbers<double>(ops::evaluate(scratch, rop, [&](TensorId) -> const ops::Value& { return value; })[0])[0];
}

const Attribute* NodeImport::find(std::string_view name) {
  for (size_t i = 0; i < node_.attributes.size(); ++i) {
    if (node_.attributes[i].name != name) continue;
    known_attributes_[i] = true;
    return &node_.attributes[i];
  }
  return nullptr;
}

Error NodeImport::wrong_kind(const Attribute& attribute, std::string_view expected) const {
  return bad("attribute '{}' is of kind {}, expected {}", printable(attribute.name), kind_of(attribute), expected);
}

template <class T>
std::optional<T> NodeImport::find_as(std::string_view name, std::string_view kind) {
  const Attribute* attribute = find(name);
  if (!attribute) return std::nullopt;
  if (const auto* value = std::get_if<T>(&attribute->value)) return *value;
  throw wrong_kind(*attribute, kind);
}

Subgraph& NodeImport::body(std::string_view name) {
  const auto found = find_as<std::shared_ptr<Subgraph>>(name, "graph");
  if (!found) throw bad("attribute '{}' is missing", name);
  return **found;
}

void NodeImport::expect_graph(std::string_view name) { body(name); }

std::optional<int64_t> NodeImport::find_int(std::string_view name) { return find_as<int64_t>(name, "int"); }
std::optional<float> NodeImport::find_float(std::string_view name) { return find_as<float>(name, "float"); }
std::optional<Ints> NodeImport::find_ints(std::string_view name) { return find_as<Ints>(name, "ints"); }
std::optional<std::vector<float>> NodeImport::find_floats(std::string_view name) { return find_as<std::vector<float>>(name, "floats"); }
std::optional<std::vector<std::string>> NodeImport::find_strings(std::string_view name) {
  return find_as<std::vector<std::string>>(name, "strings");
}

int64_t NodeImport::attr_int(std::string_view name, int64_t fallback) { return find_int(name).value_or(fallback); }
float NodeImport::attr_float(std::string_view name, float fallback) { return find_float(name).value_or(fallback); }

bool NodeImport::attr_flag(std::string_view name, bool fallback) {
  const int64_t value = attr_int(name, fallback ? 1 : 0);
  if (value != 0 && value != 1) throw bad("attribute '{}' is {}, expected 0 or 1", name, value);
  return value == 1;
}

std::string NodeImport::attr_string(std::string_view name, const std::string& fallback) {
  return find_as<std::string>(name, "string").value_or(fallback);
}

int64_t NodeImport::axis(int64_t axis, int64_t rank, std::string_view what, bool with_end) const {
  const int64_t last = with_end ? rank : rank - 1;
  if (axis < -rank || axis > last) throw bad("{} is {}, expected {} to {}", what, axis, -rank, last);
  return axis < 0 ? axis + rank : axis;
}

Ints NodeImport::axes(const Ints& axes_in, int64_t rank, std::string_view what) const {
  Ints sorted;
  for (const int64_t one : axes_in) sorted.push_back(axis(one, rank, what));
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    throw bad("{} {} name a dimension twice", what, shape_text(axes_in));
  return sorted;
}

TensorId NodeImport::add(OpAttrs attrs, std::vector<TensorId> inputs) {
  return builder_.emit({std::move(attrs), std::move(inputs), name_, own_name(), context_.where});
}

std::vector<TensorId> NodeImport::add_all(OpAttrs attrs, std::vector<TensorId> inputs, std::string_view suffix) {
  return builder_.emit_all({std::move(attrs), std::move(inputs), name_ + std::string(suffix), own_name(), context_.where});
}

std::vector<ops::TensorType> NodeImport::infer(OpAttrs attrs, std::vector<TensorId> inputs) const {
  return builder_.infer({std::move(attrs), std::move(inputs), name_, own_name(), context_.where});
}

TensorId NodeImport::part(TensorId id, int64_t i) {
  const Shape whole = shape(id), rest(whole.begin() + 1, whole.end());
  if (is_constant(id)) return builder_.constant_part(id, i);
  if (whole[0] == 1) return reshape(id, rest, range(-1, static_cast<int64_t>(whole.size()) - 1));
  return reshape(slice_axis(id, 0, i, 1), rest);
}

Shape NodeImport::broadcast(const Shape& a, const Shape& b) const {
  try {
    return ops::broadcast(a, b);
  } catch (const Error& error) {
    throw bad(error.what());
  }
}

TensorId NodeImport::elementwise(ElementwiseOp op, const std::vector<TensorId>& inputs, float a, float b) {
  ElementwiseStep step{op, {}, a, b};
  for (size_t i = 0; i < inputs.size(); ++i) step.operands.push_back(static_cast<int32_t>(i));
  return add(Elementwise{{step}}, inputs);
}

bool NodeImport::is_copy(TensorId id, const Shape& to) const { return shape(id) == to && !builder_.keeps_copies; }

TensorId NodeImport::reshape(TensorId id, const Shape& to) { return is_copy(id, to) ? id : add(Reshape{to}, {id}); }

TensorId NodeImport::reshape(TensorId id, const Shape& to, const Ints& kept) {
  const TensorId made = reshape(id, to);
  const std::vector<ROperator>& rops = builder_.graph.rops;
  if (made != id && !rops.empty() && rops.back().outputs[0] == made) builder_.words.kept_dims[rops.back().name] = kept;
  return made;
}

TensorId NodeImport::cast(TensorId id, DType to) {
  if (dtype(id) == to) return id;
  return add(Elementwise{{{ElementwiseOp::cast, {0}}}, {}, to}, {id});
}

TensorId NodeImport::expand(TensorId id, const Shape& to) {
  return is_copy(id, to) ? id : add(Elementwise{{{ElementwiseOp::identity, {0}}}, to}, {id});
}

TensorId NodeImport::constant(ops::Value value) { return builder_.add_value(builder_.unique_tensor_name(name_), std::move(value)); }

TensorId NodeImport::file_tensor(FileTensor value) {
  return builder_.add_file_tensor(builder_.unique_tensor_name(name_), std::move(value));
}

TensorId NodeImport::growing() {
  const TensorId id = sequence({});
  builder_.growing[id];
  return id;
}

TensorId NodeImport::kept(TensorId constant) {
  return builder_.emit({Elementwise{{{ElementwiseOp::identity, {0}}}}, {constant}, name_, own_name(), context_.where, /*folds=*/false});
}

TensorId NodeImport::sequence(std::vector<TensorId> elements) {
  const TensorId id = constant_i64(static_cast<int64_t>(elements.size()));
  builder_.sequences[id] = std::move(elements);
  return id;
}

TensorId NodeImport::constant_f32(float value) { return constant(ops::raw_value(DType::f32, {}, std::vector{value})); }
TensorId NodeImport::constant_f64(double value) { return constant(ops::raw_value(DType::f64, {}, std::vector{value})); }
TensorId NodeImport::constant_bool(bool value) {
  return constant({DType::boolean, {}, std::make_shared<const Bytes>(Bytes{std::byte{value}})});
}

TensorId NodeImport::constant_i64(const Ints& values, const Shape& to) { return constant(ops::raw_value(DType::i64, to, values)); }

TensorId NodeImport::constant_i64(int64_t value) { return constant_i64(Ints{value}, {}); }

TensorId NodeImport::constant_range(int64_t first, int64_t count, int64_t step, const Shape& to) {
  charge(count * static_cast<int64_t>(sizeof(int64_t)));
  Ints values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = first + i * step;
  return constant_i64(values, to);
}

TensorId NodeImport::counting(int64_t extent, size_t rank, size_t axis, int64_t step) {
  Shape to(rank, 1);
  to[axis] = extent;
  return constant_range(0, extent, step, to);
}

TensorId NodeImport::slice_axis(TensorId x, int64_t axis, int64_t start, int64_t extent, int64_t step) {
  Slice slice = whole_slice(shape(x));
  const auto d = static_cast<size_t>(axis);
  if (start == 0 && extent == slice.extents[d] && step == 1 && !builder_.keeps_copies) return x;
  slice.starts[d] = extent == 0 ? 0 : start;
  slice.steps[d] = extent > 1 ? step : 1;
  slice.extents[d] = extent;
  return add(slice, {x});
}

std::vector<TensorId> NodeImport::run_body(std::string_view name, const std::vector<TensorId>& inputs, int64_t iteration) {
  return context_.run_body(body(name), std::string(name), inputs, iteration);
}

std::optional<int64_t> NodeImport::open_trips() const {
  const auto found = builder_.open_trips.find(own_name());
  return found == builder_.open_trips.end() ? std::nullopt : std::optional(found->second);
}

size_t NodeImport::body_outputs(std::string_view name) { return body(name).outputs; }
int64_t NodeImport::body_size(std::string_view name) { return body(name).size; }

void NodeImport::result(size_t k, TensorId id) {
  if (wants(k)) results_[k] = id;
}

void NodeImport::padded_result(size_t k, TensorId id, TensorId count, int64_t axis) {
  if (!is_constant(count)) {
    builder_.padded[id] = {count, axis};
    return result(k, id);
  }
  Slice slice = whole_slice(shape(id));
  slice.extents[static_cast<size_t>(axis)] = flat_ints(count).at(0);
  result(k, add(slice, {id}));
}

std::vector<TensorId> NodeImport::finish() {
  for (size_t i = 0; i < known_attributes_.size(); ++i) {
    if (known_attributes_[i]) continue;
    throw bad("unknown attribute '{}'", printable(node_.attributes[i].name));
  }
  std::set<TensorId> named;
  for (size_t k = 0; k < results_.size(); ++k) {
    if (!wants(k)) continue;
    TAMP_CHECK(results_[k].valid(), context_.where + ": no result " + std::to_string(k));
    const bool made_here = results_[k].index() >= first_new_tensor_;
    if (!made_here || !named.insert(results_[k]).second) continue;
    const bool in_body = !context_.prefix.empty();  // others in there may have the name already
    const std::string& name = node_.outputs[k];
    builder_.graph.tensor(results_[k]).name = in_body ? builder_.unique_tensor_name(name + context_.suffix) : name;
  }
  return results_;
}

}  // namespace tamp::frontend
